"""Connectors change their engine and go back, under load, with nothing lost or doubled.

The oracles are a plain consumer of the topic, the file that the sink writes, and the worker itself.
"""

import json
import os
import select
import signal
import subprocess
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import playhead as playhead_package
from contract.workers import ask, path_of
from integration.file_source import TEXT
from integration.switching import KILLER, PYTHON, SINK, SOURCE, Watching, Writer, eos_pair, made_pair  # noqa: F401
from playhead.config import open_context
from playhead.errors import Invalid, NotFound
from playhead.kafka.murmur2 import partition_of
from playhead.lab import LabOptions
from playhead.ledger.model import Host, RunState
from playhead.model import Deadline, Engine, Result


@pytest.fixture(scope="module")
def plain_lab(make_lab):
    """A worker without exactly-once support."""
    return make_lab(LabOptions(exactly_once=False, postgres=False))


@pytest.fixture(params=["exactly once", "default worker"])
def any_lab(request):
    return request.getfixturevalue("lab" if request.param == "exactly once" else "plain_lab")


@pytest.fixture
def pair(any_lab, spark, playhead, unique, tmp_path):
    made = made_pair(any_lab, spark, playhead, unique, tmp_path)
    yield made
    made.close()
    made.on_spark.ledger.close()


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_back_and_forth_under_load(pair, rounds):
    """Source and sink together; every line is in the topic once, and in the sink's file once, in its order."""
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    for _ in range(rounds):
        pair.hand("spark")
        assert [pair.state(name) for name in pair.names] == [("STOPPED", 0)] * 2
        pair.run()
        pair.grows()
        pair.hand("connect")
        pair.run_ended()
        assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2
        pair.grows()
    lines = writer.stop()
    pair.ends_with(lines)
    assert pair.records() == lines
    assert pair.delivered() == lines


def listed(pair, noun):
    rows = json.loads(pair.playhead(noun, "list", "-o", "json", *pair.there()[:4], env=environment(pair)).exits(0).out)
    key = "name" if noun == "connectors" else "pipeline"
    return {row[key]: row for row in rows if row[key] in pair.names}


def test_lists_files_plans_and_watch_agree_on_the_owner(eos_pair):
    pair = eos_pair
    pair.lines.write_text("a\nb\n")
    pair.create()
    pair.ends_with(["a", "b"])
    source, sink = pair.names
    dry = pair.playhead(*pair.words("spark")[:-1]).exits(0)
    assert f"{source} (source) to spark" in dry.out and "dry run: nothing was changed" in dry.err
    assert "fence the transactional ids" in dry.out and f"wait until group connect-{sink} is empty" in dry.out
    assert pair.state(source) == ("RUNNING", 1) and "engine" not in pair.file.read_text()
    done = pair.hand("spark")
    assert f"playhead run {pair.file} {source} {sink} --connect" in done.err
    assert f"readers   connect-{sink}: of transactions it reads committed ones only" in dry.out
    text = pair.file.read_text()
    assert text.count("engine: spark") == 2 and text.count("# as it is") == 2 and text.startswith("# a file of ours")
    connectors, runs = listed(pair, "connectors"), listed(pair, "runs")
    assert {row["engine"] for row in connectors.values()} == {"spark"}
    assert {row["state"] for row in runs.values()} == {"stopped"}
    shown = pair.playhead("connectors", "show", source, "-o", "json", *pair.there()[:4], env=environment(pair)).exits(0)
    assert {key: json.loads(shown.out)[key] for key in ("engine", "state")} == {"engine": "spark", "state": "stopped"}
    planned = pair.playhead("connectors", "plan", "-f", str(pair.file), *pair.there()[:4]).exits(0)
    assert f"leave to spark: {source}, {sink}" in planned.out
    pair.file.write_text(text.replace("engine: spark", "engine: connect\n    state: running"))
    left = pair.playhead(
        "connectors", "apply", "-f", str(pair.file), "--execute", *pair.there()[:4], env=environment(pair)
    ).exits(0)
    assert left.out.count("unchanged") == 2
    watched = pair.playhead(
        "connectors", "watch", "--once", "-f", str(pair.file), *pair.there()[:4], env=environment(pair)
    ).exits(0)
    assert watched.out.count('"left-alone", "cause": "it belongs to Spark"') == 2
    assert pair.state(source) == ("STOPPED", 0)
    pair.file.write_text(text)
    keeps_its_config_in_connect(pair, source)
    pair.hand("connect")
    assert pair.file.read_text() == text.replace("engine: spark", "engine: connect")
    assert {row["engine"] for row in listed(pair, "connectors").values()} == {"connect"}
    assert {row["status"] for row in listed(pair, "runs").values()} == {"handed over"}
    refused = pair.playhead("run", str(pair.file), source, "--engine", "spark", *pair.there()).exits(4)
    assert f"{source} belongs to Connect" in refused.err
    with pair.lines.open("a") as file:
        file.write("c\n")
    pair.ends_with(["a", "b", "c"])
    found = json.loads(pair.playhead("offsets", "doctor", "-o", "json", *pair.there()).out)
    assert not [one for one in found if one["owner"] in (sink, f"connect-{sink}")], "Connect moves its group"
    again = pair.hand("connect")
    assert again.out.count("belongs to Connect already") == 2


