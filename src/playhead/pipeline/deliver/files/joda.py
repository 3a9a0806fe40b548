"""Joda's date patterns, as the connector uses them in `path.format`, and its time zones, for arrays of times.

In a pattern letters are fields, quoted text is literal. Numbers are written as Joda writes them. Words depend on Java's
locale data: short names of months and days and AM/PM are known for English locales, full names for `en` alone (Java writes
short ones for `en-US` given this way). Eras and names of time zones are refused.

A period begins at a multiple of its length in local time. If daylight saving repeats an hour, both hours are one period. A
period that would begin in a missing hour begins where Joda begins it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Invalid, near_names

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Moment:
    """A local time, the zone's offset from UTC at it, and the zone's name."""

    local: datetime
    offset_seconds: int
    zone: str


Field = Callable[[Moment], str]
_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "C": lambda at: at.year // 100,
    "Y": lambda at: at.year,
    "y": lambda at: at.year,
    "x": lambda at: at.isocalendar().year,
    "w": lambda at: at.isocalendar().week,
    "e": lambda at: at.isoweekday(),
    "D": lambda at: at.timetuple().tm_yday,
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "K": lambda at: at.hour % 12,
    "h": lambda at: at.hour % 12 or 12,
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
}


@dataclass(frozen=True, slots=True)
class Pattern:
    fields: tuple[Field, ...]

    def format(self, moment: Moment) -> str:
        return "".join(field(moment) for field in self.fields)


def parse_pattern(text: str, locale: str) -> Pattern:
    fields: list[Field] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter == "'":
            literal, at = _quoted(text, at)
            fields.append(_literal(literal))
        elif letter.isascii() and letter.isalpha():
            width = len(text) - at - len(text[at:].lstrip(letter))
            fields.append(_field(letter, width, locale))
            at += width
        else:
            fields.append(_literal(letter))
            at += 1
    return Pattern(tuple(fields))


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The quoted text and its end. Two quotes are one, and the closing quote may be missing."""
    if text[at : at + 2] == "''":
        return "'", at + 2
    found = ""
    at += 1
    while at < len(text):
        if text[at : at + 2] == "''":
            found, at = found + "'", at + 2
        elif text[at] == "'":
            return found, at + 1
        else:
            found, at = found + text[at], at + 1
    return found, at


def _field(letter: str, width: int, locale: str) -> Field:
    if letter in ("M", "E") and (letter == "E" or width >= 3):
        return _word(letter, width, locale)
    if letter == "a":
        _check_english("a", locale)
        return lambda moment: "AM" if moment.local.hour < 12 else "PM"
    if letter == "S":
        return lambda moment: f"{moment.local.microsecond:06d}"[:width].ljust(width, "0")
    if letter == "Z":
        return _zone_field(width)
    if letter in ("Y", "y", "x") and width == 2:
        number = _NUMBERS[letter]
        return lambda moment: f"{number(moment.local) % 100:02d}"
    if letter in _NUMBERS:
        number = _NUMBERS[letter]
        return lambda moment: f"{number(moment.local):0{width}d}"
    if letter in ("G", "z"):
        raise Invalid(f"the letter {letter} writes words that differ between versions of Java", "use numbers")
    raise Invalid(f"{letter!r} is not a letter of a date pattern", "put plain text in single quotes")


def _word(letter: str, width: int, locale: str) -> Field:
    _check_english(letter * width, locale)
    is_full = width >= 4
    if is_full and locale != "en":
        raise Invalid(f"{letter * width} has full names only in the locale en", f"use locale=en or {letter * 3}")
    names = [name if is_full else name[:3] for name in (MONTHS if letter == "M" else DAYS)]
    if letter == "M":
        return lambda moment: names[moment.local.month - 1]
    return lambda moment: names[moment.local.weekday()]


def _check_english(what: str, locale: str) -> None:
    if locale.replace("_", "-").lower().split("-")[0] != "en":
        raise Invalid(f"{what} writes words, and the Spark engine knows only English ones", "use numbers")


