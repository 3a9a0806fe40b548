"""`connectors watch` on the real worker: what fails is restarted until it runs, what is fenced is not, an interrupt ends it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contract.workers import HANG_UP, Reply, error, path_of, serving
from integration.connector_life import TEXT, casting, runner
from playhead.config import open_context
from playhead.connectors.watch import Clock, Event, EventKind, RestartPolicy, RestCluster, Watch
from playhead.kafka.transactions import TransactionalProducer
from playhead.offsets.workers import Worker

SOURCE, SINK = "FileStreamSource", "FileStreamSink"


@pytest.fixture
def cast(lab, deadline):
    with casting(lab, deadline) as made:
        yield made


@pytest.fixture
def run(lab, capsys, monkeypatch):
    return runner(capsys, monkeypatch, "--connect", lab.connect_urls[0])


class Watching:
    """The command as a process of its own; its lines as they come."""

    def __init__(self, lab, deadline, *words):
        command = [str(Path(sys.executable).parent / "playhead"), "connectors", "watch", *words]
        self.process = subprocess.Popen(
            [*command, "--connect", lab.connect_urls[0]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=dict(os.environ),
        )
        self.deadline = deadline
        self.events = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout or ():
            self.events.append(json.loads(line))

    def awaits(self, kind):
        def found():
            return next((event for event in self.events if event["event"] == kind), None)

        return self.deadline.wait_for(found, f"the event {kind}, after {self.events}")

    def interrupted(self):
        """Its exit code and what it said."""
        self.process.send_signal(signal.SIGINT)
        self._reader.join(30)
        with self.process:
            said = self.process.stderr.read() if self.process.stderr else ""
            return self.process.wait(30), said

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.interrupted()


@pytest.fixture
def watching(lab, deadline):
    started = []

    def start(*words):
        started.append(Watching(lab, deadline, *words))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_a_failed_task_is_restarted_until_it_runs_and_an_interrupt_ends_the_watch(
    watching, cast, new_topic, unique, tmp_path, run
):
    folder = tmp_path / "not-there"
    name = cast.make(unique("sink"), SINK, {"file": str(folder / "out"), "topics": new_topic()})
    cast.settles(name, "RUNNING", "FAILED")
    reported = [json.loads(line) for line in run("watch", name, "--once").exits(1).out.splitlines()]
    assert [event["event"] for event in reported] == ["failed", "would-restart"]
    assert cast.states(name) == ["RUNNING", "FAILED"]

    watch = watching(name, "--interval", "500ms", "--execute")
    failed = watch.awaits("failed")
    assert (failed["connector"], failed["task"]) == (name, 0)
    assert "NoSuchFileException" in failed["cause"] and set(failed) == set(reported[0])
    restarting = watch.awaits("restarting")
    assert restarting["attempt"] == 1 and restarting["next_try"] > restarting["time"]
    folder.mkdir()
    watch.awaits("recovered")
    assert cast.states(name) == ["RUNNING", "RUNNING"]
    code, said = watch.interrupted()
    assert (code, said.strip()) == (130, "interrupted")
    run("watch", name, "--once").exits(0)


def test_a_fenced_task_is_never_restarted(lab, cast, new_topic, unique, tmp_path, settings_of, deadline, run):
    """Another producer takes over the transactional id of the task, as a hand-over to Spark does."""
    file, topic, name = tmp_path / "lines.txt", new_topic(), unique("fenced")
    file.write_text("a\n")
    cast.make(name, SOURCE, {"file": str(file), "topic": topic, "value.converter": TEXT})
    deadline.wait_for(lambda: cast.offsets(name), "the first line")
    group = Worker.read(lab.worker_config)["group.id"]
    with TransactionalProducer(settings_of, f"{group}-{name}-0", deadline):
        with file.open("a") as more:
            more.write("b\n")
        cast.settles(name, "RUNNING", "FAILED")
    trace = cast.ask(path_of(name) + "/status")[1]["tasks"][0]["trace"]
    assert "ProducerFencedException" in trace or "InvalidProducerEpochException" in trace
    reported = [json.loads(line) for line in run("watch", name, "--once", "--execute").exits(1).out.splitlines()]
    assert [event["event"] for event in reported] == ["failed", "gave-up"]
    assert "another producer has taken over" in reported[1]["cause"]
    assert cast.states(name) == ["RUNNING", "FAILED"]


def test_pauses_stops_and_what_files_give_to_spark_are_left_alone(run, cast, new_topic, unique, tmp_path):
    folder, topic = tmp_path / "not-there", new_topic()
    prefix = unique("kept")
    for kind in ("paused", "stopped", "spark"):
        cast.make(f"{prefix}-{kind}", SINK, {"file": str(folder / kind), "topics": topic})
    for kind in ("paused", "stopped", "spark"):
        cast.settles(f"{prefix}-{kind}", "RUNNING", "FAILED")
    cast.ask(path_of(f"{prefix}-paused") + "/pause", "PUT")
    cast.ask(path_of(f"{prefix}-stopped") + "/stop", "PUT")
    cast.settles(f"{prefix}-paused", "PAUSED", "FAILED")
    cast.settles(f"{prefix}-stopped", "STOPPED")
    run("watch", f"{prefix}-[ps][at]*ed", "--once", "--execute").exits(0)
    assert cast.states(f"{prefix}-paused") == ["PAUSED", "FAILED"]

    file = tmp_path / "connectors.yaml"
    body = f"config: {{connector.class: {SINK}, topics: {topic}, file: x"
    file.write_text(
        f"connectors:\n  {prefix}-paused: {{state: paused, {body}}}}}\n"
        f"  {prefix}-stopped: {{state: running, {body}, consumer.override.group.id: g}}}}\n"
        f"  {prefix}-spark: {{engine: spark, {body}}}}}\n  {prefix}-new: {{{body}}}}}\n"
    )
    ran = run("watch", "-f", str(file), "--once", "--execute").exits(1)
    reported = [json.loads(line) for line in ran.out.splitlines()]
    assert {(event["connector"].removeprefix(prefix), event["event"]) for event in reported} == {
        ("-paused", "left-alone"),
        ("-stopped", "differs"),
        ("-spark", "differs"),
        ("-new", "missing"),
    }
    assert cast.states(f"{prefix}-spark") == ["RUNNING", "FAILED"]


def test_files_are_read_as_the_other_commands_read_them(run, unique, tmp_path):
    one, two = unique("one"), unique("two")
    body = f"{{config: {{connector.class: {SOURCE}, topic: both, file: x}}}}"
    file = tmp_path / "connectors.yaml"
    file.write_text(f"connectors:\n  {one}: {body}\n  {two}: {body}\n")
    for command in (["watch", "--once"], ["plan"]):
        assert "write to the same topic 'both'" in run(*command, "-f", str(file)).exits(2).err
    ran = run("watch", "--once", "-f", str(file), "--shared-topics").exits(1)
    reported = [json.loads(line) for line in ran.out.splitlines()]
    assert [(event["connector"], event["event"]) for event in reported] == [(one, "missing"), (two, "missing")]


def test_a_worker_that_goes_away_and_comes_back_is_survived():
    """By a worker of our own, which hangs up, rebalances, and answers again."""
    running = {
        "c": {
            "info": {"name": "c", "config": {}, "tasks": [], "type": "sink"},
            "status": {
                "name": "c",
                "type": "sink",
                "connector": {"state": "RUNNING", "worker_id": "w"},
                "tasks": [{"id": 0, "state": "RUNNING", "worker_id": "w"}],
            },
        }
    }
    mood = {"is": "well"}

    def answer(request):
        if mood["is"] == "gone":
            return HANG_UP
        if mood["is"] == "rebalancing":
            return error(500, "Cannot complete request because a rebalance is expected")
        return Reply(200, running if "expand" in request.path else ["c"])

    moods = iter(["gone", "rebalancing", "well"])

    def next_mood(_seconds):
        mood["is"] = next(moods, "over")
        if mood["is"] == "over":
            raise KeyboardInterrupt

    with serving() as start:
        worker = start(answer)
        context = open_context(None, {"connect": worker.url, "timeout": "1s"})
        reported: list[Event] = []
        watch = Watch(
            RestCluster(context), RestartPolicy(0.1, execute=True), reported.append, clock=Clock(sleep=next_mood)
        )
        with pytest.raises(KeyboardInterrupt):
            watch.run()
    assert [event.event for event in reported] == [EventKind.UNREACHABLE, EventKind.REACHABLE]
