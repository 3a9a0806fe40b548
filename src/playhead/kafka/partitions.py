"""Queries for many partitions at once: leaders, start and end offsets, the offset of a time, the time of an offset.

`topics` queries one topic and fails if it does not exist. The functions here return a result for every partition requested, also
for a deleted topic and a partition without a leader. Never request the offsets of a partition without a leader: the client would
wait for one until the deadline.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from playhead.errors import Invalid
from playhead.kafka.client import Admin, make_consumer
from playhead.kafka.faults import code_of, fault_of, retried, translated
from playhead.kafka.topics import EARLIEST, LATEST, answer, seconds
from playhead.model import Deadline, TopicPartition

Leaders = dict[int, int | None]
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
_NOTHING_THERE = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


_BATCH_BYTES, _FETCH_BYTES = 64 * 1024, 16 * 1024 * 1024  # for one partition, and for all of a request


class Span(NamedTuple):
    """`start`: the first offset that still exists. `end`: the next one to be written (high watermark)."""

    start: int
    end: int


class Found(NamedTuple):
    offset: int
    timestamp_ms: int


def find_leaders(admin: Admin, topics: Iterable[str], deadline: Deadline) -> dict[str, Leaders | None]:
    """Topic -> partition -> leader, None if it has none. None for a topic that does not exist."""
    names = list(dict.fromkeys(topics))
    if "" in names:
        raise Invalid("a topic name cannot be empty")
    return retried(lambda: _find_leaders(admin, names, deadline), deadline) if names else {}


def _find_leaders(admin: Admin, names: Sequence[str], deadline: Deadline) -> dict[str, Leaders | None]:
    found: dict[str, Leaders | None] = {}
    for name, future in admin.raw.describe_topics(
        TopicCollection(list(names)), request_timeout=seconds(deadline)
    ).items():
        doing = f"describing {name}"
        try:
            topic = answer(future, doing, deadline)
        except KafkaException as error:
            if code_of(error).code() not in _ABSENT:
                raise fault_of(code_of(error), doing) from None
            found[name] = None
        else:
            found[name] = {p.id: None if p.leader is None or p.leader.id < 0 else p.leader.id for p in topic.partitions}
    return found


def find_spans(admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, Span]:
    start, end = _ask(admin, partitions, [EARLIEST, LATEST], deadline)
    return {tp: Span(start[tp].offset, end[tp].offset) for tp in start}


def find_at_time(
    admin: Admin, partitions: Collection[TopicPartition], timestamp_ms: int, deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """The first offset whose record is of that time or later; None if there is none."""
    spec = OffsetSpec.for_timestamp(max(0, timestamp_ms))  # negative values have a special meaning in Kafka
    (found,) = _ask(admin, partitions, [spec], deadline)
    return {tp: one.offset if one.offset >= 0 else None for tp, one in found.items()}


def find_newest_times(
    admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """The largest timestamp in each log, in milliseconds; None if the log is empty."""
    spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    (found,) = _ask(admin, partitions, [spec], deadline)
    return {tp: one.timestamp_ms if one.offset >= 0 else None for tp, one in found.items()}


def find_first_times(
    admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """The time of the first record of each log, in milliseconds; None if no record has a time. No record is fetched."""
    (found,) = _ask(admin, partitions, [OffsetSpec.for_timestamp(0)], deadline)
    return {tp: one.timestamp_ms if one.offset >= 0 else None for tp, one in found.items()}


def _ask(
    admin: Admin, partitions: Collection[TopicPartition], specs: Sequence[OffsetSpec], deadline: Deadline
) -> list[dict[TopicPartition, Found]]:
    """One result for each spec; all requests are sent together. The call fails if one partition fails."""
    if not partitions:
        return [{} for _ in specs]
    return retried(lambda: _asked(admin, partitions, specs, deadline), deadline)


def _asked(
    admin: Admin, partitions: Collection[TopicPartition], specs: Sequence[OffsetSpec], deadline: Deadline
) -> list[dict[TopicPartition, Found]]:
    pending: list[dict[RawPartition, Future[Any]]] = [
        admin.raw.list_offsets(
            {RawPartition(tp.topic, tp.partition): spec for tp in partitions}, request_timeout=seconds(deadline)
        )
        for spec in specs
    ]
    return [_found(futures, deadline) for futures in pending]


def _found(futures: Mapping[RawPartition, "Future[Any]"], deadline: Deadline) -> dict[TopicPartition, Found]:
    found: dict[TopicPartition, Found] = {}
    for raw, future in futures.items():
        place = TopicPartition(raw.topic, raw.partition)
        with translated(f"reading the offsets of {place}"):
            one = answer(future, f"reading the offsets of {place}", deadline)
            found[place] = Found(one.offset, one.timestamp)
    return found


def find_times_at(
    admin: Admin, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """The time, in milliseconds, of the first record at or after each offset; None if there is no record or it has no time.

    The time is only in the record, so one batch of each partition is fetched. A broker sends the first batch of a response
    whatever its size, the others only if they fit: with one byte for each, many partitions would need as many requests.
    """
    found = _first_records(admin, offsets, "read_uncommitted", deadline)  # an open transaction must not hide a record
    return {place: None if one is None or one.timestamp_ms < 0 else one.timestamp_ms for place, one in found.items()}


def find_committed_at(
    admin: Admin, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """The offset of the first committed record at or after each offset; None if there is none before the last stable offset."""
    found = _first_records(admin, offsets, "read_committed", deadline)
    return {place: None if one is None else one.offset for place, one in found.items()}


def _first_records(
    admin: Admin, offsets: Mapping[TopicPartition, int], isolation: str, deadline: Deadline
) -> dict[TopicPartition, Found | None]:
    """The first record at or after each offset; its time is -1 if it has none."""
    if not offsets:
        return {}
    consumer = make_consumer(
        admin.settings,
        isolation_level=isolation,
        enable_partition_eof=True,
        auto_offset_reset="error",
        queued_min_messages=1,
        fetch_queue_backoff_ms=10,
        fetch_wait_max_ms=10,
        max_partition_fetch_bytes=1 if len(offsets) == 1 else min(_BATCH_BYTES, _FETCH_BYTES // len(offsets) + 1),
    )
    try:
        with translated("reading records"):
            consumer.assign([RawPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()])
            return _firsts(consumer, set(offsets), deadline)
    finally:
        consumer.close()


def _firsts(consumer: Consumer, waiting: set[TopicPartition], deadline: Deadline) -> dict[TopicPartition, Found | None]:
    """Later records of a partition are ignored: unassigning the partition would take far longer."""
    firsts: dict[TopicPartition, Found | None] = {}
    while waiting:
        deadline.check("reading records")
        for message in consumer.consume(1000, 0.01):
            place = TopicPartition(str(message.topic()), int(message.partition() or 0))
            if place not in waiting:
                continue
            waiting.discard(place)
            error = message.error()
            if error is not None and error.code() not in _NOTHING_THERE:
                raise fault_of(error, f"reading {place}")
            kind, timestamp_ms = message.timestamp()
            found = Found(int(message.offset() or 0), timestamp_ms if kind else -1)
            firsts[place] = found if error is None else None
    return firsts
