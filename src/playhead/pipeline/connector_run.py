"""One connector of a run: rounds of work until it is caught up, or for ever, and what becomes of an error.

What fails is opened anew and planned from what is committed, three times in a row at most; being fenced is the end, because
somebody else runs this connector now, and to go on would only fence him in turn.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import SparkSession

from playhead.errors import Busy, OutcomeUnknown, PlayheadError, Refused, Unreachable
from playhead.model import Map
from playhead.pipeline.faults import TaskFailed
from playhead.pipeline.slots import Slots
from playhead.sql.ledger import Ledger
from playhead.sql.ledger_values import Claim, RunState

TRIES = 3
MOST_NOTES = 10
WORTH_ANOTHER_TRY = (TaskFailed, Unreachable, Busy, OutcomeUnknown)


@dataclass(slots=True)
class Progress:
    """What a connector has done so far; read by whoever shows it."""

    name: str
    rows: int = 0
    steps: int = 0
    seconds: float = 0.0
    state: RunState | None = None
    stream: str = ""
    position: Map | None = None
    notes: list[str] = field(default_factory=list)
    error: PlayheadError | None = None

    def note(self, words: str) -> None:
        """The newest few: a run may go on for ever."""
        if words and words not in self.notes:
            self.notes = [*self.notes[-(MOST_NOTES - 1) :], words]


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connectors of a run use together. `stop` is set when the run is to end after the open steps.

    `interval_seconds` None: each connector ends when it is caught up.
    """

    spark: SparkSession
    slots: Slots
    ledger: Ledger
    stop: threading.Event
    tell: Callable[[Progress], None]
    interval_seconds: float | None


class Moved(Refused):
    """The position is not where the step was planned from; plan it anew."""


class Work(Protocol):
    """What a connector does, opened: reading a source, filling a sink."""

    def round(self) -> None:
        """All there is to do now; ends early when the run is stopping."""
        ...

    def close(self) -> None: ...


class ConnectorRun:
    """`scrub` takes the connector's secrets out of what databases and Spark say."""

    def __init__(
        self,
        shared: Shared,
        name: str,
        claim: Claim,
        open_work: Callable[["ConnectorRun"], Work],
        scrub: Callable[[str], str],
    ) -> None:
        self.shared = shared
        self.claim = claim
        self.progress = Progress(name)
        self._open_work = open_work
        self._scrub = scrub
        self._failures = 0
        self._asked_to_stop = False

    @property
    def is_stopping(self) -> bool:
        return self._asked_to_stop or self.shared.stop.is_set()

    def beat(self) -> bool:
        """A sign of life between steps. False: somebody asked this run to stop."""
        self._asked_to_stop = self._asked_to_stop or self.shared.ledger.beat(self.claim)
        return not self._asked_to_stop

    def count_step(self, rows: int, stream: str, position: Map | None, note: str = "") -> None:
        """A step is committed; whatever failed before it is over."""
        progress = self.progress
        progress.rows, progress.steps = progress.rows + rows, progress.steps + 1
        progress.stream, progress.position = stream, position
        progress.note(note)
        self._failures = 0
        self.shared.tell(progress)

    def run(self) -> None:
        """Until caught up, or with an interval for ever. Ends in `progress.state`; nothing is raised but bugs."""
        started = time.perf_counter()
        try:
            with self.shared.slots.user():
                self._rounds()
            self.progress.state = RunState.STOPPED if self.is_stopping else RunState.FINISHED
        except PlayheadError as error:
            error.what = self._scrub(error.what)
            self.progress.state, self.progress.error = RunState.FAILED, error
        except Exception as error:  # noqa: BLE001  the end of a thread: what is not told here is told nowhere
            told = PlayheadError(f"a fault in Playhead itself: {self._scrub(repr(error))}")
            told.__cause__ = error
            self.progress.state, self.progress.error = RunState.FAILED, told
        finally:
            self.progress.seconds = time.perf_counter() - started
            self.shared.tell(self.progress)

    def _rounds(self) -> None:
        work: Work | None = None
        try:
            while not self.is_stopping:
                try:
                    if work is None:
                        work = self._open_work(self)
                    work.round()
                except (Moved, *WORTH_ANOTHER_TRY) as error:
                    self._failed(error)
                    if work is not None:
                        work.close()
                        work = None
                    continue
                if self.shared.interval_seconds is None:
                    return
                self.shared.stop.wait(self.shared.interval_seconds)
        finally:
            if work is not None:
                work.close()

    def _failed(self, error: PlayheadError) -> None:
        self._failures += 1
        self.shared.ledger.beat(self.claim)  # somebody else took over: that is the reason, and the end
        if self._failures >= TRIES:
            raise error
        self.progress.note(f"planned anew after: {self._scrub(error.what)}")
        self.shared.stop.wait(min(10.0, 0.5 * 4 ** (self._failures - 1)))
