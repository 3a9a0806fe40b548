"""What of the asked part can be delivered again, and why the rest cannot. Reads the ledger and asks the brokers; changes nothing.

To its own place a sink delivers whole recorded ranges: their files and digests cannot be split, so what is asked is widened to
their boundaries. A range whose first offsets have expired is left alone, because its files would have fewer records than now.
To another folder exactly the asked offsets are written, as far as the topic still has them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from playhead.errors import Invalid, NotFound
from playhead.kafka.client import Admin
from playhead.kafka.partitions import find_at_time
from playhead.kafka.topics import Ends, describe_topics
from playhead.ledger.model import BY_CONNECT, ClosedRange, OutputKind, RangeState, RecordedRange, SinkPosition
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.redo import unfinished
from playhead.model import Deadline
from playhead.model.position import INT64_MAX
from playhead.model.ranges import Log, OffsetRange, RangeSet
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.replay.asked import Asked, AskedRange


@dataclass(frozen=True, slots=True)
class Impossible:
    range: OffsetRange
    why: str


@dataclass(frozen=True, slots=True)
class Group:
    """Recorded ranges of one log without gaps between them. `asked`: the offsets that were asked for, inside of it."""

    recorded: Sequence[RecordedRange]
    asked: Sequence[OffsetRange]

    @property
    def range(self) -> OffsetRange:
        first, last = self.recorded[0].closed.range, self.recorded[-1].closed.range
        return OffsetRange(*first.log, first.start, last.end)

    @property
    def count(self) -> int:
        return sum(one.closed.count for one in self.recorded)

    @property
    def objects(self) -> list[str]:
        found = (output for one in self.recorded for output in one.closed.outputs)
        return [output.name for output in found if output.kind == OutputKind.OBJECT]

    @property
    def is_widened(self) -> bool:
        return sum(map(len, self.asked)) < len(self.range)


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """`spans`: what the topic still has of the asked offsets, for another place; `expired`: what it does not have. `groups` and
    `impossible`: the same for the sink's own place."""

    groups: Sequence[Group]
    spans: Sequence[OffsetRange]
    impossible: Sequence[Impossible]
    expired: Sequence[Impossible]

    def without(self, found: Mapping[OffsetRange, str]) -> "ReplayPlan":
        """`found`: recorded ranges that cannot be delivered again to their own place, with the reason."""
        if not found:
            return self
        left: dict[Log, list[RecordedRange]] = {}
        for one in (each for group in self.groups for each in group.recorded):
            if one.closed.range not in found:
                left.setdefault(one.closed.range.log, []).append(one)
        asked = RangeSet(span for group in self.groups for span in group.asked)
        more = [Impossible(span, why) for span, why in found.items()]
        impossible = sorted([*self.impossible, *more], key=lambda one: one.range)
        return replace(self, groups=_groups(left, asked), impossible=impossible)


@dataclass(frozen=True, slots=True)
class SinkState:
    """A sink as the ledger and the brokers show it. `ends`: of the logs that exist now."""

    ranges: RangeLedger
    cluster: str
    pipeline: str
    positions: Mapping[Log, SinkPosition]
    ends: Mapping[Log, Ends]

    def end(self, log: Log) -> int:
        return self.ends[log].stable


def read_state(ranges: RangeLedger, cluster: str, pipeline: str, logs: TopicLogs, deadline: Deadline) -> SinkState:
    positions = ranges.positions(cluster, pipeline)
    topics = {log.topic for log in positions}
    if not topics:
        raise NotFound("position", pipeline, hint=f"{pipeline} has delivered nothing yet, or its position was deleted")
    present = logs.find_present(topics, deadline)
    return SinkState(ranges, cluster, pipeline, positions, logs.ends(present, deadline))


def plan_replay(state: SinkState, asked: Asked, admin: Admin, deadline: Deadline) -> ReplayPlan:
    spans, gone = _spans(state, asked, admin, deadline)
    impossible = list(gone)
    recorded = state.ranges.list_counting(state.cluster, state.pipeline, spans)
    by_log: dict[Log, list[RecordedRange]] = {}
    for one in recorded:
        why = _why_not(state, one)
        if why:
            impossible.append(Impossible(one.closed.range, why))
        else:
            by_log.setdefault(one.closed.range.log, []).append(one)
    known = RangeSet(one.closed.range for one in recorded)
    impossible += [Impossible(gap, _why_unknown(state, gap)) for gap in RangeSet(spans) - known]
    wanted = RangeSet(spans)
    groups = _groups(by_log, wanted)
    there = RangeSet(OffsetRange(*log, at.start, at.stable) for log, at in state.ends.items() if at.start < at.stable)
    expired = [
        Impossible(one, f"the topic begins at {state.ends[one.log].start} now: these records have expired")
        for one in wanted - there
        if one.log in state.ends and one.start < state.ends[one.log].start
    ]
    return ReplayPlan(groups, [*wanted & there], sorted(impossible, key=lambda one: one.range), [*expired, *gone])


