"""The logs of Kafka positions, if a broker is named and answers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from playhead.errors import Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.partitions import Leaders, Span, find_leaders, find_spans
from playhead.kafka.properties import client_settings, settings_at
from playhead.model import Map, TopicPartition
from playhead.stores import Access, is_kafka_place


@dataclass(frozen=True, slots=True)
class Logs:
    """`leaders`: topic -> its partitions, None for a topic that does not exist. `spans`: start and end of the logs. `why`: the
    error of the broker; then `leaders` and `spans` are empty."""

    leaders: Mapping[str, Leaders | None] = field(default_factory=dict)
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    why: str = ""


def find_logs(access: Access, places: Collection[TopicPartition], cluster: str | None = None) -> Logs | None:
    """None if there are no places or no broker is named. `cluster`: brokers of a connector that uses another cluster."""
    context, deadline = access.context, access.deadline
    known = cluster or any(context.get(key) for key in ("bootstrap-servers", "worker-config", "command-config"))
    if not places or not known:
        return None
    try:
        with Admin(settings_at(context, cluster) if cluster else client_settings(context), deadline) as admin:
            leaders = find_leaders(admin, {place.topic for place in places}, deadline)
            led = [place for place in places if (leaders.get(place.topic) or {}).get(place.partition) is not None]
            return Logs(leaders, find_spans(admin, led, deadline))
    except Unreachable as error:
        return Logs(why=error.what)


def place_of(partition: Map) -> TopicPartition | None:
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    is_place = is_kafka_place(partition) and isinstance(topic, str) and type(number) is int
    return TopicPartition(str(topic), int(str(number))) if is_place else None
