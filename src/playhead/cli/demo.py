"""`playhead demo`."""

from shlex import quote

import click

from playhead.cli.frame import debug_option, program, say, write
from playhead.cli.lab import bring_up, down_command, folder_option, open_lab
from playhead.demo import ledger_of, run_demo


@click.command()
@folder_option
@debug_option
def demo(folder: str | None) -> None:
    """Start the lab and show, on a real Connect worker, a position seen, moved, proved and undone."""
    say("The demo needs a Kafka broker and a Connect worker: starting the lab (a minute the first time).")
    lab = open_lab(folder)
    bring_up(lab, folder, {} if not lab.exists or lab.options.workers else {"workers": 1})
    say("")
    try:
        run_demo(lab, lambda text: write(f"{text}\n"))
    except KeyboardInterrupt:
        say(f"the lab keeps running; stop it with: {down_command(folder)}")
        raise
    write(f"The lab is still running. Look around: {program()} connectors list --ledger {quote(ledger_of(lab))}\n")
    write(f"Stop it with: {down_command(folder)}\n")
