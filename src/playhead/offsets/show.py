"""The position of one owner for a person: in the words of its connector, with what starting over would mean."""

from dataclasses import dataclass
from typing import Any

from playhead.connect.dialects import find_dialect
from playhead.offsets.select import Selection, select_owner
from playhead.stores import Stored


@dataclass(frozen=True, slots=True)
class ShownPosition:
    entry: Stored
    readable: str


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
    positions = []
    for entry in found.entries:
        position = entry.position
        dialect = find_dialect(connector.connector_class if connector else None, position.partition, position.offset)
        readable = dialect.readable(position.partition, position.offset) if dialect else position.partition.to_json()
        positions.append(ShownPosition(entry, readable))
        if dialect is not None:
            about |= {"dialect": dialect.name, "start over": dialect.start_over, "skip one": dialect.skip_one}
    return ShownOwner(target.owner, target.store.uri, about, tuple(positions), (*target.notes, *found.notes))
