"""Atomic replacement of files: readers and a power cut see the old or the new content, never a part of it."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace_file(path: Path, data: bytes, *, new_mode: int = 0o600) -> None:
    """Mode and owner of an existing file are kept; a new one gets `new_mode`. The target of a link is replaced, not the link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.resolve()
    old = path.stat() if path.exists() else None
    mode = old.st_mode & 0o777 if old else new_mode
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if old and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):  # only root may change the owner of a file
                os.chown(temporary, old.st_uid, old.st_gid)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Holds an exclusive lock on a folder. The lock ends with the process that holds it and leaves no file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Whether this process holds the exclusive lock on a file that is there only for that. The lock ends with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _locked(path)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)
            os.close(handle)


def _locked(path: Path) -> int | None:
    """The holder deletes the file before it lets go: a file that was opened before that is not the one that others lock."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """A rename is durable only after its folder is synced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
