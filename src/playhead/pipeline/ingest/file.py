"""FileStreamSource on Spark: reads a file of this machine, one record per line. The position is the byte after the last line.

Same rules as the connector: a line ends in `\\n`, `\\r\\n` or `\\r`, the line end is not part of the record, and a line without
an end is read later. The connector counts characters but resumes by bytes. In a file that is not plain ASCII its stored position
may be inside a line. Such a position is refused, because half a line would be sent; the error names the position to set.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from playhead.errors import ConfigInvalid, Fault, NotFound, Refused
from playhead.model import Map
from playhead.pipeline.ingest.encoding import RecordEncoder, Records
from playhead.pipeline.ingest.producer_options import OVERRIDE, check_producer
from playhead.pipeline.ingest.record_options import parse_source_records
from playhead.pipeline.ingest.source import CURSOR_ID, Chunk, Last, PlannedStep, Source
from playhead.pipeline.ingest.topic_creation import PREFIX as TOPIC_CREATION
from playhead.pipeline.ingest.topic_creation import check_topic_creation
from playhead.pipeline.options import OF_EVERY, KnownOptions, OptionReading
from playhead.pipeline.records.batch import Typed
from playhead.pipeline.records.encode.options import RecordOptions
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms import InsertField
from playhead.pipeline.records.transforms.on_sources import route
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS
from playhead.pipeline.step import Left, LeftUnit

BLOCK_BYTES = 4 * 1024 * 1024
_BYTES_PER_ROW = 100  # a guess, to turn rows per chunk into bytes
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r)")
_END = re.compile(rb"\r\n|\n|\r")
KNOWN = KnownOptions(
    OF_EVERY
    | {"file", "topic", "batch.size", "offsets.storage.topic", "key.converter", "value.converter", *OF_TRANSFORMS},
    (
        "key.converter.",
        "value.converter.",
        OVERRIDE,
        TOPIC_CREATION,
        *(f"{name}." for name in OF_TRANSFORMS),
    ),
    {},
)


@dataclass(frozen=True, slots=True)
class FileSourceOptions:
    path: Path
    topic: str
    record: RecordOptions


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    return _Reading(config, worker).read()[1]


def open_file_source(config: Mapping[str, str], worker: Mapping[str, str]) -> Source:
    return FileSource(open_lines(config, worker))


def open_lines(config: Mapping[str, str], worker: Mapping[str, str]) -> "FileLines":
    options = _Reading(config, worker).parsed()
    topic = route(options.record.transforms, options.topic)
    return FileLines(options.path, options.topic, topic, options.record)


class _Reading(OptionReading[FileSourceOptions]):
    def read(self) -> tuple[FileSourceOptions | None, list[Fault]]:
        self.check_names(KNOWN)
        for name in ("file", "topic"):
            if not self.config.get(name):
                self.fault(name, "must be set: there is no stdin on Spark")
        self.faults += check_topic_creation(self.config)
        self.faults += check_producer(self.config, self.worker)
        record = self._record()
        if record is None:
            return None, self.faults
        return FileSourceOptions(Path(self.config.get("file", "")), self.config.get("topic", ""), record), self.faults

    def _record(self) -> RecordOptions | None:
        try:
            record = parse_source_records(self.config, self.worker)
        except ConfigInvalid as error:
            self.faults += error.faults
            return None
        for one in record.transforms:
            if isinstance(one.change, InsertField) and one.change.timestamp:
                self.fault(f"transforms.{one.alias}.timestamp.field", "would be the time at which the line is read")
        return record


@dataclass(frozen=True, slots=True)
class FileSource:
    lines: "FileLines"

    def streams(self) -> Sequence["FileLines"]:
        return [self.lines]

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class FileLines:
    """`first_topic`: before any transform."""

    path: Path
    first_topic: str
    topic: str
    options: RecordOptions
    has_position: bool = True
    is_key_known: bool = True
    is_read_by_tasks: bool = True

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def partitions(self) -> Sequence[Map]:
        return [Map({"filename": str(self.path)})]

    def find_ahead(self, value: bytes, position: Map) -> str | None:  # noqa: ARG002  a line does not contain its position
        return None

    @property
    def encoder(self) -> RecordEncoder:
        return RecordEncoder(TextLines(), self.options, self.first_topic, "position")

    @property
    def position_of(self) -> "ToFilePosition":
        return ToFilePosition()

    def plan(self, position: Map | None, most: int, rows_per_chunk: int) -> PlannedStep | None:
        start = _start_of(position)
        size = self._size(start)
        with self.path.open("rb") as file:
            _check_line_start(file, start, self.path)
            bounds = [start]
            for _ in range(most):
                wanted = bounds[-1] + rows_per_chunk * _BYTES_PER_ROW
                bounds.append(_line_end(file, min(wanted, size), bounds[-1], size))
        bounds = [bound for at, bound in enumerate(bounds) if at == 0 or bound > bounds[at - 1]]
        if len(bounds) == 1:
            return None
        with self.path.open("rb") as file:
            reaches_end = _line_end(file, size, bounds[-1], size) == bounds[-1]
        chunks = [Chunk(n, f"bytes {a}..{b}") for n, (a, b) in enumerate(pairwise(bounds))]
        return FileStep(self, tuple(bounds), chunks, reaches_end, Left(size - start, LeftUnit.BYTES))

    def read_again(self, position: Map, most: int) -> "FileStep":
        """All lines before a position, in at most so many chunks."""
        end = _start_of(position)
        size = self._size(end)
        parts = max(1, min(most, end // BLOCK_BYTES))
        with self.path.open("rb") as file:
            _check_line_start(file, end, self.path)
            cuts = {_line_end(file, end * number // parts, 0, end) for number in range(1, parts)}
        bounds = tuple(sorted({0, end, *cuts}))
        chunks = [Chunk(n, f"bytes {a}..{b}") for n, (a, b) in enumerate(pairwise(bounds))]
        return FileStep(self, bounds, chunks, end == size, Left(size - end, LeftUnit.BYTES))

    def _size(self, position: int) -> int:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            raise NotFound("file", str(self.path)) from None
        if position > size:
            raise Refused(
                f"the position {position} is after the end of {self.path} ({size} bytes): the file was replaced",
                "check the file, then set the position with playhead offsets set",
            )
        return size


@dataclass(frozen=True, slots=True)
class FileStep:
    lines: FileLines
    bounds: tuple[int, ...]
    chunks: Sequence[Chunk]
    reaches_end: bool
    left: Left
    horizon: str = ""

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.range(0, len(self.chunks), 1, len(self.chunks))

    @property
    def records(self) -> Records:
        return Records(self.lines.encoder, ReadLines(str(self.lines.path), self.bounds))

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class ToFilePosition:
    def __call__(self, last: Last) -> Map:
        return Map({"position": last.id})


@dataclass(frozen=True, slots=True)
class ReadLines:
    """Runs in the executor, on the same machine: reads the lines of a chunk, block by block."""

    path: str
    bounds: tuple[int, ...]

    def chunk(self, number: int) -> Iterator[pa.RecordBatch]:
        start, end = self.bounds[number], self.bounds[number + 1]
        with Path(self.path).open("rb") as file:
            file.seek(start)
            rest, at = b"", start
            while file.tell() < end:
                read = file.read(min(BLOCK_BYTES, end - file.tell()))
                if not read:
                    raise Refused(f"{self.path} became shorter while it was read")
                block = rest + read
                is_last = file.tell() >= end
                # A \r at the end of a block may be half of a \r\n: it is read with the next block.
                cut = len(block) if is_last else max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1
                block, rest = block[:cut], block[cut:]
                found = _LINE.findall(block)
                if found:
                    yield _lines_batch(found, at)
                at += cut


def _lines_batch(found: Sequence[tuple[bytes, bytes]], at: int) -> pa.RecordBatch:
    texts = pa.array([line.decode("utf-8", "replace") for line, _ in found], pa.string())
    ends = accumulate((len(line) + len(end) for line, end in found), initial=at)
    next(ends)
    return pa.RecordBatch.from_arrays([texts, pa.array(ends, pa.int64())], names=["line", CURSOR_ID])


@dataclass(frozen=True, slots=True)
class TextLines:
    """In Connect a line is a string without a key."""

    @property
    def names(self) -> Sequence[str]:
        return ("line",)

    def read(self, columns: Mapping[str, pa.Array]) -> Typed:
        return Typed(Schema("string"), columns["line"])

    def texts(self, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:  # noqa: ARG002  a line has no times
        return {}

    def as_texts(self) -> "TextLines":
        return self


def _start_of(position: Map | None) -> int:
    start = position.get("position") if position is not None else 0
    if type(start) is not int or start < 0:
        raise Refused(f"the stored position {position} is not a number of bytes", "fix it with playhead offsets set")
    return start


def _check_line_start(file: BinaryIO, start: int, path: Path) -> None:
    if start == 0:
        return
    file.seek(start - 1)
    if file.read(1) not in (b"\n", b"\r"):
        follows = _END.search(file.read(BLOCK_BYTES))
        hint = f"the next line begins at {start + follows.end()}" if follows else "check the file"
        raise Refused(
            f"the position {start} is inside a line of {path}: the connector counts characters, not bytes", hint
        )


def _line_end(file: BinaryIO, wanted: int, start: int, size: int) -> int:
    """The end of the line that contains `wanted`, else the last line end before it, else `start`."""
    if wanted <= start:
        return start
    file.seek(wanted)
    offset = wanted
    while offset < size and (block := file.read(min(BLOCK_BYTES, size - offset))):
        found = _END.search(block)
        if found is not None and (found.end() < len(block) or found[0] != b"\r"):
            return offset + found.end()
        if found is not None and offset + len(block) < size:  # its \r may be half of a \r\n
            return offset + len(block) + (file.read(1) == b"\n")
        offset += len(block)
    return _last_end(file, start, size)


def _last_end(file: BinaryIO, start: int, size: int) -> int:
    """The byte after the last line end of the file. A bare \\r at the end may still become \\r\\n; the connector waits too."""
    end = size
    while end > start:
        begin = max(start, end - BLOCK_BYTES)
        file.seek(begin)
        block = file.read(end - begin)
        limit = len(block) - 1 if end == size else len(block)
        cut = max(block.rfind(b"\n"), block.rfind(b"\r", 0, max(0, limit)))
        if cut >= 0:
            return begin + cut + 1
        end = begin
    return start
