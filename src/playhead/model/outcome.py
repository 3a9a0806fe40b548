"""The result of each change. Every requested change gets a result, and a refusal is never a success."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from playhead.model.plan import Change


class Result(StrEnum):
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


_EXIT_CODES = {Result.CHANGED: 0, Result.UNCHANGED: 0, Result.FAILED: 1, Result.REFUSED: 4, Result.UNKNOWN: 5}


@dataclass(frozen=True, slots=True)
class Outcome:
    change: Change
    result: Result
    detail: str = ""


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
