"""Appends to one file exactly once, although a file cannot take part in a transaction.

The ledger records the length of the file and changes it in the transaction that commits the ranges. Bytes after that length do
not count. Before bytes are appended, an intent is written next to the file: the length before the append, and the parts in their
order. After a kill the next run finds one of these (R: the length in the ledger, N: the bytes of the parts):

    killed                              intent      file            what is done
    while tasks write their parts       none        R               the parts are created again, under the same names
    before the intent                   none        R               the same
    before or in the append             of R        R + a prefix    same parts: the rest is appended; others: truncate to R first
    before the ledger's commit          of R        R + N           as above, with an empty rest
    after the commit, before cleaning   of R - N    R               the old intent and its parts are removed

The bytes after R are compared with the parts of the intent before any of them is changed. A file that ends otherwise, or is
shorter than R, was changed by another process and is refused. An empty or missing file without an open intent was rotated away
and starts at 0. A lock on the folder of the parts, held until the sink is closed, keeps other processes out.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec

from playhead.errors import Invalid, PlayheadError, Refused, Unreachable
from playhead.errors import Rejected as Declined
from playhead.files import replace_file, sync_folder

BLOCK_BYTES = 1024 * 1024
TAIL_BYTES = 4096
_INTENT = "intent.json"
_PUT_BACK = "restore the file, or name another file; what is delivered stays delivered"


class End(msgspec.Struct, frozen=True):
    """What the ledger records of a file. `id` is random, so that no other row has the same text."""

    id: str
    length: int
    tail: str

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "End":
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise Invalid(f"the file's end as recorded in the ledger cannot be read: {error}") from None


class FilePart(msgspec.Struct, frozen=True):
    name: str
    size: int


class Intent(msgspec.Struct, frozen=True):
    """`before`: the end in the ledger when the intent was written. `base`: the length of the file then, 0 if it was rotated."""

    before: End
    base: int
    parts: tuple[FilePart, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class FoundEnd:
    """`base`: the length that counts. `pending`: bytes of ours after it that do not count yet, a prefix of `intent`'s parts."""

    base: int
    pending: int = 0
    intent: Intent | None = None


