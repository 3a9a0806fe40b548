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
    """Show the versions of this client and of every broker and worker of the context.

    Exit code 3 if one of them could not be reached.
    """
    from playhead.checkup import collect_versions

    context = face.context
    if context.name:
        say(f"context: {context.name}")
    found = collect_versions(context, face.deadline)
    rows = [
        {"part": v.part, "version": v.version, "address": v.address, "problem": v.fault.what if v.fault else None}
        for v in found
    ]
    faults = [v.fault for v in found if v.fault]
    face.show(Listing(COLUMNS if faults or face.form == "csv" else COLUMNS[:3], rows, name="part"))
    for hint in dict.fromkeys(fault.hint for fault in faults if fault.hint):
        say(hint)
    if faults:
        raise click.exceptions.Exit(max(fault.exit_code for fault in faults))
