"""The one way a position is written: guard, compare, journal, write, read back.

After a write that failed, or whose answer was lost, each outcome is what the store shows: a worker or a broker can change some
partitions of an owner and reject others.

Nothing else calls `Store.write`. A refusal, or a position that moved since the plan was created, skips all changes of that owner
and no other owner. Outcomes are returned in the order of the plan's changes, one for each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from playhead.errors import Invalid, OutcomeUnknown, PlayheadError
from playhead.model import Change, Deadline, Map, Outcome, Outcomes, Plan, ReadBack, Result, result_of
from playhead.offsets.journal import Journal, JournalEntry, SavedEntry
from playhead.stores import Access, Refusal, Snapshot, Store, Stored, changes_by_owner, moved_since, shown
from playhead.stores.checkpoint.store import SparkCheckpoint
from playhead.stores.live_runs import warn_of_recent_runs

Entries = Mapping[tuple[str, Map], Stored]
READ_BACK_SECONDS = 10.0
FORCE_HINT = "add --force to overwrite it"


@dataclass(frozen=True, slots=True)
class Permissions:
    """The flags that lift a guard (`--force`, `--worker-is-down`, ...), and the states of connectors that were stopped for
    the edit. `deadline`: of the command; it is extended so that the store can be read back. `if_moved`: what
    to do about a position that is no longer what the plan starts from."""

    flags: frozenset[str] = frozenset()
    states: Mapping[str, str] = field(default_factory=dict)
    deadline: Deadline | None = None
    if_moved: str = "plan again"


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """`entry` None: nothing was written, so nothing was journalled. `warning`: what went wrong after the writing. `running`:
    owners that were refused because they run."""

    outcomes: Outcomes
    entry: JournalEntry | None
    warning: str = ""
    running: frozenset[str] = frozenset()


def apply_plan(
    store: Store,
    plan: Plan,
    journal: Journal,
    permissions: Permissions = Permissions(),
    on_begin: Callable[[JournalEntry], None] = lambda entry: None,
) -> ApplyResult:
    """Applies the plan. Raises only while nothing was written. `on_begin` gets the journal entry before the write."""
    if plan.is_empty:
        return ApplyResult(Outcomes(), None)
    owners = list(dict.fromkeys(change.owner for change in plan.changes))
    refusals = store.guard(owners)
    refused, lifted = _guarded(refusals, permissions)
    running = frozenset(one.owner for one in refusals if one.is_running and one.owner in refused)
    allowed = [owner for owner in owners if owner not in refused]
    before = store.snapshot(allowed) if allowed else Snapshot(())
    still = [change for change in plan.changes if change.owner not in refused]
    refused |= find_moved(before, still, permissions.if_moved)
    wanted = [change for change in plan.changes if change.owner not in refused]
    outcomes = {id(c): Outcome(c, Result.REFUSED, refused[c.owner]) for c in plan.changes if c.owner in refused}
    if not wanted:
        return ApplyResult(Outcomes(outcomes[id(change)] for change in plan.changes), None, running=running)
    touched = {(change.owner, change.partition) for change in wanted}
    # A store without atomic writes may also lose entries that it does not change: all entries of the owner are saved.
    save_all = not store.capabilities.atomic
    saved = [e for e in before.entries if save_all or (e.position.owner, e.position.partition) in touched]
    entry = journal.begin(plan, saved, lifted, permissions.states)
    on_begin(entry)
    written, raised = _written(store, wanted)
    if permissions.deadline is not None:
        permissions.deadline.leave(READ_BACK_SECONDS)
    seen = _read_back(store, written)
    lost = [] if raised else _find_lost(entry, written, seen)
    losers = {one.owner for one in lost}
    outcomes |= {id(o.change): _judged(o, seen, raised=raised, lost=o.change.owner in losers) for o in written}
    result = Outcomes(outcomes[id(change)] for change in plan.changes)
    is_read = not isinstance(seen, PlayheadError)
    warnings = [f"the write that failed also removed {_listed(lost)}; undo restores it"] if lost and is_read else []
    try:
        entry = journal.finish(entry, result, lost)
    except Invalid as error:  # the positions are written: report the outcomes; the entry stays "not finished"
        warnings.append(f"the outcomes are not in the journal: {error.what}")
    return ApplyResult(result, entry, "; ".join(warnings), running)


def _guarded(refusals: Sequence[Refusal], permissions: Permissions) -> tuple[dict[str, str], list[str]]:
    """Owner -> reason of the refusal; and the guards that a flag lifted, for the journal."""
    refused: dict[str, str] = {}
    lifted = []
    for refusal in refusals:
        if refusal.lifted_by in permissions.flags:
            lifted.append(f"{refusal.lifted_by}: {refusal.what}")
        else:
            ways = [refusal.hint, refusal.lifted_by and f"add {refusal.lifted_by}"]
            way_out = ", or ".join(way for way in ways if way)
            refused.setdefault(refusal.owner, f"{refusal.what}; {way_out}" if way_out else refusal.what)
    return refused, lifted


def find_moved(now: Snapshot, changes: Sequence[Change], hint: str = "plan again") -> dict[str, str]:
    """Owners with a position that is no longer what the plan starts from, each with a message."""
    current: dict[str, dict[Map, Map | None]] = {}
    for (owner, partition), entry in now.current().items():
        current.setdefault(owner, {})[partition] = entry.position.offset
    sentences = {
        owner: moved_since(own, current.get(owner, {}), hint) for owner, own in changes_by_owner(changes).items()
    }
    return {owner: sentence for owner, sentence in sentences.items() if sentence}


def _written(store: Store, changes: Sequence[Change]) -> tuple[Outcomes, bool]:
    """What the store reports for each change; and True if it raised an error, which means that it wrote nothing."""
    try:
        return store.write(changes), False
    except OutcomeUnknown as error:
        return Outcomes(Outcome(change, Result.UNKNOWN, error.what) for change in changes), False
    except PlayheadError as error:
        detail = f"{error.what}; {error.hint}" if error.hint else error.what
        return Outcomes(Outcome(change, result_of(error), detail) for change in changes), True


def _read_back(store: Store, written: Outcomes) -> Entries | PlayheadError:
    """What the store holds after the write; or why it cannot be read."""
    owners = {outcome.change.owner for outcome in written if outcome.result is not Result.REFUSED}
    try:
        current = store.snapshot(owners).current() if owners else {}
    except PlayheadError as error:
        return error
    return current


def _judged(claimed: Outcome, seen: Entries | PlayheadError, *, raised: bool, lost: bool) -> Outcome:
    """The outcome by what the store holds now: a write can fail for some partitions of an owner and succeed for others.

    `lost`: the failed write removed other positions of the owner, so it is no success even where it did what was requested.
    """
    if claimed.result is Result.REFUSED:
        return claimed
    if isinstance(seen, PlayheadError):
        return _unread(claimed, seen, raised=raised)
    change = claimed.change
    entry = seen.get((change.owner, change.partition))
    found = entry.position.offset if entry else None
    if claimed.result in (Result.CHANGED, Result.UNCHANGED):
        if found == change.after and entry is not None and entry.differs and claimed.result is Result.CHANGED:
            detail = f"written, but other copies were read back as {entry.differs}: something else writes this position"
            return replace(claimed, result=Result.FAILED, detail=detail)
        if found == change.after:
            return claimed
        detail = f"written, but read back as {shown(found)}: something else writes this position"
        return replace(claimed, result=Result.FAILED, detail=detail)
    # Where nothing was to be moved, the position does not show whether it was written.
    if found == change.after != change.before and not lost:
        how = "the answer was lost" if claimed.result is Result.UNKNOWN else f"failed in part ({claimed.detail})"
        return replace(claimed, result=Result.CHANGED, detail=f"{how}; read back as requested")
    as_found = {change.after: "it is as requested", change.before: "it is as before"}
    state = as_found.get(found, f"it is {shown(found)}")
    detail = f"{claimed.detail}; read back, {state}" if claimed.detail else f"read back, {state}"
    return replace(claimed, detail=detail, read_back=ReadBack(found))


def _unread(claimed: Outcome, error: PlayheadError, *, raised: bool) -> Outcome:
    """Unknown, unless the store had written nothing or had nothing to write."""
    if claimed.result is Result.CHANGED:
        return replace(claimed, result=Result.UNKNOWN, detail=f"written, but not read back: {error.what}")
    if claimed.result is Result.FAILED and not raised:
        detail = f"{claimed.detail}; whether a part was written is unknown, it was not read back: {error.what}"
        return replace(claimed, result=Result.UNKNOWN, detail=detail)
    return claimed


def _find_lost(entry: JournalEntry, written: Outcomes, seen: Entries | PlayheadError) -> list[SavedEntry]:
    """Saved entries outside the plan that are gone after a write that failed, or that may be gone if it was not read back."""
    broken = {one.change.owner for one in written if one.result in (Result.FAILED, Result.UNKNOWN)}
    planned = {(change.owner, change.partition) for change in entry.plan.changes}
    there = (
        planned
        if isinstance(seen, PlayheadError)
        else planned | {key for key, at in seen.items() if at.position.offset is not None}
    )
    return [one for one in entry.saved if one.owner in broken and one.offset is not None and _place(one) not in there]


def _place(saved: SavedEntry) -> tuple[str, Map]:
    return saved.owner, Map(saved.partition)


def _listed(lost: Sequence[SavedEntry]) -> str:
    some = ", ".join(f"{one.owner} {Map(one.partition)}" for one in lost[:4])
    return some + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")


def plan_undo(entry: JournalEntry, store: Store, access: Access | None = None, *, force: bool = False) -> Plan:
    """The plan that restores what an apply overwrote, starting from what the apply left.

    A position that something else set since then is refused by `apply_plan`, because the plan does not start from it. With
    `force` the plan starts from it, and a note names what is overwritten. `access`: of the context whose ledger shows the runs on
    Spark.
    """
    now = store.snapshot(entry.owners)
    current = {key: found.position.offset for key, found in now.current().items()}
    changes, warnings = [], []
    for change, left in _perhaps_done(entry):
        place = (change.owner, change.partition)
        offset = current.get(place)
        if change.before == change.after and entry.outcomes is not None and place in current:
            warnings.append(f"{change.owner} {change.partition} was not moved: nothing to restore there")
        elif offset == change.before:
            warnings.append(f"{change.owner} {change.partition} is as it was before: nothing to undo there")
        elif offset in left:
            note = "" if offset == change.after else f"the apply left {shown(offset)}"
            changes.append(Change(*place, offset, change.before, note))
        elif force:
            note = f"overwrites {shown(offset)}, which was set after the apply had left {shown(left[0])}"
            changes.append(Change(*place, offset, change.before, note))
        else:
            note = f"will be refused: moved since the apply, which had left {shown(left[0])}: it is {shown(offset)}"
            changes.append(Change(*place, left[0], change.before, f"{note}; {FORCE_HINT}"))
    planned = {(change.owner, change.partition) for change in entry.plan.changes}
    for lost in entry.saved if entry.outcomes is None else entry.lost:
        place = _place(lost)
        if place not in planned and place not in current and lost.offset is not None:
            how = "lost when the apply was interrupted" if entry.outcomes is None else "removed when the apply failed"
            changes.append(Change(*place, None, Map(lost.offset), how))
    if isinstance(store, SparkCheckpoint) and changes:
        warnings += store.restores(changes) or store.left_removed()
    if access is not None and changes:
        warnings += warn_of_recent_runs(access, now.entries)
    return Plan.of(store.uri, changes, warnings)


def _perhaps_done(entry: JournalEntry) -> list[tuple[Change, tuple[Map | None, ...]]]:
    """The changes that were written, or may have been, and what the apply may have left, the likeliest first.

    An apply that was interrupted may have removed a position before it wrote the new one.
    """
    if entry.outcomes is None:
        return [(change, (change.after, change.before, None)) for change in entry.plan.changes]
    return [(outcome.change, _left(outcome)) for outcome in entry.outcomes if outcome.may_be_written]


def _left(outcome: Outcome) -> tuple[Map | None, ...]:
    seen = () if outcome.read_back is None else (outcome.read_back.offset,)
    if outcome.result is Result.FAILED:
        return seen
    return (outcome.change.after, *seen) if outcome.result is Result.UNKNOWN else (outcome.change.after,)
