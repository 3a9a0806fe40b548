"""Positions in this process: the smallest complete store, for tests and examples. `memory:name`; equal names share one store."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from playhead.model import Change, Map, Outcome, Outcomes, Position, Result
from playhead.stores import Access, Capabilities, Refusal, Snapshot, Stored

Key = tuple[str, Map]


@dataclass
class MemoryStore:
    name: str = ""
    live: dict[Key, Map] = field(default_factory=dict)
    log: list[Position] = field(default_factory=list)
    running: set[str] = field(default_factory=set)

    @property
    def uri(self) -> str:
        return f"memory:{self.name}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(history=True)

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        found = (Position(owner, partition, offset) for (owner, partition), offset in self.live.items())
        return Snapshot(tuple(Stored(position) for position in found if owners is None or position.owner in owners))

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        return Snapshot(tuple(Stored(position) for position in self.log if owners is None or position.owner in owners))

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        return [Refusal(owner, f"{owner} is running", lifted_by="--force") for owner in owners if owner in self.running]

    def write(self, changes: Sequence[Change]) -> Outcomes:
        moved = {c.owner for c in changes if self.live.get((c.owner, c.partition)) != c.before}
        return Outcomes(self._refused(c) if c.owner in moved else self._written(c) for c in changes)

    def _refused(self, change: Change) -> Outcome:
        return Outcome(change, Result.REFUSED, f"{change.owner} moved since the plan was created")

    def _written(self, change: Change) -> Outcome:
        key = (change.owner, change.partition)
        if self.live.get(key) == change.after:
            return Outcome(change, Result.UNCHANGED)
        self.log.append(Position(change.owner, change.partition, change.after))
        if change.after is None:
            self.live.pop(key, None)
        else:
            self.live[key] = change.after
        return Outcome(change, Result.CHANGED)


_OPEN: dict[str, MemoryStore] = {}


def open_uri(uri: str, _access: Access) -> MemoryStore:
    name = uri.removeprefix("memory:")
    return _OPEN.setdefault(name, MemoryStore(name))
