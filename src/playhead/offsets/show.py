"""The position of one owner in readable form: in the terms of its connector, with the effect of starting over."""

from dataclasses import dataclass
from typing import Any

from playhead.offsets.locate import Locator
from playhead.offsets.logs import Logs, find_logs, place_of
from playhead.offsets.spark_sinks import as_sink_ledger
from playhead.stores import Stored


@dataclass(frozen=True, slots=True)
class ShownPosition:
    """`lag`: records between a Kafka position and the end of its log, if a broker is available."""

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


def show_owner(locator: Locator, name: str) -> ShownOwner:
    target = locator.owner(name)
    target.check_exists()
    found = target.now()
    connector = target.connector
    about: dict[str, Any] = {}
    if connector is not None:
        about["class"] = connector.connector_class
        about["kind"] = "sink" if connector.is_sink else "source"
        if connector.is_sink:
            about["group"] = connector.group
        if connector.own_topic:
            about["offsets topic"] = connector.own_topic
    if (ledger := as_sink_ledger(target.store)) is not None:
        about |= {"kind": "sink", "engine": "spark", "cluster": ledger.cluster}
    places = [place for entry in found.entries if (place := place_of(entry.position.partition)) is not None]
    at = {
        place: offset
        for entry in found.entries
        if (place := place_of(entry.position.partition)) is not None and (offset := _at(entry)) is not None
    }
    logs = find_logs(locator.access, places, connector.cluster if connector else None, at)
    positions = []
    for entry in found.entries:
        position = entry.position
        dialect = target.dialect(position.partition, position.offset)
        readable = dialect.readable(position.partition, position.offset) if dialect else position.partition.to_json()
        positions.append(ShownPosition(entry, readable, _lag(entry, logs)))
        if dialect is not None:
            about |= {"dialect": dialect.name, "start over": dialect.start_over, "skip one": dialect.skip_one}
    notes = (*target.notes, *found.notes, *_notes_on(logs))
    return ShownOwner(target.owner, target.store.uri, about, tuple(positions), notes)


def _notes_on(logs: Logs | None) -> list[str]:
    if logs is None:
        return []
    if logs.why:
        return [f"the lag is unknown: {logs.why}"]
    gone = [f"topic {topic} does not exist" for topic in sorted(logs.leaders) if logs.leaders[topic] is None]
    return [*gone, *logs.hidden]


def _lag(entry: Stored, logs: Logs | None) -> int | None:
    place, at = place_of(entry.position.partition), _at(entry)
    span = logs.spans.get(place) if logs is not None and place is not None else None
    return span.end - at if span is not None and at is not None else None


def _at(entry: Stored) -> int | None:
    offset = entry.position.offset
    at = offset.get("kafka_offset") if offset is not None else None
    return at if isinstance(at, int) else None
