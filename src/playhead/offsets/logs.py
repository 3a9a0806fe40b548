"""The logs of Kafka positions, if a broker is named and answers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from playhead.errors import PlayheadError, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.partitions import Leaders, Span, find_leaders, find_spans
from playhead.kafka.properties import client_settings, settings_at
from playhead.kafka.transactions_seen import note_hidden
from playhead.model import Deadline, Map, TopicPartition
from playhead.stores import Access, is_kafka_place


@dataclass(frozen=True, slots=True)
class Logs:
    """`leaders`: topic -> its partitions, None for a topic that does not exist. `spans`: start and end of the logs.

    `hidden`: notes on open transactions that hold readers back. `why`: the error of the broker; then the others are empty.
    """

    leaders: Mapping[str, Leaders | None] = field(default_factory=dict)
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    why: str = ""


def find_hidden(
    admin: Admin, spans: Mapping[TopicPartition, Span], at: Mapping[TopicPartition, int], deadline: Deadline
) -> tuple[str, ...]:
    """Open transactions in partitions with a lag: readers of committed records at these positions cannot pass them."""
    behind = [tp for tp, offset in at.items() if tp in spans and offset < spans[tp].end]
    try:
        return tuple(note_hidden(admin, behind, deadline)) if behind else ()
    except PlayheadError as error:
        return (f"whether open transactions hold it back is unknown: {error.what}",)


def find_logs(
    access: Access,
    places: Collection[TopicPartition],
    cluster: str | None = None,
    at: Mapping[TopicPartition, int] | None = None,
) -> Logs | None:
    """None if there are no places or no broker is named. `cluster`: brokers of a connector that uses another cluster. `at`:
    positions for which open transactions are looked up."""
    context, deadline = access.context, access.deadline
    known = cluster or any(context.get(key) for key in ("bootstrap-servers", "worker-config", "command-config"))
    if not places or not known:
        return None
    try:
        with Admin(settings_at(context, cluster) if cluster else client_settings(context), deadline) as admin:
            leaders = find_leaders(admin, {place.topic for place in places}, deadline)
            led = [place for place in places if (leaders.get(place.topic) or {}).get(place.partition) is not None]
            spans = find_spans(admin, led, deadline)
            return Logs(leaders, spans, find_hidden(admin, spans, at or {}, deadline))
    except Unreachable as error:
        return Logs(why=error.what)


def place_of(partition: Map) -> TopicPartition | None:
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    is_place = is_kafka_place(partition) and isinstance(topic, str) and type(number) is int
    return TopicPartition(str(topic), int(str(number))) if is_place else None
