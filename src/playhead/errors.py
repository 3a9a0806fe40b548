"""Every error Playhead raises, with the exit code of the command it ends.

    PlayheadError                1  the request failed
    |-- NotFound                    a named object does not exist
    |-- Rejected                    the server understood the request and declined it
    |   |-- RowsRefused             ... because of what is in some of the rows
    |   |-- AlreadyExists           ... because the name is taken
    |   `-- Busy                    ... for the moment: rebalance, stale config, no leader
    |-- PartFailed                  a part of the lab did not come up
    |-- Invalid                  2  the input is not valid
    |   |-- ConfigInvalid           one or more faults in files, each with its line
    |   `-- MissingExtra            an optional dependency is not installed
    |-- Unreachable              3  no usable answer
    |   |-- WrongProtocol           something answered, but in another protocol
    |   |-- Untrusted               the certificate is not trusted
    |   |-- AccessDenied            credentials missing or not accepted
    |   `-- TimedOut                a read did not finish in time
    |-- Refused                  4  a safety check failed; nothing was written
    |   `-- Fenced                  a newer writer with the same identity took over
    `-- OutcomeUnknown           5  a write was sent; whether it happened is unknown

Subclasses differ by what the caller does next. Drivers translate the errors of their libraries into these, each in one
table; no other error crosses a layer. An error says what happened and, as `hint`, how to fix it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches


class PlayheadError(Exception):
    exit_code = 1

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class NotFound(PlayheadError):
    """`known`: the existing names, from which the hint suggests the right spelling. `where`: what was searched."""

    def __init__(
        self, kind: str, name: str, known: Sequence[str] = (), hint: str | None = None, where: str = ""
    ) -> None:
        super().__init__(
            f"{kind} {name!r} does not exist" + (f" in {where}" if where else ""), hint or near_names(name, known)
        )
        self.kind = kind
        self.name = name
        self.where = where

    def with_hint(self, more: str) -> "NotFound":
        """The same error, with one more hint."""
        return NotFound(self.kind, self.name, hint="; ".join(filter(None, [self.hint, more])), where=self.where)


class Rejected(PlayheadError):
    """`status` and `message` are as the server sent them."""

    def __init__(self, what: str, *, status: int | None = None, message: str = "", hint: str | None = None) -> None:
        super().__init__(what, hint)
        self.status = status
        self.message = message


class RowsRefused(Rejected):
    """A database refused rows because of their values. It may accept others of the same batch."""


class AlreadyExists(Rejected):
    pass


class Busy(Rejected):
    """Temporary. Drivers retry until the deadline of the command."""


class PartFailed(PlayheadError):
    def __init__(
        self, part: str, what: str, log_tail: Sequence[str] = (), log: str = "", hint: str | None = None
    ) -> None:
        super().__init__(f"{part} {what}", hint or (f"full log: {log}" if log else None))
        self.part = part
        self.log_tail = list(log_tail)


class Invalid(PlayheadError):
    exit_code = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one place. `where` is a file (or `-X`, an environment variable), `line` counts from 1."""

    where: str
    line: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.what}" if self.line else f"{self.where}: {self.what}"


class ConfigInvalid(Invalid):
    """All faults at once, so that a file can be fixed in one go."""

    def __init__(self, faults: Sequence[Fault], hint: str | None = None) -> None:
        super().__init__("\n".join(str(fault) for fault in faults), hint)
        self.faults = list(faults)


class MissingExtra(Invalid):
    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"this needs {package}, which is not installed", f"pip install 'playhead[{extra}]'")
        self.extra = extra


class Unreachable(PlayheadError):
    exit_code = 3


class WrongProtocol(Unreachable):
    pass


class Untrusted(Unreachable):
    pass


class AccessDenied(Unreachable):
    pass


class TimedOut(Unreachable):
    pass


class Refused(PlayheadError):
    exit_code = 4


class Fenced(Refused):
    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"another producer took over the transactional id {transactional_id!r}",
            "nothing of this attempt was committed; check what the other producer wrote before you retry",
        )


class OutcomeUnknown(PlayheadError):
    """Never reported as failed: the write may have happened."""

    exit_code = 5


def near_names(name: str, known: Sequence[str]) -> str | None:
    """A hint with the nearest spellings, else with a few existing names; None if no names are known."""
    if not known:
        return None
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    shown = ", ".join(sorted(known)[:8])
    return f"there is: {shown}" + (", ..." if len(known) > 8 else "")
