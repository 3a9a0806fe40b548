"""A folder of this machine. A draft is a hidden file in the same folder; fsync and rename publish it.

A killed attempt leaves hidden files. Its claim is always finished as it was claimed, under the same names. The attempt that
publishes a name removes the leftovers for that name. If another attempt removes our draft this way, its own file with the same
bytes is in place.
"""

import os
import secrets
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from playhead.errors import Rejected, Unreachable
from playhead.files import sync_folder
from playhead.pipeline.deliver.files.storage import DraftFile, hint_for

BUFFER_BYTES = 256 * 1024
SUFFIX = ".playhead"


@dataclass(frozen=True, slots=True)
class FolderStorage:
    root: str

    def connect(self) -> "OpenFolder":
        return OpenFolder(Path(self.root))


@dataclass(frozen=True, slots=True)
class FileDraft:
    name: str
    path: Path
    hidden: Path
    file: BinaryIO

    def discard(self) -> None:
        with suppress(OSError):  # the disk may be full: buffered bytes are not needed any more
            self.file.close()
        self.hidden.unlink(missing_ok=True)


@dataclass(slots=True)
class OpenFolder:
    root: Path
    _leftovers: dict[Path, dict[str, list[Path]]] = field(default_factory=dict)

    def draft(self, name: str) -> DraftFile:
        path = self.root / name
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
        try:
            if path.parent not in self._leftovers:
                _make_folder(path.parent)
                self._leftovers[path.parent] = _leftovers_in(path.parent)
            return FileDraft(name, path, hidden, hidden.open("xb", buffering=BUFFER_BYTES))
        except OSError as error:
            raise _translated(path, error) from None

    def publish(self, draft: DraftFile) -> int:
        assert isinstance(draft, FileDraft)  # noqa: S101  a storage publishes its own drafts
        try:
            size = _put(draft)
            for left in self._leftovers[draft.path.parent].pop(draft.path.name, ()):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise _translated(draft.path, error) from None
        return size

    def remove(self, name: str) -> None:
        path = self.root / name
        try:
            path.unlink(missing_ok=True)
            if path.parent.exists():
                sync_folder(path.parent)
        except OSError as error:
            raise _translated(path, error) from None


def _put(draft: FileDraft) -> int:
    draft.file.flush()
    os.fsync(draft.file.fileno())
    size = os.fstat(draft.file.fileno()).st_size
    draft.file.close()
    try:
        draft.hidden.replace(draft.path)
    except FileNotFoundError:
        if not draft.path.exists() or draft.path.stat().st_size != size:
            raise
    sync_folder(draft.path.parent)
    return size


def _make_folder(folder: Path) -> None:
    """A new folder is durable only after its parent is synced."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        sync_folder(made.parent)


def _leftovers_in(folder: Path) -> dict[str, list[Path]]:
    """Drafts of other attempts by the name they were for: `.NAME.12345678.playhead`."""
    found: dict[str, list[Path]] = defaultdict(list)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(SUFFIX):
                found[entry.name.removesuffix(SUFFIX)[1:].rpartition(".")[0]].append(Path(entry.path))
    return found


def _translated(path: Path, error: OSError) -> Exception:
    if isinstance(error, PermissionError):
        return Rejected(f"{path} cannot be written: {error.strerror}", hint="check the owner and mode of the folder")
    return Unreachable(f"{path} cannot be written: {error.strerror or error}", hint_for(error))
