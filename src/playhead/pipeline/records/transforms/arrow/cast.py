"""Cast: a value as another type, the way Java's `Number` and its parsers do it.

A whole number that does not fit loses its upper bits, a fraction loses what is after the point, and a floating point number
that is too large becomes the largest there is: none of it is an error to Java. A text that is no number is.
"""

import base64
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.connect.javajson import java_double, java_float
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Typed
from playhead.pipeline.records.floattext import float_texts
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.javamaps import copied_map, hash_map
from playhead.pipeline.records.javanumbers import (
    BITS,
    low_bits,
    nearest_double,
    nearest_float,
    parse_double,
    parse_float,
    parse_whole,
    whole_of,
    wrapped,
)
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema
from playhead.pipeline.records.transforms import Cast
from playhead.pipeline.records.transforms.arrow.untyped import require_map
from playhead.pipeline.records.transforms.arrow.values import (
    BadRows,
    Column,
    Failed,
    Made,
    columns_of,
    copied,
    default_array,
    has_default,
    require_struct,
    struct_schema,
)
from playhead.pipeline.records.uniform import Leaf

FLOATS = ("float", "double")
_NUMPY = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "float": np.float32,
    "double": np.float64,
}
_SIMPLE = {"whole": r"^-?[0-9]{1,18}$", "number": r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"}
_DIGITS = Context(prec=1_000)
_LOGICAL = (DECIMAL, DATE, TIME, TIMESTAMP)
_TIME_TEXT, _DATE_TEXT = DateFormat.of("HH:mm:ss.SSS'Z'"), DateFormat.of("yyyy-MM-dd")
_TIMESTAMP_TEXT = DateFormat.of("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def cast(change: Cast, values: Typed) -> Made:
    """No value is null."""
    if change.whole is not None:
        return _whole(change.whole, values)
    require_struct(values.schema)
    bad: dict[int, str] = {}
    columns = []
    for column in columns_of(values, nulls_take_default=change.nulls_take_default):
        target = change.fields.get(column.name)
        columns.append(column if target is None else _field(column, target, bad))
    schema = struct_schema(values.schema, [(one.name, one.schema) for one in columns])
    made = copied(replace(schema, optional=values.schema.optional), columns, values.column)
    return Made(made.values, {**made.bad, **bad})


def _field(column: Column, target: str, bad: dict[int, str]) -> Column:
    schema = _with_cast_default(Schema(target, column.schema.optional), column.schema)
    values, wrong = cast_column(column.values, column.schema, target)
    for row, why in wrong.items():
        bad.setdefault(row, f"field {column.name!r} {why}")
    return Column(column.name, schema, values)


def _whole(target: str, values: Typed) -> Made:
    like = values.schema
    if like.name in _LOGICAL:
        raise Failed(f"it would still be called a {like.name}, which no converter could write")
    schema = Schema(target, like.optional, like.name, like.version, like.doc, like.parameters)
    made, bad = cast_column(values.column, like, target)
    return Made(Typed(_with_cast_default(schema, like), made), {row: f"it {why}" for row, why in bad.items()})


def _with_cast_default(schema: Schema, like: Schema) -> Schema:
    if like.default is None:
        return schema
    made, bad = cast_column(default_array(like), like, schema.type)
    if bad:
        raise Failed(f"the default of its schema {bad[0]}")
    value = made[0].as_py()
    if schema.type in FLOATS:
        text = java_double(value) if schema.type == "double" else java_float(np.float32(value))
        value = float(text) if np.isfinite(value) else text
    return has_default(schema, value)


def cast_column(values: pa.Array, schema: Schema, target: str) -> tuple[pa.Array, BadRows]:
    """Null stays null."""
    wanted = arrow_type(Schema(target))
    if values.null_count == len(values):
        return pa.nulls(len(values), wanted), {}
    if schema.is_struct or schema.items is not None:
        return _all_bad(values, wanted, f"is a {schema.type}, which cannot be cast")
    if target == "string":
        return _texts(values, schema), {}
    if schema.type == "bytes":
        if schema.is_decimal:
            return _each(values, wanted, lambda value: _of_decimal(Decimal(value), target))
        return _all_bad(values, wanted, "is bytes, which can be cast to string only")
    if schema.type == "string":
        return _of_texts(values, target, wanted)
    return _of_numbers(values, target, wanted), {}


def _all_bad(values: pa.Array, wanted: pa.DataType, why: str) -> tuple[pa.Array, BadRows]:
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return pa.nulls(len(values), wanted), {int(row): why for row in rows}


def _each(values: pa.Array, wanted: pa.DataType, change: Callable[[Any], Any]) -> tuple[pa.Array, BadRows]:
    """One by one: decimals, and texts that are not plain numbers."""
    made: list[Any] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            made.append(None if value is None else change(value))
        except Failed as error:
            made.append(None)
            bad[row] = str(error)
    return pa.array(made, wanted), bad


# From numbers


def _of_numbers(values: pa.Array, target: str, wanted: pa.DataType) -> pa.Array:
    is_null = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type != pa.timestamp("ms", tz="UTC") else pa.int64())
    filled = values if is_null is None else values.fill_null(False if pa.types.is_boolean(values.type) else 0)
    numbers = filled.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        if target == "boolean":
            is_float = numbers.dtype.kind == "f"
            made = (numbers >= 1) | (numbers <= -1) if is_float else numbers != 0
        elif target in FLOATS or numbers.dtype == bool:
            made = numbers.astype(_NUMPY[target])
        else:
            made = _whole_numbers(numbers, 64 if target == "int64" else 32).astype(_NUMPY[target])
    return pa.array(made, wanted, mask=is_null)


def _whole_numbers(numbers: np.ndarray, bits: int) -> np.ndarray:
    """int64, as Java's `(int)` and `(long)` make it of a float."""
    if numbers.dtype.kind != "f":
        return numbers.astype(np.int64)
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    doubles = numbers.astype(np.float64)
    inside = np.where((doubles > low) & (doubles < high), doubles, 0).astype(np.int64)
    return np.where(doubles >= high, high, np.where(doubles <= low, low, inside))


def _of_decimal(number: Decimal, target: str) -> object:
    if target == "float":
        return nearest_float(number)
    if target == "double":
        return nearest_double(number)
    return low_bits(number) != 0 if target == "boolean" else wrapped(low_bits(number), BITS[target])


# From texts


def _of_texts(values: pa.Array, target: str, wanted: pa.DataType) -> tuple[pa.Array, BadRows]:
    if target == "boolean":
        return pc.equal(pc.ascii_lower(values), "true"), {}
    form = _SIMPLE["number" if target in FLOATS else "whole"]
    if pc.all(pc.match_substring_regex(values, form)).as_py():
        try:
            return values.cast(wanted), {}
        except pa.ArrowInvalid:
            pass  # out of range: which one is found below
    return _each(values, wanted, lambda text: _of_text(text, target))


def _of_text(text: str, target: str) -> object:
    made: object
    if target in FLOATS:
        made = parse_double(text) if target == "double" else parse_float(text)
    else:
        made = parse_whole(text, BITS[target])
    if made is None:
        raise Failed(f"holds the text {text[:40]!r}, which is no {target}")
    return made


# To texts


def _texts(values: pa.Array, schema: Schema) -> pa.Array:
    if pa.types.is_temporal(values.type):
        return _moment_texts(values)
    if schema.is_decimal:
        unit = Decimal((0, (1,), -schema.parameter("scale", 0)))
        return _each(values, pa.string(), lambda value: str(Decimal(value).quantize(unit, context=_DIGITS)))[0]
    if schema.type == "bytes":
        return _each(values, pa.string(), lambda value: base64.b64encode(value).decode())[0]
    return float_texts(values) if schema.type in FLOATS else values.cast(pa.string())


def _moment_texts(values: pa.Array) -> pa.Array:
    """What Connect's `Values` writes: a time before 1970-01-02, a date at midnight, else both."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    counts = values.cast(pa.int64() if pa.types.is_timestamp(values.type) else pa.int32()).fill_null(0)
    millis = counts.to_numpy(zero_copy_only=False).astype(np.int64) * (
        DAY_MILLIS if pa.types.is_date(values.type) else 1
    )
    is_time, is_date = millis < DAY_MILLIS, millis % DAY_MILLIS == 0
    texts = pc.case_when(
        pa.StructArray.from_arrays([pa.array(is_null), pa.array(is_time), pa.array(is_date)], ["null", "time", "date"]),
        pa.nulls(len(values), pa.string()),
        _TIME_TEXT.format(millis),
        _DATE_TEXT.format(millis),
        _TIMESTAMP_TEXT.format(millis),
    )
    return texts.cast(pa.string())


# Without a schema


def cast_untyped(change: Cast, value: object) -> object:
    if value is None:
        return None
    if change.whole is not None:
        return _cast_one(value, change.whole)
    found = require_map(value)
    casts = {name: _cast_one(found.get(name), target) for name, target in change.fields.items()}
    return copied_map(found, hash_map(casts))


def _cast_one(value: object, target: str) -> object:
    if value is None:
        return None
    if isinstance(value, Leaf):
        return _cast_leaf(value, target)
    if target == "string":
        return _text_of(value)
    made: Any
    if isinstance(value, str):
        made = value.lower() == "true" if target == "boolean" else _of_text(value, target)
    elif isinstance(value, bool | int | float | np.integer | np.floating):
        made = _number_as(value, target)
    else:
        raise Failed(f"a {type(value).__name__} cannot be cast to {target}")
    return made if target in ("int64", "double", "boolean") else _NUMPY[target](made)


def _cast_leaf(leaf: Leaf, target: str) -> Leaf:
    made, bad = cast_column(leaf.column, leaf.schema, target)
    if bad or leaf.is_moment:
        raise Failed("one of them cannot be cast")
    return Leaf(Schema(target, True), made)


def _number_as(value: "float | np.integer[Any] | np.floating[Any]", target: str) -> object:
    is_whole = isinstance(value, int | np.integer)
    if target in FLOATS:
        with np.errstate(over="ignore"):
            return (
                float(value) if target == "double" else (np.int64 if is_whole else np.float64)(value).astype(np.float32)
            )
    if target == "boolean":
        return (int(value) if is_whole else whole_of(float(value), 64)) != 0
    return wrapped(int(value) if is_whole else whole_of(float(value), 64 if target == "int64" else 32), BITS[target])


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | np.integer | str):
        return str(value)
    if isinstance(value, np.float32):
        return java_float(value)
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise Failed(f"a {type(value).__name__} without a schema cannot be cast to string")
