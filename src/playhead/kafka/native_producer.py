"""A transactional producer over librdkafka's C interface, for columns of records.

Delivery reports arrive as events, one per batch of a partition: the first and the last record of a batch have its offsets.
"""

import ctypes
import threading
import time
from collections.abc import Iterable, Mapping
from ctypes import POINTER
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from playhead.kafka.c_library import asked_for, client_error, in_ms, library, opened_client
from playhead.kafka.c_records import (
    COPY,
    PARTITION,
    ArgumentTable,
    Message,
    MessageTable,
    RecordHeaders,
    argument_table,
    message_table,
)
from playhead.model import TopicPartition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_DELIVERIES, _ERRORS = 0x1, 0x8
_FLUSH_MS = 10
_ASK_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch of one partition. The offsets are negative if the broker did not say them: a batch that was sent twice."""

    topic: str
    partition: int
    first: int
    last: int
    count: int
    error: KafkaError | None


class NativeProducer:
    """The part of `confluent_kafka.Producer` that a transaction needs, for columns. Raises KafkaException. `delivered`: what has
    been reported since it was last emptied. For one thread at a time."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._lib = library()
        self._topics: dict[str, int] = {}
        self.delivered: list[Delivered] = []
        self._client = opened_client(is_producer=True, config=config, events=_DELIVERIES | _ERRORS)
        self._queue = self._lib.queue_get_main(self._client)

    def close(self) -> None:
        """What is not delivered yet is dropped."""
        client, self._client = self._client, 0
        if client:
            self._lib.queue_destroy(self._queue)
            for topic in self._topics.values():
                self._lib.topic_destroy(topic)
            self._lib.destroy(client)

    def __del__(self) -> None:
        if getattr(self, "_client", 0):
            self.close()

    # Transactions

    def find_brokers(self, seconds: float) -> None:
        """Connects. What it is answered does not matter here."""
        asked_for(self._client, None, seconds)

    def init_transactions(self, seconds: float) -> None:
        self._check(self._lib.init_transactions(self._client, in_ms(seconds)))

    def begin_transaction(self) -> None:
        self._check(self._lib.begin_transaction(self._client))

    def commit_transaction(self, seconds: float) -> None:
        self._check(self._lib.commit_transaction(self._client, in_ms(seconds)))

    def abort_transaction(self, seconds: float) -> None:
        """librdkafka purges what is queued and waits until its reports are taken, which is done meanwhile."""
        done = threading.Event()

        def take_reports() -> None:
            while not done.is_set():
                self.poll(0.02)

        taker = threading.Thread(target=take_reports, daemon=True)
        taker.start()
        try:
            error = self._lib.abort_transaction(self._client, in_ms(seconds))
        finally:
            done.set()
            taker.join()
        self._check(error)

    def send_offsets(self, group: str, offsets: Iterable[tuple[TopicPartition, int, str]], seconds: float) -> None:
        """Adds offsets of a group without members to the transaction, each with its metadata."""
        lib, given = self._lib, list(offsets)
        listed = lib.topic_partition_list_new(len(given))
        about = lib.consumer_group_metadata_new(group.encode())
        # Metadata is sent up to its final NUL, which must be part of it.
        texts = [ctypes.create_string_buffer(metadata.encode()) for _, _, metadata in given]
        try:
            for place, _, _ in given:
                lib.topic_partition_list_add(listed, place.topic.encode(), place.partition)
            entries = listed.contents.entries  # an entry may be moved by an `add` after its own
            for at, text in enumerate(texts):
                entries[at].offset = given[at][1]
                entries[at].metadata, entries[at].metadata_size = ctypes.addressof(text), len(text)
            error = lib.send_offsets_to_transaction(self._client, listed, about, in_ms(seconds))
        finally:
            for at in range(listed.contents.count):  # the list would free memory that is not its own
                listed.contents.entries[at].metadata, listed.contents.entries[at].metadata_size = None, 0
            lib.topic_partition_list_destroy(listed)
            lib.consumer_group_metadata_destroy(about)
        self._check(error)

    # Records

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: RecordHeaders | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Queues one record. Raises BufferError if the queue is full."""
        import pyarrow as pa

        values, keys = pa.array([value], pa.binary()), pa.array([key], pa.binary())
        its = [headers] if headers else None
        if not self.queue_each(argument_table(topic, values, keys, partition, its, timestamp_ms)):
            raise BufferError("the queue is full")

    def columns(
        self, topic: str, values: "pa.Array", keys: "pa.Array | None", partitions: "npt.NDArray[np.int64] | int"
    ) -> MessageTable:
        """Binary columns of one length, ready to be queued by `queue`. The topic has been opened before."""
        return message_table(self._topics[topic], values, keys, partitions)

    def queue(self, table: MessageTable) -> bool:
        """Queues as many records as there is room for; True when all are queued. Call `poll` in between."""
        messages = table.messages[table.queued :]
        if not len(messages):
            return True
        partition = int(messages["partition"][0]) if table.is_one_partition else 0
        flags = COPY if table.is_one_partition else COPY | PARTITION
        good: int = self._lib.produce_batch(table.topic, partition, flags, messages.ctypes.data, len(messages))
        table.queued += good
        if good < len(messages):
            codes = set(messages["err"].tolist()) - {0, KafkaError._QUEUE_FULL}
            if codes:
                raise KafkaException(self._error_of(codes.pop()))
        return table.queued == len(table.messages)

    def queue_each(self, table: ArgumentTable) -> bool:
        """As `queue`, with a call for each record."""
        produce, client, address, stride = self._lib.produceva, self._client, table.address, table.stride
        for at in range(table.queued, len(table.counts)):
            error = produce(client, address + at * stride, table.counts[at])
            if error is not None:
                table.queued = at
                return self._has_no_room(error)
        table.queued = len(table.counts)
        return True

    def poll(self, seconds: float) -> None:
        """Takes the reports that are there, or waits for the first one."""
        wait = in_ms(seconds)
        while event := self._lib.queue_poll(self._queue, wait):
            try:
                if self._lib.event_type(event) == _DELIVERIES:
                    self._take(event)
            finally:
                self._lib.event_destroy(event)
            wait = 0

    def flush(self, seconds: float) -> int:
        """Returns how many records are not delivered within this time."""
        end = time.monotonic() + seconds
        self.poll(0)
        while (waiting := self._lib.outq_len(self._client)) and time.monotonic() < end:
            self._lib.flush(self._client, _FLUSH_MS)  # sends what lingers, and leaves the reports to `poll`
            self.poll(0)
        return int(waiting)

    def _take(self, event: int) -> None:
        lib = self._lib
        count = lib.event_message_count(event)
        if not count:
            return
        messages = (POINTER(Message) * count)()
        lib.event_message_array(event, messages, count)
        first, last = messages[0].contents, messages[count - 1].contents
        code = lib.event_error(event) or first.err or last.err
        self.delivered.append(
            Delivered(
                lib.topic_name(first.topic).decode(),
                first.partition,
                first.offset,
                last.offset,
                count,
                self._error_of(code) if code else None,
            )
        )

    def open_topic(self, name: str, seconds: float) -> None:
        """Waits until the client knows the partitions of the topic: columns for a topic that it does not know yet are never sent.
        A new topic is unknown to a broker for a moment."""
        if name in self._topics:
            return
        topic: int = self._lib.topic_new(self._client, name.encode(), None)
        self._topics[name] = topic
        end = time.monotonic() + seconds
        while code := asked_for(self._client, topic, max(0.1, end - time.monotonic())):
            if time.monotonic() >= end:
                raise KafkaException(self._error_of(code))
            time.sleep(_ASK_AGAIN_SECONDS)

    # Errors

    def _has_no_room(self, error: int) -> bool:
        """False if the queue is full; any other error of a record is raised."""
        if self._lib.error_code(error) == KafkaError._QUEUE_FULL:
            self._lib.error_destroy(error)
            return False
        self._check(error, is_record=True)
        return True

    def _check(self, error: int | None, *, is_record: bool = False) -> None:
        if error is None:
            return
        lib = self._lib
        try:
            code = lib.error_code(error)
            text = (lib.error_string(error) or b"").decode(errors="replace")
            is_fatal = bool(lib.error_is_fatal(error))
            is_retriable, needs_abort = bool(lib.error_is_retriable(error)), bool(lib.error_txn_requires_abort(error))
        finally:
            lib.error_destroy(error)
        if is_record and code == KafkaError._FATAL:
            raise KafkaException(self._error_of(code))
        raise KafkaException(KafkaError(code, text, is_fatal, is_retriable, needs_abort))

    def _error_of(self, code: int) -> KafkaError:
        return client_error(self._client, code)
