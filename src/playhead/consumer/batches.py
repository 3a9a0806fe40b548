"""The consumer loop: returns batches, commits positions and handles rebalances.

Everything happens in the thread that iterates. A batch is settled before the next poll, and partitions are assigned and revoked
only inside polls. So a rebalance never interrupts a half-finished batch: it is either committed, or delivered again to the next
owner of the partition.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Self

from playhead.consumer.batch import Batch, State
from playhead.consumer.bounds import Bounds, get_topic_id, list_bounds
from playhead.consumer.keeping import KafkaKeeper, Keeper, KeptStep, TakenOver
from playhead.consumer.options import Options
from playhead.consumer.owned import Owned, StartPolicy
from playhead.errors import Invalid, PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.member import Member, Polled, passes
from playhead.kafka.topics import get_topic
from playhead.model import Deadline, TopicPartition

if TYPE_CHECKING:
    from playhead.consumer.table import TableKeeper
    from playhead.sql.transaction import Transaction

POLL_SECONDS = 0.5
BEAT_SECONDS = 10.0  # a third of the table's lease
_log = logging.getLogger("playhead.consumer")


class Batches:
    """An iterator of batches, to be used in a `with` block and by one thread. Created by `playhead.consume`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._open: ExitStack | None = None
        self._table: TableKeeper | None = None
        self._batch: Batch | None = None
        self._broken: BaseException | None = None
        self._stopped = False
        self._was_assigned = False
        self._in_hook = False
        self._next_beat = 0.0

    # Open and close

    def __enter__(self) -> Self:
        if self._open is not None:
            raise Refused("this consumer is open already", "create another one with playhead.consume")
        options = self._options
        with ExitStack() as parts:
            self._admin = parts.enter_context(Admin(options.client, Deadline(options.timeout_seconds)))
            for topic in () if options.patterns else options.topics:
                get_topic(self._admin, topic, Deadline(options.timeout_seconds))
            publisher = self._make_keeper(parts)
            policy = StartPolicy(options.start, options.out_of_range)
            self._owned = Owned(self._keeper, policy, self._bounds, options.session_seconds)
            self._member = Member(options.client, options.member_settings(), self)
            parts.callback(self._member.close)
            if publisher is not None:
                publisher.use(self._member)
            self._member.subscribe(options.topics)
            self._open = parts.pop_all()
        return self

    def _make_keeper(self, parts: ExitStack) -> KafkaKeeper | None:
        """Returns the keeper that commits to Kafka and needs the member for it."""
        options = self._options
        if options.store is None:
            kafka = KafkaKeeper(options.commit or "sync", options.timeout_seconds)
            self._keeper: Keeper = kafka
            return kafka
        from playhead.consumer.table import TableKeeper

        publisher = KafkaKeeper("async", options.timeout_seconds) if options.publish else None
        self._keeper = self._table = TableKeeper(
            options.store, options.group, options.timeout_seconds, options.max_poll_seconds, publisher
        )
        parts.callback(self._table.close)
        self._table.open()
        return publisher

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the group: partitions are revoked, hooks called, finished batches committed. An open batch is not."""
        if self._in_hook:
            raise Refused("a consumer cannot be closed by its own hook", "batches.stop() ends the iteration")
        parts, self._open = self._open, None
        if parts is not None:
            parts.close()

    def stop(self) -> None:
        """Ends the iteration at the next step. For signal handlers, hooks and other threads."""
        self._stopped = True

    # Iteration

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        self._require_open()
        if self._stopped:
            self._settle_quietly()
            raise StopIteration
        self._settle()
        idle_since = time.monotonic()
        while not self._stopped:
            self._maintain()
            polled = self._poll()
            batch = self._take(polled)
            if batch is not None:
                return batch
            if polled.rebalanced:
                idle_since = time.monotonic()
            self._finish_quiet()
            if self._idle_too_long(idle_since):
                break
        raise StopIteration

    def _require_open(self) -> None:
        if self._open is None:
            raise Refused("this consumer is not open", "use it in a with block: with playhead.consume(...) as batches")
        if self._broken is not None:
            raise self._broken

    def _settle(self) -> None:
        """Without a store, the request for the next batch finishes the previous one. With a store, the application must."""
        batch = self._batch
        if batch is not None and batch._state is State.BUSY:
            raise Refused(
                "the transaction of the last batch is still open", "leave its with block before the next batch"
            )
        if batch is None or batch._state is not State.OPEN or self._options.store is None:
            self._settle_quietly()
            return
        self._batch = None
        batch._state = State.ROLLED_BACK
        self._owned.given_back(batch.ranges)
        raise Refused(
            "the last batch was neither committed nor rolled back",
            "use `with batch.transaction() as tx:`, or batch.commit() to skip it; the next iteration delivers it again",
        )

    def _settle_quietly(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None and batch._state is State.OPEN and self._options.store is None:
            self._finish(batch)

    def _poll(self) -> Polled:
        owned = self._owned
        try:
            if owned.rewind:
                current = owned.positions()
                self._member.go_to({place: current[place] for place in owned.rewind}, current)
                owned.rewind.clear()
            polled = self._member.poll(self._options.max_records, POLL_SECONDS)
        except BaseException:
            owned.rewind.update(owned.places)  # what was fetched so far is lost: it must be fetched again
            raise
        if polled.rebalanced:
            owned.rewind.update(owned.places)
        if polled.out_of_range:
            self._doubt(polled.out_of_range)
        return polled

    def _take(self, polled: Polled) -> Batch | None:
        records, ranges, steps = self._owned.take(polled)
        if not records:
            return None
        self._owned.delivered(steps)
        self._batch = Batch(records, ranges, steps, self._transact, self._finish)
        return self._batch

    def _idle_too_long(self, since: float) -> bool:
        limit = self._options.stop_when_idle
        if limit is None:
            return False
        waited = time.monotonic() - since
        return waited > limit if self._was_assigned else waited > limit + self._options.timeout_seconds

    # Heartbeats and checks

    def _maintain(self) -> None:
        self._keeper.tend()
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + BEAT_SECONDS
            kept = self._keeper.beat()
            if kept is not None:
                self._owned.compare(kept)
                self._pause_astray()
            self._check_topic_ids()
        with _ignore_temporary():  # astray partitions are retried in the next iteration
            found = self._owned.find_again()
            self._member.resume(found)
            for place in found:
                _log.info("%s continues at offset %d", place, self._owned.places[place].position)

    def _doubt(self, places: Iterable[TopicPartition]) -> None:
        self._owned.doubt(places)
        self._pause_astray()

    def _pause_astray(self) -> None:
        if self._owned.astray and self._open is not None:
            self._member.pause(self._owned.astray)

    def _check_topic_ids(self) -> None:
        """Kafka's clients follow the topic name: a recreated topic is read from the old offset without an error."""
        known = {place.topic: at.topic_id for place, at in self._owned.places.items()}
        for topic, topic_id in known.items():
            with _ignore_temporary():
                found = get_topic_id(self._admin, topic, self._options.timeout_seconds)
                if found != topic_id:
                    raise Refused(
                        f"the topic {topic} was deleted and recreated while it was read",
                        f"set new positions for group {self._options.group}; the offsets of the old topic are not valid here",
                    )

    def _finish_quiet(self) -> None:
        steps = self._owned.quiet_steps()
        if not steps:
            return
        try:
            self._keeper.finish(steps)
        except PlayheadError as error:
            self._doubt(step.place for step in steps)
            if not isinstance(error, TakenOver):
                raise
        else:
            self._owned.delivered(steps)
            self._committed(steps)

    # Batches

    @contextmanager
    def _transact(self, batch: Batch) -> "Iterator[Transaction]":
        if self._table is None:
            raise Refused(
                "the offsets of this consumer are kept in Kafka: there is no database to open a transaction in",
                'store="postgresql://..." or "sqlite:///..." keeps them with your rows',
            )
        batch._begin()
        try:
            with self._table.transaction(batch._steps) as tx:
                yield tx
        except BaseException as error:
            self._undo(batch, error)
            raise
        batch._state = State.COMMITTED
        self._committed(batch._steps)

    def _finish(self, batch: Batch) -> None:
        batch._begin()
        if self._table is None:  # it is finished, even if the commit fails
            batch._state = State.COMMITTED
            self._committed(batch._steps)
            self._keeper.finish(batch._steps)
            return
        try:
            self._keeper.finish(batch._steps)
        except BaseException as error:
            self._undo(batch, error)
            raise
        batch._state = State.COMMITTED
        self._committed(batch._steps)

    def _committed(self, steps: Sequence[KeptStep]) -> None:
        self._owned.committed(steps)
        if self._table is not None:
            self._table.publish(steps)

    def _undo(self, batch: Batch, error: BaseException) -> None:
        batch._state = State.ROLLED_BACK
        self._owned.given_back(batch.ranges)
        if isinstance(error, PlayheadError):  # the store refused, or did not answer: only the store knows the position
            self._doubt(step.place for step in batch._steps)

    # Assignment: called by the member, inside its poll and close

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        try:
            self._owned.add(partitions)
            self._was_assigned = True
            self._call(self._options.hooks.on_assigned, partitions)
        except BaseException as error:
            self._broken = error  # without a position the consumer cannot continue
            raise
        return {place: self._owned.places[place].position for place in partitions}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._abandon(partitions)
        try:
            self._keeper.revoked(partitions)
        finally:
            self._call(self._options.hooks.on_revoked, partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._abandon(partitions)
        try:
            self._keeper.lost(partitions)
        finally:
            self._call(self._options.hooks.on_lost or self._options.hooks.on_revoked, partitions)

    def _abandon(self, partitions: Sequence[TopicPartition]) -> None:
        """A batch is settled before every poll. If one is open now, the application is closing without finishing it."""
        if self._batch is not None and self._batch._state is State.OPEN:
            self._batch._state = State.ABANDONED
        self._owned.drop(partitions)

    def _call(
        self, hook: Callable[["Batches", list[TopicPartition]], object] | None, partitions: Sequence[TopicPartition]
    ) -> None:
        if hook is not None and partitions:
            self._in_hook = True
            try:
                hook(self, list(partitions))
            finally:
                self._in_hook = False

    # Positions

    @property
    def assignment(self) -> dict[TopicPartition, int]:
        """The partitions of this consumer now, each with the next offset it will deliver."""
        return self._owned.positions() if self._open is not None else {}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next batch starts there. The stored offset changes with the next commit; a restart before that ignores the seek."""
        place = TopicPartition(topic, partition)
        self._require(place)
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise Invalid(f"{offset!r} is not an offset")
        self._owned.move({place: self._owned.policy.within(place, offset, self._bounds([place])[place])})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """To the first record of these partitions, or of all that are assigned."""
        places = self._chosen(partitions)
        self._owned.move({place: bounds.first for place, bounds in self._bounds(places).items()})

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """After the last record of these partitions, or of all that are assigned; before open transactions."""
        places = self._chosen(partitions)
        self._owned.move({place: bounds.end for place, bounds in self._bounds(places).items()})

    def seek_to_time(self, moment: datetime, *partitions: TopicPartition) -> None:
        """To the first record with this time or a later one; to the end where there is none."""
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise Invalid(
                f"{moment!r} is not a time with its zone", "write it like datetime(2026, 1, 31, 12, tzinfo=UTC)"
            )
        places = self._chosen(partitions)
        bounds = self._bounds(places)
        at = self._member.offsets_at(places, int(moment.timestamp() * 1000), self._options.timeout_seconds)
        self._owned.move({p: bounds[p].end if (found := at[p]) is None else found for p in places})

    def _chosen(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        places = [TopicPartition(*place) for place in partitions] or list(self.assignment)
        if not places:
            raise Refused(
                "no partition is assigned to this consumer yet", "seek in on_assigned, or after the first batch"
            )
        for place in places:
            self._require(place)
        return places

    def _require(self, place: TopicPartition) -> None:
        if place not in self.assignment:
            raise Refused(f"{place} is not assigned to this consumer", "only partitions of `assignment` are allowed")

    def _bounds(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        options = self._options
        return list_bounds(self._admin, places, options.timeout_seconds, committed_only=options.committed_only)


@contextmanager
def _ignore_temporary() -> Iterator[None]:
    """Ignores temporary errors, e.g. while brokers restart. They are retried in a later iteration."""
    try:
        yield
    except PlayheadError as error:
        if not passes(error):
            raise
