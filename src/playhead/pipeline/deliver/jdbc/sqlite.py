"""Rows into SQLite, which has one writer: tasks write files next to the database, and the driver merges them when it commits.

The ledger of the sink is in the same database: rows and ranges are committed together. A killed step leaves its files. They are
never merged, and the next step removes them. A sink has at most one step in progress.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Busy, PlayheadError, Unreachable
from playhead.ledger.model import ClosedRange, Done, RangeClaim
from playhead.pipeline.deliver.jdbc.options import JdbcSinkOptions, TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Coordinates, RefusedRows, Sorting, find_refused, make_rows
from playhead.pipeline.deliver.jdbc.sink import JdbcSink
from playhead.pipeline.deliver.jdbc.tables import Fitted, how_of
from playhead.pipeline.deliver.sink import Reject, SinkStep
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.sql.address import parse_address
from playhead.sql.bulk_load import Trying, insert, trying
from playhead.sql.merge import MergeLayout
from playhead.sql.target_tables import TargetTableName

if TYPE_CHECKING:
    from playhead.ledger.ranges import Also
    from playhead.sql.transaction import Connection


def to_plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_date(kind):
        return pc.multiply(column.cast(pa.int32()).cast(pa.int64()), DAY_MILLIS)
    if pa.types.is_time(kind):
        return column.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column.cast(pa.float64()) if pa.types.is_float32(kind) else column


def plain_batch(columns: Sequence[pa.Array], places: Coordinates, *, is_direct: bool) -> pa.RecordBatch:
    """Rows in SQLite's form, with the coordinates before them if they are merged."""
    arrays = [to_plain(column) for column in columns]
    if not is_direct:
        deleted = pa.array(places.deleted.astype("i8"))
        arrays = [pa.repeat(places.partition, len(deleted)), pa.array(places.offsets), deleted, *arrays]
    return pa.RecordBatch.from_arrays(arrays, [str(place) for place in range(len(arrays))])


# Arrow files next to the database, in a folder of their own: SQLite cannot attach another database inside a transaction. An
# attempt is a folder that gets its final name once it is complete. Its values are already in SQLite's form.

_HEADER = "header.json"


@dataclass(frozen=True, slots=True)
class FileStaging:
    """One step's folder: `<database>-playhead/<sink>-<step>`."""

    folder: str

    @classmethod
    def named(cls, database: Path, sink: str) -> "FileStaging":
        return cls(str(database.with_name(database.name + "-playhead") / f"{sink}-{uuid.uuid4().hex[:8]}"))

    @contextmanager
    def loading(self) -> Iterator["FileLoader"]:
        attempt = Path(self.folder, f"{uuid.uuid4()}.part")
        with _translated(self.folder):
            attempt.mkdir()
        loader = FileLoader(attempt)
        try:
            yield loader
            with _translated(self.folder):
                loader.close()
                attempt.rename(attempt.with_suffix(""))
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    @contextmanager
    def reading(self) -> Iterator["FilesStaged"]:
        yield FilesStaged(Path(self.folder))

    def make(self) -> None:
        with _translated(self.folder):
            Path(self.folder).mkdir(mode=0o700, parents=True)
            self._sweep(Path(self.folder).name)

    def drop(self) -> None:
        self._sweep("")
        with _translated(self.folder):
            folder = Path(self.folder).parent
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()

    def _sweep(self, kept: str) -> None:
        folder = Path(self.folder)
        sink = folder.name.rpartition("-")[0]
        for old in folder.parent.glob(f"{sink}-*"):
            if old.name != kept:
                shutil.rmtree(old, ignore_errors=True)


class FileLoader:
    def __init__(self, attempt: Path) -> None:
        self._attempt = attempt
        self._segment = -1
        self._file: pa.ipc.RecordBatchFileWriter | None = None

    def write_batch(self, segment: int, batch: pa.RecordBatch) -> None:
        if segment != self._segment or self._file is None:
            self.close()
            self._segment = segment
            self._file = pa.ipc.new_file(str(self._attempt / f"{segment}.arrow"), batch.schema)
        self._file.write_batch(batch)

    def finish(self, header: bytes) -> None:
        self.close()
        with (self._attempt / _HEADER).open("wb") as file:
            file.write(header)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class FilesStaged:
    folder: Path

    def headers(self) -> Mapping[str, bytes]:
        with _translated(str(self.folder)):
            return {
                found.parent.name: found.read_bytes()
                for found in self.folder.glob(f"*/{_HEADER}")
                if not found.parent.suffix
            }

    def rows(self, attempt: str, segment: int) -> Iterator[tuple[object, ...]]:
        with _translated(str(self.folder)), pa.ipc.open_file(str(self.folder / attempt / f"{segment}.arrow")) as file:
            for place in range(file.num_record_batches):
                yield from rows_of(file.get_batch(place))


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