def _zone_field(width: int) -> Field:
    if width >= 3:
        return lambda moment: moment.zone
    colon = ":" if width == 2 else ""

    def offset(moment: Moment) -> str:
        sign = "-" if moment.offset_seconds < 0 else "+"
        hours, rest = divmod(abs(moment.offset_seconds), 3600)
        return f"{sign}{hours:02d}{colon}{rest // 60:02d}"

    return offset


def _literal(text: str) -> Field:
    return lambda moment: text


Numbers = npt.NDArray[np.int64]
DAY_MS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A year narrower on both sides than Python's calendar, so that local times stay in range too.
FIRST_MS, LAST_MS = -62_104_060_800_000, 253_370_764_800_000
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?")


def open_zone(name: str) -> "Zone":
    """A name of the tz database as in Joda (case-sensitive), or an offset like +05:30."""
    if name in ("UTC", "Z"):
        return Zone("UTC", UTC)
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found[1], int(found[2]), int(found[3] or 0)
        if hours > 23 or minutes > 59:
            raise Invalid(f"{name!r} is not the offset of a time zone", "use the form +05:30")
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
        text = f"{sign}{hours:02d}:{minutes:02d}" if offset else "UTC"
        return Zone(text, timezone(offset))
    if name not in (known := available_timezones()):
        raise Invalid(f"there is no time zone {name!r}", near_names(name, sorted(known)))
    try:
        return Zone(name, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise Invalid(f"the time zone {name!r} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Zone:
    """`_days`: a cache by day of UTC: the offset at its start, when it changes, and the offset after that."""

    name: str
    info: tzinfo
    _days: dict[int, tuple[int, int, int]] = field(default_factory=dict, compare=False, repr=False)

    def offset_ms(self, instant_ms: int) -> int:
        at = (EPOCH + timedelta(milliseconds=instant_ms)).astimezone(self.info)
        offset = at.utcoffset()
        assert offset is not None  # noqa: S101  an aware time has one
        return round(offset.total_seconds() * 1000)

    def offsets_ms(self, instants: Numbers) -> Numbers:
        """The offset at every instant. Only days are looked up, and there are few of them."""
        if isinstance(self.info, timezone):
            return np.full(len(instants), self.offset_ms(0), np.int64)
        days = pc.dictionary_encode(pa.array(instants // DAY_MS))
        known = np.array([self._day(day) for day in days.dictionary.to_pylist()], dtype=np.int64).reshape(-1, 3)
        before, change, after = known[days.indices.to_numpy()].T
        offsets: Numbers = np.where(instants < change, before, after)
        return offsets

    def _day(self, day: int) -> tuple[int, int, int]:
        if day not in self._days:
            self._days[day] = self._changes(day * DAY_MS, (day + 1) * DAY_MS)
        return self._days[day]

    def _changes(self, start: int, end: int) -> tuple[int, int, int]:
        before, after = self.offset_ms(start), self.offset_ms(end - 1)
        if before == after:
            return before, end, after
        low, high = start, end - 1  # the change is after `low` and not after `high`
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset_ms(middle) == before:
                low = middle
            else:
                high = middle
        return before, high, after

    def period_starts(self, instants: Numbers, length_ms: int) -> Numbers:
        """In local time, not yet adjusted for missing hours. As Java's division, it rounds towards 1970 from both sides."""
        local = instants + self.offsets_ms(instants)
        starts: Numbers = np.sign(local) * (np.abs(local) // length_ms) * length_ms
        return starts

    def moment(self, local_ms: int) -> Moment:
        """A local time as Joda converts it to UTC and back."""
        instant = self.instant(local_ms)
        offset = self.offset_ms(instant)
        local = datetime(1970, 1, 1) + timedelta(milliseconds=instant + offset)  # noqa: DTZ001  a local time has no zone
        return Moment(local, offset // 1000, self.name)

    def instant(self, local_ms: int) -> int:
        """DateTimeZone.convertLocalToUTC, not strict."""
        guess = self.offset_ms(local_ms)
        offset = self.offset_ms(local_ms - guess)
        if guess != offset and guess < 0 and self.offset_ms(local_ms - offset) != offset:
            offset = guess
        return local_ms - offset
