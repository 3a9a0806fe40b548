"""Many records in one transaction, as fast as one process can pass them to librdkafka.

The library needs one Python call per record; everything else is done per batch. Only the first and the last record of each
partition report their offset. That is enough: we choose the partitions, and the broker keeps the order within a partition.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, repeat
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message

from playhead.errors import ConfigInvalid, PlayheadError
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import TransactionalProducer, make_transactional
from playhead.model import Deadline

TRANSACTION_SECONDS = 300
_QUEUE_MESSAGES = 200_000

Keyed = tuple[bytes | None, bytes | None, int]  # value, key, partition
RecordHeaders = list[tuple[str, bytes | None]]


class BulkProducer(TransactionalProducer):
    """`ranges`: partition -> first and last offset of what was sent there. Complete when `flush` has returned."""

    def __init__(self, settings: ClientSettings, transactional_id: str, deadline: Deadline) -> None:
        super().__init__(settings, transactional_id, deadline, **_own_settings(settings))
        self.ranges: dict[int, tuple[int, int]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # an open transaction would block every reader of committed records
            with suppress(PlayheadError):
                self.abort()
        super().__exit__(kind, error, trace)

    def send_keyed(
        self, topic: str, records: Iterable[Keyed], marks: Sequence[int], headers: Sequence[RecordHeaders] | None = None
    ) -> None:
        """Sends each record to its partition, in order. `marks`: the indexes of the first and the last record of each partition,
        in order. The last record of all is always one of them. `headers`: those of each record."""
        if headers is not None:
            marked = set(marks)
            for at, ((value, key, partition), its) in enumerate(zip(records, headers, strict=True)):
                if at in marked:
                    self._marked(topic, partition, value, key, its)
                else:
                    self._queue(topic, key, value, partition, self._delivered, headers=its)
            return
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
        """Sends all to one partition, in order, without keys."""
        if values:
            records = zip(values, repeat(None), repeat(partition), strict=False)
            self.send_keyed(topic, records, sorted({0, len(values) - 1}))

    def _marked(
        self, topic: str, partition: int, value: bytes | None, key: bytes | None, headers: RecordHeaders | None = None
    ) -> None:
        """Sends a record and adds its offset to `ranges`."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(error, message)
            offset = message.offset()
            if error is None and offset is not None:
                first, last = self.ranges.get(partition, (offset, offset))
                self.ranges[partition] = (min(first, offset), max(last, offset))

        self._queue(topic, key, value, partition, delivered, **({} if headers is None else {"headers": headers}))


_TUNED: dict[str, str | int | bool] = {"linger_ms": 50, "batch_size": 1_000_000, "compression_type": "lz4"}


def _own_settings(settings: ClientSettings) -> dict[str, str | int | bool]:
    """What the user's settings leave open, and what they cannot change."""
    return {
        **{name: value for name, value in _TUNED.items() if name.replace("_", ".") not in settings.producer},
        "transaction_timeout_ms": TRANSACTION_SECONDS * 1000,
        "queue_buffering_max_messages": _QUEUE_MESSAGES,
    }


def find_fault(settings: ClientSettings) -> str | None:
    """Why librdkafka would refuse a bulk producer with these settings. Contacts no broker."""
    common = {name: value for name, value in settings.common.items() if name != "bootstrap.servers"}
    try:
        make_transactional(replace(settings, common=common), "check", **_own_settings(settings))
    except ConfigInvalid as error:
        return "; ".join(fault.what.strip() for fault in error.faults)
    return None