def keeps_its_config_in_connect(pair, name):
    """What belongs to Spark is stopped in Connect, with its config for the way back: it is not pruned, renamed, nor are the
    offsets deleted that its run continues from."""
    other = pair.file.with_name("other.yaml")
    other.write_text(f"connectors:\n  {name}-other:\n    config: {{connector.class: {SINK}, topics: a}}\n")
    env, there = environment(pair), pair.there()[:4]
    pruned = pair.playhead("connectors", "plan", "-f", str(other), "--prune", "--scope", f"{name}*", *there, env=env)
    assert f"not deleted, because each belongs to Spark: {name}" in pruned.err and "delete  " not in pruned.out
    renamed = pair.playhead("connectors", "rename", name, f"{name}-new", "--execute", *there, env=env).exits(4)
    assert f"playhead handover {name} --to connect" in renamed.err
    deleted = pair.playhead("connectors", "delete", name, "--offsets", "delete", "--execute", *there, env=env).exits(4)
    assert f"{name} belongs to Spark" in deleted.err
    assert pair.state(name) == ("STOPPED", 0)


def test_from_python_nothing_is_handed_over_without_execute(eos_pair):
    pair, source = eos_pair, eos_pair.names[0]
    pair.lines.write_text("a\n")
    pair.create()
    pair.ends_with(["a"])
    context = open_context(None, {**pair.lab.context(), "ledger": pair.ledger_url})
    here: dict[str, Any] = {"files": [pair.file], "context": context}
    planned = playhead_package.hand_over(source, to="spark", **here)
    assert planned.ok and planned.outcomes == () and f"{source} (source) to spark" in repr(planned)
    assert pair.state(source) == ("RUNNING", 1)
    done = playhead_package.hand_over(f"{source}*", to="spark", execute=True, **here)
    assert done.ok and [one.result for one in done.outcomes] == [Result.CHANGED] and source in repr(done)
    assert pair.state(source) == ("STOPPED", 0) and pair.file.read_text().count("engine: spark") == 1
    nothing = playhead_package.hand_over(source, to="spark", execute=True, **here)
    assert nothing.ok and "it belongs to Spark already" in repr(nothing)
    with pytest.raises(Invalid, match="neither spark nor connect"):
        playhead_package.hand_over(source, to="flink", **here)
    with pytest.raises(NotFound):
        playhead_package.hand_over("no_such_connector", to="spark", **here)


