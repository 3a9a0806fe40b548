"""Maps SQLAlchemy's errors to Playhead's errors, in one table: by SQLSTATE for PostgreSQL, by error name for SQLite.

Only the first line of the driver's message is used, scrubbed of what looks like a secret and of the password of the database.
SQLAlchemy's message would include the statement and its values.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from playhead.config.scrub import Scrub
from playhead.errors import AccessDenied, Busy, Invalid, PlayheadError, Rejected, TimedOut, Unreachable

PLAIN_SCRUB = Scrub()
Make = Callable[[str, str], PlayheadError]


def _busy(doing: str, message: str) -> PlayheadError:
    return Busy(f"{doing}: {message}", message=message, hint="another process works on the same rows; retry")


def _denied(doing: str, message: str) -> PlayheadError:
    return AccessDenied(
        f"{doing}: {message}", "check user and password (PGPASSWORD, ~/.pgpass) and the permissions of this user"
    )


def _away(doing: str, message: str) -> PlayheadError:
    return Unreachable(f"{doing}: {message}", "is the database running, and is this its address?")


def _absent(doing: str, message: str) -> PlayheadError:
    return Unreachable(f"{doing}: {message}", "create the database first")


def _late(doing: str, message: str) -> PlayheadError:
    return TimedOut(f"{doing}: {message}")


def _aborted(doing: str, _message: str) -> PlayheadError:
    return Rejected(
        f"{doing}: an earlier statement of this transaction failed, so the transaction cannot be committed",
        hint="let its error leave the block, or run the statement in a savepoint: tx.connection.begin_nested()",
    )


_STATES: dict[str, Make] = {
    "25P02": _aborted,
    "28": _denied,
    "3D": _absent,
    "40": _busy,
    "42501": _denied,
    "53": _busy,
    "55P03": _busy,
    "57014": _late,
    "57": _away,
    "08": _away,
}
_SQLITE: dict[str, Make] = {
    "SQLITE_BUSY": _busy,
    "SQLITE_LOCKED": _busy,
    "SQLITE_CANTOPEN": lambda doing, message: Unreachable(
        f"{doing}: {message}", "check that the folder exists and is writable"
    ),
    "SQLITE_NOTADB": lambda doing, message: Invalid(f"{doing}: {message}"),
    "SQLITE_CORRUPT": lambda doing, message: Invalid(f"{doing}: {message}"),
    "SQLITE_READONLY": _denied,
    "SQLITE_PERM": _denied,
}
# A connection that could not be opened has no SQLSTATE, only the server's message.
_WORDS: tuple[tuple[str, Make], ...] = (
    ("authentication failed", _denied),
    ("no password supplied", _denied),
    ("no pg_hba.conf entry", _denied),
    ("role ", _denied),
    ('database "', _absent),
    ("timeout expired", _late),
)


def fault_of(error: DBAPIError, doing: str, scrub: Scrub = PLAIN_SCRUB) -> PlayheadError:
    message = first_line(error, scrub)
    name = getattr(error.orig, "sqlite_errorname", None)
    if isinstance(name, str):
        found = next((make for start, make in _SQLITE.items() if name.startswith(start)), None)
        return found(doing, message) if found else Rejected(f"{doing}: {message} ({name})", message=message)
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        found = next((make for start, make in _STATES.items() if state.startswith(start)), None)
        return found(doing, message) if found else Rejected(f"{doing}: {message} ({state})", message=message)
    return next((make(doing, message) for words, make in _WORDS if words in message), None) or _away(doing, message)


def first_line(error: DBAPIError, scrub: Scrub = PLAIN_SCRUB) -> str:
    """The line with the cause. If several addresses were tried, that of the last one."""
    lines = [line.strip().removeprefix("- ") for line in str(error.orig).splitlines() if line.strip()]
    message = lines[-1] if len(lines) > 1 and lines[0].startswith("Multiple connection attempts") else lines[0]
    return scrub(message.removeprefix("connection failed: "))


@contextmanager
def translated(doing: str, scrub: Scrub = PLAIN_SCRUB) -> Iterator[None]:
    """Translates exceptions of SQLAlchemy into Playhead errors."""
    try:
        yield
    except DBAPIError as error:
        raise fault_of(error, doing, scrub) from None
    except PoolTimeout:
        raise Busy(f"{doing}: every connection is in use") from None
