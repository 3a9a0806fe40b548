"""Topic partitions, and half-open ranges of Kafka offsets.

`[start, end)`: `end` is the next offset to read, so adjacent ranges share a number.
A topic that was deleted and created again has another topic id; ranges of the two never mix.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from playhead.errors import Invalid


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Log(NamedTuple):
    """One partition of one incarnation of a topic. `topic_id` is empty if the broker does not report it."""

    topic: str
    topic_id: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise Invalid(f"{self.topic}-{self.partition}: [{self.start}, {self.end}) is not a range of offsets")

    @property
    def log(self) -> Log:
        return Log(self.topic, self.topic_id, self.partition)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        """Offsets covered. Not a number of records: markers, aborts and compaction leave holes."""
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start},{self.end})"


Spans = list[tuple[int, int]]


class RangeSet:
    """Ranges with overlaps and neighbours merged: two sets are equal when they cover the same offsets."""

    __slots__ = ("_spans",)

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        loose: dict[Log, Spans] = defaultdict(list)
        for item in ranges:
            loose[item.log].append((item.start, item.end))
        self._spans: dict[Log, Spans] = {log: _merged(spans) for log, spans in sorted(loose.items())}

    def __iter__(self) -> Iterator[OffsetRange]:
        return (OffsetRange(*log, start, end) for log, spans in self._spans.items() for start, end in spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._spans == other._spans

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "RangeSet(" + ", ".join(str(item) for item in self) + ")"

    def __or__(self, other: "RangeSet") -> "RangeSet":
        return RangeSet([*self, *other])

    def __and__(self, other: "RangeSet") -> "RangeSet":
        return self._combined(other, _intersection)

    def __sub__(self, other: "RangeSet") -> "RangeSet":
        return self._combined(other, _difference)

    @property
    def offsets(self) -> int:
        """The total number of offsets covered."""
        return sum(len(item) for item in self)

    def contains(self, log: Log, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._spans.get(log, ()))

    def gaps(self) -> "RangeSet":
        """The uncovered ranges between the first and the last offset of each log."""
        hull = RangeSet(OffsetRange(*log, spans[0][0], spans[-1][1]) for log, spans in self._spans.items())
        return hull - self

    def _combined(self, other: "RangeSet", how: Callable[[Spans, Spans], Spans]) -> "RangeSet":
        return RangeSet(
            OffsetRange(*log, start, end)
            for log, spans in self._spans.items()
            for start, end in how(spans, other._spans.get(log, []))
        )


def _merged(spans: Spans) -> Spans:
    merged: Spans = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _intersection(left: Spans, right: Spans) -> Spans:
    common: Spans = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return common


def _difference(left: Spans, right: Spans) -> Spans:
    """One sweep: both lists are sorted, so a cut that ends before a span begins ends before all later spans too."""
    rest: Spans = []
    j = 0
    for start, end in left:
        at = start
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < end:
            if at < right[k][0]:
                rest.append((at, right[k][0]))
            at = right[k][1]
            k += 1
        if at < end:
            rest.append((at, end))
        j = max(j, k - 1)  # the last cut may reach into the next span
    return rest
