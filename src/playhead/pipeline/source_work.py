"""The work of a source connector: steps over its streams, each planned from what is committed in connect-offsets."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from playhead.errors import Fenced, Refused
from playhead.model import Deadline, Map
from playhead.pipeline.chunk_notes import missing_rows
from playhead.pipeline.connector_run import ConnectorRun, Moved
from playhead.pipeline.ingest import STEP_SECONDS, Connector, Ingested, IngestStep, Receipt
from playhead.pipeline.positions import Place
from playhead.pipeline.repeats import refuse_repeats
from playhead.pipeline.sources import Source, Stream
from playhead.sql.ledger_values import ChunkRow

NOWHERE = Map({"incrementing": -1, "timestamp": 0})  # before every row


class SourceWork:
    def __init__(
        self, run: ConnectorRun, connector: Connector, source: Source, rows_per_chunk: int, *, accept_repeats: bool
    ) -> None:
        self._run = run
        self._connector = connector
        self._source = source
        self._rows_per_chunk = rows_per_chunk
        self._accept_repeats = accept_repeats
        self._is_fenced = False
        self._joined: set[str] = set()

    def close(self) -> None:
        self._source.close()

    def round(self) -> None:
        for stream in self._fenced_streams():
            while not self._run.is_stopping and not self._step(stream):
                pass

    def _fenced_streams(self) -> Sequence[Stream]:
        """Fences before the first position is read, and after a failure: what a dead writer left open is aborted by it. From
        then on the tasks of each step fence again themselves."""
        if self._is_fenced:
            return self._source.streams()
        with ThreadPoolExecutor(1) as pool:
            fencing = pool.submit(self._connector.fence, self._run.shared.slots.total, Deadline(STEP_SECONDS))
            streams = self._source.streams()
            fencing.result()
        self._is_fenced = True
        return streams

    def _step(self, stream: Stream) -> bool:
        """True when the stream has nothing more, up to the end that was seen when the step was planned."""
        shared, connector = self._run.shared, self._connector
        if not self._run.beat():
            return True
        place = connector.place(stream, Deadline(STEP_SECONDS))
        self._check_key(stream, place)
        self._check_repeats(stream, place.offset)
        self._close_gap(stream, place)  # from here on the ledger ends at this position, whoever moved it there
        step = stream.plan(place.offset, shared.slots.share, self._rows_per_chunk)
        if step is None or not step.chunks:
            progress = self._run.progress
            progress.stream, progress.position = stream.name, place.offset
            progress.note(step.horizon if step else "")
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
        recorded = self._run.shared.ledger.last_chunk(
            self._connector.home.cluster_id, self._connector.name, stream.name
        )
        last = None if recorded is None else recorded.chunk
        if place.offset == (None if last is None else last.end_position):
            return
        past = self._connector.log.history(place, Deadline(STEP_SECONDS))
        if rows := missing_rows(stream.name, stream.topic, last, past, place.offset):
            self._run.shared.ledger.record(self._run.claim, rows)

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
        if home.exactly_once or self._accept_repeats or not stream.has_position:
            return
        position = NOWHERE if position is None else position
        last = self._run.shared.ledger.last_chunk(home.cluster_id, self._connector.name, stream.name)
        if last is None or last.chunk.end_position != position:
            deadline = Deadline(STEP_SECONDS)
            refuse_repeats(self._connector.settings, self._connector.name, stream, position, deadline)

    def _record(self, stream: Stream, done: Ingested) -> None:
        chunks, start = [], done.start
        for receipt in done.receipts:
            if receipt.count:
                chunks.append(_row(stream, receipt, start))
                start = receipt.position
        self._run.count_step(done.rows, stream.name, start, done.horizon)
        if chunks:
            self._run.shared.ledger.record(self._run.claim, chunks)


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
