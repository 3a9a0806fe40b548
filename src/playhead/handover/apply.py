"""Carries a plan out: one record in the journal of connectors, one connector at a time per thread, then the files.

The record is on disk before anything is stopped. A connector that fails does not keep the others from being handed over.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playhead.config import Context
from playhead.connectors.at_once import Tell, do_at_once
from playhead.connectors.files.engine import apply_engines, plan_engines
from playhead.connectors.journal import ApplyRecord, Book, Recording
from playhead.connectors.lifecycle import sentence
from playhead.connectors.plan.model import Action, ConnectorsPlan, PlanRow
from playhead.connectors.undo import HANDOVER
from playhead.errors import Invalid, PlayheadError, Refused
from playhead.files import lock_file
from playhead.handover.model import (
    Handed,
    HandedButDown,
    Handover,
    HandoverOptions,
    HandoverPlan,
    HandoverResult,
    as_fault,
)
from playhead.handover.movement import patience_of
from playhead.handover.plan import Wanted, plan_handover
from playhead.handover.switch import AGAIN, REQUEST_SECONDS, Switch
from playhead.handover.to_connect import hand_to_connect
from playhead.handover.to_spark import hand_to_spark
from playhead.ledger.runs import open_context_ledger
from playhead.model import ConnectorSpec, Deadline, Engine, Result, result_of
from playhead.model.connector import WantedState
from playhead.stores import Access

_MOVED = (None, Result.CHANGED.value, Result.UNKNOWN.value)


class HandoverInterrupted(KeyboardInterrupt):
    """Ctrl-C. `names`: what was begun and not finished."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__("interrupted")
        self.names = names


def apply_handover(context: Context, plan: HandoverPlan, options: HandoverOptions, tell: Tell) -> HandoverResult:
    todo = plan.doable
    _check_ledger(context, plan, todo)
    recording = _journalled(context, plan, todo)
    with _alone(recording):
        return _applied(context, plan, options, recording, tell)


@contextmanager
def _alone(recording: Recording | None) -> Iterator[None]:
    """One process at a time carries a record out: another one that continues it would take its claims and its journal."""
    if recording is None:
        yield
        return
    with lock_file(recording.path.with_suffix(".lock")) as is_ours:
        if not is_ours:
            raise Refused(
                f"another command carries out {recording.record.id} now", f"wait until it has ended, then {AGAIN}"
            )
        if recording.book.get(recording.record.id).finished is not None:
            raise Refused(f"{recording.record.id} has ended since the plan was created", AGAIN)
        yield


def _applied(
    context: Context, plan: HandoverPlan, options: HandoverOptions, recording: Recording | None, tell: Tell
) -> HandoverResult:
    todo = plan.doable

    def hand(access: Access, row: Handover) -> Handed:
        assert recording is not None  # noqa: S101  there is something to do
        return _handed(Switch(access, plan, row, options, recording, tell))

    wait = options.wait.wait_seconds
    seconds = context.timeout_seconds + 4 * wait + patience_of(plan.home, wait) + 8 * REQUEST_SECONDS
    work = do_at_once(context, todo, hand, seconds)
    if work.was_interrupted:
        raise HandoverInterrupted([todo[at].name for at in sorted(work.begun) if at not in work.results])
    done = {todo[at].name: outcome for at, outcome in work.results.items()}
    outcomes = tuple(done.get(row.name) or _settled_before(row) for row in plan.rows)
    edited, by_hand = _edit_files(plan, outcomes)
    if recording is None:
        return HandoverResult(outcomes, None, "", edited, by_hand)
    warning = recording.finish(_results(recording, plan, outcomes))
    return HandoverResult(outcomes, recording.path, recording.record.id, edited, by_hand, warning)


def _check_ledger(context: Context, plan: HandoverPlan, todo: Sequence[Handover]) -> None:
    """It records the owner at the end: whether it can be written is known before."""
    if not todo and not plan.withdrawn:
        return
    with open_context_ledger(context, context.timeout_seconds) as ledger:
        ledger.write(lambda _: None)
        for run in plan.withdrawn:
            ledger.withdraw_stop(run, plan.undoes)


def _results(recording: Recording, plan: HandoverPlan, outcomes: Sequence[Handed]) -> dict[str, tuple[str, str]]:
    """For the journal. What the interrupted attempt had handed over is changed by this record. What it had begun, and what cannot
    be continued now, stays open."""
    results = {one.name: (one.result.value, one.detail) for one in outcomes}
    for row in plan.rows:
        if row.is_unfinished and row.idle:
            results[row.name] = (Result.CHANGED.value, "handed over before the interrupt")
        elif row.is_unfinished and row.blocked_by:
            results[row.name] = (Result.UNKNOWN.value, f"interrupted, and not continued: {row.blocked_by}")
    return {entry.name: results[entry.name] for entry in recording.record.entries}


