"""A digest that shows whether all records arrived: their number, and the xor and the sum of their hashes.

Together they detect what each of them alone would not: one record lost and another doubled, a record three times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from playhead.ledger.model import ClosedRange, Output
from playhead.model.ranges import OffsetRange
from playhead.pipeline.deliver.sink import HASH, TIMESTAMP

Numbers = npt.NDArray[np.int64]
HASH_SEED = 42  # of Spark's xxhash64, which the ledger and the audit compare with; a null has the seed itself


@dataclass(slots=True)
class Digest:
    count: int = 0
    hash_xor: int = 0
    hash_sum: int = 0

    def add_hashes(self, hashes: Numbers) -> None:
        self.count += len(hashes)
        self.hash_xor ^= int(np.bitwise_xor.reduce(hashes))
        self.hash_sum = _wrapped(self.hash_sum + int(hashes.sum(dtype=np.int64)))

    def add_digest(self, other: "Digest") -> None:
        self.count += other.count
        self.hash_xor ^= other.hash_xor
        self.hash_sum = _wrapped(self.hash_sum + other.hash_sum)


def hashes_of(values: Sequence[bytes | None]) -> Numbers:
    """As Spark's xxhash64 of one column has them."""
    digest: Callable[..., int] = xxhash.xxh64_intdigest
    try:
        found = np.fromiter(map(digest, values, repeat(HASH_SEED)), np.uint64, len(values))
    except TypeError:  # a null
        found = np.array([HASH_SEED if one is None else digest(one, HASH_SEED) for one in values], np.uint64)
    return found.view(np.int64)


def _wrapped(number: int) -> int:
    """As a signed 64-bit number, with overflow as in Java and SQL."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(slots=True)
class Tally(Digest):
    first_ms: int | None = None
    last_ms: int | None = None
    rejected: int = 0

    def add(self, hashes: Numbers, record_ms: Numbers) -> None:
        self.add_hashes(hashes)
        first, last = int(record_ms.min()), int(record_ms.max())
        self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
        self.last_ms = last if self.last_ms is None else max(self.last_ms, last)

    def merge(self, other: "Tally") -> None:
        """Adds what another has counted."""
        self.count += other.count
        self.hash_xor ^= other.hash_xor
        self.hash_sum = _wrapped(self.hash_sum + other.hash_sum)
        self.rejected += other.rejected
        times = [one for one in (self.first_ms, other.first_ms) if one is not None]
        self.first_ms = min(times, default=None)
        times = [one for one in (self.last_ms, other.last_ms) if one is not None]
        self.last_ms = max(times, default=None)

    def add_rows(self, batch: pa.RecordBatch, rows: np.ndarray) -> None:
        """`rows`: of the batch, by their numbers or as a mask."""
        hashes = pc.fill_null(batch.column(HASH), 0).to_numpy(zero_copy_only=False)[rows]
        if len(hashes):
            micros = pc.fill_null(batch.column(TIMESTAMP).cast(pa.int64()), -1000).to_numpy(zero_copy_only=False)
            self.add(hashes, micros[rows] // 1000)

    def closed(self, span: OffsetRange, outputs: Sequence[Output] = ()) -> ClosedRange:
        digest = (self.count, self.hash_xor, self.hash_sum)
        return ClosedRange(span, *digest, outputs, self.rejected, self.first_ms, self.last_ms)
