"""The folder of each record below its topic, for a batch at once: the distinct paths, and the index of the path of each record.

Paths are those of the connector's partitioners: `partition=N`, `field=value`, or a time by a date pattern. A record does not fit
if its value would lead out of its folder, or give an empty or too long name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.files.joda import Numbers, Pattern, Zone, open_zone, parse_pattern
from playhead.pipeline.deliver.files.options import FIELD, RECORD, WALLCLOCK, PartitionerOptions
from playhead.pipeline.deliver.files.times import Flags, Times, clock_times, field_times, record_times

Codes = npt.NDArray[np.int32]
SEGMENT_BYTES = 255  # the longest name in a folder of any file system we know


@dataclass(frozen=True, slots=True)
class Records:
    """What a partitioner may read: records of one topic partition. `field` returns a column, or None if there is none."""

    partition: int
    count: int
    record_ms: Numbers
    made_ms: int
    field: Callable[[str], pa.Array | None]


@dataclass(frozen=True, slots=True)
class Placed:
    """`codes` index `paths`; undefined where `is_bad` is set. `times`: None if the partitioner uses no time."""

    codes: Codes
    paths: Sequence[str]
    times: Numbers | None = None
    is_bad: Flags | None = None
    why: Callable[[int], str] = lambda row: ""


class Partitioner(Protocol):
    def place(self, records: Records) -> Placed: ...


def open_partitioner(options: PartitionerOptions, delim: str) -> Partitioner:
    """Called in the executor: a partitioner has a cache."""
    if options.is_timed:
        pattern = parse_pattern(options.path_format, options.locale)
        return ByTime(options, open_zone(options.zone), pattern)
    if options.kind == FIELD:
        return ByField(options.fields, delim)
    return ByPartition()


@dataclass(frozen=True, slots=True)
class ByPartition:
    def place(self, records: Records) -> Placed:
        return Placed(np.zeros(records.count, np.int32), [f"partition={records.partition}"])


@dataclass(frozen=True, slots=True)
class ByTime:
    options: PartitionerOptions
    zone: Zone
    pattern: Pattern
    _paths: dict[int, str] = field(default_factory=dict)

    def place(self, records: Records) -> Placed:
        times = self._times(records)
        ms = np.where(times.is_bad, 0, times.ms)
        starts = pc.dictionary_encode(pa.array(self.zone.period_starts(ms, self.options.duration_ms)))
        paths = [self._path(start) for start in starts.dictionary.to_pylist()]
        return Placed(starts.indices.to_numpy(), paths, ms, times.is_bad, times.why)

    def _times(self, records: Records) -> Times:
        if self.options.extractor == RECORD:
            return record_times(records.record_ms)
        if self.options.extractor == WALLCLOCK:
            return clock_times(records.made_ms, records.count)
        name = self.options.time_field
        return field_times(records.field(name), name, records.count)

    def _path(self, start: int) -> str:
        if start not in self._paths:
            self._paths[start] = self.pattern.format(self.zone.moment(start))
        return self._paths[start]


@dataclass(frozen=True, slots=True)
class ByField:
    names: tuple[str, ...]
    delim: str

    def place(self, records: Records) -> Placed:
        columns = [records.field(name) for name in self.names]
        for name, column in zip(self.names, columns, strict=True):
            if column is None or not is_scalar(column.type):
                return _nowhere(records.count, name, column)
        named = [_labels(name, column) for name, column in zip(self.names, columns, strict=True)]
        texts = named[0] if len(named) == 1 else pc.binary_join_element_wise(*named, self.delim)
        encoded = pc.dictionary_encode(texts)
        paths = encoded.dictionary.to_pylist()
        unsafe = np.array([not is_safe(path) for path in paths] + [True])  # the last stands for null
        codes = pc.fill_null(encoded.indices, len(paths)).to_numpy(zero_copy_only=False)
        is_bad = unsafe[codes]

        def why(row: int) -> str:
            path = texts[row].as_py()
            return (
                f"it has no value for {', '.join(self.names)}" if path is None else f"{path[:80]!r} is not a valid path"
            )

        return Placed(codes.astype(np.int32), [*paths, ""], None, is_bad, why)


def _nowhere(count: int, name: str, column: pa.Array | None) -> Placed:
    reason = f"it has no field {name}"
    if column is not None:
        reason = f"its field {name} is of type {column.type}, which cannot name a folder"
    return Placed(np.zeros(count, np.int32), [""], None, np.ones(count, np.bool_), lambda row: reason)


def is_scalar(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind))


def _labels(name: str, column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(f"{name}="), column.cast(pa.string()), "")


def is_safe(path: str) -> bool:
    return all(
        part not in ("", ".", "..") and len(part.encode()) <= SEGMENT_BYTES and "\0" not in part
        for part in path.split("/")
    )
