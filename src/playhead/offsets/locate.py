"""Which store holds an owner's position, and how it is changed. This is read from files and workers, never guessed.

A connector is edited by REST if a worker answers, the connector exists and its stored keys are in the order in which REST would
write them. Otherwise its offsets topic or file is edited directly. A sink's position is in its consumer group, never in an
offsets topic. The position of a sink that runs on Spark is in a ledger, unless Connect runs the sink now. That is the ledger of
the context, or one in the database that the sink writes to. The run's own ledger names that database without its password
(PGPASSWORD and ~/.pgpass have it). `group:NAME` is a consumer group. Any store can be named by its URI.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from playhead.config import Context, Setting
from playhead.connect.dialects import Dialect, find_dialect
from playhead.connect.javajson import hash_map_order
from playhead.connect.keys import OffsetKey, encode_key
from playhead.errors import Invalid, NotFound, PlayheadError, Refused, Unreachable
from playhead.kafka.properties import client_settings
from playhead.model import Deadline, Map, Plan, Positions, TopicPartition
from playhead.offsets.python_dialects import PythonDialects
from playhead.offsets.spark_sinks import Sinks, as_sink_ledger
from playhead.offsets.workers import ConfiguredConnector, KnownConnectors, Worker, know_connectors, worker_of
from playhead.stores import Access, Progress, Snapshot, Store, is_kafka_place
from playhead.stores.config_topic import read_connector_configs
from playhead.stores.live_runs import warn_of_recent_runs
from playhead.stores.open import is_of_context, is_store, open_store

GROUP = "group:"
REST, TOPIC = "rest", "topic"


@dataclass(slots=True)
class Location:
    """An owner in its store. `connector` None: the owner is not a connector, or the connector does not exist.

    `is_typed`: the store was not asked whether it has this owner: a name in the store of `--store`, or `group:NAME`.
    """

    store: Store
    owner: str
    access: Access
    connector: ConfiguredConnector | None = None
    notes: tuple[str, ...] = ()
    is_typed: bool = False
    _seen: Snapshot | None = field(default=None, repr=False)
    _in_python: PythonDialects | None = field(default=None, repr=False)

    def now(self) -> Snapshot:
        """The stored entries of the owner, read once: a plan must start from the entries that decided the location."""
        if self._seen is None:
            self._seen = self.store.snapshot([self.owner])
        return self._seen

    def check_exists(self, hint: str = "") -> None:
        """A name that the store does not have is an error with near names: it must not look like an owner without positions.

        `hint`: how to create it.
        """
        if not self.is_typed or self.now().entries:
            return
        if self.store.capabilities.history and self.store.history([self.owner]).entries:
            return  # its positions were deleted
        known = _names_in(self.store)
        if self.owner not in known:
            missing = NotFound("group" if self.store.uri.startswith("groups:") else "owner", self.owner, sorted(known))
            raise missing.with_hint(hint) if hint else missing

    def dialect(self, partition: Map, offset: Map | None, owner: str | None = None) -> Dialect | None:
        """`owner`: another one of this store, for plans over several."""
        if self.connector is None and not is_kafka_place(partition):
            self._in_python = self._in_python or PythonDialects(self.access)
            if (found := self._in_python.find(owner or self.owner)) is not None:
                return found
        return find_dialect(self.connector.connector_class if self.connector else None, partition, offset)


class Locator:
    """Finds stores by the command line: the context, `--store`, `--via`. Answers are cached."""

    def __init__(self, access: Access, uri: str | None = None, via: str | None = None) -> None:
        self.access = access
        self.uri = uri
        self.via = via

    @property
    def context(self) -> Context:
        return self.access.context

    # The stores of the context

    @cached_property
    def worker(self) -> Worker | None:
        return worker_of(self.context)

    @cached_property
    def direct(self) -> Store:
        """Where the workers keep their offsets: the topic, or the file of a standalone worker."""
        if self.worker is None:
            raise Invalid(
                "the worker's properties file is not named, so neither its group nor its offsets topic is known",
                "give --worker-config worker.properties, or worker-config in the context",
            )
        return _direct(self.access, self.worker, self.context.path("worker-config"), self.sinks)

    @cached_property
    def rest(self) -> Store:
        if not self.context.connect_urls:
            raise Invalid("no Connect worker is named", "give --connect URL, or connect in the context")
        return open_store("connect+" + ",".join(self.context.connect_urls), self.access)

    def groups(self, cluster: str | None = None) -> Store:
        return open_store(f"groups://{cluster or client_settings(self.context).bootstrap}", self.access)

    @cached_property
    def sinks(self) -> Sinks:
        """The sinks that run on Spark."""
        return Sinks(self.access)

    # The connectors of the context

    @property
    def known(self) -> KnownConnectors:
        """The connectors that exist. With `--via topic` the workers are not queried."""
        if isinstance(self._answer, Unreachable):
            raise self._answer
        return self._answer

    @cached_property
    def _answer(self) -> KnownConnectors | Unreachable:
        try:
            return know_connectors(self.access, ask_workers=self.via != TOPIC)
        except Unreachable as error:
            return error

    def look_up(self, name: str) -> tuple[ConfiguredConnector | None, Unreachable | None]:
        """The connector that Connect has under this name; or the error of the worker that was queried."""
        found = self._answer
        return (None, found) if isinstance(found, Unreachable) else ((found.connectors or {}).get(name), None)

    def not_found(self, name: str, store: Store, stored: Snapshot) -> Exception:
        """Names the store and the context: the usual reason is that another one was meant."""
        known = {*stored.by_owner(), *(self.known.connectors or ()), *self.sinks.names}
        where = f"{store.uri} (" + (
            f"context {self.context.name!r})" if self.context.name else "no context is selected)"
        )
        return self.sinks.why or NotFound("owner", name, sorted(known), where=where)

    # The store of an owner

    def any_store(self) -> Store:
        """The most complete store: the offsets topic or file if the worker file is named, else the REST API."""
        if self.uri:
            return open_store(self.uri, self.access)
        if self.via == REST or (self.via is None and self.worker is None and self.context.connect_urls):
            return self.rest
        return self.direct

    def owner(self, name: str, *, may_be_new: bool = False) -> Location:
        """The store that holds `name`, for reading and writing.

        A name that is not a connector and has no position is an error with near names. With `may_be_new` it is written to the
        store that holds source connectors when no worker answers.
        """
        if name.startswith(GROUP):
            return Location(self.groups(), name.removeprefix(GROUP), self.access, is_typed=True)
        if self.uri:
            return Location(open_store(self.uri, self.access), name, self.access, is_typed=True)
        connector, unreachable = self.look_up(name)
        if (kept := self.on_spark(name, connector)) is not None:
            return kept
        if unreachable is not None:
            raise unreachable
        found = self._in_connect(name, connector)
        if may_be_new and connector is None and found.store.uri.startswith("connect+"):
            # The workers store no position for a connector that does not exist.
            hint = "name the worker's properties with --worker-config: its offsets topic is then written directly"
            raise NotFound("connector", name, hint=hint)
        if connector is None and not self._has_position(found):
            if not may_be_new:
                raise self.not_found(name, found.store, found.store.snapshot(None))
            found.notes = (*found.notes, f"{name} is not a connector and has no position yet: check its name")
        return found

    def _has_position(self, found: Location) -> bool:
        try:
            return any(entry.position.owner == found.owner for entry in found.now().entries)
        except NotFound:  # a worker does not answer for a name that is no connector
            raise self.not_found(found.owner, found.store, Snapshot(())) from None

    def other(self, name: str, like: Location | None = None) -> Location:
        """An owner, or the one owner of a store named by its URI. `like`: the owner to copy from; then it may be new."""
        if is_store(name):
            store = open_store(name, self.access)
            owners = list(store.snapshot().by_owner())
            if len(owners) > 1:
                raise Invalid(
                    f"{name} holds {len(owners)} owners: {', '.join(owners[:8])}", "name one with --store and its name"
                )
            return Location(store, owners[0] if owners else "source-0", self.access)
        if like is None or name.startswith(GROUP):
            return self.owner(name, may_be_new=like is not None)
        if like.connector is not None and like.connector.is_sink and name not in (self.known.connectors or {}):
            note = f"the sink connector {name} does not exist yet: its future group is written"
            return Location(self.groups(like.connector.cluster), f"connect-{name}", self.access, notes=(note,))
        if as_sink_ledger(like.store) is not None and not self.sinks.knows(name):
            return Location(
                like.store, name, self.access, notes=(f"the ledger has no sink {name} yet: its position is created",)
            )
        return self.owner(name, may_be_new=True)

    def for_positions(self, wanted: Positions) -> list[tuple[Location, Positions]]:
        """For every owner of `wanted` the location to write to, and its positions under the owner's name there."""
        if not wanted.owners:
            raise Invalid("there is no position to import")
        found = []
        for owner in wanted.owners:
            own = wanted.for_owner(owner)
            location = self.owner(owner, may_be_new=True)
            is_unknown = location.connector is None and not owner.startswith(GROUP) and not self.uri
            is_unknown = is_unknown and as_sink_ledger(location.store) is None
            if is_unknown and any(is_kafka_place(position.partition) for position in own):
                known = list(self.known.connectors or ())
                raise NotFound("sink connector", owner, known, f"a consumer group is named group:{owner}")
            found.append((location, Positions(replace(position, owner=location.owner) for position in own)))
        return found

    def of_plan(self, plan: Plan) -> Location:
        """The store of a plan. A plan may be from another person: credentials are sent only to servers of the context."""
        if self.uri or self.via:
            return Location(self.any_store(), "", self.access)
        if not is_of_context(plan.store, self.context):
            raise Refused(
                f"the plan is for {plan.store}, which is not a store of this context",
                f"to use it, add --store '{plan.store}'",
            )
        return Location(open_store(plan.store, self.access), "", self.access)

    def on_spark(self, name: str, connector: ConfiguredConnector | None) -> Location | None:
        """The location in the ledger, with a note. None: it is not in a ledger, or Connect runs it, or --via excludes it."""
        if self.via is not None or (connector is not None and not connector.is_sink):
            return None
        store = self.sinks.find(name)
        if store is None:
            if self.sinks.why and self.worker is None and not self.context.connect_urls:
                raise self.sinks.why  # no other store is named
            return None
        if self._runs_in_connect(connector):
            return None
        also = "" if connector is None else "; Connect has it too, but does not run it"
        note = f"{name} runs on Spark: its position is in the ledger, and its consumer group is a copy{also}"
        return Location(store, name, self.access, notes=(note,))

    def _runs_in_connect(self, connector: ConfiguredConnector | None) -> bool:
        if connector is None or not self.known.answers:
            return False
        with self.access.rest() as rest:
            status = rest.find_status(connector.name)
        return status is not None and status.connector.state != "STOPPED"

    def _in_connect(self, name: str, connector: ConfiguredConnector | None) -> Location:
        if connector is not None and connector.is_sink:
            return self._sink_in_connect(connector)
        at, answers = self.access, self.known.answers
        if self.via == REST:
            return Location(self.rest, name, at, connector, self._notes_on_strays(name))
        if connector is not None and answers and self.via is None:
            return self._by_rest_or_direct(name, connector)
        if connector is not None and connector.cluster is not None:
            raise Refused(
                f"the offsets of {name} are on another cluster ({connector.cluster})",
                "start a worker: they are edited by REST",
            )
        if self.worker is None and answers:
            return Location(self.rest, name, at)
        return Location(self.direct, name, at, connector, self._notes_on_own_topic(connector))

    def _notes_on_own_topic(self, connector: ConfiguredConnector | None) -> tuple[str, ...]:
        if connector is not None or self.sinks.why is None:
            return ()
        return (f"whether it runs on Spark with an offsets topic of its own is unknown: {self.sinks.why.what}",)

    def _by_rest_or_direct(self, name: str, connector: ConfiguredConnector) -> Location:
        by_rest = Location(self.rest, name, self.access, connector)
        if self.worker is None:
            return by_rest
        if connector.cluster is not None:
            by_rest.notes = (f"its offsets are on another cluster ({connector.cluster}): they are edited by REST",)
            return by_rest
        direct = Location(self.direct, name, self.access, connector)
        if strays := direct.now().strays.get(name):
            direct.notes = (
                f"records of it are in {_listed(strays)}, where the REST API does not write: the topic is written directly",
            )
            return direct
        if _is_in_order_of_rest(direct.now(), name):
            by_rest.notes = tuple(
                warn_of_recent_runs(self.access, direct.now().entries)
            )  # REST does not show who wrote them
            return by_rest
        direct.notes = (
            "its keys are stored in a field order that the workers' REST API does not find: the topic is written directly",
        )
        return direct

    def _notes_on_strays(self, name: str) -> tuple[str, ...]:
        """What an edit by REST leaves behind. Read from the topic, if the worker file names it."""
        if self.worker is None or not self.worker.get("offset.storage.topic"):
            return ()
        try:
            strays = self.direct.snapshot([name]).strays.get(name)
        except PlayheadError as error:
            return (
                f"whether copies are in other Kafka partitions, where REST does not write, is unknown: {error.what}",
            )
        if not strays:
            return ()
        return (f"its records in {_listed(strays)} stay as they are: REST does not write there; --via topic does",)

    def _sink_in_connect(self, connector: ConfiguredConnector) -> Location:
        if self.via == TOPIC:
            raise Invalid(
                f"{connector.name} is a sink: its position is in the consumer group {connector.group}",
                "omit --via",
            )
        notes = self._notes_on_ledger(connector.name)
        if self.known.answers:
            return Location(self.rest, connector.name, self.access, connector, notes)
        return Location(self.groups(connector.cluster), connector.group, self.access, connector, notes)

    def _notes_on_ledger(self, name: str) -> tuple[str, ...]:
        """Notes about the ledger for an edit of a sink whose position is in its group."""
        if self.via is None and self.sinks.find(name) is not None:
            return ("Connect runs it: its group is edited; the ledger of its runs on Spark is not changed",)
        return (f"whether it runs on Spark is unknown: {self.sinks.why.what}",) if self.sinks.why else ()


