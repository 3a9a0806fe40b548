"""Consumer groups: list, describe, committed offsets, commit for an idle group, delete offsets or the group.

Every requested group and partition gets a result. One that the broker does not mention is a fault, never a success. Requests for
several groups are sent together. Reads are retried while a coordinator is loading. A commit that was rejected for all partitions
is retried too, which is idempotent.

librdkafka cannot delete the offset of one partition of a group (Kafka's OffsetDelete): the second client sends that request.
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from playhead.errors import Busy, PlayheadError, Refused, Rejected, TimedOut
from playhead.kafka.client import Admin
from playhead.kafka.faults import code_of, fault_of, retried, translated
from playhead.kafka.second_client import ask
from playhead.kafka.topics import answer, seconds
from playhead.model import Deadline, TopicPartition

IDLE = ("empty", "dead")
CONSUMER_TYPES = ("classic", "consumer")
OFFSETS_TOPIC = "__consumer_offsets"
_FIRST_SECONDS = 2.0
_AT_ONCE = 500  # concurrent requests: each group needs its own request to its coordinator
_NOT_A_CONSUMER_GROUP = re.compile(r"is not a consumer group \(([^)]*)\)")
_JOINED = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.GROUP_SUBSCRIBED_TO_TOPIC,
    }
)  # the errors of a commit or delete from outside once the group has a member


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`type`: classic or consumer."""

    name: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`type`: classic or consumer; the name of the protocol for other groups (Connect workers)."""

    name: str
    state: str
    members: tuple[GroupMember, ...]
    type: str = "classic"


@dataclass(frozen=True, slots=True)
class Committed:
    """`metadata`: text set by the committer. `leader_epoch`: that of the last record read, if the committer sent it."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


Commits = dict[TopicPartition, Committed]


