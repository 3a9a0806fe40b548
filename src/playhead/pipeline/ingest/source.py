"""The interface of a source. A source connector reads one or more streams (tables, a query, a file), each with its own position.

A step of a stream is planned before anything is read. A plan has chunks, each read in order by one task, and a horizon that no
chunk passes. The plan sets the bounds of a chunk; the last row that was read sets its position.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from playhead.model import Map
from playhead.pipeline.step import Left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from playhead.pipeline.ingest.encoding import Records

# The columns of a batch of rows behind those of the record: the cursor of the row if the mode has one, which is the incrementing
# column as a whole number, and the timestamp as an instant or as microseconds since the epoch.
CURSOR_ID, CURSOR_TIME = "playhead_id", "playhead_instant"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that one task reads and commits as one transaction. `where`: which, as the source names them; for the ledger."""

    number: int
    where: str


@dataclass(frozen=True, slots=True)
class Last:
    """The cursor of the last row of a chunk, if the mode has one."""

    id: int | None = None
    time_micros: int | None = None


class PlannedStep(Protocol):
    """A planned step. Close it after its chunks were read: until then it may hold a snapshot open."""

    @property
    def chunks(self) -> Sequence[Chunk]: ...

    @property
    def horizon(self) -> str:
        """How far this step may read and why, as text."""
        ...

    @property
    def left(self) -> Left | None:
        """How much there was to read when this step was planned, the step included. None: it was not counted."""
        ...

    @property
    def reaches_end(self) -> bool:
        """True: there were no rows after this step when it was planned."""
        ...

    def read(self, spark: "SparkSession") -> "DataFrame":
        """One partition per chunk, in their order: the rows sorted by cursor, or its number if the task reads the rows."""
        ...

    @property
    def records(self) -> "Records":
        """What the tasks make of the frame."""
        ...

    def close(self) -> None: ...


class Stream(Protocol):
    """One table, query or file of a connector."""

    @property
    def name(self) -> str:
        """The name shown to users: `public.orders`, `query`, a file's path."""
        ...

    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> Sequence[Map]:
        """Connect's partition maps under which the position may be stored. A new position is stored under the first."""
        ...

    @property
    def is_key_known(self) -> bool:
        """Whether the connector is known to read its position under the first of `partitions`."""
        ...

    @property
    def has_position(self) -> bool:
        """False for bulk: everything is read each time, and a tombstone is written instead of a position."""
        ...

    @property
    def is_read_by_tasks(self) -> bool:
        """Whether tasks read the rows, by the numbers of their chunks. Otherwise Spark's reader gives each task one chunk."""
        ...

    def plan(self, position: Map | None, most: int, rows_per_chunk: int) -> PlannedStep | None:
        """The next step from `position`, at most `most` chunks of about `rows_per_chunk` rows. None: nothing new."""
        ...

    def find_ahead(self, value: bytes, position: Map) -> str | None:
        """Text that shows that a record of the topic was read after `position`. None: it was not, or this is unknown."""
        ...

    @property
    def position_of(self) -> Callable[[Last], Map]:
        """Connect's offset map for the position after a row. It is sent to the executors and must be picklable."""
        ...


class Source(Protocol):
    """A connector's source: its streams, listed again at the start of each round."""

    def streams(self) -> Sequence[Stream]: ...

    def close(self) -> None: ...
