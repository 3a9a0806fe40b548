"""The journal: what was changed, by whom, and what was overwritten. One file per apply, written before the store is changed.

The file is for the person on call. It holds the plan, the entries before the change (with their bytes), the flags that lifted a
guard, and afterwards the outcome of every change. A file without outcomes is an apply that was interrupted; `undo` and `doctor`
read the store to find out what it changed. Files are readable by their owner only, because a position can hold source data.
"""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from playhead import __version__
from playhead.config import Context
from playhead.errors import Invalid, NotFound
from playhead.files import replace_file
from playhead.model import Map, Outcome, Outcomes, Plan, ReadBack, Result
from playhead.model.host import user_name
from playhead.model.position import Scalar
from playhead.stores import Raw, Stored

JOURNAL_VERSION = 1
LAST = "last"


class SavedEntry(msgspec.Struct, frozen=True):
    """One entry before the change. Key and value are the stored bytes (base64 in the file); value None: a tombstone.

    Key None: the store has no bytes of this entry, or they are with an entry before it.
    """

    owner: str
    partition: dict[str, Scalar]
    offset: dict[str, Scalar] | None
    where: dict[str, Scalar]
    key: bytes | None = None
    value: bytes | None = None


class _ReadBackFile(msgspec.Struct, frozen=True):
    offset: dict[str, Scalar] | None


class _OutcomeFile(msgspec.Struct, frozen=True):
    result: str
    detail: str = ""
    read_back: _ReadBackFile | msgspec.UnsetType = msgspec.UNSET


class _EntryFile(msgspec.Struct, frozen=True):
    playhead_journal: int
    id: str
    who: str
    program: str
    started: datetime
    plan: msgspec.Raw
    saved: list[SavedEntry]
    lifted: list[str] = []
    states: dict[str, str] = {}
    finished: datetime | None = None
    outcomes: list[_OutcomeFile] | None = None
    lost: list[SavedEntry] = []


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One apply. `outcomes` None: it was interrupted, or still runs. `states`: of the connectors before `--stop`.

    `lost`: saved entries that the plan does not name, and that a write that failed has removed.
    """

    id: str
    who: str
    started: datetime
    plan: Plan
    saved: tuple[SavedEntry, ...]
    lifted: tuple[str, ...] = ()
    states: Mapping[str, str] | None = None
    finished: datetime | None = None
    outcomes: Outcomes | None = None
    lost: tuple[SavedEntry, ...] = ()

    @property
    def summary(self) -> str:
        if self.outcomes is None:
            return "not finished"
        counts = {result: self.outcomes.count(result) for result in Result}
        return ", ".join(f"{count} {result.value}" for result, count in counts.items() if count) or "nothing to do"

    @property
    def may_have_changed(self) -> bool:
        """Whether there may be something to undo. False if every change was refused, failed as a whole, or moved nothing."""
        if self.outcomes is None or self.lost:
            return True
        written = (one.change for one in self.outcomes if one.may_be_written)
        return any(change.before != change.after for change in written)

    @property
    def owners(self) -> list[str]:
        return list(dict.fromkeys(change.owner for change in self.plan.changes))


class Journal:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_context(cls, context: Context) -> "Journal":
        return cls(context.path("journal") or _default_folder())

    def begin(
        self, plan: Plan, saved: Iterable[Stored], lifted: Sequence[str] = (), states: Mapping[str, str] | None = None
    ) -> JournalEntry:
        """The entry is on disk when this returns. The store must not be changed before."""
        started = datetime.now(UTC)
        entry = JournalEntry(
            id=f"{started:%Y%m%dT%H%M%S}{started.microsecond // 1000:03d}-{plan.id[:8]}-{os.urandom(2).hex()}",
            who=who_am_i(),
            started=started,
            plan=plan,
            saved=tuple(_saved(saved)),
            lifted=tuple(lifted),
            states=dict(states or {}),
        )
        save_entry(self._path(entry), _encoded(entry), is_new=True)
        return entry

    def finish(self, entry: JournalEntry, outcomes: Outcomes, lost: Iterable[SavedEntry] = ()) -> JournalEntry:
        done = replace(entry, finished=_now(), outcomes=outcomes, lost=tuple(lost))
        save_entry(self._path(done), _encoded(done), is_new=False)
        return done

    def _path(self, entry: JournalEntry) -> Path:
        return self.folder / f"{entry.id}.json"

    def list(self) -> tuple[list[JournalEntry], list[str]]:
        """Entries, newest first; and a message for each file that cannot be read."""
        entries, faults = [], []
        for path in sorted(self.folder.glob("*.json"), reverse=True):
            try:
                entries.append(_load(path))
            except Invalid as error:
                faults.append(error.what)
        entries.sort(key=lambda entry: entry.started, reverse=True)
        return entries, faults

    def newest_first(self) -> Iterator[JournalEntry]:
        """By their ids, which begin with the time. Each entry is read when it is asked for; one that is damaged is an error."""
        yield from (_load(path) for path in sorted(self.folder.glob("*.json"), reverse=True))

    def get(self, entry_id: str) -> JournalEntry:
        """By its id, by the beginning of an id that no other entry has, or `last`."""
        return _load(find_entry_file(self.folder, entry_id))


def find_entry_file(folder: Path, entry_id: str) -> Path:
    """The file of an entry: by its id, by the beginning of an id that no other entry has, or `last`."""
    known = sorted(found.stem for found in folder.glob("*.json"))
    if entry_id == LAST and known:
        return folder / f"{known[-1]}.json"
    found = [entry_id] if entry_id in known else [one for one in known if entry_id and one.startswith(entry_id)]
    if len(found) > 1:
        some = ", ".join(reversed(found[-4:])) + (", ..." if len(found) > 4 else "")
        raise Invalid(f"{entry_id!r} is the beginning of {len(found)} journal entries: {some}", "give more of the id")
    if not found:
        raise NotFound("journal entry", entry_id, known, None if known else f"{folder} holds no entry")
    return folder / f"{found[0]}.json"


def save_entry(path: Path, data: bytes, *, is_new: bool) -> None:
    """The entry is on disk when this returns. `is_new`: nothing was changed yet, and without the entry nothing may be."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        then = ", so nothing may be changed" if is_new else ""
        raise Invalid(
            f"the journal {path.parent} cannot be written ({error.strerror}){then}",
            "set `journal` in the context, or XDG_STATE_HOME, to a folder of your own",
        ) from None


