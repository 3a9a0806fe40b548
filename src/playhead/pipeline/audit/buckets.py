"""Digests of rows by buckets: their number, and the xor and the sum of their hashes.

A row belongs to the bucket of the first 16 bits of its hash, on both sides alike, so no key is needed to find it again. A bucket
whose three numbers are equal holds the same rows; the others are suspect.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

BITS = 16
COUNT = 1 << BITS
# One row holds the digests of many buckets: four arrays, as bytes. Rows of numbers would be converted one by one in the JVM.
SCHEMA = pa.schema([(name, pa.binary()) for name in ("buckets", "counts", "xors", "sums")])
DDL = "buckets binary, counts binary, xors binary, sums binary"


def buckets_of(hashes: np.ndarray) -> np.ndarray:
    found: np.ndarray = (hashes.view(np.uint64) >> np.uint64(64 - BITS)).astype(np.uint16)
    return found


def flags_of(buckets: np.ndarray) -> np.ndarray:
    """Of all buckets, which ones are these."""
    flags = np.zeros(COUNT, np.bool_)
    flags[buckets] = True
    return flags


def rows_in(hashes: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """The numbers of the rows in flagged buckets."""
    return np.flatnonzero(flags[buckets_of(hashes)])


def _zeros() -> np.ndarray:
    return np.zeros(COUNT, np.int64)


@dataclass(slots=True)
class Buckets:
    counts: np.ndarray = field(default_factory=_zeros)
    xors: np.ndarray = field(default_factory=_zeros)
    sums: np.ndarray = field(default_factory=_zeros)

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def add(self, hashes: np.ndarray) -> None:
        """Rows, by their hashes (int64)."""
        if not len(hashes):
            return
        buckets = buckets_of(hashes)
        order = np.argsort(buckets, kind="stable")
        found, sorted_hashes = buckets[order], hashes[order]
        starts = np.concatenate([[0], np.flatnonzero(found[1:] != found[:-1]) + 1])
        places = found[starts]
        self.counts[places] += np.diff(np.append(starts, len(found)))
        self.xors[places] ^= np.bitwise_xor.reduceat(sorted_hashes, starts)
        self.sums[places] += np.add.reduceat(sorted_hashes, starts)

    def add_packed(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Digests that others have made; each row has a bucket at most once."""
        for row in rows.to_pylist():
            places = np.frombuffer(row["buckets"], np.int32)
            self.counts[places] += np.frombuffer(row["counts"], np.int64)
            self.xors[places] ^= np.frombuffer(row["xors"], np.int64)
            self.sums[places] += np.frombuffer(row["sums"], np.int64)

    def packed(self) -> pa.RecordBatch:
        places = np.flatnonzero(self.counts)
        columns = [places.astype(np.int32), self.counts[places], self.xors[places], self.sums[places]]
        return pa.RecordBatch.from_arrays([pa.array([one.tobytes()], pa.binary()) for one in columns], schema=SCHEMA)

    def suspects(self, other: "Buckets") -> np.ndarray:
        """The numbers of the buckets that differ."""
        differs = (self.counts != other.counts) | (self.xors != other.xors) | (self.sums != other.sums)
        return np.flatnonzero(differs)

    def picture(self, other: "Buckets", cells: int = 256) -> list[int]:
        """How many buckets differ, in `cells` equal parts: for a report."""
        flags = np.zeros(COUNT, np.int64)
        flags[self.suspects(other)] = 1
        found: list[int] = flags.reshape(cells, -1).sum(axis=1).tolist()
        return found
