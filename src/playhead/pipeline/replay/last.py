"""Rows that are found by a key are delivered again by key: each key of a range with its last record up to the committed end.

An old record alone would cover what a newer one has written. So the keys of the range are read first. Then everything that was
delivered after it is read, of every topic partition that is written to the same tables, and of each key the last record is kept:
the last one of each set of columns, because a record changes only the columns that it has, and the last tombstone. They are
written in the order in which runs have delivered them. Right before that no other process can merge into the tables any more, and
what a live run has delivered since the reading is read as well. So the rows are those of the committed end at that moment,
and are committed together with the ledger's new generation.

A key that looks like another one (case, blanks at the end, zeros of a decimal) may be written too: with its own last record.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from playhead.errors import Busy, PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.log import capture, read_messages
from playhead.kafka.properties import ClientSettings
from playhead.ledger import range_rows
from playhead.ledger.model import ClosedRange, Host, RangeClaim
from playhead.ledger.redo import DeliveredSpan, Redone, commit_redone, load_deliveries
from playhead.model import Deadline
from playhead.model.ranges import Log, OffsetRange, TopicPartition
from playhead.pipeline.deliver.jdbc.options import TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Coordinates, RefusedRows, RowMaker, Sorting
from playhead.pipeline.deliver.jdbc.tables import Fitted
from playhead.pipeline.deliver.sink import (
    HEADERS,
    KEY,
    OFFSET,
    RECORDS,
    TIMESTAMP,
    VALUE,
    CommitPermit,
    RejectedRecord,
)
from playhead.pipeline.deliver.task import CLAIM, sink_records
from playhead.pipeline.replay.pieces import Pieces
from playhead.pipeline.replay.table_plan import find_feeding
from playhead.pipeline.replay.table_rows import TableRows, table_rows
from playhead.pipeline.spark_faults import marked
from playhead.sql.merge import MergeLayout
from playhead.sql.target_tables import TargetTableName
from playhead.sql.transaction import Connection

Keys = dict[str, set[str]]  # by table, in the form that `_looks` gives them
TableNames = dict[str, tuple[str | None, str]]
KEYS = pa.schema([(CLAIM, pa.int32()), ("closed", pa.binary()), ("keys", pa.binary())])
KEYS_DDL = f"{CLAIM} int, closed binary, keys binary"
SEQ, TOPIC, PARTITION = "seq", "topic", "partition"
_OF_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FOUND = pa.schema(
    [
        (SEQ, pa.int64()),
        (TOPIC, pa.string()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (TIMESTAMP, pa.int64()),
        (KEY, pa.binary()),
        (VALUE, pa.binary()),
        (HEADERS, _OF_HEADERS),
    ]
)
FOUND_DDL = (
    f"{SEQ} bigint, {TOPIC} string, {PARTITION} int, {OFFSET} bigint, {TIMESTAMP} bigint, {KEY} binary, {VALUE} binary,"
    f" {HEADERS} array<struct<key: string, value: binary>>"
)
WRITTEN = pa.schema([("rows", pa.int64())])
WRITTEN_DDL = "rows bigint"
_MOST_HELD = 20_000  # records of a task before those that are covered by later ones are dropped
_SECONDS = 300.0


class FoundKeys(msgspec.Struct, array_like=True):
    """The keys of one recorded range, and the tables that they are in."""

    keys: dict[str, list[str]]
    tables: TableNames


@dataclass(frozen=True, slots=True)
class KeysTask:
    """Reads the recorded ranges of a claim: what of each is there now, and its keys. Writes nothing."""

    sorting: Sorting
    target: TargetDatabase
    claims: Mapping[int, RangeClaim]
    recorded: Mapping[TopicPartition, Sequence[ClosedRange]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _marking():
            number, records = _numbered(batches)
            if number is None:
                return
            claim, pieces = self.claims[number], Pieces(records)
            for old in self.recorded[claim.range.place]:
                load = _KeyLoad(None)
                maker = _maker(old.range, claim, self.sorting, self.target, load)
                for batch in pieces.before(old.range.end):
                    maker.take(batch)
                closed, keys = msgspec.json.encode(maker.closed()), _encoded(load)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([closed], pa.binary()), pa.array([keys], pa.binary())],
                    schema=KEYS,
                )


def _encoded(load: "_KeyLoad") -> bytes:
    keys = {table: sorted(some) for table, some in load.seen.items()}
    return msgspec.msgpack.encode(FoundKeys(keys, {str(name): (name.schema, name.name) for name in load.tables}))


@dataclass(frozen=True, slots=True)
class TailTask:
    """Of what was delivered of a log: the records that still count for some of these keys. `delivered`: by topic partition, in
    order. `keeps_all`: earlier records of a key too, because the table may refuse the last one. `accepts`: records that fitted
    when they were delivered are left out if they do not fit now."""

    sorting: Sorting
    target: TargetDatabase
    claims: Mapping[int, RangeClaim]
    delivered: Mapping[TopicPartition, Sequence[DeliveredSpan]]
    keys: Keys = field(repr=False)
    keeps_all: bool = False
    accepts: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _marking():
            number, records = _numbered(batches)
            if number is None:
                return
            span = self.claims[number].range
            yield from _matching(self, span, records, self.delivered[span.place])


def _matching(
    task: "TailTask | LastTask",
    span: OffsetRange,
    records: Iterator[pa.RecordBatch],
    delivered: Sequence[DeliveredSpan],
) -> Iterator[pa.RecordBatch]:
    load = _KeyLoad(task.keys)
    rejected: list[int] = []
    maker = _maker(span, None, task.sorting, task.target, load, lambda one: rejected.append(one.offset))
    starts = np.array([one.start for one in delivered], np.int64)
    ends, seqs = (np.array([getattr(one, name) for one in delivered], np.int64) for name in ("end", "seq"))
    newest: dict[tuple[object, ...], int] = {}
    held: list[pa.RecordBatch] = []
    for batch in records:
        offsets = batch.column(OFFSET).to_numpy()
        at = np.searchsorted(starts, offsets, side="right") - 1
        inside = (at >= 0) & (offsets < ends[np.maximum(at, 0)])  # other offsets were skipped by an operator
        if not inside.all():
            batch, at = batch.filter(pa.array(inside)), at[inside]  # noqa: PLW2901
        load.found.clear()
        maker.take(batch)
        kept = {offset: identity for identity, offset in load.found}
        if not kept:
            continue
        newest.update((identity, offset) for offset, identity in sorted(kept.items(), key=lambda one: one[0]))
        mask = np.isin(batch.column(OFFSET).to_numpy(), list(kept))
        held.append(_found(batch.filter(pa.array(mask)), span.place, seqs[at][mask]))
        if not task.keeps_all and sum(one.num_rows for one in held) > max(_MOST_HELD, 2 * len(newest)):
            held = _only(held, newest)
    if not task.accepts:
        _check_rejected(span, rejected, delivered)
    yield from held if task.keeps_all else _only(held, newest)


def _check_rejected(span: OffsetRange, rejected: Sequence[int], delivered: Sequence[DeliveredSpan]) -> None:
    """A record that was delivered and does not fit now may be the newest of its key: an older one must not take its place."""
    if not rejected:
        return
    starts = np.array([one.start for one in delivered], np.int64)
    counts = Counter((np.searchsorted(starts, np.array(rejected, np.int64), side="right") - 1).tolist())
    for at, count in sorted(counts.items()):
        one = delivered[at]
        if count > one.rejected:
            part = replace(span, start=one.start, end=one.end)
            raise Refused(
                f"{count - one.rejected} record(s) of {part}, which was delivered later, do not fit the options now: they may be"
                " the newest ones of their keys",
                "--accept-changes leaves them out",
            )


def _only(held: Sequence[pa.RecordBatch], newest: Mapping[tuple[object, ...], int]) -> list[pa.RecordBatch]:
    wanted = np.array(sorted(newest.values()), np.int64)
    return [one.filter(pa.array(np.isin(one.column(OFFSET).to_numpy(), wanted))) for one in held]


def _found(batch: pa.RecordBatch, place: TopicPartition, seqs: np.ndarray) -> pa.RecordBatch:
    count = batch.num_rows
    times = batch.column(TIMESTAMP).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    headers = batch.column(HEADERS).cast(_OF_HEADERS) if HEADERS in batch.schema.names else pa.nulls(count, _OF_HEADERS)
    columns = [
        pa.array(seqs, pa.int64()),
        pa.repeat(place.topic, count),
        pa.repeat(pa.scalar(place.partition, pa.int32()), count),
    ]
    columns += [batch.column(OFFSET), times, batch.column(KEY), batch.column(VALUE), headers]
    return pa.RecordBatch.from_arrays(columns, schema=FOUND)


@dataclass(frozen=True, slots=True)
class LastTask:
    """The only one of its stage: gets the records of `TailTask` in the order of their delivery, writes them and commits.
    `read_to`: up to which offset each log was read. `known`: the logs that had a position when it was planned. `client`: the
    settings of the consumers, with their secrets. `permit`: asked right before the rows are written."""

    sorting: Sorting
    target: TargetDatabase
    cluster: str
    pipeline: str
    redone: Sequence[Redone]
    keys: Keys = field(repr=False)
    tables: Sequence[TargetTableName]
    read_to: Mapping[Log, int]
    known: frozenset[Log]
    client: Mapping[str, str] = field(repr=False)
    who: Host
    permit: CommitPermit
    committed_only: bool = True
    is_careful: bool = False
    accepts: bool = False

    @property
    def keeps_all(self) -> bool:
        return self.is_careful

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _marking():
            context = cast(TaskContext, TaskContext.get())
            if context.attemptNumber():
                raise Refused("Spark retried a task; run the same command again")
            yield pa.RecordBatch.from_arrays([pa.array([self._written(batches)], pa.int64())], schema=WRITTEN)

    def _written(self, batches: Iterator[pa.RecordBatch]) -> int:
        options = self.sorting.options
        with table_rows(self.target, options, is_careful=self.is_careful) as rows:
            writing = _Writing(self, rows)
            for batch in batches:
                writing.take(batch)
            connection = rows.lock(self.tables)
            writing.turn = None  # a COPY that was open is not any more
            for batch in sorted(self._since(connection), key=_first):
                writing.take(batch)
            self.permit.ask()
            connection = rows.finish()
            commit_redone(connection, self.cluster, self.pipeline, self.redone, self.who)
        return writing.count

    def _since(self, connection: Connection) -> Iterator[pa.RecordBatch]:
        """What was delivered after the tail was read. Nothing of it can be merged while the tables are locked."""
        positions = range_rows.load_positions(connection, self.cluster, self.pipeline)
        topics = {one.log.topic for one in self.redone}
        fed = find_feeding({place.topic for place in positions}, self, topics)
        logs = {place: Log(place.topic, at.topic_id, place.partition) for place, at in positions.items()}
        if new := [place for place, log in logs.items() if log not in self.known and log.topic in fed]:
            raise Busy(f"{new[0]} is delivered since this replay was planned", hint="run the same command again")
        for log, start in self.read_to.items():
            position = positions.get(log.place)
            if position is None or position.topic_id != log.topic_id:
                raise Refused(f"the position of {log.place} was deleted while its past was replayed", "plan again")
            if position.next_offset > start:
                span = OffsetRange(*log, start, position.next_offset)
                delivered = load_deliveries(connection, self.cluster, self.pipeline, log, start)
                for batch in _matching(self, span, self._read(span), delivered):
                    yield from _by_run(batch)

    def _read(self, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        deadline = Deadline(_SECONDS)
        with Admin(ClientSettings(dict(self.client)), deadline) as admin:
            captured = capture(
                admin, span.topic, deadline, committed=self.committed_only, partitions=[span.partition]
            ).narrowed({span.partition: (span.start, span.end)})
            if captured.end_of(span.partition) < span.end:
                raise Refused(f"{span} was delivered, and the topic ends at {captured.end_of(span.partition)}")
            for some in read_messages(admin, captured, deadline):
                headers = [
                    [{"key": name, "value": value} for name, value in one.headers() or ()] or None for one in some
                ]
                columns = [
                    pa.array([one.offset() for one in some], pa.int64()),
                    pa.array([one.timestamp()[1] * 1000 for one in some], pa.int64()).cast(pa.timestamp("us", "UTC")),
                    pa.array([one.key() for one in some], pa.binary()),
                    pa.array([one.value() for one in some], pa.binary()),
                    pa.array([0] * len(some), pa.int64()),
                ]
                yield pa.RecordBatch.from_arrays(
                    [*columns, pa.array(headers, _OF_HEADERS)], names=[*RECORDS.names, HEADERS]
                )


@dataclass(slots=True)
class _Writing:
    """Takes records in order, and gives each run of one topic partition to its row maker. Each row has its place in that order
    instead of its offset: merging looks for the last one."""

    task: LastTask
    rows: TableRows
    count: int = 0
    turn: "_Turn | None" = None
    _makers: dict[TopicPartition, tuple[RowMaker, "_Turn"]] = field(default_factory=dict)
    place: int = 0

    def take(self, batch: pa.RecordBatch) -> None:
        for run in _by_run(batch):
            at = TopicPartition(run.column(TOPIC)[0].as_py(), run.column(PARTITION)[0].as_py())
            if at not in self._makers:
                turn = _Turn(self)
                span = OffsetRange(at.topic, "", at.partition, 0, 1)
                self._makers[at] = _maker(span, None, self.task.sorting, self.task.target, turn), turn
            maker, turn = self._makers[at]
            turn.offsets = run.column(OFFSET).to_numpy()
            maker.take(_as_records(run))
            self.place += run.num_rows


@dataclass(slots=True)
class _Turn:
    """`Load` of one row maker over the transaction that all share."""

    writing: _Writing
    offsets: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    layout: MergeLayout | None = None

    @property
    def size(self) -> int:
        return 0

    def begin(self, layout: MergeLayout) -> None:
        self.layout, self.writing.turn = layout, None

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        assert self.layout is not None  # noqa: S101  rows follow their layout
        if self.writing.turn is not self:
            self.writing.rows.begin(self.layout)
            self.writing.turn = self
        order = self.writing.place + np.searchsorted(self.offsets, places.offsets)
        refused = self.writing.rows.add(fitted, columns, Coordinates(0, order.astype(np.int64), places.deleted))
        self.writing.count += len(places.offsets) - len(refused)
        return refused


@dataclass(slots=True)
class _KeyLoad:
    """`Load` that only looks at the keys. `keys` None: all are `seen`; else rows with one of these are `found`, each with its
    identity: what a later row of the same identity covers."""

    keys: Keys | None
    seen: Keys = field(default_factory=dict)
    tables: set[TargetTableName] = field(default_factory=set)
    found: list[tuple[tuple[object, ...], int]] = field(default_factory=list)
    _layout: MergeLayout | None = None

    @property
    def size(self) -> int:
        return 0

    def begin(self, layout: MergeLayout) -> None:
        self._layout = layout

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        assert self._layout is not None  # noqa: S101  rows follow their layout
        layout = self._layout
        table = str(layout.table)
        keys = [column for (one, _), column in zip(fitted.pairs, columns, strict=True) if one.is_key]
        looks = _looks(keys)
        if self.keys is None:
            self.tables.add(layout.table)
            self.seen.setdefault(table, set()).update(looks)
            return ()
        wanted = self.keys.get(table)
        if not wanted:
            return ()
        mask = np.fromiter((look in wanted for look in looks), bool, len(looks))
        if mask.any():
            exact = zip(*(_plain(column.filter(pa.array(mask))).to_pylist() for column in keys), strict=True)
            some = zip(exact, places.deleted[mask].tolist(), places.offsets[mask].tolist(), strict=True)
            self.found += [((table, None if gone else layout.columns, *key), offset) for key, gone, offset in some]
        return ()


def _looks(keys: Sequence[pa.Array]) -> list[str]:
    """One text per row. Keys that the database may treat as equal have the same text; the opposite need not hold."""
    parts = [pc.fill_null(_look(column), "") for column in keys]
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "\x1f")
    found: list[str] = joined.to_pylist()
    return found


def _look(column: pa.Array) -> pa.Array:
    plain = _plain(column)
    if pa.types.is_binary(plain.type):
        return pa.array([None if one is None else one.hex() for one in plain.to_pylist()], pa.string())
    if pa.types.is_floating(plain.type):
        plain = pc.add(plain, 0.0)  # there is a negative zero
    text = plain.cast(pa.string())
    if pa.types.is_decimal(plain.type):
        return pc.replace_substring_regex(pc.replace_substring_regex(text, r"(\.[0-9]*?)0+$", r"\1"), r"\.$", "")
    if pa.types.is_string(plain.type):
        return pc.utf8_lower(pc.replace_substring_regex(text, r"[{}\s-]", ""))  # also the forms of one UUID
    return text


def _plain(column: pa.Array) -> pa.Array:
    """Times as whole numbers: not every one of them is a time of Python."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) else column


