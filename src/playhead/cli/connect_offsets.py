"""`connect-offsets`: the tool KIP-199 proposed. So far its export."""

import select
import sys
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from playhead.cli.frame import debug_option, run_command, say, write
from playhead.errors import Invalid
from playhead.model import Deadline, Map
from playhead.model.position import Scalar
from playhead.render.clean import clean_json
from playhead.render.progress import ProgressLine


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", "config", required=True, type=click.Path(path_type=Path), help="The worker's properties file."
)
@click.option(
    "--export",
    "target",
    is_flag=False,
    flag_value="-",
    default=None,
    metavar="[FILE]",
    help="Write the offsets as JSON.",
)
@click.option(
    "--import", "source", is_flag=False, flag_value="-", default=None, metavar="[FILE]", help="Not there yet."
)
@click.option("--connectors", metavar="A,B", help="Only these connectors.")
@click.option("--from-beginning", is_flag=True, help="Every pair in log order, overwritten ones and removals included.")
@click.option("--timeout", default="60s", show_default=True, help="Time for the whole command.")
@debug_option
def connect_offsets(
    config: Path, target: str | None, source: str | None, connectors: str | None, from_beginning: bool, timeout: str
) -> None:
    """Print the source offsets that Connect keeps, by connector name, as JSON.

    The worker file decides where they are: the topic of a distributed worker or the file of a standalone one. No worker
    has to be up.
    """
    from playhead.config.contexts import parse_duration
    from playhead.offsets import store_of_worker

    if target is not None and source is not None:
        raise click.UsageError("--export and --import exclude each other")
    if source is not None or (target is None and _stdin_has_data()):
        raise Invalid("importing offsets is not there yet", "nothing was changed; --export works")
    line = ProgressLine(sys.stderr)
    store = store_of_worker(config, Deadline(parse_duration(timeout)), line.reading)
    owners = {name.strip() for name in connectors.split(",")} if connectors else None
    found = (store.history if from_beginning else store.snapshot)(owners)
    line.clear()
    for note in found.notes:
        say(f"note: {note}")
    document = {
        owner: [{"partition": e.position.partition.to_dict(), "offset": _plain(e.position.offset)} for e in entries]
        for owner, entries in found.by_owner().items()
    }
    data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if target in (None, "-"):
        write(clean_json(data.decode()))
    else:
        Path(str(target)).write_bytes(data)


def _plain(offset: Map | None) -> dict[str, Scalar] | None:
    return None if offset is None else offset.to_dict()


def _stdin_has_data() -> bool:
    """JSON on a redirected, non-empty stdin means import; a terminal, a closed or an empty stdin does not."""
    try:
        if sys.stdin is None or sys.stdin.isatty() or not select.select([sys.stdin], [], [], 0)[0]:
            return False
        return bool(sys.stdin.buffer.peek(1))  # type: ignore[union-attr]
    except (OSError, ValueError):
        return False


def run() -> NoReturn:
    run_command(connect_offsets, "connect-offsets")
