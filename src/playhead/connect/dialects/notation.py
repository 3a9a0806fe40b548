"""Text forms of a point in time or in a log, and the numbers that connectors store for it.

Times are read as ISO 8601; without a zone they are UTC, as in Kafka's own tools. All arithmetic is on whole nanoseconds since the
epoch: a float would lose the digits that decide between two rows.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from playhead.errors import Invalid
from playhead.model.position import Scalar

SECOND = 10**9
_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r" ?(?P<zone>[Zz]|(?P<sign>[+-])(?P<zh>\d\d)(?::?(?P<zm>\d\d))?)?)?",
    re.ASCII,
)
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62135596800, 253402300799  # the seconds of the years 1 to 9999
TIME_HINT = "write it like 2022-11-29T05:59:55.817Z (no zone means UTC), or as a whole number"


def parse_instant(text: str) -> int:
    """Nanoseconds since the epoch."""
    match = _INSTANT.fullmatch(text.strip())
    if match is None:
        raise Invalid(f"{text!r} is not a point in time", TIME_HINT)
    part = match.groupdict(default="0")
    try:
        clock = f"{int(part['hour']):02}:{int(part['minute']):02}:{int(part['second']):02}"
        moment = datetime.fromisoformat(f"{part['day']}T{clock}+00:00")
        shift = timedelta(hours=int(part["zh"]), minutes=_minutes(part["zm"]))
    except ValueError as error:
        raise Invalid(f"{text!r} is not a point in time: {error}", TIME_HINT) from None
    since = moment - _EPOCH + (shift if part["sign"] == "-" else -shift)
    return (since.days * 86400 + since.seconds) * SECOND + int(part["fraction"].ljust(9, "0"))


def _minutes(text: str) -> int:
    if int(text) > 59:
        raise ValueError(f"{text} is not a number of minutes")
    return int(text)


def show_instant(nanos: int) -> str:
    """As short as the value allows, at least milliseconds. A moment outside the calendar is shown in seconds."""
    seconds, rest = divmod(nanos, SECOND)
    if not _FIRST <= seconds <= _LAST:
        return f"{seconds} s since 1970"
    fraction = f"{rest:09}"
    digits = fraction[:3] if fraction.endswith("000000") else fraction.rstrip("0").ljust(6, "0")
    moment = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)
    return f"{moment.isoformat(sep=' ')}.{digits}Z"


@dataclass(frozen=True, slots=True)
class Notation:
    """Reads and shows a number as text."""

    read: Callable[[str], int]
    show: Callable[[int], str]


def _ticks(nanos_per_tick: int) -> Notation:
    return Notation(
        lambda text: parse_instant(text) // nanos_per_tick, lambda number: show_instant(number * nanos_per_tick)
    )


MILLISECONDS, MICROSECONDS, SECONDS = _ticks(10**6), _ticks(10**3), _ticks(SECOND)


def parse_lsn(text: str) -> int:
    match = _LSN.fullmatch(text)
    if match is None:
        raise Invalid(f"{text!r} is not a log sequence number", "write it like 0/16B3748, or as a whole number")
    return int(match[1], 16) << 32 | int(match[2], 16)


def show_lsn(number: int) -> str:
    """As PostgreSQL prints it. Java's long is signed, an LSN is not."""
    unsigned = number % 2**64
    return f"{unsigned >> 32:X}/{unsigned & 0xFFFFFFFF:X}"


def _as_long(unsigned: int) -> int:
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


LSN = Notation(lambda text: _as_long(parse_lsn(text)), show_lsn)


def as_int(value: Scalar) -> int | None:
    """The value of a whole number, or of a text that is one; `true` is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and WHOLE.fullmatch(value) else None
