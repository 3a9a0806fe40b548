"""The stored entries of all or some owners, from every store that holds them: for `offsets list`, `history` and `export`."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from playhead.errors import NotFound, PlayheadError, Unreachable
from playhead.model.times import to_iso
from playhead.offsets.locate import GROUP, Locator
from playhead.stores import Snapshot, Store, Stored

ORPHAN = "an orphan: no connector of this name exists; a new one would continue from here"


def list_entries(locator: Locator, names: Sequence[str], *, history: bool = False) -> tuple[Snapshot, str]:
    """The stored entries, and the stores that hold them. `group:NAME` and connectors may be mixed."""
    groups = [name.removeprefix(GROUP) for name in names if name.startswith(GROUP)]
    others = [name for name in names if not name.startswith(GROUP)]
    parts, places = [], []
    if groups:
        found = _read(locator.groups(), groups, history=history)
        parts.append(replace(found, entries=tuple(_as_group(entry) for entry in found.entries)))
        places.append("the consumer groups")
    taken: list[str] = []
    for store, kept, seen in _read_sinks(locator, others, history=history):
        places.append(store.uri)
        parts.append(seen)
        taken += kept
    others = [name for name in others if name not in taken]
    has_ledger_only = locator.worker is None and not locator.context.connect_urls
    if others or (not names and not (taken and has_ledger_only)):
        store = locator.any_store()
        places.append(store.uri)
        try:
            parts.append(_read(store, others or None, history=history))
        except NotFound as error:  # a worker does not answer for a name that is no connector
            if locator.uri:
                raise
            raise locator.not_found(error.name, store, Snapshot(())) from None
        if locator.uri is None and locator.via is None and not history and not store.uri.startswith("connect+"):
            parts = [*parts[:-1], *_with_what_workers_know(locator, others, parts[-1], taken)]
    entries = [entry for part in parts for entry in part.entries]
    if not history:
        entries.sort(key=_by_owner_and_partition)
    _check_names(locator, names, {entry.position.owner for entry in entries})
    return Snapshot(tuple(entries), tuple(n for part in parts for n in part.notes)), " and ".join(places)


def _by_owner_and_partition(entry: Stored) -> tuple[str, list[tuple[int, Any]]]:
    """Numbers by their value: partition 10 follows partition 9."""
    fields = entry.position.partition.fields.values()
    ranked = [(1, v) if isinstance(v, str) else (0, v) if isinstance(v, int | float) else (2, str(v)) for v in fields]
    return entry.position.owner, ranked


def _as_group(entry: Stored) -> Stored:
    return replace(entry, position=replace(entry.position, owner=GROUP + entry.position.owner))


def _check_names(locator: Locator, names: Sequence[str], found: Collection[str]) -> None:
    """A connector may have no position yet. A name that is unknown everywhere is an error."""
    for name in (name for name in names if name not in found):
        if locator.uri or name.startswith(GROUP):
            locator.owner(name).check_exists()
        elif name not in (locator.known.connectors or {}):
            store = locator.any_store()
            stored = store.snapshot()
            if name not in stored.by_owner():
                raise locator.not_found(name, store, stored)


def _read(store: Store, owners: Collection[str] | None, *, history: bool) -> Snapshot:
    return store.history(owners) if history else store.snapshot(owners)


def _read_sinks(locator: Locator, names: Sequence[str], *, history: bool) -> list[tuple[Store, list[str], Snapshot]]:
    """Each store with its sinks and their entries. Without names: all sinks.

    A database that does not answer is an error if a sink in it was named, else a note.
    """
    if locator.uri is not None or locator.via is not None:
        return []
    found = [name for name in names or locator.sinks.names if locator.sinks.knows(name)]
    by_place: dict[str, tuple[Store, list[str]]] = {}
    for name in found:
        if (at := locator.on_spark(name, locator.look_up(name)[0])) is not None:
            by_place.setdefault(at.store.uri, (at.store, []))[1].append(name)
    read = []
    for store, kept in by_place.values():
        try:
            seen = _read(store, kept, history=history)
        except PlayheadError as error:
            if names:
                raise
            seen = Snapshot((), (f"not shown: {', '.join(kept)}: {error.what}",))
        read.append((store, kept, seen))
    return read


def _with_what_workers_know(
    locator: Locator, names: Sequence[str], stored: Snapshot, taken: Collection[str]
) -> list[Snapshot]:
    """Marks orphans, and adds the sink connectors, whose positions are in consumer groups. Only where workers are named.

    `taken`: sinks that run on Spark, which are listed already.
    """
    if not locator.context.connect_urls:
        return [stored]
    known = locator.known
    if not known.answers or known.connectors is None:
        return [stored, Snapshot((), (f"sink connectors and orphans are not shown: {known.why}",))]
    sinks = [c.name for c in known.connectors.values() if c.is_sink and (not names or c.name in names)]
    sinks = [name for name in sinks if name not in taken]
    try:
        shown = locator.rest.snapshot(sinks) if sinks else Snapshot(())
    except Unreachable as error:
        shown = Snapshot((), (f"sink connectors are not shown: {error.what}",))
    alone = {owner: found for owner, found in stored.by_owner().items() if owner not in known.connectors}
    notes = {owner: _without_connector(locator, owner, found) for owner, found in alone.items()}
    entries = tuple(
        replace(entry, notes=(*entry.notes, note)) if (note := notes.get(entry.position.owner)) else entry
        for entry in stored.entries
    )
    return [replace(stored, entries=entries), shown]


def _without_connector(locator: Locator, owner: str, found: Sequence[Stored]) -> str:
    """A note about an owner that the workers do not have. Empty: the ledger shows that it ran on Spark."""
    if owner in locator.sinks.runs:
        return ""
    times = [entry.by_spark for entry in found if entry.by_spark is not None]
    if times:
        return (
            f"a run on Spark wrote it, last at {to_iso(max(times))}; the ledger of this context does not know this run"
        )
    if locator.sinks.why:
        return f"no connector of this name exists; whether it runs on Spark is unknown: {locator.sinks.why.what}"
    return ORPHAN
