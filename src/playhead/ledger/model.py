"""The values of a ledger. A pipeline is a connector of one Kafka cluster, named by the cluster's id.

Sources record chunks, sinks claim and close ranges of offsets. A claim is stored before the work begins and is always
finished as it was claimed: any process that does it, any number of times, writes the same bytes under the same names.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from playhead.errors import Fenced, Refused
from playhead.model import Map
from playhead.model.host import user_name
from playhead.model.ranges import Log, OffsetRange
from playhead.model.times import in_words

SILENT_SECONDS = 60.0  # without a sign of life for so long, a run is shown as silent
BEAT_SECONDS = 3.0  # how often a run writes one, and looks whether it is asked to stop
RANGES_AT = "ranges"  # among the settings of a run


class RunState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Host:
    """A process: where it runs and who started it."""

    name: str
    pid: int
    user: str

    @classmethod
    def here(cls) -> "Host":
        return cls(socket.gethostname(), os.getpid(), user_name())

    def __str__(self) -> str:
        return f"{self.user}@{self.name} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write for a pipeline, until somebody claims it again under a higher epoch."""

    cluster: str
    pipeline: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StopRequest:
    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Run:
    """The newest run of a pipeline. `records`: written by this run. `settings`: of the engine, `master` among them."""

    cluster: str
    pipeline: str
    epoch: int
    host: Host
    started: datetime
    heartbeat: datetime
    silent_seconds: float
    """By the ledger's own clock. Below 0: the clock that wrote the heartbeat was ahead, or was set back since."""
    state: RunState
    detail: str
    stop: StopRequest | None
    settings: Mapping[str, str]
    transactional_ids: int
    records: int
    last_stream: str | None
    last_position: Map | None

    @property
    def ranges_at(self) -> str | None:
        """Of a sink whose ranges are in the database that it fills: where that is, without a password."""
        return self.settings.get(RANGES_AT)

    @property
    def is_running(self) -> bool:
        """As far as it says itself; a killed one says so for ever."""
        return self.state is RunState.RUNNING

    @property
    def is_silent(self) -> bool:
        return self.is_running and self.silent_seconds > SILENT_SECONDS

    @property
    def is_alive(self) -> bool:
        """It says that it runs, and said so just now."""
        return self.is_running and not self.is_silent

    @property
    def words(self) -> str:
        """The state for people. What a run says of itself is believed only while it speaks."""
        if not self.is_running:
            return self.state.value
        said = "stopping" if self.stop else "running"
        if self.is_silent:
            said = f"silent for {in_words(int(self.silent_seconds))}" + (", asked to stop" if self.stop else "")
        if self.silent_seconds < -1:
            said += f" (its clock is {in_words(int(-self.silent_seconds))} ahead)"
        return said


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """What one transaction moved. `offsets`: partition -> first and last offset of its records in the topic.

    `hash_xor` and `hash_sum` are over the hashes of the records, as signed 64-bit numbers; the sum wraps around.
    """

    stream: str
    source_range: str
    start_position: Map | None
    end_position: Map | None
    topic: str
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    count: int = 0
    hash_xor: int = 0
    hash_sum: int = 0
    generation: int = 1


@dataclass(frozen=True, slots=True)
class RecordedChunk:
    """`seq` grows by one per stream. `epoch` is that of the run which wrote it."""

    cluster: str
    pipeline: str
    seq: int
    epoch: int
    committed_at: datetime
    state: str
    chunk: ChunkRow


class RunTakenOver(Fenced):
    """The ledger's own fencing: caught together with that of the broker."""

    def __init__(self, claim: Claim, by: Run | None) -> None:
        if by is None:
            what = f"{claim.pipeline}: the ledger has no row of this run any more"
        else:
            what = f"{claim.pipeline}: run {by.epoch} by {by.host} took over from run {claim.epoch}"
        Refused.__init__(self, what, "nothing more of this run is recorded; `playhead runs show` tells who runs it now")


class RangeState(StrEnum):
    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"  # a person moved the position over it: nothing of it was delivered


@dataclass(frozen=True, slots=True)
class RangeClaim:
    """Offsets that one task reads in order. `closes`: what is left behind the last full cut is written, too.

    `shape` is a digest of the options that shape the output. `made_ms` is when the claim was made: whatever goes by the clock
    goes by this one, so that doing it again gives the same.
    """

    range: OffsetRange
    closes: bool
    shape: str
    made_ms: int
    generation: int = 1


class OutputKind(StrEnum):
    OBJECT = "object"  # has the name of its first record: one that is cut the same way again takes its place
    FILE = "file"  # grows: what is delivered again is appended
    TABLE = "table"


class Output(NamedTuple):
    """Where records of the range went, and how many. `size` is in bytes, 0 where there is none."""

    name: str
    count: int  # type: ignore[assignment]  # hides a method of tuples that nobody needs
    size: int = 0
    kind: OutputKind = OutputKind.OBJECT


@dataclass(frozen=True, slots=True)
class ClosedRange:
    """Written and durable. `count` and the digests are over the records that were delivered; `rejected` ones are not in them."""

    range: OffsetRange
    count: int
    hash_xor: int
    hash_sum: int
    outputs: Sequence[Output] = ()
    rejected: int = 0
    first_ms: int | None = None
    last_ms: int | None = None


Done = tuple[RangeClaim, Sequence[ClosedRange]]
"""A claim, and what became of it: ranges that follow each other from its start."""


def learnt_key(topic: str) -> str:
    """Under this the ledger keeps the schema that was learnt from a topic's records, for as long as the topic has a position."""
    return f"schema/{topic}"


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
class SinkMove:
    """A person's edit of one position. `before` None: the log had no position; `after` None: it is to have none.

    A topic id that is not the stored one says that the topic was made again; an empty one stands for the stored one.
    """

    log: Log
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class SinkMoved:
    """What became of a move. `changed` is False when the position was there already and nothing was written.

    `abandoned`: the open claim that was removed; what a killed run wrote of it may lie in the target. `superseded`: so many
    ranges will be delivered again. `restored`: so many, superseded before and not delivered again since, count again.
    `skipped`: nobody will deliver it.
    """

    move: SinkMove
    changed: bool
    abandoned: RangeClaim | None = None
    superseded: int = 0
    restored: int = 0
    skipped: OffsetRange | None = None
