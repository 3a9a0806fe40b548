"""The first committed record in ranges of offsets, of many partitions at once, with one consumer.

Records are read in order, so one that lies behind several ranges answers for all of them. To a range that is far away the
consumer jumps; what is near is read through, which takes less time than a jump. A jump does not call messages back that are
already here: they are committed records as well, and count.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as RawPartition

from playhead.kafka.client import Admin, make_consumer
from playhead.kafka.faults import fault_of, translated
from playhead.model import Deadline

NEAR = 1_000  # offsets that are read in the time of a jump
_POLL_SECONDS = 0.05


class Ranges(NamedTuple):
    """Of one partition, in order, without overlaps: each from a start to before its end."""

    starts: Sequence[int]
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class Looked:
    """By partition. `found`: the first committed record in its ranges. `unread`: from where on there was no time to look."""

    found: Mapping[int, int]
    unread: Mapping[int, int]


def scan_committed(admin: Admin, topic: str, ranges: Mapping[int, Ranges], deadline: Deadline) -> Looked:
    """What ends before the deadline. The ranges must not reach beyond the last stable offset: nothing is seen there."""
    wanted = {number: one for number, one in ranges.items() if len(one.starts)}
    if not wanted:
        return Looked({}, {})
    consumer = make_consumer(
        admin.settings,
        isolation_level="read_committed",
        enable_partition_eof=True,
        auto_offset_reset="earliest",  # retention may move the log start while we read
        queued_min_messages=NEAR,
        fetch_queue_backoff_ms=1,
        fetch_wait_max_ms=10,
        max_partition_fetch_bytes=256 * 1024,  # most of it is wasted at a jump
    )
    try:
        with translated(f"reading {topic}"):
            return Scan(consumer, topic, wanted).run(deadline)
    finally:
        consumer.close()


class Scan:
    def __init__(self, consumer: Consumer, topic: str, ranges: Mapping[int, Ranges]) -> None:
        self._consumer, self._topic, self._ranges = consumer, topic, ranges
        self._at = dict.fromkeys(
            ranges, 0
        )  # by partition, the range that is looked at; those that are done are missing
        self._found: dict[int, int] = {}

    def run(self, deadline: Deadline) -> Looked:
        self._consumer.assign([self._place(number, one.starts[0]) for number, one in self._ranges.items()])
        while self._at and not deadline.passed:
            # `consume` alone would wait for as many messages as it may return.
            first = self._consumer.poll(min(_POLL_SECONDS, deadline.remaining()))
            if first is not None:
                for message in (first, *self._consumer.consume(NEAR, 0)):
                    self._take(message)
        unread = {number: int(self._ranges[number].starts[at]) for number, at in self._at.items()}
        return Looked(self._found, unread)

    def _take(self, message: Message) -> None:
        number, offset, error = int(message.partition() or 0), int(message.offset() or 0), message.error()
        if number not in self._at:
            return
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise fault_of(error, f"reading {self._topic}-{number}")
            self._end(number)
            return
        starts, ends = self._ranges[number]
        at = bisect_right(ends, offset, lo=self._at[number])
        if at == len(ends):
            self._end(number)
        elif starts[at] <= offset:
            self._found[number] = offset
            self._end(number)
        elif at != self._at[number]:
            self._at[number] = at
            if starts[at] - offset > NEAR:
                self._consumer.seek(self._place(number, starts[at]))

    def _end(self, number: int) -> None:
        del self._at[number]
        self._consumer.pause([self._place(number, 0)])

    def _place(self, number: int, offset: int) -> RawPartition:
        return RawPartition(self._topic, number, int(offset))
