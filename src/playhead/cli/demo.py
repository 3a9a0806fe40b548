"""`playhead demo`."""

from shlex import quote

import click

from playhead.cli.frame import debug_option, program, say, write
from playhead.cli.lab import bring_up, down_command, folder_option, open_lab
from playhead.demo import ledger_of, run_demo


@click.command()
@folder_option
@click.option(
    "--rows",
    type=click.IntRange(min=1000),
    default=300_000,
    show_default=True,
    help="Rows in each of the tables that go through Spark.",
)
@debug_option
def demo(folder: str | None, rows: int) -> None:
    """Start the lab and run the demo: show, move, verify and undo a position; run tables and files on Spark."""
    say("The demo needs a Kafka broker and a Connect worker: starting the lab (a minute the first time).")
    lab = open_lab(folder)
    selected = bring_up(lab, folder, {} if not lab.exists or lab.options.workers else {"workers": 1})
    say("")
    try:
        run_demo(lab, lambda text: write(f"{text}\n"), rows)
    except KeyboardInterrupt:
        say(f"the lab keeps running; stop it with: {down_command(folder)}")
        raise
    words = ["connectors", "list", *([selected] if selected else []), "--ledger", quote(ledger_of(lab))]
    write(f"The lab is still running. Try: {program()} {' '.join(words)}\n")
    write(f"Stop it with: {down_command(folder)}\n")
