"""The files of a folder or a bucket as a side: Parquet by its columns, JSON lines and other texts by their lines.

Each task reads whole files, or some row groups of a large one, by Arrow. Names that begin with a dot or an underscore are not
data, as for Spark, Hive and Arrow.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from playhead.errors import Invalid, NotFound, Rejected, Unreachable
from playhead.pipeline.audit.row_hash import octet_hashes, row_hashes
from playhead.pipeline.audit.sides import Hashed, TaskSide

LINES, PARQUET = "lines", "parquet"
_KINDS = {".parquet": PARQUET, ".json": LINES, ".jsonl": LINES, ".ndjson": LINES, ".txt": LINES, ".bin": LINES}
_LARGE = 64 * 1024 * 1024
_ROWS = 32_768  # of a batch: its words stay in the cache of a core
_SHORT = 1.6  # bytes of a value: the number of one of about 4,000 values has 12 bits
_BLOCK = 8 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_HIVE = re.compile(r"([^/=]+)=([^/]*)")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")


class DataFile(NamedTuple):
    """`name`: below the root, with / between folders."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where files are. `system` is a file system of Arrow, which is picklable; `root` is a path in it."""

    system: Any
    root: str
    shown: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"


def open_place(text: str) -> Place:
    """A path of this machine, or a URI: `file:///lake`, `s3://bucket/path`."""
    try:
        if "://" in text or text.startswith("file:"):
            system, root = fs.FileSystem.from_uri(text)
        else:
            from pathlib import Path

            system, root = fs.LocalFileSystem(), str(Path(text).absolute())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Invalid(f"{text!r} is not the address of a folder: {error}") from None
    return Place(system, root.rstrip("/"), text)


def list_files(place: Place, below: str = "") -> list[DataFile]:
    """All data files, by name. A folder that does not exist is an error: it is not an empty one."""
    root = place.path(below) if below else place.root
    try:
        if place.system.get_file_info(root).type == fs.FileType.NotFound:
            raise NotFound("folder", f"{place.shown}/{below}" if below else place.shown)
        found = place.system.get_file_info(fs.FileSelector(root, recursive=True))
    except OSError as error:
        raise Unreachable(f"{place.shown} cannot be listed: {error}") from None
    files = [
        DataFile(one.path[len(place.root) :].lstrip("/"), one.size) for one in found if one.type == fs.FileType.File
    ]
    return sorted(one for one in files if not any(part[0] in "._" for part in one.name.split("/") if part))


def find_files(place: Place, below: str) -> list[DataFile]:
    """Those below a folder; none if it is not there. The root must be there."""
    if not below:
        return list_files(place)
    try:
        return list_files(place, below)
    except NotFound:
        if place.system.get_file_info(place.root).type == fs.FileType.NotFound:
            raise NotFound("folder", place.shown) from None
        return []


def count_rows(place: Place, name: str, separator: bytes = b"\n") -> int:
    """Of one file, by its metadata if it is Parquet."""
    try:
        with place.system.open_input_file(place.path(name)) as file:
            if kind_of(name) == PARQUET:
                return int(pq.ParquetFile(file).metadata.num_rows)
            return sum(len(lines) for lines in _lines(file, separator, is_gzip=name.endswith(".gz")))
    except FileNotFoundError:
        raise NotFound("file", name, hint="audit again", where=place.shown) from None
    except (OSError, pa.ArrowException, zlib.error) as error:
        raise Rejected(f"{name} cannot be read: {str(error).splitlines()[0]}") from None


def kind_of(name: str) -> str | None:
    plain = name.removesuffix(".gz")
    return next((kind for ending, kind in _KINDS.items() if plain.endswith(ending)), None)


