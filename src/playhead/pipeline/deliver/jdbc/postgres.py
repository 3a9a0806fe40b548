"""Writes one claim into PostgreSQL, in the task that reads it: rows and range in one transaction.

The rows stream into the table while they are read. Right before the commit the task requests permission from the driver, and
checks the ledger under the lock of the run's row. A task of a run that was taken over, or a second attempt, rolls back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from playhead.errors import Busy
from playhead.ledger.model import ClosedRange, RangeClaim
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.pipeline.deliver.jdbc.copy_format import Encoded, Fixed, encode_column, encode_rows
from playhead.pipeline.deliver.jdbc.options import JdbcSinkOptions, TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Coordinates, RefusedRows, Sorting, find_refused, make_rows
from playhead.pipeline.deliver.jdbc.tables import Fitted, how_of
from playhead.pipeline.deliver.sink import Reject, TaskCommit
from playhead.sql.bulk_load import Copying, copying
from playhead.sql.merge import MergeLayout

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CommittingWriter:
    """`Writer` of PostgreSQL. Picklable: connections are opened in `write`."""

    sorting: Sorting
    target: TargetDatabase
    committing: TaskCommit
    is_careful: bool

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        options, url = self.sorting.options, self.target.url
        with open_ledger(url, _SECONDS) as ledger, copying(url, how_of(options)) as rows:
            load = CarefulLoad(rows, options) if self.is_careful else CopyLoad(rows, options)
            closed = make_rows(claim, batches, self.sorting, self.target, load, reject)
            rows.merge()
            yield closed  # rejected records are written to the queue now: the table takes the others
            self.committing.consent.ask()
            if not RangeLedger(ledger).commit_within(rows.connection, self.committing.run, [(claim, [closed])]):
                raise Busy(f"{claim.range} was committed by another attempt", hint="the rest is planned again")


@dataclass(slots=True)
class CopyLoad:
    """`Load` of rows as bytes of a binary COPY."""

    rows: Copying
    options: JdbcSinkOptions

    @property
    def size(self) -> int:
        return self.rows.size

    def begin(self, layout: MergeLayout) -> None:
        self.rows.begin(layout)

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        for octets in self._octets(fitted, columns, places):
            self.rows.write(octets)
        return ()

    def _octets(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Iterator[memoryview]:
        encoded: list[Encoded] = []
        count = len(places.offsets)
        if not self.options.is_direct:
            partition = pa.repeat(places.partition, count).to_numpy(zero_copy_only=False)
            encoded = [
                Fixed(partition.astype(">i4")),
                Fixed(places.offsets.astype(">i8")),
                Fixed(places.deleted.astype("u1")),
            ]
        for column, target in zip(columns, fitted.columns, strict=True):
            encoded.append(encode_column(column, target, self.options.zones))
        yield from encode_rows(encoded, count)


@dataclass(slots=True)
class CarefulLoad(CopyLoad):
    """Used after the table has refused rows: finds them by trying smaller and smaller pieces."""

    _layout: MergeLayout | None = None

    def begin(self, layout: MergeLayout) -> None:
        self._layout = layout

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        assert self._layout is not None  # noqa: S101  rows follow their layout
        layout = self._layout

        def attempt(start: int, stop: int) -> None:
            some = [column.slice(start, stop - start) for column in columns]
            self.rows.attempt(layout, self._octets(fitted, some, places.slice(start, stop)))

        return find_refused(len(places.offsets), attempt, layout.table)
