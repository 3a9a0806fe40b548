"""Connectors on Spark in tests: topics of a lab, and runs as `playhead run` makes them, in a session that is there already."""

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from playhead.config import Context, Setting
from playhead.errors import NotFound, TimedOut
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.kafka.transactions import PlainProducer
from playhead.lab import Lab
from playhead.ledger.model import Host, RunState
from playhead.ledger.runs import Ledger
from playhead.model import ConnectorSpec, Deadline
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.run import RunOptions, SparkRun
from playhead.pipeline.spec import check_specs
from playhead.pipeline.supervisor import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
# The lab's brokers create no topics: with these settings a source creates its own, with the broker's defaults.
NEW_TOPICS = {"topic.creation.default.partitions": "-1", "topic.creation.default.replication.factor": "-1"}


@dataclass
class Topics:
    lab: Lab

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings({"bootstrap.servers": self.lab.bootstrap_servers})

    def make_topic(self, name: str, partitions: int = 2, **config: str) -> None:
        deadline = Deadline(30)
        with Admin(self.settings, deadline) as admin:
            create_topic(admin, name, partitions, deadline, config=config)

    def send(self, topic: str, count: int, *, partitions: int = 2, start: int = 0) -> None:
        """Records {"id": n} with n from `start`, dealt out to the partitions in turn."""
        with PlainProducer(self.settings, Deadline(60)) as producer:
            for number in range(start, start + count):
                value = json.dumps({"id": number, "t": f"row {number}"}).encode()
                producer.produce(topic, str(number).encode(), value, partition=number % partitions)


@dataclass
class OnSpark(Topics):
    spark: "SparkSession"
    ledger: Ledger
    worker_config: Path | None = None

    def prepared(self, **options: int | float | None) -> SparkRun:
        context = Context(None, {"worker-config": Setting(str(self.worker_config or self.lab.worker_config), "here")})
        home = find_home(context, Deadline(60))
        return SparkRun(context, home, self.ledger, self.spark, RunOptions(**options))  # type: ignore[arg-type]

    def run(self, *specs: ConnectorSpec, **options: int | float | None) -> Sequence[Progress]:
        return self.prepared(**options).run(check_specs(specs, {})).connectors


@dataclass
class Running:
    """A continuous run in a thread of its own, in the session of the tests."""

    run: SparkRun
    specs: Sequence[ConnectorSpec]
    reports: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        ready = check_specs(self.specs, self.run.home.worker)
        self._thread = threading.Thread(target=self.run.run, args=(ready, self.reports.append))
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def now(self, name: str) -> Progress:
        return next((one for one in reversed(self.reports) if one.name == name), Progress(name))

    def until(self, condition: Callable[[], object], what: str, seconds: float = 60) -> None:
        try:
            Deadline(seconds).wait_for(lambda: condition() or None, what, every=0.05)
        except TimedOut:
            pytest.fail(f"{what}: {self.reports[-3:]}")

    def has(self, name: str, rows: int) -> None:
        self.until(lambda: self.now(name).rows >= rows, f"{rows} rows of {name}")

    def stop(self, *names: str) -> bool:
        for name in names or [spec.name for spec in self.specs]:
            with suppress(NotFound):  # not claimed yet
                self.run.ledger.request_stop(self.run.home.cluster_id, name, Host.here())
        return False

    def state(self, name: str) -> RunState:
        return self.run.ledger.get_run(self.run.home.cluster_id, name).state

    def ended(self) -> None:
        self.until(lambda: self.is_over or self.stop(), "the end of all")
        self._thread.join()
