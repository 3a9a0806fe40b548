"""Topic -> rows of PostgreSQL on Spark, exactly once, against psql's COPY of the same rows into a table of the same kind.

Three shapes: short rows without a key, the same rows with a primary key, and rows of 20 columns. Broker, database and Spark share
the machine; COPY reads only a file. Warm: the best of several runs, each into a separate table. COPY loads the rows of the first
of these tables, into a table with the same definition. A run costs about 0.7 s before its first record, whatever its size: 8 M
short rows (`ROWS=8000000`) show the rate of the rows.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from spark_runs import PARTITIONS, Runner, bench_lab, fill, make_topic, millions

from playhead.config import Context
from playhead.lab import Lab
from playhead.lab.parts.postgres import postgres_programs
from playhead.ledger.runs import Ledger, open_ledger
from playhead.pipeline.spark import SparkOptions, spark_session

ROWS = int(os.environ.get("ROWS", "8000000"))
ROUNDS, BAR = 4, 0.45
JDBC = "io.confluent.connect.jdbc.JdbcSinkConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"


def _short(number: int) -> bytes:
    return b'{"id":%d,"n":%d,"t":"%032x","d":%.6f}' % (number, number % 1000, number * 0x9E3779B97F4A7C15, number / 7)


def _long(number: int) -> bytes:
    integers = b",".join(b'"i%d":%d' % (at, number * (at + 3) % 1_000_003) for at in range(8))
    floats = b",".join(b'"d%d":%.4f' % (at, number / (at + 7)) for at in range(4))
    texts = b",".join(b'"t%d":"%016x"' % (at, (number + at) * 0x9E3779B97F4A7C15 % 2**64) for at in range(6))
    return b'{"id":%d,%s,%s,%s,"b":%s}' % (number, integers, floats, texts, b"true" if number % 3 else b"false")


def _schema(types: Mapping[str, str]) -> str:
    fields = ",".join(f'{{"field":"{name}","type":"{kind}","optional":false}}' for name, kind in types.items())
    return f'{{"type":"struct","fields":[{fields}],"optional":false}}'


SHORT = {"id": "int64", "n": "int32", "t": "string", "d": "double"}
LONG = {
    "id": "int64",
    **{f"i{at}": "int32" for at in range(8)},
    **{f"d{at}": "double" for at in range(4)},
    **{f"t{at}": "string" for at in range(6)},
    "b": "boolean",
}


@dataclass(frozen=True)
class Shape:
    name: str
    words: str
    types: Mapping[str, str]
    value: Callable[[int], bytes]
    rows: int = ROWS
    options: Mapping[str, str] = field(default_factory=lambda: {"pk.mode": "none"})


KEYED = {"pk.mode": "record_value", "pk.fields": "id"}
SHAPES = (
    Shape("short", "4 columns, no key", SHORT, _short),
    Shape("keyed", "4 columns, a primary key", SHORT, _short, options=KEYED),
    Shape("long", "20 columns, no key", LONG, _long, ROWS // 2),
)


def measure() -> Iterator[str]:
    with (
        bench_lab() as (lab, folder, context),
        open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger,
        spark_session(SparkOptions("local[2]")) as spark,
    ):
        bench = _Bench(lab, context, spark, ledger, folder)
        for shape in SHAPES:
            yield from bench.lines(shape)


class _Bench(Runner):
    def __init__(self, lab: Lab, context: Context, spark: SparkSession, ledger: Ledger, folder: Path) -> None:
        super().__init__(lab, context, spark, ledger)
        self.folder = folder

    def lines(self, shape: Shape) -> Iterator[str]:
        make_topic(self.lab, shape.name, PARTITIONS)
        fill(self.lab, shape.name, range(shape.rows), shape.value)
        self._insert(shape, "peer")
        rates = []
        for number in range(ROUNDS):
            rates.append(self._insert(shape, f"sink{number}"))
            self.lab.psql(f"DROP TABLE {shape.name}_sink{number}")
        copied = [self._copy(shape) for _ in range(2)]
        yield f"{shape.words}: COPY by psql {max(copied) / 1e6:.2f} M rows/s (all: {millions(copied)})"
        yield f"{shape.words}: JDBC sink, insert, warm {max(rates) / 1e6:.2f} M rows/s (all: {millions(rates)})"
        yield f"bar: {shape.words}: at least {BAR:.2f} of COPY; got {max(rates) / max(copied):.2f}"

    def _insert(self, shape: Shape, table: str) -> float:
        user, _, place = self.lab.postgres_url.removeprefix("postgresql://").partition("@")
        config = {
            "connector.class": JDBC,
            "topics": shape.name,
            "connection.url": f"jdbc:postgresql://{place}",
            "connection.user": user,
            "table.name.format": f"{shape.name}_{table}",
            "auto.create": "true",
            "value.converter": JSON,
            "value.converter.schemas.enable": "true",
            "value.converter.schema.content": _schema(shape.types),
            **shape.options,
        }
        return self.timed(f"{shape.name}-{table}", config, shape.rows)

    def _copy(self, shape: Shape) -> float:
        rows = self.folder / f"{shape.name}.csv"
        if not rows.exists():
            self._psql(f"\\copy {shape.name}_peer TO '{rows}' csv")
        self.lab.psql(f"DROP TABLE IF EXISTS copied; CREATE TABLE copied (LIKE {shape.name}_peer INCLUDING ALL)")
        started = time.perf_counter()
        self._psql(f"\\copy copied FROM '{rows}' csv")
        rate = shape.rows / (time.perf_counter() - started)
        if int(self.lab.psql("SELECT count(*) FROM copied")) != shape.rows:
            raise SystemExit(f"{shape.name}: COPY did not load {shape.rows} rows")
        return rate

    def _psql(self, command: str) -> None:
        subprocess.run([str(postgres_programs() / "psql"), self.lab.postgres_url, "-qc", command], check=True)


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
