"""Sinks that run on Spark, as a person sees and moves them: by the ledger, with Kafka's own group tool as the oracle."""

import json
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from contract.range_ledgers import closed, deliver, ended, wanted
from integration.delivering import deliver as delivering  # noqa: F401
from integration.delivering import files_in, ids_in
from integration.groups import described, fill, kafka_groups, member_of
from integration.ledgers import HERE, LOCAL
from playhead.errors import Refused
from playhead.kafka.client import describe_cluster
from playhead.kafka.groups import Committed, commit, list_committed
from playhead.kafka.topics import get_topic
from playhead.kafka.transactions import TransactionalProducer
from playhead.ledger.model import Claim
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline, TopicPartition
from playhead.model.ranges import Log
from playhead.offsets.published import Held, judge_start

pytest.importorskip("pyspark")
START_MS = 1_767_225_600_000  # 2026-01-01


@dataclass
class Sink:
    """What three steps of a run leave: partition 0 delivered in [0,10), [10,30), [30,40), partition 1 in [0,20), of 50 each."""

    name: str
    topic: str
    logs: list[Log]
    ranges: RangeLedger
    claim: Claim
    url: str
    id: str

    @property
    def at(self) -> list[int]:
        found = self.ranges.positions(self.claim.cluster, self.name)
        return [found[log].next_offset for log in self.logs]

    @property
    def published(self) -> list[int | None]:
        found = self.ranges.positions(self.claim.cluster, self.name)
        return [found[log].published_offset for log in self.logs]

    def commits(self, lab, group=None):
        found = described(lab, group or f"connect-{self.name}")
        return [found.get((group or f"connect-{self.name}", TopicPartition(self.topic, n))) for n in (0, 1)]

    def start(self, admin, group=None) -> None:
        """What a run asks before it begins."""
        found = self.ranges.positions(self.claim.cluster, self.name)
        held = {
            TopicPartition(log.topic, log.partition): Held(p.next_offset, p.published_offset)
            for log, p in found.items()
        }
        judge_start(list_committed(admin, group or f"connect-{self.name}", Deadline(30)), held, self.id, self.name)


@pytest.fixture
def make_sink(admin, settings_of, deadline, unique, new_topic, tmp_path):
    with ExitStack() as opened:

        def make(group: str | None = None, url: str = f"sqlite:///{tmp_path}/ledger.db") -> Sink:
            ledger = opened.enter_context(open_ledger(url, 10))
            ranges = RangeLedger(ledger)
            name, topic, ledger_id = unique("sink"), new_topic(2, retention_ms="-1"), unique("id")
            for partition in (0, 1):
                fill(settings_of, topic, partition, range(START_MS, START_MS + 50_000, 1000))
            topic_id = get_topic(admin, topic, deadline).id
            logs = [Log(topic, topic_id, partition) for partition in (0, 1)]
            claim = ledger.claim(describe_cluster(settings_of, deadline).id, name, HERE, LOCAL)
            ranges.adopt(claim, dict.fromkeys(logs, 0))
            ranges.remember(claim, "ledger-id", ledger_id)
            deliver(ranges, claim, 10, 30, 40, log=logs[0])
            deliver(ranges, claim, 20, log=logs[1])
            ends = dict(zip(logs, (40, 20), strict=True))
            commits = {
                TopicPartition(topic, log.partition): Committed(end, f"playhead/{ledger_id}/1")
                for log, end in ends.items()
            }
            assert not any(commit(admin, group or f"connect-{name}", commits, deadline).values())
            ranges.published(claim, ends)
            ended(ranges, claim)
            return Sink(name, topic, logs, ranges, claim, url, ledger_id)

        yield make


@pytest.fixture
def sink(make_sink):
    return make_sink()


@pytest.fixture
def do(playhead, lab, sink):
    """Commands with the brokers and the ledger, and no worker."""
    return lambda *words: playhead(*words, "-b", lab.bootstrap_servers, "--ledger", sink.url)


def place(sink, partition):
    return ["--partition", f"kafka_partition={partition}"]


