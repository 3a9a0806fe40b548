"""A batch of records between a converter and the other end of a pipeline: Connect's schemas over Arrow columns.

All records of a batch have one topic, and their keys and their values each have one schema, or none. `Typed` holds what has a
schema. `Untyped` holds what has none: the maps that JsonConverter reads without schemas, keys that are missing, tombstones.

Records that do not fit are `Bad`, with one sentence that says why. Nothing is nulled, cut or rounded in silence, and what becomes
of a record never depends on its neighbours or on the size of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.schema import Schema

# Where a record fails: the names of Connect's stages.
KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER, TRANSFORMATION, TASK_PUT = (
    "KEY_CONVERTER",
    "VALUE_CONVERTER",
    "HEADER_CONVERTER",
    "TRANSFORMATION",
    "TASK_PUT",
)


class Bad(NamedTuple):
    """`row` counts from 0 in the batch. `alias`: of the transform that failed."""

    row: int
    reason: str
    stage: str = VALUE_CONVERTER
    alias: str = ""


def at_rows(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The entries at these places, ascending: all of them without a copy."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))


class Unfit(Exception):
    """Of one value, with one sentence that says why: its record is Bad."""


@dataclass(frozen=True, slots=True)
class Typed:
    """`column` is of `arrow_type(schema)`; a null in it is a null of an optional schema."""

    schema: Schema
    column: pa.Array

    def __len__(self) -> int:
        return len(self.column)

    def nulls(self) -> np.ndarray:
        found: np.ndarray = self.column.is_null().to_numpy(zero_copy_only=False)
        return found

    def take(self, rows: np.ndarray) -> "Typed":
        return Typed(self.schema, self.column.take(pa.array(rows)))


class Moment(NamedTuple):
    """A `java.util.Date`, which a transform may give a record without a schema. JsonConverter cannot write one."""

    millis: int


@dataclass(frozen=True, slots=True)
class Untyped:
    """Values as Connect has them without a schema: None, bool, int (64 bits), float, str, bytes, lists and dicts of these. What a
    transform gave another class of Java is a `Moment`, or a numpy int8, int16, int32 or float32. `Uniform`: as columns."""

    values: Sequence[object]

    def __len__(self) -> int:
        return len(self.values)

    def nulls(self) -> np.ndarray:
        return np.array([value is None for value in self.values], bool)

    def take(self, rows: np.ndarray) -> "Untyped":
        return Untyped([self.values[row] for row in rows])


Values = Typed | Untyped


class Header(NamedTuple):
    """`schema` None: a value without one, as in Untyped. Under a schema: ints for dates and times, Decimals, dicts for structs,
    lists, and lists of pairs for maps."""

    name: str
    schema: Schema | None
    value: object


Headers = tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """`rows`: where each record stands in the batch that it came from, ascending (int64). `timestamps`: int64, milliseconds; null
    for a record of a source, which has none before it is produced. `partition` and `offsets` are those of records of a sink.
    `headers` None: no record has any."""

    rows: np.ndarray
    topic: str
    key: Values
    value: Values
    timestamps: pa.Array
    partition: int | None = None
    offsets: np.ndarray | None = None
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: np.ndarray) -> "Batch":
        """The records at these places, ascending."""
        if len(rows) == len(self):
            return self
        return replace(
            self,
            rows=self.rows[rows],
            key=self.key.take(rows),
            value=self.value.take(rows),
            timestamps=self.timestamps.take(pa.array(rows)),
            offsets=None if self.offsets is None else self.offsets[rows],
            headers=None if self.headers is None else [self.headers[row] for row in rows],
        )
