"""`playhead offsets`: its commands, imported on first use, and their shared options."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from playhead.cli.frame import Face, LazyGroup, folded
from playhead.cli.ledgers import ledger_option

if TYPE_CHECKING:
    from playhead.offsets.locate import Locator
    from playhead.render.progress import ProgressLine

F = TypeVar("F", bound=Callable[..., Any])
_READS, _EDITS, _FILES = "playhead.cli.offset_reads", "playhead.cli.offset_edits", "playhead.cli.offset_files"
COMMANDS = {
    "list": (f"{_READS}:list_", "The current positions, of all owners or of some."),
    "show": (f"{_READS}:show", "The position of one owner, explained."),
    "history": (f"{_READS}:history", "All positions still readable, including overwritten ones."),
    "set": (f"{_EDITS}:set_", "Set fields of a position."),
    "reset": (f"{_EDITS}:reset", "Move to the start, the end, a time, an offset."),
    "delete": (f"{_EDITS}:delete", "Delete positions, so that the owner starts over."),
    "copy": (f"{_EDITS}:copy", "Copy the position of one owner to another."),
    "export": (f"{_FILES}:export", "Write positions to a file, in one of many formats."),
    "import": (f"{_FILES}:import_", "Set positions as in a file."),
    "diff": (f"{_FILES}:diff", "Compare positions with a file."),
    "convert": (f"{_FILES}:convert", "Convert a file of positions to another format."),
    "apply": (f"{_EDITS}:apply", "Execute a saved plan."),
    "undo": (f"{_EDITS}:undo", "Undo an apply."),
    "journal": (f"{_READS}:journal", "List changes: what, when and by whom."),
    "doctor": (f"{_READS}:doctor", "Find problems in stored positions, and how to fix them."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    instead={"create": "playhead offsets set OWNER FIELD=VALUE --create shows the position that would be created"},
)
def offsets() -> None:
    """Positions of connectors, groups and queries: show, plan, move, verify and undo them.

    OWNER is a connector of the context, a sink of the ledger that runs on Spark, `group:NAME`, or a name inside the store of
    --store.
    """


@dataclass(frozen=True, slots=True)
class Where:
    """The store to use instead of those of the context, and how to reach it."""

    uri: str | None
    via: str | None

    def locator(self, face: Face, line: "ProgressLine | None" = None) -> "Locator":
        from playhead.offsets.locate import Locator

        if line is not None:
            face.access.progress = line.reading
        return Locator(face.access, self.uri, self.via)


_OPTIONS = (
    click.option(
        "--store",
        metavar="URI",
        help="Any store: kafka://broker/topic, connect+http://worker:8083, file:path, groups://broker, checkpoint:path, "
        "sql+sqlite:///path, ledger+sqlite:///path.",
    ),
    click.option(
        "--via", type=click.Choice(["rest", "topic"]), help="Use the workers, or access the stored offsets directly."
    ),
    ledger_option,
)


def selection_options(command: F) -> F:
    """Adds `--store`, `--via` and `--ledger`; the command gets them as `where: Where`, `--ledger` in its context."""
    return folded(command, _OPTIONS, "where", lambda words: Where(words.pop("store"), words.pop("via")))