def _ignore(_rejected: RejectedRecord) -> None:
    """It was rejected when it was delivered, too, or its range is compared with what was delivered."""


def _maker(
    span: OffsetRange,
    claim: RangeClaim | None,
    sorting: Sorting,
    target: TargetDatabase,
    load: Any,
    reject: Callable[[RejectedRecord], None] = _ignore,
) -> RowMaker:
    part = RangeClaim(span, True, claim.shape if claim else "", claim.made_ms if claim else 0)
    return RowMaker(part, sorting, target, load, reject)


def _numbered(batches: Iterator[pa.RecordBatch]) -> tuple[int | None, Iterator[pa.RecordBatch]]:
    """The number of the claim, and its records."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None, iter(())

    def records() -> Iterator[pa.RecordBatch]:
        yield sink_records(first)
        yield from map(sink_records, filled)

    return first.column(CLAIM)[0].as_py(), records()


def _by_run(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut where the delivery or the topic partition changes."""
    if not batch.num_rows:
        return
    changes = np.zeros(batch.num_rows - 1, bool)
    for name in (SEQ, PARTITION):
        changes |= np.diff(batch.column(name).to_numpy()) != 0
    topics = batch.column(TOPIC).dictionary_encode().indices.to_numpy()
    changes |= np.diff(topics) != 0
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    yield from (batch.slice(start, stop - start) for start, stop in pairwise(edges))


def _first(batch: pa.RecordBatch) -> tuple[object, ...]:
    return tuple(batch.column(name)[0].as_py() for name in (SEQ, TOPIC, PARTITION, OFFSET))


def _as_records(found: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        found.column(OFFSET),
        found.column(TIMESTAMP).cast(pa.timestamp("us", "UTC")),
        found.column(KEY),
        found.column(VALUE),
        pa.array(np.zeros(found.num_rows, np.int64)),
        found.column(HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*RECORDS.names, HEADERS])


@contextmanager
def _marking() -> Iterator[None]:
    """Errors of a task cross the border to the driver."""
    try:
        yield
    except PlayheadError as error:
        raise marked(error) from None
