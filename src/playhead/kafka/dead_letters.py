"""Records that could not be delivered, taken from their topic by their coordinates and put into another one, as they are.

Key, value, headers and timestamp stay; headers may be added behind those that are there. The records asked for come in the order
of their offsets, so the consumer is kept and reads on: only a far jump costs a new request. At least once: what was sent counts
as there only when `flush` has returned. A timestamp of exactly 0 cannot be told to librdkafka, which takes it for "now".
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
SECONDS = 60.0  # for one record to be found, and for all of them to be acknowledged
READ_ON = 5_000  # a wanted record that is nearer than so many offsets is reached by reading
# The broker decides what is too large; librdkafka's own limit is below what brokers often allow.
_LARGEST = 1_000_000_000
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class DeadLetters:
    """Clients are made with the first record: a task without a bad one never meets them."""

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
        """Everything sent so far is acknowledged, or this raises."""
        if self._producer is None:
            return
        with translated(self._doing):
            waiting = self._producer.flush(SECONDS)
        self._check()
        if waiting:
            raise TimedOut(f"{self._doing}: {waiting} record(s) were not acknowledged within {SECONDS:g} s")

    def close(self) -> None:
        """Let go here and now, not by the collector in some thread of librdkafka (see Admin)."""
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
    """Single records by their coordinates. Uncommitted ones are read too: whoever asks has seen the record."""

    def __init__(self, settings: ClientSettings) -> None:
        self._consumer: Consumer | None = make_consumer(
            settings,
            isolation_level="read_uncommitted",
            auto_offset_reset="error",
            enable_partition_eof=True,
            fetch_wait_max_ms=10,
            queued_min_messages=READ_ON,
            queued_max_messages_kbytes=16 * 1024,
            fetch_queue_backoff_ms=5,  # once enough is queued, librdkafka rests for a second by default
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
                self._place = None  # this one is taken, and may be the next that is asked for
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
        """The end of the partition is told with its position; one before the record is from an earlier moment."""
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
    """Worth another try: the next one will not meet the record at all."""
    return Busy(f"{place}@{offset} was compacted or expired before it could go to the dead letter queue")
