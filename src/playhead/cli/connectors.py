"""`playhead connectors`: every verb, imported when it is used."""

import click

from playhead.cli.frame import LazyGroup

_READS, _VERBS, _FILES = "playhead.cli.connector_reads", "playhead.cli.connector_verbs", "playhead.cli.connector_files"
COMMANDS = {
    "list": (f"{_READS}:list_", "The connectors of the cluster and their state."),
    "show": (f"{_READS}:show", "One connector: config, tasks, topics, position."),
    "plan": (f"{_FILES}:plan", "What applying connector files would change."),
    "apply": (f"{_FILES}:apply", "Make the cluster what connector files say."),
    "validate": (f"{_FILES}:validate", "Check connector files, here and by the worker."),
    "export": (f"{_FILES}:export", "Write running connectors to a file that applies back."),
    "pause": (f"{_VERBS}:pause", "Pause connectors: their tasks stay, and do nothing."),
    "resume": (f"{_VERBS}:resume", "Let paused or stopped connectors run again."),
    "stop": (f"{_VERBS}:stop", "Stop connectors: their tasks are gone, their config stays."),
    "restart": (f"{_VERBS}:restart", "Restart connectors and their tasks, or what has failed of them."),
    "delete": (f"{_VERBS}:delete", "Delete connectors, and their offsets if wanted."),
    "watch": (f"{_VERBS}:watch", "Keep connectors running: restart what has failed, in measure."),
    "plugins": (f"{_READS}:plugins", "The connector classes that the worker has."),
    "log-level": (f"{_VERBS}:log_level", "See and set the log levels of the workers."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def connectors() -> None:
    """Connectors: from files, and through their life.

    NAME may be a pattern in quotes, like 'orders-*', wherever several are taken.
    """
