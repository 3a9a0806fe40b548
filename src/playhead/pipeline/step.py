"""What a supervisor drives: an opened connector, as an iterator of committed steps.

The iterator knows nothing of the run. It reports what a step committed, or raises. The caller decides whether a next step, a
pause or the end follows.
"""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
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


class LeftUnit(Enum):
    """In what a stream counts how much of it is left."""

    IDS = "ids"  # at most so many rows
    OFFSETS = "offsets"  # at most so many records
    BYTES = "bytes"
    MICROSECONDS = "microseconds"  # between the position and the end


@dataclass(frozen=True, slots=True)
class Left:
    """What is left up to the end as seen when the step was planned. `is_all`: False if streams follow that were not planned."""

    count: int
    unit: LeftUnit
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class Underway:
    """What an opened connector does at the moment. `rows`: of the open step, not committed. `left`: without these rows, if it is
    counted in rows."""

    doing: str = ""
    rows: int = 0
    left: Left | None = None


IDLE = Underway()


class PlanAgain(Refused):
    """The plan of a step is out of date: the position moved, or the group removed this member. Nothing of it is committed."""


class Work(Protocol):
    """An opened connector. Used by one thread at a time."""

    def steps(self) -> Generator[StepReport, None, None]:
        """One round: everything up to the end as read when the round begins. To stop between two steps, close the iterator."""
        ...

    @property
    def underway(self) -> Underway:
        """Read by another thread, at any time."""
        ...

    def keep_alive(self) -> None:
        """Called every few seconds between two rounds. Raises if the connector must be opened again."""
        ...

    def close(self) -> None: ...