def _handed(switch: Switch) -> Handed:
    row = switch.row
    try:
        if row.to is Engine.SPARK:
            return Handed(row.name, row.to, Result.CHANGED, "stopped in Connect", hand_to_spark(switch))
        state, detail = hand_to_connect(switch)
        return Handed(row.name, row.to, Result.CHANGED, state, detail)
    except Exception as raised:  # noqa: BLE001  one that fails in any way does not keep the others from being handed over
        error = as_fault(raised)
        is_down = isinstance(error, HandedButDown)
        return Handed(row.name, row.to, result_of(error), "", _scrubbed(row, sentence(error)), is_down)


def _scrubbed(row: Handover, text: str) -> str:
    return PlanRow(row.name, Action.STATE, row.spec, row.running, secrets=row.secrets).scrub(text)


def _settled_before(row: Handover) -> Handed:
    if blocked := row.blocked_by:
        result = Result.REFUSED if blocked.refuses or blocked.is_unasked else Result.FAILED
        return Handed(row.name, row.to, result, "", f"nothing was done: {blocked}")
    if row.down:
        return Handed(row.name, row.to, Result.FAILED, "", row.down, is_down=True)
    return Handed(row.name, row.to, Result.UNCHANGED, "", row.idle)


def _journalled(context: Context, plan: HandoverPlan, todo: Sequence[Handover]) -> Recording | None:
    """The record of an interrupted hand-over of the same connectors is continued: it has their state before."""
    book = Book.of_context(context)
    if plan.unfinished is not None:
        return Recording(book, plan.unfinished)
    if not todo:
        return None
    rows = tuple(_journal_row(row) for row in todo)
    files = [path if path == "-" else str(Path(path).absolute()) for path in plan.files]
    return book.begin(ConnectorsPlan(plan.cluster, rows), {}, f"{HANDOVER}{plan.to}", files)


def _journal_row(row: Handover) -> PlanRow:
    before = row.running
    if before is not None and row.was is not None:
        before = replace(before, state=row.was)
    if row.to is Engine.SPARK:
        return PlanRow(row.name, Action.STATE, row.spec, before, (), WantedState.STOPPED, secrets=row.secrets)
    action = Action.CREATE if before is None else Action.UPDATE if row.changes else Action.STATE
    return PlanRow(row.name, action, row.spec, before, row.changes, row.state, secrets=row.secrets)


def _edit_files(plan: HandoverPlan, outcomes: Sequence[Handed]) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """The files of those that are where they were to go."""
    there = {one.name: one.to for one in outcomes if one.is_there}
    planned = {edit.path: edit.before for edit in plan.edits}
    edited: dict[str, list[str]] = {}
    by_hand: list[str] = []
    for edit in plan_engines(plan.specs, there):
        by_hand += edit.by_hand
        if edit.after is None:
            continue
        try:
            if edit.before != planned.get(edit.path, edit.before):
                raise PlayheadError("it was changed meanwhile")
            apply_engines(edit)
            edited[str(edit.path)] = sorted(edit.engines)
        except (PlayheadError, OSError) as error:
            by_hand.append(f"{edit.path}: write engine: {plan.to} for {', '.join(edit.engines)} ({error})")
    return edited, tuple(by_hand)


def plan_back(
    context: Context, record: ApplyRecord, specs: Sequence[ConnectorSpec], options: HandoverOptions, deadline: Deadline
) -> HandoverPlan:
    """The plan that undoes a hand-over: the other way, with the states that the connectors had in Connect."""
    if not record.what.startswith(HANDOVER):
        raise Invalid(f"{record.id} is no hand-over")
    back = Engine.CONNECT if record.what == f"{HANDOVER}{Engine.SPARK}" else Engine.SPARK
    entries = [entry for entry in record.entries if entry.may_have_changed]
    if not entries:
        raise Refused(f"{record.id} changed nothing")
    names = [entry.name for entry in entries]
    _refuse_newer(context, record, names, back)
    if back is Engine.SPARK:
        wanted = Wanted(back, specs, record.files, options, undoes=record.id)
    else:
        states = {entry.name: WantedState(entry.before.state) for entry in entries if entry.before.state}
        absent = {entry.name for entry in entries if entry.before.config is None}
        wanted = Wanted(back, specs, record.files, options, states, absent, record.id)
    return plan_handover(context, names, wanted, deadline)


def _refuse_newer(context: Context, record: ApplyRecord, names: Sequence[str], back: Engine) -> None:
    """What was handed over again since is not where this record left it. An undo of it that was interrupted goes on."""
    for newer in Book.of_context(context).newest_first():
        if newer.id == record.id:
            return
        if not newer.what.startswith(HANDOVER) or newer.kafka_cluster_id != record.kafka_cluster_id:
            continue
        for entry in newer.entries:
            is_this_undo = newer.what == f"{HANDOVER}{back}" and entry.result != Result.CHANGED.value
            if entry.name in names and entry.result in _MOVED and not is_this_undo:
                raise Refused(
                    f"{entry.name} was handed over again since: {newer.id}, {newer.what}",
                    f"undo that one first: playhead connectors undo {newer.id}",
                )
