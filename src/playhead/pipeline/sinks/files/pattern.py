"""Joda's date patterns, as `path.format` has them: letters are fields, what stands in quotes is itself.

Numbers are written as Joda writes them. Words depend on Java's locale data: short names of months and days and AM/PM are known
for English locales, full names for `en` alone (Java writes short ones for `en-US` given this way). Eras and names of time zones
are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from playhead.errors import Invalid

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
    """What stands in quotes and where it ends; two quotes are one, and the last one may be missing."""
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
        raise Invalid(f"the letter {letter} writes words that differ from one Java to the next", "use numbers")
    raise Invalid(f"{letter!r} is no letter of a date pattern", "put plain text in single quotes")


def _word(letter: str, width: int, locale: str) -> Field:
    _check_english(letter * width, locale)
    is_full = width >= 4
    if is_full and locale != "en":
        raise Invalid(f"{letter * width} has full names in the locale en alone", f"use locale=en or {letter * 3}")
    names = [name if is_full else name[:3] for name in (MONTHS if letter == "M" else DAYS)]
    if letter == "M":
        return lambda moment: names[moment.local.month - 1]
    return lambda moment: names[moment.local.weekday()]


def _check_english(what: str, locale: str) -> None:
    if locale.replace("_", "-").lower().split("-")[0] != "en":
        raise Invalid(f"{what} writes words, and the Spark engine knows those of English alone", "use numbers")


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
