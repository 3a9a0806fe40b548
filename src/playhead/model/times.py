"""Durations and times as text, and the one parser of the times that users give.

Times are read as Kafka's tools read them (`2026-01-31T08:00:00.000`, UTC without a zone), in plain ISO, with or without
milliseconds and zone, as milliseconds since 1970, and as how long ago: `1h`, `2d12h` or `PT1H30M`.
"""

import re
from datetime import UTC, datetime, timedelta

from playhead.errors import Invalid

_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.ASCII | re.IGNORECASE
)
_SHORT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,9})?)s)?", re.ASCII | re.IGNORECASE)
_LONGEST_SECONDS = 1000 * 366 * 24 * 3600.0
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(?P<zone>Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)
_EPOCH_MS = re.compile(r"\d{12,14}", re.ASCII)  # from 1973 to 5138; ten digits are seconds
_FORMS = "write it as 2026-01-31T08:00:00.000 (UTC, or with a zone like +09:00), as how long ago (1h, 2d12h, PT1H30M)"


def in_words(seconds: float | None) -> str:
    """The two largest units: `3m 5s`, `2d 4h`."""
    if seconds is None:
        return "-"
    rest = int(seconds)
    if rest < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if rest >= size or parts:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return " ".join(parts[:2])


def to_iso(moment: datetime) -> str:
    """UTC with milliseconds: `2026-11-15T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment(text: str) -> datetime | timedelta:
    """A time, or how long ago."""
    given = text.strip()
    if _EPOCH_MS.fullmatch(given):
        return datetime.fromtimestamp(int(given) / 1000, UTC)
    if (ago := _find_duration(given)) is not None:
        return ago
    return parse_time(given)


def is_ago(text: str) -> bool:
    return _find_duration(text.strip()) is not None


def with_date_of(begin: datetime | None, text: str) -> str:
    """The end of a window that begins there: a time without a date gets the date of `begin`, and its zone unless it has one."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return text
    if begin is None:
        raise Invalid(
            f"{text!r} has no date", "write it with its date; only the end of a window takes that of its beginning"
        )
    return f"{begin:%Y-%m-%d}T{text.strip()}{'' if found['zone'] else f'{begin:%z}'}"


def parse_time(text: str) -> datetime:
    try:
        if not _TIME.fullmatch(text.strip()):
            raise ValueError("not that form")
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        reason = "" if str(error) == "not that form" else f" ({error})"
        raise Invalid(
            f"{text!r} is not a time{reason}", f"{_FORMS}, or as milliseconds since 1970 (1769846400000)"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def parse_duration(text: str) -> timedelta:
    found = _find_duration(text.strip())
    if found is None:
        raise Invalid(
            f"{text!r} is not a duration", "write it like 1h, 2d12h or PnDTnHnMnS: PT1H30M is an hour and a half"
        )
    return found


def _find_duration(text: str) -> timedelta | None:
    found = _DURATION.fullmatch(text) or _SHORT.fullmatch(text)
    if not found or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total > _LONGEST_SECONDS:
        raise Invalid(f"{text!r} reaches back more than a thousand years")
    return timedelta(seconds=total)
