"""The checks of `offsets doctor` on what was read: no broker, no worker."""

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.config import Context, Setting
from playhead.connect.javafile import FileEntry as Pair
from playhead.connect.javafile import encode_file
from playhead.errors import Unreachable
from playhead.kafka.groups import Committed
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.partitions import Span
from playhead.ledger.model import Host, RunState
from playhead.ledger.runs import open_ledger
from playhead.model import (
    Change,
    Deadline,
    Engine,
    Map,
    Outcome,
    Outcomes,
    Plan,
    Position,
    Result,
    Secret,
    TopicPartition,
)
from playhead.offsets import group_to_ledger
from playhead.offsets.doctor import Diagnosis, Finding, diagnose
from playhead.offsets.doctor import positions as positions_of_sinks
from playhead.offsets.doctor.commands import Commands, field_words
from playhead.offsets.doctor.examination import check_applies
from playhead.offsets.doctor.findings import Said
from playhead.offsets.doctor.keys import check_keys
from playhead.offsets.doctor.positions import Spot, judge_spot, shared_groups, spots_of
from playhead.offsets.doctor.values import CONFLUENT_JDBC, check_values
from playhead.offsets.group_to_ledger import LedgerSink
from playhead.offsets.journal import Journal, JournalEntry
from playhead.offsets.locate import Locator
from playhead.offsets.published import Held
from playhead.offsets.workers import ConfiguredConnector
from playhead.stores import Access, Snapshot, Stored
from playhead.stores.memory import MemoryStore
from unit.doctoring import FILE_SOURCE, HERE, case, found, kept, kinds

AIVEN_JDBC = "io.aiven.connect.jdbc.JdbcSourceConnector"


# Keys


def test_an_owner_without_a_connector_is_an_orphan_and_one_with_it_is_not():
    pairs = [kept('["a",{"filename":"x"}]', '{"position":1}'), kept('["b",{"filename":"x"}]', '{"position":1}')]
    [finding] = found(check_keys(case(*pairs, connectors={"a": FILE_SOURCE})))
    assert (finding.kind, finding.owner) == ("orphan", "b")
    assert finding.mend == "playhead offsets delete b --all --worker-config worker.properties"


def test_what_runs_on_spark_is_no_orphan_though_no_worker_knows_it():
    known = replace(case(kept('["a",{}]', '{"n":1}'), connectors={}), on_spark=frozenset({"a"}))
    assert list(check_keys(known)) == []


def test_what_a_run_on_spark_wrote_is_no_orphan_though_no_ledger_here_knows_it():
    noted = replace(kept('["a",{"table":"x"}]', '{"n":1}'), by_spark_ms=1_700_000_000_000)
    plain = kept('["a",{"table":"y"}]', '{"n":1}')  # compaction removed its older record, or it was edited
    [said] = check_keys(case(noted, plain, connectors={}))
    assert isinstance(said, str)
    assert "a run on Spark wrote 1 of its 2 position(s), last at 2023-11-14T22:13:20Z" in said


def test_while_the_ledger_cannot_be_read_nothing_is_called_an_orphan():
    unknown = replace(case(kept('["a",{}]', '{"n":1}'), connectors={}), why="the ledger is away")
    [said] = check_keys(unknown)
    assert isinstance(said, str) and "whether it runs on Spark is unknown: the ledger is away" in said


def test_where_the_connectors_are_unknown_nothing_is_called_an_orphan():
    said = list(check_keys(case(kept('["a",{}]', '{"n":1}'))))
    assert said == ["the existing connectors are unknown, so orphaned offsets are not reported"]
    assert list(check_keys(case())) == []


def test_of_two_keys_for_one_partition_the_newer_one_stays_where_no_dialect_knows_better():
    old, new = (
        kept('["c",{"a":1,"b":2}]', '{"n":1}', written_ms=1),
        kept('["c",{"b":2,"a":1}]', '{"n":2}', written_ms=2),
    )
    [finding] = found(check_keys(case(old, new)))
    assert finding.kind == "twin"
    assert '["c",{"a":1,"b":2}]|NULL' in finding.mend


