"""Who reads and writes a topic, and how each is moved to its copy: connectors by config, groups and sinks by position.

What cannot be moved is an objection, and so is what could not be asked. Kafka does not know its other producers: they are seen
only by the records that arrive.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from playhead.config import Context
from playhead.connect.rest import Rest
from playhead.kafka.client import Admin
from playhead.kafka.group_types import UNTOLD, list_other_groups
from playhead.kafka.groups import IDLE, Commits, list_committed_of
from playhead.kafka.topics import get_topic, topic_ends
from playhead.model import Deadline
from playhead.offsets.published import Mark
from playhead.offsets.spark_sinks import Sinks
from playhead.offsets.workers import ConfiguredConnector
from playhead.pipeline.copy.positions import Mark as CopyMark
from playhead.pipeline.copy.translate import commits_of
from playhead.shrink.configs import Config, changed_config, why_not_moved, why_overwrites, whys_other
from playhead.shrink.on_spark import look_at_runs, sinks_on_spark
from playhead.shrink.record import MovedConnector
from playhead.stores import Access
from playhead.topics.names import topics_of_connect, why_internal
from playhead.topics.session import Session
from playhead.topics.usage import MIRRORS, READS, ConnectorUse, Usage, find_users, how_by_config

# By their names, which these programs give them: Connect, MirrorMaker 2, Schema Registry, Kafka Streams.
_OF_OTHERS = {
    r"(.*-)?connect-(offsets|configs?|status)": "a topic of a Connect cluster, by its name",
    r"mm2-.+\.internal|.+\.checkpoints\.internal": "a topic of MirrorMaker, by its name",
    r"_schemas": "the topic of a schema registry, by its name",
    r".+-(KSTREAM|KTABLE)-.+-(changelog|repartition)": "a topic that Kafka Streams makes for itself, by its name",
}
STOPPED = "STOPPED"
_NOT_MOVED = ("share", "streams", UNTOLD)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which topic becomes which. `copier`: the group of the copy, which stays. `accepts_names`: sinks that name their output by
    the topic may use the new name, and patterns that cannot be read may match it."""

    topic: str
    target: str
    copier: str
    accepts_names: bool = False


@dataclass(frozen=True, slots=True)
class Movers:
    """`groups`: their position is translated, those of sink connectors too. `sinks`: on Spark, their position in the ledger is
    translated. `objections`: why the switch would be refused now. `notes`: what else the user should know."""

    connectors: tuple[MovedConnector, ...] = ()
    groups: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_movers(
    admin: Admin,
    access: Access,
    change: Wanted,
    recorded: Sequence[MovedConnector] = (),
) -> Movers:
    """`recorded`: the connectors that are being moved already. They are stopped, and may have their new config."""
    topic, target = change.topic, change.target
    found = find_users(Session(admin, access.context, access.deadline), [topic, target])
    usage = found.by_topic[topic]
    objections = list(usage.unknown)
    notes = [note for note in found.notes if note not in usage.unknown]
    known = {one.name for one in recorded}
    objections += early_readers(access, found.by_topic[target], target, known)
    if not change.accepts_names:
        maybe = found.by_topic[target]
        objections += maybe_readers(maybe)
        notes = [note for note in notes if note not in maybe.unread]
    fresh = [use for use in usage.connectors or () if use.connector not in known]
    moved, states = _connectors(access, fresh, change, objections, notes)
    states |= _groups_of(access, recorded)
    sinks = Sinks(access)
    ledgers = sinks_on_spark(sinks, topic, objections)
    look_at_runs(sinks, topic, change.copier, objections, notes)
    objections += other_groups(admin, topic, access.deadline)
    readers, commits = _readers(admin, usage, change, access.deadline, notes)
    objections += _stale(admin, {name: commits_of(commits[name], topic) for name in readers}, topic, access.deadline)
    groups = []
    for name, members in readers.items():
        # A connector that Connect runs owns its group, also if a ledger published there before.
        if (published := _published(commits[name], topic)) and states.get(name, STOPPED) == STOPPED:
            if not published <= set(ledgers.values()):
                objections.append(f"group {name} is of a sink on Spark that this ledger does not have (--ledger)")
            continue
        groups.append(name)
        if members and name not in states:
            objections.append(f"group {name} has {members} member(s): stop them")
    if usage.connectors is None and not usage.unknown:
        notes.append("connectors are not looked at: no Connect worker is named (--connect URL)")
    if moved:
        names = ", ".join(one.name for one in moved)
        notes.append(f"files from which {names} may be applied again still name {topic}: change them, too")
    notes += [f"{name} runs on Spark: change `topics` in its file to {target} before it runs again" for name in ledgers]
    return Movers(tuple(moved), tuple(groups), tuple(ledgers), tuple(objections), tuple(notes))


def _readers(
    admin: Admin, usage: Usage, change: Wanted, deadline: Deadline, notes: list[str]
) -> tuple[dict[str, int], dict[str, Commits]]:
    """The groups that read the topic, with the number of their members; and their commits, with those of copies."""
    uses = [use for use in usage.groups or () if use.group != change.copier]
    commits = list_committed_of(admin, [use.group for use in uses], deadline)
    copies = {name for name, some in commits.items() if _is_copy(some, change.topic)}
    notes += [f"group {name} is the position of a copy, and stays: copy the new topic anew" for name in sorted(copies)]
    return {use.group: use.members for use in uses if use.group not in copies}, commits


