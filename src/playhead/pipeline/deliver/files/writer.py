"""Writes one claim: records in order to the files of their paths, files cut and named, each range reported once it is durable.

Names are the connector's: `topics/T/<path>/T+P+<offset of the first record in the file>.json`. Of a topic that was deleted and
recreated after it was delivered, offsets begin at 0 again: names have `.2` (`.3`, ...) before the extension, so that no file of
the old topic is replaced. After any failure no partial file is visible; open files are discarded.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Unreachable
from playhead.ledger.model import ClosedRange, Output, RangeClaim
from playhead.model.ranges import OffsetRange
from playhead.pipeline.deliver.files.cut import CutRows, Cutter
from playhead.pipeline.deliver.files.format import Content, Contents, Converting, Encoder, Piece, open_encoder
from playhead.pipeline.deliver.files.joda import Numbers
from playhead.pipeline.deliver.files.options import FAIL, PARQUET, FileSinkOptions, NameOptions
from playhead.pipeline.deliver.files.partition import Codes, Partitioner, Placed, Records, open_partitioner
from playhead.pipeline.deliver.files.storage import DraftFile, OpenStorage, Storage, allow_many_files, hint_for
from playhead.pipeline.deliver.sink import HASH, OFFSET, TIMESTAMP, VALUE, Reject, RejectedRecord
from playhead.pipeline.digest import Tally
from playhead.pipeline.records.batch import Bad

FOLDER = "_playhead"


def manifest_name(names: NameOptions, claim: RangeClaim, incarnation: int = 1) -> str:
    span = claim.range
    file = f"{span.start:020d}-{claim.generation}{_mark(incarnation)}.json"
    parts = [FOLDER, names.topics_dir, span.topic, str(span.partition), file]
    return "/".join(part for part in parts if part)


def manifest_text(claim: RangeClaim, closed: Sequence[ClosedRange]) -> str:
    head = {
        "topic": claim.range.topic,
        "topic_id": claim.range.topic_id,
        "partition": claim.range.partition,
        "generation": claim.generation,
        "shape": claim.shape,
    }
    ranges = ",\n".join(json.dumps(_range(item)) for item in closed)
    return f'{json.dumps(head)[:-1]}, "ranges": [\n{ranges}\n]}}\n'


def _mark(incarnation: int) -> str:
    return f".{incarnation}" if incarnation > 1 else ""


def write_manifest(store: OpenStorage, name: str, claim: RangeClaim, closed: Sequence[ClosedRange]) -> None:
    draft = store.draft(name)
    try:
        draft.file.write(manifest_text(claim, closed).encode())
        store.publish(draft)
    finally:
        draft.discard()


def _range(item: ClosedRange) -> dict[str, object]:
    return {
        "start": item.range.start,
        "end": item.range.end,
        "count": item.count,
        "rejected": item.rejected,
        "hash_xor": item.hash_xor,
        "hash_sum": item.hash_sum,
        "first_ms": item.first_ms,
        "last_ms": item.last_ms,
        "files": [{"name": file.name, "count": file.count, "size": file.size} for file in item.outputs],
    }


# A manifest per claim: which offsets were closed, with which counts and digests, and in which files. It is stored in
# `_playhead/<topics.dir>/<topic>/<partition>/` next to the data: Spark, Hive and Arrow skip names that begin with an
# underscore. Readers of the data do not need it: a listing of the data files is correct. Written again, it has the same bytes.


@dataclass(slots=True)
class _Open(Tally):
    """`waiting`: records to reject once the range is sure to be closed. `before`: records that a transform dropped before the
    first that is delivered."""

    files: "Sequence[Future[Output]]" = ()
    waiting: list[RejectedRecord] = field(default_factory=list)
    before: Tally = field(default_factory=Tally)


class Closing(NamedTuple):
    """Closed as soon as all its files are published."""

    range: ClosedRange
    files: "Sequence[Future[Output]]"

    @property
    def is_durable(self) -> bool:
        return all(file.done() for file in self.files)

    def closed(self) -> ClosedRange:
        """Waits for its files, and raises their errors."""
        return replace(self.range, outputs=tuple(sorted(file.result() for file in self.files)))


class Ranges:
    """`_held` is complete except for its end, which is the offset of the next delivered record."""

    def __init__(self, claim: RangeClaim, reject: Reject) -> None:
        self._claim = claim
        self._reject = reject
        self._start = claim.range.start
        self._first: int | None = None
        self._open = _Open()
        self._held: _Open | None = None

    def reject(self, rejected: RejectedRecord) -> None:
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

    def drop(self, hashes: Numbers, record_ms: Numbers) -> None:
        """Records that a transform dropped: they are done, and nothing is written."""
        if len(hashes):
            tally = self._held or (self._open.before if self._first is None else self._open)
            tally.add(hashes, record_ms)

    def cut(self, files: "Sequence[Future[Output]]") -> None:
        self._open.files = files
        self._held, self._open, self._first = self._open, _Open(), None

    def finish(self) -> Iterator[Closing]:
        """There are no more records. An open range was not written."""
        if self._first is None:
            yield self._ended(self._held or self._open, self._claim.range.end)
        elif self._first > self._start:
            before = [item for item in self._open.waiting if item.offset < self._first]
            yield self._ended(_Open(rejected=len(before), waiting=before, before=self._open.before), self._first)

    def _ended(self, tally: _Open, end: int) -> Closing:
        for item in tally.waiting:
            self._reject(item)
        tally.merge(tally.before)
        span: OffsetRange = replace(self._claim.range, start=self._start, end=end)
        self._start = end
        return Closing(tally.closed(span), tally.files)


# The ranges of a claim have no gaps: each reaches from a delivered record to the next range's first delivered record. So a
# range includes the offsets after its last record that are not delivered: holes of the log, skipped tombstones, rejected
# records. The first and the last range end with the claim. A record is rejected once its range is sure to be closed by this
# claim, so a record that is left for the next claim is not rejected twice.

PUBLISHERS, IN_FLIGHT = 8, 64  # threads that wait for the disk or the server; files that wait for them


@dataclass(frozen=True, slots=True)
class FileWriter:
    """`Writer` of the S3 sink connector. Picklable: connections are opened in `write`. `incarnations`: see `SinkStep`."""

    options: FileSinkOptions
    place: Storage
    converting: Converting
    incarnations: Mapping[str, int] = field(default_factory=dict)

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        allow_many_files()
        store = self.place.connect()
        task = _Task(self, claim, store, Ranges(claim, reject))
        reported: list[ClosedRange] = []
        waiting: deque[Closing] = deque()
        try:
            for closing in task.run(batches):
                waiting.append(closing)
                while len(waiting) > 1 and waiting[0].is_durable:
                    reported.append(waiting.popleft().closed())
                    yield reported[-1]
            rest = [closing.closed() for closing in waiting]
            if reported or rest:  # the manifest is written before the last range is reported
                name = manifest_name(self.options.names, claim, self.incarnations.get(claim.range.topic, 1))
                write_manifest(store, name, claim, [*reported, *rest])
            yield from rest
        finally:
            task.discard()

    def closings(
        self, store: OpenStorage, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject
    ) -> Iterator[Closing]:
        """The ranges of a claim and their files in `store`, without a manifest."""
        task = _Task(self, claim, store, Ranges(claim, reject))
        try:
            yield from task.run(batches)
        finally:
            task.discard()


@dataclass(slots=True)
class _File:
    draft: DraftFile
    encoder: Encoder
    count: int = 0


@dataclass(slots=True)
class _Batch:
    """The columns of a batch that all its pieces use."""

    offsets: Numbers
    record_ms: Numbers
    hashes: Numbers
    weights: Numbers

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "_Batch":
        micros = batch.column(TIMESTAMP).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        return cls(
            batch.column(OFFSET).to_numpy(),
            pc.fill_null(micros, -1000).to_numpy(zero_copy_only=False) // 1000,
            batch.column(HASH).to_numpy(zero_copy_only=False),
            pc.fill_null(pc.binary_length(batch.column(VALUE)), 0).to_numpy(zero_copy_only=False),
        )


@dataclass(slots=True)
class _Task:
    writer: FileWriter
    claim: RangeClaim
    store: OpenStorage
    ranges: Ranges
    _files: dict[int, _File] = field(default_factory=dict)
    _flight: deque[tuple[_File, Future[Output]]] = field(default_factory=deque)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PUBLISHERS))
    _codes: dict[tuple[str, str], int] = field(default_factory=dict)  # of topics and paths, the same in all batches
    _files_of: list[tuple[str, str]] = field(default_factory=list)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Closing]:
        options = self.writer.options
        partitioner = open_partitioner(options.partitioner, options.names.folder_delim)
        cutter = Cutter(options.cut)
        for batch in batches:
            if not batch.num_rows:
                continue
            columns = _Batch.of(batch)
            contents = self.writer.converting.convert(batch, self.claim.range.place)
            pieces, bad = self._placed(columns, contents, partitioner)
            rejected = iter(sorted(self._rejected(columns, bad), key=lambda item: item.offset))
            waiting = _Waiting(rejected, self.ranges, columns, contents.filtered)
            for piece, rows in pieces:
                yield from self._piece(cutter, columns, piece, rows, waiting)
            waiting.before(None)
        if cutter.count and self.claim.closes:
            self._cut(cutter)
        yield from self.ranges.finish()

    def discard(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for file in [*self._files.values(), *(file for file, _ in self._flight)]:
            file.encoder.abandon()
            file.draft.discard()

    def _piece(
        self, cutter: Cutter, columns: _Batch, piece: Piece, rows: CutRows, waiting: "_Waiting"
    ) -> Iterator[Closing]:
        at, weights = 0, columns.weights[piece.rows]
        while at < len(rows):
            stop = cutter.reach(rows, at)
            if stop == at:
                self._cut(cutter)
                continue
            waiting.before(int(rows.offsets[at]))
            yield from self.ranges.begin(int(rows.offsets[at]))
            span = piece.rows[at:stop]
            self.ranges.add(columns.hashes[span], columns.record_ms[span])
            codes = self._span(rows, piece.content, weights, slice(at, stop))
            cutter.took(rows, at, stop, codes)
            waiting.before(int(rows.offsets[stop - 1]))
            if cutter.is_full:
                self._cut(cutter)
            at = stop

    def _span(self, rows: CutRows, content: Content, weights: Numbers, span: slice) -> Sequence[int]:
        """Writes records to the files of their paths, in each file in the order of offsets."""
        codes = rows.codes[span]
        first = int(codes[0])
        part = content.slice(span.start, span.stop - span.start)
        if (codes == first).all():
            self._append(first, int(rows.offsets[span.start]), part, weights[span])
            return [first]
        order = np.argsort(codes, kind="stable")
        part, sorted_codes = part.take(pa.array(order)), codes[order]
        offsets, weights = rows.offsets[span][order], weights[span][order]
        starts = np.flatnonzero(np.diff(sorted_codes, prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            self._append(
                int(sorted_codes[start]), int(offsets[start]), part.slice(start, stop - start), weights[start:stop]
            )
        return [int(code) for code in sorted_codes[starts]]

    def _append(self, code: int, offset: int, content: Content, weights: Numbers) -> None:
        if code not in self._files:
            name = self._name(*self._files_of[code], offset)
            with _translated(name):
                draft = self.store.draft(name)
            schema = content.schema if self.writer.options.format.kind == PARQUET else None
            self._files[code] = _File(draft, open_encoder(self.writer.options.format, draft.file, schema))
        file = self._files[code]
        with _translated(file.draft.name):
            file.encoder.write(content, weights)
        file.count += len(weights)

    def _name(self, topic: str, path: str, offset: int) -> str:
        names, span = self.writer.options.names, self.claim.range
        file = names.file_delim.join([topic, str(span.partition), f"{offset:0{names.pad}d}"])
        folder = [names.topics_dir, topic, path] if names.topics_dir else [topic, path]
        mark = _mark(self.writer.incarnations.get(span.topic, 1))
        return names.folder_delim.join([*folder, file + mark + self.writer.options.format.extension])

    def _cut(self, cutter: Cutter) -> None:
        """Files are published in the background while the next ones are written."""
        futures = []
        for code in list(self._files):
            file = self._files.pop(code)
            self._flight.append((file, self._pool.submit(self._publish, file)))
            futures.append(self._flight[-1][1])
        while len(self._flight) > IN_FLIGHT:
            self._flight[0][1].result()
            self._flight.popleft()
        self.ranges.cut(futures)
        cutter.cut()

    def _publish(self, file: _File) -> Output:
        with _translated(file.draft.name):
            file.encoder.finish()
        return Output(file.draft.name, file.count, self.store.publish(file.draft))

    def _placed(
        self, columns: _Batch, contents: Contents, partitioner: Partitioner
    ) -> tuple[list[tuple[Piece, CutRows]], list[Bad]]:
        bad = list(contents.bad)
        if self.writer.options.nulls == FAIL:
            bad += [Bad(row, "its value is null") for row in np.flatnonzero(contents.tombstones).tolist()]
        pieces = []
        for found in contents.pieces:
            piece, record_ms = found, columns.record_ms[found.rows]
            records = Records(self.claim.range.partition, len(piece.rows), record_ms, self.claim.made_ms, piece.field)
            placed = partitioner.place(records)
            if placed.is_bad is not None and placed.is_bad.any():
                bad += [Bad(int(piece.rows[at]), placed.why(at)) for at in np.flatnonzero(placed.is_bad).tolist()]
                keep = ~placed.is_bad
                times = None if placed.times is None else placed.times[keep]
                piece, placed = piece.kept(keep), replace(placed, codes=placed.codes[keep], times=times)
            if len(piece.rows):
                paths = self._common(self.claim.range.topic, placed)
                codes = paths if piece.topics is None else self._routed(contents.targets, piece.topics, placed)
                rows = CutRows(columns.offsets[piece.rows], codes, placed.times, piece.schema, paths)
                pieces.append((piece, rows))
        return pieces, bad

    def _common(self, topic: str, placed: Placed) -> Codes:
        for path in placed.paths:
            if (topic, path) not in self._codes:
                self._codes[topic, path] = len(self._files_of)
                self._files_of.append((topic, path))
        return np.array([self._codes[topic, path] for path in placed.paths], np.int32)[placed.codes]

    def _routed(self, targets: Sequence[str], topics: Codes, placed: Placed) -> Codes:
        """The same for records of several topics."""
        codes = np.empty(len(topics), np.int32)
        for at, topic in enumerate(targets):
            is_of = topics == at
            if is_of.all():
                return self._common(topic, placed)
            codes[is_of] = self._common(topic, replace(placed, codes=placed.codes[is_of]))
        return codes

    def _rejected(self, columns: _Batch, bad: Sequence[Bad]) -> Iterator[RejectedRecord]:
        span = self.claim.range
        for item in bad:
            yield RejectedRecord.of(span, int(columns.offsets[item.row]), item)


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unreachable(f"{name} cannot be written: {error.strerror or error}", hint_for(error)) from None


class _Waiting:
    """The rejected and the dropped records of a batch, reported in offset order with the delivered ones."""

    def __init__(self, rejected: Iterator[RejectedRecord], ranges: Ranges, columns: _Batch, filtered: Numbers) -> None:
        self._rejected = list(rejected)[::-1]
        self._ranges = ranges
        self._columns = columns
        self._filtered = filtered

    def before(self, offset: int | None) -> None:
        if len(self._filtered):
            places = self._columns.offsets[self._filtered]
            count = len(places) if offset is None else int(np.searchsorted(places, offset))
            rows, self._filtered = self._filtered[:count], self._filtered[count:]
            self._ranges.drop(self._columns.hashes[rows], self._columns.record_ms[rows])
        while self._rejected and (offset is None or self._rejected[-1].offset < offset):
            self._ranges.reject(self._rejected.pop())
