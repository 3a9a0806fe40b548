"""The topic id and the first and last offset of the partitions we read."""

from collections.abc import Iterable
from dataclasses import dataclass

from playhead.kafka.client import Admin
from playhead.kafka.topics import get_topic, topic_ends
from playhead.model import Deadline, TopicPartition

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # zeros: the broker does not support topic ids


@dataclass(frozen=True, slots=True)
class Bounds:
    """`end`: where a reader stops for now. With read_committed that is before open transactions."""

    topic_id: str
    first: int
    end: int
    high: int

    def hold(self, offset: int) -> bool:
        return self.first <= offset <= self.high


def list_bounds(
    admin: Admin, places: Iterable[TopicPartition], seconds: float, *, committed_only: bool
) -> dict[TopicPartition, Bounds]:
    """Of every requested partition; `NotFound` if its topic does not exist."""
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    found: dict[TopicPartition, Bounds] = {}
    for topic, partitions in by_topic.items():
        deadline = Deadline(seconds)
        topic_id = get_topic_id(admin, topic, seconds)
        for partition, ends in topic_ends(admin, topic, partitions, deadline).items():
            end = ends.stable if committed_only else ends.high
            found[TopicPartition(topic, partition)] = Bounds(topic_id, ends.start, end, ends.high)
    return found


def get_topic_id(admin: Admin, topic: str, seconds: float) -> str:
    """Empty if the broker does not report it."""
    topic_id = get_topic(admin, topic, Deadline(seconds)).id
    return "" if topic_id == _NO_ID else topic_id
