"""The text of a row that StringConverter writes: `Struct.toString`, with null fields left out.

Its values print themselves as the connector's Java objects do: `java.sql.Date`, `Time` and `Timestamp` in the worker's zone,
taken as UTC.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.pipeline.records.encode.faults import fault

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31


def write_struct(members: Sequence[tuple[str, Column]]) -> Column:
    named = (F.concat(F.lit(f"{name}="), value.cast("string")) for name, value in members)
    return F.concat(F.lit("Struct{"), F.concat_ws(",", *named), F.lit("}"))


def java_date(days: Column, name: str) -> Column:
    text = F.date_format(F.date_add(F.lit("1970-01-01").cast("date"), days), "yyyy-MM-dd")
    return F.when(~days.between(_FIRST_DAY, _LAST_DAY), _far(name)).otherwise(text)  # a null is no fault


def java_time(millis: Column) -> Column:
    """Only the time of day is printed, whatever the day."""
    return F.date_format(F.timestamp_millis(millis), "HH:mm:ss")


def java_timestamp(time: Column, name: str) -> Column:
    """At least one digit after the point, and no zeros at the end but that one."""
    text = F.date_format(time, "yyyy-MM-dd HH:mm:ss.SSSSSS")
    return F.when(text.rlike("^([+-]|0000)"), _far(name)).otherwise(F.regexp_replace(text, r"(\.\d+?)0+$", "$1"))


def _far(name: str) -> Column:
    """Java prints other years without a sign, so that they cannot be distinguished."""
    return fault(name, "holds a year before 1 or after 9999, which has no clear text: use JsonConverter")
