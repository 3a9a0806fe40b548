"""`playhead lab`."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from playhead.cli.complete import lab_parts
from playhead.cli.frame import Face, LazyGroup, debug_option, output_option, pass_face, program, say, write
from playhead.config import load_files, open_context, save_context, search_files
from playhead.errors import ConfigInvalid, Invalid, NotFound
from playhead.lab import Lab
from playhead.lab.lab import tail
from playhead.lab.options import EXTRAS, LabFile, LabOptions
from playhead.render import Column, Listing, clean
from playhead.render.progress import ProgressLine

COLUMNS = (
    Column("name", "PART"),
    Column("state", "STATE"),
    Column("pid", "PID", right=True),
    Column("address", "ADDRESS"),
    Column("detail", "WAITING FOR", wide=True),
    Column("log", "LOG", wide=True),
)


def _named(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value == "":  # an unset variable must not select the default lab
        raise click.BadParameter("it is empty")
    return value


folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False),
    callback=_named,
    metavar="FOLDER",
    help="Folder of the lab [default: one per user].",
)


def open_lab(folder: str | None) -> Lab:
    return Lab(Path(folder) if folder else None)


def bring_up(lab: Lab, folder: str | None, changes: dict[str, Any]) -> str:
    """Starts the lab, with progress on a terminal, and writes a context for it. Returns the option that selects that context,
    empty if it is the current one."""
    saved = LabFile.load(lab.folder)
    base = saved.options if saved else LabOptions()
    options = LabOptions(**{name: getattr(base, name) for name in LabOptions.__struct_fields__} | changes)
    line = ProgressLine(sys.stderr)

    def report(message: str) -> None:
        line.clear()
        say(message)

    try:
        lab.up(
            options,
            report=report,
            fetched=lambda done, total: line.update(f"fetching jars: {done} of {total}"),
        )
    except KeyboardInterrupt:
        line.clear()
        say(f"started parts keep running; stop them with: {down_command(folder)}")
        raise
    line.clear()
    say("the lab is up")
    return write_context(lab.context())


def write_context(settings: Mapping[str, str]) -> str:
    """Writes the lab's context. It becomes the current one if there is none: a context that the user chose stays current."""
    for note in search_files().ignored:
        say(f"note: {note}")
    name = "lab" if _is_free_for_us("lab") else "playhead-lab"
    path = save_context(name, settings, make_current=_current() in (None, name))
    say(f"context {name!r} points to it ({path})")
    if (in_force := _current()) == name:
        return ""
    say(f"the current context is still {in_force!r}: use --context {name}, or `{program()} config use-context {name}`")
    return f"--context {name}"


def _is_free_for_us(name: str) -> bool:
    """False for a context that we did not write, which is not overwritten. Ours point to a lab on this machine."""
    for file in load_files():
        if settings := file.contexts.get(name):
            servers = settings.get("bootstrap-servers")
            return servers is not None and all(s.startswith("127.0.0.1:") for s in servers.text.split(","))
    return True


def down_command(folder: str | None) -> str:
    return f"{program()} lab down" + (f" --dir {shlex.quote(folder)}" if folder else "")


def _current() -> str | None:
    try:
        return open_context().name
    except (ConfigInvalid, Invalid):
        return None


@click.group(cls=LazyGroup, instead={"create": "a lab is created with: playhead lab up"})
def lab() -> None:
    """A real Kafka, Connect worker and PostgreSQL on this machine.

    State and logs are in one folder. Ports are free loopback ports and stay the same after down and up.
    """


@lab.command()
@click.option("--brokers", type=click.IntRange(1, 9), help="Kafka brokers [default: 1].")
@click.option("--workers", type=click.IntRange(0, 9), help="Connect distributed workers [default: 1].")
@click.option("--exactly-once", type=click.Choice(["on", "off"]), help="Exactly-once source support [default: on].")
@click.option(
    "--standalone/--no-standalone", default=None, help="Also a standalone Connect worker with its offset file."
)
@click.option(
    "--with", "extras", multiple=True, type=click.Choice(EXTRAS), help="Also an S3 server, or Debezium's plugins."
)
@click.option(
    "--plugin-path",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Folder with additional connector jars.",
)
@folder_option
@debug_option
def up(
    brokers: int | None,
    workers: int | None,
    exactly_once: str | None,
    standalone: bool | None,
    extras: tuple[str, ...],
    plugin_path: tuple[str, ...],
    folder: str | None,
) -> None:
    """Start the lab and wait until every part answers. Options are saved for the next start."""
    changes: dict[str, Any] = {
        "brokers": brokers,
        "workers": workers,
        "exactly_once": None if exactly_once is None else exactly_once == "on",
        "standalone": standalone,
        "extras": extras or None,
        "plugin_path": plugin_path or None,
    }
    bring_up(open_lab(folder), folder, {name: value for name, value in changes.items() if value is not None})
    say(f"stop it with: {down_command(folder)}")


@lab.command()
@folder_option
@debug_option
def down(folder: str | None) -> None:
    """Stop only the processes of the lab. The data stays."""
    try:
        stopped = open_lab(folder).down(say)
    except KeyboardInterrupt:
        say(f"remaining parts keep running; stop them with: {down_command(folder)}")
        raise
    say(f"stopped {', '.join(stopped)}" if stopped else "no part of this lab was running")


@lab.command()
@folder_option
@output_option
@debug_option
@pass_face
def status(face: Face, folder: str | None) -> None:
    """Show which parts run and answer. Exit code 0 if all are up, else 1."""
    parts = open_lab(folder).status()
    face.show(Listing(COLUMNS, [asdict(part) for part in parts], empty="there is no lab yet: playhead lab up"))
    if not parts or any(part.state != "up" for part in parts):
        raise click.exceptions.Exit(1)


@lab.command()
@click.argument("part", shell_complete=lab_parts)
@click.option(
    "-n", "--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many lines from the end."
)
@folder_option
@debug_option
def logs(part: str, lines: int, folder: str | None) -> None:
    """Print the end of a part's log."""
    path = open_lab(folder).log_of(part)
    if not path.exists():
        raise NotFound("log", str(path), hint=f"{part} was never started")
    write("".join(clean(line, keep="\t") + "\n" for line in tail(path, lines)))


@lab.command()
@folder_option
@debug_option
def env(folder: str | None) -> None:
    """Print shell variables that point other programs to the lab: eval "$(playhead lab env)"."""
    for name, value in open_lab(folder).environment().items():
        write(f"export {name}={shlex.quote(value)}\n")
