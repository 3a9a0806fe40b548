"""`playhead connectors`."""

from dataclasses import asdict

import click

from playhead.cli.complete import connector_names
from playhead.cli.frame import Face, LazyGroup, context_options, output_option, pass_face
from playhead.render import Column, Details, Listing

COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("type", "TYPE"),
    Column("state", "STATE"),
    Column("tasks", "TASKS", right=True),
    Column("connector_class", "CLASS", wide=True),
    Column("worker", "WORKER", wide=True),
)


@click.group(cls=LazyGroup)
def connectors() -> None:
    """Connectors and their state."""


@connectors.command("list")
@context_options
@output_option
@pass_face
def list_(face: Face) -> None:
    """List the connectors of the cluster."""
    from playhead.connectors import list_connectors

    rows = [asdict(row) for row in list_connectors(face.context, face.deadline)]
    face.show(Listing(COLUMNS, rows, empty="the cluster has no connector"))


@connectors.command()
@click.argument("name", shell_complete=connector_names)
@context_options
@output_option
@pass_face
def show(face: Face, name: str) -> None:
    """Show one connector."""
    from playhead.connectors import show_connector

    face.show(Details(asdict(show_connector(face.context, name, face.deadline))))
