"""`playhead demo`."""

from pathlib import Path

import click

from playhead.cli.frame import debug_option, program, say, write
from playhead.cli.lab import bring_up, down_command, folder_option, open_lab
from playhead.demo import run_demo


@click.command()
@folder_option
@debug_option
def demo(folder: str | None) -> None:
    """Start the lab and show, on a real Connect worker, a position seen, moved, proved and undone."""
    say("The demo needs a Kafka broker and a Connect worker: starting the lab (a minute the first time).")
    bring_up(open_lab(folder), {})
    say("")
    run_demo(Path(folder) if folder else None, lambda text: write(f"{text}\n"))
    write(f"The lab is still running. Look around: {program()} connectors list\n")
    write(f"Stop it with: {down_command(folder)}\n")
