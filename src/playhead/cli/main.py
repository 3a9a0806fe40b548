"""The root command. Subcommands are imported on first use."""

from typing import NoReturn

import click

from playhead import __version__
from playhead.cli.frame import LazyGroup, context_options, output_option, run_command

COMMANDS = {
    "demo": ("playhead.cli.demo:demo", "Start the lab and run the demo on it."),
    "lab": ("playhead.cli.lab:lab", "A real Kafka, Connect worker and PostgreSQL on this machine."),
    "connectors": ("playhead.cli.connectors:connectors", "Connectors: apply files, change states, watch."),
    "topics": ("playhead.cli.topics:topics", "Topics: partitions, settings, records, and what uses them."),
    "offsets": ("playhead.cli.offsets:offsets", "Positions: show, plan, move, verify and undo them."),
    "groups": ("playhead.cli.groups:groups", "Consumer groups: lag, reset, delete."),
    "runs": ("playhead.cli.runs:runs", "Runs on Spark: list them, show details, stop or forget one."),
    "run": ("playhead.cli.run:run", "Run connector files on Spark, exactly once."),
    "handover": ("playhead.cli.handover:handover", "Give connectors to Spark or to Connect, with their positions."),
    "replay": ("playhead.cli.replay:replay", "Deliver a part of what a sink delivered again."),
    "audit": ("playhead.cli.audit:audit", "Compare the tiers of pipelines: nothing lost, nothing doubled."),
    "repair": ("playhead.cli.repair:repair", "Mend what an audit found, and audit again."),
    "serve": ("playhead.cli.serve:serve", "Pages and an API in a browser, and metrics."),
    "config": ("playhead.cli.config:config", "Contexts and settings, and the origin of each value."),
    "info": ("playhead.cli.info:info", "Versions of this client, the brokers and the workers."),
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
