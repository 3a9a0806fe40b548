"""Time zones on whole arrays: instants to local time and the beginning of their period, as Joda counts it.

A period begins at a multiple of its length in local time. Where daylight saving makes an hour twice, both are one period; where
an hour is missing and a period would begin in it, it begins where Joda says, which this follows to the letter.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Invalid, near_names
from playhead.pipeline.sinks.files.pattern import Moment

Numbers = npt.NDArray[np.int64]
DAY_MS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A year's width inside of what Python's calendar can hold: local times stay in it, too.
FIRST_MS, LAST_MS = -62_104_060_800_000, 253_370_764_800_000
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?")


def open_zone(name: str) -> "Zone":
    """A name of the tz database as Joda takes it (case counts), or an offset like +05:30."""
    if name in ("UTC", "Z"):
        return Zone("UTC", UTC)
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found[1], int(found[2]), int(found[3] or 0)
        if hours > 23 or minutes > 59:
            raise Invalid(f"{name!r} is no offset of a time zone", "use the form +05:30")
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
    """`_days`: what is known of a day of UTC: the offset at its begin, when it changes, and the offset after that."""

    name: str
    info: tzinfo
    _days: dict[int, tuple[int, int, int]] = field(default_factory=dict, compare=False, repr=False)

    def offset_ms(self, instant_ms: int) -> int:
        at = (EPOCH + timedelta(milliseconds=instant_ms)).astimezone(self.info)
        offset = at.utcoffset()
        assert offset is not None  # noqa: S101  an aware time has one
        return round(offset.total_seconds() * 1000)

    def offsets_ms(self, instants: Numbers) -> Numbers:
        """Of every instant: only days are looked up, and there are few of them."""
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
        low, high = start, end - 1  # the change is behind `low` and not behind `high`
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset_ms(middle) == before:
                low = middle
            else:
                high = middle
        return before, high, after

    def period_starts(self, instants: Numbers, length_ms: int) -> Numbers:
        """In local time, and not yet moved out of a missing hour. Java's division: towards 1970 from both sides."""
        local = instants + self.offsets_ms(instants)
        starts: Numbers = np.sign(local) * (np.abs(local) // length_ms) * length_ms
        return starts

    def moment(self, local_ms: int) -> Moment:
        """A local time as Joda takes it to UTC and back."""
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
