"""Shared by every writing command: its options, the display of its plan, the apply, the exit code.

Without `--execute` the plan is shown and nothing is changed.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from playhead.cli.frame import Face, folded, program, say
from playhead.errors import PlayheadError
from playhead.files import replace_file
from playhead.render import Column, Listing, plain
from playhead.render.positions import outcome_row, plan_row

if TYPE_CHECKING:
    from playhead.model import Change, Outcomes, Plan
    from playhead.offsets.journal import JournalEntry
    from playhead.offsets.stop_restore import StoppedConnectors
    from playhead.stores import Store

F = TypeVar("F", bound=Callable[..., Any])
PERMITS = ("--force", "--worker-is-down", "--query-is-stopped")

PLAN_COLUMNS = (
    Column("owner", "OWNER"),
    Column("partition", "PARTITION"),
    Column("before", "BEFORE"),
    Column("after", "AFTER", show=lambda offset: "(deleted)" if offset is None else plain(offset)),
    Column("note", "NOTE", remark=True),
)
RESULT_COLUMNS = (Column("result", "RESULT"), Column("detail", "DETAIL", remark=True))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    execute: bool = False
    save_plan: Path | None = None
    permits: frozenset[str] = frozenset()
    stop: bool = False


def plan_options(command: F) -> F:
    """The options of a write without a safety check to override; the command gets them as `options: WriteOptions`."""
    return folded(command, _OPTIONS[:2], "options", lambda w: WriteOptions(w.pop("execute"), w.pop("save_plan")))


def write_options(command: F) -> F:
    """Adds the options of a write; the command gets them as `options: WriteOptions`."""

    def fold(words: dict[str, Any]) -> WriteOptions:
        chosen = frozenset(flag for flag in PERMITS if words.pop(flag.strip("-").replace("-", "_")))
        return WriteOptions(words.pop("execute"), words.pop("save_plan"), chosen, words.pop("stop"))

    return folded(command, _OPTIONS, "options", fold)


_OPTIONS = (
    click.option("--execute", is_flag=True, help="Execute the plan. Without it nothing is changed."),
    click.option(
        "--save-plan",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Save the plan for review and `playhead offsets apply FILE`.",
    ),
    click.option("--stop", is_flag=True, help="Stop the connector first, and restore its state afterwards."),
    click.option(
        "--force", is_flag=True, help="Write although a running process may overwrite it; recorded in the journal."
    ),
    click.option("--worker-is-down", is_flag=True, help="Standalone file: confirm that its worker is down."),
    click.option("--query-is-stopped", is_flag=True, help="Spark checkpoint: confirm that its query is stopped."),
)


def carry_out(
    face: Face,
    store: "Store",
    plan: "Plan",
    options: WriteOptions,
    *,
    stopped: "StoppedConnectors | None" = None,
    show: Callable[[], None] | None = None,
    if_moved: str = "plan again",
) -> None:
    """Shows the plan; with --execute applies it, shows the outcomes and exits with their code.

    `show` prints the plan in a command's own columns instead of the common ones. `if_moved`: what to do about a position that is
    no longer what the plan starts from.
    """
    outcomes = _carried_out(face, store, plan, options, stopped, show, if_moved)
    if outcomes.exit_code:
        raise click.exceptions.Exit(outcomes.exit_code)


def carry_out_all(
    face: Face,
    plans: "Sequence[tuple[Store, Plan]]",
    options: WriteOptions,
    *,
    stopped: "StoppedConnectors | None" = None,
) -> None:
    """Carries out one plan per store, in order. The exit code is that of the worst outcome."""
    from playhead.model import Outcomes

    outcomes = [outcome for store, plan in plans for outcome in _carried_out(face, store, plan, options, stopped)]
    if code := Outcomes(outcomes).exit_code:
        raise click.exceptions.Exit(code)


def _carried_out(
    face: Face,
    store: "Store",
    plan: "Plan",
    options: WriteOptions,
    stopped: "StoppedConnectors | None" = None,
    show: Callable[[], None] | None = None,
    if_moved: str = "plan again",
) -> "Outcomes":
    from playhead.model import Outcomes

    say(f"store: {plan.store}")
    for warning in plan.warnings:
        say(f"warning: {face.completed(warning)}", style="yellow")
    if options.save_plan is not None:
        replace_file(options.save_plan, plan.to_json())
        say(f"plan saved: {program()} offsets apply {shlex.quote(str(options.save_plan))}")
    if plan.is_empty:
        face.show(plan_listing(()))
        return Outcomes()
    if not options.execute:
        (show or (lambda: face.show(plan_listing(plan.changes))))()
        say(f"dry run: nothing was changed ({len(plan.changes)} planned); add --execute")
        return Outcomes()
    return _apply(face, store, plan, options, stopped, if_moved)


def _apply(
    face: Face,
    store: "Store",
    plan: "Plan",
    options: WriteOptions,
    stopped: "StoppedConnectors | None",
    if_moved: str,
) -> "Outcomes":
    from playhead.offsets.apply import Permissions
    from playhead.offsets.journal import Journal
    from playhead.offsets.stop_restore import apply_stopped

    begun: list[JournalEntry] = []
    permissions = Permissions(options.permits, stopped.states if stopped else {}, face.deadline, if_moved)
    try:
        applied = apply_stopped(store, plan, Journal.of_context(face.context), permissions, stopped, begun.append)
    except KeyboardInterrupt:
        if begun:
            say(f"interrupted while writing: {undo_line(face, begun[0])} shows what was written")
        raise
    outcomes = applied.outcomes
    face.show(outcome_listing(outcomes))
    if applied.entry is not None and applied.entry.may_have_changed:
        say(f"journal: {applied.entry.id}; undo with: {undo_line(face, applied.entry)}")
    if applied.warning:
        say(f"warning: {applied.warning}", style="yellow")
    if not options.stop and applied.running:
        say("  --stop stops the connector for the edit and restores its state afterwards")
    return outcomes


def show_journal(
    face: Face, columns: Sequence[Column], rows: Sequence[dict[str, Any]], faults: Sequence[str], folder: Path
) -> None:
    """The list of a journal, of positions or of connectors. `faults`: records that cannot be read."""
    face.show(Listing(columns, rows, name="id", empty=f"nothing was changed yet: {folder}"))
    for fault in faults:
        say(f"note: {fault}")


def undo_line(face: Face, entry: "JournalEntry") -> str:
    """The command that undoes this apply, with the flags that name its store: it must work as printed."""
    words = ["offsets", "undo", entry.id]
    if not _is_found_again(entry.plan.store, face):
        words += ["--store", entry.plan.store]
    return command_line(face, words)


def command_line(face: Face, words: Sequence[str]) -> str:
    """A command of this program in the context of this one, as it can be pasted: with the options that were typed."""
    words = [*words, *(word for pair in face.typed for word in pair)]
    return f"{program()} {shlex.join(words)}"


def _is_found_again(uri: str, face: Face) -> bool:
    """Whether `undo` uses this store without --store. If that cannot be decided, --store is always right."""
    from playhead.stores.open import is_of_context

    try:
        return is_of_context(uri, face.context)
    except PlayheadError:
        return False


def plan_listing(changes: "Sequence[Change]", empty: str = "nothing to change: already as requested") -> Listing:
    rows = [plan_row(change) for change in changes]
    return Listing(PLAN_COLUMNS, rows, name="owner", empty=empty, blocks=True)


def outcome_listing(outcomes: "Outcomes") -> Listing:
    """The columns of the plan, in its order, and what became of each change."""
    rows = [outcome_row(outcome) for outcome in outcomes]
    planned = PLAN_COLUMNS if any(row["note"] for row in rows) else PLAN_COLUMNS[:-1]
    return Listing((*planned, *RESULT_COLUMNS), rows, name="owner", blocks=True)