def _names_in(store: Store) -> set[str]:
    """All owners that a store knows, also those without a position."""
    from playhead.stores.connect_rest import ConnectRest
    from playhead.stores.groups import GroupsStore

    if isinstance(store, ConnectRest | GroupsStore):
        return set(store.names())
    names = set(store.snapshot().by_owner())
    if (ledger := as_sink_ledger(store)) is not None:
        with ledger.open() as sinks:
            names |= set(ledger.runs_of(sinks))
    return names


def locate_of_worker(path: Path, deadline: Deadline, progress: Progress = lambda done, total: None) -> Location:
    """The store of the worker with this properties file. No context is read: it could name another cluster."""
    worker = Worker.read(path)
    settings = {"worker-config": Setting(str(path), "--config"), "connect": Setting(worker.url, "--config")}
    access = Access(Context(None, settings), deadline, progress)
    return Location(_direct(access, worker, path), "", access)


def _direct(access: Access, worker: Worker, path: Path | None, on_spark: Sinks | None = None) -> Store:
    """`on_spark`: what the ledger knows of connectors that Connect does not have."""
    from playhead.stores.offsets_topic import OffsetsTopic
    from playhead.stores.standalone_file import StandaloneFile

    if topic := worker.get("offset.storage.topic"):
        connectors = _configured(access, worker)
        names = {connector.name for connector in connectors}
        own = {name: one for name, one in (on_spark.own_topics if on_spark else {}).items() if name not in names}
        own |= {c.name: c.own_topic for c in connectors if c.own_topic and c.cluster is None}
        return OffsetsTopic(
            client_settings(access.context),
            topic,
            worker.is_exactly_once,
            access.deadline,
            access.progress,
            worker.get("group.id"),
            {name: one for name, one in own.items() if one != topic},
            access,
            frozenset(names),
        )
    if file := worker.get("offset.storage.file.filename"):
        _, host, port = worker.listener
        return StandaloneFile(Path(file).absolute(), (host, port))
    raise Invalid(
        f"{path} names neither offset.storage.topic nor offset.storage.file.filename",
        "name the properties file of a distributed or a standalone worker",
    )


def _configured(access: Access, worker: Worker) -> list[ConfiguredConnector]:
    topic = worker.get("config.storage.topic")
    if not topic:
        return []
    configs = read_connector_configs(client_settings(access.context), topic, access.deadline)
    return [ConfiguredConnector.of(name, config) for name, config in configs.items()]


def _is_in_order_of_rest(stored: Snapshot, owner: str) -> bool:
    """True if each stored key of the owner has the bytes that a worker would write: fields in the order of a Java HashMap."""
    return all(
        entry.raw is None or entry.raw.key == _as_rest_writes(OffsetKey(owner, entry.position.partition))
        for entry in stored.entries
    )


def _listed(places: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, places[:3])) + (f" and {len(places) - 3} more" if len(places) > 3 else "")


def _as_rest_writes(key: OffsetKey) -> bytes:
    return encode_key(key, hash_map_order(list(key.partition)))