@contextmanager
def _translated(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "the folder of the database must be writable for all tasks"
        raise Unreachable(f"the staging folder {folder}: {error.strerror or 'cannot be used'}", hint) from None


class SqliteSink(JdbcSink):
    """`Sink` of the JDBC sink connectors into SQLite."""

    def __init__(self, sorting: Sorting, target: TargetDatabase, identity: str) -> None:
        super().__init__(sorting, target)
        self._identity = identity
        self._staging: FileStaging | None = None

    @property
    def commits_in_tasks(self) -> bool:
        return False

    def writer(self, step: SinkStep) -> "StagingWriter":
        self._staging = FileStaging.named(parse_address(self.target.url).path, self._identity)
        self._staging.make()
        return StagingWriter(self.sorting, self.target, self._staging, step.is_careful)

    def merging(self, done: Sequence[Done]) -> "Also | None":
        staging = self._staging
        if staging is None or not any(closed for _, closed in done):
            return None

        def also(connection: "Connection") -> None:
            with staging.reading() as staged:
                chosen = list(_choose(done, staged.headers()))
                for number, (layout, segments) in enumerate(_rounds(chosen)):
                    rows = (row for one in segments for row in staged.rows(one.attempt, one.segment))
                    insert(connection, layout, how_of(self._options), number, rows)

        return also

    def settled(self, done: Sequence[RangeClaim]) -> None:  # noqa: ARG002  a step has one staging folder
        self.close()

    def close(self) -> None:
        if self._staging is not None:
            with suppress(PlayheadError):  # the next step of this sink removes it
                self._staging.drop()
            self._staging = None


@dataclass(frozen=True, slots=True)
class StagingWriter:
    """`Writer` of SQLite: a second attempt stages the same rows under another name; only one of them is merged."""

    sorting: Sorting
    target: TargetDatabase
    staging: FileStaging
    is_careful: bool

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        options, url = self.sorting.options, self.target.url
        with self.staging.loading() as files, ExitStack() as open_:
            trial = open_.enter_context(trying(url, how_of(options))) if self.is_careful else None
            load = _FileLoad(files, options, trial)
            closed = make_rows(claim, batches, self.sorting, self.target, load, reject)
            files.finish(_header(claim, closed, load.layouts))
        yield closed


class _FileLoad:
    """`Load` of rows as values that SQLite stores. With a trial, rows that the table refuses are found and left out."""

    size = 0  # unknown: the files do not show the size in the database

    def __init__(self, files: FileLoader, options: JdbcSinkOptions, trial: Trying | None) -> None:
        self.layouts: list[MergeLayout] = []
        self._files = files
        self._options = options
        self._trial = trial

    def begin(self, layout: MergeLayout) -> None:
        self.layouts.append(layout)

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:  # noqa: ARG002  SQLite has no types
        batch = plain_batch(columns, places, is_direct=self._options.is_direct)
        refused = self._tried(batch)
        if refused:
            batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), [one.row for one in refused])))
        self._files.write_batch(len(self.layouts) - 1, batch)
        return refused

    def _tried(self, batch: pa.RecordBatch) -> Sequence[RefusedRows]:
        trial, layout = self._trial, self.layouts[-1]
        if trial is None:
            return ()

        def attempt(start: int, stop: int) -> None:
            trial.attempt(layout, rows_of(batch.slice(start, stop - start)))

        return find_refused(batch.num_rows, attempt, layout.table)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """One segment of the attempt that is merged."""

    attempt: str
    segment: int
    layout: MergeLayout


def _header(claim: RangeClaim, closed: ClosedRange, layouts: Sequence[MergeLayout]) -> bytes:
    segments = [
        {
            "table": [one.table.schema, one.table.name],
            "columns": one.columns,
            "kinds": one.kinds,
            "keys": one.keys,
        }
        for one in layouts
    ]
    return json.dumps({"of": _of(claim, closed), "segments": segments}).encode()


def _of(claim: RangeClaim, closed: ClosedRange) -> list[object]:
    """What identifies an attempt: its claim, and the digests of its staged rows."""
    span = claim.range
    at = [span.topic, span.topic_id, span.partition, span.start, span.end, claim.generation, claim.shape]
    return [*at, closed.count, closed.hash_xor, closed.hash_sum]


def _choose(done: Sequence[Done], headers: Mapping[str, bytes]) -> Iterator[list[_Chosen]]:
    """For each claim the segments of one attempt."""
    staged = {attempt: json.loads(text) for attempt, text in sorted(headers.items())}
    for claim, closed in done:
        if not closed or not closed[0].count:  # no task may have seen a record of it
            continue
        wanted = _of(claim, closed[0])
        found = next((one for one in staged.items() if one[1]["of"] == wanted), None)
        if found is None:  # another run of this sink removed them
            what = f"the staged rows of {claim.range} are missing"
            raise Busy(what, hint="nothing was committed: the range is delivered again")
        attempt, header = found
        yield [_Chosen(attempt, number, _layout_of(segment)) for number, segment in enumerate(header["segments"])]


def _layout_of(segment: Mapping[str, list[str]]) -> MergeLayout:
    schema, name = segment["table"]
    return MergeLayout(TargetTableName(schema, name), *(tuple(segment[part]) for part in ("columns", "kinds", "keys")))


def _rounds(chosen: Sequence[Sequence[_Chosen]]) -> Iterator[tuple[MergeLayout, list[_Chosen]]]:
    """Segments of one attempt are merged in order. Segments of different attempts with one layout are merged together."""
    for number in range(max((len(segments) for segments in chosen), default=0)):
        together: dict[MergeLayout, list[_Chosen]] = {}
        for segments in chosen:
            if number < len(segments):
                together.setdefault(segments[number].layout, []).append(segments[number])
        yield from together.items()
