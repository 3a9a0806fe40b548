"""Stores for the offsets of a consumer, with one protocol: in Kafka (here) or in a table (`table.py`).

A keeper holds the next offset of each partition and moves it when a batch is finished. The keeper in Kafka guarantees at least
once. A commit there is not fenced: a member that lost its partitions may still commit. Only the table refuses that.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from playhead.errors import Fenced, NotFound, PlayheadError, Refused
from playhead.kafka.member import Member
from playhead.model import TopicPartition


class TakenOver(Fenced):
    """Another process moved or claimed the position; the batch was not committed. Continue: the consumer reads it again."""

    def __init__(self, place: TopicPartition, how: str) -> None:
        Refused.__init__(
            self,
            f"the position of {place} can no longer be moved by this consumer: {how}",
            "nothing of this batch was committed; the next iteration reads the stored position again",
        )
        self.place = place


class Beginning(NamedTuple):
    """For a partition without a stored offset: where to start; None: it must have one."""

    topic_id: str
    offset: int | None


class KeptOffset(NamedTuple):
    offset: int
    epoch: int


class KeptStep(NamedTuple):
    """One partition's part of a batch: its stored offset goes from `before` to `after`."""

    place: TopicPartition
    epoch: int
    before: int
    after: int


class Keeper(Protocol):
    def claim(
        self, wanted: Mapping[TopicPartition, Beginning], *, polite: bool = False
    ) -> dict[TopicPartition, KeptOffset]:
        """Claims these partitions and returns their offsets. `polite`: skips those that another live consumer holds."""
        ...

    def finish(self, steps: Sequence[KeptStep]) -> None:
        """Moves the stored offsets."""
        ...

    def tend(self) -> None:
        """Called in every iteration: sends pending commits, and raises errors of the background."""
        ...

    def beat(self) -> dict[TopicPartition, KeptOffset] | None:
        """Writes a heartbeat. Returns what is still ours, or None if no other consumer can take it."""
        ...

    def revoked(self, places: Collection[TopicPartition]) -> None:
        """The last chance to commit what is finished."""
        ...

    def lost(self, places: Collection[TopicPartition]) -> None:
        """Nothing may be committed any more."""
        ...


class KafkaKeeper:
    """The group's committed offsets.

    `sync`: each batch is committed when it is finished, and waited for. `async`: sent and not waited for. `auto`: handed to
    librdkafka, which commits every `auto.commit.interval.ms`. Finished offsets without a confirmed commit are committed again,
    and waited for, before partitions are revoked.
    """

    def __init__(self, mode: str, seconds: float) -> None:
        self._mode = mode
        self._seconds = seconds
        self._member: Member | None = None
        self._unsure: dict[TopicPartition, int] = {}
        self._unsent: dict[TopicPartition, int] = {}

    def use(self, member: Member) -> None:
        self._member = member

    @property
    def member(self) -> Member:
        if self._member is None:
            raise RuntimeError("this keeper has no member")
        return self._member

    def claim(
        self, wanted: Mapping[TopicPartition, Beginning], *, polite: bool = False
    ) -> dict[TopicPartition, KeptOffset]:
        del polite  # a claim in Kafka excludes no other consumer
        committed = self.member.committed(wanted, self._seconds)
        kept = {}
        for place, beginning in wanted.items():
            offset = self._unsure.get(place, committed.get(place, beginning.offset))
            if offset is None:
                raise no_offset(place)
            kept[place] = KeptOffset(offset, 0)
        return kept

    def finish(self, steps: Sequence[KeptStep]) -> None:
        offsets = {step.place: step.after for step in steps}
        self._unsure |= offsets
        if self._mode == "auto":
            self.member.store(offsets)
        elif self._mode == "async":
            self._unsent |= offsets
        elif self.member.commit(self._unsure):
            self._unsure.clear()

    def tend(self) -> None:
        if fault := self.member.commit_fault():
            raise fault
        if self._unsent:
            self.member.commit_soon(self._unsent)
            self._unsent.clear()

    def beat(self) -> None:
        return None

    def revoked(self, places: Collection[TopicPartition]) -> None:
        offsets = {place: self._unsure[place] for place in places if place in self._unsure}
        self.lost(places)
        if offsets:
            self.member.commit(offsets)

    def lost(self, places: Collection[TopicPartition]) -> None:
        for place in places:
            self._unsure.pop(place, None)
            self._unsent.pop(place, None)


def no_offset(place: TopicPartition) -> PlayheadError:
    return NotFound("stored offset of", str(place), hint='start="earliest" or "latest" sets where to start without one')
