"""Records of several recorded ranges that were read as one: cut at the boundaries of the ranges, and compared with what was
delivered then."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from playhead.ledger.model import ClosedRange
from playhead.pipeline.deliver.sink import OFFSET


def why_different(old: ClosedRange, found: Sequence[ClosedRange]) -> str:
    """Empty if every record that was delivered is among those that were read. More may be delivered than then: records that
    were rejected with other options."""
    count, rejected = sum(one.count for one in found), sum(one.rejected for one in found)
    then, now = old.count + old.rejected, count + rejected
    if then != now:
        why = "the others are gone from the topic" if now < then else "others are readable now"
        return f"{then} record(s) were read when it was delivered, and {now} now: {why}"
    if count < old.count:
        return f"{old.count} record(s) were delivered, and only {count} fit the options now"
    if count == old.count and _digest(found) != (old.hash_xor, old.hash_sum):
        return "the topic has other records now than were delivered: their digests differ"
    return ""


def _digest(found: Sequence[ClosedRange]) -> tuple[int, int]:
    xor = total = 0
    for one in found:
        xor ^= one.hash_xor
        total += one.hash_sum
    return xor, (total + 2**63) % 2**64 - 2**63


class Pieces:
    """Cuts a stream of batches at offsets, which rise."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def before(self, end: int) -> Iterator[pa.RecordBatch]:
        while True:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                return
            if not batch.num_rows:
                continue
            at = int(np.searchsorted(batch.column(OFFSET).to_numpy(), end))
            if at < batch.num_rows:
                self._rest = batch.slice(at)
                if at:
                    yield batch.slice(0, at)
                return
            yield batch
