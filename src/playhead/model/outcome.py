"""The result of each change. Every requested change gets a result, and a refusal is never a success."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from playhead.errors import OutcomeUnknown, PlayheadError, Refused
from playhead.model.plan import Change
from playhead.model.position import Map


class Result(StrEnum):
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


def result_of(error: PlayheadError) -> Result:
    """The result of a write that ended with this error: a safety check that failed is a refusal, not a failure."""
    if isinstance(error, OutcomeUnknown):
        return Result.UNKNOWN
    return Result.REFUSED if isinstance(error, Refused) else Result.FAILED


_EXIT_CODES = {Result.CHANGED: 0, Result.UNCHANGED: 0, Result.FAILED: 1, Result.REFUSED: 4, Result.UNKNOWN: 5}


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What the store held when it was read back. `offset` None: nothing."""

    offset: Map | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`read_back`: what a write that failed, or whose answer was lost, left behind; None if it was not read back."""

    change: Change
    result: Result
    detail: str = ""
    read_back: ReadBack | None = None

    @property
    def may_be_written(self) -> bool:
        """Whether this change, or a part of it, may be in the store."""
        if self.result is Result.FAILED:
            return self.read_back is not None and self.read_back.offset != self.change.before
        return self.result in (Result.CHANGED, Result.UNKNOWN)


class Outcomes:
    """One outcome per change. The exit code is that of the worst: unknown, then failed, then refused."""

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self._outcomes = tuple(outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        return f"Outcomes({list(self._outcomes)!r})"

    def count(self, result: Result) -> int:
        return sum(outcome.result is result for outcome in self._outcomes)

    @property
    def exit_code(self) -> int:
        for worst in (Result.UNKNOWN, Result.FAILED, Result.REFUSED):
            if self.count(worst):
                return _EXIT_CODES[worst]
        return 0
