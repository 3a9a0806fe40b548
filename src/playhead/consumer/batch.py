"""A batch: records, and the transaction that commits their offsets."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING

from playhead.consumer.keeping import KeptStep
from playhead.errors import Refused
from playhead.kafka.member import Record
from playhead.model import OffsetRange, RangeSet

if TYPE_CHECKING:
    from playhead.sql.transaction import Transaction


class State(Enum):
    OPEN = "was not committed"
    BUSY = "has a transaction open"
    ROLLED_BACK = "was rolled back, and will be delivered again"
    COMMITTED = "is committed"
    ABANDONED = "was abandoned: its partitions moved to another consumer, or the consumer was closed"


class Batch:
    """Records of one or several partitions, in order within each, all of one assignment.

    `ranges` is what they cover: a commit moves the offsets to its ends. Gaps in it (markers, aborted and compacted records)
    are not losses.
    """

    def __init__(
        self,
        records: Sequence[Record],
        ranges: Sequence[OffsetRange],
        steps: Sequence[KeptStep],
        transact: "Callable[[Batch], AbstractContextManager[Transaction]]",
        finish: "Callable[[Batch], None]",
    ) -> None:
        self.records = records
        self.ranges = RangeSet(ranges)
        self._steps = steps
        self._transact = transact
        self._finish = finish
        self._state = State.OPEN

    def transaction(self) -> "AbstractContextManager[Transaction]":
        """Everything done in the block and the offsets of this batch commit together when it ends.

        An exception rolls both back and the batch is delivered again. `TakenOver` (a `playhead.errors.Fenced`) is raised at the
        end of the block when another consumer or an operator moved one of the positions; then nothing was committed.
        """
        return self._transact(self)

    def commit(self) -> None:
        """Commits the offsets of this batch without any rows: it is finished, or skipped."""
        self._finish(self)

    @property
    def is_committed(self) -> bool:
        return self._state is State.COMMITTED

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"Batch({len(self.records)} records, {self.ranges!r})"

    def _begin(self) -> None:
        if self._state is not State.OPEN:
            raise Refused(f"this batch {self._state.value}", "take the next one from the iterator")
        self._state = State.BUSY
