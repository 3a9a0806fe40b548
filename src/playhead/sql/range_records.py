"""What a ledger tells of a sink, and how a person moves it."""

from dataclasses import dataclass
from datetime import datetime

from playhead.model.ranges import Log, OffsetRange
from playhead.sql.range_values import ClosedRange, RangeClaim, RangeState


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """Where a sink stands in one topic partition.

    `published_offset`: what the consumer group was last told; None before the first time. `generation`: of what will be delivered
    from here on. A claim has to carry it.
    """

    next_offset: int
    published_offset: int | None
    topic_id: str
    generation: int = 1
    written_at: datetime | None = None
    written_by: str = ""


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """`closed` holds what was delivered. `seq` tells the order in which ranges were written; those of one commit share it.

    Of a skipped range `shape` and `made_ms` are None, and `note` says who skipped it. `superseded_by`: the generation that is
    delivered instead.
    """

    cluster: str
    pipeline: str
    seq: int
    epoch: int
    committed_at: datetime
    state: RangeState
    generation: int
    closed: ClosedRange
    shape: str | None
    made_ms: int | None
    superseded_by: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class RangeSums:
    """Over the ranges of one log that count: delivered, or skipped on purpose. Superseded ones are not in it.

    `skipped` is in offsets, `count` and `rejected` in records. The digests are signed 64-bit numbers; the sum wraps around.
    """

    start: int
    end: int
    ranges: int
    count: int
    rejected: int
    skipped: int
    hash_xor: int
    hash_sum: int


@dataclass(frozen=True, slots=True)
class Move:
    """A person's edit of one position. `before` None: the log had no position; `after` None: it is to have none.

    A topic id that is not the stored one says that the topic was made again; an empty one stands for the stored one.
    """

    log: Log
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of a move. `changed` is False when the position was there already and nothing was written.

    `abandoned`: the open claim that was removed; what a killed run wrote of it may lie in the target. `superseded`: so many
    ranges will be delivered again. `restored`: so many, superseded before and not delivered again since, count again.
    `skipped`: nobody will deliver it.
    """

    move: Move
    changed: bool
    abandoned: RangeClaim | None = None
    superseded: int = 0
    restored: int = 0
    skipped: OffsetRange | None = None
