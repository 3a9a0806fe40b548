"""The day and the time of the clock that `java.util.GregorianCalendar` shows, as the connector writes them into a table.

Before 1582-10-15 that calendar is the Julian one. The connector sends its label, and PostgreSQL reads it as a day of its own
calendar, which is the Gregorian one for all times. Before 1900 Java's zones have only their offset of today.

Days count from 1970-01-01 and milliseconds from its midnight; a count is that of the label in PostgreSQL's calendar.
"""

from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.encode.zones import is_fixed, zone_of

DAY_MILLIS = 86_400_000
_GREGORIAN_DAY = -141_427  # 1582-10-15
MODERN_MILLIS = (_GREGORIAN_DAY + 1) * DAY_MILLIS  # from here on the calendars agree in every zone
_JULIAN_BEGIN = -719_470  # 1 March of the year 0 in the Julian calendar
_ZONES_BEGIN = -2_208_988_800_000  # 1900-01-01


def label_days(days: np.ndarray, zone: str) -> np.ndarray:
    """Of dates, each the midnight of UTC. An empty zone is UTC."""
    shown = local_days(days * DAY_MILLIS, zone) if zone else days
    made: np.ndarray = shown - _shifts(shown)
    return made


def label_millis(instants: np.ndarray, zone: str, *, keeps_zone: bool) -> np.ndarray:
    """Of timestamps. `keeps_zone`: the column is a timestamptz, so the offset is sent along with the label."""
    offsets = _offsets(instants, zone) if zone else 0
    label = instants + offsets
    made: np.ndarray = label - _shifts(label // DAY_MILLIS) * DAY_MILLIS - (offsets if keeps_zone else 0)
    return made


def has_no_label(days: np.ndarray) -> np.ndarray:
    """Whether a day is a 29 February that only the Julian calendar has. `days` are those of the zone, before any shift."""
    year, place = _julian(days)
    is_extra = ((year + 1) % 100 == 0) & ((year + 1) % 400 != 0)
    found: np.ndarray = (days < _GREGORIAN_DAY) & (place == 365) & is_extra
    return found


def local_days(instants: np.ndarray, zone: str) -> np.ndarray:
    found: np.ndarray = (instants + (_offsets(instants, zone) if zone else 0)) // DAY_MILLIS
    return found


def _shifts(days: np.ndarray) -> np.ndarray:
    if not len(days) or days.min() >= _GREGORIAN_DAY:
        return np.zeros(1, np.int64)
    year, _place = _julian(days)
    made: np.ndarray = np.where(days < _GREGORIAN_DAY, year // 100 - year // 400 - 2, 0)
    return made


def _julian(days: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Julian year, which begins in March, and the day within it."""
    count = days - _JULIAN_BEGIN
    year = (4 * count + 3) // 1461
    return year, count - 1461 * year // 4


def _offsets(instants: np.ndarray, zone: str) -> np.ndarray:
    known = np.maximum(instants, _ZONES_BEGIN)
    moments = pa.array(known, pa.timestamp("ms", zone.removeprefix("GMT") if is_fixed(zone) else zone))
    shown = pc.local_timestamp(moments).cast(pa.int64()).to_numpy()
    made: np.ndarray = np.where(instants < _ZONES_BEGIN, _standard_offset(zone), shown - known)
    return made


@lru_cache(maxsize=16)
def _standard_offset(zone: str) -> int:
    """Of today's rules, in milliseconds; summer time is always ahead of it."""
    places = [datetime(2024, month, 1, tzinfo=UTC).astimezone(zone_of(zone)).utcoffset() for month in (1, 7)]
    return min(int(place.total_seconds() * 1000) for place in places if place is not None)
