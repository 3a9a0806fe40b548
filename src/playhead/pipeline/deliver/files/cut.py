"""Where the files of a topic partition end, as the S3 connector rotates them: in offset order, all open files together.

A cut comes after `flush.size` records; before a record whose schema differs from that of its open file; and, with
`rotate.interval.ms` and a time-based partitioner, before a record that much later than the first one, or of another path than
the record before it. It never depends on the batches in which records arrive.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from playhead.pipeline.deliver.files.joda import Numbers
from playhead.pipeline.deliver.files.options import CutOptions
from playhead.pipeline.deliver.files.partition import Codes
from playhead.pipeline.deliver.files.times import Flags

_FIRST_LOOK = 256


@dataclass(frozen=True, slots=True)
class CutRows:
    """Adjacent records of one schema. `codes` of files and `paths` are the same for all rows of a topic partition. They differ
    where transforms make several topics of one: each has its own files, and the same paths."""

    offsets: Numbers
    codes: Codes
    times: Numbers | None
    schema: str
    paths: Codes | None = None

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(slots=True)
class Cutter:
    options: CutOptions
    count: int = 0
    _base_ms: int = 0
    _code: int = -1
    _schemas: dict[int, str] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return self.count >= self.options.flush_size

    def reach(self, rows: CutRows, at: int) -> int:
        """Rows from `at` up to the result go to the open files. If the result is `at`: cut first."""
        limit = min(len(rows), at + self.options.flush_size - self.count)
        if self.options.rotate_ms and rows.times is not None:
            limit = self._rotation(rows, rows.times, at, limit)
        others = [code for code, schema in self._schemas.items() if schema != rows.schema]
        if others:
            limit = _first(np.isin(rows.codes[at:limit], others), at, limit)
        return limit

    def _rotation(self, rows: CutRows, times: Numbers, at: int, limit: int) -> int:
        base = self._base_ms if self.count else int(times[at])
        paths = rows.codes if rows.paths is None else rows.paths
        code = self._code if self.count else int(paths[at])
        step, start = _FIRST_LOOK, at
        while start < limit:  # in growing steps: cuts may be close together
            end = min(limit, start + step)
            ends = times[start:end] - base >= self.options.rotate_ms
            if self.options.rotates_on_change:
                ends |= paths[start:end] != code
            found = _first(ends, start, end)
            if found < end:
                return found
            start, step = end, step * 4
        return limit

    def took(self, rows: CutRows, at: int, stop: int, codes: Sequence[int]) -> None:
        """`codes`: the paths of these rows."""
        if not self.count and rows.times is not None:
            self._base_ms = int(rows.times[at])
        self.count += stop - at
        self._code = int((rows.codes if rows.paths is None else rows.paths)[stop - 1])
        for code in codes:
            self._schemas.setdefault(code, rows.schema)

    def cut(self) -> None:
        self.count = 0
        self._schemas.clear()


def _first(flags: Flags, start: int, end: int) -> int:
    """The first row that is set, or `end`."""
    at = int(np.argmax(flags)) if len(flags) else 0
    return start + at if len(flags) and flags[at] else end
