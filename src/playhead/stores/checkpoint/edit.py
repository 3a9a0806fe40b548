"""One edit of a checkpoint, in steps of which each leaves something that Spark and the next reading understand.

    1  every file that will be touched is copied to `.playhead-backup/TIME/`, then `edit.json` there says what is going to happen
    2  planned batches are removed, the newest first, each after its checksum, which alone would stop Spark from writing that
       batch again                                              cut off here: the old position, fewer planned batches
    3  checksums of the files to be replaced are removed        cut off here: the old position; no checksum is no fault to Hadoop
    4  each file is replaced whole                              cut off here: the new position
    5  checksums are written anew, and `edit.json` says that it is finished

The planned batches go first, because a planned batch after a moved position would run from the new start to the old end: too
much, or backwards. Without them the old position is simply the old position. A cut between 2 and 4 cannot be told from that by
Spark; `find_cut_off` tells it to the reader, with the folder that has the copies. The backup lies inside the checkpoint, where we
may write if we may edit at all, under a name with a dot: Spark looks only for the names it knows there.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import msgspec

from playhead.errors import PlayheadError
from playhead.stores.checkpoint.folder import Folder
from playhead.stores.checkpoint.log import crc_bytes

BACKUPS = ".playhead-backup"


@dataclass(frozen=True, slots=True)
class CheckpointEdit:
    """Paths inside the checkpoint. `writes` with None: the file is to go."""

    removes: Sequence[str]
    writes: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    """What of `writes` is done, the folder with the copies (None: there was nothing to copy), what stopped it, and of which
    files nobody can tell afterwards."""

    done: frozenset[str]
    backup: str | None
    fault: PlayheadError | None = None
    unknown: frozenset[str] = frozenset()


class _Record(msgspec.Struct):
    removes: list[str]
    writes: dict[str, str | None]
    finished: bool = False
    playhead_edit: int = 1


def apply_edit(folder: Folder, edit: CheckpointEdit) -> AppliedEdit:
    """An error that is raised means that nothing was touched yet."""
    backup = _back_up(folder, edit)
    try:
        for path in edit.removes:
            for sidecar in _sidecars(path):
                folder.remove(sidecar)
            folder.remove(path)
        for path, data in edit.writes.items():
            _replace(folder, path, data)
        if backup:
            folder.replace(f"{backup}/edit.json", _record(edit, finished=True))
    except PlayheadError as error:
        return _what_arrived(folder, edit, backup, error)
    return AppliedEdit(frozenset(edit.writes), backup)


def _what_arrived(folder: Folder, edit: CheckpointEdit, backup: str | None, fault: PlayheadError) -> AppliedEdit:
    """A failed call may have done its work all the same: the files themselves are asked."""
    done, unknown = set(), set()
    for path, data in edit.writes.items():
        try:
            if folder.find(path) == data:
                done.add(path)
        except PlayheadError:
            unknown.add(path)
    return AppliedEdit(frozenset(done), backup, fault, frozenset(unknown))


def _replace(folder: Folder, path: str, data: bytes | None) -> None:
    hidden, plain = _sidecars(path)
    had_checksum = folder.find(hidden) is not None
    for sidecar in (hidden, plain):
        folder.remove(sidecar)
    if data is None:
        folder.remove(path)
        return
    folder.replace(path, data)
    if had_checksum:
        folder.replace(hidden, crc_bytes(data), like=path)


def _back_up(folder: Folder, edit: CheckpointEdit) -> str | None:
    backup = f"{BACKUPS}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid4().hex[:4]}"
    copied = 0
    for main in (*edit.removes, *edit.writes):
        for path in (main, *_sidecars(main)):
            data = folder.find(path)
            if data is not None:
                folder.replace(f"{backup}/{path}", data, like=path)
                copied += 1
    if not copied:
        return None
    folder.replace(f"{backup}/edit.json", _record(edit, finished=False))
    return backup


def find_cut_off(folder: Folder, current: Collection[str]) -> str | None:
    """A sentence on the last edit, if it was cut off in the middle of the files that count now and left them like that."""
    names = folder.list_folders(BACKUPS)
    if not names:
        return None
    backup = f"{BACKUPS}/{names[-1]}"
    record = _find_record(folder, backup)
    if record is None or record.finished or not any(path in current for path in record.writes):
        return None
    written = [path for path, digest in record.writes.items() if _digest(folder.find(path)) == digest]
    removed = [path for path in record.removes if folder.find(path) is None]
    waiting = [path for path in record.writes if path not in written]
    if not waiting or not (written or removed):
        return None
    steps = [f"{path} was removed" for path in removed] + [f"{path} was written" for path in written]
    return (
        f"an edit was cut off: {', '.join(steps)}, {', '.join(waiting)} still has the old position."
        f" Plan it again, or copy the files back from {folder.address}/{backup}"
    )


def edited_files(folder: Folder) -> set[str]:
    """The files that edits of ours wrote: in them stands where somebody put the query, not where it had come to."""
    records = (_find_record(folder, f"{BACKUPS}/{name}") for name in folder.list_folders(BACKUPS))
    return {path for record in records if record is not None for path in record.writes}


def _find_record(folder: Folder, backup: str) -> _Record | None:
    """None: the copies were not complete, nothing had been touched. Or it is no record of ours: it says nothing about us."""
    data = folder.find(f"{backup}/edit.json")
    try:
        return None if data is None else msgspec.json.decode(data, type=_Record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _sidecars(path: str) -> tuple[str, str]:
    """Hadoop's checksum file, and the one that Spark's own checksumming (4.1) would make."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/.{name}.crc", f"{path}.crc"


def _record(edit: CheckpointEdit, *, finished: bool) -> bytes:
    digests = {path: _digest(data) for path, data in edit.writes.items()}
    return msgspec.json.encode(_Record(list(edit.removes), digests, finished))


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()
