"""Shared by the benchmarks of the Spark engine: a lab in a temporary folder, and runs in an existing session."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from playhead.config import Context, Setting
from playhead.kafka.bulk import open_bulk
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.lab import Lab, LabOptions
from playhead.ledger.runs import Ledger
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.run import RunOptions, SparkRun
from playhead.pipeline.spec import check_specs

ROWS, SMALL, PARTITIONS = int(os.environ.get("ROWS", "2000000")), 1_000, 4
WORKER = """group.id=bench
offset.storage.topic=bench-offsets
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""


@contextmanager
def bench_lab() -> Iterator[tuple[Lab, Path, Context]]:
    """A lab with a broker and PostgreSQL, a temporary folder, and a context for them."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.up(LabOptions(workers=0))
        try:
            worker = Path(folder) / "worker.properties"
            worker.write_text(WORKER + f"bootstrap.servers={lab.bootstrap_servers}\n")
            make_topic(lab, "bench-offsets", 5, **{"cleanup.policy": "compact"})
            yield lab, Path(folder), Context(None, {"worker-config": Setting(str(worker), "here")})
        finally:
            lab.down()


def make_topic(lab: Lab, name: str, partitions: int, **config: str) -> None:
    deadline = Deadline(120)
    with Admin(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), deadline) as admin:
        create_topic(admin, name, partitions, deadline, config=config)


def fill(lab: Lab, topic: str, numbers: range, value: Callable[[int], bytes]) -> None:
    """Fills each partition in one transaction."""
    with open_bulk(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), "fill", Deadline(600)) as producer:
        for partition in range(PARTITIONS):
            ours = numbers[partition::PARTITIONS]
            producer.begin()
            for start in range(0, len(ours), 50_000):
                values = pa.array([value(number) for number in ours[start : start + 50_000]])
                producer.send(topic, values, None, partition)
            producer.commit()


class Runner:
    def __init__(self, lab: Lab, context: Context, spark: SparkSession, ledger: Ledger) -> None:
        self.lab = lab
        self.context = context
        self.spark = spark
        self.ledger = ledger
        self.home = find_home(context, Deadline(30))

    def run(self, specs: Sequence[ConnectorSpec], rows_per_chunk: int = 1_000_000, *, unordered: bool = False) -> int:
        """The total number of rows. The first error ends the benchmark."""
        options = RunOptions(rows_per_chunk=rows_per_chunk, unordered=unordered)
        run = SparkRun(self.context, self.home, self.ledger, self.spark, options)
        done = run.run(check_specs(specs, self.home.worker)).connectors
        for one in done:
            if one.error:
                raise one.error
        return sum(one.rows for one in done)

    def rows(self, name: str, config: dict[str, str], rows_per_chunk: int = 1_000_000) -> int:
        return self.run([ConnectorSpec(name, config, Engine.SPARK)], rows_per_chunk)

    def timed(self, name: str, config: dict[str, str], wanted: int, rows_per_chunk: int = 1_000_000) -> float:
        """Records per second of a whole run."""
        started = time.perf_counter()
        rows = self.rows(name, config, rows_per_chunk)
        if rows != wanted:
            raise SystemExit(f"{name}: {rows} records, not {wanted}")
        return rows / (time.perf_counter() - started)


def millions(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate / 1e6:.2f}" for rate in rates)
