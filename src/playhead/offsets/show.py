"""The position of one owner for a person: in the words of its connector, with what starting over would mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playhead.connect.dialects import find_dialect
from playhead.errors import Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.partitions import find_leaders, find_spans
from playhead.kafka.properties import client_settings, settings_at
from playhead.model import TopicPartition
from playhead.offsets.select import Selection, select_owner
from playhead.stores import Stored


@dataclass(frozen=True, slots=True)
class ShownPosition:
    """`lag`: records between a Kafka position and the end of its log, where a broker can be asked."""

    entry: Stored
    readable: str
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class ShownOwner:
    """`about`: class, kind, what "start over" and "skip one" mean, as far as they are known."""

    owner: str
    store: str
    about: dict[str, Any]
    positions: tuple[ShownPosition, ...]
    notes: tuple[str, ...]


def show_owner(selection: Selection, name: str) -> ShownOwner:
    target = select_owner(selection, name)
    found = target.store.snapshot([target.owner])
    connector = target.connector
    about: dict[str, Any] = {}
    if connector is not None:
        about["class"] = connector.connector_class
        about["kind"] = "sink" if connector.is_sink else "source"
        if connector.is_sink:
            about["group"] = connector.group
        if connector.own_topic:
            about["offsets topic"] = connector.own_topic
    ends, notes = _log_ends(selection, connector.cluster if connector else None, found.entries)
    positions = []
    for entry in found.entries:
        position = entry.position
        dialect = find_dialect(connector.connector_class if connector else None, position.partition, position.offset)
        readable = dialect.readable(position.partition, position.offset) if dialect else position.partition.to_json()
        positions.append(ShownPosition(entry, readable, _lag(entry, ends)))
        if dialect is not None:
            about |= {"dialect": dialect.name, "start over": dialect.start_over, "skip one": dialect.skip_one}
    said = (*target.notes, *found.notes, *notes)
    return ShownOwner(target.owner, target.store.uri, about, tuple(positions), said)


def _log_ends(
    selection: Selection, cluster: str | None, entries: Sequence[Stored]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Where the logs end; nothing where no broker is known. A broker that does not answer is said, not an error."""
    places = [place for entry in entries if (place := _place(entry)) is not None]
    if not places or not (cluster or _knows_brokers(selection)):
        return {}, []
    context, deadline = selection.context, selection.access.deadline
    try:
        with Admin(settings_at(context, cluster) if cluster else client_settings(context), deadline) as admin:
            leaders = find_leaders(admin, {place.topic for place in places}, deadline)
            there = [p for p in places if (leaders.get(p.topic) or {}).get(p.partition) is not None]
            spans = find_spans(admin, there, deadline)
    except Unreachable as error:
        return {}, [f"the lag is not known: {error.what}"]
    gone = sorted({place.topic for place in places if leaders.get(place.topic) is None})
    return {place: span.end for place, span in spans.items()}, [f"topic {topic} does not exist" for topic in gone]


def _knows_brokers(selection: Selection) -> bool:
    return any(selection.context.get(key) for key in ("bootstrap-servers", "worker-config", "command-config"))


def _place(entry: Stored) -> TopicPartition | None:
    topic, partition = (entry.position.partition.get(name) for name in ("kafka_topic", "kafka_partition"))
    return TopicPartition(topic, partition) if isinstance(topic, str) and isinstance(partition, int) else None


def _lag(entry: Stored, ends: Mapping[TopicPartition, int]) -> int | None:
    place, offset = _place(entry), entry.position.offset
    at = offset.get("kafka_offset") if offset is not None else None
    return ends[place] - at if place is not None and place in ends and isinstance(at, int) else None
