"""Connect's schemas -> Arrow's types: what is read of the JSON, and what becomes of it.

A decimal is an Arrow decimal with the precision of the schema (38 digits, or 76, if it has none). One that no Arrow
decimal holds, such as the scale of 127 that the JDBC source gives a numeric without precision, is a string with its exact digits.
Date, Time and Timestamp keep Connect's count of days and milliseconds, which for days before 1582-10-15 is Java's calendar.
"""

import pyarrow as pa

from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

_PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL = {DATE: pa.date32(), TIME: pa.time32("ms"), TIMESTAMP: pa.timestamp("ms", tz="UTC")}


def arrow_schema(schema: Schema, single: str = "") -> pa.Schema:
    """The columns of a struct; of any other value one column, named `single`."""
    if schema.is_struct:
        return pa.schema([_field(name, inner) for name, inner in schema.fields])
    return pa.schema([_field(single, schema)])


def arrow_type(schema: Schema) -> pa.DataType:
    """What is inside of others may always be null: Arrow has a null there where the whole is null, and Parquet would object."""
    if schema.name == DECIMAL:
        return decimal_type(schema)
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    if schema.is_struct:
        return pa.struct([(name, arrow_type(inner)) for name, inner in schema.fields])
    if schema.items is None:
        return _PLAIN[schema.type]
    items = arrow_type(schema.items)
    return pa.list_(items) if schema.keys is None else pa.map_(arrow_type(schema.keys), items)


def decimal_type(schema: Schema) -> pa.DataType:
    scale, precision = schema.parameter("scale", 0), schema.parameter("connect.decimal.precision", 0)
    if scale < 0 or max(scale, precision) > 76:
        return pa.string()
    if precision <= 0:
        precision = 38 if scale <= 38 else 76
    precision = max(precision, scale)
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def decimal_form(kind: pa.DataType) -> str:
    """The texts that a cast to `kind` reads. Arrow counts no digits of others: where they are too many, the number wraps."""
    whole = f"[0-9]{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale else "0"
    return f"^-?{whole}" + (rf"(\.[0-9]{{1,{kind.scale}}})?$" if kind.scale else "$")


def wire_type(schema: Schema, *, decimals_are_text: bool) -> pa.DataType | None:
    """The type of what stands in the JSON; None if such a value is not read by columns. A decimal is a number, or base64."""
    if schema.is_decimal and not decimals_are_text:
        made = decimal_type(schema)
        return made if pa.types.is_decimal128(made) else None
    if schema.type == "bytes":
        return pa.string()
    if schema.is_struct:
        inner = [(name, wire_type(one, decimals_are_text=decimals_are_text)) for name, one in schema.fields]
        return None if not inner or any(one is None for _, one in inner) else pa.struct(inner)
    if schema.items is None:
        return _PLAIN[schema.type]
    # In a list Arrow takes a text for a decimal number, too, and base64 may look like one.
    if schema.keys is not None or (not decimals_are_text and has_decimals(schema.items)):
        return None
    items = wire_type(schema.items, decimals_are_text=decimals_are_text)
    return None if items is None else pa.list_(items)


def has_decimals(schema: Schema) -> bool:
    inner = [one for _, one in schema.fields] + [one for one in (schema.keys, schema.items) if one]
    return schema.is_decimal or any(has_decimals(one) for one in inner)


def _field(name: str, schema: Schema) -> pa.Field:
    return pa.field(name, arrow_type(schema), schema.optional)