def limit_to_unmarked(plan: ReplayPlan, state: SinkState, shape: str) -> ReplayPlan:
    """Without ranges that a replay with other options is writing, or was interrupted in."""
    others = [span for span, known in state.ranges.list_marks(state.cluster, state.pipeline).items() if known != shape]
    found: dict[OffsetRange, str] = {}
    for one in (each.closed.range for group in plan.groups for each in group.recorded):
        if span := next((span for span in others if RangeSet([one]) & RangeSet([span])), None):
            found[one] = "; ".join(unfinished(span))
    return plan.without(found)


def _why_not(state: SinkState, one: RecordedRange) -> str:
    span = one.closed.range
    if one.note == BY_CONNECT:
        return "was delivered by Connect: what it wrote is not in the ledger"
    if one.state is RangeState.SKIPPED:
        return f"was not delivered: {one.note or 'skipped by an operator'}"
    start = state.ends[span.log].start
    if span.start < start:
        gone = "has expired" if span.end <= start else f"has expired in part: the topic begins at {start} now"
        return f"{gone}, and what was delivered stays as it is"
    return ""


def _why_unknown(state: SinkState, gap: OffsetRange) -> str:
    position = state.positions.get(gap.log)
    if position is None or gap.start >= position.next_offset:
        at = "no position yet" if position is None else f"the position is {position.next_offset}"
        return f"is not delivered yet: {at}"
    return "is in no range of the ledger: it was delivered by another engine, or not at all"


def _groups(by_log: Mapping[Log, Sequence[RecordedRange]], asked: RangeSet) -> list[Group]:
    neighbours = _neighbours(by_log)
    inside: dict[Log, list[OffsetRange]] = {}
    for span in asked & RangeSet(one.closed.range for some in neighbours for one in some):
        inside.setdefault(span.log, []).append(span)
    groups = []
    for some in neighbours:
        known = inside.get(some[0].closed.range.log, [])
        edges = (some[0].closed.range.start, some[-1].closed.range.end)
        first, last = (bisect_left(known, edge, key=lambda span: span.start) for edge in edges)
        groups.append(Group(some, known[first:last]))
    return groups


def _neighbours(by_log: Mapping[Log, Sequence[RecordedRange]]) -> list[list[RecordedRange]]:
    groups: list[list[RecordedRange]] = []
    for found in by_log.values():
        for at, one in enumerate(found):
            if at and found[at - 1].closed.range.end == one.closed.range.start:
                groups[-1].append(one)
            else:
                groups.append([one])
    return groups


def _spans(
    state: SinkState, asked: Asked, admin: Admin, deadline: Deadline
) -> tuple[list[OffsetRange], list[Impossible]]:
    """What is asked, as offsets of topics that exist, and what is asked of topics that were deleted."""
    if asked.object is not None:
        found = state.ranges.list_with_output(state.cluster, state.pipeline, asked.object.strip("/"))
        if not found:
            raise NotFound("object", asked.object, hint=f"`playhead runs show {state.pipeline}` lists what was written")
        return _present(state, [one.closed.range for one in found])
    if asked.last is not None:
        return _present(state, _newest(state, asked.last))
    if asked.has_times:
        return _in_time(state, asked, admin, deadline)
    return _by_offset(state, asked.ranges)


def _by_offset(state: SinkState, asked: Sequence[AskedRange]) -> tuple[list[OffsetRange], list[Impossible]]:
    spans: list[OffsetRange] = []
    beyond: list[Impossible] = []
    topics = {log.topic for log in state.positions}
    for one in asked:
        if one.topic not in topics:
            raise NotFound("topic", one.topic, sorted(topics), f"{state.pipeline} has no position in it")
        known = state.ends if any(log.topic == one.topic for log in state.ends) else state.positions
        logs = [log for log in known if log.topic == one.topic and one.partition in (None, log.partition)]
        if not logs:
            there = sum(log.topic == one.topic for log in known)
            raise NotFound("partition", f"{one.topic}-{one.partition}", hint=f"the topic has {there} partition(s)")
        for log in logs:
            stable = state.end(log) if log in state.ends else None
            last = max(end for end in (stable, _next_offset(state, log)) if end is not None)
            if one.start > last or (one.start == last and one.start):
                raise Invalid(f"{log.place} ends at {last}: there is no offset {one.start} yet")
            end = min(one.end, last)
            if one.start < end:
                spans.append(OffsetRange(*log, one.start, end))
            if end < one.end < INT64_MAX:
                beyond.append(
                    Impossible(OffsetRange(*log, end, one.end), f"is not there yet: the topic ends at {last}")
                )
    found, gone = _present(state, spans)
    return found, [*gone, *beyond]


def _next_offset(state: SinkState, log: Log) -> int | None:
    return next((at.next_offset for known, at in state.positions.items() if known.place == log.place), None)


