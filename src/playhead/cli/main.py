"""The root command: every noun, imported only when it is used."""

from typing import NoReturn

import click

from playhead import __version__
from playhead.cli.frame import LazyGroup, context_options, output_option, run_command

COMMANDS = {
    "demo": ("playhead.cli.demo:demo", "The whole story on the lab, in one command."),
    "lab": ("playhead.cli.lab:lab", "A real Kafka, Connect worker and PostgreSQL on this machine."),
    "connectors": ("playhead.cli.connectors:connectors", "Connectors: from files, and through their life."),
    "topics": ("playhead.cli.topics:topics", "Topics: partitions, settings, records, and who uses them."),
    "offsets": ("playhead.cli.offsets:offsets", "Positions: see, plan, move, verify and undo them."),
    "groups": ("playhead.cli.groups:groups", "Consumer groups: lag, reset, delete."),
    "runs": ("playhead.cli.runs:runs", "Runs on Spark: who runs what, since when; stop one."),
    "run": ("playhead.cli.run:run", "Run connector files on Spark, exactly once."),
    "config": ("playhead.cli.config:config", "Contexts and settings, and where each came from."),
    "info": ("playhead.cli.info:info", "Versions of everything that answers."),
    "completion": ("playhead.cli.completion:completion", "Completion script for bash, zsh or fish."),
}


@click.group(
    cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "--version", prog_name="playhead", message="%(prog)s %(version)s")
@context_options
@output_option
def root() -> None:
    """See, move and prove the position of every pipeline around Kafka.

    Without --execute a command shows its plan and changes nothing.
    """


def run() -> NoReturn:
    run_command(root, "playhead")
