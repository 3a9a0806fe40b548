"""The offset file of a standalone worker: `file:path`. Read and written without Java.

A missing file holds no offsets, as for the worker. A truncated or damaged file is corrupt, never empty. A running worker holds
the offsets in memory and rewrites the file at its next flush, so it must be down. Its REST listener and the process table are
checked; if neither gives an answer, the user must confirm it with a flag. The file is replaced as a whole, and a copy of the old
one is stored next to it. A write that results in the contents of a copy restores that copy byte for byte.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote

from playhead.config import read_properties
from playhead.connect.javafile import CorruptFile, FileEntry, decode_file, encode_file
from playhead.connect.keys import OffsetKey, decode_key, encode_new_key, encode_value
from playhead.errors import Invalid, PlayheadError
from playhead.files import locked_folder, replace_file
from playhead.model import Change, Outcome, Outcomes, Result
from playhead.net import FoundListener, identify
from playhead.stores import Access, Capabilities, Refusal, Snapshot, changes_by_owner, is_kafka_place, moved_since
from playhead.stores.entries import RawPair, decode_pairs

FLAG = "--worker-is-down"
MAIN_CLASS = b"org.apache.kafka.connect.cli.ConnectStandalone"
_PROC = Path("/proc")
TWICE = "the file holds this key twice, in equal bytes: which one the worker uses is unknown"


@dataclass(frozen=True, slots=True)
class StandaloneWorker:
    """`offset_file` None: its properties could not be read, so it may use any file."""

    pid: int
    offset_file: Path | None


def list_standalone_workers() -> list[StandaloneWorker] | None:
    """None if the system has no /proc."""
    if not (_PROC / "self" / "cmdline").exists():
        return None
    return list(_find_workers())


def _find_workers() -> Iterator[StandaloneWorker]:
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # the process ended in the meantime
        if MAIN_CLASS in words:
            yield StandaloneWorker(int(folder.name), _offset_file(folder, words[words.index(MAIN_CLASS) + 1 :]))


def _offset_file(folder: Path, arguments: list[bytes]) -> Path | None:
    try:
        here = (folder / "cwd").readlink()
        properties = {entry.key: entry.value.strip() for entry in read_properties(here / os.fsdecode(arguments[0]))}
        return here / properties["offset.storage.file.filename"]
    except (OSError, IndexError, KeyError, PlayheadError):
        return None


@dataclass(frozen=True, slots=True)
class StandaloneFile:
    """`listener`: the REST address of the worker of this file, if its properties are known."""

    path: Path
    listener: tuple[str, int] | None = None

    @property
    def uri(self) -> str:
        query = f"?listener={self.listener[0]}:{self.listener[1]}" if self.listener else ""
        return f"file:{quote(str(self.path))}{query}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(history=False)

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        return self._read(owners, removed=False)

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        """The file has no history, except the keys of removed positions."""
        return self._read(owners, removed=True)

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        verdict = self._alive()
        return [Refusal(owner, *verdict) for owner in owners] if verdict else []

    def write(self, changes: Sequence[Change]) -> Outcomes:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked_folder(self.path.parent):
            return self._write(changes)

    def _write(self, changes: Sequence[Change]) -> Outcomes:
        data = self._bytes()
        entries = _Entries([] if data is None else self._decoded(data))
        before = entries.list()
        outcomes = []
        for own in changes_by_owner(changes).values():
            refusal = entries.refusal(own)
            if refusal is None:
                for change in own:
                    entries.put(change)
            outcomes += [_outcome(change, refusal) for change in own]
        if entries.list() != before:
            self._replace(entries.list())
        by_change = {id(outcome.change): outcome for outcome in outcomes}
        return Outcomes(by_change[id(change)] for change in changes)

    def _decoded(self, data: bytes) -> list[FileEntry]:
        try:
            return decode_file(data)
        except CorruptFile as error:
            raise error.of(str(self.path)) from None

    def _read(self, owners: Collection[str] | None, *, removed: bool) -> Snapshot:
        data = self._bytes()
        if data is None:
            return Snapshot((), (f"{self.path} does not exist: this worker has stored no offset yet",))
        entries = self._decoded(data)
        keys = Counter(entry.key for entry in entries)
        decoded = decode_pairs(
            (RawPair(entry.key, entry.value, {}) for entry in entries),
            owners,
            removed=removed,
            notes_on=lambda raw, key, pair: (TWICE,) if keys[raw] > 1 else (),
        )
        return Snapshot(tuple(decoded.entries), tuple(decoded.notes))

    def _bytes(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Invalid(f"{self.path} cannot be read: {error.strerror}") from None

    def _alive(self) -> tuple[str, str, str | None] | None:
        """What runs or is unknown, a hint, and the flag that overrides it. None: the worker is certainly down."""
        workers = list_standalone_workers()
        ours = next((worker for worker in workers or () if _uses(worker, self.path)), None)
        if ours:
            return f"a standalone worker with this file runs (process {ours.pid})", "stop it first", "--force"
        if self.listener and (doubt := _doubt_about(*self.listener)):
            return doubt, "stop the worker first", FLAG
        unclear = next((worker for worker in workers or () if worker.offset_file is None), None)
        if unclear:
            what = f"a standalone worker runs (process {unclear.pid}), and whether it uses this file is unknown"
            return what, "stop it first", FLAG
        if self.listener is None or workers is None:
            return "whether a worker uses this file is unknown", "name its properties with --worker-config", FLAG
        return None

    def _replace(self, entries: Sequence[FileEntry]) -> None:
        """Stores a copy of the old file next to the new one. A copy with exactly the requested entries is restored as it is."""
        wanted = encode_file(entries)
        for copy in sorted(self._copies(), reverse=True):
            try:
                if sorted(decode_file(copy.read_bytes())) == sorted(entries):
                    wanted = copy.read_bytes()
                    break
            except (CorruptFile, OSError, TypeError):
                continue  # a damaged copy is ignored
        old = self._bytes()
        if old is not None:
            stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
            replace_file(self.path.with_name(f"{self.path.name}.{stamp}.playhead"), old)
        replace_file(self.path, wanted)

    def _copies(self) -> list[Path]:
        return [path for path in self.path.parent.glob("*.playhead") if path.name.startswith(self.path.name + ".")]


def _doubt_about(host: str, port: int) -> str | None:
    """None if nothing listens there. A host that cannot be reached may still be up."""
    found = identify(host, port, 1.0)
    return (
        None
        if found is FoundListener.NOBODY
        else f"{host}:{port}, where the worker of this file listens, {found.value}"
    )


def _uses(worker: StandaloneWorker, path: Path) -> bool:
    return worker.offset_file is not None and worker.offset_file.resolve() == path.resolve()


class _Entries:
    """The entries of the file in their order, found by their keys. A removed entry leaves a gap until they are listed."""

    def __init__(self, entries: Sequence[FileEntry]) -> None:
        self._entries: list[FileEntry | None] = list(entries)
        self._places: dict[OffsetKey, list[int]] = {}
        for place, entry in enumerate(entries):
            if (key := decode_key(entry.key)) is not None:
                self._places.setdefault(key, []).append(place)
        stored = decode_pairs((RawPair(entry.key, entry.value, {}) for entry in entries), None, removed=False).entries
        self._before = {(one.position.owner, one.position.partition): one.position.offset for one in stored}

    def list(self) -> list[FileEntry]:
        return [entry for entry in self._entries if entry is not None]

    def find(self, change: Change) -> dict[int, FileEntry]:
        places = self._places.get(OffsetKey(change.owner, change.partition), ())
        return {place: entry for place in places if (entry := self._entries[place]) is not None}

    def refusal(self, changes: Sequence[Change]) -> str | None:
        """Why these changes of one owner cannot be written."""
        for change in changes:
            if is_kafka_place(change.partition):
                return "a position in a Kafka topic belongs to a consumer group, not into an offset file"
            found = [entry.key for entry in self.find(change).values()]
            if len(set(found)) < len(found):
                return TWICE
        return moved_since(changes, {c.partition: self._before.get((c.owner, c.partition)) for c in changes})

    def put(self, change: Change) -> None:
        """Keeps the place and the key bytes; appends a new key. A deleted position is removed: to the worker that is the same."""
        found = self.find(change)
        value = None if change.after is None else encode_value(change.after)
        for place, entry in found.items():
            self._entries[place] = None if value is None else FileEntry(entry.key, value)
        if value is not None and not found:
            key = OffsetKey(change.owner, change.partition)
            self._places.setdefault(key, []).append(len(self._entries))
            self._entries.append(FileEntry(encode_new_key(key), value))


def _outcome(change: Change, refusal: str | None) -> Outcome:
    if refusal:
        return Outcome(change, Result.REFUSED, refusal)
    return Outcome(change, Result.UNCHANGED if change.before == change.after else Result.CHANGED)


def open_uri(uri: str, _access: Access) -> StandaloneFile:
    path, _, query = uri.removeprefix("file:").partition("?")
    if path.startswith("///"):
        path = path[2:]
    listeners = parse_qs(query).get("listener")
    if not listeners:
        return StandaloneFile(Path(unquote(path)).absolute())
    host, _, port = listeners[0].rpartition(":")
    if not port.isdigit():
        raise Invalid(f"{uri}: the listener must be host:port")
    return StandaloneFile(Path(unquote(path)).absolute(), (host, int(port)))
