"""The one way a position is written: guard, compare, journal, write, read back.

Nothing else calls `Store.write`. A refusal, or a position that moved since the plan was created, skips all changes of that owner
and no other owner. Outcomes are returned in the order of the plan's changes, one for each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from playhead.errors import Invalid, OutcomeUnknown, PlayheadError
from playhead.model import Change, Map, Outcome, Outcomes, Plan, Result
from playhead.offsets.journal import Journal, JournalEntry
from playhead.stores import Refusal, Snapshot, Store, moved_since, shown


@dataclass(frozen=True, slots=True)
class Permissions:
    """The flags that lift a guard (`--force`, `--worker-is-down`, ...), and the states of connectors that were stopped for
    the edit."""

    flags: frozenset[str] = frozenset()
    states: Mapping[str, str] = field(default_factory=dict)


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
    refused |= find_moved(before, [change for change in plan.changes if change.owner in allowed])
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
    written = _written(store, wanted)
    outcomes |= {id(outcome.change): outcome for outcome in _verified(store, written)}
    result = Outcomes(outcomes[id(change)] for change in plan.changes)
    try:
        return ApplyResult(result, journal.finish(entry, result), running=running)
    except Invalid as error:  # the positions are written: report the outcomes; the entry stays "not finished"
        return ApplyResult(result, entry, f"the outcomes are not in the journal: {error.what}", running)


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


def find_moved(now: Snapshot, changes: Sequence[Change]) -> dict[str, str]:
    """Owners with a position that is no longer what the plan starts from, each with a message."""
    current = now.current()
    moved: dict[str, str] = {}
    for owner in dict.fromkeys(change.owner for change in changes):
        own = {partition: e.position.offset for (name, partition), e in current.items() if name == owner}
        if sentence := moved_since((change for change in changes if change.owner == owner), own):
            moved[owner] = sentence
    return moved


def _written(store: Store, changes: Sequence[Change]) -> Outcomes:
    try:
        return store.write(changes)
    except OutcomeUnknown as error:
        return Outcomes(Outcome(change, Result.UNKNOWN, error.what) for change in changes)
    except PlayheadError as error:
        detail = f"{error.what}; {error.hint}" if error.hint else error.what
        return Outcomes(Outcome(change, Result.FAILED, detail) for change in changes)


def _verified(store: Store, written: Outcomes) -> list[Outcome]:
    """Compares with what the store shows after the write. If it cannot be read, the result of a change is unknown."""
    claimed = {Result.CHANGED, Result.UNCHANGED, Result.UNKNOWN}
    owners = {outcome.change.owner for outcome in written if outcome.result in claimed}
    if not owners:
        return list(written)
    try:
        current = store.snapshot(owners).current()
    except PlayheadError as error:
        return [
            replace(o, result=Result.UNKNOWN, detail=f"written, but not read back: {error.what}")
            if o.result is Result.CHANGED
            else o
            for o in written
        ]
    positions = {key: entry.position.offset for key, entry in current.items()}
    return [_judged(outcome, positions) if outcome.result in claimed else outcome for outcome in written]


def _judged(outcome: Outcome, positions: Mapping[tuple[str, Map], Map | None]) -> Outcome:
    change = outcome.change
    found = positions.get((change.owner, change.partition))
    if found == change.after:
        result = Result.CHANGED if outcome.result is Result.UNKNOWN else outcome.result
        detail = (
            outcome.detail if outcome.result is not Result.UNKNOWN else "the answer was lost; read back as requested"
        )
        return replace(outcome, result=result, detail=detail)
    if outcome.result is Result.UNKNOWN:
        state = "it is as before" if found == change.before else f"it is {shown(found)}"
        return replace(outcome, detail=f"{outcome.detail}; read back, {state}")
    detail = f"written, but read back as {shown(found)}: something else writes this position"
    return replace(outcome, result=Result.FAILED, detail=detail)


def plan_undo(entry: JournalEntry, store: Store) -> Plan:
    """The plan that restores what an apply overwrote, starting from what the store holds now."""
    current = store.snapshot(entry.owners).current()
    changes, warnings = [], []
    for change in _perhaps_done(entry):
        found = current.get((change.owner, change.partition))
        offset = found.position.offset if found else None
        if change.before == change.after and entry.outcomes is not None and found is not None:
            warnings.append(f"{change.owner} {change.partition} was not moved: nothing to restore there")
        elif offset == change.before:
            warnings.append(f"{change.owner} {change.partition} is as it was before: nothing to undo there")
        elif offset == change.after:
            changes.append(change.reversed())
        else:
            left = (
                f"the apply had left {shown(change.after)}"
                if entry.outcomes
                else "the apply was interrupted, perhaps before this change"
            )
            note = f"moved since then: {left}"
            changes.append(Change(change.owner, change.partition, offset, change.before, note))
    planned = {(change.owner, change.partition) for change in entry.plan.changes}
    for lost in entry.saved:
        place = (lost.owner, Map(lost.partition))
        if place not in planned and place not in current and lost.offset is not None:
            changes.append(Change(*place, None, Map(lost.offset), "lost when the apply was interrupted"))
    return Plan.of(store.uri, changes, warnings)


def _perhaps_done(entry: JournalEntry) -> list[Change]:
    """All changes of an apply that was interrupted; else those that were written, or may have been."""
    if entry.outcomes is None:
        return list(entry.plan.changes)
    return [o.change for o in entry.outcomes if o.result in (Result.CHANGED, Result.UNKNOWN)]
