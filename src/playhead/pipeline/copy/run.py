"""`playhead topics copy`: the target created, a session and the ledger opened, the copy handed to the supervisor."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from playhead.config.scrub import scrub_of
from playhead.errors import PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.ledger.model import COPY
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import Deadline
from playhead.pipeline.copy.job import Job, Side, plan_copy
from playhead.pipeline.copy.offset_map import map_folder
from playhead.pipeline.copy.steps import Copy, CopyOptions, CopyRun, Counted
from playhead.pipeline.slots import Slots
from playhead.pipeline.spark import (
    SparkOptions,
    cancel_jobs,
    check_ledger_reach,
    count_slots,
    find_loss,
    new_log,
    spark_session,
)
from playhead.pipeline.supervisor import Grant, Pace, Pipeline, Report, RunEnd, Supervisor
from playhead.topics.apply import apply_plan
from playhead.topics.session import Session


@dataclass(frozen=True, slots=True)
class CopyRunOptions:
    """`interval_seconds` None: until caught up. `seconds`: of one request."""

    spark: SparkOptions = field(default_factory=SparkOptions)
    interval_seconds: float | None = None
    give_up_seconds: float = 120.0
    offsets_per_step: int = 500_000
    seconds: float = 30.0

    @property
    def pace(self) -> Pace:
        return Pace(self.interval_seconds, self.give_up_seconds)


def run_copy(
    job: Job,
    sides: tuple[Side, Side],
    options: CopyRunOptions,
    report: Report = lambda progress: None,
) -> RunEnd:
    """Creates the target if it is missing, and copies."""
    context = sides[0].context
    with open_context_ledger(context, options.seconds) as ledger:
        check_reach(options.spark, ledger, job.request.map)
        make_target(job, sides[1], Deadline(options.seconds))
        log = new_log()
        with spark_session(replace(options.spark, log=log)) as spark:
            end = copy_in(spark, ledger, job, sides, options, report)
    if not any(one.error for one in end.connectors):
        log.unlink(missing_ok=True)
        return end
    return replace(end, log=log)


def check_reach(spark: SparkOptions, ledger: Ledger, folder: Path | None) -> None:
    """Whether the hosts of a cluster can write the offset map and the ledger."""
    if spark.is_local:
        return
    if folder is None:
        raise Refused(
            f"tasks on {spark.master} cannot write the offset map to this machine",
            "name a folder that every host can write with --map",
        )
    check_ledger_reach(spark, ledger)


def make_target(job: Job, target: Side, deadline: Deadline) -> None:
    if job.creates.is_empty:
        return
    with Admin(target.settings, deadline) as admin:
        outcomes = apply_plan(Session(admin, target.context, deadline), job.creates)
    if failed := [one for one in outcomes.outcomes if outcomes.exit_code]:
        raise PlayheadError(f"{job.request.target} was not created: {failed[0].detail}")


def copy_in(
    spark: SparkSession,
    ledger: Ledger,
    job: Job,
    sides: tuple[Side, Side],
    options: CopyRunOptions,
    report: Report = lambda progress: None,
    counted: Counted | None = None,
) -> RunEnd:
    """The copy in a session that is there already."""
    request = job.request
    folder = map_folder(sides[0].context, request.map, job.cluster, request.source, request.target)
    copying, counted = CopyOptions(options.offsets_per_step, folder), counted or Counted()

    def opened(grant: Grant) -> Copy:
        for note in job.notes:
            grant.note(note)
        run = CopyRun(grant.own.ledger, grant.own.claim, counted)
        return Copy(spark, grant.slots, job, sides, run, copying, grant.note)

    settings = {"master": options.spark.master, "type": COPY, "source": request.source, "target": request.target}
    supervisor = Supervisor(
        ledger, job.cluster, Slots(count_slots(spark)), options.pace, lambda: cancel_jobs(spark), report, find_loss
    )
    return supervisor.run([Pipeline(request.group, settings, None, opened, scrub_of())])


def left_after(job: Job, sides: tuple[Side, Side], seconds: float) -> int | None:
    """How many offsets of the source are not copied now. None: unknown."""
    try:
        return plan_copy(job.request, *sides, Deadline(seconds)).left
    except PlayheadError:
        return None
