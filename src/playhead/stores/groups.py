"""Consumer groups of a cluster: `groups://broker:9092[,broker:9092]`, of both protocols, classic and consumer.

Kafka accepts commits from outside only while a group has no member, so a group must be empty, or not exist: then the commit
creates it. No flag overrides that, because the broker would refuse the commit. Share and streams groups store their positions in
other ways and are never edited.

Several partitions of a group are committed in one request, and their commits deleted in another one. Neither touches a partition
that is not named. If every commit of a group is deleted, the group is deleted with them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from playhead.config import Context, Setting
from playhead.config.contexts import masked
from playhead.errors import Invalid, PlayheadError, Refused, TimedOut, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.groups import (
    CONSUMER_TYPES,
    IDLE,
    Commits,
    Committed,
    Group,
    commit,
    delete_groups,
    delete_offsets,
    describe_groups,
    list_committed_of,
    list_groups,
)
from playhead.kafka.partitions import Leaders, find_leaders
from playhead.kafka.properties import ClientSettings, client_settings
from playhead.model import Change, Deadline, Map, Outcome, Outcomes, Position, Result, TopicPartition
from playhead.model.position import Scalar
from playhead.stores import Access, Capabilities, Refusal, Snapshot, Stored

SCHEME = "groups://"
Verdicts = dict[TopicPartition, PlayheadError | None]


@dataclass
class GroupsStore:
    settings: ClientSettings
    deadline: Deadline
    _admin: Admin | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.settings.bootstrap}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(atomic=False)

    @contextmanager
    def session(self) -> Iterator[Admin]:
        """One connection for all calls inside the block. Outside of it every call opens its own."""
        if self._admin is not None:
            yield self._admin
            return
        with Admin(self.settings, self.deadline) as admin:
            self._admin = admin
            try:
                yield admin
            finally:
                self._admin = None

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        with self.session() as admin:
            notes: tuple[str, ...] = ()
            if owners is None:
                owners = [group.name for group in list_groups(admin, self.deadline)]
                notes = _notes_on_others(admin, self.deadline)
            committed = list_committed_of(admin, [name for name in owners if name], self.deadline)
        entries = [_stored(group, tp, committed[group][tp]) for group in committed for tp in sorted(committed[group])]
        return Snapshot(tuple(entries), notes)

    def names(self) -> list[str]:
        with self.session() as admin:
            return [group.name for group in list_groups(admin, self.deadline)]

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        now = self.snapshot(owners)
        return Snapshot(now.entries, (*now.notes, "a group holds only its newest commit: there is no history"))

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        unnamed = [Refusal(owner, "a group needs a name") for owner in owners if not owner]
        with self.session() as admin:
            groups = describe_groups(admin, [owner for owner in owners if owner], self.deadline)
            others = _other_types(admin, self.deadline) if any(g.state == "dead" for g in groups.values()) else {}
        return unnamed + [refusal for group in groups.values() if (refusal := _refusal(group, others.get(group.name)))]

    def write(self, changes: Sequence[Change]) -> Outcomes:
        return self.write_marked(changes, {})

    def write_marked(self, changes: Sequence[Change], marks: Mapping[str, str]) -> Outcomes:
        """`marks`: group -> the metadata for its commits. An equal offset with other metadata is committed again."""
        with self.session() as admin:
            edits = [replace(edit, mark=marks.get(edit.group, "")) for edit in _edits(admin, changes, self.deadline)]
            outcomes = {id(outcome.change): outcome for edit in edits for outcome in edit.outcomes()}
        return Outcomes(outcomes[id(change)] for change in changes)


def open_uri(uri: str, access: Access) -> GroupsStore:
    """The brokers are from the URI, the other client settings from the context."""
    servers = uri.removeprefix(SCHEME)
    if not uri.startswith(SCHEME) or "/" in servers or "@" in servers or not all(servers.split(",")):
        raise Invalid(
            f"{masked(uri)!r} does not name brokers", "write it as groups://host:9092, several with commas between"
        )
    return open_groups(access.context, access.deadline, servers)


def open_groups(context: Context, deadline: Deadline, servers: str | None = None) -> GroupsStore:
    """The groups of the context's cluster, or of the cluster of `servers`."""
    if servers is not None:
        context = Context(context.name, {**context.settings, "bootstrap-servers": Setting(servers, "--store")})
    return GroupsStore(client_settings(context), deadline)


