"""One examination: opens connections once, and runs the checks that apply to the store, in order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from playhead.connect.javafile import CorruptFile, decode_file
from playhead.errors import Invalid, PlayheadError, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings, client_settings
from playhead.model import Deadline, Map
from playhead.offsets.doctor.case import Case, KeptPosition, TopicReading, keep, read_topic
from playhead.offsets.doctor.checkpoints import check_gaps
from playhead.offsets.doctor.commands import Commands
from playhead.offsets.doctor.findings import Finding, Said
from playhead.offsets.doctor.keys import check_foreign, check_keys
from playhead.offsets.doctor.positions import check_sinks, check_spots, spots_of
from playhead.offsets.doctor.topics import check_emptiness, check_policies, check_recreated, internal_topics
from playhead.offsets.doctor.transactions import check_aborted, check_transactions
from playhead.offsets.doctor.values import check_values
from playhead.offsets.journal import Journal, JournalEntry
from playhead.offsets.locate import Locator
from playhead.offsets.python_dialects import PythonDialects
from playhead.offsets.spark_sinks import as_sink_ledger
from playhead.offsets.workers import ConfiguredConnector, worker_of
from playhead.stores import Store, Stored
from playhead.stores.checkpoint.log import MalformedLog
from playhead.stores.checkpoint.store import SparkCheckpoint
from playhead.stores.connect_rest import ConnectRest
from playhead.stores.groups import GroupsStore
from playhead.stores.offsets_topic import OffsetsTopic
from playhead.stores.open import open_store
from playhead.stores.standalone_file import StandaloneFile

if TYPE_CHECKING:
    from playhead.stores.sink_ledger import SinkLedgerStore


Offsets = Mapping[tuple[str, Map], Map | None]
ReadStore = Callable[[JournalEntry], Offsets]
OLD, NEW, ELSEWHERE = "at the old position", "at the new position", "at neither: it moved since then"
_MAY_STILL_RUN = timedelta(minutes=5)


def check_applies(entries: list[JournalEntry], read: ReadStore, commands: Commands) -> Iterator[Said]:
    """`read`: what the store of an entry holds now for its owners."""
    for entry in entries:
        if entry.outcomes is not None:
            continue
        try:
            current = read(entry)
        except PlayheadError as error:
            yield f"the apply {entry.id} was interrupted, and its store cannot be read: {error.what}"
            continue
        yield _verdict(entry, current, commands)


def _verdict(entry: JournalEntry, current: Offsets, commands: Commands) -> Said:
    states = {owner: _state(entry, owner, current) for owner in entry.owners}
    found = "; ".join(f"{owner} is {state}" for owner, state in states.items())
    perhaps = " (or still runs)" if datetime.now(UTC) - entry.started < _MAY_STILL_RUN else ""
    what = f"the apply {entry.id} of {entry.who} was interrupted{perhaps}: {found}"
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


# Interrupted applies: their journal entry has a plan and no outcome, so only the store shows what they changed. If all positions
# are as before, or moved since then, there is nothing to repair, and this is a note. A change that was written is a finding: its
# outcome was never reported.


def corrupt_file(path: Path, error: CorruptFile) -> Finding:
    """A worker treats a truncated file as empty. It is restored from the copies that we keep next to it."""
    what = (
        f"{error.what}; a worker that starts with it loses every position, without a warning if the file is truncated"
    )
    copy = next(_valid_copies(path), None)
    source = str(copy) if copy else f"BACKUP-OF-{path.name}"
    return Finding("corrupt-file", str(path), what, f"cp {quote(source)} {quote(str(path))}")


def _valid_copies(path: Path) -> Iterator[Path]:
    """Newest first."""
    for copy in sorted(path.parent.glob("*.playhead"), reverse=True):
        if copy.name.startswith(f"{path.name}."):
            try:
                decode_file(copy.read_bytes())
            except (CorruptFile, OSError):
                continue  # not usable as a backup
            yield copy


def check_copies(path: Path) -> Iterator[Said]:
    """A missing file with copies existed before: it was removed."""
    if not path.exists() and (copy := next(_valid_copies(path), None)):
        what = f"{path} does not exist, but a copy of it does: it was removed, and the worker starts over everywhere"
        yield Finding("file-gone", str(path), what, f"cp {quote(str(copy))} {quote(str(path))}")


THROUGH_REST = (
    "read by REST, which does not show offsets of deleted connectors, keys stored twice or in the wrong place, and transactions: "
    "name the worker's properties file with --worker-config to check those"
)


@dataclass(frozen=True, slots=True)
class Examination:
    """`brokers` None: not named. `connectors` None: unknown."""

    locator: Locator
    store: Store
    brokers: ClientSettings | None
    connectors: Mapping[str, ConfiguredConnector] | None
    commands: Commands
    journal: tuple[JournalEntry, ...]
    journal_faults: tuple[str, ...]

    @classmethod
    def of(cls, locator: Locator) -> "Examination":
        store = locator.any_store()
        brokers = store.settings if isinstance(store, OffsetsTopic | GroupsStore) else _brokers(locator)
        connectors = _connectors(locator, store)
        commands = Commands.of(locator, store, brokers.bootstrap if brokers else None)
        if connectors and locator.context.connect_urls:
            commands = commands.with_stoppable(frozenset(connectors))
        entries, faults = Journal.of_context(locator.context).list()
        return cls(locator, store, brokers, connectors, commands, tuple(entries), tuple(faults))

    @property
    def deadline(self) -> Deadline:
        return self.locator.access.deadline

    def said(self) -> Iterator[Said]:
        match self.store:
            case OffsetsTopic():
                yield from self._topic(self.store)
            case StandaloneFile():
                yield from self._file(self.store)
            case ConnectRest():
                yield from self._rest(self.store)
            case _:
                yield from self._positions(self.store)
        yield from self._on_spark()
        yield from self.journal_faults

    # One kind of store each

    def _topic(self, store: OffsetsTopic) -> Iterator[Said]:
        own = dict.fromkeys(store.own_topics.values())
        worker = worker_of(self.locator.context) if _is_of_context(self.locator, store) else None
        with Admin(store.settings, self.deadline) as admin:
            found, gone = check_policies(
                admin, self._case(()), internal_topics(worker, store.topic, own), self.deadline
            )
            yield from found
            readings = [self._read(admin, store, name) for name in (store.topic, *own) if name not in gone]
            case = self._case(tuple(kept for reading in readings for kept in reading.kept))
            case = replace(case, removed=tuple(one for reading in readings for one in reading.removed))
            if not case.connectors and worker and worker.get("config.storage.topic") in gone:
                case = replace(case, connectors=None)  # their config topic does not exist
            yield from check_keys(case)
            yield from check_values(case, self._versions())
            for reading in readings:
                yield from check_foreign(case, reading)
                yield from check_transactions(admin, case, reading, store.group_id, self.deadline)
                yield from check_aborted(case, reading, committed=store.committed)
                yield from check_recreated(case, reading, self._of_this_store())
                yield from check_emptiness(self.locator, case, reading, self._sources(store, reading.name))
            if self.locator.uri is None:
                yield from check_sinks(admin, case, self.deadline)
        yield from self._applies(_newest(case.kept, store.own_topics))

    def _file(self, store: StandaloneFile) -> Iterator[Said]:
        yield from check_copies(store.path)
        try:
            found = store.snapshot()
            pairs = decode_file(store.path.read_bytes()) if store.path.exists() else []
        except CorruptFile as error:
            yield corrupt_file(store.path, error)
            return
        kept = (keep(entry.key, entry.value) for entry in pairs if entry.value is not None)
        case = self._case(tuple(one for one in kept if one is not None))
        yield from check_keys(case)
        yield from check_values(case, self._versions())
        yield from (note for note in found.notes if "skipped" not in note or "not Connect's" in note)
        yield from self._sinks(case)
        yield from self._applies(_newest(case.kept, {}))

    def _rest(self, store: ConnectRest) -> Iterator[Said]:
        yield THROUGH_REST
        entries = store.snapshot().entries
        sources = [entry for entry in entries if "kafka_topic" not in entry.position.partition]
        case = self._case(tuple(_kept(entry) for entry in sources))
        yield from check_values(case, self._versions())
        yield from self._sinks(case)
        yield from self._applies({(e.position.owner, e.position.partition): e.position.offset for e in entries})

    def _positions(self, store: Store) -> Iterator[Said]:
        """Groups, checkpoints, SQL: positions that are Kafka offsets. Others are checked by their dialect."""
        gaps = list(check_gaps(store)) if isinstance(store, SparkCheckpoint) else []
        yield from gaps
        try:
            found = store.snapshot()
        except MalformedLog:
            if not gaps:
                raise
            return  # a gap hides the positions too
        yield from (note for note in found.notes if note not in {gap.what for gap in gaps})
        others = [entry for entry in found.entries if "kafka_topic" not in entry.position.partition]
        yield from check_values(self._case(tuple(_kept(entry) for entry in others)), None)
        spots = spots_of(found.entries, self.commands, groups=isinstance(store, GroupsStore))
        if spots and self.brokers is None:
            yield "no broker is named, so the positions are not compared with their topics: give --bootstrap-server"
        elif spots and self.brokers is not None:
            with Admin(self.brokers, self.deadline) as admin:
                yield from check_spots(admin, spots, self.deadline)
        yield from self._applies({key: entry.position.offset for key, entry in found.current().items()})

    def _on_spark(self) -> Iterator[Said]:
        """Checks the ledger of the context, or the one that --store names."""
        store, why = self._ledger(), self.locator.sinks.why
        if self.locator.uri is None and why is not None:
            yield f"sinks that run on Spark are not checked: {why.what}"
        if store is None or self.brokers is None:
            return
        from playhead.offsets.doctor.positions import check_ledger

        with Admin(self.brokers, self.deadline) as admin:
            if admin.cluster.id == store.cluster:
                known, unknown = dict(self.connectors or {}), self._why_unknown()
                yield from check_ledger(admin, store, known, self.commands, self.deadline, unknown)

    def _why_unknown(self) -> str:
        """Why the connectors of the context are unknown. Empty if they are known, or if no worker is named."""
        if self.connectors is not None or self.locator.uri is not None:
            return ""
        return self.locator.known.why

    def _ledger(self) -> "SinkLedgerStore | None":
        sinks = self.locator.sinks
        if self.locator.uri is not None:
            return as_sink_ledger(self.store)
        return sinks.open(sinks.cluster) if sinks.names and sinks.cluster is not None else None

    # Shared parts

    def _case(self, kept: tuple[KeptPosition, ...]) -> Case:
        sinks = self.locator.sinks
        on_spark = sinks.runs
        why = sinks.why.what if sinks.why else ""
        in_python = PythonDialects(self.locator.access, sinks)
        return Case(kept, self.connectors, self.commands, on_spark, why, in_python=in_python)

    def _read(self, admin: Admin, store: OffsetsTopic, topic: str) -> TopicReading:
        return read_topic(admin, topic, self.deadline, self.locator.access.progress, committed=store.committed)

    def _sources(self, store: OffsetsTopic, topic: str) -> list[str]:
        """The source connectors that store their offsets in this topic."""
        sources = [c for c in (self.connectors or {}).values() if not c.is_sink and c.cluster is None]
        return sorted(c.name for c in sources if (c.own_topic or store.topic) == topic)

    def _sinks(self, case: Case) -> Iterator[Said]:
        """For stores that do not use a broker themselves."""
        if self.locator.uri is not None or not any(c.is_sink for c in (self.connectors or {}).values()):
            return
        if self.brokers is None:
            yield "no broker is named, so sink connectors are not compared with their topics: give --bootstrap-server"
            return
        try:
            with Admin(self.brokers, self.deadline) as admin:
                yield from check_sinks(admin, case, self.deadline)
        except Unreachable as error:
            yield f"sink connectors are not compared with their topics: {error.what}"

    def _versions(self) -> dict[str, str] | None:
        """Connector class -> installed version, where exactly one is installed."""
        if not self.connectors or not self.locator.context.connect_urls:
            return None
        try:
            with self.locator.access.rest() as rest:
                plugins = rest.list_plugins()
        except Unreachable:
            return None
        known: dict[str, set[str]] = {}
        for plugin in plugins:
            known.setdefault(plugin.class_, set()).add(plugin.version or "")
        return {name: next(iter(found)) for name, found in known.items() if len(found) == 1}

    def _of_this_store(self) -> list[JournalEntry]:
        return [entry for entry in self.journal if _base(entry.plan.store) == _base(self.store.uri)]

    def _applies(self, current: Offsets) -> Iterator[Said]:
        """Applies to this store, and to the other stores of the context, which are read for it."""
        mine = _base(self.store.uri)
        reachable = self._addresses()

        def read(entry: JournalEntry) -> Offsets:
            if _base(entry.plan.store) == mine:
                return current
            found = open_store(entry.plan.store, self.locator.access).snapshot(entry.owners)
            return {key: stored.position.offset for key, stored in found.current().items()}

        near = [entry for entry in self.journal if _base(entry.plan.store) in (mine, *reachable)]
        yield from check_applies(near, read, self.commands)
        for entry in self.journal:
            if entry.outcomes is None and entry not in near and self.locator.uri is None:
                yield f"the apply {entry.id} to another store was interrupted: check it with --store '{entry.plan.store}'"

    def _addresses(self) -> list[str]:
        """The other stores of this context: its workers, its groups and its ledger."""
        if self.locator.uri is not None:
            return []
        urls, ledger = self.locator.context.connect_urls, self._ledger()
        return [
            *([ledger.uri] if ledger else []),
            *(["connect+" + ",".join(urls)] if urls else []),
            *([f"groups://{self.brokers.bootstrap}"] if self.brokers else []),
        ]


def _brokers(locator: Locator) -> ClientSettings | None:
    try:
        return client_settings(locator.context)
    except Invalid:
        return None


def _connectors(locator: Locator, store: Store) -> Mapping[str, ConfiguredConnector] | None:
    """Only if the context's workers use this store: compared with other workers, all owners would be orphans."""
    if not isinstance(store, OffsetsTopic | StandaloneFile | ConnectRest) or not _is_of_context(locator, store):
        return None
    return locator.known.connectors


