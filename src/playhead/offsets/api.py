"""Positions from Python: after `from playhead import offsets`, `offsets.set("orders_src", {"incrementing": 5})` and so on.

The rules are those of the command line. A change is a plan, and nothing is changed without `execute=True`. It is written by
`apply.apply_plan`: guard, compare, journal, write, read back. Errors are those of `playhead.errors`; a refused or failed change
is an outcome, so look at `ok`. Every function takes `context` (the name of a context of playhead.toml, or an opened one), `store`
(the URI of another store) and `via` ("rest" or "topic").
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_type_hints, overload

from playhead.config import Context, context_for_code
from playhead.connect.dialects import parse_literal
from playhead.errors import Invalid, NotFound, Refused
from playhead.model import Change, Deadline, Map, Outcomes, Plan, TopicPartition
from playhead.model.text_table import table
from playhead.model.times import parse_duration, parse_moment
from playhead.offsets.apply import FORCE_HINT, Permissions, plan_undo
from playhead.offsets.entries import list_entries
from playhead.offsets.journal import LAST, Journal
from playhead.offsets.locate import GROUP, Location, Locator
from playhead.offsets.plan import CREATE_HINT, Which, parse_partition, plan_copy, plan_delete, plan_reset_of, plan_set
from playhead.offsets.reset import reset_to_file, reset_to_group
from playhead.offsets.reset_options import Reset, ResetTo, Word, parse_scope
from playhead.offsets.show import show_owner
from playhead.offsets.stop_restore import StoppedConnectors, apply_stopped, stopped
from playhead.offsets.undo import check_store, find_newest
from playhead.stores import Access, Store
from playhead.stores.groups import open_groups

Where = Context | str | None
Partition = Mapping[str, Any] | str | Sequence[Mapping[str, Any]] | None  # a sequence: some partitions
Fields = dict[str, Any]
DRY_RUN = "dry run: nothing was changed; add execute=True"
_FLAGS = {"force": "--force", "worker_is_down": "--worker-is-down", "query_is_stopped": "--query-is-stopped"}


class Place(TypedDict, total=False):
    """Where positions are: `context`, another `store` by its URI, and `via` "rest" or "topic"."""

    context: Where
    store: str | None
    via: str | None


class EditOptions(Place, total=False):
    """As on the command line: `execute`, `stop`, and what lifts a guard: `force`, `worker_is_down`, `query_is_stopped`.

    `only`: execute only what this plan shows. A plan that leads elsewhere by now is refused. Where the owner was stopped for
    the edit, it may start from what the owner committed last. A target that moves by itself (the log end, a time ago) counts as
    it is at the execution; then the current position is compared.
    """

    execute: bool
    only: Plan | None
    stop: bool
    force: bool
    worker_is_down: bool
    query_is_stopped: bool


class ResetOptions(TypedDict, total=False):
    """The target of a reset, exactly one: `to` ("earliest", "latest", "current", an offset, a time), `shift_by`, `by_duration`
    (a timedelta, or "PT1H"), `to_group`, `from_file` (its name, or its bytes), `to_offsets` (of single partitions: {"t:0": 5}).
    `topics`: "t" or "t:0,1". `out_of_range`: "clamp" or "error"."""

    to: str | int | datetime | None
    shift_by: int | None
    by_duration: str | timedelta | None
    to_group: str | None
    from_file: str | Path | bytes | None
    to_offsets: Mapping[str, int] | None
    topics: Sequence[str]
    out_of_range: str


class ResetAndEdit(EditOptions, ResetOptions, total=False):
    """The options of a reset, and those of every edit."""


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """One stored position. `offset` None: it was deleted. `where`: its place in the store."""

    owner: str
    partition: Fields
    offset: Fields | None
    where: Fields
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class OffsetList(Sequence[OffsetRow]):
    """Stored positions; prints itself as a table. `place`: the stores that were read."""

    rows: tuple[OffsetRow, ...]
    place: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> OffsetRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[OffsetRow]: ...
    def __getitem__(self, at: int | slice) -> OffsetRow | Sequence[OffsetRow]:
        return self.rows[at]

    def __repr__(self) -> str:
        rows = [(row.owner, _text(row.partition), _text(row.offset), "; ".join(row.notes)) for row in self.rows]
        shown = table(("OWNER", "PARTITION", "OFFSET", "NOTES"), rows, f"no offsets in {self.place}")
        return "\n".join([shown, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True, slots=True)
class OwnerPosition:
    """`position`: in the words of the connector. `lag`: records to the end of the log, if that is known."""

    position: str
    partition: Fields
    offset: Fields | None
    lag: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class OwnerOffsets:
    """All positions of one owner. `about`: its class, kind, dialect, and what starting over means."""

    owner: str
    store: str
    about: Fields
    positions: tuple[OwnerPosition, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        about = {"owner": self.owner, "store": self.store, **self.about}
        rows = [(one.position, _text(one.offset), one.lag, "; ".join(one.notes)) for one in self.positions]
        parts = [table(("WHAT", "IS"), about.items(), "")]
        parts += [table(("POSITION", "OFFSET", "LAG", "NOTES"), rows, "no position")]
        return "\n\n".join(parts) + "".join(f"\nnote: {note}" for note in self.notes)


@dataclass(frozen=True, repr=False)
class Edit:
    """A plan and its result. `outcomes` None: it was not executed. `journal`: the id to undo it with, if something may have been
    changed. `exit_code` and `ok` as on the command line. `notes`: what happened on the way."""

    plan: Plan
    outcomes: Outcomes | None = None
    journal: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.plan.changes

    @property
    def is_empty(self) -> bool:
        return self.plan.is_empty

    @property
    def exit_code(self) -> int:
        return self.outcomes.exit_code if self.outcomes is not None else 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __repr__(self) -> str:
        titles = ["OWNER", "PARTITION", "BEFORE", "AFTER"]
        if self.outcomes is None:
            rows = [(*_cells(change), change.note) for change in self.changes]
            parts = [table((*titles, "NOTE"), rows, "nothing to change: already as requested")]
            parts += [] if self.is_empty else [DRY_RUN]
        else:
            done = [(*_cells(one.change), one.result.value, one.detail) for one in self.outcomes]
            parts = [table((*titles, "RESULT", "DETAIL"), done, "nothing to change: already as requested")]
            parts += [f"journal: {self.journal}; undo with offsets.undo({self.journal!r})"] if self.journal else []
        parts += [f"warning: {warning}" for warning in self.plan.warnings]
        return "\n".join([*parts, *(f"note: {note}" for note in self.notes)])


def _cells(change: Change) -> tuple[str, str, str, str]:
    before = None if change.before is None else change.before.to_dict()
    after = "(deleted)" if change.after is None else _text(change.after.to_dict())
    return change.owner, _text(change.partition.to_dict()), _text(before), after


def _text(fields: Fields | None) -> str:
    return "-" if fields is None else json.dumps(fields, ensure_ascii=False)


def list_(*owners: str, history: bool = False, **place: Unpack[Place]) -> OffsetList:
    """The position of every partition, of all owners or of some; `history`: everything that is still readable, oldest first.

    >>> offsets.list("orders_src")
    """
    refuse_unknown(place, Place)
    with _located(place) as locator:
        found, where = list_entries(locator, owners, history=history)
    rows = [
        OffsetRow(
            entry.position.owner,
            entry.position.partition.to_dict(),
            None if entry.position.offset is None else entry.position.offset.to_dict(),
            dict(entry.where),
            entry.notes,
        )
        for entry in found.entries
    ]
    return OffsetList(tuple(rows), where, found.notes)


def show(owner: str, **place: Unpack[Place]) -> OwnerOffsets:
    """The position of one owner, in the words of its connector.

    >>> offsets.show("orders_src").positions[0].offset
    """
    refuse_unknown(place, Place)
    with _located(place) as locator:
        found = show_owner(locator, owner)
    positions = [
        OwnerPosition(
            item.readable,
            item.entry.position.partition.to_dict(),
            None if item.entry.position.offset is None else item.entry.position.offset.to_dict(),
            item.lag,
            item.entry.notes,
        )
        for item in found.positions
    ]
    return OwnerOffsets(found.owner, found.store, dict(found.about), tuple(positions), found.notes)


def set_(
    owner: str,
    fields: Mapping[str, object],
    *,
    partition: Partition = None,
    every: bool = False,
    create: bool = False,
    replace: bool = False,
    **options: Unpack[EditOptions],
) -> Edit:
    """Set fields of a position; other fields are kept, unless `replace`. `partition` names one or some, `every` sets all of
    them.

    >>> offsets.set("orders_src", {"incrementing": 369034}, stop=True, execute=True)
    """
    texts = {name: _as_typed(value) for name, value in fields.items()}
    which = _which(partition, every=every, create=create)

    def planned(locator: Locator) -> tuple[Store, Plan]:
        try:
            target = locator.owner(owner, may_be_new=create)
        except NotFound as error:
            raise error if create else error.with_hint(CREATE_HINT) from None
        return target.store, plan_set(target, texts, which, replace_all=replace)

    return _edit([owner], planned, options)


def set_each(
    owner: str, values: Sequence[tuple[Mapping[str, Any], Mapping[str, object]]], **options: Unpack[EditOptions]
) -> Edit:
    """Set fields of several positions, each its own: `values` are partitions and their fields. One plan, and one undo."""
    texts = [
        (Which(Map(where)), {name: _as_typed(value) for name, value in fields.items()}) for where, fields in values
    ]

    def planned(locator: Locator) -> tuple[Store, Plan]:
        target = locator.owner(owner)
        plans = [plan_set(target, fields, which) for which, fields in texts]
        changes = [change for plan in plans for change in plan.changes]
        warnings = dict.fromkeys(warning for plan in plans for warning in plan.warnings)
        return target.store, Plan.of(target.store.uri, changes, warnings)

    return _edit([owner], planned, options)


def reset_to_ledger(sink: str, *, topics: Sequence[str] = (), **options: Unpack[EditOptions]) -> Edit:
    """Move the consumer group of a sink that runs on Spark to its positions in the ledger, as `groups reset --to-ledger`."""

    def planned(locator: Locator) -> tuple[Store, Plan]:
        from playhead.offsets.group_to_ledger import find_connectors, plan_to_ledger

        scope = parse_scope(topics, all_topics=not topics)
        access = locator.access
        groups = open_groups(locator.context, access.deadline)
        return plan_to_ledger(groups, [sink.removeprefix(GROUP)], scope, access, find_connectors(access))

    return _edit([sink], planned, options)


def reset(owner: str, **options: Unpack[ResetAndEdit]) -> Edit:
    """Move an owner to the start, the end, a time or an offset; without `topics` every partition that has a position.

    >>> offsets.reset("group:billing", to="earliest", execute=True)
    """
    wanted = reset_of(options, all_by_default=True)

    def planned(locator: Locator) -> tuple[Store, Plan]:
        target = locator.owner(owner)
        return target.store, plan_reset_of(target, wanted, locator.context, locator.access.deadline)

    return _edit([owner], planned, _edit_options(options), is_moving=has_moving_target(options))


def has_moving_target(options: ResetOptions) -> bool:
    """Whether the target is another one a moment later, although nothing is moved by hand."""
    to = options.get("to")
    if options.get("by_duration") is not None or to == "latest":
        return True
    return isinstance(to, str) and to not in _ENDS and isinstance(parse_moment(to), timedelta)


def delete(owner: str, *, partition: Partition = None, every: bool = False, **options: Unpack[EditOptions]) -> Edit:
    """Delete positions, so that the owner starts over there.

    >>> offsets.delete("orders_src", every=True, stop=True, execute=True)
    """
    which = _which(partition, every=every)
    return _edit([owner], lambda locator: _of(locator.owner(owner), lambda t: plan_delete(t, which)), options)


def copy(
    old: str,
    new: str,
    *,
    rename: Mapping[str, str] | None = None,
    partition: Partition = None,
    **options: Unpack[EditOptions],
) -> Edit:
    """Copy the positions of one owner to another; `rename` replaces names inside the partitions.

    >>> offsets.copy("orders_src", "orders_src_v2", execute=True)
    """
    which = _which(partition, every=partition is None)

    def planned(locator: Locator) -> tuple[Store, Plan]:
        source = locator.other(old)
        target = locator.other(new, like=source)
        return target.store, plan_copy(source, target, dict(rename or {}), which)

    return _edit([new], planned, options)


def undo(which: str | Edit | None = None, **options: Unpack[EditOptions]) -> Edit:
    """Undo an apply: an `Edit`, an id of the journal, or the newest apply of this context. A position that something else set
    since then is refused, unless forced.

    >>> offsets.undo(execute=True)
    """
    if isinstance(which, Edit) and which.journal is None:
        raise Invalid("this edit changed nothing: there is nothing to undo")
    refuse_unknown(options, EditOptions)
    entry_id = which.journal if isinstance(which, Edit) else which
    force = options.get("force", False)
    with _located(options) as locator:
        book = Journal.of_context(locator.context)
        entry = find_newest(book, locator) if entry_id in (None, LAST) else book.get(entry_id)

    def planned(locator: Locator) -> tuple[Store, Plan]:
        store = locator.of_plan(entry.plan).store
        check_store(entry, store)
        return store, plan_undo(entry, store, locator.access, force=force)

    return _edit(entry.owners, planned, options, if_moved="plan again" if force else FORCE_HINT)


def _of(target: Location, plan_of: Callable[[Location], Plan]) -> tuple[Store, Plan]:
    return target.store, plan_of(target)


def _which(partition: Partition, *, every: bool, create: bool = False) -> Which:
    if partition is not None and every:
        raise Invalid("partition and every exclude each other")
    if partition is None or isinstance(partition, str | Mapping):
        given = parse_partition(partition) if isinstance(partition, str) else partition
        return Which(None if given is None else Map(given), every, create)
    if not partition:
        raise Invalid("no partition is named")
    return Which(create=create, some=tuple(Map(one) for one in partition))


def _as_typed(value: object) -> str:
    """A value as it is typed on the command line: text that would be read as a number there is quoted."""
    if isinstance(value, str):
        return value if _reads_as_text(value) else json.dumps(value)
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    raise Invalid(f"a {type(value).__name__} is not a value of a position", "use text, numbers, True, False or None")


def _reads_as_text(text: str) -> bool:
    try:
        return parse_literal(text) == text
    except Invalid:
        return False


def reset_of(
    options: ResetOptions, *, all_topics: bool = False, all_by_default: bool = False
) -> Callable[[Store, Sequence[str]], Reset]:
    """The reset of these options, for the owners of a store. Invalid combinations are reported before any server is asked."""
    names = ("to", "shift_by", "by_duration", "to_group", "from_file", "to_offsets")
    given = {name: value for name in names if (value := options.get(name)) is not None}
    if len(given) != 1:
        problem = f"{' and '.join(given)} exclude each other" if given else "no target is given"
        raise Invalid(f"{problem}; give one of {', '.join(names)}")
    [(name, value)] = given.items()
    topics = options.get("topics", ())
    brings_positions = name in ("to_group", "from_file", "to_offsets")
    scope = parse_scope(
        [topics] if isinstance(topics, str) else topics,
        all_topics=all_topics or (all_by_default and not topics and not brings_positions),
    )
    out_of_range = options.get("out_of_range", "clamp")
    if out_of_range not in ("clamp", "error"):
        raise Invalid(f"out_of_range={out_of_range!r} is neither clamp nor error")
    if not brings_positions:
        fixed = Reset(_target(name, value), scope, out_of_range)
        return lambda store, owners: fixed
    if isinstance(value, Mapping):
        single = _places(value)
        return lambda store, owners: Reset(ResetTo(Word.FILE, dict.fromkeys(owners, single)), scope, out_of_range)
    if isinstance(value, bytes):
        return lambda store, owners: Reset(reset_to_file(value, "the text", owners), scope, out_of_range)
    if name == "from_file":
        file = Path(str(value))
        return lambda store, owners: Reset(reset_to_file(file.read_bytes(), str(file), owners), scope, out_of_range)
    return lambda store, owners: Reset(reset_to_group(store, str(value), owners), scope, out_of_range)


def _places(offsets: Mapping[str, int]) -> dict[TopicPartition, int]:
    found = {}
    for word, offset in offsets.items():
        [(topic, partitions)] = parse_scope([word]).topics.items()
        if partitions is None or len(partitions) != 1:
            raise Invalid(f"{word!r} does not name one partition", f"write it like {topic}:0")
        found[TopicPartition(topic, min(partitions))] = ResetTo(Word.OFFSET, offset).number
    return found


_ENDS = {"earliest": Word.EARLIEST, "latest": Word.LATEST, "current": Word.CURRENT}


def _target(name: str, value: object) -> ResetTo:
    if name == "shift_by" and isinstance(value, int):
        return ResetTo(Word.SHIFT, value)
    if name == "by_duration":
        return ResetTo(Word.DURATION, value if isinstance(value, timedelta) else parse_duration(str(value)))
    if isinstance(value, datetime):
        return ResetTo(Word.DATETIME, value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, int) and not isinstance(value, bool):
        return ResetTo(Word.OFFSET, value)
    word = _ENDS.get(str(value))
    return ResetTo(word) if word else ResetTo(Word.DATETIME, parse_moment(str(value)))


# The one way from a plan to its outcomes


def _edit(
    owners: Sequence[str],
    planned: Callable[[Locator], tuple[Store, Plan]],
    options: EditOptions,
    if_moved: str = "plan again",
    *,
    is_moving: bool = False,
) -> Edit:
    """With `stop` it plans twice: before the stop, so that an error stops nothing, and after it. `is_moving`: see
    `has_moving_target`."""
    refuse_unknown(options, EditOptions)
    with _located(options) as locator:
        store, plan = planned(locator)
        if not options.get("execute", False):
            return Edit(plan)
        only = options.get("only")
        if not options.get("stop", False):
            if only is not None:
                _check_same(plan, only, is_moving=is_moving)
            shown = None if is_moving else only
            return carry_out(locator.access, store, shown or plan, options, if_moved=if_moved)
        if store.uri.startswith("ledger+"):
            raise Invalid("stop is for Connect", f"a run on Spark ends with: playhead runs stop {owners[0]} --execute")
        notes: list[str] = []
        names = [owner for owner in owners if not owner.startswith(GROUP)]
        with stopped(locator.access, names, notes.append) as held:
            store, plan = planned(Locator(locator.access, locator.uri, locator.via))
            if only is not None:
                _check_same(plan, only, stopped=names, is_moving=is_moving)
            edit = carry_out(locator.access, store, plan, options, held=held, if_moved=if_moved)
        return Edit(edit.plan, edit.outcomes, edit.journal, (*edit.notes, *notes))


def _check_same(plan: Plan, shown: Plan, stopped: Sequence[str] = (), *, is_moving: bool = False) -> None:
    """`apply_plan` compares where a plan starts from; here, where it leads to. `stopped`: connectors that moved on until they
    were stopped for the plan; a shift counts from where they stopped, if it is as far as the one that was shown. `is_moving`: the
    target moved on by itself, so the start is compared instead; one that was at the target, and is behind it now, moves too."""
    then = {(change.owner, change.partition): change for change in shown.changes}
    now = {(change.owner, change.partition): change for change in plan.changes}
    if plan.store != shown.store:
        raise Refused(f"the plan was for {shown.store}, and the position is in {plan.store} now", "plan again")
    for place in {**then, **now}:
        old, new = then.get(place), now.get(place)
        if is_moving and (stopped or old is None or (new is not None and old.before == new.before)):
            continue
        if old and new and (old.after == new.after or (stopped and _distance(old) == _distance(new) is not None)):
            continue
        owner, partition = place
        what = f"{owner} {partition} moved since the plan was created, so the same edit would lead elsewhere"
        if not stopped:
            raise Refused(what, "plan again")
        raise Refused(
            f"{what}; {', '.join(stopped)} was stopped for it, and its former state is restored; nothing was written",
            "stop it first, wait until it is stopped, and plan again",
        )


def _distance(change: Change) -> int | None:
    """How far a position in Kafka moves."""
    ends = [None if side is None else side.get("kafka_offset") for side in (change.before, change.after)]
    before, after = ends
    return after - before if isinstance(before, int) and isinstance(after, int) else None


def carry_out(
    access: Access,
    store: Store,
    plan: Plan,
    options: EditOptions,
    *,
    held: StoppedConnectors | None = None,
    if_moved: str = "plan again",
) -> Edit:
    """Executes a plan. Its connectors were stopped for it if `held` is given."""
    permits = frozenset(flag for name, flag in _FLAGS.items() if options.get(name, False))
    permissions = Permissions(permits, held.states if held else {}, access.deadline, if_moved)
    applied = apply_stopped(store, plan, Journal.of_context(access.context), permissions, held)
    entry = applied.entry
    journal = entry.id if entry is not None and entry.may_have_changed else None
    return Edit(plan, applied.outcomes, journal, (applied.warning,) if applied.warning else ())


@contextmanager
def _located(place: Place) -> Iterator[Locator]:
    context = context_for_code(place.get("context"))
    with Access(context, Deadline(context.timeout_seconds)) as access:
        yield Locator(access, place.get("store"), place.get("via"))


def _edit_options(options: ResetAndEdit) -> EditOptions:
    """Without the options of the reset."""
    refuse_unknown(options, ResetAndEdit)
    kept = options.copy()
    for name in get_type_hints(ResetOptions):
        kept.pop(name, None)  # type: ignore[misc]
    return kept


def refuse_unknown(given: Mapping[str, object], options: type) -> None:
    """As Python does for a function that names its arguments. `options`: a typed dict."""
    if odd := [name for name in given if name not in get_type_hints(options)]:
        raise TypeError(f"got an unexpected keyword argument {odd[0]!r}")
