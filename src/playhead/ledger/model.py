"""The values of a ledger. A pipeline is a connector of one Kafka cluster, identified by the cluster's id.

Sources record chunks, sinks claim and close ranges of offsets. A claim is stored before the work begins and is always finished
as it was claimed: every process that finishes it, however often, writes the same bytes under the same names.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from playhead.errors import Fenced, Refused
from playhead.model import Engine, Map
from playhead.model.host import user_name
from playhead.model.ranges import Log, OffsetRange
from playhead.model.times import in_words

SILENT_SECONDS = 60.0  # without a heartbeat for this long, a run is shown as silent
BEAT_SECONDS = 3.0  # how often a run writes a heartbeat and checks for a stop request
COPY = "copy"  # the type, in the settings of a run that copies a topic
RANGES_AT = "ranges"  # a key in the settings of a run
CONFIG = "config"  # the same: the connector's config as JSON, without secrets. An older Playhead shows it as a setting
CHUNK_HEADER = "playhead.chunk"  # the header of every position record that a run on Spark writes

FORGOTTEN = "forgotten"  # the same: the user who asked to list this run no more
BEHIND = "behind"  # the same: how far a source is behind, as JSON
OWNER = "owner"  # the same: the engine that a hand-over gave the pipeline to; kept by later runs
HALF_GIVEN = "half given"  # the same: it belongs to Connect, and its position is not in place there yet
_FOR_HANDOVER = ", hand-over "  # in the name of who requested a stop, before the id of its record
OLD_SECONDS = 24 * 3600.0  # a finished run is no longer listed among the connectors after this time


class RunState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    HELD_BACK = "held back"  # rows are left that open transactions of the database keep from being read


@dataclass(frozen=True, slots=True)
class Host:
    """A process: its host, pid and user."""

    name: str
    pid: int
    user: str

    def requester(self, handover: str = "") -> str:
        """`handover`: the record of the hand-over for which this process requests a stop."""
        return f"{self.user}@{self.name}" + (f"{_FOR_HANDOVER}{handover}" if handover else "")

    @classmethod
    def here(cls) -> "Host":
        return cls(socket.gethostname(), os.getpid(), user_name())

    def __str__(self) -> str:
        return f"{self.user}@{self.name} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write for a pipeline, until another run claims it with a higher epoch."""

    cluster: str
    pipeline: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StopRequest:
    who: str
    at: datetime

    @property
    def handover(self) -> str:
        """The record of the hand-over that may withdraw it; empty: a user requested it."""
        return self.who.rpartition(_FOR_HANDOVER)[2] if _FOR_HANDOVER in self.who else ""


class Behind(msgspec.Struct, frozen=True):
    """How far a running source is behind the end that it saw when it planned: at most `count`, in `unit` (ids, bytes,
    microseconds). `caught_up`: when it had last read everything; None: not yet."""

    count: int
    unit: str
    caught_up: datetime | None = None

    @property
    def records(self) -> int | None:
        """At most so many records. None: they are not counted."""
        return self.count if self.unit == "ids" or not self.count else None

    def seconds(self, now: datetime) -> float | None:
        """A row that is not read yet is not older than this. None: not known."""
        if not self.count:
            return 0.0
        if self.unit == "microseconds":
            return self.count / 1e6
        return None if self.caught_up is None else max(0.0, (now - self.caught_up).total_seconds())


