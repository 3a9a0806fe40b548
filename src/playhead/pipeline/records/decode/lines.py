"""The JSON text of each record, one a line, as the S3 connector's JsonFormat means it: the payload without its schema.

A value is written as it stands in the topic: member order, blanks and digits of numbers are kept. It must be JSON on its own.
With a schema it must fit that, as for Parquet, and one that lacks a member is written as Connect would: see `filling`. A string
is written as a JSON string, bytes as one in base64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.records.batch import Bad, at_rows
from playhead.pipeline.records.decode import Segment
from playhead.pipeline.records.decode.filling import Filling
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.decode.payloads import Payloads, read_payloads
from playhead.pipeline.records.encode.options import JSON
from playhead.pipeline.records.schema import Schema


@dataclass(frozen=True, slots=True)
class Lines:
    """`array`: one entry a row of the batch, the JSON text without a newline (bytes); null for a tombstone or a bad row.

    `tombstones`: bool, one a row.
    """

    array: pa.Array
    tombstones: np.ndarray
    bad: Sequence[Bad]
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class JsonLines:
    converter: Converter
    column: str = VALUE

    def lines(self, batch: pa.RecordBatch) -> Lines:
        payloads = read_payloads(batch.column(self.column), self.converter)
        if self.converter.name == JSON and self.converter.schemas_enable:
            self._fill(payloads)
        return Lines(payloads.texts, payloads.tombstones, payloads.bad, payloads.segments())

    def _fill(self, payloads: Payloads) -> None:
        given = Schema.from_json(self.converter.schema_text) if self.converter.schema_text else None
        for at, own in enumerate(payloads.schemas):
            schema = own or given
            rows = np.flatnonzero(payloads.which == at)
            if schema is None or not len(rows):
                continue
            texts = at_rows(payloads.texts, rows)
            replaced, bad = Filling(schema, self.converter.null_to_default).fill(texts)
            payloads.replace({int(rows[row]): text for row, text in replaced.items()})
            payloads.reject([Bad(int(rows[one.row]), one.reason) for one in bad])
