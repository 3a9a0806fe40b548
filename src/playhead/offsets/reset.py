"""Plans a reset: one planner for everything whose positions are Kafka offsets.

This covers consumer groups, sink connectors, Spark checkpoints and the SQL store. Only the store differs: positions are read from
it, and the plan is applied to it. Each option means what it means in Kafka's own tool. A value outside the log is moved to its
edge (or refused, if so requested) and this is reported. A time after the last record means the log end; an empty partition has
its own note. Partitions that do not exist or have no leader are refused at once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from playhead.errors import Invalid, NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.partitions import Leaders, Span, find_at_time, find_leaders, find_spans
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import list_topics
from playhead.model import Change, Deadline, Map, Plan, Position, Positions, TopicPartition
from playhead.model.times import to_iso
from playhead.offsets.published import Mark
from playhead.offsets.reset_options import ERROR, Reset, ResetTo, Word
from playhead.stores import Store, Stored
from playhead.stores.groups import GroupsStore

CLAMPED = "clamped"
_CHECKED = (Word.OFFSET, Word.SHIFT, Word.FILE, Word.GROUP)  # the options whose value may be outside the log
Current = dict[str, dict[TopicPartition, Stored]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ResetRow:
    """One requested partition, moved or not, with the start and end of its log."""

    owner: str
    topic: str
    partition: int
    before: int | None
    after: int
    log_start: int
    log_end: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResetPlan:
    plan: Plan
    rows: tuple[ResetRow, ...]

    def to_kafka_csv(self) -> str:
        """Every row, as `kafka-consumer-groups --reset-offsets --export` prints it and its `--from-file` reads it."""
        from playhead.offsets.formats.forms import write_positions

        rows = [Position.of_kafka(row.owner, row.topic, row.partition, row.after) for row in self.rows]
        return write_positions(Positions(rows), "csv")


@dataclass(frozen=True, slots=True)
class ResetLogs:
    """The logs of the requested partitions. `at_time`: the offset at `moment`, None if no record follows."""

    spans: Mapping[TopicPartition, Span]
    at_time: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    moment: datetime | None = None


def plan_reset(
    store: Store, owners: Sequence[str], reset: Reset, settings: ClientSettings, deadline: Deadline
) -> ResetPlan:
    """The plan that resets `owners` of `store`. `settings`: the cluster that has their topics.

    A partition that is already at its target is a row, but no change, unless work that was begun there is given up.
    """
    owners = list(dict.fromkeys(owners))
    with _connection(store, settings, deadline) as admin:
        current = _current(store, owners)
        leaders = find_leaders(admin, _topics(reset, current), deadline)
        if gone := [topic for topic in reset.named_topics if leaders.get(topic) is None]:
            raise NotFound("topic", gone[0], list_topics(admin, deadline))
        wanted = {owner: _wanted_partitions(reset, current[owner], leaders, owner) for owner in owners}
        targets = {owner: [tp for tp in of_owner if leaders.get(tp.topic)] for owner, of_owner in wanted.items()}
        _check_partitions({tp for of_owner in targets.values() for tp in of_owner}, leaders)
        logs = _logs(admin, {tp for of_owner in targets.values() for tp in of_owner}, reset, deadline)
    rows = compute_rows(targets, current, logs, reset)
    planned = [(row, current[row.owner].get(TopicPartition(row.topic, row.partition))) for row in rows]
    changes = [_change(row, entry) for row, entry in planned if row.before != row.after or (entry and entry.begun)]
    left = [(owner, tp) for owner in owners for tp in wanted[owner] if tp not in targets[owner]]
    warnings = [f"{owner} {tp} is skipped: topic {tp.topic} does not exist any more" for owner, tp in left]
    warnings += _clamp_warning(changes)
    return ResetPlan(Plan.of(store.uri, changes, warnings), tuple(rows))


def _clamp_warning(changes: Sequence[Change]) -> list[str]:
    """A summary of the clamps: they are easy to miss in a long table."""
    clamped = [change for change in changes if change.note.startswith(CLAMPED)]
    if not clamped:
        return []
    first = clamped[0]
    example = f"{first.owner} {kafka_partition(first.owner, first.partition)} {first.note}"
    return [
        f"{len(clamped)} position(s) are outside the log and move to its edge: {example}{', ...' if len(clamped) > 1 else ''}"
    ]


@contextmanager
def _connection(store: Store, settings: ClientSettings, deadline: Deadline) -> Iterator[Admin]:
    """The store's own connection if it is to the same cluster, else a new one."""
    if isinstance(store, GroupsStore) and store.settings == settings:
        with store.session() as admin:
            yield admin
    else:
        with Admin(settings, deadline) as admin:
            yield admin


