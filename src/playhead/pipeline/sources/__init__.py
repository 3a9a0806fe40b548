"""Where rows come from. A source connector reads one or many streams: tables, a query, a file; each has a position of its own.

A step of a stream is planned before anything is read: chunks that one task each reads in order, and the horizon that none of
them passes. What a chunk covers is fixed by its plan; where it ends is told by the rows that were really there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from playhead.model import Map

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


class Step(Protocol):
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

    def plan(self, position: Map | None, slots: int, rows_per_chunk: int) -> Step | None:
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
