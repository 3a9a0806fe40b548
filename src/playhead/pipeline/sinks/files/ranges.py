"""The ranges of a claim as they close: without a hole, each from a delivered record to the next range's first delivered record.

So a range takes what follows its last record and is not delivered: holes of the log, tombstones left out, records that were
rejected. Only the claim's own ends are kept as they are. A record is rejected when its range is sure to be closed by this claim,
so one that is left for the next claim is not told twice.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from playhead.model.ranges import OffsetRange
from playhead.pipeline.sinks import Reject, Rejected
from playhead.pipeline.sinks.files.zones import Numbers
from playhead.pipeline.sinks.tally import Tally
from playhead.sql.range_values import ClosedRange, Output, RangeClaim


@dataclass(slots=True)
class _Open(Tally):
    """`waiting`: told as rejected when the range is sure to be closed."""

    files: "Sequence[Future[Output]]" = ()
    waiting: list[Rejected] = field(default_factory=list)


class Closing(NamedTuple):
    """Closed as soon as all its files are published."""

    range: ClosedRange
    files: "Sequence[Future[Output]]"

    @property
    def is_durable(self) -> bool:
        return all(file.done() for file in self.files)

    def closed(self) -> ClosedRange:
        """Waits for its files, and raises what went wrong with them."""
        return replace(self.range, outputs=tuple(sorted(file.result() for file in self.files)))


class Ranges:
    """`held` is closed but for its end, which the next delivered record tells."""

    def __init__(self, claim: RangeClaim, reject: Reject) -> None:
        self._claim = claim
        self._reject = reject
        self._start = claim.range.start
        self._first: int | None = None
        self._open = _Open()
        self._held: _Open | None = None

    def reject(self, rejected: Rejected) -> None:
        tally = self._held or self._open
        tally.rejected += 1
        if self._claim.closes:
            self._reject(rejected)
        else:
            tally.waiting.append(rejected)

    def begin(self, offset: int) -> Iterator[Closing]:
        """A record will be delivered: the range before it, if one is held, ends here."""
        if self._held is not None:
            yield self._ended(self._held, offset)
            self._held = None
        if self._first is None:
            self._first = offset

    def add(self, hashes: Numbers, record_ms: Numbers) -> None:
        self._open.add(hashes, record_ms)

    def cut(self, files: "Sequence[Future[Output]]") -> None:
        self._open.files = files
        self._held, self._open, self._first = self._open, _Open(), None

    def finish(self) -> Iterator[Closing]:
        """Nothing more comes. What is still open was not written."""
        if self._first is None:
            yield self._ended(self._held or self._open, self._claim.range.end)
        elif self._first > self._start:
            before = [item for item in self._open.waiting if item.offset < self._first]
            yield self._ended(_Open(rejected=len(before), waiting=before), self._first)

    def _ended(self, tally: _Open, end: int) -> Closing:
        for item in tally.waiting:
            self._reject(item)
        span: OffsetRange = replace(self._claim.range, start=self._start, end=end)
        self._start = end
        return Closing(tally.closed(span), tally.files)
