"""The bytes of a file: lines of JSON, raw values with a separator behind each, or Parquet. The same records give the same bytes.

gzip carries no name and no time. Compressed blocks and row groups are cut by what is written, never by how it came in batches.
"""

import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from playhead.pipeline.sinks.files.options import PARQUET, FormatOptions
from playhead.pipeline.sinks.files.zones import Numbers

Content = Any  # pa.Array of lines or raw values, or pa.RecordBatch: Arrow has no types of its own
BLOCK_BYTES = 1024 * 1024
GROUP_ROWS = 131_072
GROUP_BYTES = 64 * 1024 * 1024  # of the records' values: what one open file may hold in memory
_LEVELS = {"gzip": 6}  # Java's; Arrow takes 9, which costs four times as much for next to nothing
_GZIP = 16 + zlib.MAX_WBITS


class Encoder(Protocol):
    """One file. `weights`: the bytes of each record's value in Kafka."""

    def write(self, content: Content, weights: Numbers) -> None: ...

    def finish(self) -> None: ...

    def abandon(self) -> None:
        """Nothing is written later, when the garbage is collected."""


def open_encoder(options: FormatOptions, file: BinaryIO, schema: pa.Schema | None) -> Encoder:
    if options.kind == PARQUET:
        assert schema is not None  # noqa: S101  columns have one
        return ParquetEncoder(options, file, schema)
    separator = options.separator.encode()
    if options.compression == "gzip":
        return GzipLines(separator, file, zlib.compressobj(options.level, zlib.DEFLATED, _GZIP))
    return PlainLines(separator, file.write)


def joined(values: pa.Array, separator: bytes) -> pa.Buffer:
    """All values with the separator between them, in one piece of memory. None of them is null."""
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.binary())
    rows = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pc.binary_join(rows, separator)[0].as_buffer()


@dataclass(slots=True)
class PlainLines:
    separator: bytes
    put: Callable[[pa.Buffer | bytes], object]

    def write(self, content: Content, weights: Numbers) -> None:  # noqa: ARG002
        self.put(joined(content, self.separator))
        self.put(self.separator)

    def finish(self) -> None:
        return

    def abandon(self) -> None:
        return


@dataclass(slots=True)
class GzipLines:
    """In blocks of one size: no compressor promises the same output for other pieces of the same input."""

    separator: bytes
    file: BinaryIO
    packer: "zlib._Compress"
    _waiting: bytearray = field(default_factory=bytearray)

    def write(self, content: Content, weights: Numbers) -> None:  # noqa: ARG002
        self._waiting += joined(content, self.separator)
        self._waiting += self.separator
        whole = len(self._waiting) - len(self._waiting) % BLOCK_BYTES
        for at in range(0, whole, BLOCK_BYTES):
            self.file.write(self.packer.compress(bytes(self._waiting[at : at + BLOCK_BYTES])))
        del self._waiting[:whole]

    def finish(self) -> None:
        self.file.write(self.packer.compress(bytes(self._waiting)))
        self.file.write(self.packer.flush())

    def abandon(self) -> None:
        return


class ParquetEncoder:
    """A row group ends behind GROUP_ROWS records, or the one that reaches GROUP_BYTES of values."""

    def __init__(self, options: FormatOptions, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(
            file, schema, compression=options.codec, compression_level=_LEVELS.get(options.codec), version="2.6"
        )
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def write(self, content: Content, weights: Numbers) -> None:
        totals = np.cumsum(weights)
        at = taken = 0
        while at < len(weights):
            full = int(np.searchsorted(totals, taken + GROUP_BYTES - self._bytes)) + 1
            stop = min(len(weights), full, at + GROUP_ROWS - self._rows)
            self._waiting.append(content.slice(at, stop - at))
            self._rows += stop - at
            self._bytes += int(totals[stop - 1]) - taken
            at, taken = stop, int(totals[stop - 1])
            if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._end_group()

    def _end_group(self) -> None:
        """As one chunk: pages follow the chunks they are written from."""
        group = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._writer.write_table(group, row_group_size=GROUP_ROWS)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self) -> None:
        if self._rows:
            self._end_group()
        self._writer.close()

    def abandon(self) -> None:
        with suppress(OSError, ValueError, pa.ArrowException):  # a full disk is told by whoever met it first
            self._writer.close()
