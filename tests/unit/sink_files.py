"""Records, options and claims for the tests of the file sink, and what its connector would do with them, record by record."""

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from playhead.ledger.model import ClosedRange, RangeClaim
from playhead.model import TopicPartition
from playhead.model.ranges import OffsetRange
from playhead.pipeline.deliver.files.folder import FolderStorage
from playhead.pipeline.deliver.files.format import AsBytes, Contents, Piece, field_of
from playhead.pipeline.deliver.files.options import FileSinkOptions, parse_options
from playhead.pipeline.deliver.files.storage import DraftFile
from playhead.pipeline.deliver.files.writer import FileWriter
from playhead.pipeline.deliver.sink import RECORDS, RejectedRecord
from playhead.pipeline.records.batch import Bad

FORMATS = "io.confluent.connect.s3.format."
JSON, PARQUET = f"{FORMATS}json.JsonFormat", f"{FORMATS}parquet.ParquetFormat"
PARTITIONERS = "io.confluent.connect.storage.partitioner."
HOURLY = {
    "partitioner.class": f"{PARTITIONERS}HourlyPartitioner",
    "timezone": "UTC",
    "locale": "en",
    "timestamp.extractor": "Record",
}
BASE = {
    "store.url": "file:///data",
    "format.class": JSON,
    "flush.size": "3",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}
AS_BYTES = {
    "format.class": f"{FORMATS}bytearray.ByteArrayFormat",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
MADE_MS = 1_700_000_000_000


class Record(NamedTuple):
    offset: int
    ms: int
    value: bytes | None
    hash: int = 0


def options(config: dict[str, str] | None = None) -> FileSinkOptions:
    return parse_options(BASE | (config or {}), {})


def claim(start: int, end: int, *, closes: bool = True, topic: str = "orders", partition: int = 2) -> RangeClaim:
    return RangeClaim(OffsetRange(topic, "id", partition, start, end), closes, "shape", MADE_MS)


def batches(records: Sequence[Record], sizes: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
    """In batches of these sizes, the last of them again and again; all in one without them."""
    at, left = 0, list(sizes)
    while at < len(records):
        size = (left.pop(0) if len(left) > 1 else left[0]) if left else len(records)
        part = records[at : at + size]
        yield pa.record_batch(
            [
                pa.array([record.offset for record in part], pa.int64()),
                pa.array([record.ms * 1000 for record in part], pa.int64()).cast(pa.timestamp("us", "UTC")),
                pa.nulls(len(part), pa.binary()),
                pa.array([record.value for record in part], pa.binary()),
                pa.array([record.hash for record in part], pa.int64()),
            ],
            schema=RECORDS,
        )
        at += size


class Json:
    """Values are JSON objects; their keys are their schema; what is no object is bad. As lines, or as columns."""

    def __init__(self, *, columns: bool) -> None:
        self.columns = columns

    def convert(self, batch: pa.RecordBatch, place: TopicPartition) -> Contents:
        values = batch.column(3).to_pylist()
        bad = [Bad(row, "it is no object") for row, value in enumerate(values) if value and value[:1] != b"{"]
        good = [row for row, value in enumerate(values) if value and value[:1] == b"{"]
        pieces = [
            self._piece([int(row) for row in rows], values)
            for _, rows in itertools.groupby(good, lambda row: tuple(json.loads(values[row])))
        ]
        return Contents(pieces, np.array([value is None for value in values]), bad)

    def _piece(self, rows: list[int], values: list[bytes]) -> Piece:
        objects = [json.loads(values[row]) for row in rows]
        kinds = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), list: pa.list_(pa.int64())}
        schema = pa.schema([(name, kinds[type(value)]) for name, value in objects[0].items()])
        content: Any = pa.RecordBatch.from_pylist(objects, schema)
        lines = pa.array([values[row] for row in rows], pa.binary())
        return Piece(
            np.array(rows), content if self.columns else lines, str(schema), lambda path: field_of(content, path)
        )


class Written(NamedTuple):
    closed: list[ClosedRange]
    rejected: list[RejectedRecord]
    files: dict[str, bytes]

    @property
    def data(self) -> dict[str, bytes]:
        return {name: content for name, content in self.files.items() if not name.startswith("_playhead/")}


@dataclass(frozen=True)
class Kept:
    """A draft in memory."""

    name: str
    file: io.BytesIO

    def discard(self) -> None:
        self.file.close()


class Memory:
    """A place that forgets nothing and has no disk to wait for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def connect(self) -> "Memory":
        return self

    def draft(self, name: str) -> Kept:
        return Kept(name, io.BytesIO())

    def publish(self, draft: DraftFile) -> int:
        assert isinstance(draft, Kept)
        self.files[draft.name] = draft.file.getvalue()
        return len(self.files[draft.name])

    def remove(self, name: str) -> None:
        self.files.pop(name, None)


def write_to_memory(
    place: Memory, given: FileSinkOptions, what: RangeClaim, found: Iterator[pa.RecordBatch], converting: Any
) -> Written:
    rejected: list[RejectedRecord] = []
    closed = list(FileWriter(given, place, converting).write(what, found, rejected.append))
    return Written(closed, rejected, dict(sorted(place.files.items())))


def write(
    root: Path, given: FileSinkOptions, what: RangeClaim, found: Iterator[pa.RecordBatch], converting: Any = None
) -> Written:
    rejected: list[RejectedRecord] = []
    writer = FileWriter(given, FolderStorage(str(root)), converting or AsBytes())
    closed = list(writer.write(what, found, rejected.append))
    return Written(closed, rejected, read_files(root))


def read_files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
