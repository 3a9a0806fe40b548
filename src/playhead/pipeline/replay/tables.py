"""Delivers recorded ranges of a JDBC sink again, into its own tables.

Rows that carry their coordinates are deleted and inserted by them (`coordinates.py`). Rows that are found by a key get the last
record of the key up to the committed end (`last.py`). Other rows are refused: nothing tells which of them came from the range.
Rows and the ledger's new generation are one transaction, so nothing is left of a replay that was killed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from playhead.errors import Busy, PlayheadError, RowsRefused
from playhead.ledger.model import ClosedRange, Host, RangeClaim, RecordedRange
from playhead.ledger.redo import DeliveredSpan, Redone
from playhead.model import Result
from playhead.model.outcome import result_of
from playhead.model.ranges import OffsetRange, TopicPartition
from playhead.pipeline.deliver.jdbc.sink import JdbcSink
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED, ReadOptions
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import OFFSET
from playhead.pipeline.deliver.task import deliver, number_claims, read_claims
from playhead.pipeline.replay.coordinates import CoordinateColumns, CoordinatesWriter
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
from playhead.pipeline.replay.table_plan import check_tables, find_deliveries, find_feeding, plan_tails
from playhead.pipeline.spark import bind_address, driver_host
from playhead.pipeline.spark_faults import spark_translated
from playhead.pipeline.task_link import CommitGate
from playhead.sql.target_tables import TargetTableName

_CLOSED = msgspec.json.Decoder(ClosedRange)
_KEYS = msgspec.msgpack.Decoder(FoundKeys)


def open_tables_redo(of: RedoContext, sink: JdbcSink, client: Mapping[str, str]) -> Redo:
    """`client`: the settings of consumers, under the names of librdkafka."""
    columns = check_tables(sink, of.state)
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
        self.of.check_owner()
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
        spans = [one.old[0].closed.range for one in redone]
        state, sink = self._state_now({span.topic for span in spans}), self.sink
        tails, read_to = plan_tails(state, find_deliveries(state, sink, spans), spans, accepts=self.of.accepts)
        claims = [RangeClaim(tail.span, True, self._shape, 0) for tail in tails]
        delivered: dict[TopicPartition, Sequence[DeliveredSpan]] = {tail.span.place: tail.delivered for tail in tails}
        task = TailTask(sink.sorting, sink.target, number_claims(claims), delivered, keys, is_careful, self.of.accepts)
        gate = CommitGate(self.of.check_owner, driver_host(self.of.spark), bind_address(self.of.spark))
        last = LastTask(
            sink.sorting,
            sink.target,
            state.cluster,
            state.pipeline,
            redone,
            keys,
            tables,
            read_to,
            frozenset(self.of.state.positions),
            self._client,
            Host.here(),
            gate.permit,
            self.of.properties.get(ISOLATION, READ_COMMITTED) == READ_COMMITTED,
            is_careful,
            self.of.accepts,
        )
        with gate, spark_translated(f"delivering {redone[0].new[0].range} again"):
            frame = read_claims(self.of.spark, self.reading, claims).mapInArrow(cast(Any, task), FOUND_DDL)
            ordered = frame.repartition(1).sortWithinPartitions(SEQ, TOPIC, PARTITION, OFFSET)
            if not ordered.mapInArrow(cast(Any, last), WRITTEN_DDL).collect():  # no row is left of any key
                self.commit_empty(redone)

    def _state_now(self, topics: Collection[str]) -> SinkState:
        """Its positions may have moved since the plan. Logs of topics that do not feed the tables of these do not matter."""
        state = self.of.state
        positions = state.ranges.positions(state.cluster, state.pipeline)
        fed = find_feeding({log.topic for log in positions}, self.sink, topics)
        if new := sorted(log for log in positions.keys() - state.positions.keys() if log.topic in fed):
            raise Busy(f"{new[0].place} is delivered since this replay was planned", hint="run the same command again")
        return replace(state, positions=positions)


def _refused(old: RecordedRange, closed: ClosedRange, *, accepts: bool) -> RedoOutcome | None:
    why = why_different(old.closed, [closed])
    if not why or accepts:
        return None
    return RedoOutcome(
        old.closed.range, Result.REFUSED, detail=f"{why}; --accept-changes writes what is there now anyway"
    )
