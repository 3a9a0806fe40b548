"""Connectors that change their engine under load, for the tests of hand-overs: a writer, a file source and a file sink, runs on
Spark in the session of the tests, and oracles that are not Playhead."""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.workers import ask, path_of
from integration.file_source import TEXT
from integration.ingesting import consumed
from integration.killing import killed_in_call
from integration.on_spark import OnSpark, Running
from playhead.lab import Lab
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import ConnectorSpec, Deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, SINK = "FileStreamSource", "FileStreamSink"
KILLER = killed_in_call()


@dataclass
class Writer:
    """A thread that appends numbered lines until `stop` is called."""

    path: Path
    written: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.path.touch()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with self.path.open("a") as file:
            while not self._stop.wait(0.02):
                self.written += 1
                file.write(f"line {self.written}\n")
                file.flush()

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join()
        return [f"line {number}" for number in range(1, self.written + 1)]


@dataclass
class Pair:
    """A file source and a file sink over one topic, in a YAML file, on a lab with or without exactly-once support."""

    lab: Lab
    folder: Path
    names: tuple[str, str]
    topic: str
    on_spark: OnSpark
    playhead: Callable[..., object]
    runs: list[Running] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.lab.connect_urls[0]

    @property
    def lines(self) -> Path:
        return self.folder / "in.txt"

    @property
    def out(self) -> Path:
        return self.folder / "out.txt"

    @property
    def file(self) -> Path:
        return self.folder / "pair.yaml"

    @property
    def specs(self) -> list[ConnectorSpec]:
        source = {"connector.class": SOURCE, "file": str(self.lines), "topic": self.topic, "value.converter": TEXT}
        sink = {"connector.class": SINK, "file": str(self.out), "topics": self.topic, "value.converter": TEXT}
        sink["consumer.override.isolation.level"] = "read_committed"
        sink["consumer.override.session.timeout.ms"] = "6000"
        return [ConnectorSpec(self.names[0], source), ConnectorSpec(self.names[1], sink)]

    def write_file(self) -> None:
        blocks = [f"  {spec.name}:  # the one\n    config:  # as it is\n" + _config(spec) for spec in self.specs]
        self.file.write_text("# a file of ours\nconnectors:\n" + "".join(blocks))

    def create(self) -> None:
        self.write_file()
        for spec in self.specs:
            code, body = ask(f"{self.url}/connectors", "POST", {"name": spec.name, "config": dict(spec.config)})
            assert code == 201, body

    def words(self, to: str, *names: str) -> list[str]:
        there = ["--connect", self.url, "--worker-config", str(self.lab.worker_config), "--ledger", self.ledger_url]
        named = list(names or self.names)
        return ["handover", *named, "--to", to, "-f", str(self.file), "--settle", "300ms", *there, "--execute"]

    def there(self) -> list[str]:
        return ["--connect", self.url, "--worker-config", str(self.lab.worker_config), "--ledger", self.ledger_url]

    @property
    def ledger_url(self) -> str:
        return f"sqlite:///{self.folder}/ledger.db"

    def hand(self, to: str, *names: str, code: int = 0, more: Sequence[str] = ()):
        return self.playhead(*self.words(to, *names), *more).exits(code)  # type: ignore[attr-defined]

    def undo(self, *more: str, code: int = 0):
        """Of the newest hand-over."""
        words = ["connectors", "undo", "--settle", "300ms", *self.there(), "--execute", *more]
        return self.playhead(*words).exits(code)  # type: ignore[attr-defined]

    def run(self, *names: str) -> Running:
        """Continuous, in the session of the tests, as `playhead run` would run it."""
        specs = [spec for spec in self.specs if not names or spec.name in names]
        self.runs.append(Running(self.on_spark.prepared(interval_seconds=0.2), specs))
        return self.runs[-1]

    def run_ended(self) -> None:
        """By the hand-over, not by the test."""
        run = self.runs[-1]
        run.until(lambda: run.is_over, "the end of the run")

    def state(self, name: str) -> tuple[str, int] | None:
        code, body = ask(f"{self.url}{path_of(name)}/status")
        return (body["connector"]["state"], len(body["tasks"])) if code == 200 else None

    def records(self) -> list[str]:
        """By Kafka's own consumer, committed ones."""
        return consumed(self.lab, self.topic)

    def delivered(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []

    def grows(self, more: int = 20) -> None:
        """Both ends move."""
        before = len(self.delivered())
        Deadline(60).wait_for(lambda: len(self.delivered()) >= before + more, f"{more} more lines", every=0.2)

    def ends_with(self, wanted: Sequence[str]) -> None:
        Deadline(60).wait_for(lambda: len(self.delivered()) >= len(wanted), "the last line", every=0.2)

    def close(self) -> None:
        for run in self.runs:
            run.ended()
        for name in self.names:
            ask(f"{self.url}{path_of(name)}", "DELETE")


def _config(spec: ConnectorSpec) -> str:
    return "".join(f"      {key}: {value}\n" for key, value in spec.config.items())


def open_pair_ledger(folder: Path) -> Ledger:
    return open_ledger(f"sqlite:///{folder}/ledger.db", 20)


PYTHON = sys.executable


def made_pair(
    lab: Lab, spark: "SparkSession", playhead: Callable[..., object], unique: Callable[[str], str], folder: Path
):
    topic, ledger = unique("moved"), open_pair_ledger(folder)
    on_spark = OnSpark(lab, spark, ledger)
    on_spark.make_topic(topic, 1)
    return Pair(lab, folder, (unique("src"), unique("out")), topic, on_spark, playhead)


@pytest.fixture
def eos_pair(lab, spark, playhead, unique, tmp_path):
    """On the shared lab, whose worker has exactly-once support."""
    made = made_pair(lab, spark, playhead, unique, tmp_path)
    yield made
    made.close()
    made.on_spark.ledger.close()


@dataclass
class Watching:
    """Looks all the time whether Connect has a task of a connector while a run of it is alive. Both are asked one after the
    other, so a run counts only if the same one is alive before and after Connect is asked."""

    pair: Pair
    looks: int = 0
    doubled: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watching":
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert kind is not None or self.looks > 5, "nobody looked"
        assert not self.doubled, self.doubled

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for name in self.pair.names:
                before = self._alive(name)
                with suppress(OSError):  # a worker that a test killed
                    tasks = (self.pair.state(name) or ("", 0))[1]
                    self.looks += 1
                    if before and tasks and self._alive(name) == before:
                        self.doubled.append(f"{name}: run {before} and {tasks} task(s)")

    def _alive(self, name: str) -> int:
        runs = [run for run in self.pair.on_spark.ledger.list_runs() if run.pipeline == name]
        return max((run.epoch for run in runs if run.is_alive), default=0)
