"""TimestampConverter: one moment in another form. Everything goes through milliseconds, as in Kafka's transform."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Moment, Typed
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.javamaps import copied_map
from playhead.pipeline.records.schema import DATE, TIME, TIMESTAMP, Schema
from playhead.pipeline.records.transforms import TimestampConverter
from playhead.pipeline.records.transforms.arrow.untyped import require_map
from playhead.pipeline.records.transforms.arrow.values import (
    BadRows,
    Column,
    Failed,
    Made,
    columns_of,
    copied,
    require_struct,
    struct_schema,
)
from playhead.pipeline.records.uniform import MOMENT, Leaf

_SCHEMAS = {
    "string": Schema("string"),
    "unix": Schema("int64"),
    "Date": Schema("int32", False, DATE, 1),
    "Time": Schema("int32", False, TIME, 1),
    "Timestamp": Schema("int64", False, TIMESTAMP, 1),
}
_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_DAYS = range(-(1 << 31), 1 << 31)


def convert(change: TimestampConverter, values: Typed) -> Made:
    if not change.field:
        _check_source(values.schema)
        made, bad = _converted(change, values.column, values.schema)
        schema = replace(_SCHEMAS[change.target], optional=values.schema.optional)
        return Made(Typed(schema, made), {row: f"it {why}" for row, why in bad.items()})
    require_struct(values.schema)
    faults: dict[int, str] = {}
    columns = [
        _field(change, column, values.column, faults) if column.name == change.field else column
        for column in columns_of(values, nulls_take_default=change.nulls_take_default)
    ]
    schema = struct_schema(values.schema, [(one.name, one.schema) for one in columns])
    schema = replace(schema, optional=values.schema.optional)
    whole = copied(schema, columns, values.column)
    return Made(whole.values, {**whole.bad, **faults})


def _field(change: TimestampConverter, column: Column, whole: pa.Array, faults: dict[int, str]) -> Column:
    schema = replace(_SCHEMAS[change.target], optional=column.schema.optional)
    bad: BadRows
    try:
        _check_source(column.schema)
        made, bad = _converted(change, column.values, column.schema)
    except Failed as error:
        made = pa.nulls(len(column.values), arrow_type(schema))
        given = np.flatnonzero(whole.is_valid().to_numpy(zero_copy_only=False))
        bad = {int(row): str(error) for row in given}
    faults.update({row: f"field {column.name!r} {why}" for row, why in bad.items()})
    return Column(column.name, schema, made)


def _check_source(schema: Schema) -> None:
    if schema.name not in (DATE, TIME, TIMESTAMP) and schema.type not in ("string", "int64"):
        raise Failed(f"is a {schema.name or schema.type}, which is no form of a moment")


def _converted(change: TimestampConverter, values: pa.Array, schema: Schema) -> tuple[pa.Array, BadRows]:
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    wanted = arrow_type(_SCHEMAS[change.target])
    if is_null.all():
        return pa.nulls(len(values), wanted), {}
    millis, is_bad = _millis(change, values, schema, is_null)
    bad = {int(row): _not_read(change) for row in np.flatnonzero(is_bad)}
    made, is_far = _of_millis(change, millis)
    far = {int(row): "is too far away for a date" for row in np.flatnonzero(is_far & ~is_null & ~is_bad)}
    if isinstance(made, np.ndarray):
        made = pa.array(np.where(is_far, 0, made), pa.int64(), mask=is_null)
        if change.target in ("Date", "Time"):
            made = made.cast(pa.int32())
        return made.cast(wanted), {**bad, **far}
    places = np.where(is_null, -1, np.arange(len(values)))
    return made.take(pa.array(places, mask=is_null)), {**bad, **far}


def _not_read(change: TimestampConverter) -> str:
    return (
        f"is a text that is not of the format {change.format!r}"
        if change.format.strip()
        else "is a text, and there is no format"
    )


def _millis(
    change: TimestampConverter, values: pa.Array, schema: Schema, is_null: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """And which of them cannot be read."""
    if schema.type == "string":
        millis, is_bad = np.zeros(len(values), np.int64), ~is_null
        if change.format.strip():
            read, unread = DateFormat.of(change.format).parse(values.drop_null())
            millis[~is_null], is_bad[~is_null] = read, unread
        return millis, is_bad
    counts = values.cast(pa.int64() if schema.type == "int64" else pa.int32()).fill_null(0)
    numbers = counts.to_numpy(zero_copy_only=False).astype(np.int64)
    if schema.name == DATE:
        numbers = numbers * DAY_MILLIS
    elif schema.type == "int64" and schema.name != TIMESTAMP:
        numbers = _from_unit(numbers, change.unit)
    return numbers, np.zeros(len(values), bool)


def _from_unit(numbers: np.ndarray, unit: str) -> np.ndarray:
    if unit == "seconds":
        return _times(numbers, 1000)
    return _divided(numbers, {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}[unit])


def _to_unit(millis: np.ndarray, unit: str) -> np.ndarray:
    if unit == "seconds":
        return _divided(millis, 1000)
    return _times(millis, {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}[unit])


def _times(numbers: np.ndarray, factor: int) -> np.ndarray:
    """As `TimeUnit` does it: what is too large becomes the largest there is."""
    if factor == 1:
        return numbers
    most = _MOST // factor
    inside = np.where((numbers >= -most) & (numbers <= most), numbers, 0) * factor
    return np.where(numbers > most, _MOST, np.where(numbers < -most, _LEAST, inside))


def _divided(numbers: np.ndarray, by: int) -> np.ndarray:
    """Toward zero."""
    is_up = (numbers % by != 0) & (numbers < 0)
    made: np.ndarray = numbers // by + is_up
    return made


def _of_millis(change: TimestampConverter, millis: np.ndarray) -> tuple[Any, np.ndarray]:
    """Numbers or texts, and which of them have no room in the target."""
    none = np.zeros(len(millis), bool)
    match change.target:
        case "string":
            return DateFormat.of(change.format).format(millis), none
        case "unix":
            return _to_unit(millis, change.unit), none
        case "Date":
            days = millis // DAY_MILLIS
            return days, (days < _DAYS.start) | (days >= _DAYS.stop)
        case "Time":
            return millis % DAY_MILLIS, none
        case _:
            return millis, none


# Without a schema


def convert_untyped(change: TimestampConverter, value: object) -> object:
    if value is None or not change.field:
        return _convert_one(change, value)
    found = require_map(value)
    return copied_map(found, {change.field: _convert_one(change, found.get(change.field))})


def _convert_one(change: TimestampConverter, value: object) -> object:
    if value is None:
        return None
    if isinstance(value, Leaf):
        return _convert_leaf(change, value)
    if isinstance(value, Moment):
        millis = value.millis
    elif isinstance(value, str):
        read = DateFormat.of(change.format).parse_one(value) if change.format.strip() else None
        if read is None:
            raise Failed(f"it {_not_read(change)}")
        millis = read
    elif type(value) is int:
        millis = int(_from_unit(np.array([value]), change.unit)[0])
    else:
        raise Failed(f"a {type(value).__name__} without a schema is no form of a moment")
    made = _of_millis(change, np.array([millis]))[0]
    if change.target == "string":
        return made[0].as_py()
    number = int(made[0])
    return number if change.target == "unix" else Moment(number * DAY_MILLIS if change.target == "Date" else number)


def _convert_leaf(change: TimestampConverter, leaf: Leaf) -> Leaf:
    _check_source(leaf.schema)
    is_null = leaf.column.is_null().to_numpy(zero_copy_only=False)
    millis, is_bad = _millis(change, leaf.column, leaf.schema, is_null)
    if is_bad.any():
        raise Failed(f"it {_not_read(change)}")
    made, _ = _of_millis(change, millis)
    if change.target == "string":
        return Leaf(Schema("string", True), made.take(pa.array(np.arange(len(made)), mask=is_null)))
    counts = pa.array(made * DAY_MILLIS if change.target == "Date" else made, pa.int64(), mask=is_null)
    return (
        Leaf(Schema("int64", True), counts)
        if change.target == "unix"
        else Leaf(MOMENT, counts.cast(arrow_type(MOMENT)))
    )
