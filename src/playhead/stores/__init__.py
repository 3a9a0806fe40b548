"""The stores that hold positions. All kinds implement one protocol.

A store shows what is stored, also if it is wrong: entries that no worker finds, keys that are not Connect's and open transactions
are shown or noted, never dropped silently. It writes only what a plan names, all or nothing per owner, and returns an outcome for
every change. `offsets.apply` is the only caller of `write`: it calls the guard before, writes the journal and reads back.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from playhead.config import Context
from playhead.model import Change, Deadline, Map, Outcomes, Position, TopicPartition
from playhead.model.position import Scalar

if TYPE_CHECKING:
    from playhead.connect.rest import Rest

Progress = Callable[[int, int], None]
FORCE = "--force"  # the flag that lifts most refusals


class Raw(NamedTuple):
    """The stored bytes of an entry, for a manual restore."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored position. `notes`: messages about this entry. `where`: its place in the store.

    `begun`: work that was begun at this position and not finished. A write gives it up, even one that does not move the position.
    `by_spark`: when a run on Spark wrote this key the last time. Others may have written it since.
    `differs`: the other copies of this position that hold something else. A write makes all copies equal, even one that does not
    move the position.
    """

    position: Position
    where: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    raw: Raw | None = None
    begun: str = ""
    by_spark: datetime | None = None
    differs: str = ""

    @property
    def gives_up(self) -> str:
        """The note of a change that gives up `begun`."""
        return f"gives up {self.begun}, which was begun and not finished" if self.begun else ""

    @property
    def evens_out(self) -> str:
        """The note of a change that writes the copies in `differs`."""
        return f"also written: the other copies, {self.differs}" if self.differs else ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The entries of a store at the time of reading. `notes`: messages about the whole: skipped records, open transactions.

    `strays`: owner -> the Kafka partitions that hold records of the owner, deletions too, which belong into another partition. A
    worker does not write there.
    """

    entries: tuple[Stored, ...]
    notes: tuple[str, ...] = ()
    strays: Mapping[str, tuple[TopicPartition, ...]] = field(default_factory=dict)

    def by_owner(self) -> dict[str, list[Stored]]:
        grouped: dict[str, list[Stored]] = {}
        for entry in self.entries:
            grouped.setdefault(entry.position.owner, []).append(entry)
        return grouped

    def current(self) -> dict[tuple[str, Map], Stored]:
        """The entry that counts for each owner and partition: of several, the one written last."""
        newest: dict[tuple[str, Map], Stored] = {}
        for entry in self.entries:
            key = (entry.position.owner, entry.position.partition)
            if key not in newest or _age(newest[key]) <= _age(entry):
                newest[key] = entry
        return newest


def _age(entry: Stored) -> str:
    return str(entry.where.get("written", ""))


def moved_since(changes: Iterable[Change], current: Mapping[Map, Map | None], hint: str = "plan again") -> str | None:
    """A message if a position is neither what the plan starts from nor already its target."""
    for change in changes:
        found = current.get(change.partition)
        if found not in (change.before, change.after):
            return (
                f"{change.partition} moved since the plan was created: it was {shown(change.before)} and is {shown(found)}; "
                f"{hint}"
            )
    return None


def changes_by_owner(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """The changes of each owner, in their order."""
    grouped: dict[str, list[Change]] = {}
    for change in changes:
        grouped.setdefault(change.owner, []).append(change)
    return grouped


def shown(offset: Map | None) -> str:
    return "nothing" if offset is None else offset.to_json()


def is_kafka_place(partition: Map) -> bool:
    """True for a partition of a topic, as in groups, sink connectors and Spark queries."""
    return set(partition) == {"kafka_topic", "kafka_partition"}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do apart from reading. `atomic`: all changes of one owner are written, or none."""

    write: bool = True
    history: bool = False
    delete: bool = True
    atomic: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why this owner must not be written now. `lifted_by`: the flag that overrides the refusal; None: no flag does.
    `is_running`: a connector runs, and stopping it lifts the refusal."""

    owner: str
    what: str
    hint: str | None = None
    lifted_by: str | None = None
    is_running: bool = False


class Store(Protocol):
    @property
    def uri(self) -> str:
        """Opens the same store again, with the settings of the context. Never has a secret: plans and journals contain it."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        """The live positions, of all owners or of some."""
        ...

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        """Everything still readable, oldest first: overwritten positions and removals (offset None) too."""
        ...

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        """Refuses owners with a running process that would overwrite or ignore an edit, or if this is unknown."""
        ...

    def write(self, changes: Sequence[Change]) -> Outcomes:
        """Sets each position to `after` (None: deletes it), all or nothing per owner. Returns an outcome for each change.

        Compares with `before` again if the store can do that atomically with the write; a position that moved is REFUSED.
        If an error is raised, nothing was written.
        """
        ...


class Access:
    """What a store needs to be opened, apart from its URI: the settings of the context, the deadline, a progress callback.

    All requests to the workers use one HTTP client, which is created on first use. Close it, or use it in a `with` block.
    """

    def __init__(self, context: Context, deadline: Deadline, progress: Progress = lambda done, total: None) -> None:
        self.context = context
        self.deadline = deadline
        self.progress = progress
        self._clients: dict[tuple[str, ...], Rest] = {}

    @contextmanager
    def rest(self, deadline: Deadline | None = None, urls: Sequence[str] | None = None) -> "Iterator[Rest]":
        """The client, with the deadline of the command or a shorter one. `urls`: other workers than those of the context."""
        from playhead.connect.rest import open_rest

        key = tuple(urls or self.context.connect_urls)
        if key not in self._clients:
            self._clients[key] = open_rest(self.context, self.deadline, urls)
        with self._clients[key].within(deadline or self.deadline) as client:
            yield client

    def close(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
