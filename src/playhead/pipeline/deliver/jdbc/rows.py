"""The records of one claim -> rows of their table: grouped by schema, fitted to the columns, loaded in order.

Tombstones keep their order among the rows. Records that do not fit are reported one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from playhead.errors import RowsRefused
from playhead.ledger.model import ClosedRange, Output, OutputKind, RangeClaim
from playhead.model import TopicPartition
from playhead.pipeline.deliver.chain import SinkChain
from playhead.pipeline.deliver.jdbc.layout import (
    OF_KAFKA,
    OF_KEY,
    RowField,
    UnfitRecord,
    as_stored,
    find_layout,
    find_misfits,
)
from playhead.pipeline.deliver.jdbc.options import (
    COORDINATES,
    RECORD_KEY,
    SQLITE,
    JdbcSinkOptions,
    TargetDatabase,
    Zones,
)
from playhead.pipeline.deliver.jdbc.tables import Fitted, TargetTables, name_of
from playhead.pipeline.deliver.sink import KEY, OFFSET, Reject, RejectedRecord
from playhead.pipeline.digest import Tally
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import KEY_CONVERTER, TASK_PUT, Bad, Batch
from playhead.pipeline.records.decode.columns import ColumnPart, Columns, Converted, Part
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.schema import Schema
from playhead.sql.merge import MergeLayout
from playhead.sql.target_tables import TargetColumn, TargetTableName

_NONE = -1


@dataclass(frozen=True, slots=True)
class RowRun:
    """Adjacent records of one schema. `rows`: their row numbers in the batch. The value columns of tombstones are null."""

    rows: np.ndarray
    deleted: np.ndarray
    key: "_Side | None"
    value: "_Side | None"

    def deletions(self) -> "RowRun":
        """Only the tombstones."""
        key = self.key and _Side(self.key.part, self.key.places[self.deleted])
        return RowRun(self.rows[self.deleted], self.deleted[self.deleted], key, None)

    @property
    def value_schema(self) -> Schema | None:
        return self.value.part.schema if self.value else None

    @property
    def key_schema(self) -> Schema | None:
        return self.key.part.schema if self.key else None


@dataclass(frozen=True, slots=True)
class _Side:
    """`places`: the row number of each record in the part, _NONE for a tombstone."""

    part: ColumnPart
    places: np.ndarray

    def column(self, name: str) -> pa.Array:
        column = self.part.columns.column(name)
        if len(self.places) == len(column) and (np.diff(self.places) == 1).all() and self.places[0] == 0:
            return column
        return column.take(pa.array(self.places, mask=self.places == _NONE))


class Sorted(NamedTuple):
    """Runs in order, by the topic that names their table. `done`: rows that a transform dropped."""

    runs: Mapping[str, Sequence[RowRun]]
    bad: list[Bad]
    done: np.ndarray


@dataclass(frozen=True, slots=True)
class Sorting:
    """Converts the records of a sink and groups them by schema."""

    options: JdbcSinkOptions
    value: Converter
    key: Converter
    chain: SinkChain | None = None

    def sort(self, batch: pa.RecordBatch, place: TopicPartition) -> Sorted:
        """No record is in two runs."""
        if self.chain is None:
            runs, bad = self._sort(Columns(self.value).convert(batch), self._keys(batch), batch.num_rows)
            return Sorted({place.topic: runs}, sorted(bad), np.empty(0, np.int64))
        made = self.chain.apply(batch, place)
        bad, sorted_runs = list(made.bad), {}
        by_topic: dict[str, list[Batch]] = {}
        for one in made.batches:
            by_topic.setdefault(one.topic, []).append(one)
        for topic, batches in by_topic.items():
            count, parts = batch.num_rows, [Part(one.rows, one.value) for one in batches]
            values = Columns(self.value).to_columns(parts, count, TASK_PUT)
            keys = None
            if self.options.pk_mode == RECORD_KEY:
                parts = [Part(one.rows, one.key) for one in batches]
                keys = Columns(self.key, single=self._single).to_columns(parts, count, TASK_PUT)
            sorted_runs[topic], more = self._sort(values, keys, count, TASK_PUT)
            bad += more
        return Sorted(sorted_runs, sorted(bad), made.filtered)

    def _sort(
        self, values: Converted, keys: Converted | None, count: int, stage: str = KEY_CONVERTER
    ) -> tuple[list[RowRun], list[Bad]]:
        """`stage`: where keys are rejected that do not fit."""
        bad = list(values.bad)
        which, places = _lookup(values, count)
        deleted = values.tombstones & self.options.deletes
        if not self.options.deletes:
            bad += [Bad(int(row), "its value is null", TASK_PUT) for row in np.flatnonzero(values.tombstones)]
        fit = (which != _NONE) | deleted
        key_which, key_places = _lookup(keys, count) if keys else (np.zeros_like(which), which)
        if keys:
            known = {one.row for one in bad}
            bad += [one for one in _bad_keys(keys, stage) if one.row not in known]
            fit &= key_which != _NONE
        groups = _filled(which, fit)
        runs = []
        for rows in _split(np.flatnonzero(fit), groups, key_which):
            group = int(groups[rows[0]])
            value = None if group == _NONE else _Side(values.parts[group], np.where(deleted[rows], _NONE, places[rows]))
            key = _Side(keys.parts[int(key_which[rows[0]])], key_places[rows]) if keys else None
            runs.append(RowRun(rows, deleted[rows], key, value))
        return runs, bad

    def _keys(self, batch: pa.RecordBatch) -> Converted | None:
        if self.options.pk_mode != RECORD_KEY:
            return None
        return Columns(self.key, column=KEY, single=self._single).convert(batch)

    @property
    def _single(self) -> str:
        """The column of a key that is no struct."""
        return self.options.pk_fields[0] if len(self.options.pk_fields) == 1 else ""


def _bad_keys(keys: Converted, stage: str) -> Iterator[Bad]:
    for row in np.flatnonzero(keys.tombstones).tolist():
        yield Bad(row, "its key is null, which pk.mode=record_key does not allow", TASK_PUT)
    for one in keys.bad:
        yield Bad(one.row, f"its key does not fit: {one.reason}", stage)


def _lookup(converted: Converted, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each record: its part, and its row number there."""
    which, places = np.full(count, _NONE), np.full(count, _NONE)
    for number, part in enumerate(converted.parts):
        which[part.rows] = number
        places[part.rows] = np.arange(len(part.rows))
    return which, places


