"""Java's SimpleDateFormat and the calendar behind it: Julian before 1582-10-15, Gregorian since. In UTC, in English, lenient.

Days and milliseconds are Connect's own, counted from 1970-01-01. Formats with weeks (`w`, `W`, `F`, `Y`) are refused: they depend
on the locale of the worker. Of time zones the offsets are read, `GMT` and `UTC`; other names are not.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Invalid
from playhead.pipeline.records.javacalendar import (
    DAY_MILLIS,
    GREGORIAN_BEGIN,
    GREGORIAN_DAY,
    JULIAN_BEGIN,
    gregorian_year,
    julian_year,
)
from playhead.pipeline.records.javanumbers import LONG, whole_up_to

_LETTERS = "GyMLdkHmsSEDahKzZuX"
_WEEKS = "wWFY"
_MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
_DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
_UTC_NAME = "Coordinated Universal Time"
_ALWAYS_NUMBERS = "ydkHmsSDhKu"
_MONTH_NAME = 3  # letters, or more
_NUMBER = re.compile(r"-?\d+(?:E-?\d+)?")
_MOST_WHOLE, _MOST_POWER = 10**300, 400  # a double holds the one divided by any power of ten
_INT = range(-(1 << 31), 1 << 31)
_FAST = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}
_CUTOVER_YEAR = 1582


# The calendar


def days_of(year: int, month: int, day: int) -> int:
    """As `GregorianCalendar` has it when it is lenient; `month` counts from 0 and may be any number, as may the day."""
    julian, gregorian = _days(year, month, gregorian=False) + day - 1, _days(year, month, gregorian=True) + day - 1
    if year > _CUTOVER_YEAR and gregorian >= GREGORIAN_DAY:
        return gregorian
    if year < _CUTOVER_YEAR:
        return julian
    both = gregorian >= GREGORIAN_DAY and julian >= GREGORIAN_DAY
    return gregorian if both else julian


def _days(year: int, month: int, *, gregorian: bool) -> int:
    """Of the first of a month."""
    year, month = year + month // 12, month % 12
    year, shifted = (year, month - 2) if month >= 2 else (year - 1, month + 10)  # years begin in March
    days = 365 * year + year // 4 + (153 * shifted + 2) // 5
    return days - year // 100 + year // 400 + GREGORIAN_BEGIN if gregorian else days + JULIAN_BEGIN


def _dates(days: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Years (0 is 1 BC), months from 1, days."""
    year, of_year = gregorian_year(days)
    is_julian = days < GREGORIAN_DAY
    if is_julian.any():
        julian, of_julian = julian_year(days)
        year, of_year = np.where(is_julian, julian, year), np.where(is_julian, of_julian, of_year)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = np.where(month < 10, month + 3, month - 9)
    return year + (month <= 2), month, day


@dataclass(frozen=True, slots=True)
class _Moments:
    """The fields of moments, each computed when it is asked for."""

    millis: np.ndarray
    days: np.ndarray
    of_day: np.ndarray
    year: np.ndarray
    month: np.ndarray
    day: np.ndarray

    @classmethod
    def of(cls, millis: np.ndarray) -> "_Moments":
        days = millis // DAY_MILLIS
        return cls(millis, days, millis - days * DAY_MILLIS, *_dates(days))

    def day_of_year(self) -> np.ndarray:
        starts = {int(year): days_of(int(year), 0, 1) for year in np.unique(self.year)}
        return self.days - np.array([starts[int(year)] for year in self.year], np.int64) + 1

    def day_of_week(self) -> np.ndarray:
        """Sunday is 0."""
        return (self.days + 4) % 7

    def hour(self) -> np.ndarray:
        return self.of_day // 3_600_000


_NUMBERS: Mapping[str, Callable[[_Moments], np.ndarray]] = {
    "y": lambda at: np.where(at.year > 0, at.year, 1 - at.year),
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "H": lambda at: at.hour(),
    "k": lambda at: np.where(at.hour() == 0, 24, at.hour()),
    "K": lambda at: at.hour() % 12,
    "h": lambda at: np.where(at.hour() % 12 == 0, 12, at.hour() % 12),
    "m": lambda at: at.of_day // 60_000 % 60,
    "s": lambda at: at.of_day // 1000 % 60,
    "S": lambda at: at.of_day % 1000,
    "D": lambda at: at.day_of_year(),
    "u": lambda at: np.where(at.day_of_week() == 0, 7, at.day_of_week()),
}