def test_a_copy_in_a_connectors_own_topic_is_no_twin():
    key = '["c",{"a":1,"b":2}]'
    own = replace(kept(key, '{"n":2}'), place=TopicPartition("own", partition_of(key.encode(), 5)))
    assert kinds(check_keys(case(kept(key, '{"n":1}'), own))) == []


def test_copies_in_two_kafka_partitions_are_one_twin_with_one_command_and_a_note_once_they_are_equal():
    key = '["c",{"filename":"x"}]'
    away = (partition_of(key.encode(), 5) + 1) % 5
    _, note = check_keys(case(kept(key, '{"position":5}'), kept(key, '{"position":5}', away)))
    assert isinstance(note, str) and "All copies are equal now" in note
    different = case(kept(key, '{"position":5}', written_ms=9), kept(key, '{"position":7}', away))
    [twin] = found(check_keys(different))
    assert twin.kind == "twin"
    assert twin.mend == (
        'playhead offsets set c position=5 --partition \'{"filename":"x"}\' --replace --worker-config worker.properties'
    )


def test_of_a_copy_and_a_deletion_the_newer_one_counts():
    key = '["c",{"filename":"x"}]'
    away = (partition_of(key.encode(), 5) + 1) % 5
    live, gone = kept(key, '{"position":5}', written_ms=9), kept(key, '{"position":1}', away)
    gone = replace(gone, offset=None)
    [twin] = found(check_keys(replace(case(live), removed=(gone,))))
    assert "deleted in offsets-" in twin.what and "set c position=5" in twin.mend
    [twin] = found(check_keys(replace(case(live), removed=(replace(gone, written_ms=10),))))
    assert twin.mend.startswith('printf %s \'{"c": [{"partition": {"filename": "x"}, "offset": null}]}\' | ')


def test_the_copies_of_an_orphan_are_no_findings_of_their_own():
    key = '["c",{"filename":"x"}]'
    away = (partition_of(key.encode(), 5) + 1) % 5
    pairs = (kept(key, '{"position":5}'), kept(key, '{"position":7}', away))
    assert kinds(check_keys(case(*pairs, connectors={}))) == [("orphan", "c")]


def test_a_twin_with_other_bytes_is_removed_in_each_of_its_partitions():
    good, other = '["c",{"a":1,"b":2}]', '["c",{"b":2,"a":1}]'
    away = (partition_of(other.encode(), 5) + 1) % 5
    pairs = kept(good, '{"n":1}', written_ms=9), kept(other, '{"n":1}'), kept(other, '{"n":1}', away)
    [twin] = found(check_keys(case(*pairs)))
    first, second = twin.mend.split(" && ")
    assert "kafka-console-producer.sh" in first and f"-p {away} -Z" in second


def test_a_key_that_is_beside_the_one_that_counts_is_never_removed_with_it():
    good, spaced = kept('["c",{"filename":"x"}]', '{"position":5}'), kept('["c", {"filename":"x"}]', '{"position":6}')
    [beside] = found(check_keys(case(good, spaced)))
    assert beside.mend.startswith('printf \'%s\\n\' \'["c", {"filename":"x"}]|NULL\' | kafka-console-producer.sh')
    [alone] = found(check_keys(case(spaced)))
    assert alone.kind == "unfindable" and "playhead offsets import -" in alone.mend
    assert "starts over" in alone.what and "counts" in beside.what


def test_a_legacy_key_is_not_a_twin_of_the_new_one():
    legacy = kept('{"schema":null,"payload":["c",{"filename":"x"}]}', '{"schema":null,"payload":{"position":5}}')
    assert legacy.offset == Map({"position": 5})
    assert kinds(check_keys(case(legacy, kept('["c",{"filename":"x"}]', '{"position":6}')))) == [("legacy", "c")]


# Values


def test_a_value_is_judged_by_the_dialect_of_the_connectors_class():
    pair = kept('["c",{"filename":"x"}]', '{"position":"5"}')
    assert kinds(check_values(case(pair), None)) == []  # many connectors have such a form
    [finding] = found(check_values(case(pair, connectors={"c": FILE_SOURCE}), None))
    assert finding.kind == "bad-value" and "$.offset.position" in finding.what
    assert shlex.split(finding.mend)[:6] == ["playhead", "offsets", "set", "c", "position=5", "--partition"]


