"""Records with their timestamps and headers into a transaction, each with the offset it got, and the source's position with them.

The position is committed to a consumer group in the same transaction as the records: both are visible, or neither.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from playhead.errors import PlayheadError
from playhead.kafka.bulk import BATCH_BYTES, CODEC, BulkProducer
from playhead.kafka.client import revealed
from playhead.kafka.groups import Commits
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import Delivered, TransactionalProducer
from playhead.model import Deadline

CopiedHeaders = list[tuple[str, bytes | None]]
LARGEST_BYTES = 200_000_000  # the broker decides by the size after compression, librdkafka by the size before


class CopyProducer(BulkProducer):
    """`placed`: by partition, the offsets of the records that were sent there, in order. Complete when `flush` has returned.
    `largest_batch`: that the topic accepts. A larger record is sent alone; librdkafka does not split a batch that is refused."""

    def __init__(
        self, settings: ClientSettings, transactional_id: str, deadline: Deadline, largest_batch: int = BATCH_BYTES
    ) -> None:
        own = {"message.max.bytes": str(LARGEST_BYTES), "queue.buffering.max.kbytes": "262144"}
        own["batch.size"] = str(min(int(_given(settings, "batch.size", BATCH_BYTES)), largest_batch))
        super().__init__(replace(settings, producer={**settings.producer, **own}), transactional_id, deadline)
        self._settings = settings
        self.placed: dict[int, array[int]] = {}
        self._reports: dict[int, Delivered] = {}

    def send_copies(
        self,
        topic: str,
        columns: tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[int], Sequence[int]],
        headers: Sequence[CopiedHeaders | None] | None,
    ) -> None:
        """`columns`: values, keys, partitions and milliseconds. `headers` None: no record has any."""
        for partition in set(columns[2]) - self._reports.keys():
            self._reports[partition] = self._report_of(partition)
        produce: Any = self._producer.produce  # its stub does not know that all of its arguments are positional, too
        reports = self._reports
        if headers is None:
            for value, key, partition, at in zip(*columns, strict=True):
                try:
                    produce(topic, value, key, partition, reports[partition], None, at)
                except (BufferError, KafkaException):
                    self._queue(topic, key, value, partition, reports[partition], timestamp=at)
        else:
            for value, key, partition, at, more in zip(*columns, headers, strict=True):
                try:
                    produce(topic, value, key, partition, reports[partition], None, at, more)
                except (BufferError, KafkaException):
                    self._queue(topic, key, value, partition, reports[partition], timestamp=at, headers=more)
        self._poll(0)

    def _report_of(self, partition: int) -> Delivered:
        """One function per partition: half the calls of one that asks the message for its partition."""
        add, failed = self.placed.setdefault(partition, array("q")).append, self._delivered

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                add(message.offset())  # type: ignore[arg-type]
            else:
                failed(error, message)

        return report

    def commit_with(self, positions: Mapping[str, Commits]) -> None:
        """Commits the open transaction, and with it these positions, by group."""
        self.flush()
        for group, offsets in positions.items():
            self.send_offsets(group, offsets)
        self.commit()


def codec_of(settings: ClientSettings) -> str:
    """By which batches are compressed."""
    return _given(settings, "compression.type", CODEC)


def _given(settings: ClientSettings, name: str, default: object) -> str:
    return revealed(settings.producer).get(name, str(default))


def advance(
    settings: ClientSettings,
    transactional_id: str,
    positions: Mapping[str, Commits],
    check: Callable[[], None],
    deadline: Deadline,
) -> None:
    """Positions alone, in a transaction of their own: for ranges that have no record. `check` is called when no earlier producer
    of the id can commit any more; if it raises, nothing is committed."""
    with TransactionalProducer(settings, transactional_id, deadline) as producer:
        check()
        producer.begin()
        try:
            for group, offsets in positions.items():
                producer.send_offsets(group, offsets)
            producer.commit()
        except BaseException:
            with suppress(PlayheadError):
                producer.abort()
            raise
