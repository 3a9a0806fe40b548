"""A range of a source's keys, as a user asks for it: `incrementing:1000..2000`, `timestamp:2026-11-15T03:00..2026-11-15T04:00`.

Ids include both ends. A window of time begins at its first moment and ends before its last one. One side may be left out. A
connector of several tables needs the table before it: `orders:incrementing:1000..2000`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from playhead.errors import Invalid, Refused
from playhead.model.position import INT64_MAX
from playhead.model.times import is_ago, with_date_of

INCREMENTING, TIMESTAMP = "incrementing", "timestamp"
_FORM = (
    "write it as incrementing:1000..2000 or timestamp:2026-01-31T08:00..2026-01-31T09:00, with the table before it if there are"
    " several"
)
_KEYS = re.compile(
    rf"(?:(?P<table>.+?)[:\s])?(?P<field>{INCREMENTING}|{TIMESTAMP})[:=\s]\s*(?P<low>.*?)\.\.(?P<high>.*)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """Ids from `low` to `high`, both included; or microseconds since the epoch, without `high`. `table` None: there is
    only one. `moves`: given as how long ago, so that the same words are another range a moment later."""

    field: str
    low: int = 0
    high: int = INT64_MAX
    table: str | None = None
    moves: bool = False

    def __str__(self) -> str:
        ends = (self.low if self.low > 0 else None, self.high if self.high < INT64_MAX else None)
        low, high = ("" if one is None else self._shown(one) for one in ends)
        return f"{self.field}:{low}..{high}"

    def _shown(self, number: int) -> str:
        if self.field == INCREMENTING:
            return str(number)
        return (_EPOCH + _MICRO * number).isoformat().removesuffix("+00:00") + "Z"


def looks_like_keys(text: str) -> bool:
    return _KEYS.fullmatch(text.strip()) is not None


def parse_key_range(text: str, moment: Callable[[str], datetime | None]) -> KeyRange:
    """`moment` reads a time as the command line writes it."""
    found = _KEYS.fullmatch(text.strip())
    if found is None:
        raise Invalid(f"{text!r} is not a range of keys", _FORM)
    is_time = found["field"] == TIMESTAMP
    texts = found["low"].strip(), found["high"].strip()
    low, high = _times(*texts, moment) if is_time else (_id(text) if text else None for text in texts)
    moves = is_time and any(map(is_ago, texts))
    asked = KeyRange(found["field"], low or 0, INT64_MAX if high is None else high, found["table"], moves)
    if asked.low > asked.high or (asked.field == TIMESTAMP and asked.low == asked.high):
        raise Invalid(f"{text!r} is an empty range: it begins after its end", _FORM)
    return asked


def fixed_keys(ranges: Sequence[KeyRange]) -> str:
    """The options to give instead of words that are another range at every moment. Empty if they are not."""
    if not any(one.moves for one in ranges):
        return ""
    return " ".join(f"--range {f'{one.table}:' if one.table else ''}{one}" for one in ranges)


def check_fixed(ranges: Sequence[KeyRange]) -> None:
    """Before rows are written: killed and given again, the command has to mean the same rows."""
    if shown := fixed_keys(ranges):
        what = "a time that is given as how long ago is another range at every moment"
        raise Refused(what, f"give the times: {shown}")


def _id(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > INT64_MAX:
        raise Invalid(f"{text!r} is not an id", _FORM)
    return int(text)


def _times(low: str, high: str, moment: Callable[[str], datetime | None]) -> tuple[int | None, int | None]:
    begin = moment(low) if low else None
    end = moment(with_date_of(begin, high)) if high else None
    return _micros(begin), _micros(end)


def _micros(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // _MICRO


def merged(ranges: list[KeyRange]) -> list[KeyRange]:
    """Of one table and field: in order, without overlaps."""
    done: list[KeyRange] = []
    for one in sorted(ranges, key=lambda one: (one.field, one.low, one.high)):
        gap = 1 if one.field == INCREMENTING else 0
        if done and one.low <= done[-1].high + gap and one.field == done[-1].field:
            last = done.pop()
            one = KeyRange(one.field, last.low, max(last.high, one.high), one.table)  # noqa: PLW2901
        done.append(one)
    return done
