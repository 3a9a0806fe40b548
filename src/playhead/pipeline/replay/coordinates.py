"""Rows that carry the coordinates of their record are delivered again one by one: those of a range are deleted and inserted.

The coordinates are the primary key (`pk.mode=kafka`), or columns of rows that are only inserted, which an InsertField of the
connector fills from the partition and the offset of the record. A row that is found by another key has the coordinates of its
last record only, and is not replayed by them. Rows and the ledger's new generation are one transaction per recorded range.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Refused
from playhead.ledger.model import ClosedRange, Host, OutputKind, RangeClaim, RecordedRange
from playhead.ledger.redo import Redone, commit_redone, lock_replays
from playhead.model.ranges import TopicPartition
from playhead.pipeline.deliver.jdbc.options import COORDINATES, KAFKA, UPDATE, TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Coordinates, RefusedRows, Sorting, make_rows
from playhead.pipeline.deliver.jdbc.tables import Fitted
from playhead.pipeline.deliver.sink import Reject
from playhead.pipeline.records.transforms import InsertField, Stages
from playhead.pipeline.replay.pieces import Pieces, why_different
from playhead.pipeline.replay.table_rows import TableRows, table_rows
from playhead.sql.merge import MergeLayout, refusing
from playhead.sql.target_tables import Between, TargetTableName, column_name, delete_between, parse_table_name
from playhead.sql.transaction import Connection


@dataclass(frozen=True, slots=True)
class CoordinateColumns:
    """`topic` None: no column has it. `topics`: by topic, the names that its rows may have there."""

    partition: str
    offset: str
    topic: str | None
    topics: Mapping[str, Sequence[str]]

    def of(self, claim: RangeClaim) -> Between:
        span = claim.range
        equal: dict[str, Sequence[object]] = {self.partition: [span.partition]}
        if self.topic is not None:
            equal[self.topic] = self.topics[span.topic]
        return Between(equal, self.offset, span.start, span.end)


def find_columns(sorting: Sorting, topics: Sequence[str]) -> CoordinateColumns | None:
    """Where the rows of this sink have their coordinates. None: nowhere, or not so that rows of two topics can be told apart."""
    options, chain = sorting.options, sorting.chain
    stages: Stages = chain.stages if chain else ()
    targets = {topic: sorted(chain.targets(topic)) if chain else [topic] for topic in topics}
    named = partial(column_name, quotes=options.quotes)
    if options.pk_mode == KAFKA:
        topic, partition, offset = map(named, options.pk_fields or COORDINATES)
        return _distinct(CoordinateColumns(partition, offset, topic, targets))
    if not options.is_direct:
        return None
    for at, stage in enumerate(stages):
        change = stage.change
        if not isinstance(change, InsertField) or stage.on_key or stage.only_if is not None:
            continue
        if change.partition is None or change.offset is None:
            continue
        columns = named(change.partition.name), named(change.offset.name)
        if change.topic is not None:
            from playhead.pipeline.deliver.chain import possible_targets

            before = {topic: sorted(possible_targets(stages[:at], topic)) for topic in topics}
            return _distinct(CoordinateColumns(*columns, named(change.topic.name), before))
        return CoordinateColumns(*columns, None, {}) if len(topics) == 1 else None
    return None


def _distinct(columns: CoordinateColumns) -> CoordinateColumns | None:
    names = [name for some in columns.topics.values() for name in some]
    return columns if len(set(names)) == len(names) and not any("${timestamp}" in name for name in names) else None


@dataclass(frozen=True, slots=True)
class CoordinatesWriter:
    """`Writer`. `recorded`: by topic partition, the ranges of its claim in order. A range whose records are not those that were
    delivered is reported and left as it is, unless `accepts`."""

    sorting: Sorting
    target: TargetDatabase
    cluster: str
    pipeline: str
    recorded: Mapping[TopicPartition, Sequence[RecordedRange]]
    columns: CoordinateColumns
    who: Host
    accepts: bool = False
    is_careful: bool = False

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        pieces = Pieces(batches)
        for old in self.recorded[claim.range.place]:
            span = old.closed.range
            part = replace(claim, range=span)
            try:
                yield self._redone(part, old, pieces.before(span.end), reject)
            except _Different as different:
                yield replace(different.found, outputs=())

    def _redone(
        self, part: RangeClaim, old: RecordedRange, batches: Iterator[pa.RecordBatch], reject: Reject
    ) -> ClosedRange:
        options = self.sorting.options
        deletes = options.insert_mode != UPDATE

        def clear(connection: Connection, table: TargetTableName) -> None:
            lock_replays(connection, self.cluster, self.pipeline)
            if deletes:
                with refusing(table):
                    delete_between(connection, table, self.columns.of(part))

        with table_rows(self.target, options, is_careful=self.is_careful, clear=clear) as rows:
            closed = make_rows(part, batches, self.sorting, self.target, _Checked(rows, self.columns), reject)
            if why_different(old.closed, [closed]) and not self.accepts:
                raise _Different(closed)
            named = (output.name for output in old.closed.outputs if output.kind == OutputKind.TABLE)
            connection = rows.finish([parse_table_name(name, None, quotes=True) for name in named])
            redone = Redone([old], [closed], part.shape, part.made_ms, part.generation)
            commit_redone(connection, self.cluster, self.pipeline, [redone], self.who)
        return closed


class _Different(Exception):
    """Rolls back."""

    def __init__(self, found: ClosedRange) -> None:
        super().__init__()
        self.found = found


@dataclass(slots=True)
class _Checked:
    """`Load`: rows whose columns are not their coordinates would be deleted by the next replay of other offsets."""

    rows: TableRows
    columns: CoordinateColumns

    @property
    def size(self) -> int:
        return self.rows.size

    def begin(self, layout: MergeLayout) -> None:
        self.rows.begin(layout)

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        found = dict(zip((column.name for column in fitted.columns), columns, strict=True))
        wanted = {
            self.columns.offset: places.offsets,
            self.columns.partition: np.full(len(places.offsets), places.partition),
        }
        for name, numbers in wanted.items():
            column = found.get(name)
            if column is None or not pc.all(pc.equal(column.cast(pa.int64()), pa.array(numbers, pa.int64()))).as_py():
                raise Refused(
                    f"column {name} does not hold the coordinates of the records: a transform after InsertField changes it",
                    "write them to another table with --to-table",
                )
        return self.rows.add(fitted, columns, places)
