"""A planned step of a JDBC stream: its chunks as conditions, read by Spark with one connection and one partition each."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType

from playhead.pipeline.sources import CURSOR_ID, CURSOR_TIME, Chunk
from playhead.pipeline.sources.jdbc.database import APPLICATION, Database
from playhead.pipeline.sources.jdbc.flavour import ID, INSTANT, Sqlite
from playhead.pipeline.sources.jdbc.view import View

FETCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of the database that all readers of a step share, kept alive by a connection of its own."""

    name: str
    holder: Database

    @classmethod
    def take(cls, database: Database) -> "Snapshot":
        holder = database.another()
        return cls(holder.hold_snapshot(), holder)


@dataclass(frozen=True, slots=True)
class JdbcStep:
    """No chunks: the horizon holds everything back; `horizon` says whom it waits for."""

    view: View
    conditions: Sequence[str]
    horizon: str
    reaches_end: bool
    fetch_rows: int = FETCH_ROWS
    snapshot: Snapshot | None = None

    @property
    def chunks(self) -> Sequence[Chunk]:
        return [Chunk(number, self.view.shown(condition)) for number, condition in enumerate(self.conditions)]

    def read(self, spark: SparkSession) -> DataFrame:
        """The order of a chunk is part of its SQL: Spark puts a predicate behind WHERE as it is, and may add none of its own."""
        database = self.view.database
        with database.told(f"reading {self.view.relation.shown}"):
            frame = spark.read.jdbc(
                database.reader_url,
                self.view.rows,
                predicates=[self.view.ending(condition) for condition in self.conditions],
                properties={**self._reading(), **database.reader_properties()},
            )
        return self._as_records(frame)

    def close(self) -> None:
        if self.snapshot is not None:
            self.snapshot.holder.close()

    def _reading(self) -> dict[str, str]:
        # Without a custom type the reader would take an INTEGER of SQLite for 32 bits, and a numeric id for a decimal.
        own = [f"{ID} BIGINT"] * (self.view.cursor.id is not None)
        own += [f"{INSTANT} BIGINT"] * (bool(self.view.cursor.times) and isinstance(self.view.flavour, Sqlite))
        properties = {"fetchsize": str(self.fetch_rows), "pushDownPredicate": "false"}
        if own:
            properties["customSchema"] = ", ".join(own)
        if self.view.database.is_postgres_url:
            begin = f"SET application_name = '{APPLICATION}'"
            if self.snapshot is not None:
                begin += f"; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{self.snapshot.name}'"
            properties["sessionInitStatement"] = begin
        return properties

    def _as_records(self, frame: DataFrame) -> DataFrame:
        cursor, nothing = self.view.cursor, F.lit(None).cast(LongType())
        number = F.col(ID) if cursor.id is not None else nothing
        instant = F.col(INSTANT) if isinstance(self.view.flavour, Sqlite) else F.unix_micros(F.col(INSTANT))
        return self.view.writings.of(
            frame, number.alias(CURSOR_ID), (instant if cursor.times else nothing).alias(CURSOR_TIME)
        )