class Unit(NamedTuple):
    """What is read at once: a file, or some row groups of one."""

    name: str
    groups: tuple[int, ...] | None = None
    first_row: int = 0


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Picklable; the frame has the numbers of units. `columns` None: all. `of_path`: columns that only the names of folders hold,
    as Hive and Spark write them (`day=2026-11-15`)."""

    place: Place
    units: Sequence[Unit]
    columns: Sequence[str] | None = None
    separator: bytes = b"\n"
    of_path: frozenset[str] = frozenset()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Hashed]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._unit(self.units[number])

    def _unit(self, unit: Unit) -> Iterator[Hashed]:
        row = unit.first_row
        for content in self._contents(unit):
            if isinstance(content, pa.RecordBatch):
                hashes, count = row_hashes(content, self.columns), content.num_rows
            else:
                hashes, count = octet_hashes(content), len(content)
            yield Hashed(hashes, partial(_shown, unit.name, row, content))
            row += count

    def _contents(self, unit: Unit) -> Iterator[pa.RecordBatch | pa.Array]:
        path = self.place.path(unit.name)
        try:
            with self.place.system.open_input_file(path) as file:
                if kind_of(unit.name) == PARQUET:
                    yield from self._parquet(file, unit)
                else:
                    yield from _lines(file, self.separator, is_gzip=unit.name.endswith(".gz"))
        except FileNotFoundError:
            raise NotFound("file", unit.name, hint="it was removed while it was read: compare again") from None
        except (OSError, pa.ArrowException, zlib.error) as error:
            raise Rejected(f"{unit.name} cannot be read: {str(error).splitlines()[0]}") from None

    def _parquet(self, file: Any, unit: Unit) -> Iterator[pa.RecordBatch]:
        source = pq.ParquetFile(file)
        source = pq.ParquetFile(
            file, metadata=source.metadata, pre_buffer=True, read_dictionary=short_dictionaries(source.metadata)
        )
        known = source.schema_arrow.names
        groups = list(unit.groups) if unit.groups is not None else None
        read = None if self.columns is None else [name for name in self.columns if name in known]
        added = [
            (name, value) for name, value in _HIVE.findall(unit.name) if name in self.of_path and name not in known
        ]
        for batch in source.iter_batches(_ROWS, row_groups=groups, columns=read, use_threads=False):
            yield _with_path(batch, added)


def short_dictionaries(facts: pq.FileMetaData) -> list[str]:
    """Columns of texts that are stored as few different values: each value is decoded and hashed once."""
    if not facts.num_row_groups:
        return []
    group = facts.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return [
        one.path_in_schema
        for one in columns
        if one.physical_type == "BYTE_ARRAY"
        and one.has_dictionary_page
        and "." not in one.path_in_schema
        and one.total_uncompressed_size <= one.num_values * _SHORT
    ]


def _with_path(batch: pa.RecordBatch, values: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    for name, value in values:
        batch = batch.append_column(name, pa.repeat(_path_value(value), batch.num_rows))
    return batch


def column_names(place: Place, files: Sequence[DataFile]) -> set[str]:
    """Of the first Parquet file."""
    for file in files:
        if kind_of(file.name) == PARQUET:
            with place.system.open_input_file(place.path(file.name)) as opened:
                return set(pq.read_schema(opened).names)
    return set()


def _path_value(text: str) -> pa.Scalar:
    if text == "__HIVE_DEFAULT_PARTITION__":
        return pa.scalar(None, pa.string())
    return pa.scalar(int(text), pa.int64()) if _WHOLE.fullmatch(text) else pa.scalar(text)


def _lines(file: BinaryIO, separator: bytes, *, is_gzip: bool) -> Iterator[pa.Array]:
    rest = b""
    for block in _gunzipped(file) if is_gzip else iter(lambda: file.read(_BLOCK), b""):
        *lines, rest = (rest + block).split(separator)
        if lines:
            yield pa.array(lines, pa.binary())
    if rest:
        yield pa.array([rest], pa.binary())


def _gunzipped(file: BinaryIO) -> Iterator[bytes]:
    """A file may have several members, one after the other. One that ends early is an error."""
    member = zlib.decompressobj(_GZIP)
    packed = file.read(_BLOCK)
    while packed:
        yield member.decompress(packed)
        if member.eof:
            packed = member.unused_data or file.read(_BLOCK)
            if packed:
                member = zlib.decompressobj(_GZIP)
        else:
            packed = file.read(_BLOCK)
    if not member.eof:
        raise OSError("it ends in the middle of its compressed data")


def _shown(
    name: str, first: int, content: pa.RecordBatch | pa.Array, places: np.ndarray
) -> tuple[list[str], list[bytes]]:
    at = [f"{name}#{first + place}" for place in places.tolist()]
    return at, contents_shown(content, places)


def contents_shown(content: pa.RecordBatch | pa.Array, places: np.ndarray) -> list[bytes]:
    """Rows as JSON texts; lines as they are."""
    some = content.take(pa.array(places))
    if isinstance(some, pa.RecordBatch):
        return [msgspec.json.encode(row, enc_hook=str) for row in some.to_pylist()]
    return [bytes(line or b"") for line in some.to_pylist()]


def units_of(place: Place, files: Sequence[DataFile]) -> list[Unit]:
    """Large Parquet files are cut at their row groups."""
    units: list[Unit] = []
    for file in files:
        if file.size <= _LARGE or kind_of(file.name) != PARQUET:
            units.append(Unit(file.name))
            continue
        with place.system.open_input_file(place.path(file.name)) as opened:
            facts = pq.ParquetFile(opened).metadata
        row = 0
        for group in range(facts.num_row_groups):
            units.append(Unit(file.name, (group,), row))
            row += facts.row_group(group).num_rows
    return units


def folder_side(
    place: Place,
    files: Sequence[DataFile],
    slots: int,
    *,
    columns: Sequence[str] | None = None,
    separator: bytes = b"\n",
    of_path: frozenset[str] = frozenset(),
) -> TaskSide:
    units = units_of(place, files)
    task = ReadFiles(place, units, columns, separator, of_path)

    parts = max(1, min(len(units), 4 * slots))

    def frame(spark: SparkSession) -> DataFrame:
        return spark.range(0, len(units), 1, parts)

    return TaskSide(f"{len(files)} file(s) of {place.shown}", frame, task, parts)