# The format


@dataclass(frozen=True, slots=True)
class _Token:
    """A run of one letter, or a text as it stands (`letter` empty)."""

    letter: str
    count: int
    text: str = ""

    @property
    def obeys_count(self) -> bool:
        """Whether the number before it may take only its own digits: this one is a number, too."""
        if self.letter in ("M", "L"):
            return self.count < _MONTH_NAME
        return self.letter != "" and self.letter in _ALWAYS_NUMBERS


@dataclass(frozen=True, slots=True)
class DateFormat:
    pattern: str
    tokens: tuple[_Token, ...]

    @classmethod
    def of(cls, pattern: str) -> "DateFormat":
        """Raises Invalid for what SimpleDateFormat does not know, and for weeks."""
        return _compiled(pattern)

    def format(self, millis: np.ndarray) -> pa.Array:
        """Texts of moments, int64."""
        at = _Moments.of(millis)
        parts = [token.text if not token.letter else _texts(token, at) for token in self.tokens]
        # The empty column makes a column of what is the same for all of them.
        return pc.binary_join_element_wise(pa.repeat("", len(millis)), *parts, "")

    def parse(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Milliseconds, and which of the texts have none. No text is null."""
        made, is_bad = np.zeros(len(texts), np.int64), np.ones(len(texts), bool)
        if (form := _fast_form(self)) is not None:
            is_fast = pc.match_substring_regex(texts, form).to_numpy(zero_copy_only=False)
            if is_fast.any():
                made[is_fast] = self._fast(texts.filter(pa.array(is_fast)))
                is_bad &= ~is_fast
        # What is not written digit by digit as the format shows it is read one by one.
        for row in np.flatnonzero(is_bad):
            millis = self.parse_one(texts[int(row)].as_py())
            if millis is not None:
                made[row], is_bad[row] = millis, False
        return made, is_bad

    def _fast(self, texts: pa.Array) -> np.ndarray:
        found: dict[str, Any] = {"y": np.int64(1970), "M": np.int64(1), "d": np.int64(1)}
        at = 0
        for token in self.tokens:
            width = len(token.text) or token.count
            if token.letter:
                part = pc.utf8_slice_codeunits(texts, at, at + width)
                found[token.letter] = part.cast(pa.int64()).to_numpy(zero_copy_only=False)
            at += width
        months = found["M"] - 1
        year, month = found["y"] + months // 12, months % 12
        year, shifted = np.where(month >= 2, year, year - 1), np.where(month >= 2, month - 2, month + 10)
        days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * shifted + 2) // 5 - 719_468 + found["d"] - 1
        seconds = (found.get("H", 0) * 60 + found.get("m", 0)) * 60 + found.get("s", 0)
        return np.broadcast_to(days * DAY_MILLIS + seconds * 1000 + found.get("S", 0), len(texts))

    def parse_one(self, text: str) -> int | None:
        reading = _Reading(text)
        for token, after in zip(self.tokens, (*self.tokens[1:], None), strict=True):
            if not reading.take(token, obeys_count=after is not None and after.obeys_count):
                return None
        millis = reading.millis(add_century=False)
        if reading.is_ambiguous and millis < _century_start_millis():
            millis = reading.millis(add_century=True)
        return millis if millis in LONG and reading.at else None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> DateFormat:
    tokens: list[_Token] = []
    for run in re.finditer(r"''|'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']+|'", pattern, re.DOTALL):
        text, letter = run.group(), run[2]
        if letter:
            tokens.append(_Token(letter, len(text)))
        elif text == "'":
            raise Invalid(f"the format {pattern!r} has a quote without its pair")
        else:
            tokens.append(_Token("", 0, "'" if text == "''" else text if run[1] is None else run[1].replace("''", "'")))
    for token in tokens:
        if token.letter and token.letter in _WEEKS:
            raise Invalid(f"the format {pattern!r} has {token.letter!r}: weeks depend on the locale of the worker")
        if token.letter not in _LETTERS or (token.letter == "X" and token.count > 3):
            raise Invalid(f"the format {pattern!r} has {token.letter * token.count!r}, which Java does not know")
    return DateFormat(pattern, tuple(token for token in tokens if token.letter or token.text))


@lru_cache(maxsize=256)
def _fast_form(date_format: DateFormat) -> str | None:
    """A regular expression of the texts that have each digit where the format has it; from 1583 on."""
    letters = [token.letter for token in date_format.tokens if token.letter]
    is_plain = all(_FAST.get(token.letter) == token.count for token in date_format.tokens if token.letter)
    if not letters or not is_plain or len(set(letters)) < len(letters):
        return None
    year = r"(?:1(?:58[3-9]|59[0-9]|[6-9][0-9]{2})|[2-9][0-9]{3})"
    forms = [
        re.escape(token.text) if not token.letter else year if token.letter == "y" else f"[0-9]{{{token.count}}}"
        for token in date_format.tokens
    ]
    return f"^{''.join(forms)}$" if all(token.text.isascii() for token in date_format.tokens) else None


def _texts(token: _Token, at: _Moments) -> "pa.Array | str":
    letter, count = token.letter, token.count
    if letter in ("M", "L"):
        if count >= _MONTH_NAME:
            names = _MONTHS if count > _MONTH_NAME else [name[:3] for name in _MONTHS]
            return _named(names, at.month - 1)
        letter = "M"
    if letter == "E":
        return _named(_DAYS if count > 3 else [name[:3] for name in _DAYS], at.day_of_week())
    if letter in _NUMBERS:
        numbers = _NUMBERS[letter](at)
        if letter == "y" and count == 2:
            numbers = numbers % 100
        return pc.utf8_lpad(pa.array(numbers, pa.int64()).cast(pa.string()), count, "0")
    if letter == "a":
        return _named(["AM", "PM"], at.hour() // 12)
    if letter == "G":
        return _named(["BC", "AD"], (at.year > 0).astype(np.int64))
    return {"z": "UTC" if count < 4 else _UTC_NAME, "Z": "+0000", "X": "Z"}[letter]


def _named(names: list[str], places: np.ndarray) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(places))


# Reading one text


@dataclass(slots=True)
class _Reading:
    """`order`: when a field was set last, which decides between two that say the same thing."""

    text: str
    at: int = 0
    fields: dict[str, int] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    is_ambiguous: bool = False

    def take(self, token: _Token, *, obeys_count: bool) -> bool:
        if not token.letter:
            if not self.text.startswith(token.text, self.at):
                return False
            self.at += len(token.text)
            return True
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at == len(self.text):
            return False
        if token.letter in "zZX":
            return self._zone(token, start)
        if token.letter in _ALWAYS_NUMBERS or (token.letter in "ML" and token.count < _MONTH_NAME):
            return self._number(token, start + token.count if obeys_count else None)
        return self._name(token, start)

    def _set(self, name: str, value: int) -> None:
        self.fields[name] = value
        self.order[name] = max(self.order.values(), default=0) + 1

    def _number(self, token: _Token, end: int | None) -> bool:
        if end is not None and end > len(self.text):
            return False
        found = _NUMBER.match(self.text, self.at, len(self.text) if end is None else end)
        if found is None:
            return False
        start, self.at = self.at, found.end()
        whole, _, power = found.group().partition("E")
        value = _as_int(whole_up_to(_MOST_WHOLE, whole), whole_up_to(_MOST_POWER + 1, power))
        if token.letter == "y" and token.count <= 2 and self.at - start == 2 and not found.group().startswith("-"):
            value = self._of_century(value)
        if (token.letter, value) in (("k", 24), ("h", 12)):
            value = 0
        name = {"L": "M", "k": "H", "h": "K", "u": "E"}.get(token.letter, token.letter)
        if name == "M":
            value -= 1
        if token.letter == "u":
            value = value % 7
        self._set(name, value)
        return True

    def _of_century(self, value: int) -> int:
        start = _century_start_year()
        self.is_ambiguous = value == start % 100
        return value + start // 100 * 100 + (100 if value < start % 100 else 0)

    def _name(self, token: _Token, start: int) -> bool:
        known = {"G": ["BC", "AD"], "E": _DAYS, "a": ["AM", "PM"]}.get(token.letter, _MONTHS)
        rest = self.text[start:].lower()
        for value, name in enumerate(known):
            for form in (name, name[:3]):
                if rest.startswith(form.lower()):
                    self._set("M" if token.letter == "L" else token.letter, value)
                    self.at = start + len(form)
                    return True
        return False

    def _zone(self, token: _Token, start: int) -> bool:
        if token.letter == "X":
            if self.text[self.at] == "Z":
                return self._utc(self.at + 1)
            return self._offset(token.count, has_colon=token.count == 3)
        if self.text[self.at] in "+-":
            return self._offset(0, has_colon=False)
        if self.text[start : start + 3].upper() == "GMT":
            self.at = start + 3
            if self.text[self.at : self.at + 1] in ("+", "-"):
                return self._offset(0, has_colon=True)
            return self._utc(self.at)
        rest = self.text[self.at :].lower()
        name = next((name for name in ("utc", _UTC_NAME.lower()) if rest.startswith(name)), "")
        return name != "" and self._utc(self.at + len(name))

    def _utc(self, at: int) -> bool:
        self.at = at
        self._set("zone", 0)
        return True

    def _offset(self, count: int, *, has_colon: bool) -> bool:
        """A sign, hours, and minutes unless `count` is 1."""
        hours = "[0-9]{1,2}" if has_colon and not count else "[0-9]{2}"
        minutes = "()" if count == 1 else ":([0-9]{2})" if has_colon else "([0-9]{2})"
        found = re.compile(f"([+-])({hours}){minutes}").match(self.text, self.at)
        if found is None or int(found[2]) > 23 or int(found[3] or 0) > 59:
            return False
        self.at = found.end()
        minutes_off = int(found[2]) * 60 + int(found[3] or 0)
        self._set("zone", minutes_off * 60_000 * (-1 if found[1] == "-" else 1))
        return True

    def millis(self, *, add_century: bool) -> int:
        year = self.fields.get("y", 1970) + (100 if add_century else 0)
        if self.fields.get("G") == 0:
            year = 1 - year
        seconds = (self._hours() * 60 + self.fields.get("m", 0)) * 60 + self.fields.get("s", 0)
        of_day = seconds * 1000 + self.fields.get("S", 0)
        # Days that hours make belong to the date: they may lead into the other calendar.
        days, of_day = divmod(of_day, DAY_MILLIS)
        return self._days(year, days) * DAY_MILLIS + of_day - self.fields.get("zone", 0)

    def _hours(self) -> int:
        """Of the day, or else of half of it: what was set last."""
        halves = [self.order[name] for name in ("K", "a") if name in self.order]
        if "H" in self.order and (len(halves) < 2 or self.order["H"] > max(halves)):
            return self.fields["H"]
        return self.fields.get("K", 0) + 12 * self.fields.get("a", 0)

    def _days(self, year: int, more: int) -> int:
        month = self.fields.get("M", 0)
        if self.order.get("D", 0) > self.order.get("d", 0):
            return days_of(year, 0, 1) + self.fields["D"] - 1 + more
        if "d" not in self.fields and "E" in self.fields:
            first = days_of(year, month, 1)
            return first + (self.fields["E"] - (first + 4)) % 7 + more
        return days_of(year, month, self.fields.get("d", 1) + more)


def _as_int(whole: int, power: int) -> int:
    """`Number.intValue` of what DecimalFormat reads: a long, or else a double."""
    if abs(power) <= _MOST_POWER:
        scaled = whole * 10**power if power >= 0 else int(whole / 10**-power)
        if scaled in LONG:
            return (scaled + (1 << 31)) % (1 << 32) - (1 << 31)
    else:
        scaled = 0 if power < 0 or not whole else whole
    return max(_INT.start, min(_INT.stop - 1, scaled)) if scaled not in _INT else scaled


def _century_start() -> datetime:
    """A year of two digits is within 80 years before now and 20 after."""
    now = datetime.now(UTC)
    is_leap_day = (now.month, now.day) == (2, 29)
    return now.replace(year=now.year - 80, day=28 if is_leap_day and (now.year - 80) % 4 else now.day)


def _century_start_year() -> int:
    return _century_start().year


def _century_start_millis() -> int:
    return int(_century_start().timestamp() * 1000)
