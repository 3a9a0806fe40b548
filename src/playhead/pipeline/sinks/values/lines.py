"""The JSON text of each record, one a line, as the S3 connector's JsonFormat means it: the payload without its schema.

A value is written as it stands in the topic: member order, blanks and digits of numbers are kept. It must be JSON on its own;
whether a payload fits its schema is not looked at here. A string is written as a JSON string, bytes as one in base64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from playhead.pipeline.sinks import VALUE
from playhead.pipeline.sinks.values import Bad, Segment
from playhead.pipeline.sinks.values.jsontext import join_lines
from playhead.pipeline.sinks.values.options import Converter
from playhead.pipeline.sinks.values.payloads import read_payloads

__all__ = ["JsonLines", "Lines", "join_lines"]


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
        return Lines(payloads.texts, payloads.tombstones, payloads.bad, payloads.segments())
