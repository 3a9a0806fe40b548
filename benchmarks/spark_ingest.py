"""JDBC -> topic on Spark, exactly once and byte-exact, against the same JDBC read to Spark's noop sink in the same session.

One table of 2,000,000 rows and 5 columns in PostgreSQL; broker, database and Spark share the machine. Cold is the first run of
the session, warm the best of the next ones. `ROWS=10000000` in the environment sets another size.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from spark_runs import ROWS, SMALL, Runner, bench_lab, millions

from playhead.config import Context
from playhead.lab import Lab
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine
from playhead.pipeline.spark import SparkOptions, spark_session

WARM_ROUNDS = 3
SMALL_STEP = "INSERT INTO bench (n, t) SELECT i, 'x' FROM generate_series(1, 1000) i"
TABLE = """
CREATE TABLE bench (id bigserial PRIMARY KEY, n int NOT NULL, t text NOT NULL, d double precision, ts timestamp);
INSERT INTO bench (n, t, d, ts)
  SELECT i % 1000, md5(i::text), i / 7.0, timestamp '2024-01-01' + i * interval '1 second' FROM generate_series(1, {rows}) i;
VACUUM ANALYZE bench;
"""

TABLES = 8
COPY = "CREATE TABLE {name} AS SELECT * FROM bench WHERE id <= {rows}; ALTER TABLE {name} ADD PRIMARY KEY (id)"
LARGE = 5  # times ROWS
MORE = "INSERT INTO bench_large SELECT id + (SELECT max(id) FROM bench_large), n, t, d, ts FROM bench"


def measure() -> Iterator[str]:
    with bench_lab() as (lab, folder, context):
        yield from _measured(lab, folder, context)


def _measured(lab: Lab, folder: Path, context: Context) -> Iterator[str]:
    for statement in TABLE.format(rows=ROWS).strip().split(";\n"):
        lab.psql(statement.rstrip(";"))
    started = time.perf_counter()
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        with spark_session(SparkOptions("local[2]")) as spark:
            yield f"session up after {time.perf_counter() - started:.1f} s"
            bench = _Bench(lab, context, spark, ledger)
            yield from bench.lines()
        with spark_session(SparkOptions("local[1]")) as spark:
            alone = _Bench(lab, context, spark, ledger)
            one = max(alone.ingest(f"alone{number}") for number in range(3))
        yield f"bar: 2 cores at least 1.6 times 1 core (broker and database share them); got {bench.best / one:.2f} times"


class _Bench(Runner):
    best = 0.0

    def lines(self) -> Iterator[str]:
        cold = self.ingest("cold")
        noop, warm, unordered = [], [], []
        for number in range(WARM_ROUNDS):
            noop.append(self._noop())
            warm.append(self.ingest(f"warm{number}"))
            unordered.append(self.ingest(f"unordered{number}", unordered=True))
        best, read = max(warm), max(noop)
        self.best = best
        yield f"JDBC read to noop, 2 partitions, fetchsize 10000: {read / 1e6:.2f} M rows/s (all: {millions(noop)})"
        yield f"playhead run, cold: {cold / 1e6:.2f} M rows/s"
        yield f"playhead run, warm: {best / 1e6:.2f} M rows/s (all: {millions(warm)})"
        yield f"bar: at least 0.25 of noop, aiming at 0.40; got {best / read:.2f}"
        yield f"produced in turn: {best / max(unordered):.2f} of the rate of --unordered (all: {millions(unordered)})"
        eight = self._eight("bench", ROWS)
        yield f"bar: {TABLES} tables of {ROWS} rows at once not slower per row than one; got {eight / best:.2f} of its rate"
        little = max(self._eight("part", ROWS // TABLES) for _ in range(2))
        yield f"{TABLES} tables of {ROWS // TABLES} rows at once: {little / best:.2f} of its rate"
        yield from self._growing()
        small = min(self._small() for _ in range(5))
        yield f"bar: a step of {SMALL} new rows below 1.5 s; got {small:.2f} s"

    def _noop(self) -> float:
        started = time.perf_counter()
        half = ROWS // 2
        frame = self.spark.read.jdbc(
            self.lab.jdbc_url,
            "bench",
            predicates=[f"id <= {half}", f"id > {half}"],
            properties={"fetchsize": "10000", "driver": "org.postgresql.Driver"},
        )
        frame.write.format("noop").mode("overwrite").save()
        return ROWS / (time.perf_counter() - started)

    def ingest(self, name: str, *, unordered: bool = False) -> float:
        started = time.perf_counter()
        rows = self._run(name, unordered=unordered)
        if rows < ROWS:
            raise SystemExit(f"{rows} rows, not {ROWS}")
        return rows / (time.perf_counter() - started)

    def _eight(self, name: str, rows: int) -> float:
        """All tables at once, one connector each."""
        tables = [f"{name}_{number}" for number in range(TABLES)]
        for table in tables:
            if not self.lab.psql(f"SELECT to_regclass('{table}')"):
                self.lab.psql(COPY.format(name=table, rows=rows))
        specs = [self._spec(f"{table}-{time.monotonic_ns()}", table) for table in tables]
        started = time.perf_counter()
        done = self.run(specs)
        return done / (time.perf_counter() - started)

    def _growing(self) -> Iterator[str]:
        """A small and a large table in chunks of the same size: the cost per row, and the memory of the driver."""
        self.lab.psql(COPY.format(name="bench_small", rows=ROWS // 2))
        self.lab.psql(COPY.format(name="bench_large", rows=ROWS))
        for _ in range(LARGE - 1):
            self.lab.psql(MORE)
        rates, memory = {}, {}
        for table in ("bench_small", "bench_large"):
            started = time.perf_counter()
            rows = self.run([self._spec(f"grow-{table}", table)], rows_per_chunk=250_000)
            rates[rows] = rows / (time.perf_counter() - started)
            memory[rows] = self._memory()
        (few, slow), (many, fast) = rates.items()
        yield f"bar: cost per row flat; {many} rows at {fast / slow:.2f} of the rate of {few}"
        yield "bar: driver memory flat; " + ", ".join(
            f"after {rows} rows Python {python:.0f} MB, JVM heap in use {java:.0f} MB"
            for rows, (python, java) in memory.items()
        )

    def _memory(self) -> tuple[float, float]:
        java = cast(Any, self.spark._jvm).java.lang
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return resident / 1e6, (runtime.totalMemory() - runtime.freeMemory()) / 1e6

    def _small(self) -> float:
        """New rows after a position: one step, from the start of the round to its end."""
        self.lab.psql(SMALL_STEP)
        started = time.perf_counter()
        self._run("cold")
        return time.perf_counter() - started

    def _run(self, name: str, *, unordered: bool = False) -> int:
        return self.run([self._spec(name, "bench")], unordered=unordered)

    def _spec(self, name: str, table: str) -> ConnectorSpec:
        config = {
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
            "connection.url": self.lab.jdbc_url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": table,
            "topic.prefix": f"{name}-",
            "topic.creation.default.partitions": "-1",
            "topic.creation.default.replication.factor": "-1",
        }
        return ConnectorSpec(name, config, Engine.SPARK)


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
