"""What a supervisor drives: an opened connector, as an iterator of committed steps.

The iterator knows nothing of the run. It reports what a step committed, or raises. The caller decides whether a next step, a
pause or the end follows.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from playhead.errors import PlayheadError, Refused
from playhead.model import Map


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step committed, and the position of the stream after it.

    `rows` None: there was nothing to commit. `problem`: the rows are committed, but something after the commit failed.
    `held`: why rows after the position may not be read yet.
    """

    stream: str
    position: Map | None
    rows: int | None = None
    note: str = ""
    problem: PlayheadError | None = None
    held: str = ""


class PlanAgain(Refused):
    """The plan of a step is out of date: the position moved, or the group removed this member. Nothing of it is committed."""


class Work(Protocol):
    """An opened connector. Used by one thread at a time."""

    def steps(self) -> Generator[StepReport, None, None]:
        """One round: everything up to the end as read when the round begins. To stop between two steps, close the iterator."""
        ...

    def keep_alive(self) -> None:
        """Called every few seconds between two rounds. Raises if the connector must be opened again."""
        ...

    def close(self) -> None: ...
