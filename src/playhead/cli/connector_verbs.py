"""The verbs of `playhead connectors` that change something. Without --execute they only show what would happen."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from playhead.cli.complete import connector_names
from playhead.cli.connector_files import Files, file_options, say_journal
from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say, term_interrupts, write
from playhead.render import Column, Listing, clean

if TYPE_CHECKING:
    from playhead.connectors import Answers
    from playhead.connectors.watch import Event, RestartPolicy

F = TypeVar("F", bound=Callable[..., Any])
WOULD_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("before", "STATE"),
    Column("does", "WOULD"),
    Column("detail", "NOTE", remark=True),
)
DID_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("before", "BEFORE"),
    Column("after", "AFTER", show=lambda state: state or "-"),
    Column("result", "RESULT"),
    Column("detail", "DETAIL", remark=True),
)
LOGGER_COLUMNS = (Column("logger", "LOGGER"), Column("level", "LEVEL"), Column("modified", "MODIFIED"))
LEVEL_COLUMNS = (
    Column("logger", "LOGGER"),
    Column("before", "BEFORE"),
    Column("after", "AFTER"),
    Column("scope", "SCOPE"),
    Column("loggers", "CHANGED", show=lambda names: "-" if not names else str(len(names))),
)
_NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=connector_names)
_EXECUTE = click.option("--execute", is_flag=True, help="Make the change. Without it nothing is changed.")


@dataclass(frozen=True, slots=True)
class Doing:
    """`execute`: make the change. `wait`: seconds to wait for the new state; None: do not wait."""

    execute: bool
    wait: float | None


def _doing(words: dict[str, Any]) -> Doing:
    from playhead.config.contexts import parse_duration

    no_wait, wait = words.pop("no_wait"), words.pop("wait")
    if no_wait and wait is not None:
        raise click.UsageError("--wait and --no-wait exclude each other")
    return Doing(words.pop("execute"), None if no_wait else parse_duration(wait or "60s"))


def doing_options(command: F) -> F:
    """Adds --execute, --wait and --no-wait; the command gets them as `doing: Doing`."""
    options = (
        _EXECUTE,
        click.option("--wait", metavar="TIME", help="How long to wait for the new state [default: 60s]."),
        click.option("--no-wait", is_flag=True, help="Do not wait for the new state."),
    )
    return folded(command, options, "doing", _doing)


@click.command()
@_NAMES
@doing_options
@context_options
@output_option
@pass_face
def pause(face: Face, names: tuple[str, ...], doing: Doing) -> None:
    """Pause connectors: their tasks stay, but move no data.

    A failed connector does not pause: Connect stores the request, and the connector is paused once it is restarted.
    """
    _settle(face, "pause", names, doing)


@click.command()
@_NAMES
@doing_options
@context_options
@output_option
@pass_face
def resume(face: Face, names: tuple[str, ...], doing: Doing) -> None:
    """Resume paused or stopped connectors, and wait until every task runs. Failed ones need `restart`."""
    _settle(face, "resume", names, doing)


@click.command()
@_NAMES
@doing_options
@context_options
@output_option
@pass_face
def stop(face: Face, names: tuple[str, ...], doing: Doing) -> None:
    """Stop connectors: their tasks are shut down, config and offsets stay. Failed connectors can be stopped too."""
    _settle(face, "stop", names, doing)


@click.command()
@_NAMES
@click.option("--only-failed", is_flag=True, help="Only the connectors and tasks that have failed.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Only this task of one connector; repeatable.",
)
@doing_options
@context_options
@output_option
@pass_face
def restart(face: Face, names: tuple[str, ...], only_failed: bool, tasks: tuple[int, ...], doing: Doing) -> None:
    """Restart connectors with all of their tasks, and wait until they run.

    A paused connector stays paused. A stopped one does not restart: use `resume`.
    """
    if only_failed and tasks:
        raise click.UsageError("--only-failed and --task exclude each other")
    _settle(face, "restart", names, doing, only_failed=only_failed, tasks=tasks)


def _settle(
    face: Face,
    verb: str,
    names: tuple[str, ...],
    doing: Doing,
    *,
    only_failed: bool = False,
    tasks: tuple[int, ...] = (),
) -> None:
    from playhead.connectors.api import run_verb
    from playhead.connectors.lifecycle import Verb

    answers = run_verb(
        Verb(verb),
        names,
        only_failed=only_failed,
        tasks=tasks,
        execute=doing.execute,
        wait=doing.wait,
        context=face.context,
    )
    _show(face, answers)


def _show(face: Face, answers: "Answers") -> None:
    """Exits with the code of the worst result."""
    _show_rows(face, answers)
    if not answers.executed:
        say("dry run: nothing was changed; add --execute")
    if answers.exit_code:
        raise click.exceptions.Exit(answers.exit_code)


def _show_rows(face: Face, answers: "Answers") -> None:
    rows = [asdict(answer) for answer in answers]
    face.show(Listing(DID_COLUMNS if answers.executed else WOULD_COLUMNS, rows))
    for note in answers.notes:
        say(f"note: {note}")
    if answers.journal is not None:
        say_journal(face, answers.journal, answers.record_id)


@click.command()
@_NAMES
@click.option(
    "--offsets",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    show_default=True,
    help="Keep or delete its offsets, for a sink those of its group.",
)
@_EXECUTE
@context_options
@output_option
@pass_face
def delete(face: Face, names: tuple[str, ...], offsets: str, execute: bool) -> None:
    """Delete connectors. Their offsets stay, and a new connector of the same name continues from there.

    The journal keeps config, state and offsets; `connectors undo` restores them, except literal secrets.

    With --offsets delete the connector is stopped, its offsets are deleted (the journal keeps them), then it is deleted.
    """
    from playhead.connectors.api import VerbInterrupted
    from playhead.connectors.api import delete as delete_connectors

    try:
        with term_interrupts():
            answers = delete_connectors(*names, offsets=offsets, execute=execute, context=face.context, tell=say)
    except VerbInterrupted as stopped:
        _show_rows(face, stopped.answers)
        raise
    _show(face, answers)


def _policy_options(command: F) -> F:
    """Adds --interval, --max-restarts and --execute; the command gets them as `policy: RestartPolicy`."""

    def fold(words: dict[str, Any]) -> "RestartPolicy":
        from playhead.config.contexts import parse_duration
        from playhead.connectors.watch import RestartPolicy

        return RestartPolicy(parse_duration(words.pop("interval")), words.pop("max_restarts"), words.pop("execute"))

    options = (
        click.option("--interval", default="10s", show_default=True, metavar="TIME", help="Time between two checks."),
        click.option(
            "--max-restarts",
            type=click.IntRange(0),
            default=5,
            show_default=True,
            help="Consecutive restarts of one connector.",
        ),
        click.option(
            "--execute", is_flag=True, help="Restart what has failed. Without it, only report what would be restarted."
        ),
    )
    return folded(command, options, "policy", fold)


_EVENT_TEXTS: "dict[str, Callable[[Event], str]]" = {
    "json": lambda event: event.to_json(),
    "text": lambda event: clean(event.to_text()),
}


@click.command()
@click.argument("patterns", nargs=-1, metavar="[NAME]...", shell_complete=connector_names)
@file_options
@click.option("--once", is_flag=True, help="Check once: exit code 0 if all is well, else 1; 3 if nothing answers.")
@click.option(
    "-o", "--output", "form", type=click.Choice(["json", "text"]), default="json", show_default=True, help="The format."
)
@_policy_options
@context_options
@pass_face
def watch(face: Face, patterns: tuple[str, ...], files: Files, once: bool, form: str, policy: "RestartPolicy") -> None:
    """Keep connectors running: restart the connectors and tasks that have FAILED, all or those that match NAME.

    Connector files define which connectors to keep, on which engine, in which state, with which config; differences are
    reported. Paused and stopped connectors, and those that a file assigns to Spark, are not changed. After each restart the
    pause before the next one doubles. Restarts end after --max-restarts, and at once if a restart cannot help: a class is
    missing, access is denied, the configuration is wrong, another producer has taken over.

    Every change is one line of JSON on stdout: time, connector, task, event, cause, attempt, next_try; with -o text it is
    a sentence.
    """
    from playhead.connectors.watch import RestCluster, Watch, wishes_of

    cluster = RestCluster(face.context, patterns)
    wanted = wishes_of(files.paths, files.stdin(), cluster.watches, shared_topics=files.shared_topics)
    to_text = _EVENT_TEXTS[form]
    keeper = Watch(cluster, policy, lambda event: write(to_text(event) + "\n"), wanted if files.paths else None)
    if once:
        raise click.exceptions.Exit(0 if keeper.check() else 1)
    if not policy.execute:
        say("dry run: nothing is restarted; add --execute")
    keeper.run()


@click.command("log-level")
@click.argument("logger", required=False)
@click.argument("level", required=False)
@click.option("--cluster", is_flag=True, help="On every worker, not only on the one that answers.")
@_EXECUTE
@context_options
@output_option
@pass_face
def log_level(face: Face, logger: str | None, level: str | None, cluster: bool, execute: bool) -> None:
    """Show the log levels of the worker; with LOGGER and LEVEL set one, for this logger and all loggers below it.

    LEVEL is TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF. It lasts until the worker is restarted.
    """
    from playhead.connectors.workers import apply_level, list_loggers, plan_level

    if logger is None or level is None:
        if execute or cluster:
            raise click.UsageError("name the LOGGER and the LEVEL to set")
        found = list_loggers(face.context, face.deadline, [logger] if logger else [])
        face.show(Listing(LOGGER_COLUMNS, [asdict(row) for row in found], name="logger"))
        return
    change = plan_level(face.context, logger, level, face.deadline, cluster=cluster)
    if execute:
        change = apply_level(face.context, change, face.deadline)
    face.show(Listing(LEVEL_COLUMNS, [asdict(change)], name="logger"))
    if not execute:
        say("dry run: nothing was changed; add --execute")
