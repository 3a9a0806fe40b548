"""Hand-overs as plans: `playhead handover`, and `playhead connectors undo` of one.

To carry one out is to plan it again. It is refused if an engine shows something else by then: another state in Connect, another
run, other config keys, a file that was edited. Positions move on meanwhile, and are read after the old owner has stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.config import Context
from playhead.config.extras import check_extra
from playhead.connectors.files.read import read_specs
from playhead.connectors.journal import Book
from playhead.connectors.lifecycle import Wait
from playhead.errors import Invalid, Refused
from playhead.model import Deadline, Engine
from playhead.web.verbs import Deed, DeedRow

if TYPE_CHECKING:
    from playhead.handover.model import Handover, HandoverOptions, HandoverPlan

HANDOVER, UNDO_HANDOVER = "handover", "undo_handover"
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HandoverRequest:
    """`to`: the engine. `entry`: of an undo, the record of the hand-over that is undone. `files`: those of the server; the one
    that has the connector counts, and is edited."""

    owner: str
    to: str = ""
    entry: str = ""
    accept_repeats: bool = False
    files: tuple[Path, ...] = ()

    @property
    def words(self) -> list[str]:
        """The command line without its context."""
        more = ["--accept-repeats"] if self.accept_repeats else []
        if self.entry:
            return ["playhead", "connectors", "undo", self.entry, *more]
        named = [word for file in self.files for word in ("-f", str(file))]
        return ["playhead", "handover", self.owner, "--to", self.to, *named, *more]


def run_handover(
    context: Context, request: HandoverRequest, only: Deed | None = None, tell: Callable[[str], None] = lambda _: None
) -> Deed:
    """`only`: carry out what this one showed. `tell` gets progress messages."""
    check_extra("spark")
    from playhead.handover.apply import apply_handover
    from playhead.handover.model import HandoverOptions

    options = HandoverOptions(request.accept_repeats, Wait(wait_seconds=WAIT_SECONDS))
    plan = _planned(context, request, options)
    if only is None:
        notes = [*_notes(plan), *(f"promise: {words}" for row in plan.rows for words in row.promises)]
        rows = tuple(_row(one) for one in plan.rows)
        return Deed(rows, notes=tuple(notes), guard=_guard(plan), takes_repeats=_takes_repeats(plan, options))
    if (now := _guard(plan)) != only.guard:
        changed = next((new for old, new in zip(only.guard, now, strict=False) if old != new), "it has other parts")
        raise Refused(f"{request.owner or request.entry} changed since the plan was created: {changed}", "plan again")
    done = apply_handover(context, plan, options, tell)
    rows = tuple(
        DeedRow(one.name, _before(row), _does(row), one.state, one.result, one.detail, tuple(row.steps))
        for row, one in zip(plan.rows, done.outcomes, strict=True)
    )
    notes = [f"file: {path}: engine: {plan.to} for {', '.join(names)}" for path, names in done.edited.items()]
    notes += [f"file: {words}" for words in done.by_hand] + ([done.warning] if done.warning else [])
    if plan.to is Engine.SPARK and done.there:
        more = [] if done.edited or plan.says_spark(done.there) else ["--engine", "spark"]
        notes.append(
            f"start it in a shell: {' '.join(['playhead run', *(plan.files or ['FILE']), *done.there, *more])}"
        )
    changed_something = done.journal is not None
    return Deed(
        rows,
        executed=True,
        notes=tuple(notes),
        journal=done.record_id if changed_something else None,
        back=UNDO_HANDOVER if changed_something else None,
        code=done.exit_code_with(plan),
    )


def _planned(context: Context, request: HandoverRequest, options: "HandoverOptions") -> "HandoverPlan":
    from playhead.handover.apply import plan_back
    from playhead.handover.plan import Wanted, plan_handover

    deadline = Deadline(context.timeout_seconds)
    if request.entry:
        record = Book.of_context(context).get(request.entry)
        paths = [path for path in record.files if path != "-"]
        return plan_back(context, record, read_specs(paths) if paths else (), options, deadline)
    if request.to not in list(Engine):
        raise Invalid(f"to: {request.to!r} is neither spark nor connect")
    specs = read_specs(request.files) if request.files else ()
    wanted = Wanted(Engine(request.to), specs, [str(path) for path in request.files], options)
    plan = plan_handover(context, [request.owner], wanted, deadline)
    if [row.name for row in plan.rows] != [request.owner]:
        raise Invalid(f"{request.owner!r} is a pattern", "a plan hands over one connector, by its name")
    return plan


def _row(row: "Handover") -> DeedRow:
    lines = [
        *row.steps,
        *(f"position: {words}" for words in row.positions),
        *(f"readers: {one}" for one in row.consumers),
    ]
    detail = "; ".join(str(finding) for finding in row.findings) or row.down or row.idle
    return DeedRow(row.name, _before(row), _does(row), detail=detail, steps=() if row.idle else tuple(lines))


def _before(row: "Handover") -> str:
    return f"Connect: {row.in_connect}; Spark: {row.on_spark}"


def _does(row: "Handover") -> str:
    return "nothing" if row.idle or row.blocked_by else f"hand over to {row.to.value.capitalize()}"


def _notes(plan: "HandoverPlan") -> list[str]:
    found = []
    if plan.unfinished is not None:
        found.append(f"continues a hand-over that was interrupted: {plan.unfinished.id}")
    for edit in plan.edits:
        if edit.after is not None:
            found.append(f"file: {edit.path}: engine: {plan.to} for {', '.join(sorted(edit.engines))}")
        found += [f"file: cannot be edited: {words}" for words in edit.by_hand]
    return [*found, *plan.notes]


def _takes_repeats(plan: "HandoverPlan", options: "HandoverOptions") -> bool:
    """A refusal is in the way that the user may lift, at the price of repeated records."""
    refused = any(row.blocked_by is not None and row.blocked_by.refuses for row in plan.rows)
    return refused and not options.accept_repeats


def _guard(plan: "HandoverPlan") -> tuple[str, ...]:
    """What must be as it was shown, in words."""
    found = [f"the hand-over is to {plan.to}"]
    for row in plan.rows:
        state = "absent" if row.running is None else row.running.state.value
        run = "no run" if row.run is None else f"run {row.run.epoch}, {'alive' if row.run.is_alive else 'ended'}"
        keys = ", ".join(f"{change.key}={change.after}" for change in row.changes) or "none"
        found += [
            f"{row.name} is {state} in Connect",
            f"it has {run} on Spark",
            f"changed config keys: {keys}",
            f"findings: {'; '.join(_of_findings(row)) or 'none'}",
        ]
    return (*found, *(f"the file {edit.path} is edited" for edit in plan.edits if edit.after is not None))


def _of_findings(row: "Handover") -> Sequence[str]:
    return [str(row.blocked_by)] if row.blocked_by is not None else [row.idle] if row.idle else []
