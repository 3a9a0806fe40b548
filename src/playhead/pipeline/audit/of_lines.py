"""A line file source: the lines of its file against the records of its topic, up to the stored position.

The place of a line is the position after it, as its source stores it. Lines have no key: one that was changed in the file is
missing, and its record is extra.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from playhead.errors import PlayheadError, Refused
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import Ends
from playhead.ledger.model import RecordedChunk
from playhead.model import Map
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.audit.arithmetic import check_chunks
from playhead.pipeline.audit.compare import Cut, compare
from playhead.pipeline.audit.judge import Rules, judge
from playhead.pipeline.audit.model import Hop, Item, Pair, Verdict
from playhead.pipeline.audit.of_source import KIND, from_ledger, spans_between
from playhead.pipeline.audit.pairs import of_digests, of_items, with_digests
from playhead.pipeline.audit.scene import Scene, settled_ends
from playhead.pipeline.audit.sides import Hashed, TaskSide
from playhead.pipeline.audit.table import key_hashes
from playhead.pipeline.audit.topic import Spans, record_hashes, record_side
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.ingest.encoding import RecordEncoder, cursor_column
from playhead.pipeline.ingest.file import FileLines, FileStep, ReadLines, open_lines
from playhead.pipeline.ingest.position_log import find_position, open_position_logs
from playhead.pipeline.ingest.source import CURSOR_ID
from playhead.pipeline.replay.plan import find_compacted
from playhead.pipeline.spec import Ready

_TASKS = 8


@dataclass(frozen=True, slots=True)
class LinesAsRecords:
    """`RowTask`. Picklable."""

    path: str
    read: ReadLines
    encode: RecordEncoder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Hashed]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for raw in self.read.chunk(number):
                made = self.encode(raw)
                if not len(made.values):
                    continue
                keys = key_hashes(made)
                ends = cursor_column(raw, CURSOR_ID) if len(made.values) == raw.num_rows else None
                shown = partial(_shown, self.path, ends, made.values)
                yield Hashed(record_hashes(keys, made.hashes), shown, None if made.keys is None else keys.copy)


def _shown(path: str, ends: pa.Array | None, values: pa.Array, places: np.ndarray) -> tuple[list[str], list[bytes]]:
    """`ends` None: a transform drops records, and which line became which is not known."""
    wanted = pa.array(places)
    at = [""] * len(places) if ends is None else [f"{path}@{end}" for end in ends.take(wanted).to_pylist()]
    return at, [one or b"" for one in values.take(wanted).to_pylist()]


def audit_lines(scene: Scene, one: Ready) -> Pair:
    chunks = scene.ledger.list_chunks(scene.home.cluster_id, one.name)
    began = time.monotonic()
    with ExitStack() as parts:
        logs = parts.enter_context(open_position_logs(scene.home.settings, one.config, scene.home.topic))
        if scene.level == 0:
            return from_ledger(one, chunks, logs[0].find_all(one.name, scene.deadline()) if chunks else None)
        lines = open_lines(one.config, scene.home.worker)
        pair = Pair(one.name, f"file {lines.path}", f"topic {lines.topic}", kind=KIND)
        try:
            if scene.since is not None or scene.until is not None:
                raise Refused("a part of a line file is not compared", "leave out --since and --until")
            stored = find_position(*logs, one.name, lines.partitions, scene.deadline()).offset
            if stored is None:
                raise Refused(f"{lines.path} has no stored position: nothing of it was read yet", None)
            admin = parts.enter_context(ReconnectingAdmin(scene.home.settings))
            pair = _audited(scene, pair, lines, stored, chunks, TopicLogs(admin))
        except PlayheadError as error:
            pair = replace(pair, error=f"{error.what}; {error.hint}" if error.hint else error.what)
    return replace(pair, seconds=round(time.monotonic() - began, 3))


def _audited(
    scene: Scene, pair: Pair, lines: FileLines, stored: Map, chunks: Sequence[RecordedChunk], logs: TopicLogs
) -> Pair:
    """The position first, the topic's end after it: the lines up to the position are all in the topic."""
    ends = settled_ends(logs, lines.topic, scene.deadline())
    compacted = logs.ask(lambda admin, patience: find_compacted([lines.topic], admin, patience), scene.deadline())
    spans = _spans(lines.topic, ends, is_compacted=bool(compacted))
    step = lines.read_again(stored, _TASKS)
    right = record_side(Spans(spans), ReadOptions(scene.properties()))
    found = compare(scene.spark(), _side(step), right, deep=scene.level > 1, cut=Cut(scene.most), say=scene.say)
    pair = replace(
        with_digests(pair, found),
        faults=check_chunks(chunks, {lines.name: stored}).faults if chunks else (),
        line=f"lines up to {stored.to_json()}, offsets up to {', '.join(f'{one.partition}@{one.end}' for one in spans)}",
        facts={
            "stream": lines.name,
            "topic": lines.topic,
            "topic_id": spans[0].topic_id,
            "lines": {str(span.place): span.end for span in spans},
            "position": stored.to_dict(),
        },
    )
    if found.differing is None:
        return of_digests(pair, ())
    items = [_explained(item, chunks) for item in judge(found.differing, Rules()).items]
    note = "lines have no key: a changed line is reported as missing and as extra"
    return of_items(pair, items, found.more, notes=[note] if items else [])


def _spans(topic: str, ends: Mapping[Log, Ends], *, is_compacted: bool) -> list[OffsetRange]:
    if is_compacted or any(at.start > 0 for at in ends.values()):
        raise Refused(f"records of {topic} have expired or are compacted, and which lines they were is not known", None)
    if spans := spans_between(ends, None):
        return spans
    raise Refused(f"topic {topic} is empty", "nothing was produced yet, or all of it has expired")


def _side(step: FileStep) -> TaskSide:
    path = str(step.lines.path)
    task = LinesAsRecords(path, ReadLines(path, step.bounds), step.lines.encoder)
    return TaskSide(f"file {path}", step.read, task, len(step.chunks))


def _explained(item: Item, chunks: Sequence[RecordedChunk]) -> Item:
    """A missing line with the chunk in which it was read."""
    if item.verdict is not Verdict.MISSING:
        return item
    item = replace(item, hop=Hop.NOT_PRODUCED)
    end = item.source[0].rpartition("@")[2] if item.source else ""
    for one in chunks if end.isdigit() else ():
        start, stop = (_position(at) for at in (one.chunk.start_position, one.chunk.end_position))
        if start < int(end) <= stop:
            return replace(item, run=f"run {one.epoch}", range=one.chunk.source_range)
    return item


def _position(at: Map | None) -> int:
    found = None if at is None else at.get("position")
    return found if isinstance(found, int) else 0
