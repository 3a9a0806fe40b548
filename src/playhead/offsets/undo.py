"""Which apply `offsets undo` takes: an entry of the journal belongs to the store that it changed.

Without an id it is the newest apply that changed something: in the store of `--store`, else in the stores of the context. An
entry can be sent another way, if that leads to the same kind of positions: an edit by REST can be undone in the offsets topic.
"""

from playhead.errors import Invalid, Refused
from playhead.offsets.journal import Journal, JournalEntry
from playhead.offsets.locate import Locator
from playhead.stores import Store
from playhead.stores.open import holds_same_kind, is_of_context, is_same_store


def find_newest(book: Journal, locator: Locator) -> JournalEntry:
    """The newest apply that may have changed something in the store of the command line."""
    entries = book.newest_first()
    hint = "give an ID listed by `playhead offsets journal`"
    if locator.uri:
        uri = locator.any_store().uri
        found = (entry for entry in entries if is_same_store(entry.plan.store, uri))
        missing = f"the journal {book.folder} has no change of {uri}"
    else:
        found = (entry for entry in entries if is_of_context(entry.plan.store, locator.context))
        missing = f"the journal {book.folder} has no change in the stores of this context"
        if locator.via:
            found = (entry for entry in found if holds_same_kind(entry.plan.store, locator.any_store().uri))
    entry = next((entry for entry in found if entry.may_have_changed), None)
    if entry is None:
        raise Invalid(missing, hint)
    return entry


def check_store(entry: JournalEntry, store: Store) -> None:
    """Positions of one kind of store mean nothing in another: the owner of a group is not the owner of a SQL table."""
    if not holds_same_kind(entry.plan.store, store.uri):
        raise Refused(
            f"{entry.id} changed {entry.plan.store}: it cannot be undone in {store.uri}, which holds other positions",
            f"add --store '{entry.plan.store}'",
        )
