"""One connector of a run: rounds over its streams, steps within a stream, each planned from what is committed.

What fails is planned anew from the committed position, three times in a row at most; being fenced is the end, because somebody
else runs this connector now, and to go on would only fence him in turn.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from playhead.errors import Busy, Fenced, OutcomeUnknown, PlayheadError, Refused, Unreachable
from playhead.model import Deadline, Map
from playhead.pipeline.chunk_notes import missing_rows
from playhead.pipeline.faults import TaskFailed
from playhead.pipeline.ingest import STEP_SECONDS, Connector, Ingested, IngestStep, Receipt
from playhead.pipeline.positions import Place
from playhead.pipeline.repeats import refuse_repeats
from playhead.pipeline.slots import Slots
from playhead.pipeline.sources import Source, Stream
from playhead.sql.ledger import Ledger
from playhead.sql.ledger_values import ChunkRow, Claim, RunState

TRIES = 3
MOST_NOTES = 10
NOWHERE = Map({"incrementing": -1, "timestamp": 0})  # before every row
WORTH_ANOTHER_TRY = (TaskFailed, Unreachable, Busy, OutcomeUnknown)


@dataclass(slots=True)
class Progress:
    """What a connector has done so far; read by whoever shows it."""

    name: str
    rows: int = 0
    steps: int = 0
    seconds: float = 0.0
    state: RunState | None = None
    stream: str = ""
    position: Map | None = None
    notes: list[str] = field(default_factory=list)
    error: PlayheadError | None = None

    def note(self, words: str) -> None:
        """The newest few: a run may go on for ever."""
        if words and words not in self.notes:
            self.notes = [*self.notes[-(MOST_NOTES - 1) :], words]


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connectors of a run use together. `stop` is set when the run is to end after the open steps."""

    spark: SparkSession
    slots: Slots
    ledger: Ledger
    stop: threading.Event
    rows_per_chunk: int
    accept_repeats: bool
    tell: Callable[[Progress], None]


class Moved(Refused):
    """The position is not where the step was planned from; plan it anew."""