def test_the_position_in_the_ledger_is_shown_with_the_lag_that_kafkas_tool_shows(lab, do, sink):
    shown = do("offsets", "show", sink.name, "-o", "json").exits(0)
    found = json.loads(shown.out)
    assert [(one["offset"]["kafka_offset"], one["lag"], one["published"]) for one in found["positions"]] == [
        (40, 10, 40),
        (20, 30, 20),
    ]
    assert (found["engine"], found["store"].startswith("ledger+sqlite:///")) == ("spark", True)
    assert "runs on Spark: its position is in the ledger" in shown.err
    theirs = kafka_groups(lab, "--describe", "--group", f"connect-{sink.name}").splitlines()
    assert sorted(line.split()[5] for line in theirs if line.startswith("connect-")) == ["10", "30"]
    listed = json.loads(do("offsets", "list", "-o", "json").exits(0).out)
    assert [(one["owner"], one["offset"]) for one in listed] == [
        (sink.name, {"kafka_offset": 40}),
        (sink.name, {"kafka_offset": 20}),
    ]
    history = do("offsets", "history", sink.name, "-o", "json").exits(0)
    assert [one["offset"]["kafka_offset"] for one in json.loads(history.out)] == [10, 30, 40, 20, 40, 20]


def test_an_edit_plans_on_the_ledger_and_a_run_may_start_after_it_and_after_its_undo(
    lab, do, playhead, sink, admin, tmp_path
):
    words = ["offsets", "set", sink.name, "kafka_offset=10", *place(sink, 0)]
    planned = do(*words, "--save-plan", str(tmp_path / "plan.json")).exits(0)
    assert "dry run: nothing was changed" in planned.err
    assert sink.at == [40, 20]
    done = do("offsets", "apply", str(tmp_path / "plan.json"), "--execute").exits(0)
    assert "2 range(s) will be delivered again" in done.out
    assert sink.at == [10, 20]
    assert sink.commits(lab) == [40, 20]  # the next run publishes it
    sink.start(admin)
    assert "ledger+sqlite" in playhead("offsets", "journal", "-o", "wide").exits(0).out
    undone = do("offsets", "undo", "--execute").exits(0)
    assert "2 range(s) count as delivered again" in undone.out
    assert sink.at == [40, 20]
    sink.start(admin)


