"""Errors as answers: a status, and the exit code that the command line would end with, with its meaning (RFC 9457)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playhead.errors import (
    AlreadyExists,
    Busy,
    Invalid,
    NotFound,
    OutcomeUnknown,
    PlayheadError,
    Refused,
    Unreachable,
)

MEANINGS = {
    0: "done",
    1: "the answer is no, or the request failed",
    2: "the input is not valid",
    3: "no usable answer from a server",
    4: "refused by a safety check; nothing was written",
    5: "a write was sent; whether it happened is unknown",
}
_STATUS: tuple[tuple[type[PlayheadError], int], ...] = (
    (NotFound, 404),
    (AlreadyExists, 409),
    (Busy, 503),
    (Invalid, 400),
    (Unreachable, 503),
    (Refused, 409),
    (OutcomeUnknown, 504),
)


@dataclass(eq=False)  # Python sets the trace of an error that is raised
class Problem(Exception):
    """An answer that is an error. `code`: the exit code; None for what the command line does not know, like a login."""

    status: int
    title: str
    detail: str
    hint: str | None = None
    code: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        meaning = None if self.code is None else {"exit_code": self.code, "meaning": MEANINGS[self.code]}
        fields = {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}
        return fields | ({"hint": self.hint} if self.hint else {}) | (meaning or {})


def problem_of(error: PlayheadError) -> Problem:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 422)
    return Problem(status, MEANINGS[error.exit_code], error.what, error.hint, error.exit_code)
