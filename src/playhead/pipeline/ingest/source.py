"""What a source is. A source connector reads one or more streams (tables, a query, a file), each with a position of its own.

A step of a stream is planned before anything is read: chunks, each read in order by one task, and the horizon that none of them
passes. The plan fixes what a chunk covers; the last row that was really read fixes where it ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from playhead.model import Map
from playhead.pipeline.records.encode.options import RecordOptions
from playhead.pipeline.records.encode.record import record_hash
from playhead.pipeline.records.encode.writing import Writing, write_all, write_node
from playhead.pipeline.records.transforms.chain import Parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


VALUE, HASH, KEY, CURSOR_ID, CURSOR_TIME = "value", "hash", "key", "cursor_id", "cursor_time"
# A step's frame: the record's value (null for a tombstone), its xxhash64, its key (mostly null), and the cursor of the row as far
# as the mode has one: the incrementing column as bigint, the timestamp as microseconds since the epoch.


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one task reads: `where` is the source's own way to say it, shown in the ledger."""

    number: int
    where: str


@dataclass(frozen=True, slots=True)
class Last:
    """The cursor of the last row of a chunk, as far as the mode has one."""

    id: int | None = None
    time_micros: int | None = None


class PlannedStep(Protocol):
    """A planned piece of work. Close it when its chunks were read: until then it may hold a snapshot open."""

    @property
    def chunks(self) -> Sequence[Chunk]: ...

    @property
    def horizon(self) -> str:
        """How far this step may read and what that rests on, in words."""
        ...

    @property
    def reaches_end(self) -> bool:
        """No rows were seen beyond this step when it was planned."""
        ...

    def read(self, spark: "SparkSession") -> "DataFrame":
        """One partition per chunk, in their order, with the columns named above; rows in cursor order within each."""
        ...

    def close(self) -> None: ...


class Stream(Protocol):
    """One table, query or file of a connector."""

    @property
    def name(self) -> str:
        """As a person calls it: `public.orders`, `query`, a file's path."""
        ...

    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> Sequence[Map]:
        """Connect's partition maps under which the position may be stored; the first is for a position that is not stored yet."""
        ...

    @property
    def is_key_known(self) -> bool:
        """Whether the first of `partitions` is surely the one that the connector looks under."""
        ...

    @property
    def has_position(self) -> bool:
        """False for bulk: read whole each time, and a tombstone is written in place of a position."""
        ...

    def plan(self, position: Map | None, slots: int, rows_per_chunk: int) -> PlannedStep | None:
        """The next step from `position`, at most `slots` chunks of about so many rows. None: nothing new."""
        ...

    def find_ahead(self, value: bytes, position: Map) -> str | None:
        """What shows that a record of the topic was read beyond `position`, in words; None if it was not, or does not tell."""
        ...

    @property
    def position_of(self) -> Callable[[Last], Map]:
        """Connect's offset map for the position right behind a row. It is sent to the executors: it must be picklable."""
        ...


class Source(Protocol):
    """A connector's source: its streams, found anew at the start of each round."""

    def streams(self) -> Sequence[Stream]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Writings:
    value: Writing
    key: Writing | None

    def of(self, frame: DataFrame, *others: Column) -> DataFrame:
        """Value, its hash and the key, then `others`."""
        written = write_all(frame, [self.value, self.key] if self.key else [self.value], *others)
        rest = [name for name in written.columns if name not in (VALUE, KEY)]
        key = F.col(KEY) if self.key else F.lit(None).cast("string").alias(KEY)
        return written.select(VALUE, record_hash(F.col(VALUE)).alias(HASH), key, *rest)


def write_parts(parts: Parts, options: RecordOptions) -> Writings:
    value = write_node(parts.value, options.value, VALUE)
    if parts.key is None or options.key is None:
        return Writings(value, None)
    return Writings(value, write_node(parts.key, options.key, KEY))
