"""Sink connectors and consumer groups: the position is Kafka's own, the *next* record to read.

Connect stores it in the connector's consumer group and shows it as these two maps for every sink class. The REST interface also
accepts the numbers as text. Playhead does not, because a position has one form here.
"""

from dataclasses import dataclass

from playhead.connect.dialects.base import Dialect, Field, ValueKind, compare_keys
from playhead.model import Map

PARTITION_FIELDS = ("kafka_topic", "kafka_partition")


@dataclass(frozen=True)
class KafkaPosition(Dialect):
    def matches(self, partition: Map, offset: Map | None) -> bool:
        return set(partition) == set(PARTITION_FIELDS) and set(offset or ()) <= {"kafka_offset"}

    def title(self, partition: Map) -> str:
        return f"{partition.get('kafka_topic')}-{partition.get('kafka_partition')}"

    def offset_in_words(self, offset: Map) -> str:
        return (
            f"next record {offset['kafka_offset']}"
            if set(offset) == {"kafka_offset"}
            else super().offset_in_words(offset)
        )

    def compare(self, a: Map, b: Map) -> int | None:
        left, right = a.get("kafka_offset"), b.get("kafka_offset")
        return compare_keys((left,), (right,)) if isinstance(left, int) and isinstance(right, int) else None


KAFKA = KafkaPosition(
    name="a sink connector or consumer group",
    classes=(),
    shapes=((Field("kafka_topic", required=True), Field("kafka_partition", ValueKind.LONG, True, 0, 2**31 - 1)),),
    fields=(Field("kafka_offset", ValueKind.LONG, required=True, low=0),),
    start_over="Delete the offset: auto.offset.reset decides; the default of a sink connector is the earliest record.",
    skip_one="Set kafka_offset one higher: it is the next record to read.",
)
