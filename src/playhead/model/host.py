"""The name of the current user, for journals and ledgers; and whether a process of this machine is there.

A server acts for the users who logged in to it: inside of `acting_as` the name is theirs.
"""

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ACTING: ContextVar[str | None] = ContextVar("acting_as", default=None)


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """What is written inside of this block is recorded under this name. Threads started inside do not inherit it."""
    token = _ACTING.set(name)
    try:
        yield
    finally:
        _ACTING.reset(token)


def user_name() -> str:
    if (acting := _ACTING.get()) is not None:
        return acting
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for this user
        return str(os.getuid())


def is_process(pid: int) -> bool:
    """On this machine. The number of one that is gone may belong to another one by now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
