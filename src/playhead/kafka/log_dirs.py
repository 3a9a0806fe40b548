"""How many bytes the replicas of partitions take on the disks of their brokers.

librdkafka does not ask for this, so a small DescribeLogDirs request of our own does (its version 3: brokers of 3.2 and later).
Each broker tells about its own replicas and wants the right to describe the cluster. A broker that wants SASL or a client
certificate cannot be asked this way; then nothing is told here.
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
    """`is_future`: it is being moved to another disk of the same broker, beside the one that is in use."""

    broker: int
    partition: TopicPartition
    size: int
    is_future: bool


def list_replicas(
    admin: Admin, deadline: Deadline, topics: Collection[str] | None = None
) -> dict[int, list[Replica]] | None:
    """Broker -> its replicas, of all topics or of some. None where a broker cannot be asked or does not tell."""
    found = ask_brokers(admin, deadline, _told_by)
    if found is None or topics is None:
        return found
    wanted = set(topics)
    return {id_: [replica for replica in told if replica.partition.topic in wanted] for id_, told in found.items()}


def _told_by(settings: ClientSettings, broker: Broker, patience: float) -> Iterator[Replica]:
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
            raise IndexError(f"a disk of broker {broker.id} is offline: what it holds is not told")
        yield from replicas


def _of_folder(answer: Reader, broker: int) -> Iterator[Replica]:
    for _ in range(answer.varint() - 1):
        topic = answer.text()
        for _ in range(answer.varint() - 1):
            number, size, _lag, is_future = struct.unpack(">iqqb", answer.take(21))
            answer.skip_tags()
            yield Replica(broker, TopicPartition(topic, number), size, bool(is_future))
        answer.skip_tags()
