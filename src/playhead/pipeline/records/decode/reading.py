"""JSON objects -> one record batch under a schema of Connect.

Those that are written alike are read by their pieces, as columns under the types that are expected on the wire. The others, and
those whose values are not certainly right, are read one by one, which finds exactly the records that do not fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.arrowtypes import arrow_schema, arrow_type, has_decimals, wire_type
from playhead.pipeline.records.batch import Bad, Unfit, at_rows
from playhead.pipeline.records.decode.exact import Exact
from playhead.pipeline.records.decode.finishing import Finishing
from playhead.pipeline.records.decode.jsontext import settle
from playhead.pipeline.records.decode.pieces import FEWEST, Alike, read_pieces
from playhead.pipeline.records.schema import Schema

_ORDERS = 4  # of members, in one batch


@dataclass(frozen=True, slots=True)
class JsonReading:
    """Under a struct with fields."""

    schema: Schema
    null_to_default: bool = True

    def read(self, texts: pa.Array) -> tuple[pa.RecordBatch, list[Bad]]:
        """`texts` are JSON, each on one line. Bad rows are left out of the batch."""
        found = list(self.read_alike(texts))
        if len(found) == 1 and len(found[0].rows) == len(texts):
            return found[0].columns, []
        left = np.setdiff1d(np.arange(len(texts)), _concatenated([one.rows for one in found]))
        alone, bad = self._read_each(texts, left)
        found.append(alone)
        whole = pa.Table.from_batches([one.columns for one in found], arrow_schema(self.schema))
        order = np.argsort(_concatenated([one.rows for one in found]))
        made = whole.take(pa.array(order)).combine_chunks().to_batches()
        return made[0] if made else alone.columns, bad

    def read_alike(self, texts: pa.Array) -> Iterator[Alike]:
        """In each pass those that are written like the first that is left."""
        left = np.arange(len(texts))
        for _ in range(_ORDERS):
            if len(left) < FEWEST:
                return
            alike = self._read_pieces(at_rows(texts, left))
            if alike is None:
                return
            yield from self._finished(texts, Alike(left[alike.rows], alike.columns))
            left = np.delete(left, alike.rows)

    def _read_pieces(self, texts: pa.Array) -> Alike | None:
        ways = (True, False) if has_decimals(self.schema) else (True,)
        for way in ways:
            kind = wire_type(self.schema, decimals_are_text=way)
            if kind is not None and (alike := read_pieces(texts, kind)):
                return alike
        return None

    def _finished(self, texts: pa.Array, alike: Alike) -> Iterator[Alike]:
        """Without the rows near one that is not certainly right."""
        made: list[Alike] = []

        def fast(start: int, stop: int) -> bool:
            rows = alike.rows[start:stop]
            columns = self._columns(at_rows(texts, rows), alike.columns.slice(start, stop - start))
            if columns is not None:
                made.append(Alike(rows, columns))
            return columns is not None

        settle(len(alike.rows), fast, lambda _: None)
        yield from made

    def _columns(self, texts: pa.Array, read: pa.RecordBatch) -> pa.RecordBatch | None:
        finishing = Finishing(texts, self.null_to_default)
        columns = []
        for column, (_, schema) in zip(read.columns, self.schema.fields, strict=True):
            made = finishing.finish(column, schema)
            if made is None:
                return None
            columns.append(made)
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.schema))

    def _read_each(self, texts: pa.Array, rows: np.ndarray) -> tuple[Alike, list[Bad]]:
        exact, values, bad = Exact(self.null_to_default), list[object](), list[Bad]()
        for row in rows.tolist():
            try:
                values.append(exact.read(texts[row].as_py(), self.schema))
            except Unfit as error:
                bad.append(Bad(row, str(error)))
        columns = pa.array(values, arrow_type(self.schema)).flatten()
        kept = np.setdiff1d(rows, [one.row for one in bad])
        return Alike(kept, pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.schema))), bad


def _concatenated(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *rows])