def _filled(which: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """Tombstones have no schema: they join the group of the records before them, at the start of the records after them."""
    known = np.flatnonzero(fit & (which != _NONE))
    if not len(known):
        return np.full(len(which), _NONE)
    if len(known) == len(which):
        return which
    before = np.searchsorted(known, np.arange(len(which)), side="right") - 1
    filled: np.ndarray = which[known[np.maximum(before, 0)]]
    return filled


def _split(rows: np.ndarray, *codes: np.ndarray) -> Iterator[np.ndarray]:
    changes = np.zeros(max(0, len(rows) - 1), bool)
    for code in codes:
        changes |= np.diff(code[rows]) != 0
    yield from (run for run in np.split(rows, np.flatnonzero(changes) + 1) if len(run))


class Coordinates(NamedTuple):
    """The partition and offsets of rows, and which of them are deletions."""

    partition: int
    offsets: np.ndarray
    deleted: np.ndarray

    def slice(self, start: int, stop: int) -> "Coordinates":
        return Coordinates(self.partition, self.offsets[start:stop], self.deleted[start:stop])


class RefusedRows(NamedTuple):
    """`row` counts from 0 in the rows that were added."""

    row: int
    reason: str


def find_refused(count: int, attempt: Callable[[int, int], None], table: TargetTableName) -> list[RefusedRows]:
    """The refused ones of `count` rows, in order. `attempt` tries rows from start to stop; a refused range is halved, down to one
    row."""
    refused = []
    ranges = [(0, count)]
    while ranges:
        start, stop = ranges.pop()
        try:
            attempt(start, stop)
        except RowsRefused as error:
            if stop - start == 1:
                refused.append(RefusedRows(start, f"table {table} refuses it: {error.message}"))
            else:
                middle = (start + stop) // 2
                ranges += [(middle, stop), (start, middle)]
    return refused


class Load(Protocol):
    """The target of rows. `size`: in bytes, as far as known."""

    @property
    def size(self) -> int: ...

    def begin(self, layout: MergeLayout) -> None:
        """The rows that follow are of this layout."""
        ...

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        """Returns the rows that the table refuses; the others are loaded."""
        ...


@dataclass(slots=True)
class RowMaker:
    claim: RangeClaim
    sorting: Sorting
    target: TargetDatabase
    load: Load
    reject: Reject
    _tables: dict[str, TargetTables] = field(default_factory=dict)  # by topic
    _counts: dict[str, int] = field(default_factory=dict)  # by table
    _loaded: MergeLayout | None = None
    _schemas: dict[str, Schema | None] = field(default_factory=dict)  # of a topic's last value, for tombstones
    _tally: Tally = field(default_factory=Tally)
    _late: set[int] = field(default_factory=set)  # rows of the batch that the table refused

    @property
    def options(self) -> JdbcSinkOptions:
        return self.sorting.options

    def take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._late.clear()
        found = self.sorting.sort(batch, self.claim.range.place)
        delivered, bad = [found.done], found.bad
        for topic, runs in found.runs.items():
            tables = self._tables_of(topic)
            for run in runs:
                kept, unfit = self._run(tables, topic, run, batch)
                delivered.append(kept)
                bad += unfit
                self._counts[str(tables.name)] = self._counts.get(str(tables.name), 0) + len(kept)
        self._reject(batch, bad)
        self._tally.add_rows(batch, np.concatenate(delivered))

    def closed(self) -> ClosedRange:
        """The size is known of all tables together, and stands with the first."""
        counts = [(name, count) for name, count in self._counts.items() if count]
        sizes = [self.load.size, *[0] * len(counts)]
        tables = (
            Output(name, count, size, OutputKind.TABLE) for (name, count), size in zip(counts, sizes, strict=False)
        )
        return self._tally.closed(self.claim.range, tuple(tables))

    def _tables_of(self, topic: str) -> TargetTables:
        if topic not in self._tables:
            name = name_of(topic, self.options, self.target)
            self._tables[topic] = TargetTables(name, self.options, self.target)
        return self._tables[topic]

    def _reject(self, batch: pa.RecordBatch, bad: list[Bad]) -> None:
        span = self.claim.range
        for one in sorted(bad):
            self._tally.rejected += 1
            offset = batch.column(OFFSET)[one.row].as_py()
            self.reject(RejectedRecord.of(span, offset, one, is_late=one.row in self._late))

    def _run(
        self, tables: TargetTables, topic: str, run: RowRun, batch: pa.RecordBatch
    ) -> tuple[np.ndarray, list[Bad]]:
        """The rows that were loaded or not needed, and those that do not fit."""
        schema = run.value_schema or self._schemas.get(topic)
        try:
            layout = find_layout(self.options, run.key_schema, schema)
            fitted = tables.fit(layout, deletes_only=schema is None)
        except UnfitRecord as error:
            bad = [Bad(int(row), str(error), TASK_PUT) for row in run.rows]
            if run.deleted.all() or not run.deleted.any():  # the keys do not fit, or there are no tombstones
                return run.rows[:0], bad
            # The tombstones among them need only their keys.
            kept, more = self._run(tables, topic, run.deletions(), batch)
            return kept, [one for one, is_deleted in zip(bad, run.deleted, strict=True) if not is_deleted] + more
        self._schemas[topic] = schema
        if fitted is None:
            return run.rows, []
        columns = [self._stored(one, target, topic, run, batch) for one, target in fitted.pairs]
        bad = _misfits(fitted, columns, run, self.options.zones)
        keep = np.ones(len(run.rows), bool)
        if bad:
            keep[np.searchsorted(run.rows, [one.row for one in bad])] = False
            columns = [column.filter(pa.array(keep)) for column in columns]
        rows = run.rows[keep]
        if len(rows):
            self._begin(fitted.layout(tables.name))
            offsets = batch.column(OFFSET).to_numpy()[rows]
            refused = self.load.add(
                fitted, columns, Coordinates(self.claim.range.partition, offsets, run.deleted[keep])
            )
            bad += [Bad(int(rows[one.row]), one.reason, TASK_PUT) for one in refused]
            self._late |= {int(rows[one.row]) for one in refused}
            rows = np.delete(rows, [one.row for one in refused])
        return rows, bad

    def _stored(self, one: RowField, target: TargetColumn, topic: str, run: RowRun, batch: pa.RecordBatch) -> pa.Array:
        column = self._column(one, topic, run, batch)
        return column if self.target.product == SQLITE else as_stored(column, target)

    def _column(self, one: RowField, topic: str, run: RowRun, batch: pa.RecordBatch) -> pa.Array:
        if one.source == OF_KAFKA:
            place = (self.options.pk_fields or COORDINATES).index(one.name)
            if place == 2:
                return batch.column(OFFSET).take(pa.array(run.rows))
            value = pa.scalar(topic) if place == 0 else pa.scalar(self.claim.range.partition, pa.int32())
            return pa.repeat(value, len(run.rows))
        side = run.key if one.source == OF_KEY else run.value
        if side is None:  # the batch has tombstones only
            return pa.nulls(len(run.rows), arrow_type(one.schema))
        return side.column(one.name)

    def _begin(self, layout: MergeLayout) -> None:
        if layout != self._loaded:
            self._loaded = layout
            self.load.begin(layout)


def make_rows(
    claim: RangeClaim,
    batches: Iterator[pa.RecordBatch],
    sorting: Sorting,
    target: TargetDatabase,
    load: Load,
    reject: Reject,
) -> ClosedRange:
    """Loads all records of a claim, and returns the closed range."""
    maker = RowMaker(claim, sorting, target, load, reject)
    for batch in batches:
        maker.take(batch)
    return maker.closed()


def _misfits(fitted: Fitted, columns: list[pa.Array], run: RowRun, zones: Zones) -> list[Bad]:
    """One reason per record: that of the first column."""
    found: dict[int, str] = {}
    for (one, target), column in zip(fitted.pairs, columns, strict=True):
        for wrong, reason in find_misfits(column, target, zones, is_key=one.is_key):
            mask = wrong if one.is_key else wrong & ~run.deleted
            for row in run.rows[mask].tolist():
                found.setdefault(row, reason)
    return [Bad(row, reason, TASK_PUT) for row, reason in sorted(found.items())]
