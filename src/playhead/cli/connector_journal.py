"""`playhead connectors journal`, `undo` and `rename`: what was changed, the way back, and a change that must keep a position."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.complete import connector_names
from playhead.cli.connector_files import OUTCOME_COLUMNS, Files, carry_out, file_options, show_plan, wait_options
from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say, term_interrupts
from playhead.cli.ledgers import ledger_option
from playhead.cli.offset_edits import pairs_of
from playhead.cli.writes import command_line, show_journal
from playhead.config.extras import check_extra
from playhead.errors import Invalid
from playhead.render import Column, Details, Listing
from playhead.render.connectors import record_row

if TYPE_CHECKING:
    from playhead.connectors.journal import ApplyEntry, ApplyRecord
    from playhead.connectors.lifecycle import Wait
    from playhead.handover.model import HandoverOptions

JOURNAL_COLUMNS = (
    Column("id", "ID"),
    Column("started", "STARTED"),
    Column("who", "WHO"),
    Column("what", "WHAT"),
    Column("connectors", "CONNECTORS", show=lambda names: ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")),
    Column("outcome", "OUTCOME"),
    Column("workers", "WORKERS", wide=True, show=", ".join),
)
ENTRY_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("action", "ACTION"),
    Column("before", "BEFORE"),
    Column("after", "AFTER"),
    Column("offsets", "OFFSETS", show=lambda found: "-" if found is None else str(len(found))),
    Column("secrets", "SECRETS NOT KEPT", show=", ".join),
    Column("result", "RESULT"),
    Column("detail", "DETAIL"),
)
STEP_COLUMNS = (Column("step", "STEP", right=True), Column("does", "WOULD"))


@click.command()
@click.argument("record_id", required=False, metavar="[ID]")
@context_options
@output_option
@pass_face
def journal(face: Face, record_id: str | None) -> None:
    """List applies, deletes and undos of connectors, newest first; with ID, show one with every connector. The beginning of an
    ID is enough; `last` is the newest."""
    from playhead.connectors.journal import Book

    book = Book.of_context(face.context)
    if record_id is None:
        records, faults = book.list()
        show_journal(face, JOURNAL_COLUMNS, [record_row(record) for record in records], faults, book.folder)
        return
    record = book.get(record_id)
    entries = Listing(ENTRY_COLUMNS, [_entry_row(entry) for entry in record.entries])
    about = {**record_row(record), "file": str(book.path(record))}
    face.show(Details({**about, "changes": entries}, name="id"))
    if record.finished is None:
        say("note: this was interrupted; `connectors undo` reads the workers and rolls back what was changed")


def _entry_row(entry: "ApplyEntry") -> dict[str, Any]:
    offsets = entry.before.offsets
    return {
        "name": entry.name,
        "action": entry.action,
        "before": entry.before.state,
        "after": entry.after.state,
        "offsets": None if offsets is None else [{"partition": o.partition, "offset": o.offset} for o in offsets],
        "secrets": entry.lost,
        "result": entry.result or "unknown: interrupted",
        "detail": entry.detail,
        "config_before": entry.before.config,
        "config_after": entry.after.config,
    }


_ALLOWED = (
    click.option("--force", is_flag=True, help="Overwrite what something else has changed since."),
    click.option(
        "--accept-repeats", is_flag=True, help="Of a hand-over: go on where some records may come a second time."
    ),
)


def _allowed_options(command: Any) -> Any:
    """The command gets them as `allowed`."""
    names = ("force", "accept_repeats")
    return folded(command, _ALLOWED, "allowed", lambda words: {name: words.pop(name) for name in names})


@click.command()
@click.argument("record_id", required=False, metavar="[ID]")
@file_options
@click.option(
    "--set", "secrets", multiple=True, metavar="KEY=VALUE", help="A secret that the journal does not keep; repeatable."
)
@_allowed_options
@click.option("--execute", is_flag=True, help="Execute the plan. Without it nothing is changed.")
@wait_options
@ledger_option
@context_options
@output_option
@pass_face
def undo(
    face: Face,
    record_id: str | None,
    files: Files,
    secrets: tuple[str, ...],
    allowed: dict[str, bool],
    execute: bool,
    wait: "Wait",
) -> None:
    """Undo an apply or a delete. ID is listed by `connectors journal`; its beginning is enough. Without ID, or with `last`: the
    newest one that changed something on this cluster.

    Created connectors are deleted, changed ones set back, deleted ones created again, with their state and offsets. A connector
    that something else has changed since is refused, unless --force is given.

    The journal keeps no literal secrets. One that is gone must be given again: by -f and the file of the connector, or by --set.
    An undo is a plan like any other: it is shown, recorded in the journal, and can be undone.
    """
    from playhead.connectors.undo import HANDOVER, Given, get_record, plan_undo

    record = get_record(face.context, record_id, face.deadline)
    say(f"undoing {record.id} ({record.what}) of {record.started:%Y-%m-%d %H:%M:%SZ} by {record.who}")
    if record.what.startswith(HANDOVER):
        check_extra("spark")
        from playhead.handover.model import HandoverOptions

        _undo_handover(face, record, files, HandoverOptions(allowed["accept_repeats"], wait), execute=execute)
        return
    given = Given(pairs_of(secrets), files.read() if files.paths else ())
    plan = plan_undo(face.context, record, face.deadline, given, force=allowed["force"])
    if not execute or plan.is_empty:
        show_plan(face, plan)
        say(plan.summary)
        say("nothing to undo" if plan.is_empty else "dry run: nothing was changed; add --execute")
        return
    for note in plan.notes:
        say(f"note: {note}")
    carry_out(face, plan, wait)


def _undo_handover(
    face: Face, record: "ApplyRecord", files: Files, options: "HandoverOptions", *, execute: bool
) -> None:
    """The other way; with the files of the hand-over, unless others are given."""
    from playhead.cli.handover import settle
    from playhead.handover.apply import plan_back

    paths = files.paths or tuple(path for path in record.files if path != "-")
    specs = replace(files, paths=paths).read() if paths else ()
    plan = plan_back(face.context, record, specs, options, face.deadline)
    settle(face, plan, options, execute=execute, again=command_line(face, ["connectors", "undo", record.id]))


@click.command()
@click.argument("old", shell_complete=connector_names)
@click.argument("new")
@file_options
@click.option("--execute", is_flag=True, help="Rename it. Without it nothing is changed.")
@wait_options
@context_options
@output_option
@pass_face
def rename(face: Face, old: str, new: str, files: Files, execute: bool, wait: "Wait") -> None:
    """Rename the connector OLD to NEW, with its offsets; for a sink those of its group.

    OLD is stopped, NEW is created stopped with the config of OLD, or with that of NEW in the files of -f. It gets the offsets,
    which are read back, and then the state of OLD. At last OLD is deleted. At no time both run. After an interrupt, give the same
    command again: it continues. If the offsets cannot be carried, NEW is deleted and OLD gets its state back.
    """
    from playhead.connectors.lifecycle import exit_code_of
    from playhead.connectors.rename import apply_rename, plan_rename

    spec = next((spec for spec in files.read() if spec.name.strip() == new), None) if files.paths else None
    if files.paths and spec is None:
        raise Invalid(f"the files have no connector {new}")
    plan = plan_rename(face.context, old, new, face.deadline, spec)
    for change in plan.changes:
        say(f"note: {change.key}: {change.words if change.kind != 'removed' else 'removed'}")
    if plan.unfinished is not None:
        say(f"note: continues a rename that was interrupted: {plan.unfinished.id}")
    if not execute:
        face.show(Listing(STEP_COLUMNS, [{"step": at, "does": words} for at, words in enumerate(plan.steps, 1)]))
        say("dry run: nothing was changed; add --execute")
        return
    try:
        with term_interrupts():
            done = apply_rename(face.context, plan, wait, say)
    except KeyboardInterrupt:
        again = command_line(face, ["connectors", "rename", old, new, *(w for p in files.paths for w in ("-f", p))])
        say(f"interrupted: {old} may be stopped. It continues with: {again} --execute")
        raise
    face.show(Listing(OUTCOME_COLUMNS, [outcome.to_row() for outcome in done.outcomes]))
    say(f"journal: {done.journal}")
    if done.warning:
        say(f"warning: {done.warning}", style="yellow")
    if code := exit_code_of([outcome.result for outcome in done.outcomes]):
        raise click.exceptions.Exit(code)
