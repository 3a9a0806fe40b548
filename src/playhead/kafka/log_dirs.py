"""How many bytes the replicas of partitions use on the disks of their brokers.

librdkafka cannot request this, so we send a small DescribeLogDirs request of our own (version 3: brokers 3.2 and later). Each
broker reports its own replicas and requires the right to describe the cluster. A broker that requires SASL or a client
certificate cannot be queried this way; then the sizes are unknown.
"""

import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

from playhead.kafka.client import Admin, Broker
from playhead.kafka.properties import ClientSettings
from playhead.kafka.wire import Reader, ask, ask_brokers, connected
from playhead.model import Deadline, TopicPartition

_DESCRIBE_LOG_DIRS, _VERSION = 35, 3
_ALL_TOPICS = b"\0"


class Replica(NamedTuple):
    """`is_future`: a copy that is being moved to another disk of the same broker, in addition to the replica in use."""

    broker: int
    partition: TopicPartition
    size: int
    is_future: bool


def list_replicas(
    admin: Admin, deadline: Deadline, topics: Collection[str] | None = None
) -> dict[int, list[Replica]] | None:
    """Broker -> its replicas, of all topics or of some. None if a broker cannot be queried or returns an error."""
    found = ask_brokers(admin, deadline, _replicas_of)
    if found is None or topics is None:
        return found
    wanted = set(topics)
    return {id_: [one for one in replicas if one.partition.topic in wanted] for id_, replicas in found.items()}


def _replicas_of(settings: ClientSettings, broker: Broker, patience: float) -> Iterator[Replica]:
    with connected(settings, broker.host, broker.port, patience) as connection:
        answer = ask(connection, _DESCRIBE_LOG_DIRS, _VERSION, _ALL_TOPICS)
    _throttle, error = struct.unpack(">ih", answer.take(6))
    if error:
        raise IndexError(f"the broker answered with error {error}")
    for _ in range(answer.varint() - 1):
        (offline,) = struct.unpack(">h", answer.take(2))
        answer.text()  # the folder
        replicas = list(_of_folder(answer, broker.id))
        answer.skip_tags()
        if offline:
            raise IndexError(f"a disk of broker {broker.id} is offline: its replicas are unknown")
        yield from replicas


def _of_folder(answer: Reader, broker: int) -> Iterator[Replica]:
    for _ in range(answer.varint() - 1):
        topic = answer.text()
        for _ in range(answer.varint() - 1):
            number, size, _lag, is_future = struct.unpack(">iqqb", answer.take(21))
            answer.skip_tags()
            yield Replica(broker, TopicPartition(topic, number), size, bool(is_future))
        answer.skip_tags()
