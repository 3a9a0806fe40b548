"""Lists the runs in the ledger, shows what one did, requests a stop, and forgets one. Works without Spark.

A stop is a request, not a kill: the run reads it with its next heartbeat, ends after the open step, and writes its end in the
ledger. A hand-over that is given up withdraws its request: the run goes on unless it has written its end before. Whether a run
without a recent heartbeat is alive is unknown here. The request is written anyway, in case it resumes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from playhead.config import Context
from playhead.connectors.spark_runs import find_cluster
from playhead.errors import Invalid, NotFound, Refused, Unreachable
from playhead.ledger.model import Host, RecordedChunk, Run
from playhead.ledger.runs import Ledger
from playhead.model import Deadline, Result

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class StopPlan:
    """For a stop, and for forgetting. `does`: what --execute would do. `idle`: there is nothing to stop."""

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
    """Finds a run by the name of its pipeline; `cluster` is needed if several clusters have one of that name."""
    runs = ledger.list_runs()
    named = [run for run in runs if run.pipeline == name and cluster in (None, run.cluster)]
    found = [run for run in named if run.forgotten_by is None]
    if named and not found:
        hint = f"{named[0].forgotten_by} had it forgotten; it is listed by: playhead runs list --all"
        raise NotFound("run", name, hint=hint)
    if not found:
        known = [run.pipeline for run in runs if cluster in (None, run.cluster)]
        raise NotFound("run", name, known, None if known else f"nothing has run with {ledger.place} yet")
    if len(found) > 1:
        clusters = " or ".join(run.cluster for run in found)
        raise Invalid(f"{len(found)} clusters have a run {name!r}", f"name one with --cluster {clusters}")
    return found[0]


def find_run_here(context: Context, ledger: Ledger, name: str, deadline: Deadline, cluster: str | None = None) -> Run:
    """Finds the run of the context's Kafka cluster, or of `cluster`: a ledger may be shared with other clusters, which have runs
    of the same names. A context that names no server has no cluster; then the name must be the only one in the ledger."""
    try:
        here = cluster or find_cluster(context, deadline)
    except Unreachable as error:
        ways = [error.hint, "or name the Kafka cluster with --cluster ID, which playhead runs list -o wide has"]
        raise Unreachable(error.what, "; ".join(filter(None, ways)).removeprefix("or ")) from None
    return find_run(ledger, name, here)


def list_run_chunks(ledger: Ledger, run: Run, limit: int) -> Sequence[RecordedChunk]:
    """What was committed for the pipeline, by this run and those before it; the newest first."""
    return ledger.list_chunks(run.cluster, run.pipeline, limit=limit)


def plan_forget(run: Run) -> StopPlan:
    if run.is_alive:
        raise Refused(f"{run.pipeline} is {run.words}, by {run.host}", f"playhead runs stop {run.pipeline} --execute")
    note = (
        f"the ledger keeps its positions, what it delivered, and its number ({run.epoch}): the next run continues there"
    )
    if run.is_silent:
        note += "; it sends no heartbeats, and if its process still lives, it is listed again with its next one"
    return StopPlan(run, "list it no more", note, idle=False)


def forget_run(ledger: Ledger, plan: StopPlan) -> StopOutcome:
    """Refused if it is alive by now."""
    return StopOutcome(plan.run, ledger.forget(plan.run, Host.here()), Result.CHANGED, plan.note)


def plan_stop(run: Run) -> StopPlan:
    if not run.is_running:
        return StopPlan(run, "nothing", f"it is {run.state} already", idle=True)
    if run.stop is not None:
        return StopPlan(run, "wait for it to end", f"{run.stop.who} requested a stop already", idle=False)
    note = "it sends no heartbeats: if its process is gone, the request has no effect" if run.is_silent else ""
    return StopPlan(run, "request a stop after its open step", note, idle=False)


def stop_run(
    ledger: Ledger,
    plan: StopPlan,
    wait_seconds: float | None,
    handover: str = "",
    is_given_up: Callable[[], bool] = lambda: False,
) -> StopOutcome:
    """Requests a stop and waits until the run has ended; `wait_seconds` None: does not wait. `handover`: the record of the
    hand-over that needs it. `is_given_up` ends the wait early."""
    before = plan.run
    if plan.idle:
        return StopOutcome(before, before, Result.UNCHANGED, plan.note)
    requested = ledger.request_stop(before.cluster, before.pipeline, Host.here(), handover)
    if not requested.is_running:
        return StopOutcome(before, requested, Result.UNCHANGED, "it ended before the request")
    if wait_seconds is None:
        return StopOutcome(before, requested, Result.CHANGED, "requested; not waited for")
    return _awaited(ledger, before, requested, wait_seconds, is_given_up)


def _awaited(
    ledger: Ledger, before: Run, requested: Run, wait_seconds: float, is_given_up: Callable[[], bool]
) -> StopOutcome:
    deadline = Deadline(wait_seconds)
    seen = requested
    unread: Unreachable | None = None
    while not deadline.passed and not is_given_up() and seen.is_running and seen.epoch == requested.epoch:
        time.sleep(min(POLL_SECONDS, deadline.remaining()))
        try:
            seen, unread = ledger.get_run(requested.cluster, requested.pipeline), None
        except Unreachable as error:  # may be temporary: the run needs the ledger too, and retries
            unread = error
    return _outcome(before, seen, requested.epoch, unread, wait_seconds)


def _outcome(before: Run, seen: Run, epoch: int, unread: Unreachable | None, wait_seconds: float) -> StopOutcome:
    if unread is not None:
        return StopOutcome(before, seen, Result.UNKNOWN, f"requested, but its state cannot be read: {unread.what}")
    if seen.epoch != epoch:
        return StopOutcome(before, seen, Result.FAILED, f"run {seen.epoch} by {seen.host} took over and continues")
    if seen.is_running:
        last = f"its last heartbeat was {seen.silent_seconds:.0f} s ago, from {seen.host}"
        return StopOutcome(
            before, seen, Result.FAILED, f"requested, but it has not ended within {wait_seconds:g} s; {last}"
        )
    return StopOutcome(before, seen, Result.CHANGED, seen.detail)
