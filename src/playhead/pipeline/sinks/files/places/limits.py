"""Many folders at once are many open files: of those a process may usually have 1024, and many more for the asking."""

import errno
import resource
from contextlib import suppress

_MANY = "raise the limit (ulimit -Hn), or let records go to fewer folders at once: other partition fields, a smaller flush.size"


def allow_many_files() -> None:
    """As many as the machine allows this process. Where it does not, the usual number has to do."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hint_for(error: OSError) -> str:
    return _MANY if error.errno in (errno.EMFILE, errno.ENFILE) else "look at the disk and the folder"
