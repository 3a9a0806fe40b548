"""The records of one claim become rows of their table: sorted by schema, fitted to its columns, handed to a load in order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from playhead.errors import RowsRefused
from playhead.pipeline.sinks import OFFSET, TASK_PUT, Reject, Rejected
from playhead.pipeline.sinks.jdbc.address import Target
from playhead.pipeline.sinks.jdbc.batches import Run, Sorting
from playhead.pipeline.sinks.jdbc.fitting import find_misfits
from playhead.pipeline.sinks.jdbc.layout import OF_KAFKA, OF_KEY, Field, Unfit, find_layout
from playhead.pipeline.sinks.jdbc.options import COORDINATES, JdbcSinkOptions
from playhead.pipeline.sinks.jdbc.tables import Fitted, Tables, name_of
from playhead.pipeline.sinks.tally import Tally
from playhead.pipeline.sinks.values import Bad
from playhead.pipeline.sinks.values.arrowtypes import arrow_type
from playhead.pipeline.sinks.values.schema import Schema
from playhead.sql.merging import Layout
from playhead.sql.range_values import ClosedRange, Output, OutputKind, RangeClaim
from playhead.sql.target_tables import TableName


class Places(NamedTuple):
    """Of rows: where their records are, and which of them delete."""

    partition: int
    offsets: np.ndarray
    deleted: np.ndarray

    def slice(self, start: int, stop: int) -> "Places":
        return Places(self.partition, self.offsets[start:stop], self.deleted[start:stop])


class Refused(NamedTuple):
    """`row` counts from 0 in what was added."""

    row: int
    reason: str


def find_refused(count: int, attempt: Callable[[int, int], None], table: TableName) -> list[Refused]:
    """Of so many rows, in order. `attempt` tries those from here to there; what is refused together is halved, down to one."""
    refused = []
    ranges = [(0, count)]
    while ranges:
        start, stop = ranges.pop()
        try:
            attempt(start, stop)
        except RowsRefused as error:
            if stop - start == 1:
                refused.append(Refused(start, f"table {table} does not take it: {error.message}"))
            else:
                middle = (start + stop) // 2
                ranges += [(middle, stop), (start, middle)]
    return refused


class Load(Protocol):
    """Where rows go. `size` is in bytes, as far as known."""

    @property
    def size(self) -> int: ...

    def begin(self, layout: Layout) -> None:
        """The rows that follow are of this layout."""
        ...

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Places) -> Sequence[Refused]:
        """Gives those that the table does not take; the others are there."""
        ...


@dataclass(slots=True)
class RowMaker:
    claim: RangeClaim
    sorting: Sorting
    tables: Tables
    load: Load
    reject: Reject
    _fitted: Fitted | None = None
    _schema: Schema | None = None  # of the last value, for tombstones that have none
    _tally: Tally = field(default_factory=Tally)

    @property
    def options(self) -> JdbcSinkOptions:
        return self.sorting.options

    def take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        runs, bad = self.sorting.sort(batch)
        delivered = []
        for run in runs:
            kept, unfit = self._run(run, batch)
            delivered.append(kept)
            bad += unfit
        self._tell(batch, bad)
        self._tally.add_rows(batch, np.concatenate(delivered) if delivered else np.empty(0, np.int64))

    def closed(self) -> ClosedRange:
        count = self._tally.count
        table = Output(str(self.tables.name), count, self.load.size, OutputKind.TABLE)
        return self._tally.closed(self.claim.range, (table,) if count else ())

    def _tell(self, batch: pa.RecordBatch, bad: list[Bad]) -> None:
        span = self.claim.range
        for one in sorted(bad):
            self._tally.rejected += 1
            offset = batch.column(OFFSET)[one.row].as_py()
            self.reject(Rejected(span.topic, span.partition, offset, one.reason, one.stage))

    def _run(self, run: Run, batch: pa.RecordBatch) -> tuple[np.ndarray, list[Bad]]:
        """The rows that were handed on, or are not needed, and those that do not fit."""
        schema = run.value_schema or self._schema
        try:
            layout = find_layout(self.options, run.key_schema, schema)
            fitted = self.tables.fit(layout, deletes_only=schema is None)
        except Unfit as error:
            return self._deletions(run, batch, str(error))
        self._schema = schema
        if fitted is None:
            return run.rows, []
        columns = [self._column(one, run, batch) for one in fitted.fields]
        bad = _misfits(fitted, columns, run)
        keep = np.ones(len(run.rows), bool)
        if bad:
            keep[np.searchsorted(run.rows, [one.row for one in bad])] = False
            columns = [column.filter(pa.array(keep)) for column in columns]
        rows = run.rows[keep]
        if len(rows):
            refused = self._add(fitted, columns, batch.column(OFFSET).to_numpy()[rows], run.deleted[keep])
            bad += [Bad(int(rows[one.row]), one.reason, TASK_PUT) for one in refused]
            rows = np.delete(rows, [one.row for one in refused])
        return rows, bad

    def _deletions(self, run: Run, batch: pa.RecordBatch, reason: str) -> tuple[np.ndarray, list[Bad]]:
        """Of records whose schema does not fit: the tombstones among them need only their keys."""
        bad = [Bad(int(row), reason, TASK_PUT) for row in run.rows]
        if run.deleted.all() or not run.deleted.any():  # the keys do not fit, or there are no tombstones
            return run.rows[:0], bad
        kept, more = self._run(run.deletions(), batch)
        return kept, [one for one, is_gone in zip(bad, run.deleted, strict=True) if not is_gone] + more

    def _column(self, one: Field, run: Run, batch: pa.RecordBatch) -> pa.Array:
        if one.source == OF_KAFKA:
            place = (self.options.pk_fields or COORDINATES).index(one.name)
            if place == 2:
                return batch.column(OFFSET).take(pa.array(run.rows))
            span = self.claim.range
            value = pa.scalar(span.topic) if place == 0 else pa.scalar(span.partition, pa.int32())
            return pa.repeat(value, len(run.rows))
        side = run.key if one.source == OF_KEY else run.value
        if side is None:  # tombstones of a batch that has nothing else
            return pa.nulls(len(run.rows), arrow_type(one.schema))
        return side.column(one.name)

    def _add(
        self, fitted: Fitted, columns: list[pa.Array], offsets: np.ndarray, deleted: np.ndarray
    ) -> Sequence[Refused]:
        if fitted != self._fitted:
            self._fitted = fitted
            self.load.begin(fitted.layout(self.tables.name))
        return self.load.add(fitted, columns, Places(self.claim.range.partition, offsets, deleted))


def make_rows(
    claim: RangeClaim, batches: Iterator[pa.RecordBatch], sorting: Sorting, target: Target, load: Load, reject: Reject
) -> ClosedRange:
    """Of a whole claim, and what it comes to."""
    tables = Tables(name_of(claim.range.topic, sorting.options, target), sorting.options, target)
    maker = RowMaker(claim, sorting, tables, load, reject)
    for batch in batches:
        maker.take(batch)
    return maker.closed()


def _misfits(fitted: Fitted, columns: list[pa.Array], run: Run) -> list[Bad]:
    """One reason a record, that of the first column."""
    found: dict[int, str] = {}
    for (one, target), column in zip(fitted.pairs, columns, strict=True):
        for wrong, reason in find_misfits(column, target, is_key=one.is_key):
            mask = wrong if one.is_key else wrong & ~run.deleted
            for row in run.rows[mask].tolist():
                found.setdefault(row, reason)
    return [Bad(row, reason, TASK_PUT) for row, reason in sorted(found.items())]
