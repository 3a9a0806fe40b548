"""Where a merged step ends: at one point in time in all source partitions.

Records are merged by time, and one counts as not older than those before it in its partition. Kafka finds the first record of a
time in the whole log, not from an offset on. So a record that is copied already, and has a time far in the future, hides all that
follow it: in its partition the end is then found by bisection. While such a record is the next one, its partition waits for the
others.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from playhead.kafka.client import Admin
from playhead.kafka.partitions import find_at_time, find_times_at
from playhead.model import Deadline, TopicPartition

Behind = Mapping[int, tuple[int, int]]


class TimedLog(Protocol):
    def times_at(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        """By partition: the time of the first record at or after the offset."""

    def at_time(self, partitions: Collection[int], moment: int) -> Mapping[int, int | None]:
        """By partition: the first offset of this time or later, in the whole log."""


@dataclass(frozen=True, slots=True)
class KafkaLog:
    admin: Admin
    topic: str
    deadline: Deadline

    def times_at(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        places = {TopicPartition(self.topic, number): offset for number, offset in offsets.items()}
        return {place.partition: at for place, at in find_times_at(self.admin, places, self.deadline).items()}

    def at_time(self, partitions: Collection[int], moment: int) -> Mapping[int, int | None]:
        places = [TopicPartition(self.topic, number) for number in partitions]
        return {place.partition: at for place, at in find_at_time(self.admin, places, moment, self.deadline).items()}


def ends_in_time(log: TimedLog, behind: Behind, most: int) -> dict[int, int]:
    """The end of the next step by partition, after at most `most` offsets of each. At least one partition moves. `behind`: where
    each is, and how far it goes."""
    starts = {number: start for number, (start, _) in behind.items()}
    firsts = {number: at for number, at in log.times_at(starts).items() if at is not None}
    ends = {number: end for number, (_, end) in behind.items()}
    far = {number: start + most for number, start in starts.items() if ends[number] - start > most}
    later = log.times_at({number: offset for number, offset in far.items() if number in firsts})
    # A partition is not older than its next record, which may be newer than those after it.
    cuts = {number: max(firsts[number], at if at is not None else firsts[number]) for number, at in later.items()}
    if not cuts:
        return ends
    oldest, moment = min(firsts.values()), min(cuts.values())
    if moment > oldest:
        return ends | _cut(log, {number: behind[number] for number in firsts}, firsts, far, moment)
    # More than `most` records count as the oldest time: those of one partition, after those of the partitions before it.
    last = min(number for number, at in cuts.items() if at == oldest)
    before = {number: behind[number] for number in firsts if number <= last}
    found = ends | _cut(log, before, firsts, far, oldest + 1)
    return found | {number: starts[number] for number in firsts if number > last}


def _cut(
    log: TimedLog, behind: Behind, firsts: Mapping[int, int], far: Mapping[int, int], moment: int
) -> dict[int, int]:
    """The first offset of this time or later, at most `far`."""
    found = log.at_time(list(behind), moment)
    ends: dict[int, int] = {}
    hidden: dict[int, tuple[int, int]] = {}
    for number, (start, end) in behind.items():
        at, upper = found[number], min(end, far.get(number, end))
        if firsts[number] >= moment:
            ends[number] = start
        elif at is None or at >= start:
            ends[number] = upper if at is None else min(upper, at)
        else:
            hidden[number] = (start, upper)
    while open_ := {number: (low + high) // 2 for number, (low, high) in hidden.items() if high - low > 1}:
        times = log.times_at(open_)
        for number, middle in open_.items():
            low, high = hidden[number]
            at = times[number]
            hidden[number] = (middle, high) if at is not None and at < moment else (low, middle)
    return ends | {number: high for number, (_, high) in hidden.items()}
