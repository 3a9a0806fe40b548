"""One member of a consumer group: poll, positions, commits, and callbacks when partitions are assigned or revoked.

The callbacks of a rebalance run inside `poll` and `close`, in the calling thread. An exception in a callback is raised by that
same call, after librdkafka got the answer it waits for: a failed callback would otherwise leave the group in the middle of a
rebalance. Records that were fetched before a rebalance and returned by the same poll are dropped; the caller reads them again
from its position. A commit is not a fence: a member may commit partitions that it has lost, so do not rely on a refused commit.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from playhead.errors import Busy, PlayheadError, TimedOut, Unreachable
from playhead.kafka.client import SILENT, client_config, revealed  # same package: every client is configured there
from playhead.kafka.faults import code_of, fault_of, translated
from playhead.kafka.properties import ClientSettings
from playhead.model import TopicPartition

SEEK_SECONDS = 2.0
_KEPT_ERRORS = 20
# The group has rebalanced: poll reports the new partitions, and the commit was not needed or not ours.
_MOVED_ON = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
    }
)
_UNSEEKABLE = frozenset({KafkaError._STATE, KafkaError._UNKNOWN_PARTITION, KafkaError._PREV_IN_PROGRESS})


class Record(NamedTuple):
    """One record as Kafka stores it. Key and value are bytes or None."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp(self) -> datetime | None:
        return None if self.timestamp_ms is None else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)


class Listener(Protocol):
    """Called in the polling thread when partitions are assigned, revoked or lost."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the offset at which to begin with each of them."""
        ...

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They are revoked after this returns: the last chance to commit."""
        ...

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are lost already, and another member may own them."""
        ...


@dataclass(slots=True)
class Polled:
    """`ends`: partitions read to their end, with the next offset. `out_of_range`: the broker does not have the requested offset.

    `rebalanced`: partitions were assigned or revoked meanwhile. Then there are no records, and positions must be set again.
    """

    records: list[Record] = field(default_factory=list)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    out_of_range: list[TopicPartition] = field(default_factory=list)
    rebalanced: bool = False


