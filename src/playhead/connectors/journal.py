"""The journal of connectors: the state before and after of what an apply, a delete, a rename or an undo changes.

One file for each, written before the first change, in a folder of its own in the journal of positions. Secrets are masked: a
literal secret cannot be restored from here. Salted hashes of the configs show whether a connector is still as it was left, its
secrets included. A record without results was interrupted; `undo` reads the worker to find out what it changed.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from playhead import __version__
from playhead.config import Context
from playhead.config.secrets import SecretKeys
from playhead.connect.answers import OffsetEntry
from playhead.connectors.plan.hashes import hash_of, is_hash_of
from playhead.connectors.plan.model import IDLE, Action, ClusterState, ConnectorsPlan, PlanRow
from playhead.errors import Invalid
from playhead.model import Result
from playhead.offsets.journal import Journal, find_entry_file, save_entry, who_am_i

RECORD_VERSION = 1
_UNTOUCHED = (Result.UNCHANGED, Result.REFUSED)


class Half(msgspec.Struct, frozen=True):
    """One side of a change. `config` None: not changed, or absent. `hash`: of the config with its secrets.

    `offsets` None: they were not read; `unread` says why they could not be.
    """

    state: str | None = None
    config: dict[str, str] | None = None
    hash: str = ""
    offsets: list[OffsetEntry] | None = None
    unread: str = ""


class ApplyEntry(msgspec.Struct, frozen=True):
    """One connector. `result` None: interrupted. `masked`: keys before the change whose literal secret is not kept here; `lost`:
    those of them whose secret the connector no longer has after the change. `deletes_offsets`: its offsets were to be deleted.
    `steps`: what a hand-over has done so far."""

    name: str
    action: str
    before: Half
    after: Half
    undoable: bool
    result: str | None = None
    detail: str = ""
    masked: list[str] = []
    lost: list[str] = []
    deletes_offsets: bool = False
    steps: list[str] = []

    @property
    def may_have_changed(self) -> bool:
        return self.result not in _UNTOUCHED


class ApplyRecord(msgspec.Struct, frozen=True):
    """`what`: the command: apply, delete, undo ID, rename, handover to ENGINE. `files`: those that a hand-over edits."""

    playhead_connectors: int
    id: str
    who: str
    program: str
    started: datetime
    kafka_cluster_id: str
    urls: list[str]
    entries: list[ApplyEntry]
    finished: datetime | None = None
    what: str = "apply"
    salt: str = ""
    files: list[str] = []

    @property
    def may_have_changed(self) -> bool:
        return any(entry.may_have_changed for entry in self.entries)

    @property
    def summary(self) -> str:
        if self.finished is None:
            return "not finished"
        results = [entry.result for entry in self.entries]
        return ", ".join(f"{results.count(one)} {one}" for one in Result if one in results) or "nothing to do"

    def is_of(self, found: str, config: Mapping[str, str]) -> bool:
        """Whether a hash of this record is that of the config."""
        return bool(found) and is_hash_of(found, config, bytes.fromhex(self.salt))


@dataclass(frozen=True, slots=True)
class Seen:
    """What can be read of a connector before it is deleted: its offsets, or why they cannot be read."""

    offsets: Sequence[OffsetEntry] | None = None
    unread: str = ""
    is_deleted: bool = False  # the offsets are deleted, too


@dataclass
class Recording:
    """A record that is being carried out. Several threads may use it."""

    book: "Book"
    record: ApplyRecord
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def path(self) -> Path:
        return self.book.path(self.record)

    def save_offsets(self, name: str, offsets: Sequence[OffsetEntry]) -> None:
        """The offsets of a connector that was stopped since the record was begun: what it wrote last counts."""
        with self._lock:
            entries = [
                msgspec.structs.replace(
                    one, before=msgspec.structs.replace(one.before, offsets=list(offsets), unread="")
                )
                if one.name == name
                else one
                for one in self.record.entries
            ]
            self.record = msgspec.structs.replace(self.record, entries=entries)
            self.book.save(self.record, is_new=True)

    def save_step(self, name: str, step: str) -> None:
        """One step of a hand-over is done."""
        with self._lock:
            entries = [
                msgspec.structs.replace(one, steps=[*one.steps, step]) if one.name == name else one
                for one in self.record.entries
            ]
            self.record = msgspec.structs.replace(self.record, entries=entries)
            self.book.save(self.record, is_new=True)

    def finish(self, results: Mapping[str, tuple[str, str]]) -> str:
        """`results`: name -> result and detail. Returns why they could not be written; empty if they are on disk."""
        with self._lock:
            entries = [
                msgspec.structs.replace(entry, result=results[entry.name][0], detail=results[entry.name][1])
                for entry in self.record.entries
            ]
            self.record = msgspec.structs.replace(self.record, entries=entries, finished=datetime.now(UTC))
            try:
                self.book.save(self.record, is_new=False)
            except Invalid as error:  # what was to be done is done: the results must be reported
                return f"the results are not in the journal: {error.what}"
        return ""


class Book:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_context(cls, context: Context) -> "Book":
        return cls(Journal.of_context(context).folder / "connectors")

    def path(self, record: ApplyRecord) -> Path:
        return self.folder / f"{record.id}.json"

    def begin(
        self, plan: ConnectorsPlan, seen: Mapping[str, Seen], what: str = "apply", files: Sequence[str] = ()
    ) -> Recording:
        """The record is on disk when this returns. Nothing may be sent before. `seen`: of the connectors that are deleted."""
        salt = os.urandom(16)
        rows = [row for row in plan.rows if row.action not in IDLE]
        with ThreadPoolExecutor(4, "hash") as pool:  # a slow hash takes 50 ms
            entries = list(pool.map(lambda row: _entry(row, seen.get(row.name, Seen()), salt), rows))
        return self._begun(plan.cluster, entries, what, salt, files)

    def _begun(
        self, cluster: ClusterState, entries: Iterable[ApplyEntry], what: str, salt: bytes, files: Sequence[str]
    ) -> Recording:
        started = datetime.now(UTC)
        record = ApplyRecord(
            RECORD_VERSION,
            f"{started:%Y%m%dT%H%M%S}{started.microsecond // 1000:03d}-{os.urandom(3).hex()}",
            who_am_i(),
            f"playhead {__version__}",
            started,
            cluster.kafka_cluster_id,
            list(cluster.urls),
            list(entries),
            None,
            what,
            salt.hex(),
            list(files),
        )
        self.save(record, is_new=True)
        return Recording(self, record)

    def save(self, record: ApplyRecord, *, is_new: bool) -> None:
        save_entry(self.path(record), msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n", is_new=is_new)

    def list(self) -> tuple[list[ApplyRecord], list[str]]:
        """Records, newest first; and a message for each file that cannot be read."""
        records, faults = [], []
        for path in _files(self.folder):
            try:
                records.append(_load(path))
            except Invalid as error:
                faults.append(error.what)
        return records, faults

    def newest_first(self) -> Iterator[ApplyRecord]:
        """Each record is read when it is asked for; one that is damaged is an error."""
        yield from (_load(path) for path in _files(self.folder))

    def get(self, record_id: str) -> ApplyRecord:
        """By its id, by the beginning of an id that no other record has, or `last`."""
        return _load(find_entry_file(self.folder, record_id))


def _files(folder: Path) -> list[Path]:
    """Newest first: the ids begin with the time."""
    return sorted(folder.glob("*.json"), reverse=True)


def _load(path: Path) -> ApplyRecord:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=ApplyRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OSError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from None
    if found.playhead_connectors != RECORD_VERSION:
        raise Invalid(f"{path}: journal version {found.playhead_connectors} is not supported")
    return found


def _entry(row: PlanRow, seen: Seen, salt: bytes) -> ApplyEntry:
    before = after = Half()
    masked: list[str] = []
    if row.running:
        config = row.running.config
        masked = [key for key, value in config.items() if row.secrets.has_literal(key, value)]
        offsets = None if seen.offsets is None else list(seen.offsets)
        before = _half(config, row.secrets, salt, row.running.state.value, offsets, seen.unread)
    if row.action is Action.STATE:  # the config of a connector that Spark takes over is not sent
        after = Half(row.state.value if row.state else None)
    elif row.wanted is not None:
        after = _half(row.wanted.config, row.secrets, salt, row.state.value if row.state else None)
    lost = masked
    if row.action is not Action.DELETE:
        changed = (
            {change.key for change in row.changes if change.loses_secret} if row.action is Action.UPDATE else set()
        )
        lost = [key for key in masked if key in changed]
    return ApplyEntry(
        row.name,
        row.action.value,
        before,
        after,
        row.is_undoable,
        masked=masked,
        lost=lost,
        deletes_offsets=seen.is_deleted,
    )


def _half(
    config: Mapping[str, str],
    secrets: SecretKeys,
    salt: bytes,
    state: str | None,
    offsets: list[OffsetEntry] | None = None,
    unread: str = "",
) -> Half:
    masked = {key: secrets.masked(key, value) for key, value in config.items()}
    return Half(state, masked, hash_of(config, salt, slow=bool(secrets.literals(config))), offsets, unread)
