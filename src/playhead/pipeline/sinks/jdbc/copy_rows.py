"""Columns -> rows of PostgreSQL's binary COPY, whole batches at once.

A row is the number of its fields, then for each field its length (-1 for null) and its bytes. Neighbouring fields of a fixed
width are laid out side by side with the length of what follows them, so that Arrow only has to join a few pieces a row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST_BYTES = 1 << 29  # of one array: its offsets have 31 bits


@dataclass(frozen=True, slots=True)
class Fixed:
    """Values without a null: one of a big-endian type each, or one row of bytes each."""

    values: np.ndarray

    @property
    def width(self) -> int:
        return int(self.values.itemsize * (self.values.shape[1] if self.values.ndim > 1 else 1))

    def slice(self, start: int, stop: int) -> "Fixed":
        return Fixed(self.values[start:stop])

    def spread(self, valid: np.ndarray) -> "Varying":
        """The values go to the rows that are `valid`, the others are null."""
        places = np.concatenate([[0], np.cumsum(valid)]).astype(np.int32) * np.int32(self.width)
        data = pa.py_buffer(np.ascontiguousarray(self.values))
        made = pa.Array.from_buffers(pa.binary(), len(valid), [None, pa.py_buffer(places), data])
        return Varying(made, np.where(valid, self.width, -1))


@dataclass(frozen=True, slots=True)
class Varying:
    """`octets` has no nulls: one is empty and has the length -1."""

    octets: pa.Array
    lengths: np.ndarray

    @classmethod
    def of(cls, column: pa.Array) -> "Varying":
        """Of binary values."""
        lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
        return cls(pc.fill_null(column, b"") if column.null_count else column, lengths)

    def slice(self, start: int, stop: int) -> "Varying":
        return Varying(self.octets.slice(start, stop - start), self.lengths[start:stop])


Encoded = Fixed | Varying


def encode_rows(columns: Sequence[Encoded], count: int) -> Iterator[memoryview]:
    """The bytes of all rows, in order, in one piece or a few."""
    if not count:
        return
    sizes = [column.octets.nbytes if isinstance(column, Varying) else column.width * count for column in columns]
    if sum(sizes) > _MOST_BYTES and count > 1:
        for start, stop in ((0, count // 2), (count // 2, count)):
            yield from encode_rows([column.slice(start, stop) for column in columns], stop - start)
        return
    yield _joined(columns, count)


def _joined(columns: Sequence[Encoded], count: int) -> memoryview:
    pieces: list[pa.Array] = []
    block: list[tuple[Any, ...]] = [("f", ">i2", np.int16(len(columns)))]
    for place, column in enumerate(columns):
        if isinstance(column, Fixed):
            shape = column.values.shape[1:]
            kind = (column.values.dtype, shape) if shape else (column.values.dtype,)
            block += [(f"l{place}", ">i4", np.int32(column.width)), (f"v{place}", *kind, column.values)]
        else:
            block.append((f"l{place}", ">i4", column.lengths))
            pieces += [_packed(block, count), column.octets]
            block = []
    if block:
        pieces.append(_packed(block, count))
    if len(pieces) == 1:
        return memoryview(pieces[0].buffers()[2])
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
    bounds = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + count + 1]
    return memoryview(joined.buffers()[2])[bounds[0] : bounds[-1]]


def _packed(block: Sequence[tuple[Any, ...]], count: int) -> pa.Array:
    """The last of each entry are its values, what is before them its name and type."""
    made = np.empty(count, np.dtype([entry[:-1] for entry in block]))
    for entry in block:
        made[entry[0]] = entry[-1]
    width = made.dtype.itemsize
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(made)])