def test_a_value_that_cannot_be_corrected_has_to_be_forgotten():
    pair = kept('["c",{"filename":"x"}]', '{"position":"five"}')
    [finding] = found(check_values(case(pair, connectors={"c": FILE_SOURCE}), None))
    assert finding.mend.startswith("playhead offsets delete c --partition")


def test_a_value_that_connect_itself_refuses_is_a_finding_whatever_wrote_it():
    nested = kept('["c",{"a":1}]', '{"n":{"x":1}}')
    assert nested.fault is not None
    assert kinds(check_values(case(nested), None)) == [("bad-value", "c")]
    text = kept('["c",{"a":1}]', '"just text"')
    assert kinds(check_values(case(text), None)) == [("bad-value", "c")]


def test_a_stale_v0_key_is_removed_without_its_v1():
    v0 = kept('["j",{"table":"orders"}]', '{"incrementing":4}')
    v1 = kept('["j",{"protocol":"1","table":"public.orders"}]', '{"incrementing":9}')
    [finding] = found(check_values(case(v0, v1), None))
    assert finding.kind == "jdbc-v0"
    document = json.loads(shlex.split(finding.mend.partition(" | ")[0])[2])
    assert document == {"j": [{"partition": {"table": "orders"}, "offset": None}]}
    assert kinds(check_values(case(v0), None)) == []
    other = kept('["k",{"protocol":"1","table":"public.orders"}]', '{"incrementing":9}')
    assert kinds(check_values(case(v0, other), None)) == []  # another connector's


@pytest.mark.parametrize(
    ("kind", "version", "is_reported"),
    [
        (CONFLUENT_JDBC, "10.9.7", True),
        (CONFLUENT_JDBC, "10.9.5", True),
        (CONFLUENT_JDBC, "11.0.0-SNAPSHOT", True),
        (CONFLUENT_JDBC, "10.9.4", False),
        (CONFLUENT_JDBC, "10.9", False),
        (CONFLUENT_JDBC, "", False),
        (AIVEN_JDBC, "6.12.0", False),
    ],
)
def test_which_of_two_table_names_is_read_is_reported_only_where_the_version_decides_it(kind, version, is_reported):
    short = kept('["j",{"protocol":"1","table":"public.orders"}]', '{"incrementing":4}')
    long = kept('["j",{"protocol":"1","table":"shop.public.orders"}]', '{"incrementing":9}')
    [finding] = found(check_values(case(long, short, connectors={"j": kind}), {kind: version}))
    assert finding.kind == "jdbc-two-names"
    assert ('"shop.public.orders"' in finding.mend) is is_reported
    assert ("playhead offsets history j" in finding.mend) is not is_reported
    assert ("is further ahead" in finding.what) is is_reported


# Positions in Kafka


def spot(offset: int, epoch: int | None = None) -> Spot:
    return Spot("s", TopicPartition("t", 0), offset, epoch, lambda tp: f"move {tp}", lambda tp: f"forget {tp}")


@pytest.mark.parametrize(
    ("offset", "epoch", "now", "kind"),
    [
        (5, None, 0, None),
        (10, None, 0, None),
        (3, None, 0, None),
        (2, None, 0, "sink-out-of-range"),
        (11, None, 0, "sink-out-of-range"),
        (5, 0, 0, None),
        (5, 2, 1, "topic-recreated"),
        (5, 2, None, None),
        (11, 2, 1, "sink-out-of-range"),
    ],
)
def test_a_position_is_judged_by_the_log_it_points_into(offset, epoch, now, kind):
    said = [finding.kind for finding in judge_spot(spot(offset, epoch), Span(3, 10), now)]
    assert said == ([kind] if kind else [])