def _default_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "playhead" / "journal"


def who_am_i() -> str:
    return f"{user_name()}@{socket.gethostname()}"


def _now() -> datetime:
    return datetime.now(UTC)


def _saved(entries: Iterable[Stored]) -> Iterator[SavedEntry]:
    """Bytes that entries share, as those of one line of a checkpoint, are saved with the first of them only."""
    seen: dict[int, Raw] = {}
    for entry in entries:
        position = entry.position
        raw = entry.raw if entry.raw is not None and id(entry.raw) not in seen else None
        if raw is not None:
            seen[id(raw)] = raw
        yield SavedEntry(
            position.owner,
            position.partition.to_dict(),
            None if position.offset is None else position.offset.to_dict(),
            dict(entry.where),
            raw.key if raw else None,
            raw.value if raw else None,
        )


def _encoded(entry: JournalEntry) -> bytes:
    outcomes = None if entry.outcomes is None else [_outcome_file(outcome) for outcome in entry.outcomes]
    document = _EntryFile(
        JOURNAL_VERSION,
        entry.id,
        entry.who,
        f"playhead {__version__}",
        entry.started,
        msgspec.Raw(entry.plan.to_json()),
        list(entry.saved),
        list(entry.lifted),
        dict(entry.states or {}),
        entry.finished,
        outcomes,
        list(entry.lost),
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _load(path: Path) -> JournalEntry:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_EntryFile)
        if found.playhead_journal != JOURNAL_VERSION:
            raise Invalid(f"{path}: journal version {found.playhead_journal} is not supported")
        plan = Plan.from_json(bytes(found.plan), str(path))
        outcomes = None if found.outcomes is None else _outcomes(plan, found.outcomes)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OSError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from None
    return JournalEntry(
        found.id, found.who, found.started, plan, tuple(found.saved), tuple(found.lifted), found.states, found.finished,
        outcomes, tuple(found.lost),
    )  # fmt: skip


def _outcome_file(outcome: Outcome) -> _OutcomeFile:
    if outcome.read_back is None:
        return _OutcomeFile(outcome.result.value, outcome.detail)
    offset = outcome.read_back.offset
    found = _ReadBackFile(None if offset is None else offset.to_dict())
    return _OutcomeFile(outcome.result.value, outcome.detail, found)


def _outcomes(plan: Plan, found: list[_OutcomeFile]) -> Outcomes:
    return Outcomes(
        Outcome(change, Result(item.result), item.detail, _read_back(item))
        for change, item in zip(plan.changes, found, strict=True)
    )


def _read_back(item: _OutcomeFile) -> ReadBack | None:
    if item.read_back is msgspec.UNSET:
        return None
    return ReadBack(None if item.read_back.offset is None else Map(item.read_back.offset))
