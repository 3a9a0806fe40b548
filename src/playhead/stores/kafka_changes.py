"""Changes in Kafka's terms: a topic, a partition, and offsets that Kafka could have given. Anything else is refused in words."""

from dataclasses import dataclass

from playhead.errors import Invalid
from playhead.model import Change, Map, TopicPartition
from playhead.model.position import INT64_MAX

LARGEST_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KafkaChange:
    change: Change
    place: TopicPartition
    before: int | None
    after: int | None


def kafka_change(change: Change) -> KafkaChange:
    topic, partition = change.partition.get("kafka_topic"), change.partition.get("kafka_partition")
    if set(change.partition) != {"kafka_topic", "kafka_partition"} or not isinstance(topic, str) or not topic:
        raise Invalid(f"{change.owner} {change.partition}: its partition is kafka_topic and kafka_partition alone")
    if type(partition) is not int or not 0 <= partition <= LARGEST_PARTITION:
        raise Invalid(f"{change.owner} {change.partition}: kafka_partition is not the number of a partition")
    place = TopicPartition(topic, partition)
    return KafkaChange(change, place, _offset_of(change, change.before), _offset_of(change, change.after))


def _offset_of(change: Change, offset: Map | None) -> int | None:
    if offset is None:
        return None
    number = offset.get("kafka_offset")
    if set(offset) != {"kafka_offset"} or type(number) is not int or not 0 <= number <= INT64_MAX:
        raise Invalid(f"{change.owner} {change.partition}: {offset} is not a kafka_offset of 0 or more")
    return number
