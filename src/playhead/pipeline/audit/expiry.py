"""Which rows of a source's table may have been in a part of its topic that has expired.

A partition has its records in the order in which the source has read the rows. So the rows whose records are gone lie before the
first record that is left. What the ledger says of a chunk, or the first records themselves, tell how far that goes. Where neither
does, a row may have expired: it is never called missing then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from playhead.kafka.topics import Ends
from playhead.ledger.model import ChunkRow, RecordedChunk
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.audit.contents import fields_of

Order = tuple[int, ...]
OrderOf = Callable[[bytes | None], Order | None]
First = Callable[[OffsetRange], Sequence[bytes | None]]  # the values of the first records


def order_of_fields(names: Sequence[str]) -> OrderOf:
    def order(row: bytes | None) -> Order | None:
        fields = fields_of(row)
        found = [fields.get(name) for name in names] if fields is not None else []
        return tuple(one for one in found if isinstance(one, int)) if found and all(map(_is_whole, found)) else None

    return order


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Expiry:
    """`starts`: of the partitions that have lost records. `first`: the orders of the first records that each has left; None: one
    that is not known. `partitions`: how many the topic has."""

    order_of: OrderOf
    starts: Mapping[int, int] = field(default_factory=dict)
    first: Mapping[int, Sequence[Order | None]] = field(default_factory=dict)
    partitions: int = 1

    @classmethod
    def of(cls, ends: Mapping[Log, Ends], order_of: OrderOf, first: First) -> "Expiry":
        starts = {log.partition: at.start for log, at in ends.items() if at.start > 0}
        found = {
            log.partition: [order_of(value) for value in first(OffsetRange(*log, at.start, at.stable))]
            for log, at in sorted(ends.items())
            if 0 < at.start < at.stable
        }
        return cls(order_of, starts, found, len(ends))

    def __bool__(self) -> bool:
        return bool(self.starts)

    def may_hold(self, row: bytes | None, chunk: ChunkRow | None) -> bool:
        """Whether the record of a row may have expired. `chunk`: the one that has read it, if that is known."""
        order = self.order_of(row)
        if chunk is None or not chunk.offsets:
            return any(self._is_before(order, _limit(self.first.get(one, ()))) for one in self.starts)
        for partition, (begin, last) in chunk.offsets.items():
            start = self.starts.get(partition, 0)
            if last < start:
                return True
            if begin < start and self._is_before(order, self._limit_in(partition, chunk)):
                return True
        return False

    def _limit_in(self, partition: int, chunk: ChunkRow) -> Order | None:
        """The first record that is left is of this chunk, unless another producer has written between."""
        low, high = (
            None if at is None else at.get("incrementing") for at in (chunk.start_position, chunk.end_position)
        )
        least = low if isinstance(low, int) else -1
        most = high if isinstance(high, int) else least
        own = (one for one in self.first.get(partition, ()) if one is not None and least < one[-1] <= most)
        return next(own, None)

    @staticmethod
    def _is_before(order: Order | None, limit: Order | None) -> bool:
        return order is None or limit is None or order < limit

    def low_id(self, chunks: Sequence[RecordedChunk]) -> int | None:
        """Of a table that is read by ids: all rows up to this one have expired. None: not known, or none has."""
        if not self.starts:
            return None
        if not chunks:
            limits = [_limit(some) for some in self.first.values()]
            is_whole = len(self.starts) == self.partitions and limits and None not in limits
            return min(one[-1] for one in limits if one is not None) - 1 if is_whole else None
        found: int | None = None
        for one in sorted(chunks, key=lambda one: one.seq):
            at = one.chunk.end_position
            end = None if at is None else at.get("incrementing")
            is_gone = all(last < self.starts.get(p, 0) for p, (_, last) in one.chunk.offsets.items())
            if not is_gone or not isinstance(end, int):
                break
            found = end
        return found


def _limit(first: Sequence[Order | None]) -> Order | None:
    """Rows before this one may have expired; None: any may. Records out of order were written by others, or later."""
    known = [one for one in first if one is not None]
    if not known or len(known) < len(first):
        return None
    return known[0] if known == sorted(known) else max(known)