def test_a_group_is_moved_by_the_command_for_groups_and_anything_else_by_that_for_offsets():
    entry = Stored(Position.of_kafka("g", "t", 1, 5), {"leader_epoch": 4})
    [of_group] = spots_of([entry], Commands((("--store", "groups://kafka:9092"),), "kafka:9092"), groups=True)
    assert (of_group.owner, of_group.epoch) == ("group:g", 4)
    assert of_group.move(of_group.place) == (
        "playhead groups reset g --topic t:1 --to-earliest --bootstrap-server kafka:9092"
    )
    [of_store] = spots_of([entry], Commands((("--store", "checkpoint:/data"),)), groups=False)
    assert (
        of_store.move(of_store.place) == "playhead offsets reset g --topic t:1 --to-earliest --store checkpoint:/data"
    )
    source = Stored(Position("c", Map({"filename": "x"}), Map({"position": 1})))
    assert spots_of([source], HERE, groups=False) == []


def test_sinks_share_a_group_only_on_one_cluster():
    sinks = [
        ConfiguredConnector("a", None, True, "g"),
        ConfiguredConnector("b/c", None, True, "g"),
        ConfiguredConnector("d", None, True, "g", cluster="elsewhere:9092"),
        ConfiguredConnector("e", None, True, "own"),
    ]
    [finding] = found(shared_groups(HERE, sinks))
    assert finding.owner == "a, b/c"
    assert shlex.split(finding.mend)[-1] == "http://connect:8083/connectors/b%2Fc/config"


# Applies


def cut_off(*owners: str, minutes_ago: int = 60) -> JournalEntry:
    partition = Map({"p": 1})
    plan = Plan.of("memory:x", [Change(owner, partition, Map({"n": 1}), Map({"n": 2})) for owner in owners])
    return JournalEntry("20260101T000000-x", "me@here", datetime.now(UTC) - timedelta(minutes=minutes_ago), plan, ())


def positions(**numbers: int | None) -> dict[tuple[str, Map], Map | None]:
    return {(name, Map({"p": 1})): None if n is None else Map({"n": n}) for name, n in numbers.items()}


def test_an_unfinished_apply_is_reported_owner_by_owner():
    [finding] = list(check_applies([cut_off("a", "b", "c")], lambda entry: positions(a=1, b=2, c=9), HERE))
    assert isinstance(finding, Finding)
    assert "a is at the old position; b is at the new position; c is at neither: it moved since then" in finding.what
    assert finding.mend == "playhead offsets undo 20260101T000000-x --worker-config worker.properties"
    assert "still runs" not in finding.what


def test_the_undo_of_an_apply_to_a_named_store_names_that_store_again():
    """Without it the undo is refused: the store is not one of the context."""
    there = Commands((("--store", "sql+sqlite:///x.db?table=a b"), ("--via", "topic"), ("--context", "shop")))
    [finding] = list(check_applies([cut_off("a")], lambda entry: positions(a=2), there))
    wanted = ["undo", "20260101T000000-x", "--store", "sql+sqlite:///x.db?table=a b", "--context", "shop"]
    assert isinstance(finding, Finding) and shlex.split(finding.mend)[2:] == wanted


def test_a_group_is_not_compared_with_the_ledger_while_connect_may_give_the_sink_another(monkeypatch):
    tp = TopicPartition("t", 0)
    nowhere: Any = SimpleNamespace(snapshot=lambda: Snapshot(()))
    sink = LedgerSink("s", {tp: Held(40, 40)}, {}, "id", None)
    monkeypatch.setattr(group_to_ledger, "read_sinks", lambda *_: [sink])
    monkeypatch.setattr(group_to_ledger, "find_group", lambda *_: "connect-s")
    monkeypatch.setattr(positions_of_sinks, "check_spots", lambda *_: [])

    def said(why: str, metadata: str) -> list[Said]:
        commits = {tp: Committed(5, metadata)}
        monkeypatch.setattr(positions_of_sinks, "list_committed", lambda *_: commits)
        return list(positions_of_sinks.check_ledger(nowhere, nowhere, {}, HERE, Deadline(5), why))

    assert kinds(said("", "")) == [("group-not-at-ledger", "s")]
    [note] = said("no worker answers", "")
    assert isinstance(note, str) and note.endswith("it is unknown which one it is: no worker answers")
    assert kinds(said("no worker answers", "playhead/id/1")) == [("group-not-at-ledger", "s")]


