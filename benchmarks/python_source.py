"""A source in Python on Spark, exactly once, against a plain transactional producer loop with json.dumps over the same dicts.

Both have one process, ready dicts of five fields, a key, and a transaction for every 10,000 records. Cold is the first run of the
session, warm the best of the next ones.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from spark_runs import PARTITIONS, bench_lab, make_topic

from playhead.config import Context, Setting
from playhead.lab import Lab
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.run import RunOptions, SparkRun
from playhead.pipeline.spark import SparkOptions, spark_session
from playhead.pipeline.spec import check_specs

RECORDS, PAGE, ROUNDS = 500_000, 10_000, 3
DICTS = "[{'id': n, 'name': f'customer {n}', 'amount': n / 4, 'active': True, 'note': None} for n in range(10_000)]"
MODULE = f"""
from playhead.sdk import Option, SourceConnector, SourceRecord, SourceTask

READY = {DICTS}


class Task(SourceTask):
    def start(self, config, offsets):
        self.topic, self.partition = config["topic"], {{"all": 1}}
        self.at = offsets.get(self.partition, {{"at": 0}})["at"]

    def poll(self):
        if self.at < {RECORDS}:
            first, self.at = self.at, self.at + {PAGE}
            for number, value in enumerate(READY, first + 1):
                yield SourceRecord(self.topic, value, str(number), self.partition, {{"at": number}})


class Ready(SourceConnector):
    config = [Option("topic")]
    task = Task
"""


def measure() -> Iterator[str]:
    with bench_lab() as (lab, folder, context):
        (folder / "bench_ready.py").write_text(MODULE)
        settings = {**context.settings, "plugin-path": Setting(str(folder), "here")}
        yield from _measured(lab, folder, replace(context, settings=settings))


def _measured(lab: Lab, folder: Path, context: Context) -> Iterator[str]:
    sys.path.append(str(folder))
    plain, polled = [], []
    with (
        open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger,
        spark_session(SparkOptions("local[2]")) as spark,
    ):
        run = SparkRun(context, find_home(context, Deadline(30)), ledger, spark, RunOptions())
        cold = _polled(lab, run, "cold")
        for number in range(ROUNDS):
            plain.append(_plain(lab, f"plain{number}"))
            polled.append(_polled(lab, run, f"polled{number}"))
    yield f"plain producer loop: {max(plain) / 1e3:.0f} k records/s (all: {_shown(plain)})"
    yield f"playhead run, cold: {cold / 1e3:.0f} k records/s"
    yield f"playhead run, warm: {max(polled) / 1e3:.0f} k records/s (all: {_shown(polled)})"
    yield f"bar: at least 0.60 of the plain loop; got {max(polled) / max(plain):.2f}"


def _plain(lab: Lab, topic: str) -> float:
    """Records a second."""
    make_topic(lab, topic, PARTITIONS)
    ready = eval(DICTS)  # noqa: S307  the same text as in the connector
    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": topic, "linger.ms": 50}
    producer = Producer({**settings, "compression.type": "lz4", "queue.buffering.max.messages": 200_000})
    producer.init_transactions(30)
    started = time.perf_counter()
    for first in range(0, RECORDS, PAGE):
        producer.begin_transaction()
        for number, value in enumerate(ready, first + 1):
            producer.produce(topic, json.dumps(value), str(number))
        producer.poll(0)
        producer.commit_transaction(60)
    return RECORDS / (time.perf_counter() - started)


def _polled(lab: Lab, run: SparkRun, topic: str) -> float:
    make_topic(lab, topic, PARTITIONS)
    spec = ConnectorSpec(topic, {"connector.class": "bench_ready.Ready", "topic": topic}, Engine.SPARK)
    ready = check_specs([spec], run.home.worker)
    started = time.perf_counter()
    [done] = run.run(ready).connectors
    if done.error is not None or done.rows != RECORDS:
        raise done.error or AssertionError(f"{done.rows} rows")
    return RECORDS / (time.perf_counter() - started)


def _shown(rates: list[float]) -> str:
    return ", ".join(f"{rate / 1e3:.0f}" for rate in rates)
