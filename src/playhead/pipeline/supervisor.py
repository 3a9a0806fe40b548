"""Runs many connectors, one thread each: claims, heartbeats, retries, stop requests, progress, and the end of each.

The supervisor drives iterators of steps (`step.Work`) and decides everything that is not a step. A connector that fails does
not stop the others. While its thread runs, a connector is claimed in every ledger concerned, and heartbeats are written
there. Its end is written when the connector ends, not when the process ends. After a failure the connector is opened again
after a pause. The pauses grow. Every successful round resets the retries, even an empty one: see `Retries`.

The first Ctrl-C (or SIGTERM) lets the open steps finish. A second one abandons them: nothing of them is committed.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from playhead.errors import (
    AccessDenied,
    Busy,
    Fenced,
    OutcomeUnknown,
    PlayheadError,
    Unreachable,
    Untrusted,
    WrongProtocol,
)
from playhead.ledger.model import BEAT_SECONDS, Behind, Claim, Host, Run, RunState
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import Deadline, Map
from playhead.pipeline.slots import Cancelled, Slots, SlotUser
from playhead.pipeline.spark_faults import TaskFailed
from playhead.pipeline.step import IDLE, LeftUnit, PlanAgain, StepReport, Underway, Work

MOST_NOTES = 10
KEEP_ALIVE_SECONDS = 3.0
ABANDON_SECONDS = 30.0
FINISH_SECONDS = 10.0
LOOK_SECONDS = 1.0
REQUESTED = "stop requested"
LOSS_SECONDS = 0.5  # connections of a process that was killed break a moment before it has ended
_OUTAGES = (Unreachable, Busy, OutcomeUnknown)
_PERMANENT = (WrongProtocol, Untrusted, AccessDenied)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a connector has done so far. `state` None: it is running. `waiting`: why it waits, and when the next try is.
    `held`: why there are rows that it may not read yet, as of the last round. `underway`: what is not committed yet.
    `is_refused`: it was not started, because of `error`."""

    name: str
    rows: int = 0
    steps: int = 0
    seconds: float = 0.0
    state: RunState | None = None
    stream: str = ""
    position: Map | None = None
    notes: tuple[str, ...] = ()
    waiting: str = ""
    error: PlayheadError | None = None
    held: str = ""
    underway: Underway = IDLE
    is_refused: bool = False


Report = Callable[[Progress], None]
FindLoss = Callable[[float], PlayheadError | None]  # the seconds to wait for it


@dataclass(frozen=True, slots=True)
class Pace:
    """`interval_seconds` None: each connector ends when it is caught up, or fails after `give_up_seconds` without a
    successful round. Otherwise it runs until the process ends, and retries during any outage."""

    interval_seconds: float | None = None
    give_up_seconds: float = 120.0

    @property
    def is_once(self) -> bool:
        return self.interval_seconds is None


class HeldClaim(NamedTuple):
    """A claim, and the ledger that holds it."""

    ledger: Ledger
    claim: Claim


@dataclass(frozen=True, slots=True)
class Grant:
    """What a connector gets when it is opened. `ranges`: the ledger of a sink's ranges, the run's own or that in its target."""

    slots: SlotUser
    own: HeldClaim
    ranges: HeldClaim
    note: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A connector as the supervisor sees it. `settings` are stored in the ledger. `target_ledger`: the URL of a second ledger
    in which it is claimed, for a sink that commits rows and ranges in one transaction. If `open` fails, it closes what it
    opened. `scrub` removes the connector's secrets from a message."""

    name: str
    settings: Mapping[str, str]
    target_ledger: str | None
    open: Callable[[Grant], Work]
    scrub: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class RunEnd:
    """`log`: Spark's own log file, kept when a connector failed."""

    connectors: Sequence[Progress]
    interrupted: bool
    log: Path | None = None

    @property
    def exit_code(self) -> int:
        """One connector: its own code. Several: 5 if an outcome is unknown, else 1 if any of them failed. One that is held
        back is not caught up: 1."""
        if self.interrupted:
            return 130
        codes = {one.error.exit_code for one in self.connectors if one.error is not None}
        codes |= {1 for one in self.connectors if one.state is RunState.HELD_BACK}
        if len(self.connectors) > 1 and codes:
            return 5 if 5 in codes else 1
        return max(codes, default=0)


