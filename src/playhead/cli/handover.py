"""`playhead handover`: gives connectors to the other engine, with their positions."""

import sys
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.complete import connector_names
from playhead.cli.connector_files import Files, file_options, wait_options
from playhead.cli.frame import Face, context_options, output_option, pass_face, say, term_interrupts, width_of, write
from playhead.cli.ledgers import ledger_option
from playhead.cli.writes import command_line
from playhead.config.extras import check_extra
from playhead.render import Column, Listing, clean
from playhead.render.width import wrap_message

if TYPE_CHECKING:
    from playhead.connectors.lifecycle import Wait
    from playhead.handover.model import HandoverOptions, HandoverPlan, HandoverResult

PLAN_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("type", "TYPE"),
    Column("to", "TO"),
    Column("connect", "CONNECT"),
    Column("spark", "SPARK"),
    Column("positions", "POSITIONS"),
    Column("steps", "STEPS"),
    Column("findings", "FINDINGS"),
)
OUTCOME_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("to", "TO"),
    Column("state", "STATE"),
    Column("result", "RESULT"),
    Column("detail", "DETAIL", remark=True),
)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=connector_names)
@click.option("--to", type=click.Choice(["spark", "connect"]), required=True, help="The engine that gets them.")
@file_options
@click.option("--accept-repeats", is_flag=True, help="Go on where some records may be sent or delivered a second time.")
@click.option("--execute", is_flag=True, help="Hand them over. Without it nothing is changed.")
@wait_options
@ledger_option
@context_options
@output_option
@pass_face
def handover(
    face: Face, names: tuple[str, ...], to: str, files: Files, accept_repeats: bool, execute: bool, wait: "Wait"
) -> None:
    """Give the connectors NAME, sources and sinks, to the other engine, with their positions. NAME may be a pattern.

    To Spark: each is stopped in Connect, where its config stays; its tasks are fenced; the ledger records that it belongs to
    Spark. Start it with `playhead run`. To Connect: its run ends after the open step; the worker must show the position that
    Spark committed; then it is resumed, and the command waits until it runs. At no time both have it.

    With -f FILE the config of the file counts, and `engine:` is edited in it, comments are kept. After an interrupt, give the
    same command again: it continues. `playhead connectors undo` goes back. --wait also waits for open transactions of the
    database that hold rows back: Connect would skip them.
    """
    check_extra("spark")
    from playhead.connectors.lifecycle import Wait
    from playhead.handover.model import HandoverOptions
    from playhead.handover.plan import Wanted, plan_handover
    from playhead.model import Engine

    options = HandoverOptions(accept_repeats, wait)
    wanted = Wanted(Engine(to), files.read() if files.paths else (), files.paths, options)
    plan = plan_handover(face.context, names, wanted, face.deadline)
    again = ["handover", *names, "--to", to, *(word for path in files.paths for word in ("-f", path))]
    again += ["--accept-repeats"] if accept_repeats else []
    again += [] if wait.wait_seconds == Wait().wait_seconds else ["--wait", f"{wait.wait_seconds:g}s"]
    settle(face, plan, options, execute=execute, again=command_line(face, again))


def settle(face: Face, plan: "HandoverPlan", options: "HandoverOptions", *, execute: bool, again: str) -> None:
    """Shows the plan; with `execute` carries it out. `again`: the command that continues it."""
    from playhead.handover.apply import HandoverInterrupted, apply_handover

    if plan.unfinished is not None:
        say(f"note: continues a hand-over that was interrupted: {plan.unfinished.id}")
    if not execute or (plan.is_empty and not plan.exit_code):
        _show_plan(face, plan)
        say(_closing(plan))
        if plan.exit_code:
            raise click.exceptions.Exit(plan.exit_code)
        return
    try:
        with term_interrupts():
            done = apply_handover(face.context, plan, options, say)
    except HandoverInterrupted as stopped:
        begun = f"{', '.join(stopped.names)} may have no owner now" if stopped.names else "nothing is half done"
        say(f"interrupted: {begun}. It continues with: {again} --execute")
        raise
    _show_outcomes(face, plan, done)
    if code := done.exit_code_with(plan):
        raise click.exceptions.Exit(code)


def _closing(plan: "HandoverPlan") -> str:
    """The last line of a plan that is only shown."""
    if plan.is_empty:
        return "nothing to do"
    blocked = [row.name for row in plan.rows if row.blocked_by]
    if not blocked:
        return "dry run: nothing was changed; add --execute"
    what = f"dry run: nothing was changed; {', '.join(blocked)} cannot be handed over"
    return f"{what}; --execute leaves it out" if plan.doable else what


def _show_plan(face: Face, plan: "HandoverPlan") -> None:
    if face.form in ("table", "wide"):
        text = clean("".join(f"{line}\n" for row in plan.rows for line in row.lines), keep="\n")
        width = width_of(sys.stdout) if face.form == "table" else None
        write(text if width is None else wrap_message(text, width))
    else:
        rows: list[dict[str, Any]] = [row.to_row() for row in plan.rows]
        face.show(Listing(PLAN_COLUMNS, rows))
    for edit in plan.edits:
        if edit.after is not None:
            say(f"file: {edit.path}: engine: {plan.to} for {', '.join(sorted(edit.engines))}")
        for words in edit.by_hand:
            say(f"file: cannot be edited: {words}")
    for note in plan.notes:
        say(f"note: {note}")


def _show_outcomes(face: Face, plan: "HandoverPlan", done: "HandoverResult") -> None:
    face.show(Listing(OUTCOME_COLUMNS, [outcome.to_row() for outcome in done.outcomes]))
    for path, names in done.edited.items():
        say(f"file: {path}: engine: {plan.to} for {', '.join(names)}")
    for words in done.by_hand:
        say(f"file: {words}")
    if plan.to == "spark" and done.there:
        more = [] if done.edited or plan.says_spark(done.there) else ["--engine", "spark"]
        say(f"start: {command_line(face, ['run', *(plan.files or ['FILE']), *done.there, *more])}")
    if done.journal is not None:
        undo = command_line(face, ["connectors", "undo", done.record_id])
        say(f"journal: {done.journal}; undo with: {undo}")
    if done.warning:
        say(f"warning: {done.warning}", style="yellow")
