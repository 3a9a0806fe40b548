"""Where positions are kept, each kind behind one protocol.

A store shows what is stored, not what ought to be: entries that the worker would never find, keys that are not Connect's and ends
that are not decided are shown or said, never dropped in silence. It writes only what a plan names, all or nothing per owner, and
answers for every change. Asking before a write (the guard), the journal and the reading back are not its business but that of
`offsets.apply`, which is the only caller of `write`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from playhead.config import Context
from playhead.model import Change, Deadline, Map, Outcomes, Position
from playhead.model.position import Scalar

if TYPE_CHECKING:
    from playhead.connect.rest import Rest

Progress = Callable[[int, int], None]


class Raw(NamedTuple):
    """The bytes of an entry as they lie in the store: what a restoration by hand would need."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Stored:
    """One position as it lies in its store. `notes` are sentences about this one entry; `where` is the store's own address.

    `begun`: what was begun from here and not finished. A write gives it up, even one that leaves the position where it is.
    """

    position: Position
    where: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    raw: Raw | None = None
    begun: str = ""

    @property
    def gives_up(self) -> str:
        """For the note of a change that is made for this alone."""
        return f"gives up {self.begun}, which was begun and not finished" if self.begun else ""


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

    def current(self) -> dict[tuple[str, Map], Stored]:
        """The entry that counts for each owner and partition: of twins the one written last."""
        newest: dict[tuple[str, Map], Stored] = {}
        for entry in self.entries:
            key = (entry.position.owner, entry.position.partition)
            if key not in newest or _age(newest[key]) <= _age(entry):
                newest[key] = entry
        return newest


def _age(entry: Stored) -> str:
    return str(entry.where.get("written", ""))


def moved_since(changes: Iterable[Change], current: Mapping[Map, Map | None]) -> str | None:
    """A sentence when a position is neither what the plan starts from nor already what it wants."""
    for change in changes:
        found = current.get(change.partition)
        if found not in (change.before, change.after):
            return (
                f"{change.partition} moved since the plan was made: it was {shown(change.before)} and is {shown(found)}; "
                "plan again"
            )
    return None


def shown(offset: Map | None) -> str:
    return "nothing" if offset is None else offset.to_json()


def is_kafka_place(partition: Map) -> bool:
    """A partition of a topic, as groups, sink connectors and Spark queries have it."""
    return set(partition) == {"kafka_topic", "kafka_partition"}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond being read. `atomic`: all changes of one owner happen together or not at all."""

    write: bool = True
    history: bool = False
    delete: bool = True
    atomic: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a write of this owner must not happen now. `lifted_by` is the flag that takes the risk; None: there is none.
    `is_running`: because a connector runs, so that stopping it helps."""

    owner: str
    what: str
    hint: str | None = None
    lifted_by: str | None = None
    is_running: bool = False


class Store(Protocol):
    @property
    def uri(self) -> str:
        """Opens the same store again, with what the context adds: never a secret, for it stands in plans and journals."""
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
        """Is anything alive that would overwrite or ignore an edit of these owners? Or can nobody tell?"""
        ...

    def write(self, changes: Sequence[Change]) -> Outcomes:
        """Makes each position what `after` says (None: forgets it), all or nothing per owner, an outcome for each change.

        Compares with `before` once more where it can do so in one step with the writing; a position that moved is REFUSED.
        An error that is raised, not returned, means that nothing at all was written.
        """
        ...


class Access:
    """What opening a store needs besides its URI: the settings of the context, the time, where progress is shown.

    Everything that is asked of the workers goes through one HTTP client, made when it is first needed. Close it, or use it in a
    `with` block.
    """

    def __init__(self, context: Context, deadline: Deadline, progress: Progress = lambda done, total: None) -> None:
        self.context = context
        self.deadline = deadline
        self.progress = progress
        self._clients: dict[tuple[str, ...], Rest] = {}

    @contextmanager
    def rest(self, deadline: Deadline | None = None, urls: Sequence[str] | None = None) -> "Iterator[Rest]":
        """The client, under the deadline of the command or a shorter one. `urls`: other workers than those of the context."""
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
