"""Topics: list, describe, create, add partitions, delete, and read their start and end offsets.

Topics are described with DescribeTopics, never with a plain metadata request: on a broker with auto.create.topics.enable that
would create the topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from playhead.errors import AlreadyExists, NotFound, TimedOut
from playhead.kafka.client import Admin
from playhead.kafka.faults import code_of, fault_of, retried, translated
from playhead.model import Deadline, TopicPartition

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)


@dataclass(frozen=True, slots=True)
class Partition:
    id: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str
    is_internal: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Ends:
    """`start`: log start. `stable`: end of what is decided (LSO). `high`: end of what is replicated (high watermark)."""

    start: int
    stable: int
    high: int

    @property
    def has_open_transaction(self) -> bool:
        return self.stable < self.high


def list_topics(admin: Admin, deadline: Deadline) -> list[str]:
    with translated("listing topics"):
        return sorted(admin.raw.list_topics(timeout=seconds(deadline)).topics)


def get_topic(admin: Admin, name: str, deadline: Deadline) -> Topic:
    found = describe_topics(admin, [name], deadline)[name]
    if found is None:
        raise NotFound("topic", name, list_topics(admin, deadline))
    return found


def describe_topics(admin: Admin, names: Iterable[str], deadline: Deadline) -> dict[str, Topic | None]:
    """Several topics, in one request. None for a topic that does not exist or whose name is invalid."""
    unique = list(dict.fromkeys(names))
    wanted = [name for name in unique if name]
    if not wanted:
        return dict.fromkeys(unique)
    futures = admin.raw.describe_topics(TopicCollection(wanted), request_timeout=seconds(deadline))
    return dict.fromkeys(unique) | {name: _described(name, future, deadline) for name, future in futures.items()}


def _described(name: str, future: "Future[Any]", deadline: Deadline) -> Topic | None:
    try:
        found = answer(future, f"describing {name}", deadline)
    except KafkaException as error:
        if code_of(error).code() in _ABSENT:
            return None
        raise fault_of(code_of(error), f"describing {name}") from None
    partitions = tuple(
        Partition(
            p.id,
            p.leader.id if p.leader is not None and p.leader.id >= 0 else None,
            tuple(node.id for node in p.replicas),
            tuple(node.id for node in p.isr),
        )
        for p in sorted(found.partitions, key=lambda p: int(p.id))
    )
    topic_id = str(found.topic_id).replace("+", "-").replace("/", "_")  # as Kafka itself writes it
    return Topic(found.name, topic_id, found.is_internal, partitions)


def create_topic(
    admin: Admin,
    name: str,
    partitions: int,
    deadline: Deadline,
    *,
    copies: int = -1,
    config: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """`partitions` or `copies` -1: the broker's default. Returns when the broker has created the topic, or only checked it."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=copies, config=dict(config or {}))
    with translated(f"creating {name}"):
        futures = admin.raw.create_topics([topic], request_timeout=seconds(deadline), validate_only=validate_only)
        answer(futures[name], f"creating {name}", deadline)


def ensure_topic(admin: Admin, name: str, like: str, deadline: Deadline) -> Topic:
    """The topic. It is created with as many partitions as `like` has, unless it exists or another client creates it right now."""
    found = describe_topics(admin, [name], deadline)[name]
    if found is not None:
        return found
    with suppress(AlreadyExists):
        create_topic(admin, name, len(get_topic(admin, like, deadline).partitions), deadline)
    return deadline.wait_for(lambda: describe_topics(admin, [name], deadline)[name], f"creating {name}")


def add_partitions(admin: Admin, name: str, total: int, deadline: Deadline, *, validate_only: bool = False) -> None:
    """Increases the topic to `total` partitions. Kafka cannot reverse this."""
    doing = f"adding partitions to {name}"
    with translated(doing):
        wanted = [NewPartitions(name, total)]
        futures = admin.raw.create_partitions(wanted, request_timeout=seconds(deadline), validate_only=validate_only)
        answer(futures[name], doing, deadline)


def delete_topic(admin: Admin, name: str, deadline: Deadline) -> None:
    with translated(f"deleting {name}"):
        answer(admin.raw.delete_topics([name], request_timeout=seconds(deadline))[name], f"deleting {name}", deadline)


def topic_ends(admin: Admin, name: str, partitions: Iterable[int], deadline: Deadline) -> dict[int, Ends]:
    found = partition_ends(admin, [TopicPartition(name, partition) for partition in partitions], deadline)
    return {place.partition: ends for place, ends in found.items()}


def partition_ends(admin: Admin, wanted: Sequence[TopicPartition], deadline: Deadline) -> dict[TopicPartition, Ends]:
    """Start, stable end and high watermark. The watermark is read first, so that stable < high means an open transaction.

    Partitions are requested together: a topic with a thousand partitions needs three requests to each broker.
    """
    start = list_offsets(admin, wanted, EARLIEST, deadline)
    high = list_offsets(admin, wanted, LATEST, deadline)
    stable = list_offsets(admin, wanted, LATEST, deadline, committed=True)
    return {tp: Ends(start[tp], min(stable[tp], high[tp]), high[tp]) for tp in wanted}


def list_offsets(
    admin: Admin, wanted: Sequence[TopicPartition], spec: OffsetSpec, deadline: Deadline, *, committed: bool = False
) -> dict[TopicPartition, int]:
    """One offset for every wanted partition. The call fails if one partition fails."""
    return (
        retried(lambda: _list_offsets(admin, wanted, spec, deadline, committed=committed), deadline) if wanted else {}
    )


def _list_offsets(
    admin: Admin, wanted: Sequence[TopicPartition], spec: OffsetSpec, deadline: Deadline, *, committed: bool
) -> dict[TopicPartition, int]:
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    futures = admin.raw.list_offsets(
        {RawPartition(tp.topic, tp.partition): spec for tp in wanted},
        isolation_level=isolation,
        request_timeout=seconds(deadline),
    )
    found: dict[TopicPartition, int] = {}
    for raw, future in futures.items():
        place = TopicPartition(raw.topic, raw.partition)
        with translated(f"reading the offsets of {place}"):
            found[place] = answer(future, f"reading the offsets of {place}", deadline).offset
    return found


def answer(future: "Future[Any]", doing: str, deadline: Deadline) -> Any:
    """The result of an admin call. Never waits longer than the deadline, even if the library does."""
    try:
        return future.result(timeout=deadline.remaining() + 1.0)
    except FutureTimeout:
        raise TimedOut(f"{doing} was not answered within {deadline.words}") from None


def seconds(deadline: Deadline) -> float:
    """A request timeout that librdkafka accepts: never 0, which has another meaning."""
    return max(0.1, deadline.remaining())