def _current(store: Store, owners: Sequence[str]) -> Current:
    current: Current = {owner: {} for owner in owners}
    for (owner, partition), entry in store.snapshot(owners).current().items():
        current[owner][kafka_partition(owner, partition)] = entry
    return current


def kafka_partition(owner: str, partition: Map) -> TopicPartition:
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    if not isinstance(topic, str) or type(number) is not int:
        raise Invalid(
            f"{owner} has the position {partition}, which is not a partition of a topic",
            "the reset options move Kafka offsets only; `playhead offsets set` moves any position",
        )
    return TopicPartition(topic, number)


def kafka_offset(entry: Stored | None) -> int | None:
    """The next offset to read; None where there is no commit."""
    offset = entry.position.offset.get("kafka_offset") if entry and entry.position.offset is not None else None
    return offset if type(offset) is int else None


# Which partitions


def _topics(reset: Reset, current: Current) -> list[str]:
    given = reset.to.given or {}
    named = set(reset.scope.topics) | {tp.topic for positions in given.values() for tp in positions}
    committed = {tp.topic for of_owner in current.values() for tp in of_owner} if reset.scope.all_topics else set()
    return sorted(named | committed)


def _wanted_partitions(
    reset: Reset, current: Mapping[TopicPartition, Stored], leaders: Mapping[str, Leaders | None], owner: str
) -> list[TopicPartition]:
    if reset.to.given is not None:
        return sorted(tp for tp in reset.to.given.get(owner, {}) if reset.scope.covers(tp))
    if reset.scope.all_topics:
        return sorted(current)
    return [
        TopicPartition(topic, number)
        for topic, chosen in sorted(reset.scope.topics.items())
        for number in sorted(chosen if chosen is not None else leaders.get(topic) or ())
    ]


def _check_partitions(partitions: Collection[TopicPartition], leaders: Mapping[str, Leaders | None]) -> None:
    offline = []
    for tp in sorted(partitions):
        found = leaders[tp.topic] or {}
        if tp.partition not in found:
            raise Refused(f"{tp} does not exist: {tp.topic} has {len(found)} partition(s), counted from 0")
        if found[tp.partition] is None:
            offline.append(str(tp))
    if offline:
        raise Refused(
            f"{', '.join(offline)}: no leader, so the start and the end of the log are unknown",
            "start the broker that holds it, or name other partitions with --topic t:0,1",
        )


