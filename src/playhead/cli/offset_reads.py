"""The reading verbs of `playhead offsets`."""

import gc
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.complete import connector_names
from playhead.cli.frame import Face, context_options, output_option, pass_face, say
from playhead.cli.offsets import Where, selection_options
from playhead.render import Column, Details, Listing, Rows
from playhead.render.positions import entry_row, journal_row, shown_row
from playhead.render.progress import ProgressLine

if TYPE_CHECKING:
    from playhead.stores import Stored

COLUMNS = (
    Column("owner", "OWNER"),
    Column("partition", "PARTITION"),
    Column("offset", "OFFSET"),
    Column("kafka_partition", "KAFKA PARTITION", right=True, hide=1),
    Column("kafka_offset", "KAFKA OFFSET", wide=True, right=True),
    Column("written", "WRITTEN", wide=True),
    Column("notes", "NOTES", wide=True, show="; ".join, remark=True),
)
SHOWN_COLUMNS = (
    Column("position", "POSITION", text=True),
    Column("partition", "PARTITION", wide=True),
    Column("offset", "OFFSET"),
    Column("lag", "LAG", right=True),
    Column("notes", "NOTES", show=lambda notes: "; ".join(notes) or "-", remark=True),
)
JOURNAL_COLUMNS = (
    Column("id", "ID"),
    Column("started", "STARTED"),
    Column("who", "WHO", hide=1),
    Column("owners", "OWNERS", show=", ".join),
    Column("outcome", "OUTCOME"),
    Column("store", "STORE", wide=True),
)
FINDING_COLUMNS = (
    Column("kind", "FINDING"),
    Column("owner", "OWNER"),
    Column("what", "WHAT"),
    Column("mend", "MEND IT WITH", command=True),
)


@click.command("list")
@click.argument("owners", nargs=-1, metavar="[OWNER]...", shell_complete=connector_names)
@selection_options
@context_options
@output_option
@pass_face
def list_(face: Face, owners: tuple[str, ...], where: Where) -> None:
    """List the current position of every partition, of all owners or of some.

    Deleted connectors are included: their offsets stay, and a new connector of the same name uses them.
    """
    _show(face, owners, where, history=False)


@click.command()
@click.argument("owners", nargs=-1, metavar="[OWNER]...", shell_complete=connector_names)
@selection_options
@context_options
@output_option
@pass_face
def history(face: Face, owners: tuple[str, ...], where: Where) -> None:
    """List every position that is still readable, oldest first, overwritten ones and removals included."""
    _show(face, owners, where, history=True)


def _show(face: Face, owners: tuple[str, ...], where: Where, *, history: bool) -> None:
    from playhead.offsets.entries import list_entries

    gc.disable()  # hundreds of thousands of entries and no cycle: a collection would only scan them repeatedly
    line = ProgressLine(sys.stderr)
    found, place = list_entries(where.locator(face, line), owners, history=history)
    line.clear()
    rows = Rows(found.entries, entry_row)
    columns = (
        COLUMNS if any("kafka_partition" in entry.where for entry in found.entries) else _with_where(found.entries)
    )
    face.show(Listing(columns, rows, name="owner", empty=f"no offsets in {place}"))
    noted = sum(bool(entry.notes) for entry in found.entries)
    if noted and face.form == "table":
        say(f"note: {noted} of these have notes: -o wide shows them")
    for note in found.notes:
        say(f"note: {note}")


def _with_where(entries: "tuple[Stored, ...]") -> tuple[Column, ...]:
    """Columns for what a store reports about its entries other than a place in a topic: a batch, a commit's metadata, ..."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.where))
    return (*COLUMNS[:3], *(Column(name, name.replace("_", " ").upper()) for name in names), COLUMNS[-1])


@click.command()
@click.argument("owner", shell_complete=connector_names)
@selection_options
@context_options
@output_option
@pass_face
def show(face: Face, owner: str, where: Where) -> None:
    """Show the position of OWNER in the terms of its connector, and what starting over would mean."""
    from playhead.offsets.show import show_owner

    shown = show_owner(where.locator(face), owner)
    rows = [shown_row(item) for item in shown.positions]
    fields: dict[str, Any] = {"owner": shown.owner, "store": shown.store, **shown.about}
    columns = [column for column in SHOWN_COLUMNS if column.key != "lag" or any(row["lag"] is not None for row in rows)]
    face.show(Details({**fields, "positions": Listing(columns, rows)}, name="owner"))
    for note in shown.notes:
        say(f"note: {note}")


@click.command()
@click.argument("entry_id", required=False, metavar="[ID]")
@context_options
@output_option
@pass_face
def journal(face: Face, entry_id: str | None) -> None:
    """List changes, newest first; with ID, show one apply with every outcome. The beginning of an ID is enough; `last` is the
    newest."""
    from playhead.cli.writes import outcome_listing, plan_listing, show_journal
    from playhead.offsets.journal import Journal

    book = Journal.of_context(face.context)
    if entry_id is None:
        entries, faults = book.list()
        show_journal(face, JOURNAL_COLUMNS, [journal_row(entry) for entry in entries], faults, book.folder)
        return
    entry = book.get(entry_id)
    changes = outcome_listing(entry.outcomes) if entry.outcomes is not None else plan_listing(entry.plan.changes)
    about = {**journal_row(entry), "lifted": list(entry.lifted), "states": dict(entry.states or {})}
    face.show(Details({**about, "changes": changes}, name="id"))
    if entry.outcomes is None:
        say("note: this apply was interrupted; `offsets undo` reads the store and rolls back what was written")


@click.command()
@selection_options
@context_options
@output_option
@pass_face
def doctor(face: Face, where: Where) -> None:
    """Find problems in stored positions: orphans, twins, misplaced keys, open transactions, ...

    Every finding names the command that fixes it. Exit code 1 if there are findings.
    """
    from playhead.offsets.doctor import diagnose

    line = ProgressLine(sys.stderr)
    diagnosis = diagnose(where.locator(face, line))
    line.clear()
    rows = [asdict(finding) for finding in diagnosis.findings]
    face.show(Listing(FINDING_COLUMNS, rows, name="kind", names=("owner",), empty="nothing found"))
    for note in diagnosis.notes:
        say(f"note: {note}")
    if rows:
        raise click.exceptions.Exit(1)
