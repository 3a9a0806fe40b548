"""`playhead info`."""

import click

from playhead.cli.frame import Face, context_options, output_option, pass_face, say
from playhead.render import Column, Listing

COLUMNS = (
    Column("part", "PART"),
    Column("version", "VERSION"),
    Column("address", "ADDRESS"),
    Column("problem", "PROBLEM"),
)


@click.command()
@context_options
@output_option
@pass_face
def info(face: Face) -> None:
    """Show the versions of this client and of every broker and worker of the context."""
    from playhead.checkup import collect_versions

    context = face.context
    if context.name:
        say(f"context: {context.name}")
    rows = collect_versions(context, face.deadline)
    columns = COLUMNS if any(row["problem"] for row in rows) else COLUMNS[:3]
    face.show(Listing(columns, rows, name="part"))
