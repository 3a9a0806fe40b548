"""Sinks that run on Spark: where they are kept, unless Connect runs them now.

Most are in the ledger of the context. A sink into a database is kept in that database; the run's own ledger tells where that is,
without the password, which comes from where PostgreSQL's clients look for it (PGPASSWORD, ~/.pgpass).
"""

from collections.abc import Sequence

from playhead.connect.rest import open_rest
from playhead.errors import PlayheadError
from playhead.offsets.selection import Selection, Target
from playhead.offsets.workers import Connector
from playhead.stores import Snapshot, Store


def home_on_spark(selection: Selection, name: str, connector: Connector | None) -> Target | None:
    """In the ledger, with why it is that one. None: it is not there, or Connect runs it, or --via says another way."""
    if selection.via is not None or (connector is not None and not connector.is_sink):
        return None
    store = selection.sinks.find(name)
    if store is None:
        if selection.sinks.why and selection.worker is None and not selection.context.connect_urls:
            raise selection.sinks.why  # there is nowhere else to look
        return None
    if _runs_in_connect(selection, connector):
        return None
    also = "" if connector is None else "; Connect knows it too, and does not run it"
    note = f"{name} runs on Spark: its position is kept in the ledger, and its consumer group only shows it{also}"
    return Target(store, name, notes=(note,), access=selection.access)


def _runs_in_connect(selection: Selection, connector: Connector | None) -> bool:
    if connector is None or not selection.known.answers:
        return False
    with open_rest(selection.context, selection.access.deadline) as rest:
        status = rest.find_status(connector.name)
    return status is not None and status.connector.state != "STOPPED"


def notes_on_ledger(selection: Selection, name: str) -> tuple[str, ...]:
    """What a sink connector that is kept in its group should know about the ledger."""
    sinks = selection.sinks
    if selection.via is None and sinks.find(name) is not None:
        return ("Connect runs it: its group is taken, and what the ledger has of its runs on Spark is left alone",)
    return (f"whether it runs on Spark is not known: {sinks.why.what}",) if sinks.why else ()


def read_on_spark(
    selection: Selection, names: Sequence[str], *, history: bool
) -> list[tuple[Store, list[str], Snapshot]]:
    """By store the sinks that are kept there, and what it says of them: of all sinks where nobody is named."""
    if selection.uri is not None or selection.via is not None:
        return []
    sinks = selection.sinks
    found = [name for name in names or sinks.names if sinks.knows(name)]
    by_place: dict[str, tuple[Store, list[str]]] = {}
    for name in found:
        if (target := home_on_spark(selection, name, selection.look_up(name)[0])) is not None:
            by_place.setdefault(target.store.uri, (target.store, []))[1].append(name)
    return [(store, kept, _read(store, kept, history=history, strict=bool(names))) for store, kept in by_place.values()]


def _read(store: Store, owners: Sequence[str], *, history: bool, strict: bool) -> Snapshot:
    """A database that does not answer is an error for whoever asked for what is in it, else a note."""
    try:
        return store.history(owners) if history else store.snapshot(owners)
    except PlayheadError as error:
        if strict:
            raise
        return Snapshot((), (f"not told: {', '.join(owners)}: {error.what}",))


def has_ledger_only(selection: Selection) -> bool:
    return selection.worker is None and not selection.context.connect_urls
