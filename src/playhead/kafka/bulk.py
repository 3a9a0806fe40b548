"""Many records in one transaction, as fast as one process can pass them to librdkafka: whole columns at once.

`open_bulk` gives a `ColumnProducer`, which hands columns to librdkafka's own interface. Where that cannot be reached it gives a
`BulkProducer`, which makes one call of Python per record. Both report the first and the last offset of each partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message

from playhead.errors import ConfigInvalid, PlayheadError
from playhead.kafka.c_library import is_available
from playhead.kafka.c_records import argument_table
from playhead.kafka.client import make_native_producer
from playhead.kafka.faults import code_of, transaction_fault
from playhead.kafka.groups import Committed
from playhead.kafka.native_producer import NativeProducer
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import (
    Delivered,
    TransactionalProducer,
    make_transactional,
    queue_record,
    transactional_settings,
)
from playhead.model import Deadline, TopicPartition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]

TRANSACTION_SECONDS = 300
_QUEUE_MESSAGES = 200_000
_NEW_TOPIC_SECONDS = 15.0

Keyed = tuple[bytes | None, bytes | None, int]  # value, key, partition
RecordHeaders = list[tuple[str, bytes | None]]
Ranges = dict[int, tuple[int, int]]  # partition -> first and last offset


def open_bulk(settings: ClientSettings, transactional_id: str, deadline: Deadline) -> "BulkProducer":
    kind = ColumnProducer if is_available() else BulkProducer
    return kind(settings, transactional_id, deadline)


class BulkProducer(TransactionalProducer):
    def __init__(self, settings: ClientSettings, transactional_id: str, deadline: Deadline) -> None:
        self._ranges: dict[str, Ranges] = {}
        super().__init__(settings, transactional_id, deadline, **_own_settings(settings))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # an open transaction would block every reader of committed records
            with suppress(PlayheadError):
                self.abort()
        super().__exit__(kind, error, trace)

    def begin(self, deadline: Deadline | None = None) -> None:
        super().begin(deadline)
        self._ranges.clear()

    def ranges(self, topic: str) -> Ranges:
        """What `send` sent to the topic in this transaction. Complete when `flush` has returned."""
        return self._ranges.setdefault(topic, {})

    def send(
        self,
        topic: str,
        values: "pa.Array",
        keys: "pa.Array | None",
        partitions: "Numbers | int",
        headers: Sequence[RecordHeaders] | None = None,
        timestamps: "Numbers | None" = None,
    ) -> None:
        """Sends columns of binaries, each record to its partition, in order. `headers`: those of each record. `timestamps`: 0
        stands for the moment."""
        import numpy as np

        count = len(values)
        if not count:
            return
        chosen = np.full(count, partitions) if isinstance(partitions, int) else partitions
        listed: list[bytes | None] = [None] * count if keys is None else keys.to_pylist()
        records = zip(values.to_pylist(), listed, chosen.tolist(), strict=True)
        marks = _first_and_last(chosen)
        if headers is None and timestamps is None:
            self._send_marked(topic, records, marks)
            return
        reporting = set(marks)
        for at, (value, key, partition) in enumerate(records):
            more = {"headers": None if headers is None else headers[at]}
            moment = 0 if timestamps is None else int(timestamps[at])
            delivered = self._reporter(topic, partition) if at in reporting else self._delivered
            self._queue(topic, key, value, partition, delivered, timestamp=moment, **more)

    def _send_marked(self, topic: str, records: Iterable[Keyed], marks: Sequence[int]) -> None:
        """Only the first and the last record of each partition report their offset: the broker keeps the order in between.
        `marks`: their indexes, in order; the last record is always one of them."""
        produce = self._producer.produce
        left, at = iter(records), 0
        for mark in marks:
            for value, key, partition in islice(left, mark - at):
                try:
                    produce(topic, value, key, partition)
                except (BufferError, KafkaException):
                    self._queue(topic, key, value, partition, self._delivered)
            for value, key, partition in islice(left, 1):
                self._queue(topic, key, value, partition, self._reporter(topic, partition))
            at = mark + 1

    def _reporter(self, topic: str, partition: int) -> Delivered:
        ranges = self.ranges(topic)

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(error, message)
            offset = message.offset()
            if error is None and offset is not None:
                widen(ranges, partition, offset, offset)

        return delivered


class ColumnProducer(BulkProducer):
    """Over librdkafka's C interface: `NativeProducer`."""

    _producer: NativeProducer

    def _open(self, own: Mapping[str, str | int | bool]) -> None:
        settings = transactional_settings(self._settings, self.transactional_id, own)
        self._producer = make_native_producer(self._settings, **settings)

    def _find_brokers(self, seconds: float) -> None:
        self._producer.find_brokers(seconds)

    def begin(self, deadline: Deadline | None = None) -> None:
        """What is reported before belongs to a transaction that has ended."""
        self._producer.poll(0)
        self._producer.delivered.clear()
        super().begin(deadline)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        producer = self._producer
        super().__exit__(kind, error, trace)
        producer.close()

    def send(
        self,
        topic: str,
        values: "pa.Array",
        keys: "pa.Array | None",
        partitions: "Numbers | int",
        headers: Sequence[RecordHeaders] | None = None,
        timestamps: "Numbers | None" = None,
    ) -> None:
        if not len(values):
            return
        self.ranges(topic)  # from now on reports of this topic count
        producer = self._producer
        try:
            producer.open_topic(topic, min(_NEW_TOPIC_SECONDS, self._deadline.remaining()))
            if headers is None and timestamps is None:
                queue = partial(producer.queue, producer.columns(topic, values, keys, partitions))
            else:
                moments = 0 if timestamps is None else timestamps
                table = argument_table(topic, values, keys, partitions, headers, moments)
                queue = partial(producer.queue_each, table)
            while not queue():
                self._deadline.check("producing")
                self._poll(0.05)
        except KafkaException as error:
            raise transaction_fault(code_of(error), self.transactional_id, "producing") from None
        self._poll(0)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        listed = [(place, what.offset, what.metadata) for place, what in offsets.items()]
        send = self._producer.send_offsets
        self._step("adding offsets to", lambda: send(group, listed, self._deadline.remaining()))

    def _queue(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        delivered: Delivered,  # noqa: ARG002  reports come by batches
        **more: Any,
    ) -> None:
        headers, millis = more.get("headers"), more.get("timestamp", 0)

        def produce() -> None:
            self._producer.produce(topic, value, key, partition, headers, millis)

        try:
            queue_record(produce, self._poll, self._deadline, "producing")
        except KafkaException as error:
            raise transaction_fault(code_of(error), self.transactional_id, "producing") from None

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._take_reports()

    def _flushed(self, seconds: float) -> int:
        waiting = self._producer.flush(seconds)
        self._take_reports()
        return waiting

    def _take_reports(self) -> None:
        reports, self._producer.delivered = self._producer.delivered, []
        for one in reports:
            self._delivered(one.error, None)
            ranges = self._ranges.get(one.topic)
            if one.error is None and ranges is not None and one.first >= 0:
                widen(ranges, one.partition, one.first, one.last)


def widen(ranges: Ranges, partition: int, first: int, last: int) -> None:
    known = ranges.get(partition, (first, last))
    ranges[partition] = (min(known[0], first), max(known[1], last))


def _first_and_last(partitions: "Numbers") -> list[int]:
    """The rows that are the first or the last of their partition, in order."""
    import numpy as np

    _, first = np.unique(partitions, return_index=True)
    _, from_end = np.unique(partitions[::-1], return_index=True)
    found: list[int] = np.unique(np.concatenate((first, len(partitions) - 1 - from_end))).tolist()
    return found


BATCH_BYTES, CODEC = 1_000_000, "lz4"  # unless the user's settings name others
_TUNED: dict[str, str | int | bool] = {"linger_ms": 50, "batch_size": BATCH_BYTES, "compression_type": CODEC}


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
