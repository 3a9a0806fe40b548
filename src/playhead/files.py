"""Files replaced whole or not at all: a reader never sees half of one, and a power cut leaves the old or the new."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes, *, new_mode: int = 0o600) -> None:
    """The mode of an existing file is kept; a new one gets `new_mode`. A link stays a link: what it leads to is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else new_mode
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A rename is durable only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
