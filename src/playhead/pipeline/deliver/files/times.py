"""The time of a record for partitions and rotation, in milliseconds: its own, that of a field, or the clock of its claim.

A field is a number of milliseconds, a timestamp, or text in the form of ISO 8601 (a date, or a date, T and a time; without a
zone it is UTC). Text of digits alone is milliseconds too. With any other value the record does not fit.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.files.joda import EPOCH, FIRST_MS, LAST_MS, Numbers

Flags = npt.NDArray[np.bool_]
_PLAIN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?"
_ZONED, _UNZONED = _PLAIN + r"(Z|[+-]\d\d:\d\d)$", _PLAIN + "$"
_DIGITS = re.compile(r"[+-]?\d{1,18}")
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d(?::\d\d(?::\d\d)?)?)(?:[.,](\d+))?(Z|[+-]\d\d(?::?\d\d)?)?")


@dataclass(frozen=True, slots=True)
class Times:
    """`ms` is undefined where `is_bad` is set. `why` returns the reason for a row."""

    ms: Numbers
    is_bad: Flags
    why: Callable[[int], str]


def record_times(record_ms: Numbers) -> Times:
    """Kafka has -1 for a record without a timestamp."""
    return Times(record_ms, (record_ms < 0) | (record_ms > LAST_MS), lambda row: "it has no usable timestamp")


def clock_times(made_ms: int, count: int) -> Times:
    return Times(np.full(count, made_ms, np.int64), np.zeros(count, np.bool_), lambda row: "")


def field_times(values: pa.Array | None, name: str, count: int) -> Times:
    if values is None:
        return _none(count, f"it has no field {name}")
    if pa.types.is_timestamp(values.type):
        values = _floored(pc.cast(values, pa.timestamp("us", values.type.tz), safe=False), 1000)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        ms = _parsed(values)
    elif pa.types.is_integer(values.type):
        ms = values.cast(pa.int64())
    else:
        return _none(count, f"its field {name} is of type {values.type}, which is not a time")
    numbers = pc.fill_null(ms, 0).to_numpy(zero_copy_only=False)
    is_bad = ms.is_null().to_numpy(zero_copy_only=False) | (numbers < FIRST_MS) | (numbers > LAST_MS)
    return Times(numbers, is_bad, lambda row: f"its field {name} is not a time: {_shown(values[row].as_py())}")


def _none(count: int, reason: str) -> Times:
    return Times(np.zeros(count, np.int64), np.ones(count, np.bool_), lambda row: reason)


def _shown(value: object) -> str:
    return "null" if value is None else repr(value)[:80]


def _parsed(texts: pa.Array) -> pa.Array:
    """Parses the array at once if all texts have one form; else one by one."""
    present = texts.drop_null()
    for form, kind in ((_ZONED, pa.timestamp("ns", "UTC")), (_UNZONED, pa.timestamp("ns"))):
        if pc.all(pc.match_substring_regex(present, form)).as_py():
            try:
                return _floored(pc.cast(texts, kind), 1_000_000)
            except pa.ArrowInvalid:
                break  # a day or an hour that does not exist, or a year out of range for nanoseconds
    return pa.array([None if text is None else parse_time(text) for text in texts.to_pylist()], pa.int64())


def _floored(instants: pa.Array, per_ms: int) -> pa.Array:
    """Rounds down, also before 1970: Arrow's own cast rounds towards 0."""
    numbers = pc.fill_null(instants.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return pa.array(numbers // per_ms, mask=instants.is_null().to_numpy(zero_copy_only=False))


def parse_time(text: str) -> int | None:
    if _DIGITS.fullmatch(text):
        return int(text)
    try:
        if _DATE.fullmatch(text):
            at = datetime.fromisoformat((text + "-01-01")[:10]).replace(tzinfo=UTC)
            return (at - EPOCH) // timedelta(milliseconds=1)
        if found := _TIME.fullmatch(text):
            day, clock, fraction, zone = found.groups()
            at = datetime.fromisoformat(f"{day}T{clock}{zone or 'Z'}")
            whole = (at - EPOCH) // timedelta(milliseconds=1)
            return whole + int((fraction or "0").ljust(3, "0")[:3])
    except ValueError:
        pass
    return None
