"""`connect-offsets`: the tool proposed by KIP-199. The only command that writes without `--execute`, as the KIP specifies."""

import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec

from playhead.cli.frame import debug_option, run_command, say, write
from playhead.model import Deadline, Map
from playhead.model.position import UNREADABLE, Scalar
from playhead.render.clean import clean, clean_json
from playhead.render.progress import ProgressLine

if TYPE_CHECKING:
    from playhead.model import Plan
    from playhead.offsets.locate import Location
    from playhead.stores import Store, Stored


PIPE_SECONDS = 10.0


class _Switch(click.Command):
    """`--dry-run` takes its value only after `=`: the word after it is the next argument, not its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--dry-run=true" if word == "--dry-run" else word for word in args])


@click.command(cls=_Switch, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", "config", required=True, type=click.Path(path_type=Path), help="The worker's properties file."
)
@click.option("--export", "target", is_flag=False, flag_value="-", metavar="[FILE]", help="Write the offsets as JSON.")
@click.option("--import", "source", is_flag=False, flag_value="-", metavar="[FILE]", help="Set the offsets from JSON.")
@click.option("--connectors", metavar="A,B", help="Only these connectors.")
@click.option(
    "--from-beginning", is_flag=True, help="Every pair in log order, including overwritten ones and removals."
)
@click.option("--dry-run", type=bool, default=False, metavar="[=true]", help="Print what an import would do.")
@click.option("--force", is_flag=True, help="Import although a connector or the worker runs; recorded in the journal.")
@click.option("--timeout", default="60s", show_default=True, help="Time limit of the whole command.")
@debug_option
def connect_offsets(  # noqa: PLR0913, PLR0917  (the interface of the KIP)
    config: Path,
    target: str | None,
    source: str | None,
    connectors: str | None,
    from_beginning: bool,
    dry_run: bool,
    force: bool,
    timeout: str,
) -> None:
    """Print the source offsets of Connect as JSON, by connector name, or set them from such JSON.

    The worker file determines where they are: in the topic of a distributed worker or the file of a standalone one. No
    worker has to run. Without --export and --import: JSON on a redirected stdin is imported, else the offsets are printed.
    """
    from playhead.config.contexts import parse_duration
    from playhead.offsets.locate import locate_of_worker

    if target is not None and source is not None:
        raise click.UsageError("--export and --import exclude each other")
    if target is None and source is None and _stdin_has_data():
        source = "-"
    if source is not None and from_beginning:
        raise click.UsageError("--from-beginning is for an export")
    if source is None and (dry_run or force):
        raise click.UsageError("--dry-run and --force are for an import")
    line = ProgressLine(sys.stderr)
    location = locate_of_worker(config, Deadline(parse_duration(timeout)), line.reading)
    owners = {name.strip() for name in connectors.split(",")} if connectors else None
    with location.access:
        if source is None:
            _export(location.store, owners, target, line, from_beginning=from_beginning)
        else:
            _import(location, owners, source, line, dry_run=dry_run, force=force)


def _export(
    store: "Store", owners: set[str] | None, target: str | None, line: ProgressLine, *, from_beginning: bool
) -> None:
    found = (store.history if from_beginning else store.snapshot)(owners)
    line.clear()
    for note in found.notes:
        say(f"note: {note}")
    entries = [e for e in (found.entries if from_beginning else found.current().values()) if not _is_unreadable(e, say)]
    for name in sorted((owners or set()) - {entry.position.owner for entry in entries}):
        say(f"note: {name} has no offsets")
    document: dict[str, list[dict[str, dict[str, Scalar] | None]]] = {}
    for position in (entry.position for entry in entries):
        document.setdefault(position.owner, []).append(
            {"partition": position.partition.to_dict(), "offset": _plain(position.offset)}
        )
    data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if target in (None, "-"):
        write(clean_json(data.decode()))
    else:
        Path(str(target)).write_bytes(data)


def _is_unreadable(entry: "Stored", report: Callable[[str], None]) -> bool:
    """True for a value that no worker accepts. It is reported and not exported."""
    offset = entry.position.offset
    if offset is None or UNREADABLE not in offset:
        return False
    report(f"note: {entry.position.owner} {entry.position.partition}: {entry.notes[-1]}; skipped")
    return True


def _import(
    location: "Location", owners: set[str] | None, source: str, line: ProgressLine, *, dry_run: bool, force: bool
) -> None:
    from playhead.config import Context
    from playhead.model import Positions
    from playhead.offsets.apply import Permissions, apply_plan
    from playhead.offsets.formats.forms import read_pairs_in_order
    from playhead.offsets.journal import Journal
    from playhead.offsets.plan import plan_positions

    data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    wanted = read_pairs_in_order(data, "stdin" if source == "-" else source)
    if owners is not None:
        wanted = Positions(position for position in wanted if position.owner in owners)
    plan = plan_positions(location, wanted)
    line.clear()
    for warning in plan.warnings:
        say(f"warning: {warning}", style="yellow")
    if dry_run:
        _print_actions(plan)
        say("dry run: nothing was changed")
        return
    permissions = Permissions(
        frozenset({"--force", "--worker-is-down"} if force else ()), deadline=location.access.deadline
    )
    applied = apply_plan(location.store, plan, Journal.of_context(Context(None)), permissions)
    line.clear()
    for outcome in applied.outcomes:
        detail = f": {outcome.detail}" if outcome.detail else ""
        write(clean(f"{outcome.result.value} {outcome.change.owner} {outcome.change.partition}{detail}") + "\n")
    if applied.entry is not None:
        say(f"journal: {applied.entry.id}")
    if applied.warning:
        say(f"warning: {applied.warning}", style="yellow")
    if applied.outcomes.exit_code:
        raise click.exceptions.Exit(applied.outcomes.exit_code)
    if plan.is_empty:
        say("nothing to change: the offsets are already as requested")


def _print_actions(plan: "Plan") -> None:
    for change in plan.changes:
        place = f"{change.owner} {change.partition}"
        before = "nothing" if change.before is None else change.before.to_json()
        action = (
            f"remove {place} (now {before})" if change.after is None else f"set {place} from {before} to {change.after}"
        )
        write(clean(f"{action}; {change.note}" if change.note else action) + "\n")


def _plain(offset: Map | None) -> dict[str, Scalar] | None:
    return None if offset is None else offset.to_dict()


def _stdin_has_data() -> bool:
    """JSON on a redirected, non-empty stdin means import; a terminal, a closed or an empty stdin does not.

    A pipe may fill late, so this waits for data. The wait is limited: a scheduler may leave a pipe open without data.
    """
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return False
        if not select.select([sys.stdin], [], [], PIPE_SECONDS)[0]:
            raise click.UsageError(f"stdin is open, but had no data for {PIPE_SECONDS:g} s; use --export or --import")
        return bool(sys.stdin.buffer.peek(1))  # type: ignore[union-attr]
    except (OSError, ValueError):
        return False


def run() -> NoReturn:
    run_command(connect_offsets, "connect-offsets")