class ConnectorRun:
    """`scrub` takes the connector's secrets out of what databases and Spark say."""

    def __init__(
        self,
        shared: Shared,
        connector: Connector,
        claim: Claim,
        open_source: Callable[[], Source],
        scrub: Callable[[str], str],
    ) -> None:
        self.progress = Progress(connector.name)
        self._scrub = scrub
        self._shared = shared
        self._connector = connector
        self._claim = claim
        self._open_source = open_source
        self._failures = 0
        self._is_fenced = False
        self._asked_to_stop = False
        self._joined: set[str] = set()

    @property
    def _is_stopping(self) -> bool:
        return self._asked_to_stop or self._shared.stop.is_set()

    def run(self, *, interval_seconds: float | None) -> None:
        """Until caught up, or with an interval for ever. Ends in `progress.state`; nothing is raised but bugs."""
        started = time.perf_counter()
        try:
            with self._shared.slots.user():
                self._rounds(interval_seconds)
            self.progress.state = RunState.STOPPED if self._is_stopping else RunState.FINISHED
        except PlayheadError as error:
            error.what = self._scrub(error.what)
            self.progress.state, self.progress.error = RunState.FAILED, error
        except Exception as error:  # noqa: BLE001  the end of a thread: what is not told here is told nowhere
            told = PlayheadError(f"a fault in Playhead itself: {self._scrub(repr(error))}")
            told.__cause__ = error
            self.progress.state, self.progress.error = RunState.FAILED, told
        finally:
            self.progress.seconds = time.perf_counter() - started
            self._shared.tell(self.progress)

    def _rounds(self, interval_seconds: float | None) -> None:
        source: Source | None = None
        try:
            while not self._is_stopping:
                try:
                    if source is None:
                        source = self._open_source()
                    self._round(source)
                except (Moved, *WORTH_ANOTHER_TRY) as error:
                    self._failed(error)
                    if source is not None:
                        source.close()
                        source = None
                    continue
                if interval_seconds is None:
                    return
                self._shared.stop.wait(interval_seconds)
        finally:
            if source is not None:
                source.close()

    def _failed(self, error: PlayheadError) -> None:
        self._failures += 1
        self._is_fenced = False
        self._shared.ledger.beat(self._claim)  # somebody else took over: that is the reason, and the end
        if self._failures >= TRIES:
            raise error
        self.progress.note(f"planned anew after: {self._scrub(error.what)}")
        self._shared.stop.wait(min(10.0, 0.5 * 4 ** (self._failures - 1)))

    def _round(self, source: Source) -> None:
        for stream in self._fenced_streams(source):
            while not self._is_stopping and not self._step(stream):
                pass

    def _fenced_streams(self, source: Source) -> Sequence[Stream]:
        """Fences before the first position is read, and after a failure: what a dead writer left open is aborted by it. From
        then on the tasks of each step fence again themselves."""
        if self._is_fenced:
            return source.streams()
        with ThreadPoolExecutor(1) as pool:
            fencing = pool.submit(self._connector.fence, self._shared.slots.total, Deadline(STEP_SECONDS))
            streams = source.streams()
            fencing.result()
        self._is_fenced = True
        return streams

    def _step(self, stream: Stream) -> bool:
        """True when the stream has nothing more, up to the end that was seen when the step was planned."""
        shared, connector = self._shared, self._connector
        if shared.ledger.beat(self._claim):
            self._asked_to_stop = True
            return True
        place = connector.place(stream, Deadline(STEP_SECONDS))
        self._check_key(stream, place)
        self._check_repeats(stream, place.offset)
        self._close_gap(stream, place)  # from here on the ledger ends at this position, whoever moved it there
        step = stream.plan(place.offset, shared.slots.share, shared.rows_per_chunk)
        if step is None or not step.chunks:
            self.progress.stream, self.progress.position = stream.name, place.offset
            self.progress.note(step.horizon if step else "")
            return True
        try:
            with (
                IngestStep(shared.spark, connector, stream, place, step) as prepared,
                shared.slots.take(len(step.chunks)),
            ):
                done = prepared.run()
        except Refused as error:
            if isinstance(error, Fenced):
                raise
            raise Moved(error.what, error.hint) from None
        finally:
            step.close()
        self._record(stream, done)
        return done.reaches_end or not stream.has_position

    def _close_gap(self, stream: Stream, place: Place) -> None:
        """Once per stream: the chain of the ledger goes on from the committed position, wherever the last chunk ended. What a
        killed run committed and could not record is recorded now."""
        if stream.name in self._joined or not stream.has_position:
            return
        self._joined.add(stream.name)
        recorded = self._shared.ledger.last_chunk(self._connector.home.cluster_id, self._connector.name, stream.name)
        last = None if recorded is None else recorded.chunk
        if place.offset == (None if last is None else last.end_position):
            return
        past = self._connector.log.history(place, Deadline(STEP_SECONDS))
        if rows := missing_rows(stream.name, stream.topic, last, past, place.offset):
            self._shared.ledger.record(self._claim, rows)

    def _check_key(self, stream: Stream, place: Place) -> None:
        if place.rivals and not stream.is_key_known:
            raise Refused(
                f"{self._connector.name} has two positions for {stream.name}, {place.offset} and {place.rivals[0]}, under two"
                " forms of its name, and no worker tells which one the connector reads",
                "name a worker with --connect, or forget the stale one: playhead offsets delete --partition",
            )

    def _check_repeats(self, stream: Stream, position: Map | None) -> None:
        """Where workers run without exactly-once support, unless the position is one that we committed ourselves."""
        home = self._connector.home
        if home.exactly_once or self._shared.accept_repeats or not stream.has_position:
            return
        position = NOWHERE if position is None else position
        last = self._shared.ledger.last_chunk(home.cluster_id, self._connector.name, stream.name)
        if last is None or last.chunk.end_position != position:
            deadline = Deadline(STEP_SECONDS)
            refuse_repeats(self._connector.settings, self._connector.name, stream, position, deadline)

    def _record(self, stream: Stream, done: Ingested) -> None:
        chunks, start = [], done.start
        for receipt in done.receipts:
            if receipt.count:
                chunks.append(_row(stream, receipt, start))
                start = receipt.position
        progress = self.progress
        progress.rows, progress.steps = progress.rows + done.rows, progress.steps + 1
        progress.stream, progress.position = stream.name, start
        progress.note(done.horizon)
        self._failures = 0
        self._shared.tell(progress)
        if chunks:
            self._shared.ledger.record(self._claim, chunks)


def _row(stream: Stream, receipt: Receipt, start: Map | None) -> ChunkRow:
    return ChunkRow(
        stream.name,
        receipt.chunk.where,
        start,
        receipt.position,
        stream.topic,
        receipt.offsets,
        receipt.count,
        receipt.hash_xor,
        receipt.hash_sum,
    )
