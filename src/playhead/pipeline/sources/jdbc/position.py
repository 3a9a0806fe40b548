"""The offset map that a JDBC source connector writes behind a row. Goes to the executors: it knows the mode and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from playhead.model import Map
from playhead.pipeline.sources import Last

MICROS_PER_MS, MICROS_PER_SECOND, NANOS_PER_MICRO = 1000, 1_000_000, 1000


@dataclass(frozen=True, slots=True)
class ToPosition:
    """In the connector's own order of fields; the nanoseconds are those of the whole second."""

    has_id: bool
    has_time: bool

    def __call__(self, last: Last) -> Map:
        fields: dict[str, int] = {}
        if self.has_time:
            if last.time_micros is None:
                raise ValueError("a position of a timestamp mode needs a time")
            fields["timestamp_nanos"] = last.time_micros % MICROS_PER_SECOND * NANOS_PER_MICRO
        if self.has_id:
            if last.id is None:
                raise ValueError("a position of an incrementing mode needs an id")
            fields["incrementing"] = last.id
        if self.has_time and last.time_micros is not None:
            fields["timestamp"] = last.time_micros // MICROS_PER_MS
        return Map(fields)


def find_ahead(value: bytes, position: Map, columns: Mapping[str, str]) -> str | None:
    """`columns`: field of the position -> column of the record. JSON values only; times in the unit of the position."""
    try:
        record = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    row = record.get("payload", record) if isinstance(record, dict) else {}
    for field in ("timestamp", "incrementing"):
        stored, seen = position.get(field), row.get(columns.get(field, "")) if isinstance(row, dict) else None
        if type(stored) is int and type(seen) is int and seen != stored:
            return f"{columns[field]}={seen}" if seen > stored else None
    return None
