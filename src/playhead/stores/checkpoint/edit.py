"""One edit of a checkpoint. After each step the checkpoint is valid for Spark and for the next read.

    1  every file to change is copied to `.playhead-backup/TIME/`, then `edit.json` there records the planned steps
    2  planned batches are removed, the newest first, each after its checksum, because a checksum alone would stop Spark from
       writing that batch again                                 interrupted here: the old position, fewer planned batches
    3  checksums of the files to be replaced are removed        interrupted here: the old position; Hadoop needs no checksum
    4  each file is replaced as a whole                         interrupted here: the new position
    5  checksums are written again
    6  batches that the last edit removed are restored, if this edit undoes it exactly       interrupted here: as in 2
    7  `edit.json` records that the edit is finished

The planned batches are removed first, because a planned batch after a moved position would run from the new start to the old
end: too much, or backwards. Without them the old position is still valid. Spark does not notice an interruption between 2 and 4;
`find_cut_off` reports it, with the folder of the copies. The backup is inside the checkpoint, because an edit has write access
there. Its name starts with a dot: Spark reads only the names it knows there.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import msgspec

from playhead.errors import PlayheadError
from playhead.stores.checkpoint.folder import Folder
from playhead.stores.checkpoint.log import crc_bytes

BACKUPS = ".playhead-backup"


@dataclass(frozen=True, slots=True)
class CheckpointEdit:
    """Paths inside the checkpoint. `writes` with None: the file is removed. `restores`: from `find_restorable`."""

    removes: Sequence[str]
    writes: Mapping[str, bytes | None]
    restores: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    """The files of `writes` and `restores` that are done, the folder with the copies (None: there was nothing to copy), the error
    that stopped the edit, and the files whose state is unknown."""

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
    """If an error is raised, nothing was changed yet."""
    backup = _back_up(folder, edit)
    try:
        for path in edit.removes:
            for sidecar in _sidecars(path):
                folder.remove(sidecar)
            folder.remove(path)
        for path, data in edit.writes.items():
            _replace(folder, path, data)
        for path, data in edit.restores.items():
            like = next(iter(edit.writes))
            folder.replace(path, data, like=like)
            if folder.find(_sidecars(like)[0]) is not None:
                folder.replace(_sidecars(path)[0], crc_bytes(data), like=path)
        if backup:
            folder.replace(f"{backup}/edit.json", _record(edit, finished=True))
    except PlayheadError as error:
        return _read_back(folder, edit, backup, error)
    return AppliedEdit(frozenset((*edit.writes, *edit.restores)), backup)


def _read_back(folder: Folder, edit: CheckpointEdit, backup: str | None, fault: PlayheadError) -> AppliedEdit:
    """A failed call may still have written: the files are read to find out."""
    done, unknown = set(), set()
    for path, data in (*edit.writes.items(), *edit.restores.items()):
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
    """A message if the last edit of the `current` files was interrupted and is still incomplete."""
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
        f"an edit was interrupted: {', '.join(steps)}, {', '.join(waiting)} still has the old position."
        f" Plan it again, or copy the files back from {folder.address}/{backup}"
    )


def find_restorable(folder: Folder, writes: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """The planned batches that the last edit removed, oldest first, if `writes` undoes that edit byte for byte and nothing else
    changed since. With them the checkpoint is again as it was."""
    names = folder.list_folders(BACKUPS)
    backup = f"{BACKUPS}/{names[-1]}" if names else ""
    record = _find_record(folder, backup) if backup else None
    if record is None or not record.finished or not writes or set(record.writes) != set(writes):
        return {}
    for path, data in writes.items():
        if _digest(folder.find(path)) != record.writes[path] or folder.find(f"{backup}/{path}") != data:
            return {}
    copies = {path: folder.find(f"{backup}/{path}") for path in reversed(record.removes) if folder.find(path) is None}
    found = {path: data for path, data in copies.items() if data is not None}
    return found if len(found) == len(record.removes) else {}


def find_left_removed(folder: Folder) -> str | None:
    """A message if planned batches that an edit removed do not exist, and nothing replaced them."""
    for name in reversed(folder.list_folders(BACKUPS)):
        record = _find_record(folder, f"{BACKUPS}/{name}")
        if record is not None and record.removes:
            gone = [path for path in record.removes if folder.find(path) is None]
            kept = f"their copies are in {folder.address}/{BACKUPS}/{name}"
            return f"{', '.join(gone)}, planned and removed by an edit, stay removed: {kept}" if gone else None
    return None


def edited_files(folder: Folder) -> set[str]:
    """The files that our edits wrote: they hold the position that was set, not the one that the query reached."""
    records = (_find_record(folder, f"{BACKUPS}/{name}") for name in folder.list_folders(BACKUPS))
    return {path for record in records if record is not None for path in record.writes}


def _find_record(folder: Folder, backup: str) -> _Record | None:
    """None: the copies were incomplete and nothing was changed, or the file is not one of our records."""
    data = folder.find(f"{backup}/edit.json")
    try:
        return None if data is None else msgspec.json.decode(data, type=_Record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _sidecars(path: str) -> tuple[str, str]:
    """Hadoop's checksum file, and the one that Spark's own checksums (4.1) would create."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/.{name}.crc", f"{path}.crc"


def _record(edit: CheckpointEdit, *, finished: bool) -> bytes:
    digests = {path: _digest(data) for path, data in edit.writes.items()}
    return msgspec.json.encode(_Record(list(edit.removes), digests, finished))


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()
