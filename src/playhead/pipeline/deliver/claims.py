"""Which offsets the next step of a sink claims: one range per topic partition, in total no more than a step can do in time.

Records below a full cut at the end of a topic are left for later, unless the claim closes the tail. Offsets are not records: if
a range has so many holes that it holds no full cut, the next claim of that partition is twice as long.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from playhead.ledger.model import Done, RangeClaim, SinkPosition
from playhead.model.ranges import Log, OffsetRange


@dataclass(slots=True)
class Claiming:
    """`fewest_records`: a full cut has at least so many; 0: there are no cuts, and every claim is written completely.
    `closes_tail` is called with the time of the last close and the time now."""

    shape: str
    fewest_records: int
    offsets_per_claim: int
    offsets_per_step: int
    closes_tail: Callable[[int, int], bool]
    _widths: dict[Log, int] = field(default_factory=dict)
    _seen_ends: dict[Log, int] = field(default_factory=dict)
    _closed_ms: dict[Log, int] = field(default_factory=dict)

    def next(self, positions: Mapping[Log, SinkPosition], ends: Mapping[Log, int], now_ms: int) -> list[RangeClaim]:
        """Claims up to these ends. Partitions that do not fit into this step follow in a later one."""
        claims: list[RangeClaim] = []
        room = self.offsets_per_step
        for log, at in positions.items():
            claim = self._claim(log, at, ends[log], now_ms) if room > 0 and log in ends else None
            if claim is not None:
                claims.append(claim)
                room -= len(claim.range)
        return claims

    def learn(self, done: Sequence[Done], now_ms: int) -> None:
        """Called with the result of a step's claims."""
        for claim, closed in done:
            log = claim.range.log
            self._seen_ends[log] = claim.range.end
            if closed:
                self._closed_ms[log] = now_ms
                self._widths.pop(log, None)
            else:
                self._widths[log] = 2 * len(claim.range)

    def _claim(self, log: Log, at: SinkPosition, end: int, now_ms: int) -> RangeClaim | None:
        start, fewest = at.next_offset, self.fewest_records
        if start >= end:
            return None
        stop = min(end, start + self._widths.get(log, max(self.offsets_per_claim, fewest)))
        closes = fewest == 0 or (stop == end and self.closes_tail(self._closed_ms.setdefault(log, now_ms), now_ms))
        if not closes and stop == end and (stop - start < fewest or self._seen_ends.get(log) == end):
            return None  # too few for a full cut, or already tried
        span = OffsetRange(log.topic, log.topic_id, log.partition, start, stop)
        return RangeClaim(span, closes, self.shape, now_ms, at.generation)
