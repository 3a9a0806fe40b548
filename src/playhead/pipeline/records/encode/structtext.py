"""The text of a row that StringConverter writes: `Struct.toString`, with null fields left out.

Its values print themselves as the connector's Java objects do: `java.sql.Date`, `Time` and `Timestamp` in the worker's zone,
taken as UTC.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.pipeline.records.encode.faults import fault


def write_struct(members: Sequence[tuple[str, Column]]) -> Column:
    named = (F.concat(F.lit(f"{name}="), value.cast("string")) for name, value in members)
    return F.concat(F.lit("Struct{"), F.concat_ws(",", *named), F.lit("}"))


def java_date(days: Column, name: str) -> Column:
    return _of_four_digits(F.date_format(F.date_add(F.lit("1970-01-01").cast("date"), days), "yyyy-MM-dd"), name)


def java_time(millis: Column) -> Column:
    return F.date_format(F.timestamp_millis(millis), "HH:mm:ss")


def java_timestamp(time: Column, name: str) -> Column:
    """At least one digit after the point, and no zeros at the end but that one."""
    text = F.date_format(time, "yyyy-MM-dd HH:mm:ss.SSSSSS")
    return _of_four_digits(F.regexp_replace(text, r"(\.\d+?)0+$", "$1"), name)


def _of_four_digits(text: Column, name: str) -> Column:
    """Java prints other years without a sign, so that they cannot be distinguished."""
    far = fault(name, "holds a year before 1 or after 9999, which has no clear text: use JsonConverter")
    return F.when(text.rlike("^[+-]"), far).otherwise(text)
