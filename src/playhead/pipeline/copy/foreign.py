"""Records of a copy's target that the copy did not write.

The offset map has the places of all records of the copy. What lies between them is markers of transactions, records of attempts
that were aborted, and records of others: only the last kind is seen by a reader of committed records.

Every transaction leaves a gap, so most gaps are not read. The records of a file of the map are one transaction, and its marker
lies before the next file of the same source partition begins, in every target partition that both have records in. If one
offset is missing between the two, it is the marker.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from playhead.errors import TimedOut
from playhead.kafka.client import Admin
from playhead.kafka.committed_scan import Looked, Ranges, scan_committed
from playhead.model import Deadline
from playhead.pipeline.copy.offset_map import MapFile, OffsetMap, Summary

Gap = tuple[int, int]
Runs = npt.NDArray[np.int64]  # rows of target partition, first offset, offset after the last one
Gaps = npt.NDArray[np.int64]  # rows of first offset, offset after the last one
_RUNS = 1 << 22  # in memory before runs that follow each other are joined


def find_foreign(
    admin: Admin, topic: str, mapped: OffsetMap, spans: Mapping[int, Gap], deadline: Deadline
) -> Mapping[int, int]:
    """By partition of the target: the first record in its span that the copy did not write. Those without one are missing."""
    looked = look_for_foreign(admin, topic, mapped, spans, deadline)
    if looked.unread and not looked.found:
        places = ", ".join(f"{topic}-{number} from {offset} on" for number, offset in sorted(looked.unread.items()))
        raise TimedOut(
            f"looking for records of others did not finish within {deadline.words}; not looked at: {places}",
            "give it more time with --timeout",
        )
    return looked.found


def look_for_foreign(
    admin: Admin, topic: str, mapped: OffsetMap, spans: Mapping[int, Gap], deadline: Deadline
) -> Looked:
    """The same, as far as there is time."""
    ranges = {number: Ranges(*gaps.T.tolist()) for number, gaps in open_gaps(mapped, spans).items()}
    return scan_committed(admin, topic, ranges, deadline)


def open_gaps(mapped: OffsetMap, spans: Mapping[int, Gap]) -> dict[int, Gaps]:
    """By target partition: the ranges of its span without a record of the copy, except for the markers of its transactions."""
    files = {file: mapped.summary(file) for file in chain.from_iterable(mapped.chains.values())}
    runs = _runs(mapped, files, spans)
    found = {}
    for place, span in spans.items():
        markers = _marker_ranges(mapped, files, place, span)
        found[place] = _without_markers(_gaps(runs, place, span), markers)
    return found


def _runs(mapped: OffsetMap, files: Mapping[MapFile, Summary], spans: Mapping[int, Gap]) -> Runs:
    """The records of the copy in the spans, and some before and after them. Each file is read at most once."""
    parts, count = [np.empty((0, 3), np.int64)], 0
    for file in sorted(files, key=lambda one: min((first for first, *_ in files[one].values()), default=0)):
        if any(
            first < spans[place][1] and last >= spans[place][0] for place, first, last in _places(files[file], spans)
        ):
            parts.append(_runs_of(mapped, file))
            count += len(parts[-1])
        if count > _RUNS:
            parts = [_joined(np.concatenate(parts))]
            count = 0
    return _joined(np.concatenate(parts))


def _places(summary: Summary, spans: Mapping[int, Gap]) -> Iterator[tuple[int, int, int]]:
    return ((place, first, last) for place, (first, last, _) in summary.items() if place in spans)


def _runs_of(mapped: OffsetMap, file: MapFile) -> Runs:
    _, places, offsets = mapped.read(file)
    order = np.argsort(places, kind="stable")  # within a file the offsets of a target partition increase
    at = offsets[order].astype(np.int64)
    return _joined(np.column_stack([places[order].astype(np.int64), at, at + 1]), is_sorted=True)


def _joined(runs: Runs, *, is_sorted: bool = False) -> Runs:
    """Runs that follow each other become one."""
    if not len(runs):
        return runs
    if not is_sorted:
        runs = runs[np.lexsort((runs[:, 1], runs[:, 0]))]
    begins = np.flatnonzero((runs[1:, 0] != runs[:-1, 0]) | (runs[1:, 1] != runs[:-1, 2])) + 1
    firsts, lasts = np.append(0, begins), np.append(begins - 1, len(runs) - 1)
    return np.column_stack([runs[firsts, 0], runs[firsts, 1], runs[lasts, 2]])


def _gaps(runs: Runs, place: int, span: Gap) -> Gaps:
    """The ranges of the span without a record of the copy."""
    start, end = span
    mine = runs[runs[:, 0] == place]
    mine = mine[(mine[:, 2] > start) & (mine[:, 1] < end)]
    gaps = np.column_stack([np.append(start, mine[:, 2]), np.append(mine[:, 1], end)])
    return gaps[gaps[:, 1] > gaps[:, 0]]


def _marker_ranges(mapped: OffsetMap, files: Mapping[MapFile, Summary], place: int, span: Gap) -> Gaps:
    """The ranges of the span between two files of a source partition. Each has a marker."""
    between = [
        (last + 1, first)
        for chained in mapped.chains.values()
        for (_, last, _), (first, *_) in pairwise(files[file][place] for file in chained if place in files[file])
        if last + 1 >= span[0] and first <= span[1]
    ]
    return np.array(between, np.int64).reshape(-1, 2)


def _without_markers(gaps: Gaps, markers: Gaps) -> Gaps:
    """Without the gaps of one offset that are the only ones in a range that has a marker."""
    at, after = np.searchsorted(gaps[:, 0], markers[:, 0]), np.searchsorted(gaps[:, 0], markers[:, 1])
    only = at[after - at == 1]
    return np.delete(gaps, only[gaps[only, 1] - gaps[only, 0] == 1], axis=0)
