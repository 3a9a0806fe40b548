"""Applies a plan of connectors one after the other, continues after a failure, then waits for all. Each connector gets a result.

A connector that must stop is stopped before it gets its new config. One that must run is resumed after it. A new connector with
a start position is created stopped, its offsets are set, then it is started. A row that a finding blocks is not sent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from playhead.config import Context
from playhead.connect.answers import OffsetEntry
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.journal import Book
from playhead.connectors.lifecycle import Wait, Watched, await_states, exit_code_of
from playhead.connectors.plan.make import topics_of_plan
from playhead.connectors.plan.model import Action, ConnectorsPlan, PlanRow, normalised
from playhead.errors import AlreadyExists, OutcomeUnknown, PlayheadError, Unreachable
from playhead.model import Deadline, Result, result_of
from playhead.model.connector import ConnectorSpec, Engine, WantedState

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ConnectorOutcome:
    """The result for one connector. `state`: its last state as a phrase."""

    name: str
    action: Action
    result: Result
    state: str = ""
    detail: str = ""

    def to_row(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "action": self.action.value,
            "result": self.result.value,
            "state": self.state,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class AppliedConnectors:
    """`journal`: the file with the configs before and after, secrets masked; None when nothing was sent.

    `notes`: what could not be checked afterwards.
    """

    outcomes: tuple[ConnectorOutcome, ...]
    journal: Path | None
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return exit_code_of([outcome.result for outcome in self.outcomes])


def apply_connectors(
    context: Context, plan: ConnectorsPlan, wait: Wait = Wait(), tell: Tell = lambda words: None
) -> AppliedConnectors:
    """Each connector may take `--timeout`. Then the wait for all of them takes at most `wait`."""
    book = Book.of_context(context)
    sendable = [row for row in plan.rows if row.action not in (Action.SAME, Action.LEAVE) and not row.blocked_by]
    record = book.begin(plan) if sendable else None
    with open_rest(context, Deadline(context.timeout_seconds)) as rest:
        outcomes = _sent(rest, plan.rows, context.timeout_seconds, tell)
        outcomes = _awaited(rest, plan.rows, outcomes, wait, tell)
    outcomes, notes = _with_topics(context, plan, outcomes)
    if record is not None:
        book.finish(record, {name: (o.result.value, o.detail) for name, o in outcomes.items()})
    done = tuple(outcomes[row.name] for row in plan.rows)
    return AppliedConnectors(done, book.path(record) if record is not None else None, notes)


def _sent(rest: Rest, rows: Sequence[PlanRow], seconds: float, tell: Tell) -> dict[str, ConnectorOutcome]:
    """Once the worker is unreachable, the remaining connectors are not tried."""
    outcomes: dict[str, ConnectorOutcome] = {}
    unreachable: str | None = None
    for at, row in enumerate(rows, 1):
        if blocked := row.blocked_by:
            result = Result.REFUSED if blocked.refuses or blocked.is_unasked else Result.FAILED
            outcomes[row.name] = ConnectorOutcome(row.name, row.action, result, detail=f"nothing was sent: {blocked}")
        elif row.action in (Action.SAME, Action.LEAVE):
            outcomes[row.name] = ConnectorOutcome(row.name, row.action, Result.UNCHANGED)
        elif unreachable:
            outcomes[row.name] = ConnectorOutcome(
                row.name, row.action, Result.FAILED, detail=f"not tried: {unreachable}"
            )
        else:
            tell(f"{at} of {len(rows)}: {row.action} {row.name}")
            with rest.within(Deadline(seconds)):
                outcomes[row.name], error = _one(rest, row)
            unreachable = row.scrub(error.what) if isinstance(error, Unreachable) else None
    return outcomes


def _one(rest: Rest, row: PlanRow) -> tuple[ConnectorOutcome, PlayheadError | None]:
    try:
        detail = _DO[row.action](rest, row)
    except PlayheadError as error:
        detail = row.scrub(f"{error.what}; {error.hint}" if error.hint else error.what)
        return ConnectorOutcome(row.name, row.action, _result_of(error), detail=detail), error
    return ConnectorOutcome(row.name, row.action, Result.CHANGED, detail=detail), None


def _result_of(error: PlayheadError) -> Result:
    # Another client created it after the plan: the plan does not show what would be overwritten.
    return Result.REFUSED if isinstance(error, AlreadyExists) else result_of(error)


def _create(rest: Rest, row: PlanRow) -> str:
    spec = _wanted(row)
    state = row.state or WantedState.RUNNING
    first = WantedState.STOPPED if spec.offsets else state
    # Workers before 3.7 have no initial state. They start every connector.
    initial = None if first is WantedState.RUNNING else first.value.upper()
    rest.create_connector(row.name, normalised(spec.config), initial)
    if not spec.offsets:
        return ""
    entries = [OffsetEntry(p.partition.to_dict(), p.offset.to_dict() if p.offset else None) for p in spec.offsets]
    try:
        _await_stop(rest, row.name)
        rest.alter_offsets(row.name, entries)
    except PlayheadError as error:
        what = f"created, but its offsets were not set and it is left stopped: {error.what}"
        raise type(error)(what) if isinstance(error, OutcomeUnknown) else PlayheadError(what, error.hint) from None
    _request_state(rest, row.name, state, WantedState.STOPPED)
    return f"starts at {len(spec.offsets)} position(s) from the file"


def _await_stop(rest: Rest, name: str) -> None:
    """A worker before 3.7 has no initial state and has started the connector."""
    watched = Watched(name, WantedState.STOPPED)
    await_states(rest, [watched], Wait(0, 5))
    if not watched.good:
        rest.stop(name)
        await_states(rest, [watched], Wait(0, 15))


def _update(rest: Rest, row: PlanRow) -> str:
    spec = _wanted(row)
    current = row.running.state if row.running else WantedState.RUNNING
    wanted = row.state or current
    if wanted is not WantedState.RUNNING:
        _request_state(rest, row.name, wanted, current)
    rest.put_config(row.name, normalised(spec.config) | {"name": row.name})
    if wanted is WantedState.RUNNING:
        _request_state(rest, row.name, wanted, current)
    return ""


def _change_state(rest: Rest, row: PlanRow) -> str:
    if row.state and row.running:
        _request_state(rest, row.name, row.state, row.running.state)
        if row.state is WantedState.PAUSED and row.running.is_failed:
            # Connect stores the pause of a failed connector and applies it after a restart.
            rest.restart(row.name, only_failed=True)
    return ""


def _delete(rest: Rest, row: PlanRow) -> str:
    rest.delete_connector(row.name)
    return "offsets kept"


_DO: Mapping[Action, Callable[[Rest, PlanRow], str]] = {
    Action.CREATE: _create,
    Action.UPDATE: _update,
    Action.STATE: _change_state,
    Action.DELETE: _delete,
}


def _request_state(rest: Rest, name: str, wanted: WantedState, current: WantedState) -> None:
    if wanted is current:
        return
    match wanted:
        case WantedState.RUNNING:
            rest.resume(name)
        case WantedState.PAUSED:
            rest.pause(name)
        case WantedState.STOPPED:
            rest.stop(name)


def _wanted(row: PlanRow) -> ConnectorSpec:
    if row.wanted is None:
        raise PlayheadError(f"{row.name}: the plan has no wanted config")
    return row.wanted


def _awaited(
    rest: Rest, rows: Sequence[PlanRow], outcomes: Mapping[str, ConnectorOutcome], wait: Wait, tell: Tell
) -> dict[str, ConnectorOutcome]:
    """Waits for unchanged connectors too: a deploy is done when all of them run."""
    fine = (Result.CHANGED, Result.UNCHANGED)
    watched = {row.name: one for row in rows if outcomes[row.name].result in fine and (one := _watch(row))}
    if not watched:
        return dict(outcomes)
    tell(f"waiting for {len(watched)} connector(s) to settle")
    try:
        await_states(rest, list(watched.values()), wait)
    except Unreachable as error:
        return {
            name: replace(o, result=Result.UNKNOWN, detail=f"sent; its state could not be read: {error.what}")
            if name in watched and o.result is Result.CHANGED
            else o
            for name, o in outcomes.items()
        }
    by_name = {row.name: row for row in rows}
    return {name: _settled(by_name[name], outcome, watched.get(name), wait) for name, outcome in outcomes.items()}


def _watch(row: PlanRow) -> Watched | None:
    had_failed = row.running is not None and row.running.is_failed
    if row.action is Action.DELETE:
        return Watched(row.name, None)
    if row.wanted and row.wanted.engine is Engine.SPARK:
        return Watched(row.name, WantedState.STOPPED) if row.action is Action.STATE else None
    wanted = row.state or (row.running.state if row.running else WantedState.RUNNING)
    return Watched(row.name, wanted, had_failed and row.action is not Action.SAME)


def _settled(row: PlanRow, outcome: ConnectorOutcome, seen: Watched | None, wait: Wait) -> ConnectorOutcome:
    if seen is None:
        return outcome
    if seen.good:
        return replace(outcome, state=seen.words)
    wanted = seen.wanted.value if seen.wanted else "gone"
    if seen.failed:
        detail = row.scrub(seen.cause or "it has failed, without a trace")
    else:
        detail = f"is not {wanted} after {wait.wait_seconds:g} s"
    if row.action is Action.SAME:
        detail += f"; this was so before the apply: playhead connectors restart {row.name}"
    return replace(outcome, result=Result.FAILED, state=seen.words, detail=detail)


def _with_topics(
    context: Context, plan: ConnectorsPlan, outcomes: Mapping[str, ConnectorOutcome]
) -> tuple[dict[str, ConnectorOutcome], tuple[str, ...]]:
    """A connector whose topic does not exist is shown as running by the worker, but nothing flows."""
    running = {name for name, outcome in outcomes.items() if outcome.state == WantedState.RUNNING.value}
    rows = [row for row in plan.rows if row.name in running]
    found = topics_of_plan(context, plan.cluster, rows, Deadline(context.timeout_seconds))
    done = dict(outcomes)
    for name, topics in found.missing.items():
        some = f"topic {topics[0]} does" if len(topics) == 1 else f"topics {', '.join(topics)} do"
        state = f"{outcomes[name].state}, but {some} not exist"
        if plan.allowed.missing_topics:
            done[name] = replace(outcomes[name], state=state)
        else:
            what = "; ".join(finding.what for finding in found.findings[name])
            done[name] = replace(outcomes[name], result=Result.FAILED, state=state, detail=what)
    return done, tuple(note for note in found.notes if note not in plan.notes)