def _present(state: SinkState, spans: Sequence[OffsetRange]) -> tuple[list[OffsetRange], list[Impossible]]:
    """Recorded ranges of a topic that was deleted are not the new topic's, which begins again at offset 0."""
    recreated = {log.topic for log in state.positions if log not in state.ends}
    there = {log.topic for log in state.ends}
    gone = [span for span in spans if span.log not in state.ends or span.topic in recreated]
    lost = set(gone)  # a busy sink has delivered many ranges
    return [span for span in spans if span not in lost], [
        Impossible(span, f"was delivered from a topic that was deleted{how} since: its records are gone")
        for span in gone
        for how in [" and recreated" if span.topic in there else ""]
    ]


def _newest(state: SinkState, count: int) -> list[OffsetRange]:
    """What runs delivered last, with at least so many records together. What a replay has delivered again is not newer for it."""
    limit = 100
    while True:
        listed = state.ranges.list_ranges(state.cluster, state.pipeline, newest=limit)
        by_runs = [one.closed.range for one in listed if one.shape is not None and not one.is_replay]
        chosen: list[OffsetRange] = []
        left = count
        for one in _counting_in(state, by_runs):
            if left <= 0:
                break
            chosen.append(one.closed.range)
            left -= one.closed.count
        if left <= 0 or len(listed) < limit:
            return chosen
        limit *= 4


def _counting_in(state: SinkState, spans: Sequence[OffsetRange]) -> Iterator[RecordedRange]:
    """The delivered ranges that begin in these and have records, in the order of `spans`."""
    found: dict[Log, list[RecordedRange]] = {}
    for one in state.ranges.list_counting(state.cluster, state.pipeline, list(RangeSet(spans))):
        if one.state is RangeState.COMMITTED and one.closed.count:
            found.setdefault(one.closed.range.log, []).append(one)
    for span in spans:
        known = found.get(span.log, [])
        first, last = (bisect_left(known, at, key=lambda one: one.closed.range.start) for at in (span.start, span.end))
        yield from known[first:last]
        del known[first:last]


def _in_time(
    state: SinkState, asked: Asked, admin: Admin, deadline: Deadline
) -> tuple[list[OffsetRange], list[Impossible]]:
    """By the times of the records, as the broker finds them: from the first one of that time or later. The broker does not know
    what has expired, and not what lies behind the first record that is too late; the ledger does."""
    since, until = (None if one is None else int(one.timestamp() * 1000) for one in (asked.since, asked.until))
    logs = [log for log in state.positions if log in state.ends]
    starts = {} if since is None else _at(admin, logs, since, deadline)
    stops = {} if until is None else _at(admin, logs, until, deadline)
    spans = []
    for log in logs:
        start, stop = starts.get(log, state.ends[log].start), stops.get(log)
        start, stop = (state.end(log) if at is None else at for at in (start, stop))
        if start < stop:
            spans.append(OffsetRange(*log, start, stop))
    found, left = _behind(state, (since, until), starts, stops)
    return [*spans, *found], left


def _behind(
    state: SinkState,
    window: tuple[int | None, int | None],
    starts: Mapping[Log, int | None],
    stops: Mapping[Log, int | None],
) -> tuple[list[OffsetRange], list[Impossible]]:
    """What the ledger knows of this time: before the log start, and after the first record that is too late."""
    recorded = state.ranges.list_in_time(state.cluster, state.pipeline, *window)
    delivered, left = _present(state, [one.closed.range for one in recorded])
    present = set(delivered)
    spans = []
    for one in (one for one in recorded if one.closed.range in present):
        span, stop = one.closed.range, stops.get(one.closed.range.log)
        first, start = state.ends[span.log].start, starts.get(span.log)
        if span.start < first and (start is None or start <= first):
            spans.append(OffsetRange(*span.log, span.start, min(span.end, first)))
        elif stop is not None and span.start >= stop and _has_time(one.closed, *window):
            spans.append(span)
        elif stop is not None and span.start >= stop:
            why = f"may have records of that time behind offset {stop}, the first record that is later: name it by --range"
            left.append(Impossible(span, why))
    return spans, left


def _has_time(closed: ClosedRange, since: int | None, until: int | None) -> bool:
    """Whether it surely has a record in this time: its first or its last one."""
    times = (at for at in (closed.first_ms, closed.last_ms) if at is not None)
    return any((since is None or at >= since) and (until is None or at < until) for at in times)


def _at(admin: Admin, logs: Sequence[Log], moment_ms: int, deadline: Deadline) -> dict[Log, int | None]:
    found = find_at_time(admin, [log.place for log in logs], moment_ms, deadline)
    return {log: found[log.place] for log in logs}


def find_compacted(topics: Sequence[str], admin: Admin, deadline: Deadline) -> list[str]:
    """Topics whose records may disappear one by one. For the plan; what is gone is found when it is read."""
    from playhead.kafka.topic_configs import get_topic_config

    there = [name for name, topic in describe_topics(admin, topics, deadline).items() if topic is not None]
    return [
        name for name in there if "compact" in (get_topic_config(admin, name, deadline).get("cleanup.policy") or "")
    ]
