"""What goes into a ledger and what comes out of it. A pipeline is a connector of one Kafka cluster, named by the cluster's id."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from playhead.errors import Fenced, Refused
from playhead.model import Map
from playhead.model.durations import in_words
from playhead.model.host import user_name

SILENT_SECONDS = 60.0  # without a sign of life for so long, a run is shown as silent
BEAT_SECONDS = 10.0  # how often a run should give one
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
class Stop:
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
    stop: Stop | None
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


class TakenOver(Fenced):
    """The ledger's own fencing: caught together with that of the broker."""

    def __init__(self, claim: Claim, by: Run | None) -> None:
        if by is None:
            what = f"{claim.pipeline}: the ledger has no row of this run any more"
        else:
            what = f"{claim.pipeline}: run {by.epoch} by {by.host} took over from run {claim.epoch}"
        Refused.__init__(self, what, "nothing more of this run is recorded; `playhead runs show` tells who runs it now")
