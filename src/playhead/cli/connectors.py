"""`playhead connectors`: its commands, imported on first use."""

import click

from playhead.cli.frame import LazyGroup

_READS, _VERBS, _FILES = "playhead.cli.connector_reads", "playhead.cli.connector_verbs", "playhead.cli.connector_files"
_JOURNAL = "playhead.cli.connector_journal"
COMMANDS = {
    "list": (f"{_READS}:list_", "The connectors of the cluster and their state."),
    "show": (f"{_READS}:show", "One connector: config, tasks, topics, position."),
    "plan": (f"{_FILES}:plan", "What applying connector files would change."),
    "apply": (f"{_FILES}:apply", "Make the cluster match connector files."),
    "validate": (f"{_FILES}:validate", "Check connector files, locally and by the worker."),
    "export": (f"{_FILES}:export", "Write running connectors to a file that can be applied again."),
    "pause": (f"{_VERBS}:pause", "Pause connectors: their tasks stay, but do nothing."),
    "resume": (f"{_VERBS}:resume", "Resume paused or stopped connectors."),
    "stop": (f"{_VERBS}:stop", "Stop connectors: their tasks are shut down, their config stays."),
    "restart": (f"{_VERBS}:restart", "Restart connectors and their tasks, or only failed ones."),
    "delete": (f"{_VERBS}:delete", "Delete connectors, and optionally their offsets."),
    "rename": (f"{_JOURNAL}:rename", "Rename a connector: its offsets go with it."),
    "undo": (f"{_JOURNAL}:undo", "Undo an apply or a delete: restore the connectors that it changed."),
    "journal": (f"{_JOURNAL}:journal", "List applies and deletes: what, when and by whom."),
    "watch": (f"{_VERBS}:watch", "Keep connectors running: restart failed ones, with a limit."),
    "plugins": (f"{_READS}:plugins", "The connector classes of the worker, and those in Python."),
    "new": ("playhead.cli.connector_new:new", "Write a connector in Python: a package with a test."),
    "log-level": (f"{_VERBS}:log_level", "Show and set the log levels of the workers."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    instead={"create": "write it to a file, then: playhead connectors apply -f FILE shows what would be created"},
)
def connectors() -> None:
    """Connectors: apply files, change states, watch.

    Commands that accept several names also accept quoted patterns, like 'orders-*'.
    """