def _connectors(
    access: Access, uses: Sequence[ConnectorUse], change: Wanted, objections: list[str], notes: list[str]
) -> tuple[list[MovedConnector], dict[str, str]]:
    """The connectors that can be moved, and by group of a sink, the state of its connector."""
    moved: list[MovedConnector] = []
    if not uses:
        return moved, {}
    with access.rest() as rest:
        for use in uses:
            config = rest.get_config(use.connector)
            after = changed_config(use, config, change.topic, change.target)
            if after is None and use.how == MIRRORS and not use.is_alive:
                notes.append(
                    f"connector {use.connector} would mirror {change.target} as another topic when it is resumed"
                )
                continue
            if after is None:
                objections.append(f"connector {use.connector} cannot be moved: {why_not_moved(use, config)}")
                continue
            if use.type == "sink":
                _look_at_sink(use.connector, {**config, **after}, change, objections, notes)
            before = {key: config.get(key) for key in after}
            moved.append(MovedConnector(use.connector, use.type, _state(rest, use.connector), before, after))
    return moved, _groups_of(access, moved)


def _look_at_sink(name: str, config: Config, change: Wanted, objections: list[str], notes: list[str]) -> None:
    """`config`: the new one."""
    words = [f"connector {name} {why}" for why in whys_other(config, change.topic, change.target)]
    if change.accepts_names:
        notes += words
    else:
        objections += [f"{one}: --new-names accepts that" for one in words]
    if why := why_overwrites(config, change.topic, change.target):
        objections.append(f"connector {name} {why}")


def _groups_of(access: Access, connectors: Sequence[MovedConnector]) -> dict[str, str]:
    """By group of a sink: the state of its connector before the change."""
    sinks = [one for one in connectors if one.type == "sink"]
    if not sinks:
        return {}
    with access.rest() as rest:
        there = present(rest, sinks)
        return {ConfiguredConnector.of(one.name, rest.get_config(one.name)).group: one.state for one in there}


def present(rest: Rest, connectors: Sequence[MovedConnector]) -> list[MovedConnector]:
    """Without those that were deleted since the change began: there is nothing of them to be moved."""
    names = set(rest.list_connectors()) if connectors else set()
    return [one for one in connectors if one.name in names]


def _state(rest: Rest, name: str) -> str:
    status = rest.find_status(name)
    state = status.connector.state if status else "RUNNING"
    return state if state in ("PAUSED", "STOPPED") else "RUNNING"


def _published(commits: Commits, topic: str) -> set[str]:
    """The ledgers that the commits of a group in the topic are copies of. The next run of a sink publishes its new position."""
    return {mark.ledger for place, one in commits.items() if place.topic == topic and (mark := Mark.find(one.metadata))}


def _is_copy(commits: Commits, topic: str) -> bool:
    """Whether a group holds the position of a copy: its commits name the two topics by their ids."""
    return any(place.topic == topic and CopyMark.find(one.metadata) for place, one in commits.items())


def _stale(admin: Admin, read: Mapping[str, Mapping[int, int]], topic: str, deadline: Deadline) -> list[str]:
    """Of an earlier topic of this name, or after a loss of records: no offset of the new topic belongs to it. `read`: by group
    and partition, the next offset."""
    if not any(read.values()):
        return []
    ends = topic_ends(admin, topic, [one.id for one in get_topic(admin, topic, deadline).partitions], deadline)
    return [
        f"group {name} has committed {offset} in {topic}-{number}, which ends at {ends[number].high}: playhead groups reset"
        f" {name} --to-current --topic {topic} --execute"
        for name, some in read.items()
        for number, offset in some.items()
        if number in ends and offset > ends[number].high
    ]


def other_groups(admin: Admin, topic: str, deadline: Deadline) -> list[str]:
    """Share and streams groups, whose positions cannot be moved. Which topics a share group reads is not known."""
    listed = [one for one in list_other_groups(admin, deadline) if one.type in _NOT_MOVED]
    others = [one for one in listed if one.state not in IDLE]
    streams = list_committed_of(admin, [one.name for one in others if one.type == "streams"], deadline)
    reads = {name for name, commits in streams.items() if commits_of(commits, topic)}
    return [
        f"{one.type} group {one.name} {'reads' if one.name in reads else 'may read'} it: stop its members"
        for one in others
        if one.name in reads or one.name not in streams
    ]


def early_readers(access: Access, usage: Usage, target: str, known: Collection[str] = ()) -> list[str]:
    """Connectors that read the new topic while it is filled, with all that they have read in the old one. `usage`: of the new
    topic, which need not be there. A worker remembers what was used during an earlier change, so the config decides."""
    found = list[str]()
    with ExitStack() as stack:
        rest = stack.enter_context(access.rest()) if usage.connectors else None
        for use in usage.connectors or ():
            config = rest.get_config(use.connector) if rest and use.connector not in known else {}
            how = how_by_config(use.connector, target, config, found)
            if how == READS or (how == MIRRORS and use.is_alive):
                pattern = config.get("topics.regex") or config.get("topics") or ""
                found.append(
                    f"connector {use.connector} would read {target} while it is filled ({pattern}): --to names another"
                )
    return found


def maybe_readers(usage: Usage) -> list[str]:
    """Connectors that may read the new topic, by a pattern that cannot be read here. `usage`: of the new topic."""
    return [f"{one}: --new-names accepts that" for one in usage.unread]


def why_not_shrunk(admin: Admin, context: Context, topic: str, deadline: Deadline) -> str | None:
    """What the topic is, if others than its readers and writers depend on its partitions."""
    if why := why_internal(topic, topics_of_connect(context)):
        return why
    if get_topic(admin, topic, deadline).is_internal:
        return "a topic of Kafka itself"
    for pattern, words in _OF_OTHERS.items():
        if re.fullmatch(pattern, topic):
            return words
    return None
