"""Keys or values as bytes -> parts of one schema each, over Arrow columns; and the columns of Parquet files and tables.

Values under a schema are read by `reading`: those that are written alike by columns (`pieces`), the others one by one (`exact`),
which finds exactly the records that do not fit. What has no schema is read by columns where many have one shape (`shapes`).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.records.arrowtypes import arrow_schema, arrow_type
from playhead.pipeline.records.batch import VALUE_CONVERTER, Bad, Typed, Unfit, Untyped, Values, at_rows
from playhead.pipeline.records.decode.exact import check_defaults, read_plain
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.decode.payloads import NONE, Payloads, read_payloads, read_utf8
from playhead.pipeline.records.decode.reading import JsonReading
from playhead.pipeline.records.decode.shapes import read_shapes
from playhead.pipeline.records.encode.options import STRING
from playhead.pipeline.records.schema import Schema

OPTIONAL_STRING, OPTIONAL_BYTES = Schema("string", optional=True), Schema("bytes", optional=True)


class Part(NamedTuple):
    """Keys or values of one schema, or without one: then of one shape, or all others. `rows`: where each stands in the batch,
    ascending (int64)."""

    rows: np.ndarray
    values: Values


class Parts(NamedTuple):
    """No row is in two parts, and the rows of `bad` are in none."""

    parts: list[Part]
    bad: list[Bad]


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """Records of one schema as columns. `rows`: where each row of `columns` stands in the batch, ascending (int64)."""

    rows: np.ndarray
    columns: pa.RecordBatch
    schema: Schema


@dataclass(frozen=True, slots=True)
class Converted:
    """`tombstones`: bool, one a row."""

    parts: Sequence[ColumnPart]
    tombstones: np.ndarray
    bad: Sequence[Bad]


@dataclass(frozen=True, slots=True)
class Columns:
    """`given`: the schema of values that carry none (given by the user, or inferred once and kept).

    `single` names the only column of values that are no struct; without it such values are bad. `takes_empty`: so are structs
    without fields, unless this is set; a value that is one is such a single column. `takes_bare`: so are values without a schema.
    """

    converter: Converter
    given: Schema | None = None
    column: str = VALUE
    single: str = ""
    takes_empty: bool = False
    takes_bare: bool = False

    def convert(self, batch: pa.RecordBatch) -> Converted:
        """Parts in the order of their rows: a new one begins where the schema changes."""
        found = self.read_parts(batch.column(self.column))
        made = self.to_columns(found.parts, batch.num_rows)
        parts = [
            ColumnPart(whole.rows[start:stop], whole.columns.slice(start, stop - start), whole.schema)
            for at, start, stop in runs_of([part.rows for part in made.parts])
            for whole in [made.parts[at]]
        ]
        return Converted(parts, made.tombstones, sorted([*found.bad, *made.bad]))

    def to_columns(self, parts: Iterable[Part], count: int, stage: str = VALUE_CONVERTER) -> Converted:
        """One part for each of these. `stage`: where values are rejected that have no columns."""
        made: list[ColumnPart] = []
        bad: list[Bad] = []
        tombstones = np.zeros(count, bool)
        for rows, values in parts:
            is_null = values.nulls()
            tombstones[rows[is_null]] = True
            present = np.flatnonzero(~is_null)
            schema = values.schema if isinstance(values, Typed) else None
            if len(present) and (reason := self.refusal(schema)):
                bad += [Bad(int(row), reason, stage) for row in rows[present]]
            elif len(present) and isinstance(values, Typed):
                made.append(
                    self._as_columns(rows[present], values if len(present) == len(rows) else values.take(present))
                )
        return Converted(made, tombstones, sorted(bad))

    def _as_columns(self, rows: np.ndarray, values: Typed) -> ColumnPart:
        schema, column = values.schema, values.column
        arrays = column.flatten() if schema.fields else [column]
        return ColumnPart(rows, pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema, self.single)), schema)

    def refusal(self, schema: Schema | None) -> str:
        """Why values of this schema have no columns here; empty if they have."""
        if schema is None:
            return "it has no schema, and none is given"
        if not schema.is_struct and not self.single:
            return f"its schema is {schema.type}, not a struct, so that it has no columns"
        if schema.has_empty_struct and not self.takes_empty:
            return "its schema has a struct without fields, of which no column can be created"
        try:
            check_defaults(schema)
        except Unfit as error:
            return f"its schema cannot be used: {error}"
        return ""

    def read_parts(self, column: pa.Array) -> Parts:
        """`column` is binary. One part a schema or shape, wherever its records stand."""
        if self.converter.name == BYTES:
            return Parts([Part(np.arange(len(column)), Typed(OPTIONAL_BYTES, column.cast(pa.binary())))], [])
        if self.converter.name == STRING:
            return _read_strings(column)
        payloads = read_payloads(column, self.converter)
        bad = list(payloads.bad)
        parts: list[Part] = []
        typed: dict[Schema, list[Part]] = {}
        bare: dict[int, object] = dict.fromkeys(np.flatnonzero(payloads.tombstones).tolist())
        for row, at in payloads.nulls.items():
            bare.pop(row)
            schema = payloads.schemas[at]
            assert schema is not None  # noqa: S101  of a null under a schema
            typed.setdefault(schema, []).append(Part(np.array([row]), Typed(schema, pa.nulls(1, arrow_type(schema)))))
        stated = Schema.from_json(self.converter.schema_text) if self.converter.schema_text else self.given
        for at, own in enumerate(payloads.schemas):
            rows = np.flatnonzero(payloads.which == at)
            schema = own or stated
            if schema is None and self.takes_bare:
                texts = at_rows(payloads.texts, rows)
                shaped = [Part(rows[places], values) for places, values in read_shapes(texts)]
                parts += shaped
                is_left = payloads.which == at
                for part in shaped:
                    is_left[part.rows] = False
                bad += _read_bare(payloads, np.flatnonzero(is_left), bare)
            elif reason := self.refusal(schema):
                bad += [Bad(int(row), reason) for row in rows]
            elif len(rows) and schema is not None:
                part, unfit = self._read_typed(payloads, rows, schema)
                bad += unfit
                typed.setdefault(schema, []).append(part)
        parts += [_together(schema, found) for schema, found in typed.items()]
        if bare:
            parts.append(Part(np.array(sorted(bare)), Untyped([bare[row] for row in sorted(bare)])))
        return Parts([part for part in parts if len(part.rows)], sorted(bad))

    def _read_typed(self, payloads: Payloads, rows: np.ndarray, schema: Schema) -> tuple[Part, list[Bad]]:
        texts = at_rows(payloads.texts, rows)
        found, unfit = self.read(texts, schema)
        values = found.column(0)
        if schema.fields:
            values = pa.StructArray.from_arrays(found.columns, fields=list(arrow_type(schema)))
        kept = np.delete(rows, [one.row for one in unfit])
        return Part(kept, Typed(schema, values)), [Bad(int(rows[one.row]), one.reason) for one in unfit]

    def read(self, texts: pa.Array, schema: Schema) -> tuple[pa.RecordBatch, list[Bad]]:
        """Bad rows are left out of the columns."""
        if not schema.fields:
            start, end = f"{{{json.dumps(self.single)}:".encode(), b"}"
            binary = [pa.scalar(part, pa.binary()) for part in (start, end, b"")]
            texts = pc.binary_join_element_wise(binary[0], texts, binary[1], binary[2])
            schema = Schema("struct", fields=((self.single, schema),))
        return JsonReading(schema, self.converter.null_to_default).read(texts)


def _read_strings(column: pa.Array) -> Parts:
    """Null where a value is null: those that are not UTF-8 are bad."""
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    strings, faults = read_utf8(column.drop_null().cast(pa.binary()))
    places = np.full(len(column), NONE)
    places[present] = np.arange(len(present))
    bad = [Bad(int(present[one.row]), one.reason) for one in faults]
    rows = np.delete(np.arange(len(column)), [one.row for one in bad])
    if bad or column.null_count:
        strings = strings.take(pa.array(places[rows], mask=places[rows] == NONE))
    return Parts([Part(rows, Typed(OPTIONAL_STRING, strings))] if len(rows) else [], bad)


def _read_bare(payloads: Payloads, rows: np.ndarray, found: dict[int, object]) -> list[Bad]:
    bad = []
    for row in rows.tolist():
        try:
            found[row] = read_plain(payloads.texts[row].as_py())
        except Unfit as error:
            bad.append(Bad(row, str(error)))
    return bad


def _together(schema: Schema, parts: Sequence[Part]) -> Part:
    filled = [part for part in parts if len(part.rows)]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    rows = np.concatenate([part.rows for part in filled])
    order = np.argsort(rows, kind="stable")
    columns = [part.values.column for part in filled if isinstance(part.values, Typed)]
    return Part(rows[order], Typed(schema, pa.concat_arrays(columns).take(pa.array(order))))


def runs_of(groups: Sequence[np.ndarray]) -> Iterator[tuple[int, int, int]]:
    """Of groups of rows, each ascending: the runs in the order of all rows, as the number of a group and a slice of it."""
    rows = np.concatenate([*groups, np.empty(0, np.int64)])
    which = np.repeat(np.arange(len(groups)), [len(group) for group in groups])[np.argsort(rows, kind="stable")]
    begun = [0] * len(groups)
    for run in np.split(which, np.flatnonzero(np.diff(which)) + 1):
        if len(run):
            at, start = int(run[0]), begun[run[0]]
            begun[at] = start + len(run)
            yield at, start, begun[at]
