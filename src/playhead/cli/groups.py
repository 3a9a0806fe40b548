"""`playhead groups`: positions, lag and members of consumer groups."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from playhead.cli.complete import SECONDS, matching
from playhead.cli.frame import Face, LazyGroup, context_options, output_option, pass_face, say, write
from playhead.cli.ledgers import ledger_option
from playhead.cli.reset_options import ResetWords, reset_options
from playhead.cli.writes import WriteOptions, carry_out, plan_options
from playhead.render import Column, Listing
from playhead.render.groups import group_details, group_listing, lag_listing

if TYPE_CHECKING:
    from playhead.offsets.reset import ResetPlan
    from playhead.stores import Store
    from playhead.stores.groups import GroupsStore


RESET_COLUMNS = (
    Column("owner", "GROUP"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("before", "BEFORE", right=True),
    Column("after", "AFTER", right=True),
    Column("log_start", "LOG-START", right=True, hide=1),
    Column("log_end", "LOG-END", right=True),
    Column("note", "NOTE", remark=True),
)


def group_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    def names() -> list[str]:
        from playhead.model import Deadline
        from playhead.offsets.groups import list_group_names
        from playhead.stores.groups import open_groups

        face = ctx.find_object(Face) or Face()
        return list_group_names(open_groups(face.context, Deadline(SECONDS)))

    return matching(names, incomplete)


def opened_groups(face: Face) -> "GroupsStore":
    from playhead.stores.groups import open_groups

    store = open_groups(face.context, face.deadline)
    for note in store.settings.notes:
        say(f"note: {note}")
    return store


@click.group(
    cls=LazyGroup,
    lazy={"translate": ("playhead.cli.group_translate:translate", "Move a group to the copy of a topic.")},
    instead={
        "create": "playhead groups reset GROUP --topic TOPIC --to-earliest shows the group that would be created",
        "diff": "playhead groups reset GROUP ... without --execute shows what would change",
    },
)
def groups() -> None:
    """Consumer groups: lag, reset, translate, delete."""


@groups.command("list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=group_names)
@click.option("--lag", is_flag=True, help="Show the lag of each group; implied by -o wide.")
@context_options
@output_option
@pass_face
def list_(face: Face, patterns: tuple[str, ...], lag: bool) -> None:
    """List groups: all, or by name or quoted pattern, like 'billing-*'.

    Share and streams groups are listed, but other commands do not support them.
    """
    from playhead.offsets.groups import list_group_rows

    lag = lag or face.form == "wide"
    face.show(group_listing(list_group_rows(opened_groups(face), patterns, with_lag=lag), with_lag=lag))


@groups.command()
@click.argument("group", shell_complete=group_names)
@context_options
@output_option
@pass_face
def show(face: Face, group: str) -> None:
    """Show the position and lag of GROUP in every partition.

    LAG-TIME is the time between the record at the commit and the newest record of its partition.
    """
    from playhead.offsets.groups import show_group

    found = show_group(opened_groups(face), group)
    face.show(lag_listing(found) if face.form in ("csv", "name") else group_details(found))
    for note in found.notes:
        say(f"note: {note}")
    if not found.rows and not found.notes:
        say(f"{group} has no commit")


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@reset_options
@click.option(
    "--export",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write the new offsets as Kafka's CSV, - for stdout.",
)
@plan_options
@ledger_option
@context_options
@output_option
@pass_face
def reset(face: Face, names: tuple[str, ...], words: ResetWords, export: Path | None, options: WriteOptions) -> None:
    """Move groups to other offsets. GROUP is a name, or a quoted pattern like 'billing-*'.

    The options are those of kafka-consumer-groups. A missing group is created. Its members must be stopped. With --to-ledger,
    GROUP is a sink that runs on Spark, or its group.
    """
    from playhead.offsets.groups import find_groups
    from playhead.offsets.reset import plan_reset

    if options.execute and str(export) == "-":
        raise click.UsageError("with --execute stdout shows the outcomes: export to a FILE")
    if words.to_ledger:
        _reset_to_ledger(face, names, words, export, options)
        return
    store = opened_groups(face)
    with store.session():
        found = find_groups(store, names)
        planned = plan_reset(store, found, words.reset(store, found), store.settings, face.deadline)
        _export(face, planned, export)
        warn_of_members(face, store, found, options)
        carry_out(face, store, planned.plan, options, show=lambda: _show_reset(face, planned, export))


def _reset_to_ledger(
    face: Face, names: tuple[str, ...], words: ResetWords, export: Path | None, options: WriteOptions
) -> None:
    from playhead.offsets.group_to_ledger import find_connectors, plan_to_ledger

    if export is not None:
        raise click.UsageError(
            "--to-ledger does not support --export: `playhead offsets export` writes the ledger's positions"
        )
    groups, access = opened_groups(face), face.access
    with groups.session():
        store, plan = plan_to_ledger(groups, names, words.scope, access, find_connectors(access))
        warn_of_members(face, store, list(store.sinks), options)
        carry_out(face, store, plan, options)


def _export(face: Face, planned: "ResetPlan", target: Path | None) -> None:
    if target is None:
        return
    text = planned.to_kafka_csv()
    if str(target) == "-":
        face.form = "table"  # stdout is only for the CSV
        write(text)
    else:
        target.write_text(text)


def _show_reset(face: Face, planned: "ResetPlan", export: Path | None) -> None:
    if str(export) != "-":
        face.show(Listing(RESET_COLUMNS, [asdict(row) for row in planned.rows], name="owner", names=("topic",)))


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@click.option("--topic", "topics", multiple=True, metavar="T[:0,1]", help="Delete only the commits in this topic.")
@plan_options
@context_options
@output_option
@pass_face
def delete(face: Face, names: tuple[str, ...], topics: tuple[str, ...], options: WriteOptions) -> None:
    """Delete groups, or with --topic their commits in one topic. GROUP is a name, or a quoted pattern like 'test-*'."""
    from playhead.offsets.groups import find_groups, plan_group_delete
    from playhead.offsets.reset_options import parse_scope

    scope = parse_scope(topics)
    store = opened_groups(face)
    with store.session():
        found = find_groups(store, names, must_exist=True)
        warn_of_members(face, store, found, options)
        carry_out(face, store, plan_group_delete(store, found, scope), options)


def warn_of_members(face: Face, store: "Store", found: list[str], options: WriteOptions) -> None:
    """In a dry run, reports why --execute would be refused."""
    if not options.execute:
        for refusal in store.guard(found):
            hint = f"; {face.completed(refusal.hint)}" if refusal.hint else ""
            say(f"warning: {refusal.what}: --execute would be refused{hint}", style="yellow")
