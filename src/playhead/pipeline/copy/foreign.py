"""Records of a copy's target that the copy did not write.

The offset map has the places of all records of the copy. What lies between them is markers of transactions, records of attempts
that were aborted, and records of others: only the last kind is seen by a reader of committed records.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np

from playhead.kafka.client import Admin
from playhead.kafka.partitions import find_committed_at
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy.offset_map import OffsetMap, Offsets

Gap = tuple[int, int]
_WINDOW = 1 << 24  # offsets in memory at a time


def find_foreign(
    admin: Admin, topic: str, mapped: OffsetMap, spans: Mapping[int, Gap], deadline: Deadline
) -> dict[int, int]:
    """By partition of the target: the first record in its span that the copy did not write. Those without one are missing."""
    gaps = {number: _gaps(mapped, number, *span) for number, span in spans.items()}
    left = {number: gap for number, some in gaps.items() if (gap := next(some, None))}
    found = dict[int, int]()
    while left:
        places = {TopicPartition(topic, number): start for number, (start, _) in left.items()}
        for place, offset in find_committed_at(admin, places, deadline).items():
            number = place.partition
            _, end = left.pop(number)
            if offset is None:
                continue
            if offset < end:
                found[number] = offset
            elif later := next((gap for gap in gaps[number] if gap[1] > offset), None):
                left[number] = later
    return found


def _gaps(mapped: OffsetMap, place: int, start: int, end: int) -> Iterator[Gap]:
    """The ranges from `start` to `end` of a target partition without a record of the copy."""
    files = [
        (file, *span[:2])
        for file in chain.from_iterable(mapped.chains.values())
        if (span := mapped.summary(file).get(place))
    ]
    for low in range(start, end, _WINDOW):
        high = min(end, low + _WINDOW)
        parts: list[Offsets] = [np.empty(0, np.int64)]
        for file, first, last in files:
            if first < high and last >= low:
                _, places, offsets = mapped.read(file)
                parts.append(offsets[(places == place) & (offsets >= low) & (offsets < high)])
        yield from gaps_of(np.sort(np.concatenate(parts)), low, high)


def gaps_of(offsets: Offsets, start: int, end: int) -> list[Gap]:
    """The ranges from `start` to `end` without these offsets, which are sorted."""
    edges = np.concatenate([[start - 1], offsets, [end]])
    at = np.flatnonzero(np.diff(edges) > 1)
    return [(int(low) + 1, int(high)) for low, high in zip(edges[at], edges[at + 1], strict=True)]
