"""Runs as the ledger knows them: which there are, what one did, and asking one to stop. Works without Spark and without Kafka.

A run is asked, not killed: it looks into the ledger between its steps, ends after the step that is open, and says so there.
Whether a run that has been silent for long is still alive cannot be told from here; it is asked all the same, in case it wakes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from playhead.errors import Invalid, NotFound, Unreachable
from playhead.ledger.model import Host, RecordedChunk, Run
from playhead.ledger.runs import Ledger
from playhead.model import Deadline, Result

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class StopPlan:
    """`does`: what --execute would do. `idle`: there is nothing to stop."""

    run: Run
    does: str
    note: str
    idle: bool


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """`after`: the run as it was last seen, or the one that took its place."""

    before: Run
    after: Run
    result: Result
    detail: str

    @property
    def exit_code(self) -> int:
        return {Result.UNKNOWN: 5, Result.FAILED: 1}.get(self.result, 0)


def find_run(ledger: Ledger, name: str, cluster: str | None = None) -> Run:
    """By the name of its pipeline; `cluster` is needed where several clusters have one of that name."""
    runs = ledger.list_runs()
    found = [run for run in runs if run.pipeline == name and cluster in (None, run.cluster)]
    if not found:
        known = [run.pipeline for run in runs if cluster in (None, run.cluster)]
        raise NotFound("run", name, known, None if known else f"nothing has run with {ledger.place} yet")
    if len(found) > 1:
        clusters = " or ".join(run.cluster for run in found)
        raise Invalid(f"{len(found)} clusters have a run {name!r}", f"name one with --cluster {clusters}")
    return found[0]


def list_run_chunks(ledger: Ledger, run: Run, limit: int) -> Sequence[RecordedChunk]:
    """What was committed for the pipeline, by this run and those before it; the newest first."""
    return ledger.list_chunks(run.cluster, run.pipeline, limit=limit)


def plan_stop(run: Run) -> StopPlan:
    if not run.is_running:
        return StopPlan(run, "nothing", f"it is {run.state} already", idle=True)
    if run.stop is not None:
        return StopPlan(run, "wait for it to end", f"{run.stop.who} asked it to stop already", idle=False)
    note = "it gives no sign of life: if it is gone, nobody hears this" if run.is_silent else ""
    return StopPlan(run, "ask it to stop after its open step", note, idle=False)


def stop_run(ledger: Ledger, plan: StopPlan, wait_seconds: float | None) -> StopOutcome:
    """Asks, and waits until the run says that it ended; `wait_seconds` None: does not wait."""
    before = plan.run
    if plan.idle:
        return StopOutcome(before, before, Result.UNCHANGED, plan.note)
    asked = ledger.request_stop(before.cluster, before.pipeline, Host.here())
    if not asked.is_running:
        return StopOutcome(before, asked, Result.UNCHANGED, "it ended before it was asked to")
    if wait_seconds is None:
        return StopOutcome(before, asked, Result.CHANGED, "asked; not waited for")
    return _awaited(ledger, before, asked, wait_seconds)


def _awaited(ledger: Ledger, before: Run, asked: Run, wait_seconds: float) -> StopOutcome:
    deadline = Deadline(wait_seconds)
    seen = asked
    unread: Unreachable | None = None
    while not deadline.passed and seen.is_running and seen.epoch == asked.epoch:
        time.sleep(min(POLL_SECONDS, deadline.remaining()))
        try:
            seen, unread = ledger.get_run(asked.cluster, asked.pipeline), None
        except Unreachable as error:  # for a moment, maybe: the run needs the ledger too, and waits for it
            unread = error
    return _verdict(before, seen, asked.epoch, unread, wait_seconds)


def _verdict(before: Run, seen: Run, epoch: int, unread: Unreachable | None, wait_seconds: float) -> StopOutcome:
    if unread is not None:
        return StopOutcome(before, seen, Result.UNKNOWN, f"asked, but its state cannot be read: {unread.what}")
    if seen.epoch != epoch:
        return StopOutcome(before, seen, Result.FAILED, f"run {seen.epoch} by {seen.host} took over and goes on")
    if seen.is_running:
        last = f"its last sign of life was {seen.silent_seconds:.0f} s ago, from {seen.host}"
        return StopOutcome(
            before, seen, Result.FAILED, f"asked, but it has not ended within {wait_seconds:g} s; {last}"
        )
    return StopOutcome(before, seen, Result.CHANGED, seen.detail)