class GrowingFile:
    """Used by the driver, in one thread. `parts` is the folder to which tasks write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = parts_folder(path)
        self._lock: int | None = None

    # The lock

    def lock(self) -> None:
        """Held until `close`. Another process may remove the folder before we lock it, so its inode is checked after the lock."""
        with translated(self.path):
            while self._lock is None:
                self.parts.mkdir(exist_ok=True)
                handle = os.open(self.parts, os.O_RDONLY)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(handle)
                    raise Refused(
                        f"another run, or another connector of this run, writes to {self.path}",
                        "stop it first; two writers would mix their lines",
                    ) from None
                if self.parts.is_dir() and self.parts.stat().st_ino == os.fstat(handle).st_ino:
                    self._lock = handle
                else:
                    os.close(handle)

    def close(self) -> None:
        if self._lock is not None:
            with suppress(OSError):  # a file left in it is needed, or the next run removes it
                self.parts.rmdir()
            os.close(self._lock)
            self._lock = None

    # Reading

    def present_end(self) -> End:
        """For a file that is not in the ledger yet: its content is kept."""
        if self._intent() is not None:
            raise Refused(
                f"an append to {self.path} was started with another ledger and may be unfinished",
                f"run it once with that ledger; or check the end of the file, then remove {self.parts}",
            )
        length = self._size()
        return End(secrets.token_hex(8), length, self._tail(length))

    def examine(self, end: End) -> FoundEnd:
        """Raises Refused for a file that another process changed."""
        size, intent = self._size(), self._intent()
        if intent is None or intent.before != end:
            if size == 0 or (size == end.length and self._tail(size) == end.tail):
                return FoundEnd(size)
            raise self._changed(end, size)
        pending = size - intent.base
        if not self.path.exists() or not 0 <= pending <= intent.size:
            raise self._changed(end, size)
        if (intent.base and self._tail(intent.base) != end.tail) or not self._is_ours(intent, pending):
            raise self._changed(end, size)
        return FoundEnd(intent.base, pending, intent)

    # Changes

    def tidy(self, end: End) -> None:
        """Before the first tasks: removes leftovers, except an open intent and its parts."""
        with translated(self.path):
            intent = self._intent()
            is_open = intent is not None and intent.before == end
            self._remove_all_but({_INTENT, *(part.name for part in intent.parts)} if intent and is_open else set())

    def append(self, end: End, parts: Sequence[FilePart]) -> End:
        """Makes these parts durable after the length that counts. Returns the new end for the ledger. Idempotent."""
        with translated(self.path):
            found = self.examine(end)
            intent = Intent(end, found.base, tuple(parts))
            at = found.pending
            if found.intent != intent:
                if at:
                    self._truncate(found.base)
                self._create()
                replace_file(self.parts / _INTENT, msgspec.json.encode(intent))
                at = 0
            self._write(intent, at)
            length = found.base + intent.size
            return End(end.id, length, self._tail(length))

    def settle(self) -> None:
        """After the commit: empties the folder."""
        with translated(self.path):
            self._remove_all_but(set())

    # Inside

    def _size(self) -> int:
        with translated(self.path):
            try:
                is_plain, size = self.path.is_file(), self.path.stat().st_size
            except FileNotFoundError:
                return 0
            if not is_plain:
                raise Refused(f"{self.path} is not a regular file, so its length cannot be recorded", "name a file")
            return size

    def _tail(self, length: int) -> str:
        """A digest of the bytes before this length, to check that it is still the same file."""
        if length == 0:
            return ""
        with translated(self.path), self.path.open("rb") as file:
            start = max(0, length - TAIL_BYTES)
            file.seek(start)
            return sha256(file.read(length - start)).hexdigest()

    def _intent(self) -> Intent | None:
        path = self.parts / _INTENT
        try:
            return msgspec.json.decode(path.read_bytes(), type=Intent)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise Refused(
                f"{path} cannot be read: {error}", "it is replaced atomically, so another process changed it"
            ) from None

    def _is_ours(self, intent: Intent, pending: int) -> bool:
        if not pending:
            return True
        with translated(self.path), self.path.open("rb") as file:
            file.seek(intent.base)
            for block in self._blocks(intent, 0):
                wanted = block[:pending]
                if file.read(len(wanted)) != wanted:
                    return False
                pending -= len(wanted)
                if not pending:
                    return True
        return False

    def _blocks(self, intent: Intent, skip: int) -> Iterator[bytes]:
        """The bytes of all parts in order, without the first `skip`."""
        for part in intent.parts:
            if skip >= part.size:
                skip -= part.size
                continue
            with self._open_part(part) as file:
                file.seek(skip)
                skip = 0
                while block := file.read(BLOCK_BYTES):
                    yield block

    def _open_part(self, part: FilePart) -> BinaryIO:
        path = self.parts / part.name
        size = path.stat().st_size if path.is_file() else -1
        if size != part.size:
            raise Refused(
                f"{path} is missing or was changed; without it, what was appended to {self.path} is unknown",
                f"check the end of the file, truncate it to the length in the ledger, and remove {self.parts}",
            )
        return path.open("rb")

    def _remove_all_but(self, kept: Set[str]) -> None:
        for entry in self.parts.iterdir():
            if entry.name not in kept:
                entry.unlink(missing_ok=True)

    def _create(self) -> None:
        """Creates the file before the intent is written: if it is missing while an intent is open, it was removed."""
        if not self.path.exists():
            self.path.touch()
            sync_folder(self.path.parent)

    def _truncate(self, length: int) -> None:
        with self.path.open("rb+") as file:
            file.truncate(length)
            os.fsync(file.fileno())

    def _write(self, intent: Intent, at: int) -> None:
        with self.path.open("ab", buffering=0) as file:
            for block in self._blocks(intent, at):
                rest = memoryview(block)
                while rest:
                    rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
            length = os.fstat(file.fileno()).st_size
        if length != intent.base + intent.size:
            raise Refused(f"another process wrote to {self.path} during an append", _PUT_BACK)

    def _changed(self, end: End, size: int) -> Refused:
        how = f"it has {size} bytes, and the ledger says {end.length}" if size != end.length else "its end differs"
        return Refused(f"{self.path} was changed by another process: {how}", _PUT_BACK)


def parts_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.playhead")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise Declined(
            f"{path} cannot be written: {error.strerror}", hint="check owner and mode of its folder"
        ) from None
    except OSError as error:
        raise _unreachable(path, error) from None


def _unreachable(path: Path, error: OSError) -> PlayheadError:
    return Unreachable(f"{path} cannot be written: {error.strerror or error}", "check the disk and the folder")
