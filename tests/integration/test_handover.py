"""Connectors change their engine and go back, under load, with nothing lost or doubled.

The oracles are a plain consumer of the topic, the file that the sink writes, and the worker itself.
"""

import json
import os
import select
import signal
import subprocess
import threading
from contextlib import suppress

import pytest

from contract.workers import ask, path_of
from integration.file_source import TEXT
from integration.on_spark import OnSpark
from integration.switching import KILLER, PYTHON, SINK, SOURCE, Pair, Writer, open_pair_ledger
from playhead.lab import LabOptions
from playhead.model import Deadline, Engine


@pytest.fixture(scope="module")
def plain_lab(make_lab):
    """A worker without exactly-once support."""
    return make_lab(LabOptions(exactly_once=False, postgres=False))


@pytest.fixture(params=["exactly once", "default worker"])
def any_lab(request):
    return request.getfixturevalue("lab" if request.param == "exactly once" else "plain_lab")


def made_pair(lab, spark, playhead, unique, folder):
    topic, ledger = unique("moved"), open_pair_ledger(folder)
    on_spark = OnSpark(lab, spark, ledger)
    on_spark.make_topic(topic, 1)
    return Pair(lab, folder, (unique("src"), unique("out")), topic, on_spark, playhead)


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


@pytest.fixture
def eos_pair(lab, spark, playhead, unique, tmp_path):
    made = made_pair(lab, spark, playhead, unique, tmp_path)
    yield made
    made.close()
    made.on_spark.ledger.close()


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
    assert f"start: playhead run {pair.file} {source} {sink}" in done.err
    text = pair.file.read_text()
    assert text.count("engine: spark") == 2 and text.count("# as it is") == 2 and text.startswith("# a file of ours")
    connectors, runs = listed(pair, "connectors"), listed(pair, "runs")
    assert {row["engine"] for row in connectors.values()} == {"spark"}
    assert {row["state"] for row in runs.values()} == {"stopped"}
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
    assert watched.out.count('"left-alone", "cause": "it was handed over to Spark"') == 2
    assert pair.state(source) == ("STOPPED", 0)
    pair.file.write_text(text)
    pair.hand("connect")
    assert pair.file.read_text() == text.replace("engine: spark", "engine: connect")
    assert {row["engine"] for row in listed(pair, "connectors").values()} == {"connect"}
    assert {row["status"] for row in listed(pair, "runs").values()} == {"handed over"}
    refused = pair.playhead("run", str(pair.file), source, "--engine", "spark", *pair.there()).exits(4)
    assert f"{source} belongs to Connect" in refused.err
    again = pair.hand("connect")
    assert again.out.count("belongs to Connect already") == 2


def environment(pair):
    return {"PLAYHEAD_LEDGER": pair.ledger_url}


def killed_at(pair, function, words):
    done = subprocess.run([PYTHON, "-c", KILLER, function, "1", *words], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done


TO_SPARK = ["stop", "save_step", "fence", "adopt", "hand_over", "apply_engines", "finish"]
TO_CONNECT = ["request_stop", "hand_over", "publish", "verify", "resume", "apply_engines", "finish"]


def owners(pair):
    """Who moves data: Connect by its tasks, Spark by a run that is alive."""
    found = {}
    for name in pair.names:
        in_connect = (pair.state(name) or ("", 0))[1] > 0
        runs = [run for run in pair.on_spark.ledger.list_runs() if run.pipeline == name]
        found[name] = in_connect + any(run.is_alive and not run.stop for run in runs)
    return found


@pytest.mark.parametrize("kills", [["hand_over"], pytest.param(TO_SPARK, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_on_the_way_to_spark_the_same_command_goes_on(eos_pair, kills):
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    for number, function in enumerate(kills):
        killed_at(pair, function, pair.words("spark"))
        assert max(owners(pair).values()) <= 1
        again = pair.hand("spark")
        assert [pair.state(name) for name in pair.names] == [("STOPPED", 0)] * 2, again.err
        pair.run()
        pair.grows(5)
        pair.hand("connect")
        pair.run_ended()
        assert pair.file.read_text().count("engine: connect") == 2, number
    lines = writer.stop()
    pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines


@pytest.mark.parametrize("kills", [["hand_over"], pytest.param(TO_CONNECT, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_on_the_way_to_connect_the_same_command_goes_on(eos_pair, kills):
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    for function in kills:
        pair.hand("spark")
        pair.run()
        pair.grows(5)
        killed_at(pair, function, pair.words("connect"))
        assert max(owners(pair).values()) <= 1
        pair.hand("connect")
        pair.run_ended()
        assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2
        pair.grows(5)
    lines = writer.stop()
    pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines


def test_a_hand_over_that_was_killed_is_undone(eos_pair):
    """Back to Connect, in the state it had there, with the file as it was."""
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    killed_at(pair, "hand_over", pair.words("spark"))
    assert ("STOPPED", 0) in [pair.state(name) for name in pair.names]
    undone = pair.playhead("connectors", "undo", "--settle", "300ms", *pair.there(), "--execute").exits(0)
    assert "undoing" in undone.err
    assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2
    pair.grows()
    pair.hand("spark")
    pair.playhead("connectors", "undo", "--settle", "300ms", *pair.there(), "--execute").exits(0)
    assert pair.file.read_text().count("engine: connect") == 2
    pair.grows()
    lines = writer.stop()
    pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines


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
    refused = pair.hand("spark", sink, code=1)
    assert "the Spark engine has no transform X" in refused.out
    planned = pair.playhead(*pair.words("spark", sink)[:-1]).exits(2)
    assert "the Spark engine has no transform X" in planned.out
    assert pair.state(sink) == ("RUNNING", 1) and pair.file.read_text() == bad


def test_a_killed_run_is_taken_over_exactly(lab, spark, playhead, unique, tmp_path):
    """The run is a process of its own, killed in the middle; the hand-over fences it and cuts what it had not committed."""
    pair = made_pair(lab, spark, playhead, unique, tmp_path)
    writer = Writer(pair.lines)
    try:
        pair.create()
        pair.grows()
        pair.hand("spark")
        words = ["run", str(pair.file), "--continuous", "--interval", "100ms", *pair.there(), "--quiet"]
        process = subprocess.Popen([PYTHON, "-m", "playhead", *words], start_new_session=True)
        try:
            pair.grows()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        taken = pair.hand("connect")
        assert "was killed: it is fenced" in taken.out
        pair.grows()
        lines = writer.stop()
        pair.ends_with(lines)
        assert pair.records() == lines and pair.delivered() == lines
    finally:
        writer.stop()
        pair.close()
        pair.on_spark.ledger.close()


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