def list_groups(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    """Consumer groups of both protocols. The call fails if one broker does not answer: a partial list would be wrong."""
    return retried(lambda: _list_groups(admin, deadline), deadline)


def _list_groups(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    with translated("listing consumer groups"):
        found = answer(
            admin.raw.list_consumer_groups(request_timeout=seconds(deadline)), "listing consumer groups", deadline
        )
    if found.errors:
        first = found.errors[0]  # an error, or an exception that contains one, depending on the client's version
        raise fault_of(first if isinstance(first, KafkaError) else first.args[0], "listing consumer groups")
    return sorted(
        (GroupListing(g.group_id, g.type.name.lower(), g.state.name.lower()) for g in found.valid),
        key=lambda group: group.name,
    )


def get_group(admin: Admin, name: str, deadline: Deadline) -> Group:
    """An unknown group is dead, as in Kafka. So is a share or streams group: see `group_types`."""
    return describe_groups(admin, [name], deadline)[name]


def describe_groups(admin: Admin, names: Iterable[str], deadline: Deadline) -> dict[str, Group]:
    """State and members of several groups, requested together."""
    found: dict[str, Group] = {}
    for batch in _batches(names):
        found |= retried(partial(_describe, admin, batch, deadline), deadline)
    return found


def _describe(admin: Admin, names: Sequence[str], deadline: Deadline) -> dict[str, Group]:
    futures = admin.raw.describe_consumer_groups(list(names), request_timeout=seconds(deadline))
    found: dict[str, Group] = {}
    for name, future in futures.items():
        doing = f"describing group {name}"
        try:
            found[name] = _group(name, answer(future, doing, deadline))
        except KafkaException as error:
            other = _NOT_A_CONSUMER_GROUP.search(code_of(error).str())
            if other is None:
                raise fault_of(code_of(error), doing) from None
            found[name] = Group(name, "unknown", (), other.group(1) or "unknown")
    return found


def count_members(admin: Admin, name: str, deadline: Deadline) -> int:
    """Number of members of a group of any kind, also of Connect workers, which the newer call does not describe."""
    with translated(f"describing group {name}"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = admin.raw.list_groups(name, timeout=seconds(deadline))
    for group in found:
        if group.error is not None:
            raise fault_of(group.error, f"describing group {name}")
    return sum(len(group.members) for group in found)


def _group(name: str, found: Any) -> Group:
    members = tuple(
        GroupMember(
            m.member_id,
            m.client_id,
            m.host,
            tuple(
                TopicPartition(tp.topic, tp.partition) for tp in (m.assignment.topic_partitions if m.assignment else [])
            ),
        )
        for m in found.members
    )
    return Group(name, found.state.name.lower(), members, found.type.name.lower())


def list_committed(admin: Admin, group: str, deadline: Deadline) -> Commits:
    """Next offsets as committed. A partition without a commit is left out."""
    return list_committed_of(admin, [group], deadline)[group]


def list_decided(admin: Admin, group: str, places: Iterable[TopicPartition], deadline: Deadline) -> Commits:
    """The same for some partitions, once no open transaction may change them; `Busy` if one stays open. They are named in the
    request: in a request for all partitions a broker leaves out those whose first commit is not decided."""
    wanted = [RawPartition(place.topic, place.partition) for place in places]
    _await_first_groups(admin, [group], deadline)
    return retried(lambda: _decided(admin, group, wanted, deadline), deadline)


def _decided(admin: Admin, group: str, wanted: Sequence[RawPartition], deadline: Deadline) -> Commits:
    doing = f"reading the offsets of group {group}"
    request = [ConsumerGroupTopicPartitions(group, list(wanted))]
    future = admin.raw.list_consumer_group_offsets(request, require_stable=True, request_timeout=seconds(deadline))[
        group
    ]
    with translated(doing):
        found = answer(future, doing, deadline).topic_partitions
    if any(tp.error and tp.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT for tp in found):
        raise Busy(f"{doing}: they are part of a transaction that is not decided")
    return _commits(found, doing)


def list_committed_of(admin: Admin, groups: Iterable[str], deadline: Deadline) -> dict[str, Commits]:
    """The commits of several groups, requested together."""
    found: dict[str, Commits] = {}
    names = list(groups)
    _await_first_groups(admin, names, deadline)
    for batch in _batches(names):
        found |= retried(partial(_committed_of, admin, batch, deadline), deadline)
    return found


def _await_first_groups(admin: Admin, groups: Sequence[str], deadline: Deadline) -> None:
    """In a cluster that had no group yet, the first request makes the broker create the topic of all groups. While that topic is
    loaded, librdkafka 2.x crashes on the answer to a request for offsets (uninitialised memory). Its request to describe a group
    does not crash, but may wait in vain: it is repeated."""
    with translated("looking for groups"):
        found = admin.raw.list_topics(OFFSETS_TOPIC, timeout=seconds(deadline)).topics.get(OFFSETS_TOPIC)
    while found is None or found.error is not None:
        try:
            describe_groups(admin, groups, deadline.within(_FIRST_SECONDS))
            return
        except TimedOut:
            deadline.check("looking for groups")


def _committed_of(admin: Admin, groups: Sequence[str], deadline: Deadline) -> dict[str, Commits]:
    futures = {}
    for group in groups:  # the library accepts one group per call
        request = [ConsumerGroupTopicPartitions(group)]
        futures[group] = admin.raw.list_consumer_group_offsets(request, request_timeout=seconds(deadline))[group]
    found: dict[str, Commits] = {}
    for group, future in futures.items():
        doing = f"reading the offsets of group {group}"
        with translated(doing):
            found[group] = _commits(answer(future, doing, deadline).topic_partitions, doing)
    return found


def _commits(partitions: Iterable[Any], doing: str) -> Commits:
    committed: Commits = {}
    for tp in partitions:
        if tp.error:
            raise fault_of(tp.error, f"{doing} ({tp.topic}-{tp.partition})")
        if tp.offset >= 0:
            epoch = tp.leader_epoch if tp.leader_epoch is not None and tp.leader_epoch >= 0 else None
            committed[TopicPartition(tp.topic, tp.partition)] = Committed(tp.offset, tp.metadata or "", epoch)
    return committed


def commit(
    admin: Admin, group: str, wanted: Mapping[TopicPartition, Committed], deadline: Deadline
) -> dict[TopicPartition, PlayheadError | None]:
    """Commits next offsets for an idle group: None for each partition that was accepted, else its fault.

    Metadata and leader epoch are sent as given, and the broker stores them. Not possible: null metadata (it becomes an empty
    text), metadata with a NUL in it, and another commit time than now. The broker refuses a group that has a member. No answer
    in time raises `TimedOut` or `Unreachable`: the commit may have happened.
    """
    return retried(lambda: _commit(admin, group, wanted, deadline), deadline)


def _commit(
    admin: Admin, group: str, wanted: Mapping[TopicPartition, Committed], deadline: Deadline
) -> dict[TopicPartition, PlayheadError | None]:
    doing = f"committing offsets of group {group}"
    request = [ConsumerGroupTopicPartitions(group, [_raw(tp, what) for tp, what in wanted.items()])]
    with translated(doing):
        found = answer(
            admin.raw.alter_consumer_group_offsets(request, request_timeout=seconds(deadline))[group], doing, deadline
        )
    answered = {TopicPartition(tp.topic, tp.partition): tp.error for tp in found.topic_partitions}
    verdicts = {tp: _verdict(tp, group, answered, doing) for tp in wanted}
    busy = [fault for fault in verdicts.values() if isinstance(fault, Busy)]
    if busy and len(busy) == len(wanted) and not deadline.passed:
        raise busy[0]
    return verdicts


def _raw(tp: TopicPartition, what: Committed) -> RawPartition:
    epoch = -1 if what.leader_epoch is None else what.leader_epoch
    return RawPartition(tp.topic, tp.partition, what.offset, what.metadata, epoch)


def _verdict(
    tp: TopicPartition, group: str, answered: Mapping[TopicPartition, KafkaError | None], doing: str
) -> PlayheadError | None:
    if tp not in answered:
        return Rejected(f"{doing}: the broker did not answer for {tp}")
    error = answered[tp]
    if error is None:
        return None
    if error.code() in _JOINED:
        return Refused(f"group {group} has a member now", "stop its members first")
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return Refused(f"{group} is not a consumer group", "use Kafka's own tools for share and streams groups")
    return fault_of(error, f"{doing} ({tp})")


def delete_offsets(
    admin: Admin, group: str, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, PlayheadError | None]:
    """Deletes the offsets of these partitions and touches no other: None for each that is deleted, else its fault.

    The broker refuses a partition whose topic a member of the group reads, and one that does not exist any more. No answer in
    time raises `TimedOut` or `Unreachable`: the offsets may be deleted.
    """
    doing = f"deleting offsets of group {group}"
    found = ask(admin, doing, lambda client: client.delete_group_offsets(group, partitions), deadline)
    answered = {
        TopicPartition(tp.topic, tp.partition): KafkaError(error.errno) if error.errno else None
        for tp, error in found.items()
    }
    return {tp: _verdict(tp, group, answered, doing) for tp in partitions}


def delete_groups(admin: Admin, names: Sequence[str], deadline: Deadline) -> None:
    """Raises for the first group that was not deleted: `Refused` if it has members."""
    for name, future in admin.raw.delete_consumer_groups(list(names), request_timeout=seconds(deadline)).items():
        with translated(f"deleting group {name}"):
            answer(future, f"deleting group {name}", deadline)


def _batches(names: Iterable[str]) -> list[list[str]]:
    unique = list(dict.fromkeys(names))
    return [unique[i : i + _AT_ONCE] for i in range(0, len(unique), _AT_ONCE)]
