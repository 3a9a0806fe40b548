"""Writes positions to an offsets topic as Connect does, in one transaction per connector.

The order of the three steps keeps an edit from being lost or overwritten. `fence` fences older producers of the task's
transactional id. Then the caller reads to the end. Then `write` compares and commits.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Self

from playhead.connect.keys import (
    OffsetKey,
    decode_key,
    encode_new_key,
    encode_value,
    is_as_connect_writes,
    transactional_id,
)
from playhead.errors import AccessDenied, OutcomeUnknown, PlayheadError
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import PlainProducer, TransactionalProducer
from playhead.model import Change, Deadline, Map, Outcome, Outcomes, Result, TopicPartition, result_of
from playhead.stores import Snapshot, Stored, changes_by_owner, is_kafka_place, moved_since


class Write(NamedTuple):
    """`partition` None: the partition that Java's partitioner chooses."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Where positions are written: the workers' topic, connectors' own topics; and partitions with an open transaction."""

    topic: str
    own_topics: Mapping[str, str]
    undecided: Collection[TopicPartition] = ()

    def hidden(self, writes: "Iterable[Write]") -> TopicPartition | None:
        """A partition of `writes` whose newest records are hidden by an open transaction, so that they cannot be compared."""
        touched = (TopicPartition(write.topic, write.partition) for write in writes if write.partition is not None)
        return next((place for place in touched if place in self.undecided), None)


class TopicWriter:
    def __init__(self, settings: ClientSettings, group_id: str, deadline: Deadline) -> None:
        self._settings = settings
        self._group_id = group_id
        self._deadline = deadline
        self._stack = ExitStack()
        self._producers: dict[str, TransactionalProducer] = {}
        self._unfenced: dict[str, str] = {}
        self._denied: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producers.clear()
        self._stack.close()

    def fence(self, owner: str) -> None:
        """Without permission for the transactional id, the write is not fenced. Any other error fails this owner only."""
        first_task = transactional_id(self._group_id, owner, 0)
        try:
            producer = TransactionalProducer(self._settings, first_task, self._deadline)
        except PlayheadError as error:
            self._unfenced[owner] = error.what
            if isinstance(error, AccessDenied):
                self._denied.add(owner)
        else:
            self._producers[owner] = self._stack.enter_context(producer)

    def write(self, changes: Sequence[Change], entries: Sequence[Stored], places: KeyPlaces) -> Outcomes:
        """`entries`: the latest record of every key of these owners, with tombstones, read after `fence`."""
        done: dict[int, Outcome] = {}
        stored: dict[str, list[Stored]] = {}
        for entry in entries:
            stored.setdefault(entry.position.owner, []).append(entry)
        for owner, own in changes_by_owner(changes).items():
            result, detail = self._write_owner(owner, own, stored.get(owner, []), places)
            done |= {id(change): Outcome(change, result, detail) for change in own}
        return Outcomes(done[id(change)] for change in changes)

    def _write_owner(
        self, owner: str, changes: Sequence[Change], entries: Sequence[Stored], places: KeyPlaces
    ) -> tuple[Result, str]:
        topic, own_topic = places.topic, places.own_topics.get(owner)
        current = _current(owner, entries, own_topic)
        if refusal := _refusal(changes, current, places.hidden(_writes(changes, entries, own_topic or topic))):
            return Result.REFUSED, refusal
        copies = _copies(entries, own_topic or topic)
        changes = [
            change
            for change in changes
            if current.get(change.partition) != change.after
            or _has_other_copy(change, copies.get((owner, change.partition), []))
        ]
        if not changes:
            return Result.UNCHANGED, ""
        if owner in self._unfenced and owner not in self._denied:
            return Result.FAILED, self._unfenced[owner]
        try:
            if own_topic is None:
                return Result.CHANGED, self._commit(owner, _writes(changes, entries, topic))
            return Result.CHANGED, self._write_both(owner, changes, entries, topic, own_topic)
        except OutcomeUnknown as error:
            return Result.UNKNOWN, error.what
        except PlayheadError as error:
            # With a topic of its own, the worker's copies may have been removed before.
            result = result_of(error) if own_topic is None else Result.FAILED
            return result, f"{error.what}; {error.hint}" if error.hint else error.what

    def _write_both(
        self, owner: str, changes: Sequence[Change], entries: Sequence[Stored], topic: str, own_topic: str
    ) -> str:
        """Connect's order (KAFKA-15018): an old value must not be read again from the worker's topic."""
        removals = [change for change in changes if change.after is None]
        rest = [change for change in changes if change.after is not None]
        if removals:
            self._write_unfenced(_writes(removals, entries, topic))
        detail = self._commit(owner, _writes(changes, entries, own_topic))
        if rest:
            try:
                self._write_unfenced(_writes(rest, entries, topic))
            except PlayheadError as error:
                copy = f"the copy in {topic} could not be written: {error.what}"
                detail = f"{detail}; {copy}" if detail else copy
        return detail

    def _commit(self, owner: str, writes: Sequence[Write]) -> str:
        if not writes:
            return ""
        producer = self._producers.get(owner)
        if producer is None:
            self._write_unfenced(writes)
            return f"written without fencing: {self._unfenced[owner]}"
        with producer.transaction():
            _produce(producer.produce, writes)
        return ""

    def _write_unfenced(self, writes: Sequence[Write]) -> None:
        if writes:
            with PlainProducer(self._settings, self._deadline) as producer:
                _produce(producer.produce, writes)


