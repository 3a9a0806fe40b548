"""Where records go. A sink connector takes each topic partition in order and writes it under names that follow from its content.

A task gets one claim and the records of that claim, and tells what it has closed. It decides nothing by the number of cores, the
size of a batch or the time of day, so that a second attempt, or a zombie, can only write the same bytes again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from playhead.ledger.model import Claim, ClosedRange, Done, RangeClaim

if TYPE_CHECKING:
    from playhead.ledger.ranges import Also

OFFSET, TIMESTAMP, KEY, VALUE, HASH = "offset", "timestamp", "key", "value", "hash"
# What a task reads: one topic partition, ascending offsets, committed records only. `hash` is the xxhash64 of the value.
RECORDS = pa.schema(
    [
        (OFFSET, pa.int64()),
        (TIMESTAMP, pa.timestamp("us", tz="UTC")),
        (KEY, pa.binary()),
        (VALUE, pa.binary()),
        (HASH, pa.int64()),
    ]
)


# Where a record fails, in Connect's words.
KEY_CONVERTER, VALUE_CONVERTER, TASK_PUT = "KEY_CONVERTER", "VALUE_CONVERTER", "TASK_PUT"


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that does not fit, by its coordinates, and why in one sentence."""

    topic: str
    partition: int
    offset: int
    reason: str
    stage: str = VALUE_CONVERTER


# Raises if the run is to stop; else the record is dealt with and must not be delivered.
Reject = Callable[[RejectedRecord], None]
Recall = Callable[[str, Callable[[], str]], str]  # a name, and who makes the text if none is kept yet
Samples = Mapping[str, Callable[[], pa.RecordBatch]]  # by topic: its first records of the step


class CommitPermit(Protocol):
    def ask(self) -> None:
        """Raises if the task must not commit."""
        ...


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """For tasks that commit by themselves: the run in the ledger, and who is asked right before."""

    run: Claim
    consent: CommitPermit


@dataclass(frozen=True, slots=True)
class SinkStep:
    """What a sink may need for the writer of one step. `recall` keeps a text in the ledger, or gives the one that is kept.
    `committing` is called by those whose tasks commit: the driver listens from then on. `is_careful`: the target has refused rows
    of these claims, and those are to be found and rejected."""

    recall: Recall
    samples: Samples
    committing: Callable[[], TaskCommit]
    is_careful: bool = False


class Writer(Protocol):
    """The part of a sink that runs in the executors: it must be picklable."""

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        """Each range once all of it is durable, in order and without a hole: the first begins where the claim begins. The last
        one ends where the claim ends if the claim closes, or if no record is left behind it; else at the first record that is
        left for the next claim. Who takes a range has seen to its rejected records before it asks for more: a task that commits
        by itself does that then."""
        ...


class Sink(Protocol):
    """The part of a sink that stays in the driver."""

    @property
    def shape(self) -> str:
        """A digest of all options that shape the output. An open claim of another shape is not finished with these."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the person should know before the run: wall-clock options that give up the same bytes, for instance."""
        ...

    @property
    def fewest_records(self) -> int:
        """Below so many no full cut is possible. 0: there are no cuts, and every claim is written whole."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether the keys of records matter; they are not read where they do not."""
        ...

    @property
    def commits_in_tasks(self) -> bool:
        """Whether each task commits its rows and its range by itself, in the ledger that is in the target."""
        ...

    def writer(self, step: SinkStep) -> Writer: ...

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:
        """Whether a run that goes on for ever closes what is below a full cut now, because of the clock."""
        ...

    def merging(self, done: Sequence[Done]) -> "Also | None":
        """What belongs into the transaction that commits these ranges in the ledger, for a sink whose target is that database."""
        ...

    def settled(self, done: Sequence[RangeClaim]) -> None:
        """After that commit: leftovers of these claims may go. Failing here loses nothing."""
        ...

    def close(self) -> None: ...