def test_what_belongs_to_connect_since_a_handover_is_not_compared_with_the_ledger(monkeypatch, tmp_path):
    """Connect moves its group: to reset that to the ledger would deliver records again."""
    tp, at = TopicPartition("t", 0), Host("here", 1, "me")
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 5) as ledger:
        claim = ledger.claim("c", "s", at, {})
        ledger.finish(claim, RunState.STOPPED)
        ran = ledger.get_run("c", "s")
        ledger.complete(ledger.hand_over(ran, claim, Engine.CONNECT, at, {}, "handed over"))
        handed = ledger.get_run("c", "s")
    entry: Any = SimpleNamespace(position=SimpleNamespace(owner="s"))
    nowhere: Any = SimpleNamespace(snapshot=lambda: SimpleNamespace(by_owner=dict, entries=[entry]))
    seen: list[Any] = []

    def spots(_admin: Any, wanted: list[Any], _deadline: Deadline) -> list[Said]:
        seen.extend(wanted)
        return []

    monkeypatch.setattr(group_to_ledger, "find_group", lambda *_: "connect-s")
    monkeypatch.setattr(positions_of_sinks, "spots_of", lambda entries, *_, **__: list(entries))
    monkeypatch.setattr(positions_of_sinks, "check_spots", spots)
    monkeypatch.setattr(positions_of_sinks, "list_committed", lambda *_: {tp: Committed(5, "")})
    found = {}
    for run in (ran, handed):
        seen.clear()
        sink = LedgerSink("s", {tp: Held(40, 40)}, {}, "id", run)
        monkeypatch.setattr(group_to_ledger, "read_sinks", lambda *_, sink=sink: [sink])
        said = list(positions_of_sinks.check_ledger(nowhere, nowhere, {}, HERE, Deadline(5), ""))
        found[run.owner] = (kinds(said), len(seen))
    assert found == {None: ([("group-not-at-ledger", "s")], 1), Engine.CONNECT: ([], 0)}


def test_an_apply_that_had_done_nothing_yet_is_only_a_note():
    [note] = list(check_applies([cut_off("a", minutes_ago=1)], lambda entry: positions(a=1), HERE))
    assert isinstance(note, str) and "(or still runs): a is at the old position" in note


def test_a_finished_apply_is_not_mentioned_and_an_unreadable_store_is():
    entry = cut_off("a")
    change = entry.plan.changes[0]
    done = JournalEntry(
        entry.id, entry.who, entry.started, entry.plan, (), outcomes=Outcomes([Outcome(change, Result.CHANGED)])
    )

    def unreachable(_entry: JournalEntry) -> dict[tuple[str, Map], Map | None]:
        raise Unreachable("no broker answers")

    assert list(check_applies([done], unreachable, HERE)) == []
    [note] = list(check_applies([entry], unreachable, HERE))
    assert isinstance(note, str) and "no broker answers" in note


# Commands


def selection(uri: str | None = None, context: Context | None = None) -> Locator:
    return Locator(Access(context or Context(None, {}), Deadline(10)), uri)


def test_a_command_leads_to_where_we_looked_and_repeats_no_secret():
    settings = {
        "worker-config": Setting("my worker.properties", "--worker-config"),
        "connect": Setting("https://me:hunter2@connect:8083", "--connect"),
        "kafka.sasl.password": Setting(Secret("hunter2"), "-X"),
        "kafka.client.id": Setting("me", "-X"),
        "timeout": Setting("5s", "--timeout"),
        "bootstrap-servers": Setting("kafka:9092", "playhead.toml:3"),
    }
    commands = Commands.of(selection("memory:typed", Context("prod", settings)), MemoryStore("x"), "kafka:9092")
    line = commands.ours("delete", "it's", "--all", stop="it's")
    assert shlex.split(line) == [
        *("playhead", "offsets", "delete", "it's", "--all", "--store", "memory:x", "--context", "prod"),
        *("--worker-config", "my worker.properties", "-X", "client.id=me"),
    ]
    assert "hunter2" not in line + commands.patch_config("c", {"a": "b"})
    settings["bootstrap-servers"] = Setting("kafka:9092", "$PLAYHEAD_BOOTSTRAP_SERVERS")
    by_environment = Commands.of(selection("memory:typed", Context("prod", settings)), MemoryStore("x"), "kafka:9092")
    assert "--context" not in by_environment.ours("list")  # it would lead away from the brokers of the environment
    assert "--stop" in commands.with_stoppable(frozenset({"c"})).ours("delete", "c", stop="c")


