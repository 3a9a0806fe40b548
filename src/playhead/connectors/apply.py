"""Applies a plan of connectors, some at the same time, continues after a failure, then waits for all. Each gets a result.

A connector that must stop is stopped before it gets its new config. One that must run is resumed after it. A new connector with
a start position is created stopped, its offsets are set, then it is started. A row that a finding blocks is not sent. Connectors
are deleted after the others are done; in an undo before the others. After an interrupt each one that was begun is read back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from playhead.config import Context
from playhead.connect.answers import OffsetEntry
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.at_once import Tell, do_at_once
from playhead.connectors.journal import Book, Recording, Seen
from playhead.connectors.lifecycle import Wait, Watched, await_states, exit_code_of
from playhead.connectors.plan.make import find_running, topics_of_plan
from playhead.connectors.plan.model import IDLE, Action, ConnectorsPlan, PlanRow, Running, diff_config, normalised
from playhead.connectors.status import phrase
from playhead.errors import AlreadyExists, OutcomeUnknown, PlayheadError, Unreachable
from playhead.model import Deadline, Map, Result, result_of
from playhead.model.connector import ConnectorSpec, Engine, WantedState
from playhead.stores import Access

READ_BACK_SECONDS = 10.0
NOT_BEGUN = "not begun: interrupted"


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
            "state": self.state,
            "result": self.result.value,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class AppliedConnectors:
    """`journal`: the file with the configs before and after, secrets masked; None when nothing was sent. `record_id`: its id.
    `warning`: what went wrong after the sending. `notes`: what could not be checked afterwards."""

    outcomes: tuple[ConnectorOutcome, ...]
    journal: Path | None
    record_id: str = ""
    warning: str = ""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return exit_code_of([outcome.result for outcome in self.outcomes])


class ApplyInterrupted(KeyboardInterrupt):
    """Ctrl-C during an apply. `applied`: what was done until then, read back."""

    def __init__(self, applied: AppliedConnectors) -> None:
        super().__init__("interrupted")
        self.applied = applied


def apply_connectors(
    context: Context,
    plan: ConnectorsPlan,
    wait: Wait = Wait(),
    tell: Tell = lambda words: None,
    on_begin: Callable[[Recording], None] = lambda recording: None,
) -> AppliedConnectors:
    """Each connector may take `--timeout`. Then the wait for all of them takes at most `wait`.

    `on_begin` gets the record of the journal before anything is sent. An interrupt is raised as `ApplyInterrupted`.
    """
    sendable = [row for row in plan.rows if row.action not in IDLE and not row.blocked_by]
    recording = None
    if sendable:
        seen = _offsets_before_deletion(context, sendable)
        recording = Book.of_context(context).begin(plan, seen, f"undo {plan.undoes}" if plan.undoes else "apply")
        on_begin(recording)
    run = _Run(context, plan, {row.name: outcome for row in plan.rows if (outcome := _settled_before(row))})
    try:
        run.send(sendable, tell)
        run.wait(wait, tell)
        run.check_topics()
    except KeyboardInterrupt:
        run.read_back(sendable)
        raise ApplyInterrupted(run.finished(recording)) from None
    return run.finished(recording)


def _offsets_before_deletion(context: Context, rows: Sequence[PlanRow]) -> dict[str, Seen]:
    doomed = [row.name for row in rows if row.action is Action.DELETE]
    work = do_at_once(context, doomed, _read_offsets, context.timeout_seconds)
    if work.was_interrupted:  # nothing was changed yet
        raise KeyboardInterrupt
    return {doomed[at]: seen for at, seen in work.results.items()}


def _read_offsets(access: Access, name: str) -> Seen:
    """The offsets that the worker shows; or why it does not."""
    try:
        with access.rest() as rest:
            return Seen(rest.get_offsets(name))
    except PlayheadError as error:
        return Seen(unread=error.what)


def _settled_before(row: PlanRow) -> ConnectorOutcome | None:
    """The outcome of a row that need not, or cannot, be sent."""
    if blocked := row.blocked_by:
        result = Result.REFUSED if blocked.refuses or blocked.is_unasked else Result.FAILED
        return ConnectorOutcome(row.name, row.action, result, detail=f"nothing was sent: {blocked}")
    return ConnectorOutcome(row.name, row.action, Result.UNCHANGED) if row.action in IDLE else None


@dataclass
class _Run:
    """One apply: the outcomes so far, by name."""

    context: Context
    plan: ConnectorsPlan
    outcomes: dict[str, ConnectorOutcome]
    begun: set[str] = field(default_factory=set)
    unreachable: str | None = None
    notes: tuple[str, ...] = ()

    def send(self, rows: Sequence[PlanRow], tell: Tell) -> None:
        """Once the worker is unreachable, the remaining connectors are not tried."""
        deletions = [row for row in rows if row.action is Action.DELETE]
        others = [row for row in rows if row.action is not Action.DELETE]
        done = 0
        for some in (deletions, others) if self.plan.undoes else (others, deletions):
            before = done
            work = do_at_once(
                self.context,
                some,
                self._send_one,
                self.context.timeout_seconds,
                lambda count, before=before: tell(f"{before + count} of {len(rows)} connectors"),  # type: ignore[misc]
            )
            done += len(some)
            if work.was_interrupted:
                raise KeyboardInterrupt

    def _send_one(self, access: Access, row: PlanRow) -> ConnectorOutcome:
        """Recorded here, in the thread of the connector: an interrupt of the main thread must not lose it."""
        if self.unreachable:
            outcome = ConnectorOutcome(row.name, row.action, Result.FAILED, detail=f"not tried: {self.unreachable}")
        else:
            self.begun.add(row.name)
            with access.rest() as rest:
                outcome, error = _one(rest, row)
            if isinstance(error, Unreachable):
                self.unreachable = row.scrub(error.what)
        self.outcomes[row.name] = outcome
        return outcome

    def wait(self, wait: Wait, tell: Tell) -> None:
        with open_rest(self.context, Deadline(self.context.timeout_seconds)) as rest:
            self.outcomes = _awaited(rest, self.plan.rows, self.outcomes, wait, tell)

    def check_topics(self) -> None:
        self.outcomes, self.notes = _with_topics(self.context, self.plan, self.outcomes)

    def read_back(self, rows: Sequence[PlanRow]) -> None:
        """After an interrupt: what the worker shows now of everything that was begun."""
        with open_rest(self.context, Deadline(READ_BACK_SECONDS)) as rest:
            for row in rows:
                if row.name in self.begun:
                    self.outcomes[row.name] = _seen_after_interrupt(rest, row, self.outcomes.get(row.name))
                elif row.name not in self.outcomes:
                    self.outcomes[row.name] = ConnectorOutcome(row.name, row.action, Result.UNCHANGED, "", NOT_BEGUN)

    def finished(self, recording: Recording | None) -> AppliedConnectors:
        done = tuple(self.outcomes[row.name] for row in self.plan.rows)
        if recording is None:
            return AppliedConnectors(done, None, notes=self.notes)
        warning = recording.finish({outcome.name: (outcome.result.value, outcome.detail) for outcome in done})
        return AppliedConnectors(done, recording.path, recording.record.id, warning, self.notes)


def _seen_after_interrupt(rest: Rest, row: PlanRow, sent: ConnectorOutcome | None) -> ConnectorOutcome:
    """`sent` None: its request was not answered in time and may still be carried out."""
    outcome = sent or ConnectorOutcome(row.name, row.action, Result.UNKNOWN)
    try:
        now = find_running(rest, row.name)
    except PlayheadError as error:
        return replace(outcome, result=Result.UNKNOWN, detail=f"interrupted; it cannot be read back: {error.what}")
    state = phrase(now.status) if now else "absent"
    is_as_before, is_done = _is_as(row, now, after=False), _is_as(row, now, after=True)
    if is_done:
        return replace(outcome, result=Result.CHANGED, state=state, detail="interrupted; read back: it is done")
    if is_as_before and sent is not None:
        return replace(outcome, result=Result.UNCHANGED, state=state, detail="interrupted; read back: it is as before")
    seen = "so far it is as before" if is_as_before else "it is done in part"
    return replace(outcome, result=Result.UNKNOWN, state=state, detail=f"interrupted; read back: {seen}")


def _is_as(row: PlanRow, now: Running | None, *, after: bool) -> bool:
    """Whether the connector is as it was before the row was sent, or as it is to be after."""
    if not after:
        before = row.running
        return (now is None) == (before is None) and (
            now is None or before is None or (now.config, now.state) == (before.config, before.state)
        )
    if row.action is Action.DELETE or now is None:
        return row.action is Action.DELETE and now is None
    wanted = row.state or (row.running.state if row.running else WantedState.RUNNING)
    has_config = row.action is Action.STATE or not diff_config(now.config, normalised(_wanted(row).config), row.secrets)
    return has_config and now.state is wanted


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
    first = WantedState.STOPPED if spec.offsets or row.restores else state
    # Workers before 3.7 have no initial state. They start every connector.
    initial = None if first is WantedState.RUNNING else first.value.upper()
    rest.create_connector(row.name, normalised(spec.config), initial)
    if not spec.offsets and not row.restores:
        return ""
    try:
        _await_stop(rest, row.name)
        if row.restores:
            done = _restore_offsets(rest, row)
        else:
            rest.alter_offsets(row.name, _entries(spec))
            done = f"starts at {len(spec.offsets or ())} position(s) from the file"
    except PlayheadError as error:
        what = f"created, but its offsets were not set and it is left stopped: {error.what}"
        raise type(error)(what) if isinstance(error, OutcomeUnknown) else PlayheadError(what, error.hint) from None
    _request_state(rest, row.name, state, WantedState.STOPPED)
    return done


def _entries(spec: ConnectorSpec) -> list[OffsetEntry]:
    return [OffsetEntry(p.partition.to_dict(), p.offset.to_dict() if p.offset else None) for p in spec.offsets or ()]


def _restore_offsets(rest: Rest, row: PlanRow) -> str:
    """Sets the offsets of the journal unless some are stored: Connect keeps those of a deleted connector, and they are newer."""
    stored = {Map(one.partition): one.offset for one in rest.get_offsets(row.name) if one.offset is not None}
    wanted = {Map(one.partition): one.offset for one in row.restores}
    if stored == wanted:
        return f"its {len(wanted)} offset(s) were still stored"
    if stored and not row.overwrites:
        return f"its {len(stored)} stored offset(s) were kept: they are not those of the journal, which are older"
    rest.alter_offsets(row.name, row.restores)
    return f"{len(wanted)} offset(s) restored from the journal"


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
    if row.restores:  # a delete was interrupted after it had stopped the connector and deleted its offsets
        _await_stop(rest, row.name)
        done = _restore_offsets(rest, row)
        _request_state(rest, row.name, row.state or WantedState.STOPPED, WantedState.STOPPED)
        return done
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
