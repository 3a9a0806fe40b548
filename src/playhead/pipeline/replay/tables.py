"""Delivers recorded ranges of a JDBC sink again, into its own tables.

Rows that carry their coordinates are deleted and inserted by them (`coordinates.py`). Rows that are found by a key get the last
record of the key up to the committed end (`last.py`). Other rows are refused: nothing tells which of them came from the range.
Rows and the ledger's new generation are one transaction, so nothing is left of a replay that was killed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from playhead.errors import PlayheadError, Refused, RowsRefused
from playhead.ledger.model import ClosedRange, Host, RangeClaim, RecordedRange
from playhead.ledger.redo import DeliveredSpan, Redone
from playhead.model import Result
from playhead.model.outcome import result_of
from playhead.model.ranges import Log, OffsetRange, TopicPartition
from playhead.pipeline.deliver.jdbc.options import INSERT
from playhead.pipeline.deliver.jdbc.sink import JdbcSink
from playhead.pipeline.deliver.jdbc.tables import name_of
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED, ReadOptions
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import OFFSET
from playhead.pipeline.deliver.task import deliver, number_claims, read_claims
from playhead.pipeline.replay.coordinates import CoordinateColumns, CoordinatesWriter, find_columns
from playhead.pipeline.replay.last import (
    FOUND_DDL,
    KEYS_DDL,
    PARTITION,
    SEQ,
    TOPIC,
    WRITTEN_DDL,
    FoundKeys,
    Keys,
    KeysTask,
    LastTask,
    TailTask,
)
from playhead.pipeline.replay.pieces import why_different
from playhead.pipeline.replay.plan import SinkState
from playhead.pipeline.replay.redo import Redo, RedoClaim, RedoContext, RedoOutcome, in_words
from playhead.pipeline.spark_faults import spark_translated
from playhead.sql.target_tables import TargetTableName

_CLOSED = msgspec.json.Decoder(ClosedRange)
_KEYS = msgspec.msgpack.Decoder(FoundKeys)
_ANYTHING = "${timestamp}"


def check_tables(sink: JdbcSink, name: str, topics: Sequence[str]) -> CoordinateColumns | None:
    """Where the rows have their coordinates. None: they are found by a key. Refused if they are neither."""
    options = sink.sorting.options
    columns = find_columns(sink.sorting, topics)
    if columns is None and (options.insert_mode == INSERT or options.pk_mode == "kafka"):
        raise Refused(
            f"{name} only inserts rows, and they do not carry the coordinates of their records: rows that are delivered again"
            " would be there twice",
            "--to-table writes them to another table; with pk.mode=kafka, or an InsertField with topic.field, partition.field"
            " and offset.field, such rows can be replayed",
        )
    return columns


def describe(columns: CoordinateColumns | None) -> str:
    if columns is None:
        return "write the last record of each key"
    return f"delete and insert by {columns.partition}, {columns.offset}"


def open_tables_redo(of: RedoContext, sink: JdbcSink, client: Mapping[str, str]) -> Redo:
    """`client`: the settings of consumers, under the names of librdkafka."""
    columns = check_tables(sink, of.name, sorted({log.topic for log in of.state.positions}))
    if columns is not None:
        return CoordinatesRedo(of, sink, columns)
    return LastRedo(of, sink, client)


class _TablesRedo(Redo):
    def __init__(self, of: RedoContext, sink: JdbcSink) -> None:
        super().__init__(of, sink.shape)
        self.sink = sink

    @property
    def reading(self) -> ReadOptions:
        return ReadOptions(self.of.properties, self.sink.has_keys, self.sink.has_headers)

    def failed(
        self, claim: RangeClaim, recorded: Sequence[RecordedRange], error: PlayheadError
    ) -> Iterator[RedoOutcome]:
        """The ledger tells what is committed of a step that failed."""
        try:
            done = {one.closed.range for one in self.counting(claim.range) if one.generation == claim.generation}
        except PlayheadError as second:
            yield RedoOutcome(claim.range, Result.UNKNOWN, detail=f"{in_words(error)}; then {in_words(second)}")
            return
        for one in recorded:
            if one.closed.range in done:
                yield RedoOutcome(one.closed.range, Result.CHANGED, one.closed.count, generation=claim.generation)
            else:
                yield RedoOutcome(one.closed.range, result_of(error), detail=in_words(error))

    def outcome(self, claim: RangeClaim, new: ClosedRange, detail: str = "") -> RedoOutcome:
        """Reads the ledger back. Another replay may have committed the same range before, with another generation."""
        found = [one for one in self.counting(new.range) if one.closed.range == new.range]
        names = [output.name for output in new.outputs]
        if not found:
            return RedoOutcome(new.range, Result.UNKNOWN, detail="the ledger has other ranges now")
        (one,) = found
        if one.generation != claim.generation:
            what = "another replay committed the same range before"
            return RedoOutcome(new.range, Result.UNCHANGED, new.count, names, generation=one.generation, detail=what)
        return RedoOutcome(new.range, Result.CHANGED, new.count, names, generation=one.generation, detail=detail)

    def commit_empty(self, empty: Sequence[Redone]) -> None:
        """Ranges without a record have no task."""
        if empty:
            self.of.state.ranges.redo(self.of.state.cluster, self.of.state.pipeline, empty, Host.here())


class CoordinatesRedo(_TablesRedo):
    def __init__(self, of: RedoContext, sink: JdbcSink, columns: CoordinateColumns) -> None:
        super().__init__(of, sink)
        self._columns = columns

    def step(self, step: Sequence[RedoClaim]) -> Iterator[RedoOutcome]:
        state = self.of.state
        recorded = {claim.range.place: some for claim, some in step}
        writer = CoordinatesWriter(
            self.sink.sorting,
            self.sink.target,
            state.cluster,
            state.pipeline,
            recorded,
            self._columns,
            Host.here(),
            self.of.accepts,
        )
        claims = [claim for claim, _ in step]
        policy = RejectPolicy(self.of.name, tolerates=True)
        self.of.logs.check_same([claim.range.log for claim in claims], self.of.deadline())
        try:
            done = dict(deliver(self.of.spark, self.reading, claims, writer, policy))
        except RowsRefused:  # as when they were delivered: those that the table refuses are found and left out
            done = dict(deliver(self.of.spark, self.reading, claims, replace(writer, is_careful=True), policy))
        for claim, some in step:
            found = {closed.range: closed for closed in done[claim]}
            for old in some:
                closed = found.get(old.closed.range, ClosedRange(old.closed.range, 0, 0, 0))
                if (refused := _refused(old, closed, accepts=self.of.accepts)) is not None:
                    yield refused
                    continue
                if closed.range not in found:
                    self.commit_empty([Redone([old], [closed], claim.shape, claim.made_ms, claim.generation)])
                yield self.outcome(claim, closed)


class LastRedo(_TablesRedo):
    def __init__(self, of: RedoContext, sink: JdbcSink, client: Mapping[str, str]) -> None:
        super().__init__(of, sink)
        self._client = client

    def step(self, step: Sequence[RedoClaim]) -> Iterator[RedoOutcome]:
        claims = [claim for claim, _ in step]
        self.of.logs.check_same([claim.range.log for claim in claims], self.of.deadline())
        found = self._keys(step)
        good: list[tuple[RangeClaim, Redone, str]] = []
        keys: Keys = {}
        tables: set[TargetTableName] = set()
        for claim, some in step:
            for old in some:
                closed, of_range = found.get(old.closed.range, (ClosedRange(old.closed.range, 0, 0, 0), None))
                fewer = self._compacted(old, closed)
                if not fewer and (refused := _refused(old, closed, accepts=self.of.accepts)) is not None:
                    yield refused
                    continue
                good.append((claim, Redone([old], [closed], claim.shape, claim.made_ms, claim.generation), fewer))
                for table, some_keys in of_range.keys.items() if of_range else ():
                    keys.setdefault(table, set()).update(some_keys)
                tables |= {TargetTableName(*parts) for parts in of_range.tables.values()} if of_range else set()
        redone = [one for _, one, _ in good]
        if keys:
            self._write(redone, keys, sorted(tables, key=str))
        else:
            self.commit_empty(redone)
        for claim, one, fewer in good:
            yield self.outcome(claim, one.new[0], fewer)

    def _compacted(self, old: RecordedRange, closed: ClosedRange) -> str:
        """Compaction drops a record only if its key has a newer one, which is what such a key has to get."""
        gone = old.closed.count + old.closed.rejected - closed.count - closed.rejected
        if gone <= 0 or closed.range.topic not in self.of.compacted:
            return ""
        return f"{gone} record(s) are compacted away: their keys have newer records"

    def _keys(self, step: Sequence[RedoClaim]) -> dict[OffsetRange, tuple[ClosedRange, FoundKeys]]:
        claims = [claim for claim, _ in step]
        recorded = {claim.range.place: [one.closed for one in some] for claim, some in step}
        numbers = number_claims(claims)
        task = KeysTask(self.sink.sorting, self.sink.target, numbers, recorded)
        with spark_translated(f"reading the keys of {claims[0].range}"):
            frame = read_claims(self.of.spark, self.reading, claims)
            rows = frame.mapInArrow(cast(Any, task), KEYS_DDL).collect()
        found = ((_CLOSED.decode(row["closed"]), _KEYS.decode(row["keys"])) for row in rows)
        return {closed.range: (closed, keys) for closed, keys in found}

    def _write(self, redone: Sequence[Redone], keys: Keys, tables: Sequence[TargetTableName]) -> None:
        try:
            self._written(redone, keys, tables, is_careful=False)
        except RowsRefused:
            self._written(redone, keys, tables, is_careful=True)

    def _written(
        self, redone: Sequence[Redone], keys: Keys, tables: Sequence[TargetTableName], *, is_careful: bool
    ) -> None:
        state, sink = self.of.state, self.sink
        tails, read_to = plan_tails(state, sink, redone, accepts=self.of.accepts)
        claims = [RangeClaim(tail.span, True, self._shape, 0) for tail in tails]
        delivered: dict[TopicPartition, Sequence[DeliveredSpan]] = {tail.span.place: tail.delivered for tail in tails}
        task = TailTask(sink.sorting, sink.target, number_claims(claims), delivered, keys, is_careful)
        last = LastTask(
            sink.sorting,
            sink.target,
            state.cluster,
            state.pipeline,
            redone,
            keys,
            tables,
            read_to,
            self._client,
            Host.here(),
            self.of.properties.get(ISOLATION, READ_COMMITTED) == READ_COMMITTED,
            is_careful,
        )
        with spark_translated(f"delivering {redone[0].new[0].range} again"):
            frame = read_claims(self.of.spark, self.reading, claims).mapInArrow(cast(Any, task), FOUND_DDL)
            ordered = frame.repartition(1).sortWithinPartitions(SEQ, TOPIC, PARTITION, OFFSET)
            if not ordered.mapInArrow(cast(Any, last), WRITTEN_DDL).collect():  # no row is left of any key
                self.commit_empty(redone)


@dataclass(frozen=True, slots=True)
class Tail:
    """What has to be read of a log, up to its committed end."""

    span: OffsetRange
    delivered: Sequence[DeliveredSpan]


def plan_tails(
    state: SinkState, sink: JdbcSink, redone: Sequence[Redone], *, accepts: bool = False
) -> tuple[list[Tail], dict[Log, int]]:
    """Of every log that is written to the same tables: from the first range that was delivered with or after the first of these.
    And the committed end of each of these logs, up to which the tails reach."""
    wanted = {
        one.log: min(other.old[0].closed.range.start for other in redone if other.log == one.log) for one in redone
    }
    positions = state.ranges.positions(state.cluster, state.pipeline)
    fed = _fed(sink, {log.topic for log in wanted}, {log.topic for log in positions})
    delivered = {
        log: state.ranges.list_deliveries(state.cluster, state.pipeline, log) for log in positions if log.topic in fed
    }
    first = min(span.seq for log, start in wanted.items() for span in delivered[log] if span.start >= start)
    tails = []
    for log, spans in delivered.items():
        starts = [span.start for span in spans if span.seq >= first]
        start = min([*starts, *([wanted[log]] if log in wanted else [])], default=None)
        end = positions[log].next_offset
        if start is None or start >= end:
            start = end  # what is delivered from here on is read when the tables are locked
        begins = state.ends[log].start if log in state.ends else None
        if start < end and (begins is None or begins > start):
            if not accepts:
                there = "was deleted and recreated" if begins is None else f"begins at {begins} now"
                raise Refused(
                    f"{log.place} was delivered into the same table after this range, and {there}: newer values of the same keys"
                    " may have been in it",
                    "--accept-changes takes the last records that are there",
                )
            start = end if begins is None else min(begins, end)
        if start < end:
            tails.append(Tail(OffsetRange(*log, start, end), [span for span in spans if span.end > start]))
    return tails, {log: positions[log].next_offset for log in delivered}


def _fed(sink: JdbcSink, topics: set[str], known: set[str]) -> set[str]:
    """The topics that may be written to the same tables."""
    mine = {name for topic in topics for name in _tables(sink, topic)}
    if None in mine:
        return known
    return {topic for topic in known if mine & (theirs := _tables(sink, topic)) or None in theirs}


def _tables(sink: JdbcSink, topic: str) -> set[TargetTableName | None]:
    """None: any."""
    chain, options = sink.sorting.chain, sink.sorting.options
    names = chain.targets(topic) if chain else {topic}
    return {None if _ANYTHING in name else name_of(name, options, sink.target) for name in names}


def _refused(old: RecordedRange, closed: ClosedRange, *, accepts: bool) -> RedoOutcome | None:
    why = why_different(old.closed, [closed])
    if not why or accepts:
        return None
    return RedoOutcome(
        old.closed.range, Result.REFUSED, detail=f"{why}; --accept-changes writes what is there now anyway"
    )
