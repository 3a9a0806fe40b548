"""SQLAlchemy's errors -> ours, in one table: by SQLSTATE for PostgreSQL, by error name for SQLite.

Only the driver's own first line is told. SQLAlchemy's text would carry the statement and its values with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from playhead.errors import AccessDenied, Busy, Invalid, PlayheadError, Rejected, TimedOut, Unreachable

Make = Callable[[str, str], PlayheadError]


def _busy(doing: str, said: str) -> PlayheadError:
    return Busy(f"{doing}: {said}", message=said, hint="somebody else works on the same rows; try again")


def _denied(doing: str, said: str) -> PlayheadError:
    return AccessDenied(
        f"{doing}: {said}", "check user and password (PGPASSWORD, ~/.pgpass) and the rights of this user"
    )


def _away(doing: str, said: str) -> PlayheadError:
    return Unreachable(f"{doing}: {said}", "is the database running, and is this its address?")


def _absent(doing: str, said: str) -> PlayheadError:
    return Unreachable(f"{doing}: {said}", "create the database first")


def _late(doing: str, said: str) -> PlayheadError:
    return TimedOut(f"{doing}: {said}")


def _spoilt(doing: str, _said: str) -> PlayheadError:
    return Rejected(
        f"{doing}: an earlier statement of this transaction failed, so nothing of it can be committed",
        hint="let its error leave the block, or put the statement into a savepoint: tx.connection.begin_nested()",
    )


_STATES: dict[str, Make] = {
    "25P02": _spoilt,
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
    "SQLITE_CANTOPEN": lambda doing, said: Unreachable(f"{doing}: {said}", "is the folder there, and may we write it?"),
    "SQLITE_NOTADB": lambda doing, said: Invalid(f"{doing}: {said}"),
    "SQLITE_CORRUPT": lambda doing, said: Invalid(f"{doing}: {said}"),
    "SQLITE_READONLY": _denied,
    "SQLITE_PERM": _denied,
}
# A connection that was never made has no SQLSTATE, only the server's words.
_WORDS: tuple[tuple[str, Make], ...] = (
    ("authentication failed", _denied),
    ("no password supplied", _denied),
    ("no pg_hba.conf entry", _denied),
    ("role ", _denied),
    ('database "', _absent),
    ("timeout expired", _late),
)


def fault_of(error: DBAPIError, doing: str) -> PlayheadError:
    said = first_line(error)
    name = getattr(error.orig, "sqlite_errorname", None)
    if isinstance(name, str):
        found = next((make for start, make in _SQLITE.items() if name.startswith(start)), None)
        return found(doing, said) if found else Rejected(f"{doing}: {said} ({name})", message=said)
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        found = next((make for start, make in _STATES.items() if state.startswith(start)), None)
        return found(doing, said) if found else Rejected(f"{doing}: {said} ({state})", message=said)
    return next((make(doing, said) for words, make in _WORDS if words in said), None) or _away(doing, said)


def first_line(error: DBAPIError) -> str:
    """The line that says it. Several addresses were tried in vain: the last of them."""
    lines = [line.strip().removeprefix("- ") for line in str(error.orig).splitlines() if line.strip()]
    said = lines[-1] if len(lines) > 1 and lines[0].startswith("Multiple connection attempts") else lines[0]
    return said.removeprefix("connection failed: ")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """What SQLAlchemy raises inside leaves as one of ours."""
    try:
        yield
    except DBAPIError as error:
        raise fault_of(error, doing) from None
    except PoolTimeout:
        raise Busy(f"{doing}: every connection is in use") from None