def _logs(admin: Admin, partitions: set[TopicPartition], reset: Reset, deadline: Deadline) -> ResetLogs:
    spans = find_spans(admin, partitions, deadline)
    moment = reset.to.moment(datetime.now(UTC))
    if moment is None:
        return ResetLogs(spans)
    milliseconds = -((_EPOCH - moment) // timedelta(milliseconds=1))
    return ResetLogs(spans, find_at_time(admin, partitions, milliseconds, deadline), moment)


# The target offset


def compute_rows(
    targets: Mapping[str, Sequence[TopicPartition]], current: Current, logs: ResetLogs, reset: Reset
) -> list[ResetRow]:
    """Every target with its new offset and a note. No I/O: all that is needed is in `logs`."""
    rows: list[ResetRow] = []
    outside: list[str] = []
    for owner, partitions in targets.items():
        _check_shift(owner, partitions, current[owner], reset.to)
        for tp in partitions:
            before, span = kafka_offset(current[owner].get(tp)), logs.spans[tp]
            wanted, note = _wanted(owner, tp, before, logs, reset.to)
            after = min(max(wanted, span.start), span.end) if reset.to.word in _CHECKED else wanted
            if after != wanted:
                edge = f"the log begins at {span.start}" if wanted < span.start else f"the log ends at {span.end}"
                note = f"{CLAMPED} from {wanted}: {edge}"
                outside.append(f"{owner} {tp}: {wanted} is outside the log, {edge}")
            if before != after and (lost := _lost_metadata(current[owner].get(tp))):
                note = "; ".join(filter(None, [note, lost]))
            rows.append(ResetRow(owner, tp.topic, tp.partition, before, after, span.start, span.end, note))
    if outside and reset.out_of_range == ERROR:
        raise Refused("; ".join(outside), "give an offset inside the log, or --out-of-range clamp")
    return rows


def _check_shift(
    owner: str, partitions: Sequence[TopicPartition], current: Mapping[TopicPartition, Stored], to: ResetTo
) -> None:
    without = [str(tp) for tp in partitions if to.word is Word.SHIFT and kafka_offset(current.get(tp)) is None]
    if without:
        raise Refused(
            f"{owner} has no commit for {', '.join(without)}, so there is nothing to shift",
            "use --all-topics, which means the partitions with a commit, or name those",
        )


def _wanted(owner: str, tp: TopicPartition, before: int | None, logs: ResetLogs, to: ResetTo) -> tuple[int, str]:
    span = logs.spans[tp]
    match to.word:
        case Word.EARLIEST:
            return span.start, ""
        case Word.LATEST:
            return span.end, ""
        case Word.CURRENT:
            return (span.end, "no commit yet: the log end") if before is None else (before, "")
        case Word.OFFSET:
            return to.number, ""
        case Word.SHIFT:
            return (before or 0) + to.number, ""
        case Word.DATETIME | Word.DURATION:
            return _at_time(tp, logs)
        case Word.FILE | Word.GROUP:
            return (to.given or {})[owner][tp], ""


def _at_time(tp: TopicPartition, logs: ResetLogs) -> tuple[int, str]:
    found, span = logs.at_time[tp], logs.spans[tp]
    if found is not None:
        return found, ""
    if span.start == span.end:
        return span.end, "the partition is empty: the log end"
    moment = to_iso(logs.moment) if logs.moment else ""
    return span.end, f"no record at or after {moment}: the log end"


def _lost_metadata(entry: Stored | None) -> str:
    metadata = str(entry.where.get("metadata") or "") if entry else ""
    if not metadata:
        return ""
    if Mark.find(metadata) is not None:
        return (
            "published by a run on Spark: move its sink with `playhead offsets`, or the next run will refuse to start"
        )
    return "its commit metadata is dropped"


def _change(row: ResetRow, entry: Stored | None) -> Change:
    wanted = Position.of_kafka(row.owner, row.topic, row.partition, row.after)
    return Change(
        row.owner,
        entry.position.partition if entry else wanted.partition,
        entry.position.offset if entry else None,
        wanted.offset,
        "; ".join(filter(None, [row.note, entry.gives_up if entry else ""])),
    )


# Positions from a file or another group


def reset_to_group(store: Store, other: str, owners: Sequence[str]) -> ResetTo:
    """Resets each of `owners` to the position of `other` in the same store."""
    current = _current(store, [other])[other]
    found = {tp: offset for tp, entry in current.items() if (offset := kafka_offset(entry)) is not None}
    if not found:
        raise Refused(f"{other} has no commit that could be copied", "`playhead groups list` shows the existing groups")
    return ResetTo(Word.GROUP, dict.fromkeys(owners, found))


def reset_to_file(data: bytes, where: str, owners: Sequence[str]) -> ResetTo:
    """Resets each of `owners` to the positions in a file, in any form that `formats` reads: Kafka's CSV, rpk, Yelp, Connect."""
    from playhead.offsets.formats.forms import read_positions

    found: dict[str, dict[TopicPartition, int]] = {owner: {} for owner in owners}
    for position in read_positions(data, where, owner=owners[0] if len(found) == 1 else None):
        if position.owner in found:
            tp = kafka_partition(position.owner, position.partition)
            offset = kafka_offset(Stored(position))
            if offset is None or offset < 0:
                raise Invalid(
                    f"{where}: {position.owner} {tp} has no offset of 0 or more",
                    "a reset moves positions; `playhead groups delete` deletes them",
                )
            found[position.owner][tp] = offset
    if missing := [owner for owner, positions in found.items() if not positions]:
        raise Invalid(f"{where} has no position of {', '.join(missing)}")
    return ResetTo(Word.FILE, found)
