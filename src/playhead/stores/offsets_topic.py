"""The offsets topic of a Connect cluster, read and written directly: `kafka://broker/connect-offsets`. No worker is needed.

Connect finds a position by the bytes of its key, in any partition. So equal JSON with other bytes is another entry (a twin), and
a key in a partition that Java would not choose stays next to its newer copy. Both are shown with a note, and an edit writes all
of them: the worker reads the new position from any of them. Stored key bytes and partitions are kept; new bytes are created only
for a partition that was never stored.

An edit is one transaction per connector with the transactional id of the connector's first task. This fences the task if it still
runs: initialize, read to the captured end, compare, produce, commit. A connector with its own offsets topic is written in
Connect's order: removals to the worker's topic first, then everything to its own topic, then the rest to the worker's.
Only committed records are read if the workers do so too, that is with exactly-once source support enabled.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import parse_qsl, quote, unquote, urlencode

from playhead.connect.keys import OffsetKey, decode_key, is_as_connect_writes
from playhead.errors import Invalid, NotFound, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.groups import count_members
from playhead.kafka.log import Captured, Latest, LogRecord, capture, read_latest, read_records
from playhead.kafka.murmur2 import partitions_of
from playhead.kafka.properties import ClientSettings, settings_at
from playhead.kafka.transactions_seen import find_holders
from playhead.ledger.model import CHUNK_HEADER
from playhead.model import Change, Deadline, Map, Outcomes, TopicPartition
from playhead.model.position import Scalar
from playhead.stores import FORCE, Access, Capabilities, Progress, Refusal, Snapshot, Stored, shown
from playhead.stores.entries import LEGACY, RawPair, decode_pairs, is_nothing
from playhead.stores.live_runs import refuse_live_runs
from playhead.stores.running import SeenRuns, see_runs
from playhead.stores.topic_writer import KeyPlaces, TopicWriter

NAME_WORKERS = "name the workers of this cluster with --connect"


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """`group_id`: of the workers, needed to write. `own_topics`: connector -> its `offsets.storage.topic`. `configured`:
    the connectors in the config topic."""

    settings: ClientSettings
    topic: str
    committed: bool
    deadline: Deadline
    progress: Progress = lambda done, total: None
    group_id: str | None = None
    own_topics: Mapping[str, str] = field(default_factory=dict)
    access: Access | None = None
    configured: Collection[str] = ()

    @property
    def uri(self) -> str:
        words = [] if self.committed else [("committed", "false")]
        words += [("group.id", self.group_id)] if self.group_id else []
        words += [("own", f"{connector}={topic}") for connector, topic in self.own_topics.items()]
        query = f"?{urlencode(words)}" if words else ""
        return f"kafka://{self.settings.bootstrap}/{quote(self.topic)}{query}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(history=True)

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        found = self._latest(owners, removed=False)
        return replace(found, entries=_with_twins_noted(found.entries))

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        parts = []
        with Admin(self.settings, self.deadline) as admin:
            for captured in self._captured(admin, owners):
                records = list(read_records(admin, captured, self.deadline))
                holders = self._holders(admin, captured)
                parts.append(self._decoded(Latest(captured, records), owners, removed=True, holders=holders))
        return _joined(parts)

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        if self.group_id is None:
            hint = "name the worker's properties with --worker-config, or add ?group.id=... to the URI"
            what = "the group.id of the workers is unknown, so their tasks cannot be fenced"
            return [Refusal(owner, what, hint) for owner in owners]
        with Admin(self.settings, self.deadline) as admin:
            cluster = admin.cluster.id
            on_spark = refuse_live_runs(self.access, lambda: cluster, owners) if self.access else []
            found = self._guard_by_workers(self.access, cluster, owners) if self.access else None
            return on_spark + (found if found is not None else self._guard_by_group(admin, self.group_id, owners))

    def write(self, changes: Sequence[Change]) -> Outcomes:
        if self.group_id is None:
            raise Invalid("the group.id of the workers is unknown")
        owners = list(dict.fromkeys(change.owner for change in changes))
        with TopicWriter(self.settings, self.group_id, self.deadline) as writer:
            for owner in owners:
                writer.fence(owner)
            read = self._read_latest(owners, removed=True)
            undecided = [place for captured, _ in read if self.committed for place in captured.open_transactions]
            entries = _joined([found for _, found in read]).entries
            existing = {captured.topic.name for captured, _ in read}
            own = {name: topic for name, topic in self.own_topics.items() if topic in existing}
            return writer.write(changes, entries, KeyPlaces(self.topic, own, undecided))

    def _guard_by_workers(self, access: Access, cluster_id: str, owners: Collection[str]) -> list[Refusal] | None:
        """None if no worker of this cluster answers; then the members of the workers' group are checked."""
        urls = access.context.connect_urls
        if not urls:
            return None
        try:
            # Workers of another cluster say nothing: a connector that they do not have may run here.
            seen = see_runs(
                access,
                urls,
                owners,
                self.deadline.share(),
                is_ours=lambda rest: rest.worker().kafka_cluster_id in (None, cluster_id),
            )
        except Unreachable:
            return None
        return None if seen is None else self._refusals_from(seen, owners)

    def _refusals_from(self, seen: SeenRuns, owners: Collection[str]) -> list[Refusal]:
        refusals = [
            Refusal(
                owner,
                f"the workers named by --connect do not have {owner}, but the config topic does",
                NAME_WORKERS,
                FORCE,
            )
            for owner in owners
            if owner not in seen.known and owner in self.configured
        ]
        for owner, run in seen.runs.items():
            if not run.is_stopped:
                what = f"{owner} is {run} and would overwrite the edit"
                refusals.append(Refusal(owner, what, "stop it first", FORCE, is_running=True))
        return refusals

    def _guard_by_group(self, admin: Admin, group_id: str, owners: Collection[str]) -> list[Refusal]:
        members = count_members(admin, group_id, self.deadline)
        what = f"{members} worker(s) of {group_id} are up, and whether they run this connector is unknown without REST"
        hint = "give --connect URL, or stop the workers"
        return [Refusal(owner, what, hint, FORCE) for owner in owners] if members else []

    def _topics(self, owners: Collection[str] | None) -> list[str]:
        """The worker's topic, then the owners' own topics."""
        own = [topic for connector, topic in self.own_topics.items() if owners is None or connector in owners]
        return list(dict.fromkeys([self.topic, *own]))

    def _captured(self, admin: Admin, owners: Collection[str] | None) -> Iterator[Captured]:
        """The topic of a connector that is gone, or that never ran, may not exist: its positions are in the worker's."""
        for topic in self._topics(owners):
            try:
                yield capture(admin, topic, self.deadline, committed=self.committed)
            except NotFound:
                if topic == self.topic:
                    raise

    def _latest(self, owners: Collection[str] | None, *, removed: bool) -> Snapshot:
        parts = [found for _, found in self._read_latest(owners, removed=removed, named=True)]
        found = _joined(parts)
        return found if removed or len(parts) == 1 else replace(found, entries=tuple(self._overlaid(found.entries)))

    def _read_latest(
        self, owners: Collection[str] | None, *, removed: bool, named: bool = False
    ) -> list[tuple[Captured, Snapshot]]:
        """For each topic the captured ends, and what was read. `named`: notes name the owners of open transactions."""
        read = []
        with Admin(self.settings, self.deadline) as admin:
            for captured in self._captured(admin, owners):
                latest = read_latest(admin, captured, self.deadline, self.progress, CHUNK_HEADER)
                holders = self._holders(admin, captured) if named else {}
                read.append((captured, self._decoded(latest, owners, removed=removed, holders=holders)))
        return read

    def _holders(self, admin: Admin, captured: Captured) -> dict[TopicPartition, str]:
        return find_holders(admin, captured.open_transactions if self.committed else (), self.deadline.share())

    def _overlaid(self, entries: Sequence[Stored]) -> Iterator[Stored]:
        """A connector's own topic hides its copy in the worker's topic. An entry only in the worker's topic gets a note."""
        own = {
            (entry.position.owner, entry.position.partition)
            for entry in entries
            if entry.where.get("topic") == self.own_topics.get(entry.position.owner)
        }
        for entry in entries:
            home = self.own_topics.get(entry.position.owner)
            if home is None or entry.where.get("topic") == home:
                yield entry
            elif (entry.position.owner, entry.position.partition) not in own:
                note = f"only in {self.topic}: the connector has its own topic {home} and may not find it here"
                yield replace(entry, notes=(*entry.notes, note))

    def _decoded(
        self,
        latest: Latest,
        owners: Collection[str] | None,
        *,
        removed: bool,
        holders: Mapping[TopicPartition, str],
    ) -> Snapshot:
        captured, records = latest.captured, latest.records
        named = {"topic": captured.topic.name} if self.own_topics else {}
        homes = partitions_of([record.key or b"" for record in records], len(captured.topic.partitions))
        strays = [record for record, home in zip(records, homes, strict=True) if record.partition != home]
        placed = (_pair(record, named, home) for record, home in zip(records, homes, strict=True))
        decoded = decode_pairs(placed, owners, removed=removed, notes_on=_notes_on)
        open_ends = [
            f"{tp} has an open transaction: records from offset {captured.end_of(tp.partition)} on are not committed yet"
            + (f": {holders[tp]} hides them" if tp in holders else "")
            for tp in (captured.open_transactions if self.committed else ())
        ]
        entries = [_with_mark(entry, latest.marked) for entry in decoded.entries] if latest.marked else decoded.entries
        found = Snapshot(tuple(entries), (*decoded.notes, *open_ends))
        return _with_strays(found, captured.topic.name, records, strays, owners) if strays else found


