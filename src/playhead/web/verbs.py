"""The verbs of connectors and runs as plans: what would happen, then what did. The journal records who asked.

`Deed` is also the plan of a hand-over (`handovers.py`) and of a replay (`replays.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playhead.config import Context
from playhead.connectors import Answers
from playhead.connectors.api import delete, run_shown_verb, run_verb
from playhead.connectors.lifecycle import Verb, exit_code_of
from playhead.connectors.verb_journal import VerbBook
from playhead.errors import Invalid, Refused
from playhead.model import Deadline, Result

if TYPE_CHECKING:
    from playhead.pipeline.stop import StopPlan
    from playhead.web.replays import Span

STOP_RUN, FORGET_RUN, DELETE = "stop_run", "forget_run", "delete_connector"
VERBS = ("pause", "resume", "stop", "restart", STOP_RUN, FORGET_RUN, DELETE)
WAIT_SECONDS = 30.0
IMPOSSIBLE = "impossible"
_BACK = {
    ("pause", "running"): "resume",
    ("stop", "running"): "resume",
    ("resume", "paused"): "pause",
    ("resume", "stopped"): "stop",
}


@dataclass(frozen=True, slots=True)
class VerbRequest:
    kind: str
    owner: str
    tasks: tuple[int, ...] = ()
    only_failed: bool = False

    @property
    def words(self) -> list[str]:
        """The command line without its context."""
        if self.kind in (STOP_RUN, FORGET_RUN):
            return ["playhead", "runs", "stop" if self.kind == STOP_RUN else "forget", self.owner]
        if self.kind == DELETE:
            return ["playhead", "connectors", "delete", self.owner]
        more = [word for number in self.tasks for word in ("--task", str(number))]
        return [
            "playhead",
            "connectors",
            self.kind,
            self.owner,
            *more,
            *(["--only-failed"] if self.only_failed else []),
        ]


@dataclass(frozen=True, slots=True)
class DeedRow:
    """As `connectors pause` prints it. `result` None: not done yet. `steps`: how it is done, and what is known of it."""

    name: str
    before: str
    does: str
    after: str = ""
    result: Result | None = None
    detail: str = ""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deed:
    """`journal`: the record of it. `back`: the kind of plan that leads back, if there is one. `dry`, `guard`, `spans`: what it
    was made from, of a verb, a hand-over, a replay. `code`: the exit code, if it does not follow from the rows.
    `takes_repeats`: a guard refuses it that can be lifted by accepting repeated records."""

    rows: tuple[DeedRow, ...]
    executed: bool = False
    notes: tuple[str, ...] = ()
    journal: str | None = None
    back: str | None = None
    dry: Answers | None = None
    guard: tuple[str, ...] = ()
    spans: "tuple[Span, ...]" = ()
    code: int | None = None
    takes_repeats: bool = False

    @property
    def is_empty(self) -> bool:
        return all(row.does in ("nothing", IMPOSSIBLE) for row in self.rows)

    @property
    def exit_code(self) -> int:
        return (
            self.code
            if self.code is not None
            else exit_code_of([row.result for row in self.rows if row.result is not None])
        )

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {
                "name": row.name,
                "before": row.before,
                "does": row.does,
                "after": row.after,
                "result": row.result and row.result.value,
                "detail": row.detail,
                "steps": list(row.steps),
            }
            for row in self.rows
        ]
        code = self.exit_code if self.executed else None
        return {"warnings": list(self.notes), "changes": rows, "exit_code": code, "journal": self.journal}


def run_deed(context: Context, request: VerbRequest, only: Deed | None = None) -> Deed:
    """`only`: carry out what this one showed, and refuse what is different by now."""
    if request.kind in (STOP_RUN, FORGET_RUN):
        return _of_run(context, request, only)
    if request.kind == DELETE:
        return _delete(context, request.owner, only)
    verb = Verb(request.kind)
    if verb is not Verb.RESTART and (request.tasks or request.only_failed):
        raise Invalid("tasks and only_failed are for a restart")
    more: Any = {"only_failed": request.only_failed, "tasks": request.tasks, "context": context}
    if only is not None and only.dry is not None:
        found = run_shown_verb(verb, only.dry, wait=WAIT_SECONDS, **more)
    else:
        found = run_verb(verb, [request.owner], **more)
    rows = tuple(DeedRow(one.name, one.before, one.does, one.after, one.result, one.detail) for one in found)
    back = _BACK.get((request.kind, rows[0].before)) if len(rows) == 1 and rows[0].result is Result.CHANGED else None
    return Deed(rows, found.executed, found.notes, found.record_id or None, back, None if found.executed else found)


def _of_run(context: Context, request: VerbRequest, only: Deed | None) -> Deed:
    """A run of this Kafka cluster: a ledger may be shared with others, which have runs of the same names."""
    from playhead.ledger.runs import open_context_ledger
    from playhead.pipeline.stop import find_run_here, forget_run, plan_forget, plan_stop, stop_run

    name, forgets = request.owner, request.kind == FORGET_RUN
    deadline = Deadline(context.timeout_seconds)
    with open_context_ledger(context, deadline.remaining()) as ledger:
        found = find_run_here(context, ledger, name, deadline)
        plan = plan_forget(found) if forgets else plan_stop(found)
        row = _run_row(plan)
        if only is None:
            return Deed((row,))
        _check_run(only.rows, row)
        book = VerbBook.of_context(context)
        record = book.begin("forget the run" if forgets else "stop the run", [name])
        done = forget_run(ledger, plan) if forgets else stop_run(ledger, plan, WAIT_SECONDS)
    warning = book.finish(record, {name: (done.result.value, done.detail)})
    after = "forgotten" if forgets else done.after.words
    did = DeedRow(name, done.before.words, plan.does, after, done.result, done.detail)
    return Deed((did,), executed=True, notes=(warning,) if warning else (), journal=record.id)


def _delete(context: Context, name: str, only: Deed | None) -> Deed:
    """The connector, and not its offsets. The journal of connectors has its config: the command in it leads back."""
    planned = delete(name, context=context)
    if [one.name for one in planned] != [name]:
        raise Invalid(f"{name!r} is a pattern", "a plan deletes one connector, by its name")
    if only is not None:
        if [(one.name, one.before) for one in planned] != [(one.name, one.before) for one in only.rows]:
            raise Refused(f"{name} changed since the plan was created: it is {planned[0].before}", "plan again")
        planned = delete(name, execute=True, context=context)
    rows = tuple(DeedRow(one.name, one.before, one.does, one.after, one.result, one.detail) for one in planned)
    return Deed(rows, planned.executed, planned.notes, planned.record_id or None)


def _run_row(plan: "StopPlan") -> DeedRow:
    return DeedRow(plan.run.pipeline, f"{plan.run.words}, run {plan.run.epoch}", plan.does, detail=plan.note)


def _check_run(shown: Sequence[DeedRow], now: DeedRow) -> None:
    """A newer run, which someone else started, is not the one that was shown."""
    if (shown[0].before.rpartition(", ")[2], shown[0].does) != (now.before.rpartition(", ")[2], now.does):
        raise Refused(f"{now.name} changed since the plan was created: it is {now.before}", "plan again")
