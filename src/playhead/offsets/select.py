"""Which store holds an owner's position, and by which way it is best changed: decided by files and workers, never guessed.

A connector goes through REST when a worker answers, the connector exists and its stored keys lie in the order in which REST would
write them; else straight to where the offsets lie. A sink's position lies in its consumer group, never in an offsets topic.
`group:NAME` is a consumer group. A sink that runs on Spark is kept in the ledger, unless Connect runs it now. Any store can be
named by its URI.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from playhead.connect.javajson import hash_map_order
from playhead.connect.keys import OffsetKey, encode_key
from playhead.errors import Invalid, NotFound, Refused, Unreachable
from playhead.model import Positions
from playhead.offsets.on_spark import has_ledger_only, home_on_spark, notes_on_ledger, read_on_spark
from playhead.offsets.selection import GROUP, REST, TOPIC, Selection, Target
from playhead.offsets.sinks import as_sink_ledger
from playhead.offsets.workers import Connector
from playhead.stores import Snapshot, Store, Stored, is_kafka_place
from playhead.stores.open import is_store, open_store

ORPHAN = "an orphan: no connector of this name exists; a new one would go on from here"


def select_store(selection: Selection) -> Store:
    """The store that shows most: the offsets themselves where the worker file is known, else what the workers tell."""
    if selection.uri:
        return open_store(selection.uri, selection.access)
    if selection.via == REST or (selection.via is None and selection.worker is None and selection.context.connect_urls):
        return selection.rest
    return selection.direct


def select_owner(selection: Selection, name: str, *, may_be_new: bool = False) -> Target:
    """Where `name` is kept, and how to reach it for a change.

    A name that neither is a connector nor has a position is an error with near names, unless it `may_be_new`: then it is
    written where source connectors without a worker are.
    """
    if name.startswith(GROUP):
        return Target(selection.groups(), name.removeprefix(GROUP), access=selection.access)
    if selection.uri:
        return Target(open_store(selection.uri, selection.access), name, access=selection.access)
    connector, unreachable = selection.look_up(name)
    if (kept := home_on_spark(selection, name, connector)) is not None:
        return kept
    if unreachable is not None:
        raise unreachable
    target = replace(_home(selection, name, connector), access=selection.access)
    if connector is None:
        stored = target.store.snapshot(None).by_owner()
        if target.owner not in stored and not may_be_new:
            known = {*stored, *(selection.known.connectors or ()), *selection.sinks.names}
            raise selection.sinks.why or NotFound("owner", name, sorted(known))
        if target.owner not in stored:
            note = f"{name} is neither a connector nor has it a position yet: check its name"
            return replace(target, notes=(*target.notes, note))
    return target


def _home(selection: Selection, name: str, connector: Connector | None) -> Target:
    if connector is not None and connector.is_sink:
        return _home_of_sink(selection, connector)
    answers = selection.known.answers
    if selection.via == REST:
        return Target(selection.rest, name, connector)
    if connector is not None and answers and selection.via is None:
        if selection.worker is None:
            return Target(selection.rest, name, connector)
        if connector.cluster is not None:
            note = f"its offsets are on another cluster ({connector.cluster}): the worker is asked"
            return Target(selection.rest, name, connector, (note,))
        if _in_order_of_rest(selection.direct, name):
            return Target(selection.rest, name, connector)
        note = "its keys are stored in an order that the workers' REST API would not find: the topic is written"
        return Target(selection.direct, name, connector, (note,))
    if connector is not None and connector.cluster is not None:
        raise Refused(
            f"the offsets of {name} are on another cluster ({connector.cluster})", "a worker has to be up for them"
        )
    if selection.worker is None and answers:
        return Target(selection.rest, name)
    return Target(selection.direct, name, connector)


def _home_of_sink(selection: Selection, connector: Connector) -> Target:
    if selection.via == TOPIC:
        raise Invalid(
            f"{connector.name} is a sink: its position lies in the consumer group {connector.group}", "leave --via out"
        )
    notes = notes_on_ledger(selection, connector.name)
    if selection.known.answers:
        return Target(selection.rest, connector.name, connector, notes)
    return Target(selection.groups(connector.cluster), connector.group, connector, notes)


def select_entries(selection: Selection, names: Sequence[str], *, history: bool = False) -> tuple[Snapshot, str]:
    """What is stored, of all owners or of some, and where that is. `group:NAME` and connectors may be mixed."""
    groups = [name.removeprefix(GROUP) for name in names if name.startswith(GROUP)]
    others = [name for name in names if not name.startswith(GROUP)]
    parts, places = [], []
    if groups:
        found = _read(selection.groups(), groups, history=history)
        parts.append(replace(found, entries=tuple(_as_group(entry) for entry in found.entries)))
        places.append("the consumer groups")
    taken: list[str] = []
    for store, kept, seen in read_on_spark(selection, others, history=history):
        places.append(store.uri)
        parts.append(seen)
        taken += kept
    others = [name for name in others if name not in taken]
    if others or (not names and not (taken and has_ledger_only(selection))):
        store = select_store(selection)
        places.append(store.uri)
        parts.append(_read(store, others or None, history=history))
        if selection.uri is None and selection.via is None and not history and not store.uri.startswith("connect+"):
            parts = [*parts[:-1], *_with_what_workers_know(selection, others, parts[-1], taken)]
    entries = [entry for part in parts for entry in part.entries]
    if not history:
        entries.sort(key=lambda entry: entry.position.owner)
        _check_names(selection, names, {entry.position.owner for entry in entries})
    return Snapshot(tuple(entries), tuple(n for part in parts for n in part.notes)), " and ".join(places)


def _as_group(entry: Stored) -> Stored:
    return replace(entry, position=replace(entry.position, owner=GROUP + entry.position.owner))


def _check_names(selection: Selection, names: Sequence[str], found: Collection[str]) -> None:
    """A connector may have no position yet; a name that nobody knows is a typo."""
    missing = [name for name in names if name not in found]
    if not missing or selection.uri:
        return
    connectors = selection.known.connectors or {}
    for name in missing:
        if name not in connectors and not name.startswith(GROUP):
            stored = select_store(selection).snapshot().by_owner()
            if name not in stored:
                raise selection.sinks.why or NotFound(
                    "owner", name, sorted({*stored, *connectors, *selection.sinks.names})
                )


def _read(store: Store, owners: Collection[str] | None, *, history: bool) -> Snapshot:
    return store.history(owners) if history else store.snapshot(owners)


def _with_what_workers_know(
    selection: Selection, names: Sequence[str], stored: Snapshot, taken: Collection[str]
) -> list[Snapshot]:
    """Marks orphans, and adds the sink connectors, whose positions lie in consumer groups. Only where workers are named.

    `taken`: those that run on Spark, which are told already.
    """
    if not selection.context.connect_urls:
        return [stored]
    known = selection.known
    if not known.answers or known.connectors is None:
        return [stored, Snapshot((), (f"sink connectors and orphans are not told: {known.why}",))]
    sinks = [c.name for c in known.connectors.values() if c.is_sink and (not names or c.name in names)]
    sinks = [name for name in sinks if name not in taken]
    try:
        shown = selection.rest.snapshot(sinks) if sinks else Snapshot(())
    except Unreachable as error:
        shown = Snapshot((), (f"sink connectors are not told: {error.what}",))
    entries = tuple(
        entry if entry.position.owner in known.connectors else replace(entry, notes=(*entry.notes, ORPHAN))
        for entry in stored.entries
    )
    return [replace(stored, entries=entries), shown]


def select_other(selection: Selection, name: str, like: Target | None = None) -> Target:
    """An owner, or the one owner of a store named by its URI. `like`: whose position it gets, so that it may be new."""
    if is_store(name):
        store = open_store(name, selection.access)
        owners = list(store.snapshot().by_owner())
        if len(owners) > 1:
            raise Invalid(
                f"{name} holds {len(owners)} owners: {', '.join(owners[:8])}", "name one with --store and its name"
            )
        return Target(store, owners[0] if owners else "source-0", access=selection.access)
    if like is None or name.startswith(GROUP):
        return select_owner(selection, name)
    if like.connector is not None and like.connector.is_sink and name not in (selection.known.connectors or {}):
        note = f"the sink connector {name} does not exist yet: the group it will have is written"
        return Target(
            selection.groups(like.connector.cluster), f"connect-{name}", notes=(note,), access=selection.access
        )
    if as_sink_ledger(like.store) is not None and not selection.sinks.knows(name):
        note = f"the ledger has no sink {name} yet: it gets a position there"
        return Target(like.store, name, notes=(note,), access=selection.access)
    return select_owner(selection, name, may_be_new=True)


def select_for(selection: Selection, wanted: Positions) -> list[tuple[Target, Positions]]:
    """For every owner of `wanted` where it is written, and its positions under the name it has there."""
    if not wanted.owners:
        raise Invalid("there is no position to import")
    found = []
    for owner in wanted.owners:
        own = wanted.for_owner(owner)
        target = select_owner(selection, owner, may_be_new=True)
        is_strange = target.connector is None and not owner.startswith(GROUP) and not selection.uri
        is_strange = is_strange and as_sink_ledger(target.store) is None
        if is_strange and any(is_kafka_place(position.partition) for position in own):
            known = list(selection.known.connectors or ())
            raise NotFound("sink connector", owner, known, f"a consumer group is named group:{owner}")
        found.append((target, Positions(replace(position, owner=target.owner) for position in own)))
    return found


def _in_order_of_rest(direct: Store, owner: str) -> bool:
    """True when each stored key of the owner is what a worker would make of its JSON: fields as a Java HashMap orders them."""
    return all(
        entry.raw is None or entry.raw.key == _as_rest_writes(OffsetKey(owner, entry.position.partition))
        for entry in direct.snapshot([owner]).entries
    )


def _as_rest_writes(key: OffsetKey) -> bytes:
    return encode_key(key, hash_map_order(list(key.partition)))
