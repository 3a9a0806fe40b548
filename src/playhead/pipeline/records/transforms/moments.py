"""TimestampConverter: one moment in another form. Everything goes through milliseconds, as in Kafka's transform.

A text as the source is refused: SimpleDateFormat reads more than a pattern says. As the target it may hold what both
SimpleDateFormat and Spark print alike, in the years in which their calendars agree.
"""

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.errors import Invalid
from playhead.pipeline.records.encode.faults import fault
from playhead.pipeline.records.encode.nodes import Leaf, Made, Node, Struct
from playhead.pipeline.records.encode.schema import DATE, TIME, TIMESTAMP, Schema
from playhead.pipeline.records.encode.times import MILLIS_PER_DAY
from playhead.pipeline.records.transforms import TimestampConverter

_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_FIRST_MILLIS, _END_MILLIS = -12_219_292_800_000, 253_402_300_800_000  # 1582-10-15 and the year 10000
_PER_MILLI = {"microseconds": 1000, "nanoseconds": 1_000_000}
_PER_SECOND = 1000


def convert_moment(name: str, node: Node, change: TimestampConverter) -> Leaf:
    if isinstance(node, Struct):
        raise Invalid(f"{name or 'the whole'} has fields and is no time", "name the field that is one")
    source, optional = node.schema.name, node.schema.optional
    if change.target == "Timestamp" and source == TIMESTAMP:
        return replace(node, schema=Schema("int64", optional, TIMESTAMP, 1))
    millis = _millis(name, node, change.unit)
    match change.target:
        case "unix":
            return Made(Schema("int64", optional), _unix(millis, change.unit))
        case "Timestamp":
            return Made(Schema("int64", optional, TIMESTAMP, 1), millis)
        case "Date":
            whole_days = millis - F.pmod(millis, _long(MILLIS_PER_DAY))
            return Made(Schema("int32", optional, DATE, 1), _divided(whole_days, MILLIS_PER_DAY).cast("int"))
        case "Time":
            return Made(Schema("int32", optional, TIME, 1), F.pmod(millis, _long(MILLIS_PER_DAY)).cast("int"))
        case _:
            return Made(Schema("string", optional), _text(name, millis, change.format))


def _millis(name: str, leaf: Leaf, unit: str) -> Column:
    schema, value = leaf.schema, leaf.json().cast("bigint") if leaf.schema.type in ("int32", "int64") else None
    if value is not None and schema.name in (TIMESTAMP, TIME):
        return value
    if value is not None and schema.name == DATE:
        return value * _long(MILLIS_PER_DAY)
    if value is None or schema.type != "int64" or schema.name is not None:
        raise Invalid(
            f"{name or 'the whole'} is a {schema.name or schema.type}, which the Spark engine reads no time from",
            "it takes Connect's Date, Time and Timestamp, and int64",
        )
    if unit == "seconds":
        return _times(value, _PER_SECOND)
    return _divided(value, _PER_MILLI[unit]) if unit in _PER_MILLI else value


def _unix(millis: Column, unit: str) -> Column:
    if unit == "seconds":
        return _divided(millis, _PER_SECOND)
    return _times(millis, _PER_MILLI[unit]) if unit in _PER_MILLI else millis


def _times(count: Column, factor: int) -> Column:
    """Java's TimeUnit stops at the ends of 64 bits."""
    return (
        F.when(count > _MOST // factor, _long(_MOST))
        .when(count < -(_MOST // factor), _long(_LEAST))
        .otherwise(count * _long(factor))
    )


def _divided(count: Column, divisor: int) -> Column:
    """Towards zero, as Java divides."""
    return F.call_function("div", count, _long(divisor))


def _text(name: str, millis: Column, pattern: str) -> Column:
    far = fault(name, "holds a time before 1582-10-15 or after 9999, whose text Spark prints in another way")
    outside = (millis < _FIRST_MILLIS) | (millis >= _END_MILLIS)
    return F.when(outside, far).otherwise(F.date_format(F.timestamp_millis(millis), pattern))


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")
