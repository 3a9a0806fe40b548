"""Topic -> files and tables on Spark, exactly once, against Kafka's own ConsumerPerformance on the same topic, and COPY.

4 partitions of JSON records of about 100 bytes; broker, database and Spark share the machine. Warm: the best of several runs,
each under another name and into another place. `ROWS=20000000` in the environment measures another size, `FLAT=20000000` another
length of the long run, whose cost per record is compared to that of ROWS / 2 records. The last lines are a peer of the files: a
real Connect worker that writes the same topic as text, after the session has ended.
"""

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession
from spark_runs import ROWS, SMALL, Runner, bench_lab, make_topic, millions
from worker_sink import connect_worker, sink_rate

from playhead.config import Context
from playhead.kafka.bulk import BulkProducer
from playhead.kafka.properties import ClientSettings
from playhead.lab import Lab
from playhead.lab.parts.postgres import postgres_programs
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.session import SparkOptions, spark_session
from playhead.sql.ledger import Ledger, open_ledger
from playhead.sql.range_ledger import RangeLedger

ROUNDS, SMALL_STEPS, PARTITIONS = 3, 5, 4
TOPIC, WIDE, LONG = "bench", "bench-wide", "bench-long"
SHORT, FLAT = ROWS // 2, int(os.environ.get("FLAT", str(4 * ROWS)))
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
FORMATS = "io.confluent.connect.s3.format"
SCHEMA = (
    '{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},'
    '{"type":"int32","optional":false,"field":"n"},{"type":"string","optional":false,"field":"t"},'
    '{"type":"double","optional":true,"field":"d"}],"optional":false}'
)


def measure() -> Iterator[str]:
    if FLAT < 4 * SHORT:
        raise SystemExit(f"FLAT is {FLAT}: too few steps to compare; make it at least twice ROWS")
    with bench_lab() as (lab, folder, context):
        make_topic(lab, TOPIC, PARTITIONS)
        make_topic(lab, WIDE, 1_000)
        make_topic(lab, LONG, PARTITIONS)
        _fill(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), TOPIC, range(ROWS))
        with (
            open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger,
            spark_session(SparkOptions("local[2]")) as spark,
        ):
            yield from _Bench(lab, context, spark, ledger, folder).lines()
        yield from _worker(lab, folder)


def _fill(settings: ClientSettings, topic: str, numbers: range) -> None:
    with BulkProducer(settings, "fill", Deadline(600)) as producer:
        for partition in range(PARTITIONS):
            ours = numbers[partition::PARTITIONS]
            producer.begin()
            for start in range(0, len(ours), 50_000):
                producer.send(topic, partition, [_value(number) for number in ours[start : start + 50_000]])
            producer.commit()


def _value(number: int) -> bytes:
    return b'{"id":%d,"n":%d,"t":"%032x","d":%.6f}' % (number, number % 1000, number * 0x9E3779B97F4A7C15, number / 7)