@dataclass(frozen=True, slots=True)
class Run:
    """The newest run of a pipeline. `records`: written by this run. `settings`: of the engine, including `master`."""

    cluster: str
    pipeline: str
    epoch: int
    host: Host
    started: datetime
    heartbeat: datetime
    silent_seconds: float
    """By the ledger's clock. Negative: the clock that wrote the heartbeat was ahead, or was set back since."""
    state: RunState
    detail: str
    stop: StopRequest | None
    settings: Mapping[str, str]
    transactional_ids: int
    records: int
    last_stream: str | None
    last_position: Map | None
    config: Mapping[str, str] = field(default_factory=dict)
    """Of the connector, with its secrets masked; empty for a run of a Playhead that did not record it."""
    behind: Behind | None = None
    """Of a source, with its last heartbeat. None: not known."""

    @property
    def is_copy(self) -> bool:
        """A copy of a topic, which is no connector."""
        return self.settings.get("type") == COPY

    @property
    def ranges_at(self) -> str | None:
        """For a sink whose ranges are in its target database: the URL of that database, without a password."""
        return self.settings.get(RANGES_AT)

    @property
    def is_running(self) -> bool:
        """The state that the run recorded; a killed run stays in this state."""
        return self.state is RunState.RUNNING

    @property
    def is_silent(self) -> bool:
        return self.is_running and self.silent_seconds > SILENT_SECONDS

    @property
    def is_alive(self) -> bool:
        """Running, with a recent heartbeat."""
        return self.is_running and not self.is_silent

    @property
    def forgotten_by(self) -> str | None:
        """Set for a run that a user asked to forget. A silent one that is alive again is not forgotten."""
        return None if self.is_alive else self.settings.get(FORGOTTEN)

    @property
    def owner(self) -> Engine | None:
        """The engine that a hand-over gave the pipeline to; None if there was no hand-over."""
        found = self.settings.get(OWNER)
        return None if found is None else Engine(found)

    @property
    def is_half_given(self) -> bool:
        """A hand-over is giving it to Connect, or was interrupted: no run may claim it, and Connect must not run it yet."""
        return self.owner is Engine.CONNECT and HALF_GIVEN in self.settings

    @property
    def is_with_connect(self) -> bool:
        """A hand-over gave it to Connect, which has its position from then on."""
        return self.owner is Engine.CONNECT and not self.is_half_given and not self.is_alive

    @property
    def is_past(self) -> bool:
        """Finished for more than a day. One that failed or was stopped stays until it runs again or is forgotten, and so does
        one that was handed over to Spark."""
        return self.state is RunState.FINISHED and self.silent_seconds > OLD_SECONDS and self.owner is None

    @property
    def words(self) -> str:
        """The state for people. `running` is shown only with a recent heartbeat."""
        if not self.is_running:
            if self.is_half_given:
                return "being handed over"
            return "handed over" if self.owner is Engine.CONNECT else self.state.value
        words = "stopping" if self.stop else "running"
        if self.is_silent:
            words = f"silent for {in_words(int(self.silent_seconds))}" + (", stop requested" if self.stop else "")
        if self.silent_seconds < -1:
            words += f" (its clock is {in_words(int(-self.silent_seconds))} ahead)"
        return words


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """What one transaction moved. `offsets`: partition -> first and last offset of its records in the topic.

    `hash_xor` and `hash_sum` combine the hashes of the records, as signed 64-bit numbers; the sum wraps around.
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
    """`seq` grows by one per stream. `epoch`: of the run that wrote it."""

    cluster: str
    pipeline: str
    seq: int
    epoch: int
    committed_at: datetime
    state: str
    chunk: ChunkRow


class RunTakenOver(Fenced):
    """Fenced by the ledger. Callers catch it together with the fencing of the broker."""

    def __init__(self, claim: Claim, by: Run | None) -> None:
        if by is None:
            what = f"{claim.pipeline}: the ledger no longer has a row for this run"
        else:
            what = f"{claim.pipeline}: run {by.epoch} by {by.host} took over from run {claim.epoch}"
        Refused.__init__(self, what, "nothing more of this run is recorded; `playhead runs show` shows the current run")


class TakenMeanwhile(Refused):
    """Another hand-over or run changed the pipeline since the plan was created."""

    def __init__(self, pipeline: str, by: Run | None) -> None:
        if by is None:
            what = f"{pipeline} changed meanwhile: the ledger no longer has a row for it"
        else:
            did = f"run {by.epoch} is {by.words}" if by.is_running else by.detail or f"run {by.epoch} is {by.words}"
            what = f"{pipeline} was taken meanwhile by {by.host}: {did}"
        super().__init__(what, f"look at it, then give the same command again: playhead runs show {pipeline}")


class HandedOver(Refused):
    """The pipeline belongs to Connect since a hand-over: a run on Spark would be a second owner."""

    def __init__(self, run: Run) -> None:
        super().__init__(
            f"{run.pipeline} belongs to Connect: {run.detail or 'it was handed over'}",
            f"playhead handover {run.pipeline} --to spark --execute",
        )


def config_setting(config: Mapping[str, str]) -> dict[str, str]:
    """The setting that records a config, whose secrets are masked already. UTF-8 has no half of a surrogate pair."""
    texts = {key: value.encode("utf-8", "replace").decode() for key, value in config.items()}
    return {CONFIG: msgspec.json.encode(texts).decode()}


BY_CONNECT = "delivered by Connect"  # the note of offsets that Connect delivered between two hand-overs


class RangeState(StrEnum):
    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"  # an operator moved the position past it: nothing of it was delivered


@dataclass(frozen=True, slots=True)
class RangeClaim:
    """Offsets that one task reads in order. `closes`: the rest after the last full cut is written, too.

    `shape` is a digest of the options that shape the output. `made_ms` is when the claim was created: everything that depends on
    the clock uses this time, so that a retry gives the same result.
    """

    range: OffsetRange
    closes: bool
    shape: str
    made_ms: int
    generation: int = 1


class OutputKind(StrEnum):
    OBJECT = "object"  # named after its first record: a new object with the same cut replaces it
    FILE = "file"  # append-only: a repeated delivery is appended
    TABLE = "table"


class Output(NamedTuple):
    """Where records of the range were written, and how many. `size` is in bytes, 0 if there is none."""

    name: str
    count: int  # type: ignore[assignment]  # hides an unused method of tuple
    size: int = 0
    kind: OutputKind = OutputKind.OBJECT


@dataclass(frozen=True, slots=True)
class ClosedRange:
    """Written and durable. `count` and the digests cover the delivered records, without the `rejected` ones."""

    range: OffsetRange
    count: int
    hash_xor: int
    hash_sum: int
    outputs: Sequence[Output] = ()
    rejected: int = 0
    first_ms: int | None = None
    last_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CondensedRanges:
    """Several ranges of one state, that begin near each other: from the first start to the last end, and their sums."""

    state: RangeState
    start: int
    end: int
    ranges: int
    count: int
    rejected: int


Done = tuple[RangeClaim, Sequence[ClosedRange]]
"""A claim and its closed ranges, consecutive from its start."""


def learnt_key(topic: str) -> str:
    """The ledger's key for the schema inferred from a topic's records. It is kept as long as the topic has a position."""
    return f"schema/{topic}"


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The position of a sink in one topic partition.

    `published_offset`: the last offset committed to the consumer group; None before the first commit. `generation`: of everything
    delivered from here on. A claim must have the same generation.
    """

    next_offset: int
    published_offset: int | None
    topic_id: str
    generation: int = 1
    written_at: datetime | None = None
    written_by: str = ""


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """`closed`: what was delivered. `seq`: the order in which ranges were written; the ranges of one commit share it.

    For a skipped range `shape` and `made_ms` are None, and `note` names the user who skipped it. `superseded_by`: the generation
    that is delivered instead.
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

    @property
    def is_replay(self) -> bool:
        """It did not move the position: no run delivered it."""
        return self.epoch == 0 and self.shape is not None


@dataclass(frozen=True, slots=True)
class RangeSums:
    """Sums over the valid ranges of one log: delivered, or skipped on purpose. Superseded ranges are not included.

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
    """An operator's edit of one position. `before` None: the log had no position; `after` None: remove the position.

    A topic id other than the stored one means that the topic was recreated; an empty one means the stored one.
    """

    log: Log
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class SinkMoved:
    """The result of a move. `changed` is False if the position was already at `after` and nothing was written.

    `abandoned`: the open claim that was removed; the target may contain what a killed run wrote of it. `superseded`: number of
    ranges that will be delivered again. `restored`: number of ranges that were superseded, were not delivered again since, and
    are valid again. `skipped`: these will not be delivered.
    """

    move: SinkMove
    changed: bool
    abandoned: RangeClaim | None = None
    superseded: int = 0
    restored: int = 0
    skipped: Sequence[OffsetRange] = ()