def test_a_pattern_hands_over_what_it_can_and_other_commands_respect_the_owner(eos_pair, unique):
    pair, base = eos_pair, unique("many")
    pair.names = (f"{base}-a", f"{base}-b")
    source, sink = pair.names
    pair.lines.write_text("a\nb\n")
    pair.create()
    pair.ends_with(["a", "b"])
    good = pair.file.read_text()
    pair.file.write_text(good.replace("consumer.override.session.timeout.ms: 6000", "transforms: t"))
    partly = pair.hand("spark", f"{base}-*", code=1)
    assert result_of(partly, source) == "changed" and result_of(partly, sink) == "failed"
    assert [pair.state(name) for name in pair.names] == [("STOPPED", 0), ("RUNNING", 1)]
    text = pair.file.read_text()
    assert text.count("engine: spark") == 1 and text.index("engine: spark") < text.index(sink)
    pair.file.write_text(text.replace("transforms: t", "consumer.override.session.timeout.ms: 6000"))
    rest = pair.hand("spark", f"{base}-*", source)
    assert result_of(rest, source) == "unchanged" and result_of(rest, sink) == "changed"
    assert pair.file.read_text().count("engine: spark") == 2
    resumed = pair.playhead("connectors", "resume", source, "--execute", *pair.there()[:4], env=environment(pair))
    assert f"playhead handover {source} --to connect" in resumed.exits(4).out
    is_not_started_without_a_ledger(pair, source)
    assert pair.state(source) == ("STOPPED", 0)
    moved = pair.playhead("offsets", "set", source, "position=2", "--execute", *pair.there()).exits(0)
    assert "changed" in moved.out  # no run is alive: it continues there
    pair.run()
    pair.ends_with(["a", "b", "b"])
    for words in ((source, "position=0", "--stop"), (sink, "kafka_offset=0")):
        refused = pair.playhead("offsets", "set", *words, "--execute", *pair.there()).exits(4)
        assert f"playhead runs stop {words[0]}" in refused.out + refused.err
    ours = {*pair.names, *(f"connect-{name}" for name in pair.names)}
    found = pair.playhead("offsets", "doctor", "-o", "json", *pair.there())
    assert not [one for one in json.loads(found.out) if one["owner"] in ours], found.out
    pair.hand("connect", f"{base}-?")
    pair.run_ended()
    assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2
    assert pair.records() == ["a", "b", "b"] and pair.delivered() == ["a", "b", "b"]


def is_not_started_without_a_ledger(pair, name):
    """Who owns it is unknown then, and a connector that was handed over is stopped in Connect."""
    broken = pair.file.with_name("broken.db")
    broken.write_text("not a database")
    unknown = {"PLAYHEAD_LEDGER": f"sqlite:///{broken}"}
    resumed = pair.playhead("connectors", "resume", name, "--execute", *pair.there()[:4], env=unknown).exits(4)
    assert "it may have been handed over to Spark: the ledger cannot be read" in resumed.out
    file = pair.file.with_name("connect.yaml")
    file.write_text(pair.file.read_text().replace("engine: spark", "engine: connect\n    state: running"))
    applied = pair.playhead("connectors", "apply", "-f", str(file), "--execute", *pair.there()[:4], env=unknown)
    assert applied.code != 0 and "whether it was handed over to Spark is unknown" in applied.out + applied.err


def result_of(ran, name):
    [line] = [line for line in ran.out.splitlines() if line.startswith(name)]
    return next(word for word in line.split() if word in ("changed", "unchanged", "failed", "refused"))


def environment(pair):
    return {"PLAYHEAD_LEDGER": pair.ledger_url}


def test_what_spark_does_not_honour_is_refused_before_anything_stops(eos_pair):
    pair = eos_pair
    pair.lines.write_text("a\n")
    pair.create()
    pair.ends_with(["a"])
    sink = pair.names[1]
    bad = pair.file.read_text().replace(
        "      consumer.override.session.timeout.ms: 6000\n", "      transforms: t\n      transforms.t.type: X\n"
    )
    pair.file.write_text(bad)
    refused = pair.hand("spark", sink, code=2)
    assert "the Spark engine has no transform X" in refused.out
    planned = pair.playhead(*pair.words("spark", sink)[:-1]).exits(2)
    assert "the Spark engine has no transform X" in planned.out
    assert f"dry run: nothing was changed; {sink} cannot be handed over" in planned.err
    assert pair.state(sink) == ("RUNNING", 1) and pair.file.read_text() == bad


