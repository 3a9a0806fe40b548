"""Dates and times counted as `java.util.GregorianCalendar` counts them, in both directions.

Before 1582-10-15 that calendar is the Julian one; that of PostgreSQL, SQLite and Arrow is the Gregorian one for all times, where
the same label is another day. Before 1900 Java's zones have only their offset of today. A wall time that a zone has twice is
standard time for Java, and one that it leaves out is counted with the offset before the gap.

Days count from 1970-01-01, milliseconds and microseconds from its midnight. A label is what a clock on the wall shows, as its
count in the Gregorian calendar. A connector of a sink sends the label of an instant, one of a source makes an instant of a label.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.encode.zones import is_fixed, zone_of

DAY_MILLIS = 86_400_000
DAY_MICROS = DAY_MILLIS * 1000
GREGORIAN_DAY = -141_427  # 1582-10-15
GREGORIAN_MICROS = GREGORIAN_DAY * DAY_MICROS
MODERN_MILLIS = (GREGORIAN_DAY + 1) * DAY_MILLIS  # from here on the calendars agree in every zone
JULIAN_BEGIN, GREGORIAN_BEGIN = -719_470, -719_468  # 1 March of the year 0 in each calendar
_ZONES_BEGIN = -2_208_988_800_000  # 1900-01-01
_STANDARD_OFFSETS = {"Africa/Windhoek": 3_600_000}  # for Java its time since 2017 is summer time without an end
_RULES_ONLY = 2_145_916_800_000  # 2038-01-01: from here on the last rule of a zone holds, which Arrow does not know
_CYCLE = 146_097 * DAY_MILLIS  # 400 years: then all days of the week, and with them all rules, come again
_CYCLE_BEGIN = 13_569_465_600_000  # 2400-01-01


YearOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def label_days(days: np.ndarray, zone: str) -> np.ndarray:
    """Of dates, each the midnight of UTC. An empty zone is UTC."""
    shown = local_days(days * DAY_MILLIS, zone) if zone else days
    made: np.ndarray = shown - _shifts(shown, julian_year)
    return made


def label_millis(instants: np.ndarray, zone: str, *, keeps_zone: bool) -> np.ndarray:
    """Of timestamps. `keeps_zone`: the column is a timestamptz, so the offset is sent along with the label."""
    offsets = _offsets(instants, zone) if zone else 0
    label = instants + offsets
    made: np.ndarray = label - _shifts(label // DAY_MILLIS, julian_year) * DAY_MILLIS - (offsets if keeps_zone else 0)
    return made


def has_no_label(days: np.ndarray) -> np.ndarray:
    """Whether a day is a 29 February that only the Julian calendar has. `days` are those of the zone, before any shift."""
    year, place = julian_year(days)
    is_extra = ((year + 1) % 100 == 0) & ((year + 1) % 400 != 0)
    found: np.ndarray = (days < GREGORIAN_DAY) & (place == 365) & is_extra
    return found


def local_days(instants: np.ndarray, zone: str) -> np.ndarray:
    found: np.ndarray = (instants + (_offsets(instants, zone) if zone else 0)) // DAY_MILLIS
    return found


def _shifts(days: np.ndarray, year_of: YearOf) -> np.ndarray:
    """Days between a label read as Julian and the same label read as Gregorian, for days before the change of calendars."""
    if not len(days) or days.min() >= GREGORIAN_DAY:
        return np.zeros(1, np.int64)
    year, _place = year_of(days)
    made: np.ndarray = np.where(days < GREGORIAN_DAY, year // 100 - year // 400 - 2, 0)
    return made


def julian_year(days: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Julian year, which begins in March, and the day within it."""
    count = days - JULIAN_BEGIN
    year = (4 * count + 3) // 1461
    return year, count - 1461 * year // 4


def _offsets(instants: np.ndarray, zone: str) -> np.ndarray:
    known = np.clip(instants, _ZONES_BEGIN, _RULES_ONLY)
    moments = pa.array(known, pa.timestamp("ms", _arrow_zone(zone)))
    shown = pc.local_timestamp(moments).cast(pa.int64()).to_numpy()
    made: np.ndarray = np.where(instants < _ZONES_BEGIN, _standard_offset(zone), shown - known)
    far = instants >= _RULES_ONLY
    if far.any():
        changes, offsets = _last_rules(zone)
        made[far] = offsets[np.searchsorted(changes, _in_cycle(instants[far]), side="right")]
    return made


