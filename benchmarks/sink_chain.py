"""Topic -> files and rows on Spark: what a chain of transforms adds to a run, in CPU of the engine per record, and in rate.

The engine is the driver, Spark's JVM and its Python workers; broker and database share the machine and are not counted. For each
target the runs without a chain, with a router and with a chain of three follow each other, `ROUNDS` times after a first turn; the
least CPU of each is compared. The chain of three is the one of `ingest_cpu`. `ROWS` and `ROUNDS` set other sizes.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ingest_cpu import CHAIN
from ingest_rounds import cpu_seconds
from spark_runs import PARTITIONS, ROWS, Runner, bench_lab, fill, make_topic

from playhead.lab import Lab
from playhead.ledger.runs import open_ledger
from playhead.pipeline.spark import SparkOptions, spark_session

ROUNDS, TOPIC, SHARE = int(os.environ.get("ROUNDS", "3")), "orders", 0.15
ROUTER = {
    "transforms": "r",
    "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.r.regex": "(.*)",
    "transforms.r.replacement": "new-$1",
}
NONE, ONE, THREE = "no chain", "a router", "a chain of three"
CHAINS = {NONE: {}, ONE: ROUTER, THREE: CHAIN}
FIELDS = {"id": "int64", "name": "string", "qty": "int32", "price": "double", "note": "string"}
SCHEMA = ",".join(f'{{"field":"{name}","type":"{kind}","optional":false}}' for name, kind in FIELDS.items())
GIVEN = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
    "value.converter.schema.content": f'{{"type":"struct","fields":[{SCHEMA}],"optional":false}}',
}
FORMATS = "io.confluent.connect.s3.format"


class Spent(NamedTuple):
    micros: float
    rate: float


def measure() -> Iterator[str]:
    with bench_lab() as (lab, folder, context):
        make_topic(lab, TOPIC, PARTITIONS)
        fill(lab, TOPIC, range(ROWS), _value)
        with (
            open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger,
            spark_session(SparkOptions("local[2]")) as spark,
        ):
            runner = Runner(lab, context, spark, ledger)
            for number, (target, config) in enumerate(_targets(lab, folder).items()):
                yield from _lines(runner, folder, target, number, config)


def _value(number: int) -> bytes:
    texts = (number, number, number % 1000, number / 7, number * 0x9E3779B97F4A7C15 % 2**64)
    return b'{"id":%d,"name":"name %d","qty":%d,"price":%.2f,"note":"a note of a row, %016x"}' % texts


def _targets(lab: Lab, folder: Path) -> dict[str, dict[str, str]]:
    user, _, place = lab.postgres_url.removeprefix("postgresql://").partition("@")
    files = {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "store.url": f"file://{folder}/files",
        "flush.size": str(ROWS),
    }
    lines = {**files, "format.class": f"{FORMATS}.json.JsonFormat"}
    return {
        "JSON lines, no schema": lines,
        "JSON lines, a schema": {**lines, **GIVEN},
        "Parquet, a schema": {**files, **GIVEN, "format.class": f"{FORMATS}.parquet.ParquetFormat"},
        "PostgreSQL, a schema": {
            **GIVEN,
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "connection.url": f"jdbc:postgresql://{place}",
            "connection.user": user,
            "auto.create": "true",
            "pk.mode": "none",
        },
    }


def _lines(runner: Runner, folder: Path, target: str, number: int, config: Mapping[str, str]) -> Iterator[str]:
    best: dict[str, Spent] = {}
    for turn in range(ROUNDS + 1):
        for at, (chain, more) in enumerate(CHAINS.items()):
            name = f"run{number}{at}{turn}"
            table = {"table.name.format": f"{name}_${{topic}}"} if "connection.url" in config else {}
            spent = _spent(runner, name, {"topics": TOPIC, **config, **table, **more})
            shutil.rmtree(folder / "files", ignore_errors=True)
            if turn:
                best[chain] = min(best.get(chain, spent), spent)
    for chain, one in best.items():
        yield f"{target}, {chain}: {one.micros:.2f} us of CPU a record, {one.rate / 1e6:.2f} M records/s"
    for chain in (ONE, THREE):
        added, rate = best[chain].micros / best[NONE].micros - 1, best[chain].rate / best[NONE].rate
        yield f"bar: {target}: {chain} adds at most {SHARE:.0%} of CPU; got {added:.0%}, and {rate:.2f} of the rate"


def _spent(runner: Runner, name: str, config: dict[str, str]) -> Spent:
    before, started = cpu_seconds(), time.perf_counter()
    rows = runner.rows(name, config)
    seconds, after = time.perf_counter() - started, cpu_seconds()
    if rows != ROWS:
        raise SystemExit(f"{name}: {rows} records, not {ROWS}")
    return Spent(sum(after[part] - before[part] for part in after) / rows * 1e6, rows / seconds)


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
