"""A writer for each topic: what is learnt from a topic's records is of that topic alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from playhead.pipeline.sinks import Reject, Writer
from playhead.sql.range_values import ClosedRange, RangeClaim


@dataclass(frozen=True, slots=True)
class ByTopic:
    writers: Mapping[str, Writer]

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        return self.writers[claim.range.topic].write(claim, batches, reject)