def _notes_on(raw: bytes, key: OffsetKey, pair: RawPair) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if pair.home is not None:
        notes = (
            f"Java would write this key to partition {pair.home}: the topic got more partitions, or another client wrote it",
        )
    if not is_as_connect_writes(raw, key):
        notes = (*notes, "these key bytes are not as Connect writes them: no worker will find them")
    return notes


def _with_mark(entry: Stored, marked: Mapping[bytes, int]) -> Stored:
    at = marked.get(entry.raw.key) if entry.raw else None
    return entry if at is None else replace(entry, by_spark=datetime.fromtimestamp(at / 1000, UTC))


def _joined(parts: Sequence[Snapshot]) -> Snapshot:
    strays: dict[str, tuple[TopicPartition, ...]] = {}
    for part in parts:
        for owner, places in part.strays.items():
            strays[owner] = (*strays.get(owner, ()), *places)
    return Snapshot(
        tuple(entry for part in parts for entry in part.entries),
        tuple(note for part in parts for note in part.notes),
        strays,
    )


def _with_strays(
    found: Snapshot,
    topic: str,
    records: Sequence[LogRecord],
    strays: Sequence[LogRecord],
    owners: Collection[str] | None,
) -> Snapshot:
    """Names the partitions of stray records, and the deleted copies of live keys. A key in two partitions is stray in one."""
    places: dict[str, set[TopicPartition]] = {}
    for record in strays:
        key = decode_key(record.key or b"")
        if key is not None and (owners is None or key.connector in owners):
            places.setdefault(key.connector, set()).add(TopicPartition(topic, record.partition))
    keys = {record.key for record in strays}
    deleted: dict[bytes, list[str]] = {}
    for record in records:
        if record.key in keys and record.key is not None and is_nothing(record.value):
            deleted.setdefault(record.key, []).append(f"deleted in {topic}-{record.partition}")
    entries = tuple(
        replace(entry, differs=", ".join(deleted[entry.raw.key])) if entry.raw and entry.raw.key in deleted else entry
        for entry in found.entries
    )
    return replace(found, entries=entries, strays={owner: tuple(sorted(some)) for owner, some in places.items()})


