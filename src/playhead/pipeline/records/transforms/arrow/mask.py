"""MaskField: an empty value of the same type in place of the real one, or the replacement; null stays null."""

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Moment, Typed
from playhead.pipeline.records.javamaps import copied_map, hash_map
from playhead.pipeline.records.javanumbers import BITS, low_bits, nearest_double, parse_decimal, wrapped
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms import MaskField
from playhead.pipeline.records.transforms.arrow.cast import FLOATS
from playhead.pipeline.records.transforms.arrow.untyped import require_map
from playhead.pipeline.records.transforms.arrow.values import (
    Column,
    Failed,
    Made,
    columns_of,
    copied,
    filled,
    require_struct,
)
from playhead.pipeline.records.uniform import Leaf

_EMPTY: dict[str, Any] = {"boolean": False, **dict.fromkeys(BITS, 0), **dict.fromkeys(FLOATS, 0.0), "string": ""}
_DIGITS, _MOST_DIGITS = Context(prec=1_000), 500
_CLASSES = {np.int8: "int8", np.int16: "int16", np.int32: "int32", np.float32: "float"}


def mask(change: MaskField, values: Typed) -> Made:
    require_struct(values.schema)
    bad: dict[int, str] = {}
    columns = [
        _masked(column, change, bad) if column.name in change.fields else column
        for column in columns_of(values, nulls_take_default=change.nulls_take_default)
    ]
    made = copied(values.schema, columns, values.column)
    absent = values.column.is_null().to_numpy(zero_copy_only=False)
    nulls = {int(row): "it is null, and has no fields" for row in np.flatnonzero(absent)}
    return Made(made.values, {**made.bad, **bad, **nulls})


def _masked(column: Column, change: MaskField, bad: dict[int, str]) -> Column:
    is_given = column.values.is_valid()
    if column.values.null_count == len(column.values):
        return column
    try:
        if column.name in change.of_jdbc:
            _check_jdbc(column.schema, change.replacement)
        one = pa.array([_mask_of(column.schema, change.replacement)], arrow_type(column.schema))
    except Failed as error:
        for row in np.flatnonzero(is_given.to_numpy(zero_copy_only=False)):
            bad.setdefault(int(row), f"field {column.name!r} {error}")
        return column
    return column._replace(values=filled(column.values, is_given, one))


def _check_jdbc(schema: Schema, replacement: str | None) -> None:
    if pa.types.is_temporal(arrow_type(schema)):
        raise Failed(f"is a {schema.name} of the JDBC source, which cannot be masked")
    number = Decimal(0) if replacement is None else parse_decimal(replacement)
    if schema.is_decimal and number is not None and -int(number.as_tuple().exponent) != schema.parameter("scale", 0):
        raise Failed("is a decimal of another scale than its mask, which no converter can write")


def _mask_of(schema: Schema, replacement: str | None) -> object:
    if schema.is_decimal:
        return _decimal(schema, replacement)
    if pa.types.is_temporal(arrow_type(schema)) and replacement is None:
        return 0
    if schema.items is not None and replacement is None:
        return []
    if pa.types.is_temporal(arrow_type(schema)) or schema.type not in _EMPTY:
        raise Failed(
            f"is a {schema.name or schema.type}, which cannot be masked" + (" by a replacement" if replacement else "")
        )
    return _EMPTY[schema.type] if replacement is None else _replacement(schema.type, replacement)


def _decimal(schema: Schema, replacement: str | None) -> object:
    """With the scale of the schema: Kafka's own mask has the scale of the replacement, which no converter could write."""
    number = Decimal(0) if replacement is None else parse_decimal(replacement)
    scale, kind = schema.parameter("scale", 0), arrow_type(schema)
    if number is not None and number.adjusted() < _MOST_DIGITS:
        made = number.quantize(Decimal((0, (1,), -scale)), context=_DIGITS)
        fits = pa.types.is_string(kind) or len(made.as_tuple().digits) <= kind.precision
        if made == number and fits:
            return f"{made:f}" if pa.types.is_string(kind) else made
    raise Failed(f"is a decimal of scale {scale}, and the replacement {replacement!r} is none")


def _replacement(kind: str, text: str) -> object:
    if kind == "string":
        return text
    number = parse_decimal(text)
    if kind == "boolean" or number is None:
        raise Failed(f"is a {kind}, and the replacement {text!r} is none")
    if kind in FLOATS:
        return nearest_double(number) if kind == "double" else _narrowed(nearest_double(number))
    return wrapped(low_bits(number), BITS[kind])


def _narrowed(number: float) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(number)


def mask_untyped(change: MaskField, value: object) -> object:
    found = require_map(value)
    return copied_map(found, hash_map({name: _mask_one(found.get(name), change.replacement) for name in change.fields}))


def _mask_one(value: object, replacement: str | None) -> object:
    if value is None:
        return None
    if isinstance(value, Leaf):
        one = pa.array([_mask_of(value.schema, replacement)], arrow_type(value.schema))
        return Leaf(value.schema, filled(value.column, value.column.is_valid(), one))
    if isinstance(value, list | dict | Moment) and replacement is None:
        return Moment(0) if isinstance(value, Moment) else type(value)()
    if not isinstance(value, bool | int | float | str | np.integer | np.floating):
        raise Failed(f"a {type(value).__name__} cannot be masked" + (" by a replacement" if replacement else ""))
    kind = _kind(value)
    made: Any = _EMPTY[kind] if replacement is None else _replacement(kind, replacement)
    return type(value)(made) if type(value) in _CLASSES else made


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if type(value) in _CLASSES:
        return _CLASSES[type(value)]
    return "int64" if isinstance(value, int) else "double" if isinstance(value, float) else "string"