def test_a_ledger_that_cannot_be_written_is_found_before_anything_stops(eos_pair):
    pair = eos_pair
    pair.lines.write_text("a\n")
    pair.create()
    pair.ends_with(["a"])
    words = pair.words("spark", pair.names[0])
    words[words.index("--ledger") + 1] = "sqlite:////proc/ledger.db"
    refused = pair.playhead(*words)
    assert refused.code != 0 and "journal:" not in refused.err, refused
    assert pair.state(pair.names[0]) == ("RUNNING", 1)


@pytest.fixture(params=["default worker", pytest.param("exactly once", marks=pytest.mark.soak)])
def fragile_lab(request, make_lab):
    """Its worker may be killed."""
    if request.param == "default worker":
        return request.getfixturevalue("plain_lab")
    return make_lab(LabOptions(postgres=False))


def test_kills_of_either_engine_lose_nothing_and_only_connect_repeats(
    fragile_lab, spark, playhead, unique, tmp_path, record_property
):
    """A worker is killed while it has both; later a run, a process of its own. Connect repeats only what it sent in the phase
    in which it was killed, once, because it was killed once; of a source with exactly-once support nothing; Spark never."""
    pair = made_pair(fragile_lab, spark, playhead, unique, tmp_path)
    writer = Writer(pair.lines)
    try:
        with Watching(pair):
            pair.create()
            pair.grows()
            pair.hand("spark")
            pair.run()
            pair.grows()
            began = (len(pair.records()), len(pair.delivered()))
            pair.hand("connect")
            pair.run_ended()
            pair.grows()
            fragile_lab.kill("worker-1")
            down = pair.hand("spark", code=3)
            assert "nothing listens there" in down.err
            fragile_lab.start("worker-1")
            Deadline(60).wait_for(lambda: [pair.state(n) for n in pair.names] == [("RUNNING", 1)] * 2, "the tasks")
            pair.grows()
            pair.hand("spark")
            ended = (last_of(pair.records()), last_of(pair.delivered()))
            kill_a_run(pair)
            taken = pair.hand("connect")
            assert "was killed: it is fenced" in taken.out
            pair.grows()
            lines = writer.stop()
            Deadline(60).wait_for(lambda: lines[-1] in pair.delivered(), "the last line", every=0.2)
        records, delivered = pair.records(), pair.delivered()
        assert set(records) == set(delivered) == set(lines)
        assert all(began[0] < number <= ended[0] for number in repeated(records))
        assert all(began[1] < number <= ended[1] for number in repeated(delivered))
        sent, written = Counter(records), Counter(delivered)
        assert all(sent[line] <= 2 and written[line] <= 2 * sent[line] for line in lines)
        record_property("repeats", f"{len(repeated(records))} records, {len(repeated(delivered))} lines")
        if fragile_lab.options.exactly_once:
            assert records == lines
    finally:
        writer.stop()
        pair.close()
        pair.on_spark.ledger.close()


def kill_a_run(pair):
    words = ["run", str(pair.file), "--continuous", "--interval", "100ms", *pair.there(), "--quiet"]
    process = subprocess.Popen([PYTHON, "-m", "playhead", *words], start_new_session=True)
    try:
        pair.grows()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_of(lines):
    return max(int(line.split()[1]) for line in lines)


def repeated(lines):
    return sorted(int(line.split()[1]) for line, count in Counter(lines).items() if count > 1)


