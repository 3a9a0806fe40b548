"""What Kafka has of the partitions we read: the incarnation of their topic, their first and their last offset."""

from collections.abc import Iterable
from dataclasses import dataclass

from playhead.kafka.client import Admin
from playhead.kafka.topics import get_topic, topic_ends
from playhead.model import Deadline, TopicPartition

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # zeros: a broker that knows no topic ids


@dataclass(frozen=True, slots=True)
class Bounds:
    """`end` is where a reader stops for now: before undecided records if it reads committed ones only."""

    topic_id: str
    first: int
    end: int
    high: int

    def hold(self, offset: int) -> bool:
        return self.first <= offset <= self.high


def list_bounds(
    admin: Admin, places: Iterable[TopicPartition], seconds: float, *, committed_only: bool
) -> dict[TopicPartition, Bounds]:
    """Of every partition asked for; `NotFound` when its topic is gone."""
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
    """Empty where the broker does not tell it."""
    topic_id = get_topic(admin, topic, Deadline(seconds)).id
    return "" if topic_id == _NO_ID else topic_id
