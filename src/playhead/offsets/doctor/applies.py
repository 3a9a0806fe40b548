"""Applies that were cut off: their journal entry names the plan and has no outcome, so only the store can tell what they did.

Where all is as before, or has moved on since, there is nothing to mend; it is said as a note. A change that did happen is a
finding, because nobody was told of it.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from playhead.errors import PlayheadError
from playhead.model import Map
from playhead.offsets.doctor.commands import Commands
from playhead.offsets.doctor.findings import Finding, Said
from playhead.offsets.journal import JournalEntry

Offsets = Mapping[tuple[str, Map], Map | None]
ReadStore = Callable[[JournalEntry], Offsets]
OLD, NEW, ELSEWHERE = "at the old position", "at the new position", "at neither: it moved on since"
_MAY_STILL_RUN = timedelta(minutes=5)


def check_applies(entries: list[JournalEntry], read: ReadStore, commands: Commands) -> Iterator[Said]:
    """`read`: what the store of an entry holds now for its owners."""
    for entry in entries:
        if entry.outcomes is not None:
            continue
        try:
            current = read(entry)
        except PlayheadError as error:
            yield f"the apply {entry.id} was cut off, and its store cannot be looked at: {error.what}"
            continue
        yield _verdict(entry, current, commands)


def _verdict(entry: JournalEntry, current: Offsets, commands: Commands) -> Said:
    states = {owner: _state(entry, owner, current) for owner in entry.owners}
    told = "; ".join(f"{owner} is {state}" for owner, state in states.items())
    perhaps = " (or still runs)" if datetime.now(UTC) - entry.started < _MAY_STILL_RUN else ""
    what = f"the apply {entry.id} of {entry.who} was cut off{perhaps}: {told}"
    if any(NEW in state for state in states.values()):
        return Finding("unfinished-apply", ", ".join(entry.owners), what, commands.undo(entry.id))
    return what


def _state(entry: JournalEntry, owner: str, current: Offsets) -> str:
    found: dict[str, int] = {}
    for change in entry.plan.changes:
        if change.owner == owner:
            now = current.get((owner, change.partition))
            state = OLD if now == change.before else NEW if now == change.after else ELSEWHERE
            found[state] = found.get(state, 0) + 1
    if len(found) == 1:
        return next(iter(found))
    return " and ".join(f"{state} in {count} partition(s)" for state, count in found.items())
