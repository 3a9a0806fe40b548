"""`playhead audit` of two folders of Parquet, 4 M against 4 M rows with 37 lost, 10 doubled and 5 changed, beside the tools that
compare tables: datacompy on the same Spark session, and reladiff over DuckDB on the same files.

Each must find exactly the planted rows; what each reports is checked against the ids that were planted. The first level alone is
measured on equal folders. A table of PostgreSQL against its topic is compared with the plain read of both: COPY to nowhere, and
the topic counted by Spark. Memory is that of the Python processes and of the JVM, as rows grow from 1 M to 20 M. `ROWS=1000000`
in the environment sets another size.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from multiprocessing import get_context
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from spark_runs import PARTITIONS, Runner, bench_lab, make_topic

from playhead.config import Context, Setting
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine
from playhead.pipeline.audit.of_folders import audit_folders
from playhead.pipeline.audit.run import AuditOptions, run_audit
from playhead.pipeline.spark import SparkOptions, spark_session

ROWS = int(os.environ.get("ROWS", "4000000"))
TABLE_ROWS = ROWS // 2
ROUNDS = 3
FILES = 8
LOST, DOUBLED, CHANGED = 37, 10, 5


def measure() -> Iterator[str]:
    yield from _of_table()
    with tempfile.TemporaryDirectory() as name, spark_session(SparkOptions("local[2]")) as spark:
        folder = Path(name)
        _write(folder / "left", ROWS)
        spoilt = _write_spoilt(folder / "right", ROWS)
        yield from _of_folders(spark, folder, spoilt)
        yield from _of_memory(spark, folder)


# Two folders


def _batch(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([f"customer {number % 1000}" for number in numbers]),
            "amount": pa.array([number % 77 / 4 for number in numbers]),
            "note": pa.array([f"a text of some length {number}" for number in numbers]),
        }
    )


def _write(folder: Path, rows: int) -> None:
    folder.mkdir()
    step = rows // FILES
    for at in range(FILES):
        pq.write_table(_batch(at * step, (at + 1) * step), folder / f"{at}.parquet")


def _write_spoilt(folder: Path, rows: int) -> dict[str, set[int]]:
    """In other files, and in another order."""
    folder.mkdir()
    stride = rows // (LOST + DOUBLED + CHANGED)
    picked = [number * stride + 7 for number in range(LOST + DOUBLED + CHANGED)]
    lost, doubled, changed = picked[:LOST], picked[LOST:-CHANGED], picked[-CHANGED:]
    step = rows // (FILES - 1) + 1
    for at in range(FILES - 1):
        start, stop = at * step, min((at + 1) * step, rows)
        whole = _batch(start, stop)
        kept = [number - start for number in range(start, stop) if number not in set(lost)]
        twice = [number - start for number in doubled if start <= number < stop]
        notes = whole["note"].to_pylist()
        for number in changed:
            if start <= number < stop:
                notes[number - start] += "."
        made = whole.set_column(3, "note", pa.array(notes)).take([*reversed(kept), *twice])
        pq.write_table(made, folder / f"{at}.parquet")
    return {"missing": set(lost), "duplicate": set(doubled), "changed": set(changed)}


def _best(action: Callable[[], object]) -> tuple[float, list[float]]:
    taken = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        action()
        taken.append(time.monotonic() - began)
    return min(taken), taken


def _of_folders(spark: SparkSession, folder: Path, spoilt: dict[str, set[int]]) -> Iterator[str]:
    left, right = str(folder / "left"), str(folder / "right")

    def ours() -> None:
        pair = audit_folders(lambda: spark, left, right, ["id"])
        found: dict[str, set[int]] = {}
        for item in pair.items:
            found.setdefault(item.verdict.value, set()).add(int(item.key or 0))
        if found != spoilt:
            raise SystemExit(f"the audit found {found}")

    def digests() -> None:
        if audit_folders(lambda: spark, left, left, ["id"], level=1).verdict != "clean":
            raise SystemExit("equal folders are not equal")

    began = time.monotonic()
    ours()
    yield f"{ROWS:,} against {ROWS:,} rows of Parquet, row by row, cold: {time.monotonic() - began:.2f} s"
    own, taken = _best(ours)
    yield f"row by row, warm: {own:.2f} s (all: {', '.join(f'{one:.2f}' for one in taken)}); {LOST}/{DOUBLED}/{CHANGED} found"
    first, taken = _best(digests)
    yield f"bar: the first level alone, warm, within 2 s; got {first:.2f} (all: {', '.join(f'{one:.2f}' for one in taken)})"
    seconds = _reladiff(left, right, spoilt)
    yield f"reladiff over DuckDB, threaded, bisection factor 256: {seconds:.1f} s"
    yield f"bar: at least 3 times as fast as reladiff; got {seconds / own:.1f}"
    seconds = _datacompy(spark, left, right)
    yield f"datacompy on the same session, its report included: {seconds:.1f} s"
    yield f"bar: at least 20 times as fast as datacompy; got {seconds / own:.0f}"


def _reladiff(left: str, right: str, spoilt: dict[str, set[int]]) -> float:
    """The better of two runs. The files are loaded into DuckDB before the clock starts: it compares tables of databases."""
    import duckdb
    from reladiff import Algorithm, connect_to_table, diff_tables

    with tempfile.TemporaryDirectory() as name:
        path = f"{name}/both.db"
        with duckdb.connect(path) as database:
            for table, files in (("a", left), ("b", right)):
                database.execute(f"CREATE TABLE {table} AS SELECT * FROM '{files}/*.parquet'")  # noqa: S608
        taken = []
        for _ in range(2):
            tables = [
                connect_to_table(
                    {"driver": "duckdb", "filepath": path}, name, "id", extra_columns=("name", "amount", "note")
                )
                for name in ("a", "b")
            ]
            began = time.monotonic()
            keys = {
                int(row[0]) for _sign, row in diff_tables(*tables, algorithm=Algorithm.HASHDIFF, bisection_factor=256)
            }
            taken.append(time.monotonic() - began)
            if keys != set().union(*spoilt.values()):
                raise SystemExit(f"reladiff found {len(keys)} keys")
        return min(taken)


def _datacompy(spark: SparkSession, left: str, right: str) -> float:
    """One run, of minutes, in a session that has run for a while, with the planted counts checked."""
    from datacompy.spark import SparkSQLCompare

    began = time.monotonic()
    with redirect_stdout(StringIO()):
        found = SparkSQLCompare(
            spark,
            spark.read.parquet(left),
            spark.read.parquet(right),
            join_columns="id",
            df1_name="a",
            df2_name="b",
        )
        found.report()
    lost = found.df1_unq_rows.count()
    taken = time.monotonic() - began
    if lost != LOST:
        raise SystemExit(f"datacompy found {lost} lost rows")
    return taken


# Memory


class _Peak:
    """The most memory that Python's processes and the JVM have used together beyond what they had at first."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.python = self.jvm = 0

    def __enter__(self) -> "_Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._done.wait(0.05):
            sizes = {"python": own.memory_info().rss, "java": 0}
            for child in own.children(recursive=True):
                with suppress(psutil.Error):
                    kind = "java" if "java" in child.name() else "python"
                    sizes[kind] += child.memory_info().rss
            self.python, self.jvm = max(self.python, sizes["python"]), max(self.jvm, sizes["java"])


