"""The verbs of connectors and runs as plans: what would happen, then what did. The journal records who asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playhead.config import Context
from playhead.connectors import Answers
from playhead.connectors.api import run_shown_verb, run_verb
from playhead.connectors.lifecycle import Verb, exit_code_of
from playhead.connectors.verb_journal import VerbBook
from playhead.errors import Invalid, Refused
from playhead.model import Deadline, Result

if TYPE_CHECKING:
    from playhead.pipeline.stop import StopPlan

VERBS = ("pause", "resume", "stop", "restart", "stop_run")
WAIT_SECONDS = 30.0
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
        if self.kind == "stop_run":
            return ["playhead", "runs", "stop", self.owner]
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
    """As `connectors pause` prints it. `result` None: not done yet."""

    name: str
    before: str
    does: str
    after: str = ""
    result: Result | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Deed:
    """`journal`: the record of it. `back`: the kind of plan that leads back, if there is one. `dry`: what it was made from."""

    rows: tuple[DeedRow, ...]
    executed: bool = False
    notes: tuple[str, ...] = ()
    journal: str | None = None
    back: str | None = None
    dry: Answers | None = None

    @property
    def is_empty(self) -> bool:
        return all(row.does == "nothing" for row in self.rows)

    @property
    def exit_code(self) -> int:
        return exit_code_of([row.result for row in self.rows if row.result is not None])

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {
                "name": row.name,
                "before": row.before,
                "does": row.does,
                "after": row.after,
                "result": row.result and row.result.value,
                "detail": row.detail,
            }
            for row in self.rows
        ]
        code = self.exit_code if self.executed else None
        return {"warnings": list(self.notes), "changes": rows, "exit_code": code, "journal": self.journal}


def run_deed(context: Context, request: VerbRequest, only: Deed | None = None) -> Deed:
    """`only`: carry out what this one showed, and refuse what is different by now."""
    if request.kind == "stop_run":
        return _stop_run(context, request.owner, only)
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


def _stop_run(context: Context, name: str, only: Deed | None) -> Deed:
    from playhead.ledger.runs import open_context_ledger
    from playhead.pipeline.stop import find_run, plan_stop, stop_run

    with open_context_ledger(context, Deadline(context.timeout_seconds).remaining()) as ledger:
        plan = plan_stop(find_run(ledger, name))
        row = _stop_row(plan)
        if only is None:
            return Deed((row,))
        _check_run(only.rows, row)
        book = VerbBook.of_context(context)
        record = book.begin("stop the run", [name])
        done = stop_run(ledger, plan, WAIT_SECONDS)
    warning = book.finish(record, {name: (done.result.value, done.detail)})
    did = DeedRow(name, done.before.words, plan.does, done.after.words, done.result, done.detail)
    return Deed((did,), executed=True, notes=(warning,) if warning else (), journal=record.id)


def _stop_row(plan: "StopPlan") -> DeedRow:
    return DeedRow(plan.run.pipeline, f"{plan.run.words}, run {plan.run.epoch}", plan.does, detail=plan.note)


def _check_run(shown: Sequence[DeedRow], now: DeedRow) -> None:
    """A newer run, which someone else started, is not the one that was shown."""
    if (shown[0].before.rpartition(", ")[2], shown[0].does) != (now.before.rpartition(", ")[2], now.does):
        raise Refused(f"{now.name} changed since the plan was created: it is {now.before}", "plan again")
