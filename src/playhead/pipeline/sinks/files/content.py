"""What the values of a batch become, by the format: lines or columns from the converters, or the bytes as they are.

A piece is neighbouring records of one schema that can be delivered. What cannot is told apart: tombstones, and bad records
with their reasons.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.sinks import VALUE
from playhead.pipeline.sinks.files.formats import Content
from playhead.pipeline.sinks.files.times import Flags
from playhead.pipeline.sinks.files.zones import Numbers
from playhead.pipeline.sinks.values import Bad
from playhead.pipeline.sinks.values.columns import Columns
from playhead.pipeline.sinks.values.fields import read_field
from playhead.pipeline.sinks.values.lines import JsonLines


@dataclass(frozen=True, slots=True)
class Piece:
    """`rows`: where each record stands in its batch, ascending. `field` reads one field of all of them, None if there is none."""

    rows: Numbers
    content: Content
    schema: str
    field: Callable[[str], pa.Array | None]

    def kept(self, keep: Flags) -> "Piece":
        """Only some of them; fields are not asked for any more."""
        return Piece(self.rows[keep], self.content.filter(pa.array(keep)), self.schema, self.field)


@dataclass(frozen=True, slots=True)
class Contents:
    pieces: Sequence[Piece]
    tombstones: Flags
    bad: Sequence[Bad]


class Converting(Protocol):
    """Picklable."""

    def convert(self, batch: pa.RecordBatch) -> Contents: ...


@dataclass(frozen=True, slots=True)
class AsLines:
    lines: JsonLines

    def convert(self, batch: pa.RecordBatch) -> Contents:
        found = self.lines.lines(batch)
        pieces = [
            _of_lines(found.array.slice(part.start, part.stop - part.start), part.start, part.schema)
            for part in found.segments
        ]
        return Contents([piece for piece in pieces if len(piece.rows)], found.tombstones, found.bad)


@dataclass(frozen=True, slots=True)
class AsBytes:
    """ByteArrayConverter and ByteArrayFormat: nothing is looked at."""

    column: str = VALUE

    def convert(self, batch: pa.RecordBatch) -> Contents:
        values = batch.column(self.column)
        piece = _of_lines(values, 0, "")
        return Contents([piece] if len(piece.rows) else [], values.is_null().to_numpy(zero_copy_only=False), ())


@dataclass(frozen=True, slots=True)
class AsColumns:
    columns: Columns

    def convert(self, batch: pa.RecordBatch) -> Contents:
        found = self.columns.convert(batch)
        pieces = [
            Piece(part.rows, part.columns, part.schema.text, partial(field_of, part.columns))
            for part in found.parts
            if len(part.rows)
        ]
        return Contents(pieces, found.tombstones, found.bad)


def _of_lines(array: pa.Array, start: int, schema: str) -> Piece:
    rows = np.arange(start, start + len(array))
    if array.null_count:
        rows = rows[array.is_valid().to_numpy(zero_copy_only=False)]
        array = array.drop_null()
    return Piece(rows, array, schema, lambda path: read_field(array, path))


def field_of(columns: pa.RecordBatch, path: str) -> pa.Array | None:
    """A column by its name, or a field inside of one: `a.b`."""
    first, *rest = path.split(".")
    if first not in columns.schema.names:
        return None
    values = columns.column(first)
    for name in rest:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(name) < 0:
            return None
        values = pc.struct_field(values, name)
    return values
