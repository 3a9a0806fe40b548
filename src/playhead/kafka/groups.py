"""Consumer groups: list, describe, committed offsets, commit for an idle group.

Every partition asked gets an answer; one the broker does not mention is a fault, never a success.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as RawPartition

from playhead.errors import PlayheadError, Rejected
from playhead.kafka.client import Admin
from playhead.kafka.faults import fault_of, translated
from playhead.kafka.topics import answer, seconds
from playhead.model import Deadline, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing:
    name: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


def list_groups(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    """Consumer groups of both protocols. One broker that does not answer fails the call: half a list is a wrong list."""
    with translated("listing consumer groups"):
        found = answer(
            admin.raw.list_consumer_groups(request_timeout=seconds(deadline)), "listing consumer groups", deadline
        )
    if found.errors:
        raise fault_of(found.errors[0].args[0], "listing consumer groups")
    return sorted(
        (GroupListing(g.group_id, g.type.name.lower(), g.state.name.lower()) for g in found.valid),
        key=lambda group: group.name,
    )


def get_group(admin: Admin, name: str, deadline: Deadline) -> Group:
    """An unknown group is described as dead, as Kafka does."""
    doing = f"describing group {name}"
    with translated(doing):
        found = answer(
            admin.raw.describe_consumer_groups([name], request_timeout=seconds(deadline))[name], doing, deadline
        )
    members = tuple(
        Member(
            m.member_id,
            m.client_id,
            m.host,
            tuple(
                TopicPartition(tp.topic, tp.partition) for tp in (m.assignment.topic_partitions if m.assignment else [])
            ),
        )
        for m in found.members
    )
    return Group(name, found.state.name.lower(), members)


def list_committed(admin: Admin, group: str, deadline: Deadline) -> dict[TopicPartition, Committed]:
    """Next offsets as committed. A partition without a commit is left out."""
    doing = f"reading the offsets of group {group}"
    request = [ConsumerGroupTopicPartitions(group)]
    with translated(doing):
        found = answer(
            admin.raw.list_consumer_group_offsets(request, request_timeout=seconds(deadline))[group], doing, deadline
        )
    committed: dict[TopicPartition, Committed] = {}
    for tp in found.topic_partitions:
        if tp.error:
            raise fault_of(tp.error, f"{doing} ({tp.topic}-{tp.partition})")
        if tp.offset >= 0:
            epoch = tp.leader_epoch if tp.leader_epoch is not None and tp.leader_epoch >= 0 else None
            committed[TopicPartition(tp.topic, tp.partition)] = Committed(tp.offset, tp.metadata or "", epoch)
    return committed


def commit(
    admin: Admin, group: str, wanted: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, PlayheadError | None]:
    """Commits next offsets for an idle group: None for each partition that was accepted, else its fault."""
    doing = f"committing offsets of group {group}"
    raw = [RawPartition(tp.topic, tp.partition, offset) for tp, offset in wanted.items()]
    request = [ConsumerGroupTopicPartitions(group, raw)]
    with translated(doing):
        found = answer(
            admin.raw.alter_consumer_group_offsets(request, request_timeout=seconds(deadline))[group], doing, deadline
        )
    answered = {TopicPartition(tp.topic, tp.partition): tp.error for tp in found.topic_partitions}
    return {tp: _verdict(tp, answered, doing) for tp in wanted}


def delete_groups(admin: Admin, names: Sequence[str], deadline: Deadline) -> None:
    for name, future in admin.raw.delete_consumer_groups(list(names), request_timeout=seconds(deadline)).items():
        with translated(f"deleting group {name}"):
            answer(future, f"deleting group {name}", deadline)


def _verdict(tp: TopicPartition, answered: Mapping[TopicPartition, object], doing: str) -> PlayheadError | None:
    if tp not in answered:
        return Rejected(f"{doing}: the broker did not answer for {tp}")
    error = answered[tp]
    return fault_of(error, f"{doing} ({tp})") if error else None  # type: ignore[arg-type]