class Retries:
    """Whether a failure is retried, and after which pause.

    An outage (a broker, database, ledger or worker does not answer) is retried without limit in a continuous run, and for
    `give_up_seconds` in a run until caught up. A failure that a new plan may or may not fix gets a few tries. If its cause
    is an outage, the next try reports the outage when it opens its connections.
    """

    FIRST_PAUSE_SECONDS = 0.5
    LONGEST_PAUSE_SECONDS = 30.0
    DOUBTFUL_TRIES = 4

    def __init__(self, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self._pace = pace
        self._clock = clock
        self.refill()

    def refill(self) -> None:
        """Called after a successful round or step."""
        self._failures = self._doubtful = 0
        self._failing_since = self._doubtful_since = self._clock()

    def pause_after(self, error: PlayheadError) -> float:
        """Seconds to wait before the next try. Raises the error when there is no next try."""
        now = self._clock()
        is_outage = isinstance(error, _OUTAGES) and not isinstance(error, _PERMANENT)
        if not is_outage and not isinstance(error, (TaskFailed, PlanAgain)):
            raise error
        if not self._failures:
            self._failing_since = now
        if not self._doubtful:
            self._doubtful_since = now
        self._failures += 1
        self._doubtful = 0 if is_outage else self._doubtful + 1
        if self._is_spent(now, is_outage=is_outage):
            raise error
        return float(min(self.LONGEST_PAUSE_SECONDS, self.FIRST_PAUSE_SECONDS * 2 ** (self._failures - 1)))

    def _is_spent(self, now: float, *, is_outage: bool) -> bool:
        limit = self._pace.give_up_seconds
        if self._pace.is_once and now - self._failing_since >= limit:
            return True
        if is_outage or self._doubtful < self.DOUBTFUL_TRIES:
            return False
        return self._pace.is_once or now - self._doubtful_since >= limit


class Supervisor:
    """`cancel_jobs` cancels all Spark jobs: the open steps of all connectors. `find_loss` returns an error once the session is
    gone, which ends all connectors, whatever errors they saw."""

    def __init__(
        self,
        ledger: Ledger,
        cluster_id: str,
        slots: Slots,
        pace: Pace,
        cancel_jobs: Callable[[], None],
        report: Report = lambda progress: None,
        find_loss: FindLoss = lambda seconds: None,
    ) -> None:
        self._ledger = ledger
        self._cluster_id = cluster_id
        self._slots = slots
        self._pace = pace
        self._cancel_jobs = cancel_jobs
        self._report = report
        self.find_loss = find_loss
        self._reporting = threading.Lock()

    def run(self, pipelines: Sequence[Pipeline]) -> RunEnd:
        """Runs until all of them have ended."""
        runners = [_Runner(self, one) for one in pipelines]
        threads = [threading.Thread(target=one.run, name=one.name, daemon=True) for one in runners]
        with _counted_signals() as signals:
            try:
                for thread in threads:
                    thread.start()
                self._wait(threads, runners, signals)
            finally:
                self._abandon(threads, runners)
        return RunEnd([one.progress for one in runners], interrupted=bool(signals))

    def update(self, runner: "_Runner", change: Callable[[Progress], Progress]) -> None:
        """Every change of progress goes through here: several threads change it, and it is reported by one at a time."""
        with self._reporting:
            runner.progress = change(runner.progress)
            self._report(runner.progress)

    def _wait(self, threads: Sequence[threading.Thread], runners: "Sequence[_Runner]", signals: Sequence[int]) -> None:
        """Until all threads have ended, or a second signal abandons the open steps."""
        is_stopping = False
        next_look = Deadline(0)
        while any(thread.is_alive() for thread in threads) and len(signals) < 2:
            next((thread for thread in threads if thread.is_alive()), threads[0]).join(0.1)
            if next_look.passed:
                next_look = Deadline(LOOK_SECONDS)
                self._look(runners)
            if signals and not is_stopping:
                is_stopping = True
                for one in runners:
                    one.stop("interrupted")

    def _look(self, runners: "Sequence[_Runner]") -> None:
        """Reports what each connector does, and ends all of them if the session is gone."""
        loss = self.find_loss(0)
        for one in runners:
            if loss is not None:
                one.stop("the session is gone")
            one.look()

    def _abandon(self, threads: Sequence[threading.Thread], runners: "Sequence[_Runner]") -> None:
        """Stops what still runs. A thread may be about to start a job, so jobs are cancelled repeatedly."""
        patience = Deadline(ABANDON_SECONDS)
        while any(thread.is_alive() for thread in threads) and not patience.passed:
            for one in runners:
                one.abandon()
            self._cancel_jobs()
            for thread in threads:
                thread.join(0.2)


class _Runner:
    """One connector of a run, in a thread of its own. `run` raises nothing: the result is in `progress`."""

    def __init__(self, supervisor: Supervisor, pipeline: Pipeline) -> None:
        self.name = pipeline.name
        self.progress = Progress(pipeline.name)
        self._supervisor = supervisor
        self._pipeline = pipeline
        self._pace = supervisor._pace
        self._retries = Retries(self._pace)
        self._slots = supervisor._slots.join()
        self._held: tuple[HeldClaim, ...] = ()
        self._beating = threading.Lock()
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._stopping = threading.Lock()
        self._reasons: list[str] = []  # to stop, the first one first
        self._held_streams: dict[str, str] = {}
        self._taken_over: Fenced | None = None
        self._is_abandoned = False
        self._work: Work | None = None
        self._unit: LeftUnit | None = None
        self._caught_up: datetime | None = None

    # Called by other threads

    def stop(self, why: str) -> None:
        """Stops after the open step."""
        with self._stopping:
            if why not in self._reasons:
                self._reasons.append(why)
            self._stop.set()
            self._slots.cancel()

    def abandon(self) -> None:
        self._is_abandoned = True
        self.stop("interrupted")

    def look(self) -> None:
        """Reports what the connector does. One that has ended has reported its end."""
        work = self._work
        if work is not None and self.progress.state is None:
            self._change(underway=work.underway)

    def beat(self) -> None:
        """Writes a heartbeat in every ledger. The answer shows a stop request, that it was withdrawn, or that another run took
        over."""
        with self._beating:
            is_asked, is_known = False, True
            for held in self._held:
                try:
                    is_asked = held.ledger.beat(held.claim, self._behind()) or is_asked
                except Fenced as error:
                    self._taken_over = error
                    self.stop("taken over")
                except PlayheadError as error:  # the steps need the ledger too: they retry, and report it
                    is_known = False
                    self._note(f"no heartbeat: {error.what}")
            if is_asked:
                self.stop(REQUESTED)
            elif is_known:
                self._withdraw()

    def _withdraw(self) -> None:
        """Goes on although a stop was requested, unless it has another reason to stop."""
        with self._stopping:
            self._reasons = [why for why in self._reasons if why != REQUESTED]
            if not self._reasons:
                self._stop.clear()
                self._slots.restore()

    def _behind(self) -> Behind | None:
        """How far a source is. What a sink has not delivered is the lag of its group."""
        work = self._work
        left = None if work is None else work.underway.left
        if left is not None and left.unit is not LeftUnit.OFFSETS:
            self._unit = left.unit
            return Behind(left.count, left.unit.value, self._caught_up)
        is_idle = work is not None and not work.underway.doing
        return Behind(0, self._unit.value, self._caught_up) if is_idle and self._unit and self._caught_up else None

    def _keep_beating(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self.beat()

    # The thread

    def run(self) -> None:
        started = time.perf_counter()
        # A thread of its own: a ledger that hangs delays the heartbeats of its own connectors only.
        threading.Thread(target=self._keep_beating, name=f"{self.name} heartbeat", daemon=True).start()
        state, error = self._driven()
        while state is RunState.STOPPED and not self._leaves():
            state, error = self._driven()
        self._end(state, error, time.perf_counter() - started)

    def _driven(self) -> tuple[RunState, PlayheadError | None]:
        """How it came to an end, and the error that ended it."""
        state, error = RunState.FAILED, None
        try:
            with self._slots:
                is_caught_up = self._drive()
            if self._taken_over is not None:
                raise self._taken_over
            if self._stop.is_set() and (loss := self._supervisor.find_loss(0)) is not None:
                raise loss
            caught_up = RunState.HELD_BACK if self.progress.held else RunState.FINISHED
            state = caught_up if is_caught_up and not self._stop.is_set() else RunState.STOPPED
        except PlayheadError as raised:
            raised.what = self._pipeline.scrub(raised.what)
            error = raised
        except Exception as raised:  # noqa: BLE001  the end of a thread: an error not reported here is lost
            # Without a session any call can fail in any way.
            error = self._supervisor.find_loss(LOSS_SECONDS) or PlayheadError(
                f"a fault in Playhead itself: {self._pipeline.scrub(repr(raised))}"
            )
            error.__cause__ = raised
        if self._is_abandoned and error is not None and not isinstance(error, Fenced):
            # Cancelled jobs and a stopped session fail in many ways. All of them are expected.
            state, error = RunState.STOPPED, None
            self._note("the open step was abandoned: nothing of it is committed")
        return state, error

    def _leaves(self) -> bool:
        """Whether a connector that was stopped ends. If all that stopped it was a request, its end is written in the transaction
        that finds the request. Without one it goes on: from then on nothing can be withdrawn that it has followed."""
        with self._beating:
            with self._stopping:
                if not set(self._reasons) <= {REQUESTED}:
                    return True
            if any(_leaves_if_asked(held) for held in self._held):
                return True
            self._withdraw()
            return False

    def _drive(self) -> bool:
        """Opens the connector and runs its rounds. After a failure it starts again, while there are retries left. True: it is
        caught up. False: it was stopped."""
        while not self._stop.is_set():
            try:
                self._change(underway=Underway("opening"))
                with closing(self._pipeline.open(self._claimed())) as work, self._looked_at(work):
                    return self._run_rounds(work)
            except Cancelled:
                return False
            except PlayheadError as error:
                if self._is_abandoned:
                    raise
                if (loss := self._supervisor.find_loss(LOSS_SECONDS)) is not None:
                    raise loss from error
                self._pause(error)
        return False

    @contextmanager
    def _looked_at(self, work: Work) -> Iterator[None]:
        self._work = work
        try:
            yield
        finally:
            self._work = None
            self._change(underway=IDLE)

    def _run_rounds(self, work: Work) -> bool:
        """Until the connector is caught up (True) or stopped."""
        while not self._stop.is_set():
            self._held_streams.clear()
            with closing(work.steps()) as steps:
                for done in steps:
                    self._count(done)
                    if self._stop.is_set():
                        return False
            self._retries.refill()
            self._change(waiting="")
            if not self._held_streams:
                self._caught_up = datetime.now(UTC)
            if self._pace.interval_seconds is None:
                return True
            self._idle(work, Deadline(self._pace.interval_seconds))
        return False

    def _idle(self, work: Work, until: Deadline) -> None:
        while not self._stop.wait(min(KEEP_ALIVE_SECONDS, until.remaining())) and not until.passed:
            work.keep_alive()

    def _pause(self, error: PlayheadError) -> None:
        self._check_claims()
        seconds = self._retries.pause_after(error)
        what = self._pipeline.scrub(error.what)
        self._note(f"retried after: {what}")
        self._change(waiting=f"{what}; next try in {seconds:g} s")
        self._stop.wait(seconds)

    def _count(self, done: StepReport) -> None:
        """A committed step resets the retries."""
        self._mark(done)
        if done.rows is None:
            self._change(stream=done.stream, position=done.position)
        else:
            self._retries.refill()
            progress = self.progress
            self._change(
                rows=progress.rows + done.rows,
                steps=progress.steps + 1,
                stream=done.stream,
                position=done.position,
                waiting="",
                underway=IDLE,
            )
            self._tally(done)
        self._note(self._pipeline.scrub(done.note))
        if done.problem is not None:
            raise done.problem

    def _mark(self, done: StepReport) -> None:
        """A connector is held back while any of its streams is, whichever was the last."""
        self._held_streams.pop(done.stream, None)
        if done.held:
            self._held_streams[done.stream] = done.held
        self._change(held="; ".join(f"{stream}: {why}" for stream, why in sorted(self._held_streams.items())))

    def _tally(self, done: StepReport) -> None:
        """For a sink that keeps its ranges in its target: writes its progress in the run's own ledger too."""
        if len(self._held) > 1:
            own = self._held[0]
            own.ledger.set_progress(own.claim, self.progress.rows, done.stream, done.position)

    # Claims

    def _claimed(self) -> Grant:
        """Claims what is not claimed yet. A claim is held until the connector ends, however often it is opened."""
        pipeline, cluster = self._pipeline, self._supervisor._cluster_id
        if not self._held:
            ledger = self._supervisor._ledger
            self._held = (HeldClaim(ledger, ledger.claim(cluster, self.name, Host.here(), pipeline.settings)),)
        if pipeline.target_ledger is not None and len(self._held) == 1:
            self._claim_target(self._held[0], pipeline.target_ledger)
        return Grant(self._slots, self._held[0], self._held[-1], self._note)

    def _claim_target(self, own: HeldClaim, url: str) -> None:
        target = open_ledger(url, own.ledger.seconds)
        try:
            if any(_is_of(run, own.claim) for run in target.list_runs()):
                target.close()  # both URLs name the same ledger
                return
            settings = {key: value for key, value in self._pipeline.settings.items() if key == "master"}
            self._held = (own, HeldClaim(target, target.claim(own.claim.cluster, self.name, Host.here(), settings)))
        except BaseException:
            target.close()
            raise

    def _check_claims(self) -> None:
        """After a failure: raises if another run took over, because that is the cause."""
        self.beat()
        if self._taken_over is not None:
            raise self._taken_over

    # Progress

    def _note(self, text: str) -> None:
        """Keeps the newest few: a run may take months."""
        if text and text not in self.progress.notes:
            self._supervisor.update(self, lambda now: replace(now, notes=(*now.notes[-(MOST_NOTES - 1) :], text)))

    def _change(self, **values: object) -> None:
        self._supervisor.update(self, lambda now: replace(now, **values))  # type: ignore[arg-type]

    def _end(self, state: RunState, error: PlayheadError | None, seconds: float) -> None:
        """Writes the end in every ledger concerned, then reports it."""
        details = {RunState.STOPPED: next(iter(self._reasons), ""), RunState.HELD_BACK: self.progress.held}
        detail = error.what if error is not None else details.get(state, "")
        self._ended.set()
        with self._beating:
            held_last, self._held = self._held, ()
        for held in held_last:
            try:
                _finish(held, state, detail)
            except Fenced:
                pass  # the row belongs to another run now
            except PlayheadError as problem:
                self._note(f"its end was not written in {held.ledger.place}: {problem.what}")
        for held in held_last[1:]:
            held.ledger.close()
        self._change(state=state, error=error, seconds=seconds, waiting="")


def _leaves_if_asked(held: HeldClaim) -> bool:
    try:
        return _finish(held, RunState.STOPPED, REQUESTED, if_asked=True)
    except PlayheadError:  # also of a run that took over; the end is written, or its error noted, once more
        return True


def _finish(held: HeldClaim, state: RunState, detail: str, *, if_asked: bool = False) -> bool:
    """A ledger that is away for a moment is waited for: without its end, a run looks like one that was killed."""
    deadline = Deadline(FINISH_SECONDS)
    while True:
        try:
            return held.ledger.finish(held.claim, state, detail, if_asked=if_asked)
        except _OUTAGES:
            if deadline.passed:
                raise
            time.sleep(0.5)


def _is_of(run: Run, claim: Claim) -> bool:
    """Only the run's own ledger records where the ranges are: a claim in the target can have the same epoch by chance."""
    here = (run.cluster, run.pipeline, run.epoch) == (claim.cluster, claim.pipeline, claim.epoch)
    return here and run.ranges_at is not None and run.host == Host.here() and run.is_running


@contextmanager
def _counted_signals() -> Iterator[Sequence[int]]:
    """Appends each SIGINT and SIGTERM to the list. Nothing is raised, so no code is interrupted halfway."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    names = (signal.SIGINT, signal.SIGTERM)
    before = {name: signal.signal(name, lambda number, _frame: seen.append(number)) for name in names}
    try:
        yield seen
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
