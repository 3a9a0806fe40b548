"""Where positions are kept, each kind behind one protocol. So far the reading half of it.

A store shows what is stored, not what ought to be: entries that the worker would never find, keys that are not Connect's and ends
that are not decided are shown or said, never dropped in silence.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from playhead.model import Position
from playhead.model.position import Scalar


@dataclass(frozen=True, slots=True)
class Stored:
    """One position as it lies in its store. `notes` are sentences about this one entry; `where` is the store's own address."""

    position: Position
    where: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was stored when we looked. `notes` are sentences about the whole: what was left out, what is not decided yet."""

    entries: tuple[Stored, ...]
    notes: tuple[str, ...] = ()

    def by_owner(self) -> dict[str, list[Stored]]:
        grouped: dict[str, list[Stored]] = {}
        for entry in self.entries:
            grouped.setdefault(entry.position.owner, []).append(entry)
        return grouped


class Store(Protocol):
    @property
    def uri(self) -> str: ...

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        """The live positions, of all owners or of some."""
        ...

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        """Everything still readable, oldest first: overwritten positions and removals (offset None) too."""
        ...
