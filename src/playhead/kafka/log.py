"""Reads a topic to the end that was captured when the reading began.

The end is a position, not an empty poll: a slow broker does not cut the reading short, and a busy topic does not prolong it
without limit. Offsets have holes (compaction, transaction markers), so the last record may lie well before the end;
librdkafka's end-of-partition event carries the position then. An open transaction holds the stable end back: the reading
stops there and says so, it neither hangs nor shows undecided records.
"""

import gc
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import itemgetter
from typing import NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as RawPartition

from playhead.errors import TimedOut
from playhead.kafka.client import Admin, make_consumer
from playhead.kafka.faults import fault_of, retried, translated
from playhead.kafka.topics import LATEST, Ends, Topic, answer, get_topic, seconds, topic_ends
from playhead.model import Deadline, TopicPartition

BATCH = 10_000
SETTLE_SECONDS = 1.0
POLL_SECONDS = 0.05  # `consume` fills its batch or waits this long; a short topic should not wait at all

Progress = Callable[[int, int], None]


class RawMessage(Protocol):
    """librdkafka's message as it comes out of `consume`: partition and offset are always set there."""

    def error(self) -> KafkaError | None: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


# Called for each record, by C alone.
_ERROR = cast(Callable[[RawMessage], KafkaError | None], Message.error)
_KEY = cast(Callable[[RawMessage], bytes | None], Message.key)
_PARTITION = cast(Callable[[RawMessage], int], Message.partition)
_OFFSET = cast(Callable[[RawMessage], int], Message.offset)
_TIMESTAMP = cast(Callable[[RawMessage], tuple[int, int]], Message.timestamp)
_VALUE = cast(Callable[[RawMessage], bytes | None], Message.value)