def _worker(lab: Lab, folder: Path) -> Iterator[str]:
    records = ROWS + SMALL_STEPS * SMALL  # with those of the small steps
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
        for words, form, bar in (("JSON lines", "json.JsonFormat", 0.35), ("Parquet", "parquet.ParquetFormat", 0.20)):
            rates = [self._files(form) for _ in range(ROUNDS)]
            yield f"{words}, warm: {max(rates) / 1e6:.2f} M records/s (all: {millions(rates)})"
            yield f"bar: {words} at least {bar:.2f} of ConsumerPerformance; got {max(rates) / peer:.2f}"
        yield from self._database()
        yield f"a step of {SMALL} new records, JSON lines: {self._small():.2f} s"
        yield f"bar: a topic of 1000 partitions is planned in under 2 s; a run that finds it empty took {self._wide():.2f} s"
        yield from self._growing()

    def _consumer(self) -> float:
        """As it counts itself: records per second of fetching, without the time to join its group."""
        at = ["--bootstrap-server", self.lab.bootstrap_servers, "--topic", TOPIC, "--num-records", str(ROWS)]
        told = self.lab.tool(CONSUMER, *at, seconds=300).strip().splitlines()
        fields = dict(zip((name.strip() for name in told[0].split(",")), told[-1].split(","), strict=True))
        return float(fields["fetch.nMsg.sec"])

    def _files(self, form: str) -> float:
        self.number += 1
        name = f"files{self.number}"
        return self._timed(name, self._config(name, TOPIC, form), ROWS)

    def _database(self) -> Iterator[str]:
        copied = max(self._copy() for _ in range(2))
        rates = [self._insert() for _ in range(ROUNDS)]
        yield f"COPY of the same rows by psql: {copied / 1e6:.2f} M rows/s"
        yield f"JDBC sink, insert into PostgreSQL, warm: {max(rates) / 1e6:.2f} M rows/s (all: {millions(rates)})"
        yield f"bar: at least 0.70 of COPY; got {max(rates) / copied:.2f}"

    def _copy(self) -> float:
        rows = self.folder / "rows.csv"
        if not rows.exists():
            rows.write_text("".join(f"{n},{n % 1000},{n * 0x9E3779B97F4A7C15:032x},{n / 7:.6f}\n" for n in range(ROWS)))
        self.lab.psql("DROP TABLE IF EXISTS copied")
        self.lab.psql("CREATE TABLE copied (id bigint NOT NULL, n int NOT NULL, t text NOT NULL, d double precision)")
        command = [str(postgres_programs() / "psql"), self.lab.postgres_url, "-qc", "\\copy copied FROM STDIN csv"]
        started = time.perf_counter()
        with rows.open() as source:
            subprocess.run(command, stdin=source, check=True)
        return ROWS / (time.perf_counter() - started)

    def _insert(self) -> float:
        self.number += 1
        user, _, place = self.lab.postgres_url.removeprefix("postgresql://").partition("@")
        config = {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": TOPIC,
            "connection.url": f"jdbc:postgresql://{place}",
            "connection.user": user,
            "table.name.format": f"sink{self.number}",
            "auto.create": "true",
            "pk.mode": "none",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
            "value.converter.schema.content": SCHEMA,
        }
        return self._timed(f"rows{self.number}", config, ROWS)

    def _small(self) -> float:
        config = self._config("small", TOPIC)
        self._timed("small", config, ROWS)
        times = []
        for _ in range(SMALL_STEPS):
            with BulkProducer(self.home.settings, "fill-small", Deadline(60)) as producer:
                producer.begin()
                producer.send(TOPIC, 0, [_value(number) for number in range(SMALL)])
                producer.commit()
            times.append(SMALL / self._timed("small", config, SMALL))
        return min(times)

    def _growing(self) -> Iterator[str]:
        """A topic when it is short and when it is long, in steps of the same size."""
        _fill(self.home.settings, LONG, range(SHORT))
        short = statistics.median(self._long(f"short{number}", SHORT) for number in range(ROUNDS))
        _fill(self.home.settings, LONG, range(SHORT, FLAT))
        long = self._long("long", FLAT)
        yield f"JSON lines of {SHORT} records: {short / 1e6:.2f} M records/s; of {FLAT}: {long / 1e6:.2f} M records/s"
        yield f"bar: cost per record flat; {FLAT} records at {long / short:.2f} of the rate of {SHORT}"
        steps = self._steps("long")
        half = len(steps) // 2
        ratio = statistics.median(steps[half:]) / statistics.median(steps[:half])
        yield f"of its {len(steps) + 1} steps the median of the second half took {ratio:.2f} of the time of the first half's"

    def _long(self, name: str, records: int) -> float:
        """One file per claim. The transaction's marker is in the claim, too: it must not make a step of its own."""
        each = -(-SHORT // PARTITIONS)
        config = self._config(name, LONG) | {"flush.size": str(each)}
        rate = self._timed(name, config, records, rows_per_chunk=each + 1)
        shutil.rmtree(self.folder / name)
        return rate

    def _steps(self, name: str) -> list[float]:
        """Seconds from commit to commit."""
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
        self._rows("wide", self._config("wide", WIDE))
        return time.perf_counter() - started

    def _timed(self, name: str, config: dict[str, str], wanted: int, rows_per_chunk: int = 1_000_000) -> float:
        started = time.perf_counter()
        rows = self._rows(name, config, rows_per_chunk)
        if rows != wanted:
            raise SystemExit(f"{name}: {rows} records, not {wanted}")
        return rows / (time.perf_counter() - started)

    def _rows(self, name: str, config: dict[str, str], rows_per_chunk: int = 1_000_000) -> int:
        return self.run([ConnectorSpec(name, config, Engine.SPARK)], rows_per_chunk)


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
