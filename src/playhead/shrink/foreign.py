"""Records of the new topic that the copy did not write: an abort would lose them.

The offset map has the places of all records of the copy. What lies between them is markers of transactions, records of attempts
that were aborted, and records of others: only the last kind is seen by a reader of committed records.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from playhead.errors import NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.partitions import find_committed_at
from playhead.kafka.topics import get_topic
from playhead.kafka.transactions import fence
from playhead.model import TopicPartition
from playhead.pipeline.copy.offset_map import Offsets
from playhead.pipeline.copy.translate import CopiedTopic
from playhead.shrink.change import Change

Gap = tuple[int, int]


def check_foreign(change: Change, admin: Admin) -> None:
    """Refused if there is one. Ends every copier of this change before, so that its last transaction is decided."""
    request, target = change.request, change.recorded.target
    for one in get_topic(admin, change.topic, change.deadline()).partitions:
        fence(change.side.settings, request.transactional_id(one.id), change.deadline())
    ends = change.ends(admin, target)
    if held := [number for number, end in ends.items() if end.has_open_transaction]:
        raise Refused(
            f"a transaction of another producer is open in {target}-{held[0]}: its records would be lost",
            "end it, then --abort again",
        )
    # Up to there both topics were equal.
    starts = {number: max(end.start, change.recorded.verified_target.get(number, 0)) for number, end in ends.items()}
    copied = _copied(change, admin, starts)
    gaps = {number: gaps_of(copied[number], starts[number], end.high) for number, end in ends.items()}
    if found := _first_in(change, admin, gaps):
        partition, offset = found
        raise Refused(
            f"the record at {target}-{partition} offset {offset} was not written by the copy: it would be lost",
            f"playhead topics copy {target} NEW --execute copies it elsewhere; then delete {target} and --abort again",
        )


def _copied(change: Change, admin: Admin, starts: Mapping[int, int]) -> dict[int, Offsets]:
    """By partition of the new topic: the offsets of the records of the copy from `starts` on."""
    found: dict[int, list[Offsets]] = {number: [np.empty(0, np.int64)] for number in starts}
    try:
        mapped = CopiedTopic.open(admin, admin, change.request, change.context, change.deadline()).map
    except NotFound:
        return {number: parts[0] for number, parts in found.items()}  # nothing is copied yet
    for file in chain.from_iterable(mapped.chains.values()):
        if late := [place for place, (_, last, _) in mapped.summary(file).items() if last >= starts[place]]:
            _, places, offsets = mapped.read(file)
            for place in late:
                found[place].append(offsets[(places == place) & (offsets >= starts[place])])
    return {number: np.sort(np.concatenate(parts)) for number, parts in found.items()}


def gaps_of(offsets: Offsets, start: int, end: int) -> list[Gap]:
    """The ranges from `start` to `end` without these offsets, which are sorted."""
    edges = np.concatenate([[start - 1], offsets, [end]])
    at = np.flatnonzero(np.diff(edges) > 1)
    return [(int(low) + 1, int(high)) for low, high in zip(edges[at], edges[at + 1], strict=True)]


def _first_in(change: Change, admin: Admin, gaps: Mapping[int, Sequence[Gap]]) -> tuple[int, int] | None:
    left = {number: list(some) for number, some in gaps.items() if some}
    while left:
        places = {TopicPartition(change.recorded.target, number): some[0][0] for number, some in left.items()}
        for place, offset in find_committed_at(admin, places, change.deadline()).items():
            some = left.pop(place.partition)
            if offset is None:
                continue
            if offset < some[0][1]:
                return place.partition, offset
            if later := [gap for gap in some if gap[1] > offset]:
                left[place.partition] = later
    return None
