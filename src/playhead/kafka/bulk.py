"""Many records in one transaction, as fast as one process can hand them to librdkafka.

One call of Python per record is the price of the library; everything else is per batch. Where the records went is learnt from
the first and the last of each partition: the partitions are chosen here, and within one of them the broker keeps the order.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice, repeat
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message

from playhead.errors import PlayheadError
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import TransactionalProducer
from playhead.model import Deadline

TRANSACTION_SECONDS = 300
_QUEUE_MESSAGES = 200_000

Keyed = tuple[bytes | None, bytes | None, int]  # value, key, partition


class BulkProducer(TransactionalProducer):
    """`ranges`: partition -> first and last offset of what was sent there, whole once `flush` has returned."""

    def __init__(self, settings: ClientSettings, transactional_id: str, deadline: Deadline) -> None:
        super().__init__(
            settings,
            transactional_id,
            deadline,
            transaction_timeout_ms=TRANSACTION_SECONDS * 1000,
            queue_buffering_max_messages=_QUEUE_MESSAGES,
            **{name: value for name, value in _TUNED.items() if name.replace("_", ".") not in settings.producer},
        )
        self.ranges: dict[int, tuple[int, int]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # left open, it would hold back every reader of committed records
            with suppress(PlayheadError):
                self.abort()
        super().__exit__(kind, error, trace)

    def send_keyed(self, topic: str, records: Iterable[Keyed], marks: Sequence[int]) -> None:
        """Each to its own partition, in their order. `marks`: the numbers of those that are the first or the last of their
        partition, in order; the last record of all is always one."""
        produce = self._producer.produce
        left, at = iter(records), 0
        for mark in marks:
            for value, key, partition in islice(left, mark - at):
                try:
                    produce(topic, value, key, partition)
                except (BufferError, KafkaException):
                    self._queue(topic, key, value, partition, self._delivered)
            for value, key, partition in islice(left, 1):
                self._marked(topic, partition, value, key)
            at = mark + 1

    def send(self, topic: str, partition: int, values: Sequence[bytes | None]) -> None:
        """All to one partition, in their order, without keys."""
        if values:
            records = zip(values, repeat(None), repeat(partition), strict=False)
            self.send_keyed(topic, records, sorted({0, len(values) - 1}))

    def _marked(self, topic: str, partition: int, value: bytes | None, key: bytes | None) -> None:
        """A record whose place is wanted."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(error, message)
            offset = message.offset()
            if error is None and offset is not None:
                first, last = self.ranges.get(partition, (offset, offset))
                self.ranges[partition] = (min(first, offset), max(last, offset))

        self._queue(topic, key, value, partition, delivered)


_TUNED: dict[str, str | int | bool] = {"linger_ms": 50, "batch_size": 1_000_000, "compression_type": "lz4"}
