"""JSON objects -> one record batch under a schema of Connect: whole batches by Arrow's reader, the rest one by one."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.json as paj

from playhead.pipeline.records.arrowtypes import arrow_schema, arrow_type, has_decimals, wire_type
from playhead.pipeline.records.batch import Bad
from playhead.pipeline.records.decode.exact import Exact, Unfit
from playhead.pipeline.records.decode.finishing import Finishing
from playhead.pipeline.records.decode.jsontext import join_lines, settle
from playhead.pipeline.records.schema import Schema


@dataclass(frozen=True, slots=True)
class JsonReading:
    """`schema` is a struct that has fields. JsonConverter writes decimals as base64 or as numbers: both are tried."""

    schema: Schema
    null_to_default: bool = True

    def read(self, texts: pa.Array) -> tuple[pa.RecordBatch, list[Bad]]:
        """Bad rows are left out of the batch."""
        pieces: list[pa.RecordBatch] = []
        pending: list[object] = []
        bad: list[Bad] = []
        exact = Exact(self.null_to_default)

        def fast(start: int, stop: int) -> bool:
            made = self.read_whole(texts.slice(start, stop - start))
            if made is not None:
                self._flush(pending, pieces)
                pieces.append(made)
            return made is not None

        def slow(row: int) -> None:
            try:
                pending.append(exact.read(texts[row].as_py(), self.schema))
            except Unfit as error:
                bad.append(Bad(row, str(error)))

        settle(len(texts), fast, slow)
        self._flush(pending, pieces)
        if len(pieces) == 1:
            return pieces[0], bad
        whole = pa.Table.from_batches(pieces, arrow_schema(self.schema)).combine_chunks()
        return (whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)])[0], bad

    def _flush(self, pending: list[object], pieces: list[pa.RecordBatch]) -> None:
        if pending:
            made = pa.array(pending, arrow_type(self.schema))
            pieces.append(pa.RecordBatch.from_arrays(made.flatten(), schema=arrow_schema(self.schema)))
            pending.clear()

    def read_whole(self, texts: pa.Array) -> pa.RecordBatch | None:
        """None: one of them does not fit, or this is unknown to the reader."""
        made = self._read_wire(texts, decimals_are_text=True)
        if made is None and has_decimals(self.schema):
            made = self._read_wire(texts, decimals_are_text=False)
        return made

    def _read_wire(self, texts: pa.Array, *, decimals_are_text: bool) -> pa.RecordBatch | None:
        kind = wire_type(self.schema, decimals_are_text=decimals_are_text)
        if kind is None:
            return None
        # Arrow takes a string for a decimal number, too, and base64 may look like one: as floats they must be numbers.
        if not decimals_are_text and read_json(texts, floating(kind)) is None:
            return None
        read = read_json(texts, kind)
        if read is None:
            return None
        finishing = Finishing(texts, self.null_to_default)
        columns = []
        for column, (_, schema) in zip(read.columns, self.schema.fields, strict=True):
            made = finishing.finish(column, schema)
            if made is None:
                return None
            columns.append(made)
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.schema))


def floating(kind: pa.DataType) -> pa.DataType:
    """The same with floats for decimals."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, floating(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(floating(kind.value_type))
    return pa.float64() if pa.types.is_decimal(kind) else kind


def read_json(texts: pa.Array, kind: pa.StructType, unexpected: str = "error") -> pa.RecordBatch | None:
    """`texts` are objects of JSON, one a row. None if one is not of that kind."""
    content = join_lines(texts)
    options = paj.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior=unexpected)
    try:
        table = paj.read_json(
            pa.BufferReader(content),
            read_options=paj.ReadOptions(use_threads=False, block_size=content.size + 1),
            parse_options=options,
        )
    except pa.ArrowInvalid:
        return None
    return table.combine_chunks().to_batches()[0] if len(texts) and table.num_rows == len(texts) else None
