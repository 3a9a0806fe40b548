"""`playhead offsets`: so far, seeing them."""

import sys

import click

from playhead.cli.complete import connector_names
from playhead.cli.frame import Face, LazyGroup, context_options, output_option, pass_face, say
from playhead.render import Column, Listing
from playhead.render.progress import ProgressLine

COLUMNS = (
    Column("owner", "CONNECTOR"),
    Column("partition", "PARTITION"),
    Column("offset", "OFFSET"),
    Column("kafka_partition", "KAFKA PARTITION", right=True),
    Column("kafka_offset", "KAFKA OFFSET", wide=True, right=True),
    Column("written", "WRITTEN", wide=True),
    Column("notes", "NOTES", wide=True, show="; ".join),
)


@click.group(cls=LazyGroup)
def offsets() -> None:
    """Source offsets, read straight from the store of the context's worker file."""


@offsets.command("list")
@click.argument("owners", nargs=-1, metavar="[CONNECTOR]...", shell_complete=connector_names)
@context_options
@output_option
@pass_face
def list_(face: Face, owners: tuple[str, ...]) -> None:
    """List the live position of every source partition, of all connectors or of some.

    Connectors that were deleted are listed too: their offsets stay, and a new connector of the same name picks them up.
    """
    _show(face, owners, history=False)


@offsets.command()
@click.argument("owners", nargs=-1, metavar="[CONNECTOR]...", shell_complete=connector_names)
@context_options
@output_option
@pass_face
def history(face: Face, owners: tuple[str, ...]) -> None:
    """List every position that is still readable, oldest first, overwritten ones and removals included."""
    _show(face, owners, history=True)


def _show(face: Face, owners: tuple[str, ...], *, history: bool) -> None:
    from playhead.offsets import store_of_context

    line = ProgressLine(sys.stderr)
    store = store_of_context(face.context, face.deadline, line.reading)
    found = (store.history if history else store.snapshot)(owners or None)
    line.clear()
    rows = [
        {
            "owner": entry.position.owner,
            "partition": entry.position.partition.to_dict(),
            "offset": entry.position.offset.to_dict() if entry.position.offset is not None else None,
            **entry.where,
            "notes": list(entry.notes),
        }
        for entry in found.entries
    ]
    face.show(Listing(COLUMNS, rows, name="owner", empty=f"no offsets in {store.uri}"))
    noted = sum(bool(entry.notes) for entry in found.entries)
    if noted and face.form == "table":
        say(f"note: {noted} of these have notes: see them with -o wide")
    for note in found.notes:
        say(f"note: {note}")
