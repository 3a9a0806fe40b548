"""How many bytes the replicas of partitions use on the disks of their brokers.

librdkafka cannot ask this: the second client sends DescribeLogDirs. Each broker reports its own replicas. A user who may not
describe the cluster gets an answer without folders, which is never read as a broker without replicas.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from playhead.errors import AccessDenied, Rejected
from playhead.kafka.client import Admin
from playhead.kafka.second_client import ask
from playhead.model import Deadline, TopicPartition

_DOING = "asking the brokers for the sizes of their logs"


class Replica(NamedTuple):
    """`is_future`: a copy that is being moved to another disk of the same broker, in addition to the replica in use."""

    broker: int
    partition: TopicPartition
    size: int
    is_future: bool


def list_replicas(admin: Admin, deadline: Deadline, topics: Collection[str] | None = None) -> dict[int, list[Replica]]:
    """Broker -> its replicas, of all topics or of some. Fails if one broker does not answer: a partial sum would be wrong."""
    found = ask(admin, _DOING, lambda client: client.describe_log_dirs(), deadline)
    wanted = None if topics is None else set(topics)
    return {
        int(one["broker"]): [
            replica for replica in _replicas(one) if wanted is None or replica.partition.topic in wanted
        ]
        for one in found
    }


def _replicas(found: dict[str, Any]) -> Iterator[Replica]:
    broker = int(found["broker"])
    if not found["log_dirs"]:  # every broker has one: the library drops the error of the whole answer
        raise AccessDenied(f"{_DOING}: broker {broker} does not report them", "allow the user to Describe the cluster")
    for folder in found["log_dirs"]:
        if folder["error_code"]:
            raise Rejected(f"{_DOING}: a disk of broker {broker} is offline, so its replicas are unknown")
        for topic in folder["topics"]:
            for one in topic["partitions"]:
                place = TopicPartition(str(topic["name"]), int(one["partition_index"]))
                yield Replica(broker, place, int(one["partition_size"]), bool(one["is_future_key"]))
