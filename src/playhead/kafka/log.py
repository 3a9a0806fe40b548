"""Reads a topic up to the end offsets that were captured at the start.

The end is an offset, not an empty poll: a slow broker does not end the read early, and a busy topic does not extend it without
limit. Offsets have gaps (compaction, transaction markers), so the last record may be well before the end. In that case
librdkafka's end-of-partition event reports the position. An open transaction holds the stable end back: the read stops there and
reports it. It neither hangs nor returns undecided records.
"""

import gc
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
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
    """librdkafka's message as returned by `consume`: partition and offset are always set."""

    def error(self) -> KafkaError | None: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


# Called for each record, without Python code.
_ERROR = cast(Callable[[RawMessage], KafkaError | None], Message.error)
_KEY = cast(Callable[[RawMessage], bytes | None], Message.key)
_PARTITION = cast(Callable[[RawMessage], int], Message.partition)
_OFFSET = cast(Callable[[RawMessage], int], Message.offset)
_TIMESTAMP = cast(Callable[[RawMessage], tuple[int, int]], Message.timestamp)
_VALUE = cast(Callable[[RawMessage], bytes | None], Message.value)
_HEADERS = cast(Callable[[RawMessage], list[tuple[str, bytes | None]] | None], Message.headers)


class LogRecord(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Captured:
    """The offsets to read: each partition from `ends[p].start` to `end_of(p)`."""

    topic: Topic
    ends: dict[int, Ends]
    committed: bool

    def end_of(self, partition: int) -> int:
        ends = self.ends[partition]
        return ends.stable if self.committed else ends.high

    @property
    def open_transactions(self) -> list[TopicPartition]:
        """Partitions whose newest records are undecided. A read of committed records ends before them."""
        return [TopicPartition(self.topic.name, p) for p, ends in self.ends.items() if ends.has_open_transaction]

    @property
    def span(self) -> int:
        """Number of offsets to read. The number of records is at most this."""
        return sum(self.end_of(p) - ends.start for p, ends in self.ends.items())

    def narrowed(self, ranges: Mapping[int, tuple[int, int]]) -> "Captured":
        """Only these partitions, each from the first offset to before the second; never more than was captured."""
        ends = {}
        for partition, (start, end) in ranges.items():
            last = max(start, min(end, self.end_of(partition)))
            ends[partition] = Ends(max(start, self.ends[partition].start), last, last)
        return replace(self, ends=ends)


def capture(
    admin: Admin, topic: str, deadline: Deadline, *, committed: bool = True, partitions: Collection[int] | None = None
) -> Captured:
    """The ends of all partitions or of some. Waits up to `SETTLE_SECONDS` for a transaction that is being committed.

    A commit is acknowledged before its markers are written: an immediate read would not return what was just written.
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


def has_record(admin: Admin, captured: Captured, starts: Mapping[int, int], deadline: Deadline) -> bool:
    """Whether a record lies between these offsets, by partition, and the captured ends. Offsets have gaps: a reader that has read
    everything may stand before the end, for example before the marker of the last transaction."""
    ranges = {number: (start, captured.end_of(number)) for number, start in starts.items()}
    return next(iter(read_records(admin, captured.narrowed(ranges), deadline)), None) is not None


@dataclass(slots=True)
class Latest:
    """The newest record of every key, per Kafka partition. If partitions were added, the same key can be in two of them.

    A tombstone counts as the newest record (`value` None) until compaction drops it. Records without a key are only counted.
    `marked`: key -> time of its newest record, in any partition and also an older one, that has the requested header.
    """

    captured: Captured
    records: list[LogRecord] = field(default_factory=list)
    without_key: int = 0
    marked: dict[bytes, int] = field(default_factory=dict)


def read_latest(
    admin: Admin,
    captured: Captured,
    deadline: Deadline,
    progress: Progress = lambda done, total: None,
    header: str | None = None,
) -> Latest:
    newest: dict[int, dict[bytes | None, RawMessage]] = {partition: {} for partition in captured.ends}
    without_key = 0
    marked: dict[bytes, int] = {}
    with _collector_paused():
        for batch in read_messages(admin, captured, deadline, progress):
            # By columns, without Python code per record: three times as fast.
            keys, partitions = list(map(_KEY, batch)), list(map(_PARTITION, batch))
            without_key += keys.count(None)
            if header is not None:
                _mark(marked, compress(batch, map(_HEADERS, batch)), header)
            for partition in set(partitions):
                mine = map(partition.__eq__, partitions)
                newest[partition].update(compress(zip(keys, batch, strict=True), mine))
        for by_key in newest.values():
            by_key.pop(None, None)
        records = _records_of([message for by_key in newest.values() for message in by_key.values()])
    return Latest(captured, records, without_key, marked)


def _mark(marked: dict[bytes, int], messages: Iterable[RawMessage], header: str) -> None:
    for message in messages:
        key = message.key()
        if key is not None and any(name == header for name, _ in message.headers() or ()):
            marked[key] = max(marked.get(key, 0), message.timestamp()[1])


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
    """Nothing here is cyclic, but the collector would scan all live keys again and again: a third of the time."""
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
    """One consumer, assigned to the partitions that are not read to their end yet."""

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
            fetch_queue_backoff_ms=5,  # default: librdkafka pauses for a second once enough is queued, half of the time
            check_crcs=False,
            fetch_wait_max_ms=10,  # the end-of-partition event needs an empty response: it must not wait for data
        )
        with translated(f"reading {self.topic}"):
            self.consumer.assign([RawPartition(self.topic, p, captured.ends[p].start) for p in waiting])

    def next_batch(self, deadline: Deadline) -> list[RawMessage]:
        with translated(f"reading {self.topic}"):
            messages = cast(list[RawMessage], self.consumer.consume(BATCH, min(POLL_SECONDS, deadline.remaining())))
        kept = self._within(messages)
        if self.waiting and deadline.passed:
            missing = ", ".join(f"{self.topic}-{p} before {end}" for p, end in sorted(self.waiting.items()))
            raise TimedOut(
                f"reading {self.topic} did not finish within {deadline.words}; missing: {missing}",
                "give it more time with --timeout",
            )
        return kept

    def _within(self, messages: Sequence[RawMessage]) -> list[RawMessage]:
        """Drops records at or after the end, and removes partitions that have reached it from `waiting`."""
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
        """True for nearly every batch and cheap: only the last record of each partition is checked."""
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
        """Frees the client in this thread, not by the garbage collector in a thread of librdkafka (see Admin)."""
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
    """None if the broker does not report it. Only for partitions that have a leader."""
    return retried(lambda: _find(admin, partitions, deadline), deadline) if partitions else {}


def _find(admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int | None]:
    wanted = {RawPartition(tp.topic, tp.partition): LATEST for tp in partitions}
    found: dict[TopicPartition, int | None] = {}
    for raw, future in admin.raw.list_offsets(wanted, request_timeout=seconds(deadline)).items():
        place = TopicPartition(raw.topic, raw.partition)
        with translated(f"reading the newest epoch of {place}"):
            epoch = answer(future, f"reading the newest epoch of {place}", deadline).leader_epoch
        found[place] = epoch if epoch is not None and epoch >= 0 else None
    return found
