"""The bytes of a file: lines of JSON, raw values with a separator, or Parquet. The same records give the same bytes.

The gzip header has no name and no time. Compressed blocks and row groups depend on the content, never on the size of incoming
batches.
"""

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from playhead.model import TopicPartition
from playhead.pipeline.deliver.files.joda import Numbers
from playhead.pipeline.deliver.files.options import PARQUET, FormatOptions
from playhead.pipeline.deliver.files.times import Flags
from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.records.batch import Bad
from playhead.pipeline.records.decode.columns import Columns
from playhead.pipeline.records.decode.fields import read_field
from playhead.pipeline.records.decode.lines import JsonLines

Content = Any  # pa.Array of lines or raw values, or pa.RecordBatch: Arrow has no types of its own
BLOCK_BYTES = 1024 * 1024
GROUP_ROWS = 131_072
GROUP_BYTES = 64 * 1024 * 1024  # of the records' values: limits the memory of one open file
_LEVELS = {"gzip": 6}  # Java's default; Arrow's is 9, which is four times slower for little gain
_GZIP = 16 + zlib.MAX_WBITS


class Encoder(Protocol):
    """One file. `weights`: the bytes of each record's value in Kafka."""

    def write(self, content: Content, weights: Numbers) -> None: ...

    def finish(self) -> None: ...

    def abandon(self) -> None:
        """Ensures that nothing is written later, at garbage collection."""


def open_encoder(options: FormatOptions, file: BinaryIO, schema: pa.Schema | None) -> Encoder:
    if options.kind == PARQUET:
        assert schema is not None  # noqa: S101  columns have one
        return ParquetEncoder(options, file, schema)
    separator = options.separator.encode()
    if options.compression == "gzip":
        return GzipLines(separator, file, zlib.compressobj(options.level, zlib.DEFLATED, _GZIP))
    return PlainLines(separator, file.write)


def joined(values: pa.Array, separator: bytes) -> pa.Buffer:
    """All values with the separator between them, in one buffer. None of them is null."""
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
    """Compresses blocks of a fixed size: with other pieces of the same input, a compressor may give another output."""

    separator: bytes
    file: BinaryIO
    packer: "zlib._Compress"
    _waiting: bytearray = field(default_factory=bytearray)

    def write(self, content: Content, weights: Numbers) -> None:  # noqa: ARG002
        self._waiting += joined(content, self.separator)
        self._waiting += self.separator
        full = len(self._waiting) - len(self._waiting) % BLOCK_BYTES
        for at in range(0, full, BLOCK_BYTES):
            self.file.write(self.packer.compress(bytes(self._waiting[at : at + BLOCK_BYTES])))
        del self._waiting[:full]

    def finish(self) -> None:
        self.file.write(self.packer.compress(bytes(self._waiting)))
        self.file.write(self.packer.flush())

    def abandon(self) -> None:
        return


class ParquetEncoder:
    """A row group ends after GROUP_ROWS records, or after the record that reaches GROUP_BYTES of values."""

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
        """Written as one chunk, because the pages depend on the chunks."""
        group = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._writer.write_table(group, row_group_size=GROUP_ROWS)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self) -> None:
        if self._rows:
            self._end_group()
        self._writer.close()

    def abandon(self) -> None:
        with suppress(OSError, ValueError, pa.ArrowException):  # a full disk was reported before
            self._writer.close()


# The format decides what the values of a batch become: lines or columns from the converters, or the bytes as they are. A piece
# is adjacent records of one schema that can be delivered; tombstones and bad records are listed separately.


@dataclass(frozen=True, slots=True)
class Piece:
    """`rows`: the row number of each record in its batch, ascending. `field` reads one field of all of them, None if missing.
    `topics`: the index of each record's topic in `Contents.targets`; None: all are of the topic that was read."""

    rows: Numbers
    content: Content
    schema: str
    field: Callable[[str], pa.Array | None]
    topics: "npt.NDArray[np.int32] | None" = None

    def kept(self, keep: Flags) -> "Piece":
        """Only some of them. `field` is no longer valid."""
        topics = None if self.topics is None else self.topics[keep]
        return Piece(self.rows[keep], self.content.filter(pa.array(keep)), self.schema, self.field, topics)


@dataclass(frozen=True, slots=True)
class Contents:
    """`filtered`: rows that a transform dropped, ascending. `targets`: the topics of the records, where transforms give them."""

    pieces: Sequence[Piece]
    tombstones: Flags
    bad: Sequence[Bad]
    filtered: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    targets: Sequence[str] = ()


class Converting(Protocol):
    """Picklable."""

    def convert(self, batch: pa.RecordBatch, place: TopicPartition) -> Contents: ...


@dataclass(frozen=True, slots=True)
class AsLines:
    lines: JsonLines

    def convert(self, batch: pa.RecordBatch, place: TopicPartition) -> Contents:  # noqa: ARG002
        found = self.lines.lines(batch)
        pieces = [
            _of_lines(found.array.slice(part.start, part.stop - part.start), part.start, part.schema)
            for part in found.segments
        ]
        return Contents([piece for piece in pieces if len(piece.rows)], found.tombstones, found.bad)


@dataclass(frozen=True, slots=True)
class AsBytes:
    """ByteArrayConverter and ByteArrayFormat: values are not parsed."""

    column: str = VALUE

    def convert(self, batch: pa.RecordBatch, place: TopicPartition) -> Contents:  # noqa: ARG002
        values = batch.column(self.column)
        piece = _of_lines(values, 0, "")
        return Contents([piece] if len(piece.rows) else [], values.is_null().to_numpy(zero_copy_only=False), ())


@dataclass(frozen=True, slots=True)
class AsColumns:
    columns: Columns

    def convert(self, batch: pa.RecordBatch, place: TopicPartition) -> Contents:  # noqa: ARG002
        found = self.columns.convert(batch)
        pieces = [
            Piece(part.rows, part.columns, part.schema.text, partial(field_of, part.columns))
            for part in found.parts
            if len(part.rows)
        ]
        return Contents(pieces, found.tombstones, found.bad)


def _of_lines(array: pa.Array, start: int, schema: str) -> Piece:
    rows = np.arange(start, start + len(array))
    if array.null_count:
        rows = rows[array.is_valid().to_numpy(zero_copy_only=False)]
        array = array.drop_null()
    return Piece(rows, array, schema, lambda path: read_field(array, path))


def field_of(columns: pa.RecordBatch, path: str) -> pa.Array | None:
    """A column by its name, or a field inside one: `a.b`."""
    first, *rest = path.split(".")
    if first not in columns.schema.names:
        return None
    values = columns.column(first)
    for name in rest:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(name) < 0:
            return None
        values = pc.struct_field(values, name)
    return values