def test_a_source_task_that_hangs_cannot_write_after_the_hand_over(eos_pair):
    """It waits for a writer of its pipe. The worker gives it up after five seconds, and its transactional id is fenced."""
    pair, name, pipe = eos_pair, eos_pair.names[0], eos_pair.folder / "pipe"
    os.mkfifo(pipe)
    config = {"connector.class": SOURCE, "file": str(pipe), "topic": pair.topic, "value.converter": TEXT}
    assert ask(f"{pair.url}/connectors", "POST", {"name": name, "config": config})[0] == 201
    Deadline(30).wait_for(lambda: pair.state(name) == ("RUNNING", 1), "the task")
    pair.playhead("handover", name, "--to", "spark", "--wait", "20s", *pair.there(), "--execute").exits(0)
    # It opens only if the task still waits for it. The task may close it before it reads.
    with suppress(BrokenPipeError), pipe.open("w") as file:
        file.write("zombie\n")
    with_marker = pair.records()
    assert with_marker == []
    assert {run.owner for run in pair.on_spark.ledger.list_runs()} == {Engine.SPARK}


def test_a_sink_task_that_does_not_leave_its_group_is_refused(eos_pair):
    """It hangs in a full pipe and stays a member: nothing is handed over, and Connect keeps it."""
    pair, name, pipe = eos_pair, eos_pair.names[1], eos_pair.folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        pair.on_spark.send(pair.topic, 20_000, partitions=1)
        config = {"connector.class": SINK, "file": str(pipe), "topics": pair.topic, "value.converter": TEXT}
        assert ask(f"{pair.url}/connectors", "POST", {"name": name, "config": config})[0] == 201
        Deadline(30).wait_for(lambda: select.select([reader], [], [], 0)[0], "the task writing")
        refused = pair.playhead("handover", name, "--to", "spark", "--wait", "15s", *pair.there(), "--execute").exits(4)
        assert f"group connect-{name} still has a member" in refused.out
        assert f"{name} stays with Connect, and is running there again" in refused.err
        assert pair.state(name)[0] == "RUNNING"
        assert pair.on_spark.ledger.list_runs() == []
    finally:
        draining = threading.Thread(target=_drain, args=(reader,), daemon=True)
        draining.start()
        ask(f"{pair.url}{path_of(name)}", "DELETE")
        draining.join(20)
        os.close(reader)


def _drain(reader):
    while select.select([reader], [], [], 3)[0]:
        os.read(reader, 1 << 16)


@pytest.fixture
def plain_pair(plain_lab, spark, playhead, unique, tmp_path):
    made = made_pair(plain_lab, spark, playhead, unique, tmp_path)
    yield made
    made.close()
    made.on_spark.ledger.close()


def begun(pair, transactional_id, key, value, *, near=None):
    """A position record in the offsets topic, in an open transaction. `near`: in the Kafka partition of this key."""
    settings = {"bootstrap.servers": pair.lab.bootstrap_servers, "transactional.id": transactional_id}
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    count = len(producer.list_topics("connect-offsets", 20).topics["connect-offsets"].partitions)
    producer.produce("connect-offsets", value, key, partition_of(near or key, count))
    assert producer.flush(20) == 0
    return producer


def leave(pair, transactional_id, key, value, *, commit):
    producer = begun(pair, transactional_id, key, value)
    (producer.commit_transaction if commit else producer.abort_transaction)(20)


@pytest.mark.parametrize("was_deleted", [False, True], ids=["never saved", "deleted before"])
def test_a_first_position_that_was_aborted_loses_no_line(plain_pair, unique, was_deleted):
    """A run was killed between its first position record and the end of its transaction. A worker without exactly-once support
    reads that record."""
    pair, name = plain_pair, plain_pair.names[0]
    pair.lines.write_text("a\nb\n")
    pair.write_file()
    pair.hand("spark", name)
    key = f'["{name}",{{"filename":"{pair.lines}"}}]'.encode()
    if was_deleted:
        leave(pair, unique("tx"), key, b'{"position":2}', commit=True)
        leave(pair, unique("tx"), key, None, commit=True)
    leave(pair, unique("tx"), key, b'{"position":4}', commit=False)
    pair.hand("connect", name)
    Deadline(30).wait_for(lambda: len(pair.records()) >= 2, "the lines", every=0.2)
    assert pair.records() == ["a", "b"]


