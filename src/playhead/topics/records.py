"""Reads the records of a topic: a range, filters, and new records as they arrive.

A read ends at the end offsets captured at its start, unless it follows. Nothing is committed and no group is joined. A time means
a position, as in Kafka: from the first record of that time or later, to before the first record of the other. If producers set
their own times, records out of order are read at their offsets. The timeout of a command restarts with every record: it ends a
read that hangs, not one that is long or whose reader is slow.
"""

import heapq
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from playhead.errors import Busy, Invalid, NotFound
from playhead.kafka.follow import follow_messages
from playhead.kafka.log import Captured, RawMessage, capture, read_messages
from playhead.kafka.partitions import find_at_time
from playhead.kafka.topics import get_topic
from playhead.kafka.transactions_seen import describe_hidden
from playhead.model import Deadline, TopicPartition
from playhead.topics.session import Session

UNREADABLE_HEADERS = "(headers whose names are no text)"
SHORTEST_CUT = 256
_GROWTH = 4
_TIMES = {1: "create", 2: "append"}

Ranges = dict[int, tuple[int, int]]


class TopicRecord(NamedTuple):
    """`time_type`: create (the producer's) or append (the broker's); None, like `timestamp_ms`, if a record has no time.
    `size`: of the whole value, if key, value and headers were cut."""

    partition: int
    offset: int
    timestamp_ms: int | None
    time_type: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Selects records. `to_offset` and `to_time` are exclusive. `last`: the newest of all that match. `most_bytes`: what may be
    held in memory; larger records are cut."""

    topic: str
    partitions: tuple[int, ...] = ()
    from_offset: int | None = None
    to_offset: int | None = None
    from_time: datetime | None = None
    to_time: datetime | None = None
    last: int | None = None
    key: bytes | None = None
    grep: re.Pattern[str] | None = None
    limit: int | None = None
    follow: bool = False
    committed: bool = True
    most_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("last", "limit"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise Invalid(f"{number} is not a number of records: it must be at least 1")
        starts = [name for name in ("from_offset", "from_time", "last") if getattr(self, name) is not None]
        ends = [name for name in ("to_offset", "to_time") if getattr(self, name) is not None]
        for given in (starts, ends):
            if len(given) > 1:
                raise Invalid(f"{_flag(given[0])} and {_flag(given[1])} exclude each other")
        if self.follow and ends:
            raise Invalid(f"--follow has no end, but {_flag(ends[0])} sets one", "leave one of them out")

    @property
    def has_filter(self) -> bool:
        return self.key is not None or self.grep is not None

    def matches(self, record: TopicRecord) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        if self.grep is None:
            return True
        texts = (record.value, record.key, *(value for _, value in record.headers))
        return any(text is not None and self.grep.search(text.decode("utf-8", "surrogateescape")) for text in texts)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def compile_grep(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Invalid(f"{pattern!r} is not a regular expression: {error}") from None


class _Patience(Deadline):
    """A deadline that can be restarted."""

    def restart(self) -> None:
        self._end = time.monotonic() + self.seconds


@dataclass(frozen=True, slots=True)
class RecordReading:
    """A planned read. `ranges`: by partition, the second offset is exclusive. `notes`: to show before the records."""

    session: Session
    query: Query
    captured: Captured
    ranges: Ranges
    notes: tuple[str, ...]

    @property
    def widest_offset(self) -> int:
        return max((end for _, end in self.ranges.values()), default=0)

    def batches(self, idle: Callable[[], None] = lambda: None) -> Generator[list[TopicRecord]]:
        """Records in batches, in offset order within each partition; `last` in the order of time. Never an empty batch.

        `idle` is called from time to time while nothing arrives, and may raise to end the read. Close the generator if you do
        not read it to its end.
        """
        left = self.query.limit
        with closing(self._all()) as source:
            for batch in source:
                kept = batch if left is None else batch[:left]
                if kept:
                    yield kept
                else:
                    idle()
                if left is not None:
                    left -= len(kept)
                    if not left:
                        return

    def _all(self) -> Generator[list[TopicRecord]]:
        if self.query.last is not None:
            yield self._last(self.query.last)
        else:
            yield from self._matching(self.ranges)
        if self.query.follow:
            positions = {partition: end for partition, (_, end) in self.ranges.items()}
            committed, admin = self.query.committed, self.session.admin
            with closing(follow_messages(admin, self.query.topic, positions, committed=committed)) as source:
                for messages in source:
                    yield self._kept(messages)

    def _matching(self, ranges: Mapping[int, tuple[int, int]]) -> Generator[list[TopicRecord]]:
        patience = _Patience(self.session.deadline.seconds)
        with closing(read_messages(self.session.admin, self.captured.narrowed(ranges), patience)) as source:
            for messages in source:
                yield self._kept(messages)
                patience.restart()

    def _kept(self, messages: list[RawMessage]) -> list[TopicRecord]:
        records = map(record_of, messages)
        kept = list(filter(self.query.matches, records)) if self.query.has_filter else list(records)
        longest = self.longest
        return kept if longest is None else [cut(record, longest) for record in kept]

    @property
    def longest(self) -> int | None:
        """How many bytes of a value are kept. The newest are collected in each partition."""
        if self.query.most_bytes is None:
            return None
        many = (self.query.last or 0) * len(self.ranges) or self.query.limit or 1
        return max(SHORTEST_CUT, self.query.most_bytes // many)

    def _last(self, count: int) -> list[TopicRecord]:
        """Reads backwards in growing steps, because it is unknown how many offsets hold a matching record."""
        found: dict[int, deque[TopicRecord]] = {partition: deque() for partition in self.ranges}
        edges = {partition: end for partition, (_, end) in self.ranges.items()}
        width = count
        while True:
            open_ones = [p for p, (start, _) in self.ranges.items() if len(found[p]) < count and edges[p] > start]
            if not open_ones:
                break
            steps = {p: (max(self.ranges[p][0], edges[p] - width), edges[p]) for p in open_ones}
            newer = {p: deque[TopicRecord](maxlen=count - len(found[p])) for p in open_ones}
            for batch in self._matching(steps):
                for record in batch:
                    newer[record.partition].append(record)
            for p in open_ones:
                found[p].extendleft(reversed(newer[p]))
                edges[p] = steps[p][0]
            width *= _GROWTH
        everything = (record for of_partition in found.values() for record in of_partition)
        return heapq.nlargest(count, everything, key=_age)[::-1]


def _age(record: TopicRecord) -> tuple[int, int, int]:
    return (-1 if record.timestamp_ms is None else record.timestamp_ms, record.partition, record.offset)


def record_of(message: RawMessage) -> TopicRecord:
    kind, timestamp_ms = message.timestamp()
    time_type = _TIMES.get(kind)
    return TopicRecord(
        message.partition(),
        message.offset(),
        timestamp_ms if time_type else None,
        time_type,
        message.key(),
        message.value(),
        _headers(message),
    )


def cut(record: TopicRecord, longest: int) -> TopicRecord:
    """At most so many bytes of the value, the key, and the headers together."""
    headers, left = [], longest
    for name, value in record.headers:
        if len(name) > left:
            break
        headers.append((name, value if value is None else value[:left]))
        left -= len(name) + len(value or b"")
    short = record._replace(
        key=record.key and record.key[:longest], value=record.value and record.value[:longest], headers=tuple(headers)
    )
    return record if short == record else short._replace(size=len(record.value or b""))


def _headers(message: RawMessage) -> tuple[tuple[str, bytes | None], ...]:
    try:
        return tuple(message.headers() or ())
    except (SystemError, UnicodeDecodeError):  # the client library requires text as names, Kafka does not
        return ((UNREADABLE_HEADERS, None),)


def open_reading(session: Session, query: Query) -> RecordReading:
    """Captures the end offsets and finds the start offsets. Nothing is read yet."""
    notes: list[str] = []
    partitions = _partitions(session, query, notes)
    captured = capture(session.admin, query.topic, session.deadline, committed=query.committed, partitions=partitions)
    ranges = _ranges(session, query, captured)
    hidden = sum(e.high - e.stable for e in captured.ends.values()) if query.committed else 0
    if hidden:
        notes.append(f"at most {hidden} record(s) of open transactions are not shown; --uncommitted shows them")
        ends = {TopicPartition(query.topic, p): found for p, found in captured.ends.items()}
        notes += describe_hidden(session.admin, ends, session.deadline)
    truncated = [
        f"{query.topic}-{p} at {e.start}" for p, e in captured.ends.items() if e.start > (query.from_offset or e.start)
    ]
    if truncated:
        notes.append(f"records before the start of the log were deleted; it starts: {', '.join(truncated)}")
    return RecordReading(session, query, captured, ranges, tuple(notes))


def _partitions(session: Session, query: Query, notes: list[str]) -> list[int]:
    topic = get_topic(session.admin, query.topic, session.deadline)
    known = {partition.id: partition for partition in topic.partitions}
    for number in query.partitions:
        if number not in known:
            hint = f"{query.topic} has {len(known)} partition(s), counted from 0"
            raise NotFound("partition", f"{query.topic}-{number}", hint=hint)
        if known[number].is_offline:
            raise Busy(f"{query.topic}-{number} has no leader, so it cannot be read now")
    chosen = sorted(set(query.partitions) or set(known))
    offline = [number for number in chosen if known[number].is_offline]
    if offline:
        names = ", ".join(f"{query.topic}-{number}" for number in offline)
        notes.append(f"without a leader, so not read: {names}")
    return [number for number in chosen if number not in offline]


def _ranges(session: Session, query: Query, captured: Captured) -> Ranges:
    """A range that would end before it starts is empty. With `follow`, one that starts after the end waits there."""
    begins = _found_at(session, query.from_time, captured)
    stops = _found_at(session, query.to_time, captured)
    ranges: Ranges = {}
    for partition, ends in captured.ends.items():
        last = captured.end_of(partition)
        start = begins.get(partition, ends.start if query.from_offset is None else query.from_offset)
        stop = stops.get(partition, last if query.to_offset is None else query.to_offset)
        start = max(start, ends.start)
        ranges[partition] = (start, max(start, min(stop, last)))
    return ranges


def _found_at(session: Session, moment: datetime | None, captured: Captured) -> dict[int, int]:
    """Partition -> its first offset of that time or later, its end if there is none. Empty if no time is given."""
    if moment is None:
        return {}
    places = [TopicPartition(captured.topic.name, partition) for partition in captured.ends]
    found = find_at_time(session.admin, places, int(moment.timestamp() * 1000), session.deadline)
    return {tp.partition: captured.end_of(tp.partition) if at is None else at for tp, at in found.items()}
