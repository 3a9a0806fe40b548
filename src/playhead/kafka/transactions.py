"""A transactional producer. Every step ends in one of three ways: done, failed and aborted, or unknown.

Initialising an id fences every older producer with the same id. A direct edit or a Spark run uses this to keep a zombie task of
Connect from writing at the same time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as RawPartition

from playhead.errors import OutcomeUnknown, TimedOut
from playhead.kafka.client import make_consumer, make_producer
from playhead.kafka.faults import code_of, fault_of, transaction_fault, translated
from playhead.kafka.groups import Committed
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline, TopicPartition

Headers = Sequence[tuple[str, bytes]]
Delivered = Callable[[KafkaError | None, Message], None]


def make_transactional(settings: ClientSettings, transactional_id: str, **own: str | int | bool) -> Producer:
    """A producer that has not contacted a broker yet."""
    return make_producer(settings, **transactional_settings(settings, transactional_id, own))


def transactional_settings(
    settings: ClientSettings, transactional_id: str, own: Mapping[str, str | int | bool]
) -> dict[str, str | int | bool]:
    """librdkafka refuses a delivery.timeout.ms above the timeout of the transaction, after which nothing can be delivered
    anyway: it is lowered."""
    delivery, limit = str(settings.producer.get("delivery.timeout.ms", "")).strip(), int(own["transaction_timeout_ms"])
    if delivery.isdigit() and int(delivery) > limit:
        own = {**own, "delivery_timeout_ms": limit}
    if "linger.ms" not in settings.producer:
        own = {"linger_ms": 5, **own}
    return {"transactional_id": transactional_id, **own}


class TransactionalProducer:
    """Initialised by the constructor: from then on older producers of `transactional_id` are fenced."""

    def __init__(
        self, settings: ClientSettings, transactional_id: str, deadline: Deadline, **own: str | int | bool
    ) -> None:
        self.transactional_id = transactional_id
        self._settings = settings
        self._deadline = deadline
        self._undelivered: list[KafkaError] = []
        timeout_ms = max(1000, min(60_000, int(deadline.remaining() * 1000)))
        self._open({"transaction_timeout_ms": timeout_ms, **own})
        # A producer that is connected to a broker finds its coordinator at once, not half a second later. The first question may
        # be answered over the bootstrap connection, which librdkafka then closes; the second waits for another one.
        for _ in range(2):
            self._find_brokers(min(5.0, deadline.remaining()))
        try:
            self._step("initialising", lambda: self._producer.init_transactions(deadline.remaining()))
        except BaseException:
            del self._producer  # the caller may keep the error; it must not keep the client alive
            raise

    def _open(self, own: Mapping[str, str | int | bool]) -> None:
        self._producer: Any = make_transactional(self._settings, self.transactional_id, **own)

    def _find_brokers(self, seconds: float) -> None:
        with suppress(KafkaException):
            self._producer.list_topics("__transaction_state", timeout=seconds)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commits when the block ends, aborts when it raises."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            self.abort()
            raise

    def begin(self, deadline: Deadline | None = None) -> None:
        """`deadline`: from now on, instead of the producer's first one."""
        self._deadline = deadline or self._deadline
        self._undelivered.clear()  # of an aborted transaction: reports arrive until its end
        self._step("beginning", self._producer.begin_transaction)

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Queues one record; waits while the queue is full. `partition` None: by murmur2 of the key."""
        more = {"timestamp": timestamp_ms, "headers": list(headers) if headers else None}
        self._queue(topic, key, value, -1 if partition is None else partition, self._delivered, **more)
        self._poll(0)

    def _queue(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, delivered: Delivered, **more: Any
    ) -> None:
        produce = partial(self._producer.produce, topic, value, key, partition, on_delivery=delivered, **more)
        try:
            queue_record(produce, self._poll, self._deadline, "producing")
        except KafkaException as error:
            raise transaction_fault(code_of(error), self.transactional_id, "producing") from None

    def _poll(self, seconds: float) -> None:
        with self._fatal_translated("producing"):
            self._producer.poll(seconds)

    @contextmanager
    def _fatal_translated(self, doing: str) -> Iterator[None]:
        """Any call that serves callbacks may raise a fatal error, as a SystemError if it also serves a delivery report."""
        try:
            yield
        except (KafkaException, SystemError) as error:
            cause = error if isinstance(error, KafkaException) else error.__cause__ or self._fatal_cause()
            if not isinstance(cause, KafkaException):
                raise
            raise transaction_fault(code_of(cause), self.transactional_id, doing) from None

    def _fatal_cause(self) -> KafkaException | None:
        """After a fatal error every transactional call fails with this error."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            return error
        return None

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commits offsets of the group `group`, which has no member, together with the transaction."""
        consumer = make_consumer(
            self._settings, group_id=group
        )  # librdkafka names a group only by one of its consumers
        try:
            raw = [RawPartition(tp.topic, tp.partition, what.offset, what.metadata) for tp, what in offsets.items()]
            of_group = consumer.consumer_group_metadata()
            send = self._producer.send_offsets_to_transaction
            self._step("adding offsets to", lambda: send(raw, of_group, self._deadline.remaining()))
        finally:
            consumer.close()

    def flush(self) -> None:
        """Raises if any record was not delivered."""
        with self._fatal_translated("producing"):
            waiting = self._flushed(self._deadline.remaining())
        if self._undelivered:
            raise transaction_fault(self._undelivered[0], self.transactional_id, "producing")
        if waiting:
            raise TimedOut(
                f"{waiting} record(s) were not delivered within {self._deadline.words}: nothing is committed"
            )

    def _flushed(self, seconds: float) -> int:
        waiting: int = self._producer.flush(seconds)
        return waiting

    def commit(self) -> None:
        self.flush()
        # A commit that timed out may be retried: librdkafka treats it as the same commit.
        self._step("committing", lambda: self._producer.commit_transaction(self._deadline.remaining()))

    def abort(self) -> None:
        """Best effort: records of a fenced or unreachable producer cannot become visible."""
        try:
            self._producer.abort_transaction(max(1.0, self._deadline.remaining()))
        except KafkaException as error:
            fault = code_of(error)
            if not (fault.fatal() or fault.retriable() or fault.code() in _HARMLESS_ON_ABORT):
                raise fault_of(fault, "aborting a transaction") from None

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and error.code() != KafkaError._PURGE_QUEUE:
            self._undelivered.append(error)

    def _step(self, doing: str, act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except KafkaException as error:
                fault = code_of(error)
                if fault.retriable() and not self._deadline.passed:
                    continue
                raise transaction_fault(fault, self.transactional_id, f"{doing} a transaction") from None
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._producer  # freed in this thread, not by the garbage collector in a thread of librdkafka (see Admin)


def fence(settings: ClientSettings, transactional_id: str, deadline: Deadline) -> None:
    """Fences all earlier producers of this id and aborts their open transaction."""
    with TransactionalProducer(settings, transactional_id, deadline):
        pass


def queue_record(produce: Callable[[], None], poll: Callable[[float], object], deadline: Deadline, doing: str) -> None:
    """Passes one record to librdkafka. Waits while the queue is full; any other error is raised unchanged."""
    while True:
        try:
            produce()
        except BufferError:
            deadline.check(doing)
            poll(0.05)
        else:
            return


class PlainProducer:
    """An idempotent producer without a transaction. If the block ends without an error, every record is acknowledged."""

    def __init__(self, settings: ClientSettings, deadline: Deadline) -> None:
        self._deadline = deadline
        self._undelivered: list[KafkaError] = []
        timeout_ms = max(1000, int(deadline.remaining() * 1000))
        self._producer: Producer = make_producer(settings, delivery_timeout_ms=timeout_ms, linger_ms=5)

    def produce(self, topic: str, key: bytes | None, value: bytes | None, *, partition: int | None = None) -> None:
        """`partition` None: by murmur2 of the key."""
        at = -1 if partition is None else partition
        produce = partial(self._producer.produce, topic, value, key, at, on_delivery=self._delivered)
        with translated("producing"):
            queue_record(produce, self._producer.poll, self._deadline, "producing")

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._undelivered.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waiting = self._producer.flush(self._deadline.remaining()) if kind is None else 0
        del self._producer
        if kind is not None:
            return  # the error of the block is the one that counts
        if self._undelivered:
            raise fault_of(self._undelivered[0], "producing")
        if waiting:
            raise OutcomeUnknown(f"{waiting} record(s) were not acknowledged within {self._deadline.words}")


_HARMLESS_ON_ABORT = frozenset({KafkaError._STATE, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._FENCED})