def _is_of_context(locator: Locator, store: Store) -> bool:
    """Whether this is the store of the context's workers. Only names are compared; nothing is opened."""
    if locator.uri is None:
        return True
    worker, brokers = worker_of(locator.context), _brokers(locator)
    match store:
        case OffsetsTopic() if worker and brokers:
            return (store.topic, store.settings.bootstrap) == (worker.get("offset.storage.topic"), brokers.bootstrap)
        case StandaloneFile() if worker:
            return store.path == Path(worker.get("offset.storage.file.filename", ""))
        case ConnectRest():
            return list(store.urls) == locator.context.connect_urls
    return False


def _base(uri: str) -> str:
    """Without the query part, which says how to read, not where."""
    return uri.partition("?")[0]


def _kept(entry: Stored) -> KeptPosition:
    position = entry.position
    return KeptPosition(position.owner, position.partition, position.offset)


def _newest(kept: tuple[KeptPosition, ...], own_topics: Mapping[str, str]) -> Offsets:
    """The offset that counts for each partition: from the connector's own topic, else the one written last."""

    def rank(one: KeptPosition) -> tuple[bool, tuple[int, int]]:
        topic = one.place.topic if one.place else None
        return topic == own_topics.get(one.owner), one.age

    ordered = sorted((one for one in kept if one.fault is None), key=rank)
    return {(one.owner, one.partition): one.offset for one in ordered}