def test_a_position_behind_the_open_transaction_of_another_connector_is_not_overlooked(plain_pair, unique):
    """Committed records behind it cannot be read until it ends. An older position would be written once more."""
    pair, name = plain_pair, plain_pair.names[0]
    pair.lines.write_text("a\nb\n")
    pair.write_file()
    pair.hand("spark", name)
    key = f'["{name}",{{"filename":"{pair.lines}"}}]'.encode()
    other = begun(pair, unique("tx"), b'["another",{"filename":"x"}]', b'{"position":1}', near=key)
    leave(pair, unique("tx"), key, b'{"position":2}', commit=True)
    timer = threading.Timer(8, other.commit_transaction, (20,))
    timer.start()
    pair.hand("connect", name)
    timer.join()
    Deadline(30).wait_for(pair.records, "the second line", every=0.2)
    assert pair.records() == ["b"]


def test_a_topic_ahead_of_the_position_is_refused_unless_repeats_are_accepted(plain_pair, unique):
    """A worker without exactly-once support sent rows and did not save its position. Nothing of the plan needs the database."""
    pair, name, table = plain_pair, unique("rows"), plain_pair.topic.removeprefix("moved-")
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connection.url": "jdbc:postgresql://127.0.0.1:1/shop?user=me",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": table,
        "topic.prefix": "moved-",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    pair.file.write_text(json.dumps({"connectors": {name: {"config": config}}}))
    pair.on_spark.send(pair.topic, 8, partitions=1)
    refused = pair.hand("spark", name, code=4)
    assert "already holds rows after the position" in refused.out and "such as id=7" in refused.out
    key = f'["{name}",{{"protocol":"1","table":"shop.public.{table}"}}]'.encode()
    leave(pair, unique("tx"), key, b'{"incrementing":5}', commit=True)
    refused = pair.hand("spark", name, code=4)
    assert "such as id=7" in refused.out and "--accept-repeats" in refused.out
    assert pair.on_spark.ledger.list_runs() == []
    pair.hand("spark", name, more=("--accept-repeats",))
    assert [run.owner for run in pair.on_spark.ledger.list_runs()] == [Engine.SPARK]


def test_an_undo_leaves_the_config_that_connect_has(eos_pair):
    """The file differs from it, and the hand-over to Spark did not send it."""
    pair, name = eos_pair, eos_pair.names[0]
    pair.lines.write_text("a\n")
    pair.create()
    pair.ends_with(["a"])
    text = pair.file.read_text()
    pair.file.write_text(text.replace(f"topic: {pair.topic}", f"topic: {pair.topic}\n      batch.size: 77", 1))
    before = ask(f"{pair.url}{path_of(name)}/config")[1]
    warned = pair.hand("spark", name)
    pair.undo()
    assert "engine: connect" in pair.file.read_text() and "batch.size: 77" in pair.file.read_text()
    assert ask(f"{pair.url}{path_of(name)}/config")[1] == before, warned.err
    assert pair.state(name) == ("RUNNING", 1)


def test_an_undo_that_may_repeat_is_refused_unless_repeats_are_accepted(eos_pair):
    """Connect delivered a line, then the group lost its offsets: nothing says how far Connect was."""
    pair, name = eos_pair, eos_pair.names[1]
    pair.lines.write_text("a\n")
    pair.create()
    pair.ends_with(["a"])
    pair.hand("spark", name)
    pair.run(name)
    append(pair, "b")
    pair.hand("connect", name)
    pair.run_ended()
    append(pair, "c")
    assert ask(f"{pair.url}{path_of(name)}/stop", "PUT")[0] == 204
    Deadline(30).wait_for(lambda: pair.state(name) == ("STOPPED", 0), "the end of the task")
    Deadline(30).wait_for(lambda: ask(f"{pair.url}{path_of(name)}/offsets", "DELETE")[0] == 200, "an empty group")
    refused = pair.undo(code=4)
    assert "how far Connect delivered is unknown" in refused.out and "--accept-repeats" in refused.out
    assert "engine: spark" not in pair.file.read_text()
    pair.undo("--accept-repeats")
    assert pair.file.read_text().count("engine: spark") == 1
    pair.run(name)
    append(pair, "d")
    assert pair.delivered() == ["a", "b", "c", "c", "d"]