def _label_offsets(labels: np.ndarray, zone: str) -> np.ndarray:
    known = np.clip(labels, _ZONES_BEGIN, _RULES_ONLY)
    walls = pa.array(known, pa.timestamp("ms"))
    found = pc.assume_timezone(walls, _arrow_zone(zone), ambiguous="latest", nonexistent="earliest")
    # A label that the zone leaves out was read as the last instant before the gap.
    shown = pc.local_timestamp(found).cast(pa.int64()).to_numpy()
    made: np.ndarray = np.where(
        labels < _ZONES_BEGIN, _standard_offset(zone), shown - found.cast(pa.int64()).to_numpy()
    )
    far = labels >= _RULES_ONLY
    if far.any():
        changes, offsets = _last_rules(zone)
        made[far] = offsets[np.searchsorted(changes + offsets[1:], _in_cycle(labels[far]), side="right")]
    return made


def _in_cycle(millis: np.ndarray) -> np.ndarray:
    made: np.ndarray = _CYCLE_BEGIN + (millis - _CYCLE_BEGIN) % _CYCLE
    return made


@lru_cache(maxsize=16)
def _last_rules(zone: str) -> tuple[np.ndarray, np.ndarray]:
    """The changes of offsets in the 400 years of the cycle, and the offset before the first and after each."""
    place = zone_of(zone)

    def offset(second: int) -> int:
        moment = datetime.fromtimestamp(second, UTC).astimezone(place).utcoffset()
        return 0 if moment is None else int(moment.total_seconds() * 1000)

    begin, step = _CYCLE_BEGIN // 1000, 28 * 86_400
    changes, offsets = [], [offset(begin)]
    for start in range(begin, begin + _CYCLE // 1000, step):
        if offset(start + step) == offsets[-1]:
            continue
        low, high = start, start + step  # between them is one change
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == offsets[-1] else (low, middle)
        changes.append(high * 1000)
        offsets.append(offset(high))
    return np.array(changes, np.int64), np.array(offsets, np.int64)


def _arrow_zone(zone: str) -> str:
    return zone.removeprefix("GMT") if is_fixed(zone) else zone


@lru_cache(maxsize=16)
def _standard_offset(zone: str) -> int:
    """Of the last rules that are known, in milliseconds; summer time is always ahead of it."""
    if zone in _STANDARD_OFFSETS:
        return _STANDARD_OFFSETS[zone]
    places = [datetime(2037, month, 1, tzinfo=UTC).astimezone(zone_of(zone)).utcoffset() for month in range(1, 13)]
    return min(int(place.total_seconds() * 1000) for place in places if place is not None)


# Labels -> instants


def counted_days(labels: np.ndarray) -> np.ndarray:
    """Of dates."""
    made: np.ndarray = labels + _shifts(labels, gregorian_year)
    return made


def counted_micros(labels: np.ndarray, zone: str) -> np.ndarray:
    """Of timestamps, whose labels are shown by a clock in `zone`. An empty zone is UTC."""
    made: np.ndarray = instants_of(labels, zone) + _shifts(labels // DAY_MICROS, gregorian_year) * DAY_MICROS
    return made


def instants_of(labels: np.ndarray, zone: str) -> np.ndarray:
    """In microseconds, without a change of calendars."""
    made: np.ndarray = labels - _label_offsets(labels // 1000, zone) * 1000 if zone else labels
    return made


def shown_micros(instants: np.ndarray, zone: str) -> np.ndarray:
    """The labels of instants, without a change of calendars."""
    made: np.ndarray = instants + _offsets(instants // 1000, zone) * 1000 if zone else instants
    return made


def label_years(labels: np.ndarray) -> np.ndarray:
    """The years of days; 0 is 1 BC."""
    year, place = gregorian_year(labels)
    made: np.ndarray = year + (place >= 306)
    return made


def gregorian_year(days: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Gregorian year, which begins in March, and the day within it."""
    count = days - GREGORIAN_BEGIN
    era = count // 146_097
    day = count - era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    return year + era * 400, day - (365 * year + year // 4 - year // 100)