def _produce(produce: Callable[..., None], writes: Sequence[Write]) -> None:
    for write in writes:
        produce(write.topic, write.key, write.value, partition=write.partition)


def _refusal(changes: Sequence[Change], current: Mapping[Map, Map | None], hidden: TopicPartition | None) -> str | None:
    if any(is_kafka_place(change.partition) for change in changes):
        return "a position in a Kafka topic belongs to a consumer group, not into an offsets topic"
    if hidden:
        return f"{hidden} has an open transaction, which hides newer records; retry later"
    return moved_since(changes, current)


def _current(owner: str, entries: Sequence[Stored], own_topic: str | None) -> dict[Map, Map | None]:
    """The offset that counts for each partition. A connector's own topic has priority over the worker's."""
    live = [entry for entry in entries if entry.position.offset is not None and entry.position.owner == owner]
    if own_topic is not None:
        in_own = {_place(entry) for entry in live if entry.where.get("topic") == own_topic}
        live = [entry for entry in live if entry.where.get("topic") == own_topic or _place(entry) not in in_own]
    return {partition: e.position.offset for (_, partition), e in Snapshot(tuple(live)).current().items()}


def _place(entry: Stored) -> tuple[str, Map]:
    return entry.position.owner, entry.position.partition


def _writes(changes: Sequence[Change], entries: Sequence[Stored], topic: str) -> list[Write]:
    stored = _copies(entries, topic)
    return [
        write
        for change in changes
        for write in _writes_of(change, stored.get((change.owner, change.partition), []), topic)
    ]


def _copies(entries: Sequence[Stored], topic: str) -> dict[tuple[str, Map], list["_Copy"]]:
    stored: dict[tuple[str, Map], list[_Copy]] = {}
    for entry in entries:
        if (copy := _copy(entry, topic)) is not None:
            stored.setdefault(_place(entry), []).append(copy)
    return stored


class _Copy(NamedTuple):
    """One stored key of a partition: its bytes, Kafka partition and time, and the position that it holds now."""

    key: bytes
    partition: int
    written: str
    offset: Map | None

    @property
    def is_live(self) -> bool:
        return self.offset is not None

    @property
    def is_legacy(self) -> bool:
        return decode_key(self.key) is None

    @property
    def is_findable(self) -> bool:
        key = decode_key(self.key)
        return key is not None and is_as_connect_writes(self.key, key)


def _writes_of(change: Change, copies: Sequence[_Copy], topic: str) -> list[Write]:
    """One record for each live key of the partition, in its Kafka partition: the worker reads the new position from any of them.

    If no worker finds a live key, the newest removed key is written again, else a new key is created. A key that gets the value
    gets it in every Kafka partition, because a tombstone that is read last would hide it.
    """
    if change.after is None:
        return [Write(topic, copy.key, None, copy.partition) for copy in copies if copy.is_live]
    value = encode_value(change.after)
    writes = [Write(topic, copy.key, value, copy.partition) for copy in _targets(copies)]
    if not any(copy.is_findable for copy in copies):
        writes.append(Write(topic, encode_new_key(OffsetKey(change.owner, change.partition)), value, None))
    return writes


def _targets(copies: Sequence[_Copy]) -> list[_Copy]:
    """The copies that get a new position."""
    keys = {copy.key for copy in copies if copy.is_live and not copy.is_legacy}
    findable = sorted((copy for copy in copies if copy.is_findable), key=lambda copy: copy.written)
    if findable and not any(copy.key in keys for copy in findable):
        keys.add(findable[-1].key)
    return [copy for copy in copies if copy.key in keys]


def _has_other_copy(change: Change, copies: Sequence[_Copy]) -> bool:
    """True if a copy does not hold the requested position yet, although the newest one does."""
    return change.after is not None and any(copy.offset != change.after for copy in _targets(copies))


def _copy(entry: Stored, topic: str) -> _Copy | None:
    if entry.raw is None or entry.where.get("topic", topic) != topic:
        return None
    partition, written = int(str(entry.where["kafka_partition"])), str(entry.where.get("written", ""))
    return _Copy(entry.raw.key, partition, written, entry.position.offset)
