"""`playhead demo`."""

from shlex import quote

import click

from playhead.cli.frame import debug_option, program, say, write
from playhead.cli.lab import bring_up, down_command, folder_option, open_lab
from playhead.config import open_context
from playhead.config.ledger import ledger_url
from playhead.demo import run_demo
from playhead.lab import Lab


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
    write(f"The lab is still running. Try: {list_command(lab, selected)}\n")
    write(f"See it in a browser: {list_command(lab, selected, 'serve')}\n")
    write(f"Stop it with: {down_command(folder)}\n")


def list_command(lab: Lab, selected: str, *words: str) -> str:
    """Shows what the demo ran; `words`: in another way than as a list. The context names the lab's ledger, unless the environment
    names another."""
    in_force = ledger_url(open_context(selected.removeprefix("--context ") or None))
    ledger = "" if in_force == lab.ledger_url else f"--ledger {quote(lab.ledger_url)}"
    return " ".join(word for word in (program(), *(words or ("connectors", "list")), selected, ledger) if word)