def _of_memory(spark: SparkSession, folder: Path) -> Iterator[str]:
    peaks = []
    for rows in (ROWS // 4, ROWS * 5):
        place = folder / f"memory-{rows}"
        writer = get_context("spawn").Process(target=_write, args=(place, rows))  # this process keeps what it once had
        writer.start()
        writer.join()
        with _Peak() as peak:
            audit_folders(lambda: spark, str(place), str(place), ["id"])
        peaks.append(peak)
        yield f"{rows:,} rows: Python's processes {peak.python >> 20} MiB, the JVM {peak.jvm >> 20} MiB at most"
    ratio = peaks[1].python / peaks[0].python
    yield f"bar: memory flat; {ROWS * 5:,} rows take {ratio:.2f} of the Python memory of {ROWS // 4:,}"


# A table against its topic


def _of_table() -> Iterator[str]:
    with bench_lab() as (lab, folder, of_lab):
        ledger_url = f"sqlite:///{folder}/ledger.db"
        settings = {**of_lab.settings, "ledger": Setting(ledger_url, "here")}
        context = Context(of_lab.name, settings)
        lab.psql("CREATE TABLE audited (id bigint, name text, amount int, note text)")
        lab.psql(
            "INSERT INTO audited SELECT i, 'customer ' || i % 1000, i % 77, 'a text of some length, as in real life'"  # noqa: S608
            f" FROM generate_series(1, {TABLE_ROWS}) i"
        )
        lab.psql("ALTER TABLE audited ADD PRIMARY KEY (id)")
        lab.psql("VACUUM ANALYZE audited")
        make_topic(lab, "audited", PARTITIONS)
        spec = ConnectorSpec("bench-audited", _source(lab.jdbc_url), Engine.SPARK)
        file = folder / "source.json"
        file.write_text(json.dumps({"name": spec.name, "config": dict(spec.config)}))
        with open_ledger(ledger_url, 30) as ledger, spark_session(SparkOptions("local[2]")) as spark:
            runner = Runner(lab, context, spark, ledger)
            if runner.run([spec]) != TABLE_ROWS:
                raise SystemExit("the table was not read")
            options = AuditOptions(str(file), level=1)

            def audited() -> None:
                found = run_audit(context, [], options, spark=spark)
                if found.exit_code or found.pairs[0].target_rows != TABLE_ROWS:
                    raise SystemExit(str(found.pairs))

            def plain() -> None:
                lab.psql("COPY audited TO PROGRAM 'cat > /dev/null'")
                reader = spark.read.format("kafka").option("kafka.bootstrap.servers", lab.bootstrap_servers)
                topic = reader.option("subscribe", "audited").option("kafka.isolation.level", "read_committed").load()
                if topic.selectExpr("sum(length(value))", "count(*)").collect()[0][1] != TABLE_ROWS:
                    raise SystemExit("the topic was not read")

            audited()
            plain()
            own, read = _best(audited)[0], _best(plain)[0]
        yield f"PostgreSQL table against its topic, {TABLE_ROWS:,} rows, first level, warm: {own:.2f} s"
        yield f"COPY of the table to nowhere, then Spark's read of the topic: {read:.2f} s"
        yield f"bar: within 1.5 times the plain read of both; got {own / read:.2f}"


def _source(url: str) -> dict[str, str]:
    return {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connection.url": url,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "audited",
        "topic.prefix": "",
    }
