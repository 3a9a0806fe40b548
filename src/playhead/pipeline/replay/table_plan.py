"""What of a JDBC sink can be delivered again into its own tables, and why the rest cannot. Reads only.

Rows are found by their coordinates, or by a key. Rows with the same coordinates may also be of another topic, of an earlier topic
of the same name, or of another pipeline: deleting them would lose them. Newer values of a key may be from another pipeline, may
have expired, or may be compacted away: an old value would cover them. Such ranges are named, and left as they are.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from playhead.errors import Refused, TimedOut
from playhead.ledger.model import OutputKind, RangeClaim, RecordedRange
from playhead.ledger.redo import DeliveredSpan, TableWriter
from playhead.model import Deadline
from playhead.model.ranges import Log, OffsetRange, TopicPartition
from playhead.pipeline.deliver.jdbc.options import RECORD_KEY, TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Sorting
from playhead.pipeline.deliver.jdbc.sink import JdbcSink
from playhead.pipeline.deliver.jdbc.tables import name_of
from playhead.pipeline.records.transforms import InsertField, ValueToKey
from playhead.pipeline.replay.coordinates import CoordinateColumns, find_columns
from playhead.pipeline.replay.plan import Group, ReplayPlan, SinkState
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.target_tables import TargetTableName, count_between, parse_table_name, spellings
from playhead.sql.transaction import Connection

BY_KEY = "write the last record of each key"
_ANYTHING = "${timestamp}"
_DOING = "reading the tables of the sink"
_AT_ONCE = 200  # ranges per statement
_DELETED_TOO = "; --accept-changes deletes them, too, and --to-table writes to another table"
Whys = dict[OffsetRange, str]


def check_tables(sink: JdbcSink, state: SinkState) -> CoordinateColumns | None:
    """Where the rows have their coordinates. None: they are found by a key. Refused if they are neither."""
    options = sink.sorting.options
    topics = {log.topic for log in (*state.positions, *state.ranges.list_logs(state.cluster, state.pipeline))}
    columns = find_columns(sink.sorting, sorted(topics))
    if columns is not None or (options.finds_by_key and options.pk_mode != "kafka"):
        return columns
    raise Refused(
        f"{state.pipeline} inserts rows, and they do not carry the coordinates of their records, or not the topic although it has"
        " delivered several: rows that are delivered again would be there twice",
        "--to-table writes them to another table; with pk.mode=kafka, or without deletes and with an InsertField with"
        " topic.field, partition.field and offset.field, such rows can be replayed",
    )


def describe(columns: CoordinateColumns | None) -> str:
    if columns is None:
        return BY_KEY
    return f"delete and insert by {columns.partition}, {columns.offset}"


def limit_by_coordinates(
    plan: ReplayPlan, state: SinkState, sink: JdbcSink, columns: CoordinateColumns, *, accepts: bool, seconds: float
) -> ReplayPlan:
    """Without ranges whose rows cannot be told from others by their coordinates, or may be there without."""
    recorded = [one for group in plan.groups for one in group.recorded]
    if accepts or not recorded:
        return plan
    with _reading(sink, seconds) as database:
        with database.reading(_DOING) as connection:
            others = _others(state, _spelled(connection, _tables_of(sink, recorded)))
        placed = _Placed.read(state, others)
        found = {one.closed.range: why for one in recorded if (why := placed.why_shared(one.closed.range, columns))}
        changed = [one for one in recorded if one.shape != sink.shape and one.closed.range not in found]
        return plan.without(found | _unplaced(database, changed, columns))


@dataclass(frozen=True, slots=True)
class _Placed:
    """Who has delivered rows with which coordinates: up to which offset, at some time. `own`: by topic id. `others`: by number of
    the partition. From which offset on is not known: what Connect delivered before the ledger began is in no range of it."""

    own: Mapping[TopicPartition, Mapping[str, int]]
    others: Mapping[int, Sequence[tuple[TableWriter, int]]]

    @classmethod
    def read(cls, state: SinkState, others: Sequence[TableWriter]) -> "_Placed":
        own: dict[TopicPartition, dict[str, int]] = {}
        for log, end in state.ranges.list_reached(state.cluster, state.pipeline).items():
            own.setdefault(log.place, {})[log.topic_id] = end
        theirs: dict[int, list[tuple[TableWriter, int]]] = {}
        reached = {
            place: state.ranges.list_reached(*place) for place in {(one.cluster, one.pipeline) for one in others}
        }
        for one in others:
            for log, end in reached[one.cluster, one.pipeline].items():
                if log.topic == one.topic:
                    theirs.setdefault(log.partition, []).append((one, end))
        return cls(own, theirs)

    def why_shared(self, span: OffsetRange, columns: CoordinateColumns) -> str:
        earlier = max((end for id_, end in self.own.get(span.place, {}).items() if id_ != span.topic_id), default=0)
        if earlier > span.start:
            return (
                f"an earlier topic of the same name was delivered up to offset {earlier}: its rows have the same"
                f" coordinates{_DELETED_TOO}"
            )
        same = [
            one
            for one, end in self.others.get(span.partition, ())
            if end > span.start and (columns.topic is None or one.topic == span.topic)
        ]
        if same:
            return f"{_named(same)} writes to the same table: its rows may have the same coordinates{_DELETED_TOO}"
        return ""


def _unplaced(database: Database, changed: Sequence[RecordedRange], columns: CoordinateColumns) -> Whys:
    """`changed`: ranges that were delivered with other options. Rows from before the config had the coordinates are not found by
    them, and would be there twice."""
    there = {one.closed.range: 0 for one in changed}
    deadline = Deadline(database.seconds)
    late: set[OffsetRange] = set()
    for (table, log), some in _by_table(changed).items():
        for at in range(0, len(some), _AT_ONCE):
            spans = [one.closed.range for one in some[at : at + _AT_ONCE]]
            try:
                deadline.check("counting rows")
                with database.reading(_DOING) as connection:
                    counts = _counted(
                        connection, table, OffsetRange(*log, spans[0].start, spans[-1].end), spans, columns
                    )
            except TimedOut:
                late.update(spans)
                continue
            for span in spans:
                there[span] += counts.get(span.start, 0)
    return {
        one.closed.range: why
        for one in changed
        if (why := _why_unplaced(one, None if one.closed.range in late else there[one.closed.range], deadline.words))
    }


def _by_table(changed: Sequence[RecordedRange]) -> dict[tuple[str, Log], list[RecordedRange]]:
    found: dict[tuple[str, Log], list[RecordedRange]] = {}
    for one in sorted(changed, key=lambda one: one.closed.range):
        for output in one.closed.outputs:
            if output.kind == OutputKind.TABLE:
                found.setdefault((output.name, one.closed.range.log), []).append(one)
    return found


def _counted(
    connection: Connection, table: str, whole: OffsetRange, spans: Sequence[OffsetRange], columns: CoordinateColumns
) -> Mapping[int, int]:
    """By the start of each span."""
    edges = sorted({edge for span in spans for edge in (span.start, span.end)})
    rows = columns.of(RangeClaim(whole, True, "", 0))
    return count_between(connection, parse_table_name(table, None, quotes=True), rows, edges)


def _why_unplaced(one: RecordedRange, there: int | None, patience: str) -> str:
    """`there` None: they could not be counted in time."""
    wanted = sum(each.count for each in one.closed.outputs if each.kind == OutputKind.TABLE)
    if there is None:
        return (
            f"it was delivered with other options, and counting its rows by their coordinates takes more than {patience}: some"
            " may be there without, and would be there twice; give it more time with --timeout, or an index on the coordinates;"
            " --accept-changes does without counting"
        )
    if there >= wanted:
        return ""
    return (
        f"it was delivered with other options, and {there} of its {wanted} row(s) are found by their coordinates: the others may"
        " be there without, and would be there twice; replay it with the options of then (-f), or to another table;"
        " --accept-changes takes them for deleted"
    )


def limit_by_keys(
    plan: ReplayPlan, state: SinkState, sink: JdbcSink, compacted: Collection[str], *, accepts: bool, seconds: float
) -> ReplayPlan:
    """Without ranges whose keys may have newer values that are not in the topics any more, or never were."""
    if accepts or not plan.groups:
        return plan
    recorded = [one for group in plan.groups for one in group.recorded]
    with _reading(sink, seconds) as database, database.reading(_DOING) as connection:
        others = _others(state, _spelled(connection, _tables_of(sink, recorded)))
    deliveries = find_deliveries(state, sink, [group.range for group in plan.groups])
    return plan.without(
        {
            one.closed.range: f"{why}; --accept-changes takes the last records that are there"
            for group in plan.groups
            if (why := _why_covered(group, state, sink, deliveries, compacted, others))
            for one in group.recorded
        }
    )


def _why_covered(
    group: Group,
    state: SinkState,
    sink: JdbcSink,
    deliveries: "Deliveries",
    compacted: Collection[str],
    others: Sequence[TableWriter],
) -> str:
    if others:
        first = state.ranges.first_commit(state.cluster, state.pipeline, group.range)
        if later := [one for one in others if first is None or one.last >= first]:
            return f"{_named(later)} has written to the same table since: newer values of the same keys may be there"
    fed = fed_topics(state, sink, [group.range.topic])
    gone = sorted(fed & set(compacted))
    if gone and not _has_record_key(sink.sorting):
        return f"{gone[0]} is compacted by other keys than the rows have: newer values of the same keys may be gone"
    try:
        plan_tails(state, {log: some for log, some in deliveries.items() if log.topic in fed}, [group.range])
    except Refused as refused:
        return refused.what
    return ""


def _has_record_key(sorting: Sorting) -> bool:
    """Records with the same key are of the same row: what compaction drops has a newer record for that row."""
    stages = sorting.chain.stages if sorting.chain else ()
    changes = any(
        isinstance(stage.change, ValueToKey) or (isinstance(stage.change, InsertField) and stage.on_key)
        for stage in stages
    )
    return sorting.options.pk_mode == RECORD_KEY and not changes


def find_writer(state: SinkState, sink: JdbcSink, table: TargetTableName, seconds: float) -> str | None:
    """The pipeline that writes to this table or has written to it, under any spelling of its name; this one first."""
    with _reading(sink, seconds) as database:
        if not database.exists():
            return None
        with database.reading(_DOING) as connection:
            asked = spellings(connection, table)
            topics = {log.topic for log in state.positions}
            known = [one for topic in topics for one in _tables(sink, topic) if one is not None]
            if asked & _spelled(connection, known):
                return state.pipeline
            found = {one.pipeline for one in state.ranges.list_writers(asked)}
            return state.pipeline if state.pipeline in found else min(found, default=None)


def _reading(sink: JdbcSink, seconds: float) -> Database:
    return Database(parse_address(sink.target.url), seconds)


def _tables_of(sink: JdbcSink, recorded: Sequence[RecordedRange]) -> Iterator[TargetTableName]:
    """The tables that rows of these ranges are in, or get into now."""
    for name in sorted({out.name for one in recorded for out in one.closed.outputs if out.kind == OutputKind.TABLE}):
        yield parse_table_name(name, None, quotes=True)
    for topic in sorted({one.closed.range.topic for one in recorded}):
        yield from (table for table in _tables(sink, topic) if table is not None)


def _spelled(connection: Connection, tables: Iterable[TargetTableName]) -> set[str]:
    return {spelling for table in set(tables) for spelling in spellings(connection, table)}


def _others(state: SinkState, tables: Collection[str]) -> list[TableWriter]:
    return state.ranges.list_writers(tables, without=(state.cluster, state.pipeline))


def _named(writers: Sequence[TableWriter]) -> str:
    return ", ".join(sorted({one.pipeline for one in writers}))


@dataclass(frozen=True, slots=True)
class Tail:
    """What has to be read of a log, up to its committed end."""

    span: OffsetRange
    delivered: Sequence[DeliveredSpan]


Deliveries = Mapping[Log, Sequence[DeliveredSpan]]


def find_deliveries(state: SinkState, sink: JdbcSink, spans: Sequence[OffsetRange]) -> Deliveries:
    """What was delivered of every log that is written to the same tables as these ranges."""
    fed = fed_topics(state, sink, {span.topic for span in spans})
    return {
        log: state.ranges.list_deliveries(state.cluster, state.pipeline, log)
        for log in state.positions
        if log.topic in fed
    }


def plan_tails(
    state: SinkState, delivered: Deliveries, spans: Sequence[OffsetRange], *, accepts: bool = False
) -> tuple[list[Tail], dict[Log, int]]:
    """Of every log that is written to the same tables: from the first range that was delivered with or after the first of these.
    And the committed end of each of these logs, up to which the tails reach."""
    wanted = {span.log: min(other.start for other in spans if other.log == span.log) for span in spans}
    first = min(
        (one.seq for log, start in wanted.items() for one in delivered.get(log, ()) if one.end > start), default=None
    )
    if first is None:
        raise Refused("these ranges do not count any more: their position was moved meanwhile", "plan again")
    positions = state.positions
    tails = []
    for log, known in delivered.items():
        starts = [one.start for one in known if one.seq >= first]
        start = min([*starts, *([wanted[log]] if log in wanted else [])], default=None)
        end = positions[log].next_offset
        if start is None or start >= end:
            start = end  # what is delivered from here on is read when the tables are locked
        begins = state.ends[log].start if log in state.ends else None
        if start < end and (begins is None or begins > start):
            if not accepts:
                there = "is gone with its topic" if begins is None else f"begins at {begins} now"
                raise Refused(
                    f"{log.place} was delivered into the same table after this range, and {there}: newer values of the same keys"
                    " may have been in it",
                    "--accept-changes takes the last records that are there",
                )
            start = end if begins is None else min(begins, end)
        if start < end:
            tails.append(Tail(OffsetRange(*log, start, end), [one for one in known if one.end > start]))
    return tails, {log: positions[log].next_offset for log in delivered}


def fed_topics(state: SinkState, sink: JdbcSink, topics: Collection[str]) -> set[str]:
    """The topics that may be written to the same tables as these."""
    return find_feeding({log.topic for log in state.positions}, sink, topics)


class Tabled(Protocol):
    """What the names of tables follow from."""

    @property
    def sorting(self) -> Sorting: ...

    @property
    def target(self) -> TargetDatabase: ...


def find_feeding(known: Collection[str], sink: Tabled, topics: Collection[str]) -> set[str]:
    """Those of the `known` topics that may be written to the same tables as these."""
    mine = {name for topic in topics for name in _tables(sink, topic)}
    if None in mine:
        return set(known)
    return {topic for topic in known if mine & (theirs := _tables(sink, topic)) or None in theirs}


def _tables(sink: Tabled, topic: str) -> set[TargetTableName | None]:
    """None: any."""
    chain, options = sink.sorting.chain, sink.sorting.options
    names = chain.targets(topic) if chain else {topic}
    return {None if _ANYTHING in name else name_of(name, options, sink.target) for name in names}
