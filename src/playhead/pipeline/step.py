"""What a supervisor drives: a connector, opened, as an iterator of committed steps.

Control goes down only. The iterator knows nothing of the run: it reports what a step committed, or raises; whether there is
a next step, a pause or an end is decided by the caller.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from playhead.errors import PlayheadError, Refused
from playhead.model import Map


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step committed, and where the stream stands now.

    `rows` None: there was nothing to commit. `problem`: the rows are committed, and something that follows the commit failed.
    """

    stream: str
    position: Map | None
    rows: int | None = None
    note: str = ""
    problem: PlayheadError | None = None


class PlanAgain(Refused):
    """What a step was planned from is no longer so: the position moved, or the group let go of us. Nothing of it is committed."""


class Work(Protocol):
    """A connector, opened. Used by one thread at a time."""

    def steps(self) -> Generator[StepReport, None, None]:
        """One round: everything up to the end that is seen when the round begins. To stop between two steps, close it."""
        ...

    def keep_alive(self) -> None:
        """Called every few seconds between two rounds. Raises if what was opened is lost."""
        ...

    def close(self) -> None: ...
