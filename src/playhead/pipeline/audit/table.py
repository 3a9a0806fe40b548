"""The rows of a source's table as a side: read and made into records as a run would, and hashed instead of produced.

All is read from one snapshot where the database has them. Rows after the stored position are not compared: they are late.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from playhead.errors import Refused
from playhead.model import Map
from playhead.pipeline.audit.sides import Hashed, TaskSide
from playhead.pipeline.audit.topic import record_hashes
from playhead.pipeline.digest import HASH_SEED, hashes_of
from playhead.pipeline.ingest.encoding import Encoded, Records
from playhead.pipeline.ingest.jdbc.chunks import Point, after, even_ranges, ids_between, up_to
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.options import BULK, INCREMENTING
from playhead.pipeline.ingest.jdbc.stream import JdbcStep, JdbcStream, SharedSnapshot, columns_shown
from playhead.pipeline.ingest.jdbc.view import SqlView

_AT_ONCE = 500  # keys per question


@dataclass(frozen=True, slots=True)
class RowsAsRecords:
    records: Records

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Hashed]:
        for made in self.records(batches):
            if len(made.values):
                keys = key_hashes(made)
                own = None if made.keys is None else keys.copy
                yield Hashed(record_hashes(keys, made.hashes), _Shown(made), own)


def key_hashes(made: Encoded) -> np.ndarray:
    if made.keys is None:
        return np.full(len(made.values), HASH_SEED, np.int64)
    return hashes_of(made.keys.to_pylist())


@dataclass(frozen=True, slots=True)
class _Shown:
    made: Encoded

    def __call__(self, places: np.ndarray) -> tuple[list[str], list[bytes]]:
        """The place of a row is its key, which is read from its content."""
        return [""] * len(places), [one or b"" for one in self.made.values.take(pa.array(places)).to_pylist()]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """One stream of a JDBC source, up to its position. Close it: it holds a snapshot."""

    stream: JdbcStream
    position: Map
    low: Point | None
    high: Point
    snapshot: SharedSnapshot | None

    @property
    def side(self) -> TaskSide:
        step = self._step
        return TaskSide(f"table {self.stream.name}", step.read, RowsAsRecords(step.records), len(step.conditions))

    @property
    def key_fields(self) -> list[str]:
        """The fields of the record's value that identify the row: the incrementing column. Empty: not known."""
        return key_fields(self.stream)

    @property
    def is_incrementing(self) -> bool:
        return self.stream.options.mode == INCREMENTING

    def is_above(self, key: str) -> bool:
        """Whether the row was read after the position that is compared. Only known for incrementing mode."""
        return self.is_incrementing and key.lstrip("-").isdigit() and int(key) > (self.high.id or 0)

    def is_below(self, key: str) -> bool:
        """Whether the row lies before those that are compared. Only known for incrementing mode."""
        low = self.low.id if self.low is not None else None
        return self.is_incrementing and low is not None and key.lstrip("-").isdigit() and int(key) <= low

    def count_below(self) -> int:
        """Rows before those that are compared, in incrementing mode."""
        if not self.is_incrementing or self.low is None or self.low.id is None:
            return 0
        view = self.stream.view
        return self._ask.whole(f"SELECT count(*) FROM {view.cursors} WHERE {view.id} <= {self.low.id}") or 0  # noqa: S608

    def count_late(self) -> int:
        """Rows that the source has not read yet."""
        view = self.stream.view
        above = f"{view.id} > {self.high.id}" if self.is_incrementing else after(view, self.high)
        return self._ask.whole(f"SELECT count(*) FROM {view.cursors} WHERE {above}") or 0  # noqa: S608

    def find_present(self, keys: Sequence[str]) -> set[str]:
        """Which of these ids the table has, at any position."""
        view = self.stream.view
        numbers = [key for key in keys if key.lstrip("-").isdigit()]
        found: set[str] = set()
        for at in range(0, len(numbers), _AT_ONCE):
            some = ", ".join(str(int(key)) for key in numbers[at : at + _AT_ONCE])
            rows = self._ask.rows(f"SELECT {view.id} FROM {view.cursors} WHERE {view.id} IN ({some})")  # noqa: S608
            found |= {str(row[0]).partition(".")[0] for row in rows}
        return found

    def close(self) -> None:
        if self.snapshot is not None:
            self.snapshot.holder.close()

    @property
    def _ask(self) -> JdbcDatabase:
        return self.snapshot.holder if self.snapshot is not None else self.stream.database

    @property
    def _step(self) -> JdbcStep:
        view = self.stream.view
        return JdbcStep(view, self.stream.encoder, self._conditions(view), "", True, snapshot=self.snapshot)

    def _conditions(self, view: SqlView) -> list[str]:
        if not self.is_incrementing:
            begin = self.stream.first_point if self.low is None else self.low
            return [f"{after(view, begin)} AND {up_to(view, self.high)}"]
        low, high = self.low.id if self.low else -1, self.high.id or 0
        assert low is not None  # noqa: S101  the low point of an incrementing mode is an id
        first = self._ask.whole(f"SELECT min({view.id}) FROM {view.cursors} WHERE {view.id} > {low}")  # noqa: S608
        if first is None or first > high:
            return [ids_between(view, low, high)]
        parts = min(8, max(1, (high - first) // 50_000))
        return [ids_between(view, a, b) for a, b in even_ranges(first, high, parts)]


def key_fields(stream: JdbcStream) -> list[str]:
    """The fields of a record's value that hold the incrementing column. Empty: not known."""
    return _fields(stream, [] if stream.view.cursor.id is None else [stream.view.cursor.id.name])


def order_fields(stream: JdbcStream) -> list[str]:
    """The fields of a record's value by which its source reads in order. Empty: not known."""
    cursor = stream.view.cursor
    names = [column.name for column in cursor.times] + ([] if cursor.id is None else [cursor.id.name])
    found = _fields(stream, names)
    return found if len(found) == len(names) and len(cursor.times) < 2 else []


def _fields(stream: JdbcStream, names: Sequence[str]) -> list[str]:
    shown = columns_shown(stream.encoder, stream.view.record.rows, names)
    return [shown[name] for name in names if name in shown]


def open_table(stream: JdbcStream, position: Map | None, low: Map | None = None) -> SourceTable:
    """`position`: the stored one; rows after it are late. `low`: the rows after it are compared."""
    if stream.options.mode == BULK:
        raise Refused(
            f"{stream.name} is read in bulk mode: its topic has a dump of each round, and no position to compare up to",
            "compare the table with the newest dump by another tool, or use a mode with a position",
        )
    if stream.view.suffix:
        raise Refused(f"{stream.name} has a query.suffix, which may leave out rows", "it cannot be compared")
    if position is None:
        raise Refused(
            f"{stream.name} has no stored position: nothing of it was read yet", "there is nothing to compare"
        )
    if low is None and stream.options.timestamp_initial_ms == -1:
        raise Refused(
            f"{stream.name} has timestamp.initial=-1: it began at the time of its first round, which is not known",
            "which of the older rows it has skipped cannot be compared",
        )
    snapshot = SharedSnapshot.take(stream.database) if stream.database.product == "PostgreSQL" else None
    return SourceTable(
        stream, position, None if low is None else _point(stream, low), _point(stream, position), snapshot
    )


def _point(stream: JdbcStream, position: Map) -> Point:
    found = stream.point_of(position) if stream.options.has_time else None
    number = position.get("incrementing")
    return Point(found.time if found else None, number if isinstance(number, int) else None)
