"""Records -> Arrow columns, for Parquet and for databases, by the schema that they carry or by one that is given.

Arrow's JSON reader reads a whole batch under an explicit schema. Where it stumbles, or cannot know (a map, a float too long), the
batch is halved until the rest is small enough to be read one by one, which finds exactly the records that do not fit.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.records.arrowtypes import arrow_schema
from playhead.pipeline.records.batch import Bad
from playhead.pipeline.records.decode.exact import Unfit, check_defaults
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.decode.payloads import NONE, Payloads, read_payloads, read_utf8
from playhead.pipeline.records.decode.reading import JsonReading
from playhead.pipeline.records.encode.options import STRING
from playhead.pipeline.records.schema import Schema


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """Neighbouring records of one schema. `rows`: where each row of `columns` stands in the batch, ascending (int64)."""

    rows: np.ndarray
    columns: pa.RecordBatch
    schema: Schema


@dataclass(frozen=True, slots=True)
class Converted:
    """`parts` in the order of their rows: a new part begins where the schema changes. `tombstones`: bool, one a row."""

    parts: Sequence[ColumnPart]
    tombstones: np.ndarray
    bad: Sequence[Bad]


@dataclass(frozen=True, slots=True)
class Columns:
    """`given`: the schema of values that carry none (given by the user, or inferred once and kept).

    `single` names the only column of values that are no struct; without it such values are bad. `takes_empty`: so are structs
    without fields, unless this is set; a value that is one is such a single column.
    """

    converter: Converter
    given: Schema | None = None
    column: str = VALUE
    single: str = ""
    takes_empty: bool = False

    def convert(self, batch: pa.RecordBatch) -> Converted:
        values = batch.column(self.column)
        if self.converter.name in (STRING, BYTES):
            return self._convert_plain(values)
        return self.convert_payloads(read_payloads(values, self.converter))

    def convert_payloads(self, payloads: Payloads) -> Converted:
        parts, bad = [], list(payloads.bad)
        for rows, own in _runs(payloads):
            texts = payloads.texts if len(rows) == len(payloads.texts) else payloads.texts.take(pa.array(rows))
            schema = own or self.stated()
            reason = self.refusal(schema)
            if schema is None or reason:
                bad += [Bad(int(row), reason) for row in rows]
                continue
            columns, unfit = self.read(texts, schema)
            bad += [Bad(int(rows[one.row]), one.reason) for one in unfit]
            if columns.num_rows:
                parts.append(ColumnPart(np.delete(rows, [one.row for one in unfit]), columns, schema))
        return Converted(parts, payloads.tombstones, sorted(bad))

    def stated(self) -> Schema | None:
        """The schema of payloads that carry none."""
        return Schema.from_json(self.converter.schema_text) if self.converter.schema_text else self.given

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

    def read(self, texts: pa.Array, schema: Schema) -> tuple[pa.RecordBatch, list[Bad]]:
        """Bad rows are left out of the columns."""
        if not schema.fields:
            start, end = f"{{{json.dumps(self.single)}:".encode(), b"}"
            binary = [pa.scalar(part, pa.binary()) for part in (start, end, b"")]
            texts = pc.binary_join_element_wise(binary[0], texts, binary[1], binary[2])
            schema = Schema("struct", fields=((self.single, schema),))
            return JsonReading(schema, self.converter.null_to_default).read(texts)
        return JsonReading(schema, self.converter.null_to_default).read(texts)

    def _convert_plain(self, values: pa.Array) -> Converted:
        """Strings and bytes, which StringConverter and ByteArrayConverter read."""
        schema = Schema("bytes" if self.converter.name == BYTES else "string", optional=True)
        tombstones = values.is_null().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(~tombstones)
        if reason := self.refusal(schema):
            return Converted([], tombstones, [Bad(int(row), reason) for row in rows])
        present = values.drop_null()
        bad: list[Bad] = []
        if self.converter.name == STRING:
            present, faults = read_utf8(present)
            bad = [Bad(int(rows[one.row]), one.reason) for one in faults]
            rows, present = np.delete(rows, [one.row for one in faults]), present.drop_null()
        columns = pa.RecordBatch.from_arrays([present], schema=arrow_schema(schema, self.single))
        return Converted([ColumnPart(rows, columns, schema)] if len(rows) else [], tombstones, bad)


def _runs(payloads: Payloads) -> Iterator[tuple[np.ndarray, Schema | None]]:
    """The rows that have a payload, cut where the schema changes."""
    rows = np.flatnonzero(payloads.which != NONE)
    which = payloads.which[rows]
    for run in np.split(rows, np.flatnonzero(np.diff(which)) + 1):
        if len(run):
            yield run, payloads.schemas[payloads.which[run[0]]]