def test_a_key_is_removed_where_it_lies_with_its_exact_bytes():
    place = TopicPartition("offsets", 3)
    at_home = HERE.remove_key(b'["c|d", {"x":1}]', place, at_home=True)
    assert shlex.split(at_home)[2] == '["c|d", {"x":1}]~NULL' and "key.separator=~" in at_home
    away = HERE.remove_key(b'["c",{}]', place, at_home=False)
    assert shlex.split(away) == [
        *(
            "printf",
            "%s\\t",
            '["c",{}]',
            "|",
            "kcat",
            "-P",
            "-b",
            "kafka:9092",
            "-t",
            "offsets",
            "-p",
            "3",
            "-Z",
            "-K",
            "\\t",
        )
    ]


def test_fields_are_written_as_the_command_line_reads_them():
    offset = Map({"a": 5, "b": "5", "c": "plain", "d": None, "e": "null", "f": True, "g": "true", "h": 0.5})
    assert field_words(offset) == [*("a=5", 'b="5"', "c=plain", "d=null", 'e="null"', "f=true", 'g="true"', "h=0.5")]


# The whole


def test_many_findings_alike_are_shown_by_their_first_few():
    many = [Finding("unfindable", "c", f"key {number}", "x") for number in range(25)]
    diagnosis = Diagnosis.of([*many, "a note", *many, "a note", Finding("orphan", "d", "w", "x")])
    assert len(diagnosis.findings) == 11
    assert diagnosis.notes == ("a note", "c: 15 more findings of the kind unfindable are not listed")


def test_a_store_of_kafka_positions_is_looked_at_even_without_brokers():
    from playhead.stores.open import open_store

    uri = "memory:doctor-without-brokers"
    store = open_store(uri, Access(Context(None, {}), Deadline(5)))
    store.write([Change("g", Map({"kafka_topic": "t", "kafka_partition": 0}), None, Map({"kafka_offset": 5}))])
    found_there = diagnose(selection(uri))
    assert found_there.findings == ()
    assert "no broker is named" in found_there.notes[0]


def test_a_standalone_file_is_doctored_without_any_server(tmp_path: Path):
    path = tmp_path / "connect.offsets"
    pairs = [
        (b'["j",{"protocol":"1","table":"public.orders"}]', b'{"incrementing":"7"}'),
        (b'["j",{"table":"orders"}]', b'{"incrementing":4}'),
        (b'["removed",{"filename":"x"}]', None),
        (b"strange", b"{}"),
    ]
    path.write_bytes(encode_file([Pair(key, value) for key, value in pairs]))
    diagnosis = diagnose(selection(f"file:{path}"))
    assert [(f.kind, f.owner) for f in diagnosis.findings] == [("bad-value", "j"), ("jdbc-v0", "j")]
    assert all(f"--store file:{path}" in finding.mend for finding in diagnosis.findings)
    assert [note for note in diagnosis.notes if "a key that is not Connect's" in note]
    path.write_bytes(path.read_bytes()[:-9])
    (finding,) = diagnose(selection(f"file:{path}")).findings
    assert finding.kind == "corrupt-file" and f"the offset file {path} is corrupt at byte" in finding.what


def test_an_entry_of_the_journal_that_cannot_be_read_is_said(tmp_path: Path):
    folder = tmp_path / "journal"
    folder.mkdir()
    (folder / "20260101T000000-x.json").write_text("{")
    context = Context(None, {"journal": Setting(str(folder), "a test")})
    Journal.of_context(context).begin(Plan.of("memory:elsewhere", [Change("a", Map({}), None, Map({"n": 1}))]), ())
    path = tmp_path / "connect.offsets"
    path.write_bytes(encode_file([]))
    diagnosis = diagnose(selection(f"file:{path}", context))
    assert diagnosis.findings == ()
    assert len(diagnosis.notes) == 1 and "20260101T000000-x.json" in diagnosis.notes[0]
