"""Sinks on Spark in tests: topics with known records, and what lies in a folder afterwards by pyarrow and the json module."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.ingesting import JSON
from playhead.config import Context, Setting
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.kafka.transactions import PlainProducer
from playhead.lab import Lab, LabOptions
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.connector_run import Progress
from playhead.pipeline.home import find_home
from playhead.pipeline.run import Frame
from playhead.pipeline.run_options import RunOptions
from playhead.pipeline.spec import check_specs
from playhead.sql.ledger import Ledger, open_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3_SINK = "io.confluent.connect.s3.S3SinkConnector"
JSON_FORMAT = "io.confluent.connect.s3.format.json.JsonFormat"
PARQUET_FORMAT = "io.confluent.connect.s3.format.parquet.ParquetFormat"


@dataclass
class Deliver:
    """Runs sinks as `playhead run` does, in a session that is there already."""

    lab: Lab
    spark: "SparkSession"
    ledger: Ledger

    def frame(self, **options: int | float | None) -> Frame:
        context = Context(None, {"worker-config": Setting(str(self.lab.worker_config), "here")})
        home = find_home(context, Deadline(60))
        return Frame(context, home, self.ledger, self.spark, RunOptions(**options))  # type: ignore[arg-type]

    def run(self, *specs: ConnectorSpec, **options: int | float | None) -> Sequence[Progress]:
        return self.frame(**options).run(check_specs(specs, {})).connectors

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

    def files(self, topic: str, folder: Path, **config: str) -> ConnectorSpec:
        """A connector that writes JSON lines into `folder`."""
        own = {
            "connector.class": S3_SINK,
            "topics": topic,
            "store.url": folder.as_uri(),
            "format.class": JSON_FORMAT,
            "flush.size": "100",
        }
        return ConnectorSpec(f"s-{topic}", {**own, **JSON, **config}, Engine.SPARK)


def files_in(folder: Path) -> list[Path]:
    """What a plain listing shows, without what readers of data leave out."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part[0] in "._" for part in path.relative_to(folder).parts))


def lines_in(folder: Path) -> list[str]:
    """Every line of every file; compressed ones unpacked."""
    lines: list[str] = []
    for path in files_in(folder):
        data = path.read_bytes()
        lines += (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()
    return lines


def ids_in(folder: Path) -> Counter[int]:
    return Counter(json.loads(line)["id"] for line in lines_in(folder))


def bytes_in(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_in(folder)}


@pytest.fixture(scope="module")
def sinks_lab(make_lab: Callable[[LabOptions], Lab]) -> Lab:
    """One broker, one worker, PostgreSQL."""
    return make_lab(LabOptions())


@pytest.fixture(scope="module")
def deliver(sinks_lab, spark, tmp_path_factory) -> Iterator[Deliver]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        yield Deliver(sinks_lab, spark, ledger)
