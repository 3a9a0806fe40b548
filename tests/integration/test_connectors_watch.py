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
from playhead.lab import LabOptions
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
            command if "--connect" in words else [*command, "--connect", lab.connect_urls[0]],
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

    def awaits(self, kind, nth=1):
        def found():
            of_kind = [event for event in self.events if event["event"] == kind]
            return of_kind[nth - 1] if len(of_kind) >= nth else None

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
    body = f"config: {{connector.class: {SINK}, topics: {topic}, file: {folder}"
    file.write_text(
        f"connectors:\n  {prefix}-paused: {{state: paused, {body}/paused}}}}\n"
        f"  {prefix}-stopped: {{state: running, {body}/stopped, consumer.override.group.id: g}}}}\n"
        f"  {prefix}-spark: {{engine: spark, {body}}}}}\n  {prefix}-new: {{{body}}}}}\n"
    )
    ran = run("watch", "-f", str(file), "--once", "--execute").exits(1)
    reported = [json.loads(line) for line in ran.out.splitlines()]
    assert {(event["connector"].removeprefix(prefix), event["event"]) for event in reported} == {
        ("-paused", "left-alone"),
        ("-stopped", "differs"),
        ("-stopped", "config-differs"),
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


def test_a_config_changed_on_the_worker_is_reported_until_it_is_as_in_the_file(
    run, watching, cast, new_topic, unique, tmp_path
):
    name, lines = unique("drift"), tmp_path / "lines.txt"
    lines.touch()
    config = {"file": str(lines), "topic": new_topic(), "batch.size": "100"}
    cast.make(name, SOURCE, config)
    cast.settles(name, "RUNNING", "RUNNING")
    file = tmp_path / "connectors.yaml"
    body = ", ".join(f"{key}: '{value}'" for key, value in config.items())
    text = f"connectors:\n  {name}: {{config: {{connector.class: {SOURCE}, {body}}}}}\n"
    file.write_text(text)
    assert run("watch", "-f", str(file), "--once").exits(0).out == ""
    watch = watching("-f", str(file), "--interval", "300ms")

    code, _ = cast.ask(path_of(name) + "/config", "PATCH", {"batch.size": "500"})
    assert code == 200
    assert watch.awaits("config-differs")["connector"] == name
    assert "batch.size (changed)" in watch.events[0]["cause"]
    [once] = run("watch", "-f", str(file), "--once", "-o", "text").exits(1).out.splitlines()
    assert f"  {name}: config-differs: its config is not as its file says: batch.size (changed)" in once
    run("plan", "-f", str(file)).exits(1)

    file.write_text(text.replace("'100'", "'500'"))  # the file follows the worker
    watch.awaits("config-matches")
    cast.settles(name, "RUNNING", "RUNNING")
    assert run("watch", "-f", str(file), "--once").exits(0).out == ""
    kinds = [event["event"] for event in watch.events]
    assert kinds.count("config-differs") == kinds.count("config-matches") == 1


def test_files_that_break_heal_come_and_go_are_reported_while_watching(watching, cast, new_topic, unique, tmp_path):
    folder, topic = tmp_path / "files", new_topic()
    folder.mkdir()
    names = [unique("one"), unique("two")]
    texts = {}
    for name in names:
        config = {"file": str(tmp_path / name), "topics": topic}
        cast.make(name, SINK, config)
        body = ", ".join(f"{key}: '{value}'" for key, value in config.items())
        texts[name] = f"connectors:\n  {name}: {{config: {{connector.class: {SINK}, {body}}}}}\n"
    for name in names:
        cast.settles(name, "RUNNING", "RUNNING")
    one, two = (folder / f"{name}.yaml" for name in names)
    one.write_text(texts[names[0]])
    watch = watching("-f", str(folder), "--interval", "300ms")
    # The first event shows that the watch has read its files once.
    cast.ask(path_of(names[0]) + "/pause", "PUT")
    watch.awaits("left-alone")
    two.write_text(texts[names[1]])
    assert watch.awaits("added-to-files")["connector"] == names[1]
    one.write_text("connectors: [")
    invalid = watch.awaits("files-invalid")
    assert str(one) in invalid["cause"] and invalid["connector"] is None
    one.write_text(texts[names[0]])
    watch.awaits("files-valid")
    two.unlink()
    removed = watch.awaits("removed-from-files")
    assert removed["connector"] == names[1]
    two.write_text(texts[names[1]])
    assert watch.awaits("added-to-files", nth=2)["connector"] == names[1]
    assert cast.states(names[1]) == ["RUNNING", "RUNNING"]


@pytest.fixture(scope="module")
def pair(make_lab):
    """A broker and two workers that may be frozen."""
    return make_lab(LabOptions(workers=2, postgres=False))


@pytest.mark.parametrize(
    ("part", "gone", "back"),
    [
        ("worker-2", "worker-unreachable", "worker-reachable"),
        ("broker-1", "brokers-unreachable", "brokers-reachable"),
    ],
)
def test_a_part_that_is_frozen_and_continues_is_reported_once_each(pair, watching, playhead, part, gone, back):
    where = ["--connect", ",".join(pair.connect_urls), "-b", pair.bootstrap_servers, "--timeout", "4s"]
    playhead("connectors", "watch", "--once", *where).exits(0)
    watch = watching(*where, "--interval", "300ms")
    pair.pause(part)
    try:
        found = watch.awaits(gone)
        assert "not answer" in found["cause"]
        once = playhead("connectors", "watch", "--once", *where)
        assert gone in once.out
        assert once.code == (1 if part.startswith("worker") else 3)
    finally:
        pair.resume(part)
    watch.awaits(back)
    kinds = [event["event"] for event in watch.events]
    assert (kinds.count(gone), kinds.count(back)) == (1, 1)
