"""Connectors on Spark in tests: topics of a lab, and runs as `playhead run` makes them, in a session that is there already."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.config import Context, Setting
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.kafka.transactions import PlainProducer
from playhead.lab import Lab
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
