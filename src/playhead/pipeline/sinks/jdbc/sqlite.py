"""Rows into SQLite, which has one writer: tasks leave files beside the database, and the driver merges them when it commits.

The ledger of the sink is in the same database, so rows and ranges are committed together or not at all. A step that died leaves
its files behind, which nobody merges; the next step drops them. One step of a sink is on its way at a time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from playhead.errors import Busy, PlayheadError
from playhead.pipeline.sinks import Reject, Step
from playhead.pipeline.sinks.jdbc.address import Target
from playhead.pipeline.sinks.jdbc.batches import Sorting
from playhead.pipeline.sinks.jdbc.making import Places, Refused, find_refused, make_rows
from playhead.pipeline.sinks.jdbc.options import JdbcSinkOptions
from playhead.pipeline.sinks.jdbc.plain import to_plain
from playhead.pipeline.sinks.jdbc.side_files import FileLoader, FileStaging, rows_of
from playhead.pipeline.sinks.jdbc.sink import JdbcSink
from playhead.pipeline.sinks.jdbc.tables import Fitted, how_of
from playhead.sql.address import parse_address
from playhead.sql.loading import Trying, insert, trying
from playhead.sql.merging import Layout
from playhead.sql.range_values import ClosedRange, Done, RangeClaim
from playhead.sql.target_tables import TableName

if TYPE_CHECKING:
    from playhead.sql.range_ledger import Also
    from playhead.sql.statements import Connection


class SqliteSink(JdbcSink):
    """`Sink` of the JDBC sink connectors into SQLite."""

    def __init__(self, sorting: Sorting, target: Target, identity: str) -> None:
        super().__init__(sorting, target)
        self._identity = identity
        self._staging: FileStaging | None = None

    @property
    def commits_in_tasks(self) -> bool:
        return False

    def writer(self, step: Step) -> "StagingWriter":
        self._staging = FileStaging.named(parse_address(self._target.url).path, self._identity)
        self._staging.make()
        return StagingWriter(self._sorting, self._target, self._staging, step.is_careful)

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

    def settled(self, done: Sequence[RangeClaim]) -> None:  # noqa: ARG002  a step has one staging place
        self.close()

    def close(self) -> None:
        if self._staging is not None:
            with suppress(PlayheadError):  # the next step of this sink drops it
                self._staging.drop()
            self._staging = None


@dataclass(frozen=True, slots=True)
class StagingWriter:
    """`Writer` of SQLite: a second attempt stages the same rows under another name; one of them is merged."""

    sorting: Sorting
    target: Target
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
    """`Load` of rows as values that SQLite stores. With a trial those that the table refuses are found, and left out."""

    size = 0  # files tell nothing of the size in the database

    def __init__(self, files: FileLoader, options: JdbcSinkOptions, trial: Trying | None) -> None:
        self.layouts: list[Layout] = []
        self._files = files
        self._options = options
        self._trial = trial

    def begin(self, layout: Layout) -> None:
        self.layouts.append(layout)

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Places) -> Sequence[Refused]:  # noqa: ARG002  SQLite has no types
        arrays = [to_plain(column) for column in columns]
        if not self._options.is_direct:
            deleted = pa.array(places.deleted.astype("i8"))
            arrays = [pa.repeat(places.partition, len(deleted)), pa.array(places.offsets), deleted, *arrays]
        batch = pa.RecordBatch.from_arrays(arrays, [str(place) for place in range(len(arrays))])
        refused = self._tried(batch)
        if refused:
            batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), [one.row for one in refused])))
        self._files.write_batch(len(self.layouts) - 1, batch)
        return refused

    def _tried(self, batch: pa.RecordBatch) -> Sequence[Refused]:
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
    layout: Layout


def _header(claim: RangeClaim, closed: ClosedRange, layouts: Sequence[Layout]) -> bytes:
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
    """What an attempt must tell to be the one: its claim, and the digests of what it staged."""
    span = claim.range
    at = [span.topic, span.topic_id, span.partition, span.start, span.end, claim.generation, claim.shape]
    return [*at, closed.count, closed.hash_xor, closed.hash_sum]


def _choose(done: Sequence[Done], headers: Mapping[str, bytes]) -> Iterator[list[_Chosen]]:
    """For each claim the segments of one attempt."""
    told = {attempt: json.loads(text) for attempt, text in sorted(headers.items())}
    for claim, closed in done:
        if not closed or not closed[0].count:  # no task may have seen a record of it
            continue
        wanted = _of(claim, closed[0])
        found = next((one for one in told.items() if one[1]["of"] == wanted), None)
        if found is None:  # another run of this sink swept
            what = f"the staged rows of {claim.range} are gone"
            raise Busy(what, hint="nothing was committed: the range is delivered anew")
        attempt, header = found
        yield [_Chosen(attempt, number, _layout_of(segment)) for number, segment in enumerate(header["segments"])]


def _layout_of(segment: Mapping[str, list[str]]) -> Layout:
    schema, name = segment["table"]
    return Layout(TableName(schema, name), *(tuple(segment[part]) for part in ("columns", "kinds", "keys")))


def _rounds(chosen: Sequence[Sequence[_Chosen]]) -> Iterator[tuple[Layout, list[_Chosen]]]:
    """Segments of one attempt come one after the other; those of different attempts together where they have one layout."""
    for number in range(max((len(segments) for segments in chosen), default=0)):
        together: dict[Layout, list[_Chosen]] = {}
        for segments in chosen:
            if number < len(segments):
                together.setdefault(segments[number].layout, []).append(segments[number])
        yield from together.items()
