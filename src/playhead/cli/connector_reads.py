"""The reading verbs of `playhead connectors`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.complete import connector_names
from playhead.cli.frame import Face, context_options, output_option, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.render import Column, Details, Listing
from playhead.render.connectors import connector_fields

if TYPE_CHECKING:
    from playhead.connectors import ShownConnector

COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("type", "TYPE", hide=1),
    Column("engine", "ENGINE", hide=2),
    Column("state", "STATE"),
    Column("tasks", "TASKS", right=True),
)
PLACE_COLUMNS = (Column("lag", "LAG", right=True), Column("position", "POSITION"))
WIDE_COLUMNS = (Column("connector_class", "CLASS", wide=True), Column("worker", "WORKER", wide=True))
TASK_COLUMNS = (
    Column("id", "TASK", right=True),
    Column("state", "STATE"),
    Column("worker", "WORKER", hide=1),
    Column("cause", "CAUSE"),
)
POSITION_COLUMNS = (
    Column("position", "POSITION", text=True),
    Column("partition", "PARTITION", wide=True),
    Column("offset", "OFFSET", wide=True),
    Column("lag", "LAG", right=True),
)
CONFIG_COLUMNS = (Column("key", "KEY"), Column("value", "VALUE"))
PLUGIN_COLUMNS = (
    Column("class", "CLASS"),
    Column("type", "TYPE"),
    Column("version", "VERSION"),
    Column("engine", "ENGINE", hide=1),
    Column("origin", "ORIGIN", hide=2),
)


@click.command("list")
@click.argument("patterns", nargs=-1, metavar="[NAME]...", shell_complete=connector_names)
@click.option(
    "--positions",
    is_flag=True,
    help="Show the lag of sinks and the position of sources; implied by -o wide, json and yaml.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Include runs on Spark that finished more than a day ago or were forgotten.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only connectors that are, or have a task that is, in this state, like failed; repeatable, or with commas.",
)
@ledger_option
@context_options
@output_option
@pass_face
def list_(face: Face, patterns: tuple[str, ...], positions: bool, everything: bool, states: tuple[str, ...]) -> None:
    """List the connectors of the cluster, or those that match NAME: a name, or a quoted pattern like 'orders-*'.

    STATE includes the tasks: `running, 1 of 3 tasks failed` does not count as running. LAG is the number of records
    between a sink's commits and the ends of its topics; for a sink on Spark, its position is read from the ledger.
    """
    from playhead.connectors import list_connectors
    from playhead.connectors.status import known_states, with_states

    wanted = known_states(state for given in states for state in given.split(","))
    positions = positions or face.form in ("wide", "json", "yaml")
    found = list_connectors(face.context, face.deadline, patterns, positions=positions, everything=everything)
    columns = (*COLUMNS, *(PLACE_COLUMNS if positions else ()), *WIDE_COLUMNS)
    rows = with_states(found, wanted) if wanted else list(found)
    empty = f"no connector is {' or '.join(sorted(wanted))}" if wanted else "the cluster has no connector"
    face.show(Listing(columns, [asdict(row) for row in rows], empty=empty))
    for note in found.notes:
        say(f"note: {note}")


@click.command()
@click.argument("name", shell_complete=connector_names)
@ledger_option
@context_options
@output_option
@pass_face
def show(face: Face, name: str) -> None:
    """Show one connector: config without secrets, tasks and the cause of failures, topics it used, position."""
    from playhead.connectors import show_connector

    shown = show_connector(face.context, name, face.deadline)
    face.show(Details(_fields(shown, for_people=face.form in ("table", "wide"))))
    for note in shown.notes:
        say(f"note: {note}")


def _fields(shown: "ShownConnector", *, for_people: bool) -> dict[str, Any]:
    fields = connector_fields(shown)
    if for_people:
        config = [{"key": key, "value": value} for key, value in sorted(shown.config.items())]
        fields = {key: value for key, value in fields.items() if value is not None or key == "topics"}
        fields |= {"topics": ", ".join(shown.topics) or None, "config": Listing(CONFIG_COLUMNS, config)}
    return fields | {
        "tasks": Listing(TASK_COLUMNS, fields["tasks"], name="id"),
        "positions": Listing(POSITION_COLUMNS, fields["positions"], name="position"),
    }


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include converters, transforms and predicates.")
@context_options
@output_option
@pass_face
def plugins(face: Face, everything: bool) -> None:
    """List the connector classes: of the worker that answers, and those written in Python.

    Other workers of the cluster may have others. Connectors in Python are installed packages with the entry point
    group playhead.connectors, and what is in the folders and wheels of plugin.path.
    """
    from playhead.connectors.workers import list_plugins
    from playhead.pipeline.classes import CLASSES

    found = list_plugins(face.context, face.deadline, everything=everything)
    rows = [
        {
            "class": one.class_name,
            "type": one.type or None,
            "version": one.version,
            "engine": ", ".join([one.engine, *(["spark"] if one.class_name in CLASSES else [])]),
            "origin": one.origin,
        }
        for one in found.rows
    ]
    face.show(Listing(PLUGIN_COLUMNS, rows, name="class", empty="there is no plugin"))
    for note in found.notes:
        say(f"note: {note}")
    if found.error is not None:
        raise found.error