def _stored(group: str, tp: TopicPartition, found: Committed) -> Stored:
    where: dict[str, Scalar] = {}
    if found.metadata:
        where["metadata"] = found.metadata
    if found.leader_epoch is not None:
        where["leader_epoch"] = found.leader_epoch
    return Stored(Position.of_kafka(group, tp.topic, tp.partition, found.offset), where)


def _other_types(admin: Admin, deadline: Deadline) -> dict[str, str]:
    from playhead.kafka.group_types import list_other_groups

    return {group.name: group.type for group in list_other_groups(admin, deadline)}


def _notes_on_others(admin: Admin, deadline: Deadline) -> tuple[str, ...]:
    """Groups of Connect workers get no note: they hold no positions."""
    others = _other_types(admin, deadline)
    return tuple(f"{name} is a {kind} group: skipped" for name, kind in others.items() if kind != "connect")


def _refusal(group: Group, other_type: str | None) -> Refusal | None:
    kind = other_type or (group.type if group.type not in CONSUMER_TYPES else None)
    if kind is not None:
        return Refusal(
            group.name, f"{group.name} is a {kind} group, not a consumer group", "use the tool of that kind of group"
        )
    if group.state in IDLE:
        return None
    members = f" with {len(group.members)} member(s)" if group.members else ""
    return Refusal(group.name, f"group {group.name} is {group.state}{members}", "stop its members first")


# Writing


@dataclass(frozen=True, slots=True)
class _Target:
    change: Change
    partition: TopicPartition
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class _Edit:
    """All changes of one group. `fault`: why none of them may be written."""

    admin: Admin
    group: str
    changes: Sequence[Change]
    targets: Sequence[_Target]
    now: Commits
    fault: str | None
    deadline: Deadline
    mark: str = ""

    def outcomes(self) -> list[Outcome]:
        if self.fault is not None:
            return self._all(Result.REFUSED, self.fault)
        wanted = {t.partition: t.after for t in self.targets}
        forgotten = [tp for tp, offset in wanted.items() if offset is None and tp in self.now]
        moved = {tp: Committed(n, self.mark) for tp, n in wanted.items() if n is not None and not self._is_at(tp, n)}
        verdicts = self._asked(moved, lambda: commit(self.admin, self.group, moved, self.deadline))
        if fault := next((fault for fault in verdicts.values() if fault is not None), None):
            verdicts |= dict.fromkeys(forgotten, Refused(f"not deleted, because another change failed: {fault.what}"))
        else:
            verdicts |= self._asked(forgotten, lambda: self._forget(forgotten, moved))
        detail = "the group is deleted" if self._is_emptied(forgotten, moved) else ""
        return [self._outcome(target, verdicts, detail if target.after is None else "") for target in self.targets]

    def _asked(self, partitions: Collection[TopicPartition], write: Callable[[], Verdicts]) -> Verdicts:
        """The fault of a whole request is the fault of each of its partitions: another request may have been accepted."""
        if not partitions:
            return {}
        try:
            return write()
        except PlayheadError as error:
            return dict.fromkeys(partitions, error)

    def _forget(self, forgotten: Sequence[TopicPartition], moved: Commits) -> Verdicts:
        if not self._is_emptied(forgotten, moved):
            return delete_offsets(self.admin, self.group, forgotten, self.deadline)
        delete_groups(self.admin, [self.group], self.deadline)
        return dict.fromkeys(forgotten)

    def _is_emptied(self, forgotten: Collection[TopicPartition], moved: Commits) -> bool:
        return not moved and set(forgotten) == set(self.now)

    def _outcome(self, target: _Target, verdicts: Verdicts, detail: str) -> Outcome:
        fault = verdicts.get(target.partition)
        if fault is None:
            return self._done(target, detail)
        if _answer_was_lost(fault):
            return Outcome(target.change, Result.UNKNOWN, f"{fault.what}; it may have been written")
        return Outcome(target.change, Result.REFUSED if isinstance(fault, Refused) else Result.FAILED, _sentence(fault))

    def _done(self, target: _Target, detail: str) -> Outcome:
        after = target.after
        same = target.partition not in self.now if after is None else self._is_at(target.partition, after)
        return Outcome(target.change, Result.UNCHANGED if same else Result.CHANGED, "" if same else detail)

    def _all(self, result: Result, detail: str) -> list[Outcome]:
        return [Outcome(change, result, detail) for change in self.changes]

    def _is_at(self, tp: TopicPartition, offset: int) -> bool:
        found = self.now.get(tp)
        return found is not None and found.offset == offset and self.mark in ("", found.metadata)


