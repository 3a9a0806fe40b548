"""The input of the checks: the contents of the store, and the known connectors.

It includes values that Connect would refuse and keys that are not Connect's, because the doctor reports them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from playhead.connect.dialects import Dialect, find_dialect
from playhead.connect.keys import (
    decode_key,
    decode_legacy_key,
    decode_value,
    is_as_connect_writes,
    without_envelope,
)
from playhead.errors import Invalid
from playhead.kafka.client import Admin
from playhead.kafka.log import Captured, LogRecord, capture, read_latest
from playhead.kafka.murmur2 import partition_of, partitions_of
from playhead.ledger.model import CHUNK_HEADER
from playhead.model import Deadline, Map, TopicPartition
from playhead.offsets.doctor.commands import Commands
from playhead.offsets.python_dialects import PythonDialects
from playhead.offsets.workers import ConfiguredConnector
from playhead.stores import Progress

Newest = dict[tuple[int, bytes], LogRecord]
Where = tuple[TopicPartition | None, int | None, int, int]  # place, home, time and offset of a record


@dataclass(frozen=True, slots=True)
class KeptPosition:
    """One live pair. `fault`: why Connect would refuse its value. `home`: the partition that Java's partitioner chooses.

    `is_findable` is False if no worker ever writes these key bytes. `by_spark_ms`: when a run on Spark wrote this key last.
    """

    owner: str
    partition: Map
    offset: Map | None
    key: bytes | None = None
    fault: str | None = None
    legacy: bool = False
    is_findable: bool = True
    place: TopicPartition | None = None
    home: int | None = None
    written_ms: int = 0
    at: int = 0
    by_spark_ms: int | None = None

    @property
    def age(self) -> tuple[int, int]:
        """Larger is newer. At the same time, the later offset counts: correct within one partition."""
        return self.written_ms, self.at

    @property
    def is_misplaced(self) -> bool:
        return self.place is not None and self.place.partition != self.home

    @property
    def written(self) -> str:
        return moment(self.written_ms)


@dataclass(frozen=True, slots=True)
class Case:
    """`connectors` None: unknown. `on_spark`: names of the connectors in the ledger; `why`: the reason why they are unknown.
    `removed`: tombstones of keys that are live in another partition of the same topic."""

    kept: tuple[KeptPosition, ...]
    connectors: Mapping[str, ConfiguredConnector] | None
    commands: Commands
    on_spark: frozenset[str] = frozenset()
    why: str = ""
    removed: tuple[KeptPosition, ...] = ()
    in_python: PythonDialects | None = None

    def dialect_of(self, kept: KeptPosition) -> Dialect | None:
        connector = (self.connectors or {}).get(kept.owner)
        if connector is None and self.in_python is not None:
            found = self.in_python.find(kept.owner)
            if found is not None:
                return found
        return find_dialect(connector.connector_class if connector else None, kept.partition, kept.offset)


@dataclass(frozen=True, slots=True)
class Aborted:
    """A key whose newest record is aborted, and its committed record, if any."""

    newest: LogRecord
    committed: LogRecord | None


@dataclass(frozen=True, slots=True)
class TopicReading:
    """`kept`: what the workers read. `removed`: as in `Case`. `undecided`: partition -> time of the oldest record in an open
    transaction."""

    captured: Captured
    kept: tuple[KeptPosition, ...]
    foreign: tuple[LogRecord, ...]
    without_key: int
    aborted: tuple[Aborted, ...]
    undecided: Mapping[int, int]
    removed: tuple[KeptPosition, ...] = ()

    @property
    def name(self) -> str:
        return self.captured.topic.name

    @property
    def partitions(self) -> int:
        return len(self.captured.ends)


def read_topic(admin: Admin, topic: str, deadline: Deadline, progress: Progress, *, committed: bool) -> TopicReading:
    """Reads uncommitted records. If there were transactions, reads the topic again for the committed records."""
    captured = capture(admin, topic, deadline)
    passed = 0

    def counted(done: int, total: int) -> None:
        nonlocal passed
        passed = done
        progress(done, total)

    dirty = Captured(captured.topic, captured.ends, False)
    everything = read_latest(admin, dirty, deadline, counted, CHUNK_HEADER)
    newest = _by_key(everything.records)
    decided = newest
    if passed < dirty.span:  # offsets are missing: transaction markers, or compaction
        decided = _by_key(read_latest(admin, captured, deadline, progress).records)
    seen = decided if committed else newest
    # Aborted records count here: they show that a run on Spark works with this key.
    kept, foreign = _decoded(topic, len(captured.ends), seen.values(), everything.marked)
    return TopicReading(
        captured,
        kept,
        foreign,
        everything.without_key,
        tuple(_aborted(captured, newest, decided)),
        _undecided(captured, newest.values()),
        _removed(topic, len(captured.ends), seen.values(), kept),
    )


def _by_key(records: Iterable[LogRecord]) -> Newest:
    return {(record.partition, record.key): record for record in records if record.key is not None}


def _aborted(captured: Captured, newest: Newest, decided: Newest) -> Iterator[Aborted]:
    for key, record in newest.items():
        committed = decided.get(key)
        is_decided = record.offset < captured.ends[record.partition].stable
        if is_decided and (committed is None or committed.offset != record.offset):
            yield Aborted(record, committed)


def _undecided(captured: Captured, records: Iterable[LogRecord]) -> dict[int, int]:
    oldest: dict[int, int] = {}
    for record in records:
        if record.offset >= captured.ends[record.partition].stable:
            oldest[record.partition] = min(record.timestamp_ms, oldest.get(record.partition, record.timestamp_ms))
    return oldest


def _decoded(
    topic: str, partitions: int, records: Iterable[LogRecord], marked: Mapping[bytes, int]
) -> tuple[tuple[KeptPosition, ...], tuple[LogRecord, ...]]:
    pairs = [(r.key, r.value, r) for r in records if r.key is not None and r.value is not None]
    homes = partitions_of([key for key, _, _ in pairs], partitions)
    places = [TopicPartition(topic, number) for number in range(partitions)]
    kept, foreign = [], []
    for (key, value, record), home in zip(pairs, homes, strict=True):
        found = keep(key, value, (places[record.partition], home, record.timestamp_ms, record.offset))
        if found is None:
            foreign.append(record)
        else:
            kept.append(replace(found, by_spark_ms=marked[key]) if key in marked else found)
    return tuple(kept), tuple(foreign)


def _removed(
    topic: str, partitions: int, records: Iterable[LogRecord], kept: Iterable[KeptPosition]
) -> tuple[KeptPosition, ...]:
    live = {one.key: one for one in kept}
    return tuple(
        replace(
            live[record.key],
            offset=None,
            fault=None,
            place=TopicPartition(topic, record.partition),
            home=partition_of(record.key, partitions),
            written_ms=record.timestamp_ms,
            at=record.offset,
        )
        for record in records
        if record.value is None and record.key is not None and record.key in live
    )


def keep(key: bytes, value: bytes, where: Where = (None, None, 0, 0)) -> KeptPosition | None:
    """None for a key that is not Connect's."""
    found = decode_key(key)
    legacy = found is None
    found = decode_legacy_key(key) if found is None else found
    if found is None:
        return None
    offset, fault = None, None
    try:
        offset = decode_value(without_envelope(value) if legacy else value)
    except Invalid as error:
        fault = error.what
    findable = not legacy and is_as_connect_writes(key, found)
    return KeptPosition(found.connector, found.partition, offset, key, fault, legacy, findable, *where)


def moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
