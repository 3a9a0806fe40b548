"""The verbs of `playhead offsets` that read or write files of positions."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from playhead.cli.complete import connector_names
from playhead.cli.frame import Face, context_options, debug_option, output_option, pass_face, say, write
from playhead.cli.offset_edits import bytes_of, pairs_of, stopped_if_asked
from playhead.cli.offsets import Where, selection_options
from playhead.cli.writes import WriteOptions, carry_out_all, plan_listing, write_options
from playhead.errors import Invalid
from playhead.offsets.formats.forms import FORMS

if TYPE_CHECKING:
    from playhead.model import Positions

FORMS_OF_GROUPS = ("csv", "rpk", "yelp", "spark")
FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
_form = click.option(
    "--from", "form", type=click.Choice(list(FORMS)), help="The format of the file [default: detected]."
)
_owner = click.option("--owner", metavar="OWNER", help="The owner of the positions, if the file does not name it.")


@click.command()
@click.argument("owners", nargs=-1, metavar="[OWNER]...", shell_complete=connector_names)
@click.option(
    "--to", "form", type=click.Choice(list(FORMS)), default="kip199", show_default=True, help="The format to write."
)
@click.option("--file", "file", type=FILE, default="-", help="Output file [default: stdout].")
@selection_options
@context_options
@pass_face
def export(face: Face, owners: tuple[str, ...], form: str, file: Path, where: Where) -> None:
    """Write positions of all owners or of some, in a format that `offsets import` reads."""
    from playhead.model import Positions
    from playhead.offsets.entries import list_entries
    from playhead.offsets.formats.forms import write_positions

    found, _ = list_entries(where.locator(face), owners)
    positions = Positions(entry.position for entry in found.current().values())
    if form in FORMS_OF_GROUPS:  # these name groups as Kafka does
        positions = Positions(replace(p, owner=p.owner.removeprefix("group:")) for p in positions)
    _deliver(write_positions(positions, form), file)
    for note in found.notes:
        say(f"note: {note}")


@click.command("import")
@click.argument("file", type=FILE)
@_form
@_owner
@write_options
@selection_options
@context_options
@output_option
@pass_face
def import_(
    face: Face,
    file: Path,
    form: str | None,
    owner: str | None,
    where: Where,
    options: WriteOptions,
) -> None:
    """Set positions as in FILE: null deletes a position, partitions that are not in FILE are not changed."""
    from playhead.offsets.plan import plan_import

    wanted = _positions(file, form, owner)
    plans = plan_import(where.locator(face).for_positions(wanted))
    if options.save_plan is not None and len(plans) > 1:
        raise Invalid(
            "these positions are in several stores, but a plan is for one store", "import their owners one by one"
        )
    with stopped_if_asked(face, options, wanted.owners) as held:
        if held is not None:
            plans = plan_import(where.locator(face).for_positions(wanted))
        carry_out_all(face, plans, options, stopped=held)


@click.command()
@click.argument("file", type=FILE)
@click.argument("other", type=FILE, required=False)
@_form
@_owner
@selection_options
@context_options
@output_option
@pass_face
def diff(
    face: Face,
    file: Path,
    other: Path | None,
    form: str | None,
    owner: str | None,
    where: Where,
) -> None:
    """Compare stored positions with FILE, or FILE with OTHER. Exit code 1 if they differ.

    Owners that are not in FILE are ignored.
    """
    from playhead.model import Positions
    from playhead.offsets.plan import diff_positions, positions_of

    right = _positions(file, form, owner)
    if other is not None:
        left, right = right, _positions(other, form, owner)
    else:
        targets = where.locator(face).for_positions(right)
        left = Positions(p for target, _ in targets for p in positions_of(target.store, [target.owner]))
        right = Positions(p for _, own in targets for p in own)
    changes = diff_positions(left, right)
    face.show(plan_listing(changes, empty="no difference"))
    if changes:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("file", type=FILE)
@click.option("--to", "target", type=click.Choice(list(FORMS)), required=True, help="The format to write.")
@click.option("--file", "output", type=FILE, default="-", help="Output file [default: stdout].")
@click.option("--map", "pairs", multiple=True, metavar="OLD=NEW", help="Rename an owner or topic; repeatable.")
@_form
@_owner
@debug_option
def convert(file: Path, target: str, output: Path, pairs: tuple[str, ...], form: str | None, owner: str | None) -> None:
    """Convert FILE to another format: Connect's JSON, Kafka's CSV, rpk's lines, Spark's startingOffsets, ...

    Works on files only, without any server.
    """
    from playhead.offsets.formats.forms import write_positions
    from playhead.offsets.plan import renamed_positions

    positions = renamed_positions(_positions(file, form, owner), pairs_of(pairs))
    _deliver(write_positions(positions, target), output)


def _positions(file: Path, form: str | None, owner: str | None) -> "Positions":
    from playhead.offsets.formats.forms import read_positions

    where = "stdin" if str(file) == "-" else str(file)
    return read_positions(bytes_of(file), where, form, owner)


def _deliver(text: str, file: Path) -> None:
    if str(file) == "-":
        write(text)
    else:
        file.write_text(text, "utf-8")
        say(f"written to {file}")