def _edits(admin: Admin, changes: Sequence[Change], deadline: Deadline) -> list[_Edit]:
    """Reads and checks all groups before the first one is changed."""
    by_group: dict[str, list[Change]] = {}
    for change in changes:
        by_group.setdefault(change.owner, []).append(change)
    now = list_committed_of(admin, [group for group in by_group if group], deadline)
    parsed = {group: _targets(group, of_group) for group, of_group in by_group.items()}
    topics = {t.partition.topic for found in parsed.values() if not isinstance(found, str) for t in found}
    topics |= {tp.topic for commits in now.values() for tp in commits}
    leaders = find_leaders(admin, sorted(topics), deadline)
    edits = []
    for group, of_group in by_group.items():
        found, commits = parsed[group], now.get(group, {})
        targets, fault = ((), found) if isinstance(found, str) else (found, _fault(found, commits, leaders))
        edits.append(_Edit(admin, group, of_group, targets, commits, fault, deadline))
    return edits


def _targets(group: str, changes: Sequence[Change]) -> list[_Target] | str:
    """The changes as Kafka partitions and offsets, or why they are invalid."""
    if not group:
        return "a group needs a name"
    try:
        return [_Target(c, _partition(c.partition), _next_offset(c.before), _next_offset(c.after)) for c in changes]
    except Invalid as error:
        return error.what


def _partition(found: Map) -> TopicPartition:
    topic, number = found.get("kafka_topic"), found.get("kafka_partition")
    if len(found) != 2 or not isinstance(topic, str) or not topic or type(number) is not int or number < 0:
        raise Invalid(f'{found} is not a partition of a topic: expected {{"kafka_topic": "t", "kafka_partition": 0}}')
    return TopicPartition(topic, number)


def _next_offset(found: Map | None) -> int | None:
    if found is None:
        return None
    offset = found.get("kafka_offset")
    if len(found) != 1 or type(offset) is not int:
        raise Invalid(f'{found} is not a Kafka offset: expected {{"kafka_offset": 5}}')
    if offset < 0:
        raise Invalid(f"{offset} is negative: an offset is 0 or more")
    return offset


def _fault(targets: Sequence[_Target], now: Commits, leaders: Mapping[str, Leaders | None]) -> str | None:
    for target in targets:
        found = now.get(target.partition)
        offset = found.offset if found else None
        if offset not in (target.before, target.after):
            was, is_now = _shown(target.before), _shown(offset)
            return f"{target.partition} moved since the plan was created: it was {was} and is {is_now}; plan again"
    forgotten = {target.partition for target in targets if target.after is None and target.partition in now}
    wanted = {target.partition for target in targets if target.after is not None}
    for tp in sorted(wanted):
        if absent := _absence(tp, leaders.get(tp.topic)):
            return absent
    for tp in sorted(forgotten) if wanted or forgotten != set(now) else ():
        if absent := _absence(tp, leaders.get(tp.topic)):
            return f"{absent}: Kafka removes its commit by itself; only the whole group can be deleted before"
    return None


def _absence(tp: TopicPartition, leaders: Leaders | None) -> str | None:
    if leaders is None:
        return f"topic {tp.topic} does not exist"
    return None if tp.partition in leaders else f"{tp} does not exist: {tp.topic} has {len(leaders)} partition(s)"


def _answer_was_lost(error: PlayheadError) -> bool:
    """No answer arrived. The exact type is compared, because `AccessDenied` is an `Unreachable` too, but is an answer."""
    return type(error) in (Unreachable, TimedOut)


def _shown(offset: int | None) -> str:
    return "without a commit" if offset is None else str(offset)


def _sentence(error: PlayheadError) -> str:
    return f"{error.what}; {error.hint}" if error.hint else error.what
