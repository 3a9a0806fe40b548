"""Copies records that could not be delivered from their topic, by partition and offset, to the dead letter queue, unchanged.

Key, value, headers and timestamp are kept; more headers may be appended. Records are requested in the order of their offsets, so
the consumer is kept and reads on: only a far jump costs a new request. At least once: a record is written only when `flush` has
returned. A timestamp of exactly 0 is lost: librdkafka reads it as "now".
"""

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as RawPartition

from playhead.errors import Busy, TimedOut
from playhead.kafka.client import make_consumer, make_producer
from playhead.kafka.faults import fault_of, translated
from playhead.kafka.log import RawMessage
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import queue_record
from playhead.model import Deadline, TopicPartition

Headers = Sequence[tuple[str, bytes | None]]
SECONDS = 60.0  # limit for reading one record, and for the acknowledgement of all
READ_ON = 5_000  # a record that is at most this many offsets ahead is reached by reading on, without a new request
# The broker decides what is too large; librdkafka's default limit is lower than what brokers often allow.
_LARGEST = 1_000_000_000
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class DeadLetters:
    """Clients are created with the first record: a task without a bad record needs none."""

    def __init__(self, reading: ClientSettings, writing: ClientSettings, queue: str) -> None:
        self._reading = reading
        self._writing = writing
        self._queue = queue
        self._originals: Originals | None = None
        self._producer: Producer | None = None
        self._undelivered: list[KafkaError] = []

    def send(self, place: TopicPartition, offset: int, headers: Headers = ()) -> None:
        if self._originals is None:
            self._originals = Originals(self._reading)
        if self._producer is None:
            self._producer = make_producer(self._writing, linger_ms=5, message_max_bytes=_LARGEST)
        record = self._originals.get(place, offset)
        kind, milliseconds = record.timestamp()
        produce = partial(
            self._producer.produce,
            self._queue,
            record.value(),
            record.key(),
            on_delivery=self._delivered,
            timestamp=milliseconds if kind and milliseconds > 0 else 0,
            headers=[*(record.headers() or []), *headers],
        )
        with translated(self._doing):
            queue_record(produce, self._serve, Deadline(SECONDS), self._doing)
        self._serve(0)

    def flush(self) -> None:
        """Waits until everything sent so far is acknowledged; raises if it is not."""
        if self._producer is None:
            return
        with translated(self._doing):
            waiting = self._producer.flush(SECONDS)
        self._check()
        if waiting:
            raise TimedOut(f"{self._doing}: {waiting} record(s) were not acknowledged within {SECONDS:g} s")

    def close(self) -> None:
        """Frees the clients in this thread, not by the garbage collector in a thread of librdkafka (see Admin)."""
        self._producer = None
        if self._originals is not None:
            self._originals.close()
            self._originals = None

    @property
    def _doing(self) -> str:
        return f"writing to the dead letter queue {self._queue}"

    def _serve(self, seconds: float) -> None:
        if self._producer is not None:
            with translated(self._doing):
                self._producer.poll(seconds)
        self._check()

    def _check(self) -> None:
        if self._undelivered:
            raise fault_of(self._undelivered[0], self._doing)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._undelivered.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Originals:
    """Reads single records by partition and offset. Uncommitted ones are read too: the caller has already read the record."""

    def __init__(self, settings: ClientSettings) -> None:
        self._consumer: Consumer | None = make_consumer(
            settings,
            isolation_level="read_uncommitted",
            auto_offset_reset="error",
            enable_partition_eof=True,
            fetch_wait_max_ms=10,
            queued_min_messages=READ_ON,
            queued_max_messages_kbytes=16 * 1024,
            fetch_queue_backoff_ms=5,  # librdkafka's default: once enough is queued, it pauses for a second
        )
        self._place: TopicPartition | None = None
        self._next = 0

    def get(self, place: TopicPartition, offset: int) -> RawMessage:
        deadline = Deadline(SECONDS)
        if place != self._place or not 0 <= offset - self._next <= READ_ON:
            self._go_to(place, offset)
        while True:
            deadline.check(f"reading {place}@{offset}")
            message = self._poll(place)
            if message is None:
                continue
            if (error := message.error()) is not None:
                self._event(error, message, place, offset)
                continue
            self._next = message.offset() + 1
            if message.offset() == offset:
                return message
            if message.offset() > offset:
                self._place = None  # this record is consumed, but may be the next one requested
                raise _gone(place, offset)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _go_to(self, place: TopicPartition, offset: int) -> None:
        self._place, self._next = place, offset
        with translated(f"reading {place}"):
            self._open.assign([RawPartition(place.topic, place.partition, offset)])

    def _poll(self, place: TopicPartition) -> RawMessage | None:
        with translated(f"reading {place}"):
            return cast(RawMessage | None, self._open.poll(0.1))

    def _event(self, error: KafkaError, message: RawMessage, place: TopicPartition, offset: int) -> None:
        """The end-of-partition event carries its position. An end before the record is out of date and ignored."""
        if error.code() in _GONE:
            raise _gone(place, offset)
        if error.code() != KafkaError._PARTITION_EOF:
            raise fault_of(error, f"reading {place}")
        if message.offset() > offset:
            raise _gone(place, offset)

    @property
    def _open(self) -> Consumer:
        if self._consumer is None:
            raise RuntimeError("this reader is closed")
        return self._consumer


def _gone(place: TopicPartition, offset: int) -> Busy:
    """Retriable: the next attempt will not read this record at all."""
    return Busy(f"{place}@{offset} was compacted or expired before it could go to the dead letter queue")
