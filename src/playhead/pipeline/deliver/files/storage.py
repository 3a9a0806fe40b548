"""Where files are stored. A file is written under a temporary name and published under its own name, completely or not at all.

Publishing a name again with the same bytes is idempotent.
"""

import errno
import resource
from contextlib import suppress
from typing import BinaryIO, Protocol


class DraftFile(Protocol):
    """A file that is not visible yet. `name`: its path below the root of the storage, with / between folders."""

    @property
    def name(self) -> str: ...

    @property
    def file(self) -> BinaryIO: ...

    def discard(self) -> None:
        """Removes the draft; may be called at any time, also after it was published."""


class OpenStorage(Protocol):
    """A storage, opened in one task. Threads may publish at the same time."""

    def draft(self, name: str) -> DraftFile: ...

    def publish(self, draft: DraftFile) -> int:
        """Durable when this returns its size in bytes."""
        ...

    def remove(self, name: str) -> None:
        """Removes a published file; one that does not exist is removed already."""


class Storage(Protocol):
    """Picklable."""

    def connect(self) -> OpenStorage: ...


_MANY = "raise the limit (ulimit -Hn), or write to fewer folders at once: other partition fields, a smaller flush.size"


def allow_many_files() -> None:
    """Raises the limit of open files to the hard limit. If that fails, the present limit stays."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hint_for(error: OSError) -> str:
    return _MANY if error.errno in (errno.EMFILE, errno.ENFILE) else "check the disk and the folder"
