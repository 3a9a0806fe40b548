"""`timestamp.granularity`: the forms in which Connect's JDBC source writes a timestamp.

The finer forms of the connector are wrong for some old values: it loses a second before 1970, it overflows, and its ISO texts
mix two calendars before 1582-10-15. Such a value ends the task here; `connect_logical` has room for all of them.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.pipeline.records.encode.faults import fault
from playhead.pipeline.records.encode.times import (
    GREGORIAN_TIME,
    finite_time,
    hybrid_micros,
    hybrid_millis,
    in_zone,
    no_zone,
    timestamp,
)

_MOST_MICROS_AS_NANOS = (2**63 - 1) // 1000
_HINT = "use timestamp.granularity=connect_logical"


def write_timestamp(time: Column, granularity: str, zone: str, *, is_zoned: bool, name: str) -> Column:
    """`is_zoned`: the column itself is an instant. Otherwise it is a wall time in `zone`."""
    zoned = no_zone if is_zoned else in_zone(zone)
    if granularity == "connect_logical":
        return hybrid_millis(time, zoned, name)
    if "iso" in granularity:
        return _iso(zoned(time), time, granularity, zone, name)
    micros = _exact_micros(hybrid_micros(time, zoned, name), name)
    count = micros if granularity.startswith("micros") else _nanos(micros, name)
    return count.cast("string") if granularity.endswith("string") else count


def _exact_micros(micros: Column, name: str) -> Column:
    millis = F.floor(micros / 1000)
    wrong = fault(name, f"holds a timestamp before 1970 that Connect would write one second too late: {_HINT}")
    return F.when((micros < 0) & (millis % 1000 != 0), wrong).otherwise(micros)


def _nanos(micros: Column, name: str) -> Column:
    too_far = fault(name, f"holds a timestamp whose nanoseconds do not fit 64 bits: {_HINT}")
    return F.when(F.abs(micros) > _MOST_MICROS_AS_NANOS, too_far).otherwise(micros * 1000)


def _iso(instant: Column, time: Column, granularity: str, zone: str, name: str) -> Column:
    old = fault(name, f"holds a timestamp before 1582-10-15, whose label Connect would shift: {_HINT}")
    pattern = "yyyy-MM-dd'T'HH:mm:ss." + ("SSSSSS" if granularity.startswith("micros") else "SSSSSSSSS")
    text = F.date_format(F.from_utc_timestamp(finite_time(instant, name), zone), pattern)
    return F.when(time < timestamp(GREGORIAN_TIME), old).otherwise(text)