class _Message(Protocol):
    def error(self) -> KafkaError | None: ...
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class Member:
    """`own`: librdkafka settings that override those of the context. They name the group and how it assigns partitions."""

    def __init__(self, settings: ClientSettings, own: Mapping[str, str | int | bool], listener: Listener) -> None:
        self._errors: list[KafkaError] = []
        self._commit_errors: list[KafkaError] = []
        self._commits_sent = self._commits_answered = 0
        self._failures: list[BaseException] = []
        self._listener = listener
        self._rebalances = 0
        self._fetched: set[TopicPartition] = set()
        self._stopped: set[TopicPartition] = set()
        self._incremental = own.get("group.protocol") == "consumer" or "cooperative" in str(
            own.get("partition.assignment.strategy", "")
        )
        config = client_config(settings, {**revealed(settings.consumer), **own}, self._errors)
        with translated("creating a Kafka consumer"):
            self._consumer: Consumer | None = Consumer({**config, "on_commit": self._committed}, logger=SILENT)

    @property
    def consumer(self) -> Consumer:
        if self._consumer is None:
            raise RuntimeError("this member is closed")
        return self._consumer

    @property
    def id(self) -> str:
        """The member id in the group; empty before it has joined."""
        return self.consumer.memberid() or ""

    def subscribe(self, topics: Sequence[str]) -> None:
        with translated(f"subscribing to {', '.join(topics)}"):
            self.consumer.subscribe(
                list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def poll(self, most: int, seconds: float) -> Polled:
        """Returns up to `most` records that are available; waits only for the first one."""
        del self._errors[:-_KEPT_ERRORS]
        before = self._rebalances
        with translated("polling"):
            first = self.consumer.poll(seconds)
            found = [] if first is None else [first]
            if first is not None and most > 1:
                found += self.consumer.consume(most - 1, 0)
        self._raise_failure()
        if self._rebalances != before:
            return Polled(rebalanced=True)
        polled = Polled()
        for message in cast(list[_Message], found):
            error = message.error()
            if error is None:
                polled.records.append(_record(message))
                if polled.ends:  # an end before a record is not the end
                    polled.ends.pop(TopicPartition(message.topic(), message.partition()), None)
            else:
                self._note_event(polled, error, message)
        return polled

    def _note_event(self, polled: Polled, error: KafkaError, message: _Message) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            polled.ends[TopicPartition(message.topic(), message.partition())] = message.offset()
        elif code == KafkaError._AUTO_OFFSET_RESET:
            place = TopicPartition(message.topic(), message.partition())
            self._stopped.add(place)
            polled.out_of_range.append(place)
        elif code != KafkaError._MAX_POLL_EXCEEDED:  # the loss of all partitions follows
            fault = fault_of(error, "polling")
            if error.fatal() or not passes(fault):
                raise fault

    # Positions

    def go_to(self, wanted: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]) -> None:
        """Continues from the wanted offsets and drops records fetched ahead. Partitions that are not ours are ignored.

        `current`: the positions of all other partitions. In an eager group, a partition whose fetching ended with an error can
        only be restarted together with all others.
        """
        ours = {place: offset for place, offset in wanted.items() if place in self._fetched}
        stopped = [p for p, offset in ours.items() if p in self._stopped or not self._seek(p, offset)]
        if stopped:
            self._stopped.difference_update(stopped)
            self._assign_again(stopped, {**current, **ours})

    def _seek(self, place: TopicPartition, offset: int) -> bool:
        """False: no longer fetched. Retries for a moment, because a partition that was just assigned may not be seekable yet."""
        until = time.monotonic() + SEEK_SECONDS
        while True:
            try:
                self.consumer.seek(RawPartition(place.topic, place.partition, offset))
            except KafkaException as error:
                fault = code_of(error)
                if fault.code() not in _UNSEEKABLE:
                    raise fault_of(fault, f"going to offset {offset} of {place}") from None
                if time.monotonic() > until:
                    return False
                time.sleep(0.01)
            else:
                return True

    def _assign_again(self, stopped: Sequence[TopicPartition], positions: Mapping[TopicPartition, int]) -> None:
        with translated("assigning partitions again"):
            if self._incremental:
                raw = [_raw(place, positions[place]) for place in stopped]
                self.consumer.incremental_unassign(raw)
                self.consumer.incremental_assign(raw)
            else:
                self.consumer.assign([_raw(place, positions[place]) for place in self._fetched])

    def pause(self, places: Collection[TopicPartition]) -> None:
        raw = [_raw(place) for place in places if place in self._fetched]
        with translated("pausing partitions"):
            self.consumer.pause(raw)

    def resume(self, places: Collection[TopicPartition]) -> None:
        raw = [_raw(place) for place in places if place in self._fetched]
        with translated("resuming partitions"):
            self.consumer.resume(raw)

    def offsets_at(
        self, places: Collection[TopicPartition], moment_ms: int, seconds: float
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; None where there is no such record yet."""
        doing = "reading the offsets of a time"
        with translated(doing):
            found = self.consumer.offsets_for_times([_raw(place, moment_ms) for place in places], seconds)
        for raw in found:
            if raw.error:
                raise fault_of(raw.error, f"{doing} ({raw.topic}-{raw.partition})")
        return {TopicPartition(raw.topic, raw.partition): raw.offset if raw.offset >= 0 else None for raw in found}

    # Commits

    def committed(self, places: Collection[TopicPartition], seconds: float) -> dict[TopicPartition, int]:
        """Next offsets as the group committed them. A partition without a commit is left out."""
        doing = "reading the committed offsets"
        with translated(doing):
            found = self.consumer.committed([_raw(place) for place in places], seconds)
        for raw in found:
            if raw.error:
                raise fault_of(raw.error, f"{doing} of {raw.topic}-{raw.partition}")
        return {TopicPartition(raw.topic, raw.partition): raw.offset for raw in found if raw.offset >= 0}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commits and waits. False: the group has rebalanced, so the offsets are not ours to commit."""
        try:
            answered = self.consumer.commit(offsets=[_raw(*item) for item in offsets.items()], asynchronous=False)
        except KafkaException as error:
            return _accepted([code_of(error)])
        return _accepted([raw.error for raw in answered if raw.error])

    def commit_polling(self, offsets: Mapping[TopicPartition, int], metadata: str, poll: Callable[[], object]) -> bool:
        """Like `commit`, but polls while it waits, and stops when `poll` raises. librdkafka's own commit waits as long as there
        is no coordinator and cannot be interrupted. Only for a member that fetches nothing."""
        self._commit_errors.clear()
        self.commit_soon(offsets, metadata)
        ticket = self._commits_sent  # earlier commits, also abandoned ones, are answered first
        while self._commits_answered < ticket:
            poll()
        faults, self._commit_errors = self._commit_errors, []
        return _accepted(faults)

    def commit_soon(self, offsets: Mapping[TopicPartition, int], metadata: str | None = None) -> None:
        """Sends a commit and does not wait. After a later poll, `commit_fault` returns its result."""
        more = () if metadata is None else (metadata,)
        raw = [RawPartition(*place, offset, *more) for place, offset in offsets.items()]
        with translated("committing offsets"):
            self.consumer.commit(offsets=raw, asynchronous=True)
        self._commits_sent += 1

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Stores offsets that librdkafka's timer commits."""
        with translated("storing offsets to commit"):
            self.consumer.store_offsets(offsets=[_raw(*item) for item in offsets.items() if item[0] in self._fetched])

    def commit_fault(self) -> PlayheadError | None:
        """The fault of an earlier commit, if a retry would fail too."""
        faults, self._commit_errors = self._commit_errors, []
        found = [fault_of(fault, "committing offsets") for fault in faults if fault.code() not in _MOVED_ON]
        return next((fault for fault in found if not passes(fault)), None)

    def _committed(self, error: KafkaError | None, partitions: Sequence[RawPartition]) -> None:
        self._commits_answered += 1
        self._commit_errors += [error] if error else [raw.error for raw in partitions if raw.error]

    # Assigned and revoked partitions

    def _on_assign(self, _consumer: object, raw: Sequence[RawPartition]) -> None:
        self._rebalances += 1
        begins: Mapping[TopicPartition, int] = {}
        try:
            begins = self._listener.assigned(_places(raw))
        except BaseException as error:  # noqa: BLE001 - kept, and raised by the calling poll
            self._failures.append(error)
        wanted = [_raw(place, offset) for place, offset in begins.items()]
        self._fetched |= begins.keys()
        if self._incremental:
            self.consumer.incremental_assign(wanted)
        else:
            self.consumer.assign(wanted)

    def _on_revoke(self, _consumer: object, raw: Sequence[RawPartition]) -> None:
        self._gone(raw, self._listener.revoked)

    def _on_lost(self, _consumer: object, raw: Sequence[RawPartition]) -> None:
        self._gone(raw, self._listener.lost)

    def _gone(self, raw: Sequence[RawPartition], notify: Callable[[Sequence[TopicPartition]], None]) -> None:
        self._rebalances += 1
        try:
            notify(_places(raw))
        except BaseException as error:  # noqa: BLE001 - kept, and raised by the calling poll or close
            self._failures.append(error)
        gone = [part for part in raw if TopicPartition(part.topic, part.partition) in self._fetched]
        self._fetched.difference_update(_places(raw))
        self._stopped.difference_update(_places(raw))
        if self._incremental:
            self.consumer.incremental_unassign(gone)
        else:
            self.consumer.unassign()

    def _raise_failure(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Leaves the group after a last revoke callback. Frees the client in this thread, not by the collector (see Admin)."""
        if self._consumer is None:
            return
        try:
            with translated("leaving the group"):
                self._consumer.close()
        finally:
            self._consumer = None
        self._raise_failure()


def _accepted(faults: Sequence[KafkaError]) -> bool:
    for fault in faults:
        if fault.code() not in _MOVED_ON:
            raise fault_of(fault, "committing offsets")
    return not faults


def _raw(place: TopicPartition, offset: int | None = None) -> RawPartition:
    return RawPartition(place.topic, place.partition) if offset is None else RawPartition(*place, offset)


def _places(raw: Sequence[RawPartition]) -> list[TopicPartition]:
    return [TopicPartition(part.topic, part.partition) for part in raw]


def _record(message: _Message) -> Record:
    kind, moment = message.timestamp()
    headers = message.headers()
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else moment,
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
    )


def passes(fault: PlayheadError) -> bool:
    """Whether the fault is temporary and librdkafka continues by itself: brokers restart, coordinators move."""
    return isinstance(fault, Busy | TimedOut) or type(fault) is Unreachable
