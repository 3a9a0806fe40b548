"""Topic -> files on Spark, exactly once, against Kafka's own ConsumerPerformance on the same topic.

4 partitions of JSON records of about 100 bytes; broker and Spark share the machine. Warm: the best of several runs,
each with another name and target. `ROWS=20000000` in the environment sets another size, `FLAT=20000000` another length of the
long run, whose cost per record is compared to that of ROWS / 2 records. The last lines compare with a real Connect worker that
writes the same topic as text, after the session has ended.
"""

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from spark_runs import PARTITIONS, ROWS, SMALL, Runner, bench_lab, fill, make_topic, millions
from worker_sink import connect_worker, sink_rate

from playhead.config import Context
from playhead.kafka.bulk import open_bulk
from playhead.lab import Lab
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import Deadline
from playhead.pipeline.spark import SparkOptions, spark_session

ROUNDS, SMALL_STEPS = 3, 5
TOPIC, WIDE, LONG = "bench", "bench-wide", "bench-long"
SHORT, FLAT = ROWS // 2, int(os.environ.get("FLAT", str(4 * ROWS)))
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
FORMATS = "io.confluent.connect.s3.format"


def measure() -> Iterator[str]:
    if FLAT < 4 * SHORT:
        raise SystemExit(f"FLAT is {FLAT}: too few steps to compare; make it at least twice ROWS")
    with bench_lab() as (lab, folder, context):
        make_topic(lab, TOPIC, PARTITIONS)
        make_topic(lab, WIDE, 1_000)
        make_topic(lab, LONG, PARTITIONS)
        fill(lab, TOPIC, range(ROWS), _value)
        with (
            open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger,
            spark_session(SparkOptions("local[2]")) as spark,
        ):
            yield from _Bench(lab, context, spark, ledger, folder).lines()
        yield from _worker(lab, folder)


def _value(number: int) -> bytes:
    return b'{"id":%d,"n":%d,"t":"%032x","d":%.6f}' % (number, number % 1000, number * 0x9E3779B97F4A7C15, number / 7)


def _worker(lab: Lab, folder: Path) -> Iterator[str]:
    records = ROWS + SMALL_STEPS * SMALL  # including those of the small steps
    with connect_worker(lab) as url:
        for tasks in (1, 2):
            rounds = [sink_rate(url, TOPIC, records, folder / f"lines{tasks}{n}", tasks) for n in range(ROUNDS)]
            rates = [one.written for one in rounds]
            yield (
                f"a Connect worker's FileStreamSink, plain text, at least once, tasks.max {tasks}:"
                f" {max(rates) / 1e6:.2f} M records/s from the first to the last line (all: {millions(rates)}),"
                f" {max(one.whole for one in rounds) / 1e6:.2f} from the connector's creation on"
            )


class _Bench(Runner):
    def __init__(self, lab: Lab, context: Context, spark: SparkSession, ledger: Ledger, folder: Path) -> None:
        super().__init__(lab, context, spark, ledger)
        self.folder = folder
        self.number = 0

    def lines(self) -> Iterator[str]:
        peer = max(self._consumer() for _ in range(2))
        yield f"Kafka's ConsumerPerformance on the same topic: {peer / 1e6:.2f} M records/s"
        cold = self._files("json.JsonFormat")
        yield f"JSON lines, cold: {cold / 1e6:.2f} M records/s"
        for words, form, bar in (("JSON lines", "json.JsonFormat", 0.37), ("Parquet", "parquet.ParquetFormat", 0.26)):
            rates = [self._files(form) for _ in range(ROUNDS)]
            yield f"{words}, warm: {max(rates) / 1e6:.2f} M records/s (all: {millions(rates)})"
            yield f"bar: {words} at least {bar:.2f} of ConsumerPerformance; got {max(rates) / peer:.2f}"
        yield f"a step of {SMALL} new records, JSON lines: {self._small():.2f} s"
        yield f"bar: a topic of 1000 partitions is planned in under 2 s; a run that finds it empty took {self._wide():.2f} s"
        yield from self._growing()

    def _consumer(self) -> float:
        """The rate it reports: records per second of fetching, without the time to join its group."""
        at = ["--bootstrap-server", self.lab.bootstrap_servers, "--topic", TOPIC, "--num-records", str(ROWS)]
        lines = self.lab.tool(CONSUMER, *at, seconds=300).strip().splitlines()
        fields = dict(zip((name.strip() for name in lines[0].split(",")), lines[-1].split(","), strict=True))
        return float(fields["fetch.nMsg.sec"])

    def _files(self, form: str) -> float:
        self.number += 1
        name = f"files{self.number}"
        return self.timed(name, self._config(name, TOPIC, form), ROWS)

    def _small(self) -> float:
        config = self._config("small", TOPIC)
        self.timed("small", config, ROWS)
        times = []
        for _ in range(SMALL_STEPS):
            with open_bulk(self.home.settings, "fill-small", Deadline(60)) as producer:
                producer.begin()
                producer.send(TOPIC, pa.array([_value(number) for number in range(SMALL)]), None, 0)
                producer.commit()
            times.append(SMALL / self.timed("small", config, SMALL))
        return min(times)

    def _growing(self) -> Iterator[str]:
        """A short and a long topic, in steps of the same size."""
        fill(self.lab, LONG, range(SHORT), _value)
        short = statistics.median(self._long(f"short{number}", SHORT) for number in range(ROUNDS))
        fill(self.lab, LONG, range(SHORT, FLAT), _value)
        long = self._long("long", FLAT)
        yield f"JSON lines of {SHORT} records: {short / 1e6:.2f} M records/s; of {FLAT}: {long / 1e6:.2f} M records/s"
        yield f"bar: cost per record flat; {FLAT} records at {long / short:.2f} of the rate of {SHORT}"
        steps = self._steps("long")
        half = len(steps) // 2
        ratio = statistics.median(steps[half:]) / statistics.median(steps[:half])
        yield f"of its {len(steps) + 1} steps the median of the second half took {ratio:.2f} of the time of the first half's"

    def _long(self, name: str, records: int) -> float:
        """One file per claim. The transaction marker is part of the claim: it must not cause a step of its own."""
        each = -(-SHORT // PARTITIONS)
        config = self._config(name, LONG) | {"flush.size": str(each)}
        rate = self.timed(name, config, records, rows_per_chunk=each + 1)
        shutil.rmtree(self.folder / name)
        return rate

    def _steps(self, name: str) -> list[float]:
        """Seconds between commits."""
        found = RangeLedger(self.ledger).list_ranges(self.home.cluster_id, name)
        at = sorted({one.seq: one.committed_at for one in found}.values())
        return [(later - earlier).total_seconds() for earlier, later in pairwise(at)]

    def _config(self, name: str, topic: str, form: str = "json.JsonFormat") -> dict[str, str]:
        return {
            "connector.class": "io.confluent.connect.s3.S3SinkConnector",
            "topics": topic,
            "store.url": (self.folder / name).as_uri(),
            "format.class": f"{FORMATS}.{form}",
            "flush.size": "250000",
        }

    def _wide(self) -> float:
        started = time.perf_counter()
        self.rows("wide", self._config("wide", WIDE))
        return time.perf_counter() - started


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
