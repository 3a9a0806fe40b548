"""The partitions of this consumer, and its position in each.

Every place has the stored offset at which it was claimed and the next offset to deliver. Records are taken only in order from
that position, so leftovers of a rebalance or a rewind in the client's queues are skipped. A place that the store no longer
confirms is astray: its records are not delivered until the store has been read again.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from playhead.consumer.bounds import Bounds
from playhead.consumer.keeping import Beginning, Keeper, KeptOffset, KeptStep
from playhead.errors import Refused
from playhead.kafka.member import Polled, Record
from playhead.model import OffsetRange, TopicPartition

RETRY_SECONDS = 0.3  # a poll comes in between, so that Kafka can revoke the partition first

Ask = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Bounds]]


@dataclass(slots=True)
class ReadPosition:
    """`kept`: the stored offset. `position`: the next offset to deliver. `seen`: up to here nothing is left to deliver.

    `settled`: the last action here was a commit, not a seek. Only then a reported end of the log counts. A seek should discard
    every older event of the client, but a stale event would lose records.
    """

    topic_id: str
    epoch: int
    kept: int
    position: int
    seen: int = 0
    settled: bool = False


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """Where to start without a stored offset, and what to do with one that Kafka no longer (or not yet) has."""

    start: str
    out_of_range: str

    def beginning(self, bounds: Bounds) -> Beginning:
        offset = {"earliest": bounds.first, "latest": bounds.end}.get(self.start)
        return Beginning(bounds.topic_id, offset)

    def within(self, place: TopicPartition, offset: int, bounds: Bounds) -> int:
        if bounds.hold(offset):
            return offset
        if self.out_of_range == "error":
            below = offset < bounds.first
            where = f"before the log start {bounds.first}" if below else f"after the end {bounds.high}"
            why = "records were deleted before they were read" if below else "the topic lost records, or was recreated"
            raise Refused(
                f"offset {offset} of {place} is {where}: {why}",
                'set a position by hand, or choose out_of_range="earliest" or "latest"',
            )
        return bounds.first if self.out_of_range == "earliest" else bounds.end


class Owned:
    def __init__(self, keeper: Keeper, policy: StartPolicy, ask: Ask, patience_seconds: float) -> None:
        self.places: dict[TopicPartition, ReadPosition] = {}
        self.rewind: set[TopicPartition] = set()
        self._astray: dict[TopicPartition, float] = {}
        self._keeper = keeper
        self.policy = policy
        self._ask = ask
        self._patience_seconds = patience_seconds
        self._retry_at = 0.0

    # Assignment

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Claims the assigned partitions, whether or not another consumer held them."""
        self.drop(partitions)
        self._place(partitions, polite=False)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            self.places.pop(place, None)
            self._astray.pop(place, None)
            self.rewind.discard(place)

    # Places the store no longer confirms

    @property
    def astray(self) -> Collection[TopicPartition]:
        return self._astray.keys()

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            if place in self.places and place not in self._astray:
                self._astray[place] = time.monotonic()
                self._retry_at = time.monotonic() + RETRY_SECONDS

    def compare(self, kept: Mapping[TopicPartition, KeptOffset]) -> None:
        """`kept` is what is stored now. Places that differ are astray."""
        self.doubt(place for place, at in self.places.items() if kept.get(place) != KeptOffset(at.kept, at.epoch))

    def find_again(self) -> list[TopicPartition]:
        """Reads the store for the astray partitions. Returns those that can continue.

        A partition that another live consumer holds is left to it: Kafka will soon revoke it here. If Kafka has not done so
        after a whole session, the other consumer is wrong, and we claim the partition.
        """
        if not self._astray or time.monotonic() < self._retry_at:
            return []
        self._retry_at = time.monotonic() + RETRY_SECONDS
        since = time.monotonic() - self._patience_seconds
        overdue = [place for place, at in self._astray.items() if at < since]
        waiting = [place for place in self._astray if place not in overdue]
        return self._place(overdue, polite=False) + self._place(waiting, polite=True)

    def _place(self, partitions: Collection[TopicPartition], *, polite: bool) -> list[TopicPartition]:
        if not partitions:
            return []
        bounds = self._ask(partitions)
        wanted = {place: self.policy.beginning(bounds[place]) for place in partitions}
        kept = self._keeper.claim(wanted, polite=polite)
        for place, (offset, epoch) in kept.items():
            known = self.places.get(place)
            unmoved = known is not None and (known.kept, known.epoch) == (offset, epoch)
            position = known.position if known is not None and unmoved else offset
            within = self.policy.within(place, position, bounds[place])
            self.places[place] = ReadPosition(bounds[place].topic_id, epoch, offset, within)
            self._astray.pop(place, None)
            self.rewind.add(place)
        return list(kept)

    # Reading

    def positions(self) -> dict[TopicPartition, int]:
        return {place: at.position for place, at in self.places.items()}

    def move(self, offsets: Mapping[TopicPartition, int]) -> None:
        for place, offset in offsets.items():
            self.places[place].position = offset
            self.places[place].seen = 0
            self.places[place].settled = False
            self.rewind.add(place)

    def take(self, polled: Polled) -> tuple[list[Record], list[OffsetRange], list[KeptStep]]:
        """The records that continue at our positions, their ranges, and the steps that finish them. No position moves yet."""
        ends: dict[TopicPartition, int] = {}
        records: list[Record] = []
        for record in polled.records:
            place = TopicPartition(record.topic, record.partition)
            at = self.places.get(place)
            if at is None or place in self._astray or record.offset < ends.get(place, at.position):
                continue
            ends[place] = record.offset + 1
            records.append(record)
        for place, end in polled.ends.items():
            if place in ends:
                ends[place] = max(ends[place], end)
            elif place in self.places and place not in self._astray:
                self.places[place].seen = end
        steps = [KeptStep(place, self.places[place].epoch, self.places[place].kept, end) for place, end in ends.items()]
        ranges = [
            OffsetRange(place.topic, self.places[place].topic_id, place.partition, self.places[place].position, end)
            for place, end in ends.items()
        ]
        return records, ranges, steps

    def delivered(self, steps: Sequence[KeptStep]) -> None:
        for step in steps:
            self.places[step.place].position = step.after

    def committed(self, steps: Sequence[KeptStep]) -> None:
        for step in steps:
            if at := self.places.get(step.place):
                at.kept = step.after
                at.settled = True

    def given_back(self, ranges: Iterable[OffsetRange]) -> None:
        """Delivered but not committed: will be delivered again."""
        starts = {TopicPartition(item.topic, item.partition): item.start for item in ranges}
        self.move({place: start for place, start in starts.items() if place in self.places})

    def quiet_steps(self) -> list[KeptStep]:
        """Steps over transaction markers after the last record, if we are at the end: nothing to process there."""
        return [
            KeptStep(place, at.epoch, at.kept, at.seen)
            for place, at in self.places.items()
            if at.settled and at.seen > at.position == at.kept and place not in self._astray
        ]