def _pair(record: LogRecord, named: Mapping[str, Scalar], home: int) -> RawPair:
    partition, offset, timestamp_ms, key, value = record
    where: dict[str, Scalar] = {"kafka_partition": partition, "kafka_offset": offset, "written": _written(timestamp_ms)}
    return RawPair(key, value, {**named, **where} if named else where, None if home == partition else home)


@lru_cache(maxsize=65_536)  # a worker writes many keys in one flush
def _written(timestamp_ms: int) -> str:
    seconds, rest = divmod(timestamp_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def _with_twins_noted(entries: Sequence[Stored]) -> tuple[Stored, ...]:
    suspects = _suspects(entries)
    if not suspects:
        return tuple(entries)
    copies: dict[tuple[str, Map], list[Stored]] = {}
    for entry in entries:
        if entry.position.owner in suspects:
            copies.setdefault(_place(entry), []).append(entry)
    return tuple(
        _with_copies_noted(entry, copies[_place(entry)]) if entry.position.owner in suspects else entry
        for entry in entries
    )


def _with_copies_noted(entry: Stored, copies: Sequence[Stored]) -> Stored:
    notes, differs = entry.notes, [entry.differs] if entry.differs else []
    if len(copies) > 1:
        twin = "this partition is stored more than once, with other key bytes or in another Kafka partition"
        notes = (*notes, twin)
        same = entry.position.offset
        differs += [_shown(one) for one in copies if LEGACY not in one.notes and one.position.offset != same]
    if differs:
        notes = (*notes, f"its other copies differ: {', '.join(differs)}")
    return replace(entry, notes=notes, differs=", ".join(differs))


def _shown(entry: Stored) -> str:
    topic = f"{entry.where['topic']}-" if "topic" in entry.where else "Kafka partition "
    return f"{shown(entry.position.offset)} in {topic}{entry.where['kafka_partition']}"


def _place(entry: Stored) -> tuple[str, Map]:
    return entry.position.owner, entry.position.partition


def _suspects(entries: Sequence[Stored]) -> set[str]:
    """Owners that may have twins: fields in two orders, a key in two places, or bytes that are not Connect's. Usually empty."""
    orders: dict[str, tuple[str, ...]] = {}
    keys: set[bytes] = set()
    suspects = set()
    for entry in entries:
        owner, order = entry.position.owner, tuple(entry.position.partition.fields)
        key = entry.raw.key if entry.raw else b""
        if orders.setdefault(owner, order) != order or key in keys or entry.notes or entry.differs:
            suspects.add(owner)
        keys.add(key)
    return suspects


def open_uri(uri: str, access: Access) -> OffsetsTopic:
    address, _, query = uri.removeprefix("kafka://").partition("?")
    bootstrap, _, topic = address.partition("/")
    if not bootstrap or not topic:
        raise Invalid(f"{uri!r} is not kafka://broker:9092/topic")
    words = parse_qsl(query)
    settings = settings_at(access.context, bootstrap)
    own = dict(value.split("=", 1) for key, value in words if key == "own" and "=" in value)
    plain = dict(words)
    return OffsetsTopic(
        settings,
        unquote(topic),
        plain.get("committed", "true").lower() != "false",
        access.deadline,
        access.progress,
        plain.get("group.id"),
        own,
        access,
    )
