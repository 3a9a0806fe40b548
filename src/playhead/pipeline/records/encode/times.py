"""Dates and times as columns of Spark, counted the way `java.util.GregorianCalendar` counts.

Before 1582-10-15 Java's calendar is the Julian one, Spark's and PostgreSQL's are not: the same label is another day. A wall time
that a zone has twice is standard time for Java, summer time for Spark. Before 1900 Java's zones have only their raw offset.
"""

from collections.abc import Callable
from typing import Any, cast

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from playhead.pipeline.records.encode.faults import fault

INFINITE_DAY = 2**31 - 1  # what a read gives in place of an infinite date
INFINITE_TIME = "290000-01-01 00:00:00"  # ... and of an infinite timestamp: no clock gets there
INFINITE_MILLIS = 9_089_348_860_800_000  # the same instant
_TOO_FAR = ": none after the year 289999 can"
MILLIS_PER_DAY = 86_400_000
_GREGORIAN_DAY = -141_427
_GAP_DAYS = (
    10  # the labels 1582-10-05 to 14 do not exist for Java, which reads them as Julian and prints them as Gregorian
)
GREGORIAN_TIME = "1582-10-15 00:00:00"
_ZONES_BEGIN = "1900-01-01 00:00:00"
Zoned = Callable[[Column], Column]


def timestamp(text: str) -> Column:
    return F.lit(text).cast("timestamp")


def hybrid_days(days: Column, name: str) -> Column:
    """Connect's Date, from days since the epoch in the proleptic Gregorian calendar."""
    older = days + _julian_shift(F.date_add(F.lit("1970-01-01").cast("date"), days))
    return F.when(days < _GREGORIAN_DAY, older).otherwise(finite_days(days, name))


def hybrid_millis(time: Column, zoned: Zoned, name: str) -> Column:
    """Connect's Timestamp: milliseconds since the epoch, rounded down. `zoned` turns the wall time into the instant."""
    return _hybrid(time, F.unix_millis(zoned(time)), MILLIS_PER_DAY, name)


def hybrid_micros(time: Column, zoned: Zoned, name: str) -> Column:
    return _hybrid(time, F.unix_micros(zoned(time)), MILLIS_PER_DAY * 1000, name)


def _hybrid(time: Column, count: Column, units_per_day: int, name: str) -> Column:
    older = count + _julian_shift(time.cast("date")) * F.lit(units_per_day).cast("bigint")
    is_infinite = time >= timestamp(INFINITE_TIME)
    return (
        F.when(time < timestamp(GREGORIAN_TIME), older).when(is_infinite, _infinite(name, "timestamp")).otherwise(count)
    )


def printed_days(days: Column, name: str) -> Column:
    """The day whose label in the proleptic Gregorian calendar is the one that Java prints."""
    is_gap = (days < _GREGORIAN_DAY) & (days >= _GREGORIAN_DAY - _GAP_DAYS)
    return F.when(is_gap, days + _GAP_DAYS).otherwise(finite_days(days, name))


def printed_time(time: Column, zoned: Zoned, name: str) -> Column:
    """The timestamp whose label is the one that Java prints in UTC. `zoned` may move it over the end of the Julian calendar, or
    to a 29 February that only the Julian calendar has and no timestamp here can express."""
    begin, gap = timestamp(GREGORIAN_TIME), F.expr(f"INTERVAL {_GAP_DAYS} DAYS")
    label = zoned(finite_time(time, name))
    shift, shift_after = _julian_shift(time.cast("date")), _julian_shift(label.cast("date"))
    instant = F.when(time < begin, label + F.make_dt_interval(shift)).otherwise(label)
    odd = fault(name, "holds a timestamp that db.timezone moves over 29 February of a Julian year: use JsonConverter")
    return (
        F.when(instant >= begin, instant)
        .when(time >= begin, instant - gap)
        .when(shift != shift_after, odd)
        .otherwise(label)
    )


def finite_days(days: Column, name: str) -> Column:
    return F.when(days == INFINITE_DAY, _infinite(name, "date")).otherwise(days)


def finite_time(time: Column, name: str) -> Column:
    return F.when(time >= timestamp(INFINITE_TIME), _infinite(name, "timestamp")).otherwise(time)


def _infinite(name: str, what: str) -> Column:
    return fault(name, f"holds a {what} that is infinite or cannot be read{_TOO_FAR if what == 'timestamp' else ''}")


def _julian_shift(date: Column) -> Column:
    """Days between a label read as Julian and the same label read as Gregorian; years begin in March, after the leap day."""
    year = F.year(F.add_months(date, -2))
    return (F.floor(year / 100) - F.floor(year / 400) - 2).cast("int")


def no_zone(time: Column) -> Column:
    return time


def in_zone(zone: str) -> Zoned:
    """Wall time in `zone` -> the instant, as `java.util.Calendar` has it."""
    if zone.upper() in ("UTC", "GMT", "Z", "ETC/UTC"):
        return no_zone
    jvm = cast("Any", SparkSession.active().sparkContext._jvm)
    java_zone = jvm.java.util.TimeZone.getTimeZone(zone)
    raw_millis = java_zone.getOffset(-(10**14))
    day = F.expr("INTERVAL 1 DAY")

    def zoned(time: Column) -> Column:
        earlier = F.to_utc_timestamp(time, zone)
        later = F.to_utc_timestamp(time + day, zone) - day
        is_twice = (later > earlier) & (F.from_utc_timestamp(later, zone) == time)
        before_zones = F.timestamp_micros(F.unix_micros(time) - F.lit(raw_millis).cast("bigint") * 1000)
        return F.when(time < timestamp(_ZONES_BEGIN), before_zones).when(is_twice, later).otherwise(earlier)

    return zoned


def millis_of_time(text: Column, zoned: Zoned) -> Column:
    """Milliseconds since the epoch of a time on 1970-01-01, in UTC; that may be the day before or after."""
    wall = F.substring_index(text, " ", 1)
    seconds = (_two_digits(wall, 1) * 60 + _two_digits(wall, 4)) * 60
    fraction = F.floor(F.substring(wall, 7, 9).cast("decimal(8,6)") * 1000).cast("bigint")
    offset = F.when(F.instr(text, " ") > 0, F.substring_index(text, " ", -1)).otherwise("0").cast("bigint")
    millis = seconds * 1000 + fraction - offset * 1000
    return F.unix_millis(zoned(F.timestamp_millis(millis)))


def millis_of_day(text: Column, zoned: Zoned, name: str) -> Column:
    """Connect's Time, from `HH:MM:SS.ffffff`, with the seconds of its own offset after a blank if it has one."""
    shifted = millis_of_time(text, zoned)
    outside = fault(name, "holds a time that is on another day in UTC, which Connect cannot write")
    return F.when((shifted < 0) | (shifted > MILLIS_PER_DAY), outside).otherwise(shifted).cast("int")


def _two_digits(text: Column, at: int) -> Column:
    return F.substring(text, at, 2).cast("bigint")
