"""PostgreSQL -> topic on Spark: CPU of the engine per row, and rate, by kinds of tables and records.

The engine is the driver, Spark's JVM and its Python workers; broker and database share the machine and are not counted. Each
kind is run `ROUNDS` times after a first one; the best is shown, with the CPU of that run. `BEFORE=FOLDER` in the environment
names the `src` folder of other code: both are measured in turn, twice. `ROWS` and `ROUNDS` set other sizes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spark_runs import bench_lab

import playhead

ROWS = int(os.environ.get("ROWS", "3000000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SMALL = 1_000
NARROW = (
    "CREATE TABLE narrow AS SELECT i::bigint AS id, 'name ' || i AS name, i % 1000 AS qty,"
    " 'a note of a row, ' || md5(i::text)::varchar(16) AS note FROM generate_series(1, {rows}) i"
)
FOUR_TIMES = (
    "i % {n}7 AS n{n}, md5((i + {n})::text)::varchar(12) AS t{n}, i / {n}7.0::float8 AS d{n},"
    " timestamp '2024-01-01' + (i + {n}) * interval '1 second' AS s{n}"
)
WIDE = (
    "CREATE TABLE wide AS SELECT i::bigint AS id, {columns}, i % 2 = 0 AS yes, i::numeric(12, 2) AS price,"
    " date '2024-01-01' + (i % 900) AS day FROM generate_series(1, {rows}) i"
)
_TYPE = "org.apache.kafka.connect.transforms."
KEYS = {
    "transforms": "k,e",
    "transforms.k.type": f"{_TYPE}ValueToKey",
    "transforms.k.fields": "qty",
    "transforms.e.type": f"{_TYPE}ExtractField$Key",
    "transforms.e.field": "qty",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "topic.creation.default.partitions": "3",
}
CHAIN = {
    "transforms": "r,c,i",
    "transforms.r.type": f"{_TYPE}ReplaceField$Value",
    "transforms.r.renames": "name:title",
    "transforms.c.type": f"{_TYPE}Cast$Value",
    "transforms.c.spec": "qty:int64",
    "transforms.i.type": f"{_TYPE}InsertField$Value",
    "transforms.i.static.field": "s",
    "transforms.i.static.value": "x",
}
PLAIN, CHAINED, KEYED, COLUMNS = "4 columns", "4 columns, chain of three", "4 columns, keys, 3 partitions", "20 columns"
KINDS: list[dict[str, Any]] = [
    {"name": PLAIN, "table": "narrow", "config": {}, "rows": ROWS},
    {"name": CHAINED, "table": "narrow", "config": CHAIN, "rows": ROWS},
    {"name": KEYED, "table": "narrow", "config": KEYS, "rows": ROWS},
    {"name": COLUMNS, "table": "wide", "config": {}, "rows": ROWS // 4},
]
PARTS = ("driver", "jvm", "workers")
Found = dict[str, dict[str, float]]


def measure() -> Iterator[str]:
    trees = {"now": Path(playhead.__file__).parent.parent}
    if before := os.environ.get("BEFORE"):
        trees = {"before": Path(before), **trees}
    found: dict[str, Found] = {}
    with bench_lab() as (lab, folder, _):
        columns = ", ".join(FOUR_TIMES.format(n=n) for n in range(1, 5))
        for table, statement, rows in (("narrow", NARROW, ROWS), ("wide", WIDE, ROWS // 4)):
            for one in (
                statement.format(rows=rows, columns=columns),
                f"ALTER TABLE {table} ADD PRIMARY KEY (id)",
                f"VACUUM ANALYZE {table}",
            ):
                lab.psql(one)
        for turn in range(len(trees)):
            for name, source in trees.items():
                found[name] = _better(found.get(name), _rounds(folder, source, f"{name}{turn}"))
    for name, of_tree in found.items():
        yield from _shown(name, of_tree)
    yield from _bars(found)


def _rounds(folder: Path, source: Path, tag: str) -> Found:
    asked = {"folder": str(folder), "tag": tag, "kinds": KINDS, "rounds": ROUNDS, "small": SMALL}
    command = [sys.executable, str(Path(__file__).with_name("ingest_rounds.py")), json.dumps(asked)]
    env = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def _better(one: Found | None, other: Found) -> Found:
    if one is None:
        return other
    best = {kind: max(one[kind], other[kind], key=lambda run: run["rate"]) for kind in one if kind != "step"}
    return {**best, "step": min(one["step"], other["step"], key=lambda run: run["seconds"])}


def _shown(name: str, found: Found) -> Iterator[str]:
    for kind, one in found.items():
        if kind == "step":
            yield f"{name}: a step of {SMALL} new rows: {one['seconds']:.2f} s"
        else:
            parts = ", ".join(f"{part} {one[part]:.2f}" for part in PARTS)
            yield f"{name}: {kind}: {one['rate'] / 1e6:.3f} M rows/s, engine {one['cpu']:.2f} us a row ({parts})"


def _bars(found: Mapping[str, Found]) -> Iterator[str]:
    now = found["now"]
    yield f"bar: engine at most 2.1 us a row of 4 columns; got {now[PLAIN]['cpu']:.2f} us"
    yield f"bar: a chain of three at most 15 % more CPU; got {now[CHAINED]['cpu'] / now[PLAIN]['cpu'] - 1:.0%}"
    yield f"bar: a step of {SMALL} rows at most 0.7 s; got {now['step']['seconds']:.2f} s"
    if "before" in found:
        old = found["before"]
        for kind in (PLAIN, CHAINED, KEYED, COLUMNS):
            rate, cpu = now[kind]["rate"] / old[kind]["rate"], now[kind]["cpu"] / old[kind]["cpu"]
            yield f"{kind}: {rate:.2f} times the rate of before, {cpu:.2f} of its CPU"
        yield f"bar: at least 1.5 times the rate of before; got {now[PLAIN]['rate'] / old[PLAIN]['rate']:.2f}"


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
