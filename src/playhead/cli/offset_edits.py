"""The writing verbs of `playhead offsets`. Each creates a plan; `writes.carry_out` executes it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from playhead.cli.complete import connector_names
from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say
from playhead.cli.offsets import Where, selection_options
from playhead.cli.reset_options import ResetWords, owner_reset_options
from playhead.cli.writes import WriteOptions, carry_out, write_options
from playhead.errors import Invalid

if TYPE_CHECKING:
    from playhead.model import Plan
    from playhead.offsets.locate import Location
    from playhead.offsets.plan import Which
    from playhead.offsets.stop_restore import StoppedConnectors
    from playhead.stores import Store

F = TypeVar("F", bound=Callable[..., Any])


def _which(words: dict[str, Any]) -> "Which":
    from playhead.offsets.plan import Which, parse_partition

    partition, every = words.pop("partition"), words.pop("every")
    if partition is not None and every:
        raise click.UsageError("--partition and --all exclude each other")
    return Which(None if partition is None else parse_partition(partition), every, words.pop("create", False))


_PARTITION = (
    click.option("--partition", metavar="FIELDS", help="The partition: a JSON object, or field=value[,field=value]."),
    click.option("--all", "every", is_flag=True, help="Every partition of the owner."),
)
_CREATE = click.option(
    "--create", is_flag=True, help="Create the position of an OWNER or --partition that does not exist yet."
)


def partition_options(command: F) -> F:
    """Adds `--partition` and `--all`; the command gets them as `which: Which`."""
    return folded(command, _PARTITION, "which", _which)


def new_partition_options(command: F) -> F:
    """Adds `--partition`, `--all` and `--create`; the command gets them as `which: Which`."""
    return folded(command, (*_PARTITION, _CREATE), "which", _which)


@click.command("set")
@click.argument("owner", shell_complete=connector_names)
@click.argument("fields", nargs=-1, required=True, metavar="FIELD=VALUE...")
@new_partition_options
@click.option("--replace", "replace_all", is_flag=True, help="Remove all other fields of the position.")
@write_options
@selection_options
@context_options
@output_option
@pass_face
def set_(
    face: Face,
    owner: str,
    fields: tuple[str, ...],
    which: "Which",
    replace_all: bool,
    where: Where,
    options: WriteOptions,
) -> None:
    """Set fields of OWNER's position, e.g. `offsets set orders_src incrementing=369034`.

    Other fields are kept. Write a time as 2022-11-29T05:59:55.817Z if the connector stores one. To store a position before the
    first run of a connector, name its --partition and add --create.
    """
    from playhead.errors import NotFound
    from playhead.offsets.plan import CREATE_HINT, plan_set

    texts = pairs_of(fields)

    def planned() -> "tuple[Store, Plan]":
        try:
            target = where.locator(face).owner(owner, may_be_new=which.create)
        except NotFound as error:
            if which.create:
                raise
            raise error.with_hint(CREATE_HINT) from None
        return target.store, plan_set(target, texts, which, replace_all=replace_all)

    _plan_and_carry_out(face, options, [owner], planned)


@click.command()
@click.argument("owner", required=False, shell_complete=connector_names)
@owner_reset_options
@click.option(
    "--to-batch", type=int, metavar="N", help="Spark checkpoint: move all sources to their offsets after batch N."
)
@write_options
@selection_options
@context_options
@output_option
@pass_face
def reset(
    face: Face, owner: str | None, words: ResetWords | None, to_batch: int | None, where: Where, options: WriteOptions
) -> None:
    """Move OWNER to the start, the end, a time or an offset: a sink connector, a group, a Spark checkpoint, a SQL consumer.

    The options are those of kafka-consumer-groups. Without --topic every partition that has a position is moved. A source
    connector supports only --to-earliest: its positions are deleted and it starts over.
    """
    from playhead.offsets.plan import plan_reset_of, plan_rewind

    if words is None and to_batch is not None and owner is None:
        store = where.locator(face).any_store()
        carry_out(face, store, plan_rewind(store, to_batch), options)
    elif owner is None or words is None:
        raise click.UsageError("name the OWNER; only --to-batch moves a whole checkpoint")
    else:
        wanted = words.reset
        _edit(face, options, where, owner, lambda t: plan_reset_of(t, wanted, face.context, face.deadline))


@click.command()
@click.argument("owner", shell_complete=connector_names)
@partition_options
@write_options
@selection_options
@context_options
@output_option
@pass_face
def delete(face: Face, owner: str, which: "Which", where: Where, options: WriteOptions) -> None:
    """Delete positions of OWNER, so that it starts over."""
    from playhead.offsets.plan import plan_delete

    _edit(face, options, where, owner, lambda target: plan_delete(target, which))


@click.command()
@click.argument("old", shell_complete=connector_names)
@click.argument("new")
@click.option(
    "--map", "pairs", multiple=True, metavar="OLD=NEW", help="Replace a name inside the partitions; repeatable."
)
@partition_options
@write_options
@selection_options
@context_options
@output_option
@pass_face
def copy(
    face: Face,
    old: str,
    new: str,
    pairs: tuple[str, ...],
    which: "Which",
    where: Where,
    options: WriteOptions,
) -> None:
    """Copy the position of OLD to NEW, e.g. after a rename; with --map also to another database or table name.

    OLD and NEW are owners, or URIs of stores with one owner: `offsets copy group:billing checkpoint:/data/query`.
    """
    from playhead.offsets.plan import Which, plan_copy

    which = which if which.partition else Which(all=True)

    def planned() -> "tuple[Store, Plan]":
        locator = where.locator(face)
        source = locator.other(old)
        target = locator.other(new, like=source)
        return target.store, plan_copy(source, target, pairs_of(pairs), which)

    _plan_and_carry_out(face, options, [new], planned)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@write_options
@selection_options
@context_options
@output_option
@pass_face
def apply(face: Face, file: Path, where: Where, options: WriteOptions) -> None:
    """Execute the plan in FILE, saved by --save-plan. Items whose position changed since then are refused."""
    from playhead.model import Plan
    from playhead.offsets.plan import review_plan

    plan = Plan.from_json(bytes_of(file), str(file))
    owners = list(dict.fromkeys(change.owner for change in plan.changes))

    def planned() -> "tuple[Store, Plan]":
        target = where.locator(face).of_plan(plan)
        return target.store, review_plan(target, plan)

    _plan_and_carry_out(face, options, owners, planned)


@click.command()
@click.argument("entry_id", required=False, metavar="[ID]")
@write_options
@selection_options
@context_options
@output_option
@pass_face
def undo(face: Face, entry_id: str | None, where: Where, options: WriteOptions) -> None:
    """Undo an apply. ID is listed by `offsets journal`; its beginning is enough. Without ID, or with `last`: the newest apply
    that changed something in this context, or in the store of --store.

    A position that something else set since the
    apply is refused, unless --force is given. An undo is a plan like any other: it is shown, compared, recorded in the journal,
    and can be undone.
    """
    from playhead.offsets.apply import FORCE_HINT, plan_undo
    from playhead.offsets.journal import LAST, Journal
    from playhead.offsets.undo import check_store, find_newest

    book = Journal.of_context(face.context)
    entry = find_newest(book, where.locator(face)) if entry_id in (None, LAST) else book.get(entry_id)
    say(f"undoing {entry.id} of {entry.started:%Y-%m-%d %H:%M:%SZ} by {entry.who}")
    for name, state in (entry.states or {}).items():
        if state != "STOPPED" and entry.outcomes is None:
            say(f"note: {name} was {state} when that apply was interrupted; it may still be STOPPED")
    force = "--force" in options.permits

    def planned() -> "tuple[Store, Plan]":
        store = where.locator(face).of_plan(entry.plan).store
        check_store(entry, store)
        return store, plan_undo(entry, store, face.access, force=force)

    _plan_and_carry_out(face, options, entry.owners, planned, if_moved="plan again" if force else FORCE_HINT)


def _edit(face: Face, options: WriteOptions, where: Where, owner: str, plan_of: "Callable[[Location], Plan]") -> None:

    def planned() -> "tuple[Store, Plan]":
        target = where.locator(face).owner(owner)
        return target.store, plan_of(target)

    _plan_and_carry_out(face, options, [owner], planned)


def _plan_and_carry_out(
    face: Face,
    options: WriteOptions,
    owners: Sequence[str],
    planned: "Callable[[], tuple[Store, Plan]]",
    if_moved: str = "plan again",
) -> None:
    """Plans and executes. With --stop it plans twice: before the stop, so that an error stops nothing, and after it."""
    first = planned()
    if options.stop and first[0].uri.startswith("ledger+"):
        raise click.UsageError(
            f"--stop is for Connect; a run on Spark ends with: playhead runs stop {owners[0]} --execute"
        )
    with stopped_if_asked(face, options, owners) as held:
        store, plan = first if held is None else planned()
        carry_out(face, store, plan, options, stopped=held, if_moved=if_moved)


@contextmanager
def stopped_if_asked(face: Face, options: WriteOptions, owners: Sequence[str]) -> "Iterator[StoppedConnectors | None]":
    """With --stop and --execute: stops the connectors, so that the plan can be based on their final positions."""
    names = [owner for owner in owners if not owner.startswith("group:")]
    if not (options.stop and options.execute and names):
        yield None
        return
    from playhead.offsets.stop_restore import stopped

    with stopped(face.access, names, say) as held:
        yield held


def pairs_of(words: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{word!r} is not NAME=VALUE")
        if name in pairs:
            raise click.UsageError(f"{name!r} is given twice")
        pairs[name] = value
    return pairs


def bytes_of(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}") from None
