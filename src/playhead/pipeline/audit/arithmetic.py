"""The first level of an audit: the ledger's own arithmetic. No data is read.

Ranges of a sink touch each other, without holes and overlaps, up to its position; what they delivered and rejected is no more
than their offsets, and their outputs hold what they delivered. Chunks of a source begin where the one before ended. Offsets that
were neither delivered nor rejected are gaps of the log: markers, aborted and compacted records, tombstones.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from playhead.ledger.model import RangeState, RecordedChunk, RecordedRange, SinkPosition
from playhead.model import Map
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.audit.model import Faulty


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`rows`: what the ledger says was moved. `gaps`: offsets without a record."""

    rows: int = 0
    gaps: int = 0
    rejected: int = 0
    faults: Sequence[Faulty] = field(default_factory=tuple)


def check_ranges(ranges: Sequence[RecordedRange], positions: Mapping[Log, SinkPosition]) -> Arithmetic:
    """`ranges`: in every state. Ranges of a topic that was deleted are not those of the present one."""
    by_log: dict[Log, list[RecordedRange]] = defaultdict(list)
    faults: list[Faulty] = []
    rows = gaps = rejected = 0
    for one in ranges:
        if one.closed.range.log in positions and one.state is not RangeState.SUPERSEDED:
            by_log[one.closed.range.log].append(one)
    for log, position in positions.items():
        found = sorted(by_log[log], key=lambda one: one.closed.range)
        faults += _seams(log, [one.closed.range for one in found], position.next_offset)
        for one in found:
            if one.state is RangeState.SKIPPED:
                continue
            faults += _sums(one)
            rows += one.closed.count
            rejected += one.closed.rejected
            gaps += max(0, len(one.closed.range) - one.closed.count - one.closed.rejected)
    return Arithmetic(rows, gaps, rejected, tuple(faults))


def _seams(log: Log, spans: Sequence[OffsetRange], next_offset: int) -> list[Faulty]:
    faults = []
    for before, after in pairwise(spans):
        if before.end < after.start:
            hole = OffsetRange(*log, before.end, after.start)
            faults.append(Faulty(str(hole), "a hole: no range of the ledger has these offsets"))
        elif before.end > after.start:
            both = OffsetRange(*log, after.start, min(before.end, after.end))
            faults.append(Faulty(str(both), f"an overlap: {before} and {after} both count"))
    if spans and spans[-1].end != next_offset:
        faults.append(
            Faulty(str(spans[-1]), f"the position is {next_offset}, and the last range ends at {spans[-1].end}")
        )
    return faults


def _sums(one: RecordedRange) -> list[Faulty]:
    closed = one.closed
    place = str(closed.range)
    faults = []
    if closed.count + closed.rejected > len(closed.range):
        faults.append(
            Faulty(place, f"{closed.count} delivered and {closed.rejected} rejected records in fewer offsets")
        )
    held = sum(output.count for output in closed.outputs)
    if held > closed.count:
        faults.append(Faulty(place, f"its outputs hold {held} records, and {closed.count} were delivered"))
    if closed.count == 0 and (closed.hash_xor or closed.hash_sum):
        faults.append(Faulty(place, "it has a digest and no record"))
    if closed.count == 1 and closed.hash_xor != closed.hash_sum:
        faults.append(Faulty(place, "the digests of its only record do not agree"))
    return faults


def check_chunks(chunks: Sequence[RecordedChunk], stored: Mapping[str, Map | None]) -> Arithmetic:
    """`chunks`: of all streams of a source. `stored`: the committed position of each stream, as far as it is known."""
    by_stream: dict[str, list[RecordedChunk]] = defaultdict(list)
    for one in sorted(chunks, key=lambda one: one.seq):
        by_stream[one.chunk.stream].append(one)
    faults: list[Faulty] = []
    gaps = 0
    for stream, found in by_stream.items():
        for before, after in pairwise(found):
            if before.chunk.end_position != after.chunk.start_position:
                faults.append(_step(stream, before.chunk.end_position, after.chunk.start_position))
        end = found[-1].chunk.end_position
        if stream in stored and stored[stream] != end and not _is_part(end, stored[stream]):
            what = f"the stored position is {_shown(stored[stream])}, and the last chunk ends at {_shown(end)}"
            faults.append(Faulty(stream, what))
        faults += _overlaps(found)
        for one in found:
            held = sum(last - first + 1 for first, last in one.chunk.offsets.values())
            if one.chunk.count > held and one.chunk.offsets:
                faults.append(Faulty(stream, f"chunk {one.seq} has {one.chunk.count} records in {held} offsets"))
            gaps += max(0, held - one.chunk.count)
    return Arithmetic(sum(one.chunk.count for one in chunks), gaps, 0, tuple(faults))


def _overlaps(chunks: Sequence[RecordedChunk]) -> list[Faulty]:
    """No offset of a topic is in two chunks of a stream."""
    spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for one in chunks:
        for partition, (first, last) in one.chunk.offsets.items():
            spans[f"{one.chunk.topic}-{partition}"].append((first, last, one.seq))
    faults = []
    for place, some in spans.items():
        for (_, last, seq), (first, _, other) in pairwise(sorted(some)):
            if first <= last:
                faults.append(
                    Faulty(place, f"an overlap: chunks {seq} and {other} both have offsets {first} to {last}")
                )
    return faults


def _is_part(end: Map | None, stored: Map | None) -> bool:
    """A position may be stored with more fields, or with fewer, than the ledger has."""
    if end is None or stored is None:
        return False
    common = end.keys() & stored.keys()
    return bool(common) and all(end[name] == stored[name] for name in common)


def _step(stream: str, end: Map | None, start: Map | None) -> Faulty:
    before, after = (None if one is None else one.get("incrementing", one.get("timestamp")) for one in (end, start))
    what = "the position was moved"
    if isinstance(before, int) and isinstance(after, int):
        what = "a hole" if after > before else "an overlap"
    return Faulty(stream, f"{what}: a chunk ended at {_shown(end)}, and the next began at {_shown(start)}")


def _shown(position: Map | None) -> str:
    return "nothing" if position is None else position.to_json()
