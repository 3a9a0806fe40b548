"""The protocol of sinks. A sink reads each topic partition in order and writes it under names that follow from its content.

A task gets one claim and its records, and reports the ranges that it closed. Its output does not depend on the number of cores,
the size of a batch or the time of day, so a second attempt, or a zombie, can only write the same bytes again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from playhead.ledger.model import Claim, ClosedRange, Done, RangeClaim
from playhead.model.ranges import OffsetRange
from playhead.pipeline.records.batch import VALUE_CONVERTER, Bad

if TYPE_CHECKING:
    from playhead.ledger.ranges import Also

OFFSET, TIMESTAMP, KEY, VALUE, HASH = "offset", "timestamp", "key", "value", "hash"
HEADERS = "headers"
# What a task reads: one topic partition, ascending offsets, committed records only. `hash` is the xxhash64 of the value. Sinks
# that need the headers get them in a column of their own.
RECORDS = pa.schema(
    [
        (OFFSET, pa.int64()),
        (TIMESTAMP, pa.timestamp("us", tz="UTC")),
        (KEY, pa.binary()),
        (VALUE, pa.binary()),
        (HASH, pa.int64()),
    ]
)
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))  # as Spark's Kafka reader has them
SAMPLED = RECORDS.append(pa.field(HEADERS, HEADERS_TYPE))


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """The coordinates of a record that does not fit, and the reason in one sentence. `is_late`: only the target refused it, so
    that a first try of its step did not find it. `alias`: of the transform that failed."""

    topic: str
    partition: int
    offset: int
    reason: str
    stage: str = VALUE_CONVERTER
    is_late: bool = False
    alias: str = ""

    @classmethod
    def of(cls, span: OffsetRange, offset: int, bad: Bad, *, is_late: bool = False) -> "RejectedRecord":
        return cls(span.topic, span.partition, offset, bad.reason, bad.stage, is_late, bad.alias)


# Raises if the run must stop. Otherwise the record is handled and must not be delivered.
Reject = Callable[[RejectedRecord], None]
Recall = Callable[[str, Callable[[], str]], str]  # a name, and the function that returns the text if none is kept yet
Samples = Mapping[str, Callable[[], pa.RecordBatch]]  # by topic: its first records of the step, as SAMPLED


class CommitPermit(Protocol):
    def ask(self) -> None:
        """Raises if the task must not commit."""
        ...


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """For tasks that commit themselves: the run in the ledger, and the permission to request right before the commit."""

    run: Claim
    consent: CommitPermit


@dataclass(frozen=True, slots=True)
class SinkStep:
    """What a sink may need for the writer of one step. `recall` returns a text that is kept in the ledger, and stores it the
    first time. `committing` is called by sinks whose tasks commit: the driver listens from then on. `is_careful`: the target
    has refused rows of these claims, and the writer must find and reject them. `incarnations`: by topic, 2 and more for one that
    was deleted and recreated after records of it were delivered; 1 if it is not listed."""

    recall: Recall
    samples: Samples
    committing: Callable[[], TaskCommit]
    is_careful: bool = False
    incarnations: Mapping[str, int] = field(default_factory=dict)


class Writer(Protocol):
    """The part of a sink that runs in the executors: it must be picklable."""

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        """Yields each range once it is durable, in order and without gaps. The first begins where the claim begins. The last one
        ends where the claim ends if the claim closes, or if no record is left after it; else at the first record that is left for
        the next claim. The caller flushes the rejected records of a range before it requests the next one: a task that commits
        itself does so at that point."""
        ...


class Sink(Protocol):
    """The part of a sink that stays in the driver."""

    @property
    def shape(self) -> str:
        """A digest of all options that shape the output. An open claim of another shape is not finished with these options."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user before the run, for example that wall-clock options give other bytes when run again."""
        ...

    @property
    def fewest_records(self) -> int:
        """A full cut has at least so many. 0: there are no cuts, and every claim is written completely."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether the keys of records are needed; else they are not read."""
        ...

    @property
    def has_headers(self) -> bool:
        """The same of their headers."""
        ...

    @property
    def commits_in_tasks(self) -> bool:
        """Whether each task commits its rows and its range itself, in the ledger in the target."""
        ...

    def writer(self, step: SinkStep) -> Writer: ...

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:
        """Whether a continuous run closes records below a full cut now, because of the clock."""
        ...

    def merging(self, done: Sequence[Done]) -> "Also | None":
        """What to add to the transaction that commits these ranges in the ledger. None: nothing."""
        ...

    def settled(self, done: Sequence[RangeClaim]) -> None:
        """After that commit: removes leftovers of these claims. A failure here loses nothing."""
        ...

    def close(self) -> None: ...
