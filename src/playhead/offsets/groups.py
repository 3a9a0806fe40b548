"""Consumer groups for operators: the list of groups, the lag of each, and what a delete would remove.

Lag in records is the log end minus the commit, as Kafka's own tool counts it. It is negative past the log end; only the sum of a
group counts that as 0. Lag in time is the time between the record at the commit and the newest record of its partition. It is
unknown if the commit is outside the log, and 0 at the log end. A deleted topic, a partition without a leader and a group without
commits are rows with a note, not errors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from playhead.errors import AccessDenied, Invalid, NotFound, PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.group_types import list_other_groups
from playhead.kafka.groups import (
    Commits,
    Committed,
    Group,
    GroupListing,
    GroupMember,
    describe_groups,
    get_group,
    list_committed,
    list_committed_of,
    list_groups,
)
from playhead.kafka.partitions import Leaders, Span, find_leaders, find_newest_times, find_spans, find_times_at
from playhead.model import Change, Deadline, Plan, TopicPartition
from playhead.offsets.logs import find_hidden
from playhead.offsets.reset import kafka_partition
from playhead.offsets.reset_options import Scope
from playhead.stores.groups import GroupsStore

_PATTERN = frozenset("*?[")


def find_groups(store: GroupsStore, words: Sequence[str], *, must_exist: bool = False) -> list[str]:
    """A pattern that matches nothing is an error. An unknown name is an error only with `must_exist`."""
    if "" in words:
        raise Invalid("a group needs a name")
    if not must_exist and not any(_PATTERN & set(word) for word in words):
        return list(dict.fromkeys(words))
    known = list_group_names(store)
    found: dict[str, None] = {}
    for word in words:
        if word in known:
            found[word] = None
        elif _PATTERN & set(word):
            matching = [name for name in known if fnmatchcase(name, word)]
            if not matching:
                raise NotFound("group like", word, known)
            found |= dict.fromkeys(matching)
        elif must_exist:
            raise _absence(store, word, known)
        else:
            found[word] = None
    return list(found)


def _absence(store: GroupsStore, name: str, known: Sequence[str]) -> PlayheadError:
    from playhead.kafka.group_types import list_other_groups

    with store.session() as admin:
        others = {group.name: group.type for group in list_other_groups(admin, store.deadline)}
    if name in others:
        return Refused(f"{name} is a {others[name]} group, not a consumer group", "use the tool of that kind of group")
    return NotFound("group", name, known)


def list_group_names(store: GroupsStore) -> list[str]:
    with store.session() as admin:
        return [group.name for group in list_groups(admin, store.deadline)]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """`members` and `topics` are None for groups that are not consumer groups; `lag` is None unless requested."""

    group: str
    type: str
    state: str
    members: int | None
    topics: tuple[str, ...] | None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class LagRow:
    topic: str
    partition: int
    committed: int | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    lag_seconds: float | None
    client_id: str | None = None
    host: str | None = None
    member: str | None = None
    leader_epoch: int | None = None
    metadata: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """`members` None: unknown, because this is not a consumer group."""

    group: str
    type: str
    state: str
    members: tuple[GroupMember, ...] | None = None
    rows: tuple[LagRow, ...] = ()
    notes: tuple[str, ...] = ()


def list_group_rows(store: GroupsStore, words: Sequence[str] = (), *, with_lag: bool = False) -> list[GroupRow]:
    """All groups with positions, and the share and streams groups by name; or those that match the words."""
    deadline = store.deadline
    with store.session() as admin:
        listed = list_groups(admin, deadline)
        others = [g for g in list_other_groups(admin, deadline) if "share" in g.type or "streams" in g.type]
        if words:
            chosen = _matching(words, [group.name for group in (*listed, *others)])
            listed, others = ([group for group in some if group.name in chosen] for some in (listed, others))
        names = [group.name for group in listed]
        described = describe_groups(admin, names, deadline)
        committed = list_committed_of(admin, names, deadline)
        partitions = {tp for commits in committed.values() for tp in commits}
        spans = _facts(admin, partitions, deadline).spans if with_lag else {}
    rows = [_group_row(g, described[g.name], committed[g.name], spans if with_lag else None) for g in listed]
    rows += [GroupRow(group.name, group.type, group.state, None, None) for group in others]
    return sorted(rows, key=lambda row: row.group)


def _matching(words: Sequence[str], known: Sequence[str]) -> set[str]:
    """A name that does not exist, or a pattern without a match, is `NotFound`."""
    chosen: set[str] = set()
    for word in words:
        found = [name for name in known if name == word or fnmatchcase(name, word)]
        if not found:
            raise NotFound("group like" if _PATTERN & set(word) else "group", word, known)
        chosen.update([word] if word in found else found)
    return chosen


def _group_row(
    listed: GroupListing, group: Group, commits: Commits, spans: Mapping[TopicPartition, Span] | None
) -> GroupRow:
    topics = {tp.topic for tp in commits} | {tp.topic for member in group.members for tp in member.partitions}
    lag = None
    if spans is not None:
        lag = sum(max(0, spans[tp].end - found.offset) for tp, found in commits.items() if tp in spans)
    return GroupRow(listed.name, listed.type, group.state, len(group.members), tuple(sorted(topics)), lag)


def show_group(store: GroupsStore, name: str) -> ShownGroup:
    deadline = store.deadline
    with store.session() as admin:
        group = get_group(admin, name, deadline)
        if group.state == "dead":
            return _unknown_group(admin, name, deadline)
        commits = list_committed(admin, name, deadline)
        assigned = {tp: member for member in group.members for tp in member.partitions}
        partitions = sorted({*commits, *assigned})
        facts = _facts(admin, partitions, deadline)
        times, notes = _lag_times(admin, commits, facts, deadline)
        notes += find_hidden(admin, facts.spans, {tp: one.offset for tp, one in commits.items()}, deadline)
    rows = tuple(_lag_row(tp, commits.get(tp), assigned.get(tp), facts, times.get(tp)) for tp in partitions)
    return ShownGroup(name, group.type, group.state, group.members, rows, notes)


def list_lags(store: GroupsStore, *, timed: int = 0) -> list[ShownGroup]:
    """Every consumer group with its position and lag in every partition, in a few requests for all of them together.

    The lag in time costs one read for each partition that is behind: it is asked for at most `timed` of them, those of the
    first groups; elsewhere it is None. Open transactions are not looked up.
    """
    deadline = store.deadline
    with store.session() as admin:
        listed = list_groups(admin, deadline)
        names = [group.name for group in listed]
        described = describe_groups(admin, names, deadline)
        committed = list_committed_of(admin, names, deadline)
        facts = _facts(admin, {tp for commits in committed.values() for tp in commits}, deadline)
        shown = []
        for one in listed:
            group, commits = described[one.name], committed[one.name]
            behind = [tp for tp, commit in commits.items() if tp in facts.spans and commit.offset < facts.spans[tp].end]
            asked = {tp: commit for tp, commit in commits.items() if tp not in behind or len(behind) <= timed}
            timed -= len(behind) if len(behind) <= timed else 0
            times, notes = _lag_times(admin, asked, facts, deadline)
            assigned = {tp: member for member in group.members for tp in member.partitions}
            rows = [_lag_row(tp, commits[tp], assigned.get(tp), facts, times.get(tp)) for tp in sorted(commits)]
            shown.append(ShownGroup(one.name, one.type, group.state, group.members, tuple(rows), notes))
    return shown


def _unknown_group(admin: Admin, name: str, deadline: Deadline) -> ShownGroup:
    for other in list_other_groups(admin, deadline):
        if other.name == name:
            note = f"this is a {other.type} group, not a consumer group: its positions are not shown here"
            return ShownGroup(name, other.type, other.state, notes=(note,))
    raise NotFound("group", name, [group.name for group in list_groups(admin, deadline)])


@dataclass(frozen=True, slots=True)
class _Facts:
    leaders: Mapping[str, Leaders | None]
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)

    def absence(self, tp: TopicPartition) -> str:
        found = self.leaders.get(tp.topic)
        if found is None:
            return "the topic does not exist any more"
        if tp.partition not in found:
            return f"the partition does not exist any more: the topic has {len(found)}"
        return "the partition has no leader"


def _facts(admin: Admin, partitions: Iterable[TopicPartition], deadline: Deadline) -> _Facts:
    wanted = list(partitions)
    leaders = find_leaders(admin, [tp.topic for tp in wanted], deadline)
    there = [tp for tp in wanted if (leaders[tp.topic] or {}).get(tp.partition) is not None]
    return _Facts(leaders, find_spans(admin, there, deadline))


def _lag_times(
    admin: Admin, commits: Commits, facts: _Facts, deadline: Deadline
) -> tuple[dict[TopicPartition, float], tuple[str, ...]]:
    """The lag in seconds, where it is known; and notes."""
    inside = {tp: c.offset for tp, c in commits.items() if tp in facts.spans and c.offset >= facts.spans[tp].start}
    seconds = {tp: 0.0 for tp, offset in inside.items() if offset == facts.spans[tp].end}
    behind = {tp: offset for tp, offset in inside.items() if offset < facts.spans[tp].end}
    try:
        here, newest = find_times_at(admin, behind, deadline), find_newest_times(admin, list(behind), deadline)
    except AccessDenied as error:
        return seconds, (f"lag in time is unknown: {error.what}",)
    for tp in behind:
        own, last = here.get(tp), newest.get(tp)
        if own is not None and last is not None:
            seconds[tp] = max(0, last - own) / 1000
    return seconds, ()


def _lag_row(
    tp: TopicPartition, commit: Committed | None, member: GroupMember | None, facts: _Facts, seconds: float | None
) -> LagRow:
    span = facts.spans.get(tp)
    return LagRow(
        tp.topic,
        tp.partition,
        commit.offset if commit else None,
        span.start if span else None,
        span.end if span else None,
        span.end - commit.offset if span and commit else None,
        seconds,
        member.client_id if member else None,
        member.host.lstrip("/") if member else None,
        member.id if member else None,
        commit.leader_epoch if commit else None,
        commit.metadata if commit else "",
        _lag_note(commit, span) if span else facts.absence(tp),
    )


def _lag_note(commit: Committed | None, span: Span) -> str:
    if commit is None:
        return "no commit"
    if commit.offset < span.start:
        return f"below the log start: {span.start - commit.offset} offset(s) are gone"
    if commit.offset > span.end:
        return "past the log end: the topic may have been recreated"
    return ""


def plan_group_delete(store: GroupsStore, groups: Sequence[str], scope: Scope) -> Plan:
    """Deletes the groups, or their commits in the topics of `scope`."""
    snapshot = store.snapshot(groups).by_owner()
    changes: list[Change] = []
    warnings: list[str] = []
    for group in groups:
        entries = {kafka_partition(group, entry.position.partition): entry for entry in snapshot.get(group, [])}
        gone = [tp for tp in entries if scope.covers(tp)]
        if not gone:
            where = "there" if scope.topics else "at all; Kafka removes an empty group by itself"
            warnings.append(f"{group} has no commit {where}")
            continue
        changes += [Change(group, entries[tp].position.partition, entries[tp].position.offset, None) for tp in gone]
    return Plan.of(store.uri, changes, warnings)