@pytest.mark.parametrize(
    ("words", "after", "note"),
    [
        (["--shift-by", "-15"], [10, 0], "from 25 to the edge of [10,30)"),
        (["--to-offset", "10"], [10, 0], "from 10 to the edge of [0,20)"),
        (["--to-datetime", "2026-01-01T00:00:35.000Z"], [30, 35], "from 35 to the edge of [30,40)"),
        (["--to-earliest"], [0, 0], ""),
        (["--to-latest"], [50, 50], ""),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_the_reset_words_end_at_the_edge_of_a_delivered_range(do, sink, admin, words, after, note):
    command = ["offsets", "reset", sink.name, *words]
    planned = do(*command).exits(0)
    assert note in planned.out
    do(*command, "--execute").exits(0)
    assert sink.at == after
    sink.start(admin)


@pytest.mark.parametrize(
    "words", [["set", "kafka_offset=20", "--partition", "kafka_partition=1"], ["reset", "--to-current"]]
)
def test_a_move_to_where_it_is_gives_an_open_claim_up(do, sink, admin, words):
    claim = sink.ranges.ledger.claim(sink.claim.cluster, sink.name, HERE, LOCAL)
    sink.ranges.plan(claim, [wanted(20, 35, sink.logs[1])])
    ended(sink.ranges, claim)
    command = ["offsets", words[0], sink.name, *words[1:]]
    (planned,) = json.loads(do(*command, "-o", "json").exits(0).out)
    assert (planned["partition"]["kafka_partition"], planned["before"], planned["after"]) == (
        1,
        {"kafka_offset": 20},
        {"kafka_offset": 20},
    )
    assert planned["note"] == f"gives up {sink.topic}-1[20,35), which was begun and not finished"
    done = do(*command, "--execute").exits(0)
    assert "what is already written stays" in done.out
    assert "undo with" not in done.err
    assert sink.ranges.list_claims(sink.claim.cluster, sink.name) == []
    assert "nothing to change" in do(*command).exits(0).err
    assert sink.at == [40, 20]
    sink.start(admin)


def test_a_range_whose_beginning_expired_is_not_begun_again(lab, do, sink, tmp_path):
    limits = {"partitions": [{"topic": sink.topic, "partition": 0, "offset": 15}], "version": 1}
    (tmp_path / "limits.json").write_text(json.dumps(limits))
    tool = "org.apache.kafka.tools.DeleteRecordsCommand"
    lab.tool(tool, "--bootstrap-server", lab.bootstrap_servers, "--offset-json-file", str(tmp_path / "limits.json"))
    done = do("offsets", "reset", sink.name, "--to-earliest", "--execute").exits(0)
    assert "whose beginning has expired: the log begins at 15" in done.out
    assert sink.at == [30, 0]


def test_an_offset_inside_of_a_delivered_range_is_shown_in_the_plan_and_refused(do, sink):
    words = ["offsets", "set", sink.name, "kafka_offset=15", *place(sink, 0)]
    assert "will be refused: inside of [10,30), delivered in one piece" in do(*words).exits(0).out
    assert "move to 10, or to 30" in do(*words, "--execute").exits(4).out
    assert "the next run will refuse it" in do("offsets", "set", sink.name, "kafka_offset=99", "--all").exits(0).out
    assert sink.at == [40, 20]


def test_a_live_run_is_refused_and_stop_is_not_for_it(do, sink):
    claim = sink.ranges.ledger.claim(sink.claim.cluster, sink.name, HERE, LOCAL)
    words = ["offsets", "set", sink.name, "kafka_offset=10", *place(sink, 0), "--execute"]
    assert f"playhead runs stop {sink.name} --execute" in do(*words).exits(4).out
    assert f"playhead runs stop {sink.name} --execute" in do(*words, "--stop").exits(2).err
    refused = do("groups", "reset", f"connect-{sink.name}", "--to-offset", "5", "--all-topics", "--execute").exits(0)
    assert "published by a run on Spark" in refused.out
    assert "is running, by me@here" in do("groups", "reset", sink.name, "--to-ledger").exits(0).err
    assert "is running, by me@here" in do("groups", "reset", sink.name, "--to-ledger", "--execute").exits(4).out
    ended(sink.ranges, claim)
    do("groups", "reset", sink.name, "--to-ledger", "--execute").exits(0)


def test_a_group_that_was_moved_is_found_and_put_back_where_the_ledger_is(lab, do, sink, admin, deadline):
    group = f"connect-{sink.name}"
    moved = ["--reset-offsets", "--group", group, "--topic", f"{sink.topic}:0", "--to-offset", "5", "--execute"]
    kafka_groups(lab, *moved)
    with pytest.raises(Refused, match="is at 5, but the ledger is at 40") as refused:
        sink.start(admin)
    assert f"`playhead groups reset {sink.name} --to-ledger`" in str(refused.value.hint)
    store = f"ledger+{sink.url}#{sink.claim.cluster}"
    found = do("offsets", "doctor", "--store", store, "-o", "json").exits(1)
    assert [one["kind"] for one in json.loads(found.out)] == ["group-not-at-ledger"]
    assert f"playhead groups reset {sink.name} --to-ledger" in json.loads(found.out)[0]["mend"]

    with member_of(lab, group, [sink.topic], deadline):
        assert "--execute would be refused" in do("groups", "reset", sink.name, "--to-ledger").exits(0).err
        assert "stop its members first" in do("groups", "reset", sink.name, "--to-ledger", "--execute").exits(4).out
    sink_commits = sink.commits(lab)
    planned = json.loads(do("groups", "reset", sink.name, "--to-ledger", "-o", "json").exits(0).out)
    assert planned[0]["after"] == {"kafka_offset": 40}
    assert sink.commits(lab) == sink_commits
    do("groups", "reset", sink.name, "--to-ledger", "--execute").exits(0)
    assert sink.commits(lab) == [40, 20]
    marks = {one.metadata for one in list_committed(admin, group, deadline).values()}
    assert marks == {f"playhead/{sink.id}/1"}
    sink.start(admin)
    again = do("groups", "reset", sink.name, "--to-ledger", "--execute").exits(0)
    assert "nothing to change" in again.err
    do("offsets", "undo", "--execute").exits(0)
    assert sink.commits(lab) == sink_commits


def test_the_same_offset_published_by_another_ledger_is_marked_anew(do, sink, admin, deadline):
    group, tp = f"connect-{sink.name}", TopicPartition(sink.topic, 0)
    commit(admin, group, {tp: Committed(40, "playhead/another/7")}, deadline)
    with pytest.raises(Refused, match="another ledger"):
        sink.start(admin)
    assert "with the mark of the ledger" in do("groups", "reset", sink.name, "--to-ledger").exits(0).out
    do("groups", "reset", group, "--to-ledger", "--execute").exits(0)
    assert list_committed(admin, group, deadline)[tp] == Committed(40, f"playhead/{sink.id}/1")
    sink.start(admin)


def test_a_group_with_another_name_is_found_by_its_mark_or_taken_by_its_own_name(
    lab, playhead, make_sink, admin, unique
):
    group = unique("own")
    sink = make_sink(group)
    words = ["--to-ledger", "--execute", "-b", lab.bootstrap_servers, "--ledger", sink.url]
    moved = ["--reset-offsets", "--group", group, "--topic", f"{sink.topic}:1", "--to-offset", "7", "--execute"]
    for word in (sink.name, group):
        kafka_groups(lab, *moved)
        with pytest.raises(Refused):
            sink.start(admin, group)
        playhead("groups", "reset", word, *words).exits(0)
        assert sink.commits(lab, group) == [40, 20]
        sink.start(admin, group)
    assert "does not exist" in playhead("groups", "reset", "nobody", *words).exits(1).err


def test_forgotten_positions_leave_commits_that_to_ledger_forgets_too(lab, do, sink, admin):
    planned = do("offsets", "delete", sink.name, "--all").exits(0)
    assert f"`playhead groups reset {sink.name} --to-ledger" in planned.err
    do("offsets", "delete", sink.name, "--all", "--execute").exits(0)
    assert sink.ranges.positions(sink.claim.cluster, sink.name) == {}
    with pytest.raises(Refused, match="has no position for it any more"):
        sink.start(admin)
    do("groups", "reset", sink.name, "--to-ledger", "--execute").exits(0)
    assert set(sink.commits(lab)) == {None}
    sink.start(admin)
    new = ["kafka_offset=30", "--partition", f"kafka_topic={sink.topic},kafka_partition=0"]
    do("offsets", "set", sink.name, *new, "--execute").exits(0)
    assert sink.ranges.positions(sink.claim.cluster, sink.name)[sink.logs[0]].next_offset == 30
    sink.start(admin)


def test_runs_show_prints_each_partition_and_what_was_delivered(lab, do, playhead, sink):
    claim = sink.ranges.ledger.claim(sink.claim.cluster, sink.name, HERE, LOCAL)
    one = wanted(20, 30, sink.logs[1])
    sink.ranges.plan(claim, [one])
    sink.ranges.commit_all(claim, [(one, [closed(20, 30, sink.logs[1], count=8, rejected=2)])])
    sink.ranges.plan(claim, [wanted(30, 50, sink.logs[1])])
    shown = json.loads(do("runs", "show", sink.name, "-o", "json").exits(0).out)
    numbers = ("position", "end", "lag", "published", "ranges", "count", "rejected", "claimed")
    assert [tuple(row[key] for key in numbers) for row in shown["positions"]] == [
        (40, 50, 10, 40, 3, 40, 0, None),
        (30, 50, 20, 20, 2, 28, 2, "[30,50)"),
    ]
    assert [(row["start"], row["end"]) for row in shown["ranges"]] == [(20, 30), (0, 20), (30, 40), (10, 30), (0, 10)]
    assert "chunks" not in shown
    table = do("runs", "show", sink.name, "--chunks", "1").exits(0).out
    assert "OPEN CLAIM" in table and "[30,50)" in table
    assert do("runs", "show", sink.name, "-o", "csv").exits(0).out.count("\n") == 3
    without = playhead("runs", "show", sink.name, "--ledger", sink.url)
    assert "the lag is unknown: no broker is named" in without.exits(0).err
    listed = json.loads(do("runs", "list", "-o", "json").exits(0).out)
    assert [(row["stream"], row["position"]) for row in listed] == [(f"{sink.topic}-1", {"kafka_offset": 30})]


def test_while_no_worker_answers_a_group_is_written_only_if_it_is_known_to_be_the_sinks(lab, playhead, sink, admin):
    """Connect may give the sink another group, which nothing but its mark or its name on the command line shows."""
    group = f"connect-{sink.name}"
    away = ["--connect", "http://127.0.0.1:1", "-b", lab.bootstrap_servers, "--ledger", sink.url]
    playhead("groups", "reset", sink.name, "--to-ledger", *away).exits(0)  # it has the mark
    commit(admin, group, {TopicPartition(sink.topic, n): Committed(5, "") for n in (0, 1)}, Deadline(30))
    refused = playhead("groups", "reset", sink.name, "--to-ledger", "--execute", *away).exits(3).err
    assert f"the consumer group of {sink.name} is unknown" in refused
    found = playhead("offsets", "doctor", *away[2:], "--store", f"ledger+{sink.url}", "-o", "json").exits(1)
    assert json.loads(found.out)[0]["kind"] == "group-not-at-ledger"
    assert described(lab, group)[group, TopicPartition(sink.topic, 0)] == 5
    playhead("groups", "reset", group, "--to-ledger", "--execute", *away).exits(0)
    assert described(lab, group)[group, TopicPartition(sink.topic, 0)] == 40


def test_an_open_transaction_that_holds_a_sink_back_is_named(do, sink, settings_of, unique):
    holder = unique("holder")
    assert "open transaction" not in do("runs", "show", sink.name).exits(0).err
    with TransactionalProducer(settings_of, holder, Deadline(60)) as open_one:
        open_one._step("beginning", open_one._producer.begin_transaction)
        open_one.produce(sink.topic, b"k", b"v", partition=1)
        assert open_one._producer.flush(10) == 0
        held = rf"{sink.topic}-1 is committed up to 50 of 51: the open transaction of {holder} \(open since 20\S+Z\)"
        for noun in ("runs", "offsets"):
            assert re.search(held, do(noun, "show", sink.name).exits(0).err)
        open_one.abort()


def test_a_sink_that_connect_knows_too_is_the_ledgers_while_it_is_stopped_there(lab, playhead, sink, rest, deadline):
    config = {"connector.class": "FileStreamSink", "topics": sink.topic, "file": "/dev/null"}
    where = ["--connect", ",".join(lab.connect_urls), "-b", lab.bootstrap_servers, "--ledger", sink.url]
    rest.create_connector(sink.name, config, initial_state="STOPPED")
    deadline.wait_for(lambda: rest.find_status(sink.name), "the connector to be known")
    shown = playhead("offsets", "show", sink.name, *where).exits(0)
    assert "its position is in the ledger" in shown.err and "Connect has it too, but does not run it" in shown.err
    (row,) = json.loads(playhead("connectors", "list", sink.name, *where, "-o", "json").exits(0).out)
    assert (row["engine"], row["type"], row["lag"], row["state"]) == ("spark", "sink", 40, "finished")
    listed = json.loads(playhead("offsets", "list", sink.name, *where, "-o", "json").exits(0).out)
    assert [one["written_by"] for one in listed] == ["run 1", "run 1"]
    rest.resume(sink.name)
    deadline.wait_for(lambda: rest.find_status(sink.name).connector.state == "RUNNING", "the connector to run")
    shown = playhead("offsets", "show", sink.name, *where).exits(0)
    assert "Connect runs it: its group is edited" in shown.err
    rest.delete_connector(sink.name)


def test_positions_are_exported_imported_and_copied_as_those_of_every_owner(do, sink, tmp_path, unique):
    saved, other = str(tmp_path / "saved.json"), unique("other")
    do("offsets", "export", sink.name, "--file", saved).exits(0)
    do("offsets", "reset", sink.name, "--to-earliest", "--execute").exits(0)
    assert sink.at == [0, 0]
    do("offsets", "diff", saved).exits(1)
    do("offsets", "import", saved, "--execute").exits(0)
    assert sink.at == [40, 20]
    do("offsets", "diff", saved).exits(0)
    assert "its position is created" in do("offsets", "copy", sink.name, other, "--execute").exits(0).err
    assert [at.next_offset for at in sink.ranges.positions(sink.claim.cluster, other).values()] == [40, 20]


def test_a_ledger_on_postgresql_is_moved_and_its_edit_undone(lab, playhead, make_sink, unique):
    name = unique("ledger").replace("-", "_")
    lab.psql(f"create database {name}")
    url = f"{lab.postgres_url.rpartition('/')[0]}/{name}"
    sink = make_sink(url=url)
    where = ["-b", lab.bootstrap_servers, "--ledger", url]
    done = playhead("offsets", "reset", sink.name, "--shift-by", "-15", "--execute", *where).exits(0)
    assert "store: ledger+postgresql://" in done.err
    assert sink.at == [10, 0]
    entry = done.err.partition("journal: ")[2].partition(";")[0]
    assert "not a store of this context" in playhead("offsets", "undo", entry, "-b", "x:1").exits(4).err
    playhead("offsets", "undo", "--execute", *where).exits(0)
    assert sink.at == [40, 20]


def test_a_ledger_that_does_not_answer_matters_only_to_those_it_keeps(lab, playhead, do, sink):
    nowhere = ["--ledger", "postgresql://nobody@127.0.0.1:1/none", "-b", lab.bootstrap_servers]
    assert "40" in playhead("offsets", "show", f"group:connect-{sink.name}", *nowhere).exits(0).out
    playhead("offsets", "show", sink.name, *nowhere).exits(3)
    playhead("groups", "reset", sink.name, "--to-ledger", *nowhere).exits(3)
    absent = ["--ledger", "sqlite:////nowhere/ledger.db", "-b", lab.bootstrap_servers]
    assert "has no sink" in playhead("groups", "reset", sink.name, "--to-ledger", *absent).exits(2).err


def test_a_delivered_sink_goes_where_the_ledger_was_set_and_nowhere_else(
    delivering,
    lab,
    playhead,
    unique,
    tmp_path,
):
    topic = unique("moved")
    delivering.make_topic(topic)
    delivering.send(topic, 450)
    spec = delivering.files(topic, tmp_path)
    where = ["-b", lab.bootstrap_servers, "--ledger", delivering.ledger.address.shown.removeprefix("sql+")]
    assert delivering.run(spec)[0].error is None
    before = {path: path.stat().st_mtime_ns for path in files_in(tmp_path)}
    moved = ["offsets", "reset", spec.name, "--topic", f"{topic}:0", "--to-offset", "150", "--execute"]
    assert "from 150 to the edge of [100,200)" in playhead(*moved, *where).exits(0).out
    (done,) = delivering.run(spec)
    assert (done.error, done.rows) == (None, 125)
    assert ids_in(tmp_path) == Counter(range(450))
    again = {path.name for path in files_in(tmp_path) if path.stat().st_mtime_ns != before[path]}
    assert again <= {f"{topic}+0+0000000100.json", f"{topic}+0+0000000200.json"}
    group = f"connect-{spec.name}"
    kafka_groups(lab, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    (refused,) = delivering.run(spec)
    assert isinstance(refused.error, Refused)
    playhead("groups", "reset", spec.name, "--to-ledger", "--execute", *where).exits(0)
    assert set(described(lab, group).values()) == {225}
    (done,) = delivering.run(spec)
    assert (done.error, done.rows) == (None, 0)
