"""What each task of a sink's step does, in the executor: one claim, read in order by the sink's own writer.

Spark gives every topic partition to one task. Which one it got is told by the records themselves; a task that gets none has a
claim of holes only, and tells nothing. Records that are rejected are dealt with before anything is told as closed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from playhead.errors import PlayheadError, Refused
from playhead.pipeline.faults import marked
from playhead.pipeline.rejects import RejectPolicy
from playhead.pipeline.sinks import KEY, RECORDS, Writer
from playhead.sql.range_values import ClosedRange, RangeClaim

CLAIM = "claim"
RECEIPT = pa.schema([(CLAIM, pa.int32()), ("closed", pa.string())])
RECEIPT_DDL = f"{CLAIM} int, closed string"
_CLOSED = msgspec.json.Decoder(list[ClosedRange])


@dataclass(frozen=True, slots=True)
class DeliverTask:
    """Sent to the executors. `claims` by the number that their records carry."""

    claims: Mapping[int, RangeClaim]
    writer: Writer
    policy: RejectPolicy = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = cast(TaskContext, TaskContext.get())  # there always is one in a task
        try:
            if context.attemptNumber():
                raise Refused("Spark repeated a task; the step is done anew instead")
            yield from self._delivered(batches)
        except PlayheadError as error:
            raise marked(error) from None

    def _delivered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        number = first.column(CLAIM)[0].as_py()
        with self.policy.open() as reject:
            closed = []
            for one in self.writer.write(self.claims[number], map(_records, chain([first], filled)), reject):
                reject.flush()  # before the writer goes on: it may commit
                closed.append(one)
        row = [[number], [msgspec.json.encode(closed).decode()]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(value, kind) for value, kind in zip(row, RECEIPT.types, strict=True)], schema=RECEIPT
        )


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As the writers know them; keys that nobody asked for are not there."""
    if KEY not in batch.schema.names:
        batch = batch.append_column(KEY, pa.nulls(batch.num_rows, pa.binary()))
    return batch.select(RECORDS.names)


def closed_of(text: str) -> Sequence[ClosedRange]:
    return _CLOSED.decode(text)
