"""Which store holds an owner's position, and by which way it is best changed: decided by files and workers, never guessed.

A connector goes through REST when a worker answers, the connector exists and its stored keys lie in the order in which REST would
write them; else straight to where the offsets lie. `group:NAME` is a consumer group. Any store can be named by its URI.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from playhead.config import Context, Setting
from playhead.connect.javajson import hash_map_order
from playhead.connect.keys import OffsetKey, encode_key
from playhead.connect.rest import open_rest
from playhead.errors import Invalid, NotFound, Unreachable
from playhead.kafka.properties import client_settings
from playhead.model import Deadline, Positions
from playhead.offsets.workers import Connector, Worker, list_configured, worker_of
from playhead.stores import Access, Progress, Snapshot, Store
from playhead.stores.config_topic import read_connector_configs
from playhead.stores.opening import is_store, open_store

GROUP = "group:"
REST, TOPIC = "rest", "topic"
ORPHAN = "an orphan: no connector of this name exists; a new one would go on from here"


@dataclass(frozen=True, slots=True)
class Target:
    """An owner in its store. `connector` is None for what is not a connector, or not one that exists."""

    store: Store
    owner: str
    connector: Connector | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """What a command line says about where to look: the context, `--store`, `--via`."""

    access: Access
    uri: str | None = None
    via: str | None = None

    @property
    def context(self) -> Context:
        return self.access.context


def store_of_worker(path: Path, deadline: Deadline, progress: Progress = lambda done, total: None) -> Store:
    """The store of the worker that this file starts. The file alone decides: a context would lead to another cluster."""
    worker = Worker.read(path)
    settings = {"worker-config": Setting(str(path), "--config"), "connect": Setting(worker.url, str(path))}
    return _direct(Access(Context(None, settings), deadline, progress), worker, path)


def select_store(selection: Selection) -> Store:
    """The store that shows most: the offsets themselves where the worker file is known, else what the workers tell."""
    if selection.uri:
        return open_store(selection.uri, selection.access)
    worker = worker_of(selection.context)
    if selection.via != REST and worker is not None:
        return _direct(selection.access, worker, selection.context.path("worker-config"))
    if selection.via != TOPIC and selection.context.connect_urls:
        return _rest(selection.access)
    raise _no_worker_file()


def select_owner(selection: Selection, name: str) -> Target:
    """Where `name` is kept, and how to reach it for a change. A connector that nobody knows is an error with near names."""
    if name.startswith(GROUP):
        return Target(_groups(selection.access), name.removeprefix(GROUP))
    if selection.uri:
        return Target(open_store(selection.uri, selection.access), name)
    connectors = list_configured(selection.context, selection.access.deadline)
    connector = (connectors or {}).get(name)
    if selection.via is not None:
        store = _rest(selection.access) if selection.via == REST else select_store(selection)
        return _checked(Target(store, name, connector), connectors)
    return _checked(_best_way(selection, name, connector), connectors)


def select_entries(selection: Selection, names: Sequence[str], *, history: bool = False) -> tuple[Snapshot, str]:
    """What is stored, of all owners or of some, and where that is. `group:NAME` and connectors may be mixed."""
    groups = [name.removeprefix(GROUP) for name in names if name.startswith(GROUP)]
    others = [name for name in names if not name.startswith(GROUP)]
    parts, places = [], []
    if groups:
        parts.append(_read(_groups(selection.access), groups, history=history))
        places.append("the consumer groups")
    if others or not names:
        store = select_store(selection)
        places.append(store.uri)
        parts.append(_read(store, others or None, history=history))
        if selection.uri is None and selection.via is None and not history and not store.uri.startswith("connect+"):
            parts = [*parts[:-1], *_with_what_workers_know(selection, others, parts[-1])]
    entries = [entry for part in parts for entry in part.entries]
    if not history:
        entries.sort(key=lambda entry: entry.position.owner)
    return Snapshot(tuple(entries), tuple(n for part in parts for n in part.notes)), " and ".join(places)


def _read(store: Store, owners: Collection[str] | None, *, history: bool) -> Snapshot:
    return store.history(owners) if history else store.snapshot(owners)


def _with_what_workers_know(selection: Selection, names: Sequence[str], stored: Snapshot) -> list[Snapshot]:
    """Marks orphans, and adds the sink connectors, whose positions lie in consumer groups. Only where workers are named."""
    if not selection.context.connect_urls:
        return [stored]
    try:
        connectors = list_configured(selection.context, selection.access.deadline) or {}
        sinks = [c.name for c in connectors.values() if c.is_sink and (not names or c.name in names)]
        shown = _rest(selection.access).snapshot(sinks) if sinks else Snapshot(())
    except Unreachable as error:
        return [stored, Snapshot((), (f"sink connectors and orphans are not told: {error.what}",))]
    entries = tuple(
        entry if entry.position.owner in connectors else replace(entry, notes=(*entry.notes, ORPHAN))
        for entry in stored.entries
    )
    return [replace(stored, entries=entries), shown]


def select_other(selection: Selection, name: str, like: str | None = None, *, may_be_new: bool = False) -> Target:
    """An owner, or the one owner of a store named by its URI. `may_be_new`: a name that has no position yet is fine."""
    if is_store(name):
        store = open_store(name, selection.access)
        owners = list(store.snapshot().by_owner())
        if len(owners) > 1:
            raise Invalid(
                f"{name} holds {len(owners)} owners: {', '.join(owners[:8])}", "name one with --store and its name"
            )
        return Target(store, owners[0] if owners else "source-0")
    if not may_be_new or name.startswith(GROUP):
        return select_owner(selection, name)
    try:
        return select_owner(selection, name)
    except NotFound:
        if like is None or like.startswith(GROUP) or is_store(like):
            raise
    # A connector that does not exist yet, or never ran: it is written where the old one lies, without its worker.
    return Target(select_store(replace(selection, via=selection.via or _direct_way(selection))), name)


def select_for(selection: Selection, wanted: Positions) -> tuple[Target, Positions]:
    """The one store in which all owners of `wanted` are written, and `wanted` under the names they have there.

    One plan is for one store: connectors go through REST only when each of them can.
    """
    if not wanted.owners:
        raise Invalid("there is no position to import")
    groups = [owner for owner in wanted.owners if owner.startswith(GROUP)]
    if groups and len(groups) == len(wanted.owners):
        plain = Positions(replace(p, owner=p.owner.removeprefix(GROUP)) for p in wanted)
        return Target(_groups(selection.access), ""), plain
    if groups:
        raise Invalid("connectors and groups are kept in different stores", "import them one after the other")
    if selection.uri:
        return Target(open_store(selection.uri, selection.access), ""), wanted
    if len(wanted.owners) == 1:
        return select_other(selection, wanted.owners[0], like=wanted.owners[0], may_be_new=True), wanted
    targets = [select_other(selection, owner, like=owner, may_be_new=True) for owner in wanted.owners]
    stores = {target.store.uri: target.store for target in targets}
    if len(stores) == 1:
        return Target(targets[0].store, ""), wanted
    if any(target.connector and target.connector.is_sink for target in targets):
        raise Invalid("source and sink connectors are kept in different stores", "import them one after the other")
    return Target(select_store(replace(selection, via=TOPIC)), ""), wanted


def _direct_way(selection: Selection) -> str | None:
    return TOPIC if selection.context.path("worker-config") is not None else None


def _best_way(selection: Selection, name: str, connector: Connector | None) -> Target:
    worker = worker_of(selection.context)
    answers = bool(selection.context.connect_urls) and _workers_answer(selection)
    if connector is not None and answers:
        if connector.is_sink or worker is None:
            return Target(_rest(selection.access), name, connector)
        direct = _direct(selection.access, worker, selection.context.path("worker-config"))
        if connector.cluster is not None:
            note = f"its offsets are on another cluster ({connector.cluster}): the worker is asked"
            return Target(_rest(selection.access), name, connector, (note,))
        if _in_order_of_rest(direct, name):
            return Target(_rest(selection.access), name, connector)
        note = (
            "its keys are stored in an order that the worker's REST API would not find: the topic is written directly"
        )
        return Target(direct, name, connector, (note,))
    if connector is not None and connector.is_sink:
        return Target(_groups(selection.access), connector.group, connector)
    if worker is None:
        if answers:
            return Target(_rest(selection.access), name)
        raise _no_worker_file()
    return Target(_direct(selection.access, worker, selection.context.path("worker-config")), name, connector)


def _checked(target: Target, connectors: Mapping[str, Connector] | None) -> Target:
    """A name that neither is a connector nor has offsets stored is a typo."""
    if target.connector is None:
        stored = target.store.snapshot(None).by_owner()
        if target.owner not in stored:
            raise NotFound("owner", target.owner, sorted({*stored, *(connectors or ())}))
    return target


def _workers_answer(selection: Selection) -> bool:
    try:
        with open_rest(selection.context, selection.access.deadline) as rest:
            rest.worker()
    except Unreachable:
        if selection.via == REST or worker_of(selection.context) is None:
            raise
        return False
    return True


def _in_order_of_rest(direct: Store, owner: str) -> bool:
    """True when each stored key of the owner is what a worker would make of its JSON: fields as a Java HashMap orders them."""
    return all(
        entry.raw is None or entry.raw.key == _as_rest_writes(OffsetKey(owner, entry.position.partition))
        for entry in direct.snapshot([owner]).entries
    )


def _as_rest_writes(key: OffsetKey) -> bytes:
    return encode_key(key, hash_map_order(list(key.partition)))


def _rest(access: Access) -> Store:
    return open_store("connect+" + ",".join(access.context.connect_urls), access)


def _groups(access: Access) -> Store:
    return open_store(f"groups://{client_settings(access.context).bootstrap}", access)


def _direct(access: Access, worker: Worker, path: Path | None) -> Store:
    from playhead.stores.offsets_topic import OffsetsTopic
    from playhead.stores.standalone_file import StandaloneFile

    if topic := worker.get("offset.storage.topic"):
        return OffsetsTopic(
            client_settings(access.context),
            topic,
            worker.is_exactly_once,
            access.deadline,
            access.progress,
            worker.get("group.id"),
            _own_topics(access, worker, topic),
            access.context,
        )
    if file := worker.get("offset.storage.file.filename"):
        _, host, port = worker.listener
        return StandaloneFile(Path(file), (host, port))
    raise Invalid(
        f"{path} names neither offset.storage.topic nor offset.storage.file.filename",
        "name the properties file of a distributed or a standalone worker",
    )


def _own_topics(access: Access, worker: Worker, topic: str) -> dict[str, str]:
    """Connectors with an offsets topic of their own on the same cluster."""
    config_topic = worker.get("config.storage.topic")
    if not config_topic:
        return {}
    configs = read_connector_configs(client_settings(access.context), config_topic, access.deadline)
    found = [Connector.of(name, config) for name, config in configs.items()]
    return {c.name: c.own_topic for c in found if c.own_topic and c.own_topic != topic and c.cluster is None}


def _no_worker_file() -> Invalid:
    return Invalid(
        "the worker's properties file is not named, and with it neither its group nor its offsets topic",
        "give --worker-config worker.properties, or worker-config in the context",
    )