def test_a_recreated_topic_and_another_group_are_refused_before_anything_stops(eos_pair):
    """The old offset would skip the records of the new topic; the position is in the group that was used."""
    pair, sink = eos_pair, eos_pair.names[1]
    pair.lines.write_text("a\nb\n")
    pair.create()
    pair.ends_with(["a", "b"])
    good = pair.file.read_text()
    pair.file.write_text(
        good.replace("consumer.override.session", "consumer.override.group.id: other\n      consumer.override.session")
    )
    refused = pair.hand("spark", sink, code=4)
    assert f"group.id is other, and Connect has its position in connect-{sink}" in refused.out
    assert pair.state(sink) == ("RUNNING", 1)
    pair.file.write_text(good)
    pair.hand("spark", *pair.names)
    pair.run()
    append(pair, "c")
    pair.runs[-1].ended()
    recreate(pair, ["new 1", "new 2", "new 3", "new 4"])
    refused = pair.hand("connect", sink, code=4)
    assert f"topic {pair.topic} was deleted and recreated" in refused.out
    assert pair.state(sink) == ("STOPPED", 0)
    reset = ["offsets", "reset", sink, "--topic", pair.topic, "--to-earliest", "--execute", *pair.there()]
    pair.playhead(*reset).exits(0)
    pair.hand("connect", sink)
    Deadline(60).wait_for(lambda: "new 4" in pair.delivered(), "the new records", every=0.2)
    assert pair.delivered() == ["a", "b", "c", "new 1", "new 2", "new 3", "new 4"]


def recreate(pair, lines):
    admin = AdminClient({"bootstrap.servers": pair.lab.bootstrap_servers})
    admin.delete_topics([pair.topic])[pair.topic].result(30)
    Deadline(30).wait_for(lambda: pair.topic not in admin.list_topics(timeout=10).topics, "its end", every=0.2)
    pair.on_spark.make_topic(pair.topic, 1)
    producer = Producer({"bootstrap.servers": pair.lab.bootstrap_servers})
    for line in lines:
        producer.produce(pair.topic, line)
    assert producer.flush(20) == 0


def test_two_hand_overs_at_once_leave_one_owner(eos_pair):
    """Both ways, started together, three times: one is carried out or both give way, and nothing is lost or doubled."""
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    with Watching(pair):
        for to in ("spark", "connect", "spark"):
            both = [
                subprocess.Popen([PYTHON, "-m", "playhead", *pair.words(to)], stdout=subprocess.DEVNULL)
                for _ in range(2)
            ]
            codes = [process.wait(240) for process in both]
            if any(codes):
                pair.hand(to)
            states = [pair.state(name) for name in pair.names]
            assert states == [("STOPPED", 0) if to == "spark" else ("RUNNING", 1)] * 2, codes
            owners = {run.pipeline: run.owner for run in pair.on_spark.ledger.list_runs()}
            assert owners == dict.fromkeys(pair.names, Engine(to)), codes
            if to == "spark":
                pair.run()
            pair.grows(5)
        pair.hand("connect")
        lines = writer.stop()
        pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines


def test_a_pattern_does_not_resume_what_was_stopped_on_purpose_and_an_old_undo_is_refused(eos_pair):
    pair, (source, sink) = eos_pair, eos_pair.names
    pair.lines.write_text("a\n")
    pair.create()
    pair.ends_with(["a"])
    pair.hand("spark", source)
    first = pair.playhead("connectors", "journal", "-o", "json", *pair.there()[:2]).exits(0)
    ask(f"{pair.url}{path_of(sink)}/stop", "PUT")
    Deadline(30).wait_for(lambda: pair.state(sink) == ("STOPPED", 0), "the stop")
    back = pair.hand("connect")
    assert result_of(back, source) == "changed" and result_of(back, sink) == "unchanged"
    assert "playhead connectors resume" in back.out
    assert [pair.state(name) for name in pair.names] == [("RUNNING", 1), ("STOPPED", 0)]
    record = json.loads(first.out)[0]["id"]
    refused = pair.playhead("connectors", "undo", record, *pair.there(), "--execute").exits(4)
    assert f"{source} was handed over again since" in refused.err
    assert pair.state(source) == ("RUNNING", 1)