class LogRecord(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Captured:
    """What a reading covers: each partition from `ends[p].start` to `end_of(p)`."""

    topic: Topic
    ends: dict[int, Ends]
    committed: bool

    def end_of(self, partition: int) -> int:
        ends = self.ends[partition]
        return ends.stable if self.committed else ends.high

    @property
    def open_transactions(self) -> list[TopicPartition]:
        """Partitions whose newest records are undecided, so that a committed reading ends before them."""
        return [TopicPartition(self.topic.name, p) for p, ends in self.ends.items() if ends.has_open_transaction]

    @property
    def span(self) -> int:
        """Offsets to pass. At most so many records are there."""
        return sum(self.end_of(p) - ends.start for p, ends in self.ends.items())

    def narrowed(self, ranges: Mapping[int, tuple[int, int]]) -> "Captured":
        """Only these partitions, each only from the one offset to before the other; never more than was captured."""
        ends = {}
        for partition, (start, end) in ranges.items():
            last = max(start, min(end, self.end_of(partition)))
            ends[partition] = Ends(max(start, self.ends[partition].start), last, last)
        return replace(self, ends=ends)


def capture(
    admin: Admin, topic: str, deadline: Deadline, *, committed: bool = True, partitions: Collection[int] | None = None
) -> Captured:
    """The ends to read to, of all partitions or of some. A transaction that is being committed is given a moment to show.

    A commit is acknowledged before its markers are written: read at once, the topic would not show what was just written.
    """
    found = get_topic(admin, topic, deadline)
    if partitions is None:
        partitions = [partition.id for partition in found.partitions]
    settled = deadline.within(SETTLE_SECONDS)
    while True:
        captured = Captured(found, topic_ends(admin, topic, partitions, deadline), committed)
        if not committed or not captured.open_transactions or settled.passed:
            return captured
        time.sleep(0.02)


def read_messages(
    admin: Admin, captured: Captured, deadline: Deadline, progress: Progress = lambda done, total: None
) -> Generator[list[RawMessage]]:
    """Batches of messages below the captured end, in offset order within each partition."""
    waiting = {p: captured.end_of(p) for p, ends in captured.ends.items() if captured.end_of(p) > ends.start}
    if not waiting:
        return
    reader = _Reader(admin, captured, waiting)
    try:
        passed = 0
        while reader.waiting:
            batch = reader.next_batch(deadline)
            passed += len(batch)
            progress(passed, captured.span)
            if batch:
                yield batch
    finally:
        reader.close()


def read_records(admin: Admin, captured: Captured, deadline: Deadline) -> Iterator[LogRecord]:
    for batch in read_messages(admin, captured, deadline):
        for message in batch:
            yield record_of(message)


@dataclass(slots=True)
class Latest:
    """The newest record of every key, per Kafka partition: the same key bytes can live in two partitions of a grown topic.

    A tombstone is the newest record too (`value` None) until compaction drops it; records without a key are counted only.
    """

    captured: Captured
    records: list[LogRecord] = field(default_factory=list)
    without_key: int = 0


def read_latest(
    admin: Admin, captured: Captured, deadline: Deadline, progress: Progress = lambda done, total: None
) -> Latest:
    newest: dict[int, dict[bytes | None, RawMessage]] = {partition: {} for partition in captured.ends}
    without_key = 0
    with _collector_paused():
        for batch in read_messages(admin, captured, deadline, progress):
            # Whole columns at a time, without a line of Python per record: three times as fast.
            keys, partitions = list(map(_KEY, batch)), list(map(_PARTITION, batch))
            without_key += keys.count(None)
            for partition in set(partitions):
                mine = map(partition.__eq__, partitions)
                newest[partition].update(compress(zip(keys, batch, strict=True), mine))
        for by_key in newest.values():
            by_key.pop(None, None)
        records = _records_of([message for by_key in newest.values() for message in by_key.values()])
    return Latest(captured, records, without_key)


def _records_of(messages: Sequence[RawMessage]) -> list[LogRecord]:
    times = map(itemgetter(1), map(_TIMESTAMP, messages))
    columns = zip(
        map(_PARTITION, messages),
        map(_OFFSET, messages),
        times,
        map(_KEY, messages),
        map(_VALUE, messages),
        strict=True,
    )
    return list(map(LogRecord._make, columns))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Nothing here is cyclic, but the collector would walk all live keys again and again: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def record_of(message: RawMessage) -> LogRecord:
    return LogRecord(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value())


class _Reader:
    """One consumer assigned to the partitions that are not read to their end yet."""

    def __init__(self, admin: Admin, captured: Captured, waiting: dict[int, int]) -> None:
        self.topic = captured.topic.name
        self.waiting = waiting
        self._consumer: Consumer | None = make_consumer(
            admin.settings,
            isolation_level="read_committed" if captured.committed else "read_uncommitted",
            enable_partition_eof=True,
            auto_offset_reset="earliest",  # retention may move the log start while we read
            queued_min_messages=100_000,
            fetch_max_bytes=64 * 1024 * 1024,
            max_partition_fetch_bytes=2 * 1024 * 1024,
            fetch_queue_backoff_ms=5,  # once enough is queued, librdkafka rests for a second by default: half of the time
            check_crcs=False,
            fetch_wait_max_ms=10,  # the end-of-partition event comes with an empty answer: do not let it wait for data
        )
        with translated(f"reading {self.topic}"):
            self.consumer.assign([RawPartition(self.topic, p, captured.ends[p].start) for p in waiting])

    def next_batch(self, deadline: Deadline) -> list[RawMessage]:
        with translated(f"reading {self.topic}"):
            messages = cast(list[RawMessage], self.consumer.consume(BATCH, min(POLL_SECONDS, deadline.remaining())))
        kept = self._within(messages)
        if self.waiting and deadline.passed:
            behind = ", ".join(f"{self.topic}-{p} before {end}" for p, end in sorted(self.waiting.items()))
            raise TimedOut(
                f"reading {self.topic} did not finish within {deadline.seconds:g} s; missing: {behind}",
                "give it more time with --timeout",
            )
        return kept

    def _within(self, messages: Sequence[RawMessage]) -> list[RawMessage]:
        """Drops what lies at or beyond the end, and notes the partitions that have arrived there."""
        if self._is_all_before_the_ends(messages):
            return list(messages)
        waiting = self.waiting
        kept: list[RawMessage] = []
        for message in messages:
            error = message.error()
            partition = message.partition()
            if error is not None:
                self._event(error, partition, message)
                continue
            end = waiting.get(partition)
            if end is None:
                continue
            offset = message.offset()
            if offset < end:
                kept.append(message)
            if offset >= end - 1:
                self._arrived(partition)
        return kept

    def _is_all_before_the_ends(self, messages: Sequence[RawMessage]) -> bool:
        """True for nearly every batch, and cheap to see: the last record of each partition speaks for those before it."""
        if any(map(_ERROR, messages)):
            return False
        last = dict(zip(map(_PARTITION, messages), messages, strict=True))
        return all(message.offset() < self.waiting.get(partition, 0) - 1 for partition, message in last.items())

    def _event(self, error: KafkaError, partition: int, message: RawMessage) -> None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise fault_of(error, f"reading {self.topic}-{partition}")
        end = self.waiting.get(partition)
        if end is not None and message.offset() >= end:
            self._arrived(partition)

    def _arrived(self, partition: int) -> None:
        del self.waiting[partition]
        self.consumer.incremental_unassign([RawPartition(self.topic, partition)])

    def close(self) -> None:
        """Let go here and now, not by the collector in some thread of librdkafka (see Admin)."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    @property
    def consumer(self) -> Consumer:
        if self._consumer is None:
            raise RuntimeError("this reader is closed")
        return self._consumer


def find_newest_epochs(
    admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """None where the broker does not tell. Only partitions that have a leader may be asked for."""
    return retried(lambda: _find(admin, partitions, deadline), deadline) if partitions else {}


def _find(admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int | None]:
    asked = {RawPartition(tp.topic, tp.partition): LATEST for tp in partitions}
    found: dict[TopicPartition, int | None] = {}
    for raw, future in admin.raw.list_offsets(asked, request_timeout=seconds(deadline)).items():
        place = TopicPartition(raw.topic, raw.partition)
        with translated(f"asking for the newest epoch of {place}"):
            epoch = answer(future, f"asking for the newest epoch of {place}", deadline).leader_epoch
        found[place] = epoch if epoch is not None and epoch >= 0 else None
    return found
