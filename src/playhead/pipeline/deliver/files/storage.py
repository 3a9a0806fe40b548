"""Where files go. A file is written under a temporary name and appears whole, under its own name, or not at all.

Publishing a name again with the same bytes changes nothing, so repeating it does no harm.
"""

import errno
import resource
from contextlib import suppress
from typing import BinaryIO, Protocol


class DraftFile(Protocol):
    """A file that nobody sees yet. `name` is its path below the place, with / between folders."""

    @property
    def name(self) -> str: ...

    @property
    def file(self) -> BinaryIO: ...

    def discard(self) -> None:
        """Leaves nothing behind; may be called at any time, also after it was published."""


class OpenStorage(Protocol):
    """A place, opened in one task. Threads may publish at the same time."""

    def draft(self, name: str) -> DraftFile: ...

    def publish(self, draft: DraftFile) -> int:
        """Durable when this returns its size in bytes."""
        ...


class Storage(Protocol):
    """Picklable."""

    def connect(self) -> OpenStorage: ...


_MANY = "raise the limit (ulimit -Hn), or let records go to fewer folders at once: other partition fields, a smaller flush.size"


def allow_many_files() -> None:
    """As many as the machine allows this process. Where it does not, the usual number has to do."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hint_for(error: OSError) -> str:
    return _MANY if error.errno in (errno.EMFILE, errno.ENFILE) else "look at the disk and the folder"
