"""Tables in a real PostgreSQL or SQLite, and what a JDBC source reads from them."""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from playhead.lab import Lab
from playhead.model import Map
from playhead.pipeline.ingest.encoding import Records
from playhead.pipeline.ingest.jdbc.options import parse_options
from playhead.pipeline.ingest.jdbc.source import JdbcSource
from playhead.pipeline.ingest.jdbc.stream import JdbcStep, JdbcStream, StreamOptions
from playhead.pipeline.ingest.source import Last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Config = Mapping[str, str]
BULK = {"mode": "bulk"}
BY_ID = {"mode": "incrementing", "incrementing.column.name": "id"}
BY_TIME = {"mode": "timestamp", "timestamp.column.name": "ts"}
BY_BOTH = {"mode": "timestamp+incrementing", "incrementing.column.name": "id", "timestamp.column.name": "ts"}
ORDERS = "CREATE TABLE orders (id bigserial PRIMARY KEY, name text, ts timestamptz NOT NULL DEFAULT now())"
PLAIN = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "topic.prefix": "t_",
}


@dataclass
class Shop:
    """A PostgreSQL of the lab with a Spark session that reads it."""

    lab: Lab
    spark: "SparkSession"
    database: str = "lab"
    sources: list[JdbcSource] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.lab.postgres_url.rpartition('/')[0]}/{self.database}"

    @property
    def jdbc_url(self) -> str:
        return "jdbc:" + self.url.replace("playhead@", "")

    def sql(self, *statements: str) -> str:
        return [self.lab.psql(statement, self.database) for statement in statements][-1]

    def source(self, mode: Config, reading: StreamOptions | None = None, **more: str) -> JdbcSource:
        """`more`: options with `__` for each dot."""
        return self._opened({"connection.url": self.jdbc_url, "connection.user": "playhead", **mode}, more, reading)

    def stream(self, table: str, mode: Config, reading: StreamOptions | None = None, **more: str) -> JdbcStream:
        (stream,) = self.source({**mode, "table.whitelist": table}, reading, **more).streams()
        return stream

    def query(self, text: str, mode: Config, **more: str) -> JdbcStream:
        (stream,) = self.source({**mode, "query": text, "topic.prefix": "q"}, None, **more).streams()
        return stream

    def sqlite(self, path: Path, mode: Config, **more: str) -> JdbcStream:
        (stream,) = self._opened({"connection.url": f"jdbc:sqlite:{path}", **mode}, more, None).streams()
        return stream

    def _opened(self, base: Config, more: Config, reading: StreamOptions | None) -> JdbcSource:
        named = {name.replace("__", "."): value for name, value in more.items()}
        options = parse_options({**PLAIN, **base, **named}, {})
        source = JdbcSource(self.spark, options, reading or StreamOptions(horizon_seconds=0.3))
        self.sources.append(source)
        return source

    def close(self) -> None:
        for source in self.sources:
            source.close()

    @contextmanager
    def session(self) -> Iterator["psycopg.Connection[Any]"]:
        """A transaction of another client, open until the caller ends it."""
        with psycopg.connect(self.url, application_name="till") as connection:
            yield connection

    def read(self, step: JdbcStep) -> list[list[dict[str, Any]]]:
        """The values of each chunk, in the order in which they come, with their cursor beside them."""
        frame, records = step.read(self.spark), step.records
        assert frame.rdd.getNumPartitions() == len(step.chunks)
        chunks = [self._chunk(frame, records, number) for number in range(len(step.chunks))]
        step.close()
        return chunks

    def _chunk(self, frame: "DataFrame", records: Records, number: int) -> list[dict[str, Any]]:
        from pyspark.sql import functions as F  # noqa: N812

        batches = iter(frame.where(F.spark_partition_id() == number).toArrow().to_batches())
        rows = []
        for raw in batches if records.read is None else records.read.chunk(number):
            if not raw.num_rows:
                continue
            made = records.encode(raw)
            assert made.keys is None and made.last == records.encode.last(raw, raw.num_rows - 1)
            for at, value in enumerate(made.values.to_pylist()):
                cursor = records.encode.last(raw, at)
                rows.append({**json.loads(value or b""), "_id": cursor.id, "_time": cursor.time_micros})
        return rows

    def drain(
        self, stream: JdbcStream, slots: int = 2, rows: int = 10, position: Map | None = None, most: int = 100
    ) -> "Drained":
        """Steps until nothing is new, as a run does them; `most` of them at most."""
        drained = Drained(position)
        for _ in range(most):
            step = stream.plan(drained.position, slots, rows)
            if step is None or not step.chunks:
                drained.horizon = "" if step is None else step.horizon
                return drained
            chunks = self.read(step)
            drained.chunks.extend(chunks)
            drained.steps += 1
            rows_read = [row for chunk in chunks for row in chunk]
            if not stream.has_position:
                return drained
            last = rows_read[-1]
            drained.position = stream.position_of(Last(last["_id"], last["_time"]))
        assert most < 100, "does not come to an end"
        return drained


@dataclass
class Drained:
    position: Map | None
    chunks: list[list[dict[str, Any]]] = field(default_factory=list)
    steps: int = 0
    horizon: str = ""

    @property
    def ids(self) -> list[int]:
        return [row["id"] for chunk in self.chunks for row in chunk]


@pytest.fixture(scope="module")
def database(lab: Lab) -> str:
    """A database of the module's own, in the shared PostgreSQL."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    lab.psql(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def shop(lab: Lab, database: str, spark: "SparkSession") -> Iterator[Shop]:
    shop = Shop(lab, spark, database)
    shop.sql("DROP SCHEMA IF EXISTS public CASCADE; DROP SCHEMA IF EXISTS sales, archive CASCADE; CREATE SCHEMA public")
    yield shop
    shop.close()


def filled(shop: Shop, rows: int = 50) -> None:
    shop.sql(ORDERS, f"INSERT INTO orders (name) SELECT 'n' || g FROM generate_series(1, {rows}) g")
