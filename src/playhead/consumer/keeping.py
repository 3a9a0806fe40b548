"""Where the offsets of a consumer are kept: behind one protocol, in Kafka (here) or in a table (`table.py`).

A keeper knows the next offset of each partition and moves it when a batch is finished. The one in Kafka has the promises of
Kafka: at least once. A commit there is no fence, so a member that lost its partitions may still commit; only the table refuses.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from playhead.errors import Fenced, NotFound, PlayheadError, Refused
from playhead.kafka.member import Member
from playhead.model import TopicPartition


class TakenOver(Fenced):
    """Somebody else moved or took the position meanwhile; the batch was not committed. Go on: the consumer reads it again."""

    def __init__(self, place: TopicPartition, how: str) -> None:
        Refused.__init__(
            self,
            f"the position of {place} is no longer ours to move: {how}",
            "nothing of this batch was committed; going on reads the stored position again",
        )
        self.place = place


class Beginning(NamedTuple):
    """For a partition without a stored offset: where to begin; None: it must have one."""

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
        """Takes these partitions over and tells where they stand. Polite: leaves those that another live consumer holds."""
        ...

    def finish(self, steps: Sequence[KeptStep]) -> None:
        """Moves the stored offsets."""
        ...

    def tend(self) -> None:
        """Once in every turn: sends what waits to be sent, and raises what went wrong in the background."""
        ...

    def beat(self) -> dict[TopicPartition, KeptOffset] | None:
        """A sign of life; what is still ours, or None where nobody else could have taken it."""
        ...

    def revoked(self, places: Collection[TopicPartition]) -> None:
        """The last moment to commit what is finished."""
        ...

    def lost(self, places: Collection[TopicPartition]) -> None:
        """Nothing may be committed any more."""
        ...


class KafkaKeeper:
    """The group's committed offsets.

    `sync`: each batch is committed when it is finished, and waited for. `async`: sent and not waited for. `auto`: handed to
    librdkafka, which commits every `auto.commit.interval.ms`. Whatever is finished and not known to be committed is committed
    once more, waited for, before partitions are given away.
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
            raise RuntimeError("this keeper was not given its member")
        return self._member

    def claim(
        self, wanted: Mapping[TopicPartition, Beginning], *, polite: bool = False
    ) -> dict[TopicPartition, KeptOffset]:
        del polite  # nothing is held in Kafka that could be left to another
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
    return NotFound("stored offset of", str(place), hint='start="earliest" or "latest" says where to begin without one')