def test_what_resumes_it_before_the_position_is_in_place_is_not_taken_for_the_hand_over(eos_pair):
    """Killed after the owner was recorded. Whoever resumes the sink then starts it at an old position of its group."""
    pair, sink = eos_pair, eos_pair.names[1]
    pair.lines.write_text("a\n")
    pair.create()
    pair.ends_with(["a"])
    pair.hand("spark", *pair.names)
    pair.run()
    append(pair, "b")
    pair.runs[-1].ended()
    killed = subprocess.run([PYTHON, "-c", KILLER, "publish", "1", *pair.words("connect", sink)], check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed = pair.playhead("connectors", "resume", sink, "--execute", *pair.there()[:4], env=environment(pair)).exits(
        4
    )
    assert f"playhead handover {sink} --to connect" in resumed.out
    assert ask(f"{pair.url}{path_of(sink)}/resume", "PUT")[0] == 202
    Deadline(30).wait_for(lambda: pair.state(sink) == ("RUNNING", 1), "the task")
    refused = pair.hand("connect", sink, code=4)
    assert "its position is not in place" in refused.out and f"playhead connectors stop {sink}" in refused.out


def test_a_run_that_does_not_end_goes_on(eos_pair, monkeypatch):
    """The stop that the hand-over requested is withdrawn; so is that of one which was killed, by its undo."""
    pair, source = eos_pair, eos_pair.names[0]
    pair.lines.write_text("a\n")
    pair.write_file()
    pair.hand("spark", source)
    [cluster] = [run.cluster for run in pair.on_spark.ledger.list_runs()]
    claim = pair.on_spark.ledger.claim(cluster, source, Host.here(), {"type": "source"})
    refused = pair.hand("connect", source, code=4, more=("--wait", "3s"))
    assert "the request is withdrawn, and it goes on" in refused.out
    assert pair.on_spark.ledger.beat(claim) is False
    first = subprocess.Popen([PYTHON, "-m", "playhead", *pair.words("connect", source), "--wait", "20s"])
    Deadline(30).wait_for(lambda: pair.on_spark.ledger.beat(claim), "its request", every=0.2)
    beside = pair.hand("connect", source, code=4)
    assert "another command carries out" in beside.err and first.poll() is None
    assert first.wait(60) == 4 and pair.on_spark.ledger.beat(claim) is False
    killed = subprocess.run([PYTHON, "-c", KILLER, "_awaited", "1", *pair.words("connect", source)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert pair.on_spark.ledger.beat(claim) is True
    pair.undo()
    assert pair.on_spark.ledger.beat(claim) is False
    pair.on_spark.ledger.finish(claim, RunState.STOPPED)


def append(pair, line):
    """Waits until the sink has it."""
    with pair.lines.open("a") as file:
        file.write(f"{line}\n")
    Deadline(60).wait_for(lambda: line in pair.delivered(), line, every=0.1)


def test_a_connector_that_does_not_run_in_connect_is_no_success_the_second_time_either(eos_pair):
    pair, name = eos_pair, eos_pair.names[1]
    pair.out.mkdir()  # a file that cannot be opened
    pair.create()
    Deadline(60).wait_for(lambda: _task_states(pair, name) == ["FAILED"], "the failure")
    for words in (pair.words("connect", name), pair.words("connect", name)[:-1]):
        again = pair.playhead(*words).exits(1)
        assert "it belongs to Connect, and does not run there" in again.out


def _task_states(pair, name):
    return [task["state"] for task in ask(f"{pair.url}{path_of(name)}/status")[1].get("tasks", [])]
