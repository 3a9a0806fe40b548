"""`playhead topics`: list, show, create, alter and delete topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from playhead.cli.complete import SECONDS, matching
from playhead.cli.frame import Face, LazyGroup, context_options, output_option, pass_face, say
from playhead.render.topics import outcome_listing, plan_listing, topic_details, topic_listing

if TYPE_CHECKING:
    from playhead.topics.plan import TopicPlan
    from playhead.topics.session import Session


def topic_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    def names() -> list[str]:
        from playhead.model import Deadline
        from playhead.topics.names import list_topic_names
        from playhead.topics.session import open_session

        face = ctx.find_object(Face) or Face()
        with open_session(face.context, Deadline(SECONDS)) as session:
            return list_topic_names(session)

    return matching(names, incomplete)


@contextmanager
def opened(face: Face) -> "Iterator[Session]":
    from playhead.topics.session import open_session

    with open_session(face.context, face.deadline) as session:
        for note in session.notes:
            say(f"note: {note}")
        yield session


def settings_of(words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--config {word!r} is not key=value")
        if key.strip() in found:
            raise click.UsageError(f"--config {key.strip()} is given twice")
        found[key.strip()] = value
    return found


config_option = click.option(
    "--config", "config", multiple=True, metavar="KEY=VALUE", help="A setting of the topic; repeatable."
)
execute_option = click.option("--execute", is_flag=True, help="Execute the plan. Without it nothing is changed.")


@click.group(
    cls=LazyGroup,
    lazy={
        "records": ("playhead.cli.topic_records:records", "Print the records of a topic, or follow it."),
        "copy": ("playhead.cli.topic_copy:copy", "Copy a topic to another one, with any number of partitions."),
        "shrink": ("playhead.cli.topic_shrink:shrink", "Give a topic fewer partitions, with everyone who uses it."),
    },
    instead={"diff": "playhead topics alter NAME ... without --execute shows what would change"},
)
def topics() -> None:
    """Topics: list, show, create, alter, delete, and their records."""


@topics.command("list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=topic_names)
@click.option("--internal", is_flag=True, help="Include Kafka's internal topics.")
@context_options
@output_option
@pass_face
def list_(face: Face, patterns: tuple[str, ...], internal: bool) -> None:
    """List topics: all, or by name or quoted pattern, like 'shop-*'.

    OFFSETS is the log end minus the log start, over all partitions: the maximum number of records, as offsets may have gaps.
    SIZE is the size on the leaders; -o wide adds the size of all replicas.
    """
    from playhead.topics.listing import list_topic_rows

    with opened(face) as session:
        found = list_topic_rows(session, patterns, internal=internal)
    face.show(topic_listing(found.rows))
    for note in found.notes:
        say(f"note: {note}")


@topics.command()
@click.argument("name", shell_complete=topic_names)
@context_options
@output_option
@pass_face
def show(face: Face, name: str) -> None:
    """Show one topic: partitions, settings that differ from Kafka's default, times, and what uses it.

    `first` is the oldest time among the first records of all partitions, `newest` the largest time of all records. Connectors
    are listed if --connect is set.
    """
    from playhead.topics.show import show_topic

    with opened(face) as session:
        found = show_topic(session, name)
    face.show(topic_details(found))
    for note in found.notes:
        say(f"note: {note}")


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), help="How many [default: the broker decides].")
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="How many [default: the broker decides].")
@config_option
@execute_option
@context_options
@output_option
@pass_face
def create(
    face: Face,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[str, ...],
    execute: bool,
) -> None:
    """Create a topic. Does nothing if it exists as requested. Fails with the difference if it exists and differs."""
    from playhead.topics.admin import WantedTopic, plan_create

    wanted = WantedTopic(name, partitions, replication_factor, settings_of(config))
    with opened(face) as session:
        settle_topics(face, session, plan_create(session, wanted), execute=execute)


@topics.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--partitions", type=click.IntRange(min=1), help="The new number; it can only increase.")
@config_option
@click.option("--delete-config", multiple=True, metavar="KEY", help="Return a setting to the broker's default.")
@execute_option
@click.option("--force", is_flag=True, help="Also add partitions to an internal topic of Kafka or Connect.")
@context_options
@output_option
@pass_face
def alter(
    face: Face,
    name: str,
    partitions: int | None,
    config: tuple[str, ...],
    delete_config: tuple[str, ...],
    execute: bool,
    force: bool,
) -> None:
    """Add partitions to a topic, or change its settings.

    With more partitions some keys move to another partition; the plan shows how many and what is affected.
    """
    from playhead.topics.admin import WantedTopic, plan_alter

    wanted = WantedTopic(name, partitions, None, settings_of(config), delete_config)
    if wanted.partitions is None and not wanted.config and not wanted.unset:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    with opened(face) as session:
        settle_topics(face, session, plan_alter(session, wanted), execute=execute, force=force)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=topic_names)
@execute_option
@click.option("--force", is_flag=True, help="Also delete topics in use and internal topics of Kafka or Connect.")
@context_options
@output_option
@pass_face
def delete(face: Face, names: tuple[str, ...], execute: bool, force: bool) -> None:
    """Delete topics with all of their records. NAME is a name, or a quoted pattern like 'test-*'.

    The plan lists what uses them. Refused while a group reads a topic or a connector runs on it.
    """
    from playhead.topics.admin import plan_delete

    with opened(face) as session:
        settle_topics(face, session, plan_delete(session, names), execute=execute, force=force)


def settle_topics(face: Face, session: "Session", plan: "TopicPlan", *, execute: bool, force: bool = False) -> None:
    """Shows the plan; with --execute applies it, shows the outcomes and exits with their code."""
    from playhead.topics.apply import apply_plan

    for warning in plan.warnings:
        say(f"warning: {warning}", style="yellow")
    if plan.is_empty or not execute:
        face.show(plan_listing(plan))
        if not plan.is_empty:
            _say_dry(face, plan, force=force)
        return
    outcomes = apply_plan(session, plan, force=force)
    face.show(outcome_listing(outcomes.outcomes))
    if outcomes.exit_code:
        raise click.exceptions.Exit(outcomes.exit_code)


def _say_dry(face: Face, plan: "TopicPlan", *, force: bool) -> None:
    if not force:
        for objection in plan.objections:
            say(
                f"warning: {objection.what}: --execute would be refused; {face.completed(objection.hint)}",
                style="yellow",
            )
    say(f"dry run: nothing was changed ({len(plan.changes)} planned); add --execute")
