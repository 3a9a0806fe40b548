"""Writes recorded ranges of a file sink again, under the same names.

Files are cut where they were cut, at the boundaries of the recorded ranges, and by the options as they are now. The files of a
range are held as drafts until all its records are read. Only if these are the records that were delivered, by count and digest,
its files are published: new names first, then those that replace a file, so that at no moment a record is missing. Otherwise the
drafts are discarded, and the old files stay.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import pyarrow as pa

from playhead.ledger.model import ClosedRange, RangeClaim
from playhead.model.ranges import OffsetRange, TopicPartition
from playhead.pipeline.deliver.files.sink import ByTopic
from playhead.pipeline.deliver.files.storage import DraftFile, OpenStorage, allow_many_files
from playhead.pipeline.deliver.files.writer import IN_FLIGHT, PUBLISHERS, FileWriter
from playhead.pipeline.deliver.sink import Reject, Writer
from playhead.pipeline.replay.pieces import Pieces, why_different


@dataclass(frozen=True, slots=True)
class RedoWriter:
    """`Writer` over that of a file sink. `recorded`: by topic partition, in order, the ranges of the claims. `accepts`: files are
    replaced although the records differ."""

    writer: Writer
    recorded: Mapping[TopicPartition, Sequence[ClosedRange]]
    accepts: bool = False

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        allow_many_files()
        writer = file_writer_of(self.writer, claim.range.topic)
        store, pieces = writer.place.connect(), Pieces(batches)
        waiting: deque[tuple[list[ClosedRange], Future[None]]] = deque()
        held: list[_Holding] = []
        with ThreadPoolExecutor(PUBLISHERS) as pool:
            try:
                for old in self.recorded[claim.range.place]:
                    part = replace(claim, range=old.range, closes=True)
                    holding = _Holding(store)
                    held.append(holding)
                    closings = writer.closings(holding, part, pieces.before(old.range.end), reject)
                    found = whole(old.range, [one.closed() for one in closings])
                    if why_different(old, found) and not self.accepts:
                        holding.discard()
                        yield from _drained(waiting)
                        yield from (replace(one, outputs=()) for one in found)
                        continue
                    waiting.append((found, pool.submit(holding.release, {output.name for output in old.outputs})))
                    while waiting and (_files_of(waiting) > IN_FLIGHT or waiting[0][1].done()):
                        yield from _taken(waiting)
                yield from _drained(waiting)
            finally:
                pool.shutdown(cancel_futures=True)
                for one in held:
                    one.discard()


def file_writer_of(writer: Writer, topic: str) -> FileWriter:
    found = writer.writers[topic] if isinstance(writer, ByTopic) else writer
    assert isinstance(found, FileWriter)  # noqa: S101  file sinks have no other
    return found


def whole(span: OffsetRange, found: list[ClosedRange]) -> list[ClosedRange]:
    """The ranges of a piece reach from its start to its end, also if it has no record."""
    return found or [ClosedRange(span, 0, 0, 0)]


def _taken(waiting: deque[tuple[list[ClosedRange], "Future[None]"]]) -> list[ClosedRange]:
    found, published = waiting.popleft()
    published.result()
    return found


def _files_of(waiting: deque[tuple[list[ClosedRange], "Future[None]"]]) -> int:
    """Each is open until it is published. A range has one for each of its folders."""
    return sum(len(one.outputs) for found, _ in waiting for one in found)


def _drained(waiting: deque[tuple[list[ClosedRange], "Future[None]"]]) -> Iterator[ClosedRange]:
    while waiting:
        yield from _taken(waiting)


@dataclass(slots=True)
class _HeldDraft:
    """A draft that outlives the task that wrote it, once it is complete."""

    draft: DraftFile
    is_complete: bool = False

    @property
    def name(self) -> str:
        return self.draft.name

    @property
    def file(self) -> BinaryIO:
        return self.draft.file

    def discard(self) -> None:
        if not self.is_complete:
            self.draft.discard()


@dataclass(slots=True)
class _Holding:
    """Of one recorded range: complete drafts wait here instead of being published."""

    store: OpenStorage
    _drafts: list[_HeldDraft] = field(default_factory=list)

    def draft(self, name: str) -> DraftFile:
        return _HeldDraft(self.store.draft(name))

    def publish(self, draft: DraftFile) -> int:
        """Called by the task for a complete draft: it is kept."""
        assert isinstance(draft, _HeldDraft)  # noqa: S101  a storage publishes its own drafts
        draft.file.flush()
        draft.is_complete = True
        self._drafts.append(draft)
        return draft.file.tell()

    def remove(self, name: str) -> None:
        self.store.remove(name)

    def release(self, replaced: set[str]) -> None:
        """Publishes what is kept. `replaced`: the names that the range has now."""
        for held in sorted(self._drafts, key=lambda one: one.name in replaced):
            self.store.publish(held.draft)
        self.discard()

    def discard(self) -> None:
        for held in self._drafts:
            held.draft.discard()
        self._drafts.clear()
