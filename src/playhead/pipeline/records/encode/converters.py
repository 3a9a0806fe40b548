"""Keys or values -> the bytes that Connect's converters write: JsonConverter, StringConverter and ByteArrayConverter.

What has a schema, or one shape, is written by columns, what has none value by value, as Java's own classes do it: see
`json_columns` and `records/javatext`. What has no bytes is an Arrow null: any null for StringConverter and ByteArrayConverter,
and one without a schema. A record that the converter fails at is Bad; a schema that it has no clear bytes for is refused as a
whole.

The text of a date depends on its Java class, which a column does not know, and on the zone of the worker: StringConverter
refuses it. The JDBC source gives such columns as the texts that its own objects print: see `from_sql`.
"""

import base64
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from playhead.connect.javajson import encode_string, java_double, java_float
from playhead.errors import Invalid
from playhead.pipeline.records.batch import VALUE_CONVERTER, Bad, Moment, Typed, Unfit, Untyped, Values
from playhead.pipeline.records.decode.jsontext import settle
from playhead.pipeline.records.decode.options import BYTES
from playhead.pipeline.records.encode.json_columns import JsonColumns
from playhead.pipeline.records.encode.options import JSON, Converter
from playhead.pipeline.records.javanumbers import LONG
from playhead.pipeline.records.javatext import JavaText, map_text
from playhead.pipeline.records.schema import DATE, TIME, TIMESTAMP, Schema
from playhead.pipeline.records.uniform import Uniform

_TIMES = (DATE, TIME, TIMESTAMP)


def encode(values: Values, converter: Converter, stage: str = VALUE_CONVERTER) -> tuple[pa.Array, list[Bad]]:
    """Binary, one a record: null where the converter gives no bytes, and for records that are bad. `stage` is what the bad ones
    name. Raises Invalid for a schema that the converter cannot write."""
    if isinstance(values, Typed):
        check_schema(values.schema, converter)
        if converter.name == BYTES:
            return values.column, []
        texts, bad = column_texts(values, _typed_writer(converter), stage)
        return texts.cast(pa.binary()), bad
    if isinstance(values, Uniform) and converter.name == JSON and values.is_plain:
        join = JsonColumns().bare_envelopes if converter.schemas_enable else JsonColumns().payloads
        typed = values.typed()
        return join(typed.column, typed.schema).cast(pa.binary()), []
    write = _writer(converter)
    made, bad = each_written(values, lambda value: None if value is None else write(value), stage)
    return pa.array(made, pa.binary()), bad


def check_schema(schema: Schema, converter: Converter) -> None:
    """Raises Invalid if the converter has no clear bytes for it."""
    if converter.name == BYTES and (schema.type != "bytes" or schema.is_decimal):
        kind = schema.name.rpartition(".")[2] or schema.type
        raise Invalid(f"ByteArrayConverter writes bytes only, and the records are of type {kind}")
    if converter.name in (BYTES, JSON):
        return
    for name, leaf in _leaves(schema):
        if leaf.type == "bytes" and not leaf.is_decimal:
            raise Invalid(
                f"column {name!r} is bytes, which StringConverter writes as an address in memory",
                "use org.apache.kafka.connect.json.JsonConverter, or leave the column out",
            )
        if leaf.name in _TIMES:
            raise Invalid(
                f"field {name!r} is a time that a transform created, whose text would depend on the worker's zone",
                "use org.apache.kafka.connect.json.JsonConverter",
            )


def _leaves(schema: Schema, name: str = "") -> Iterator[tuple[str, Schema]]:
    for inner, field in schema.fields:
        yield from _leaves(field, inner)
    for part in (schema.keys, schema.items):
        if part is not None:
            yield from _leaves(part, name)
    if not schema.is_struct and schema.items is None:
        yield name, schema


# With a schema


def column_texts(
    values: Typed, write: Callable[[pa.Array, Schema], pa.Array], stage: str
) -> tuple[pa.Array, list[Bad]]:
    """Strings, null for those at which `write` raises Unfit."""
    pieces: list[pa.Array] = []
    bad: list[Bad] = []

    def fast(start: int, stop: int) -> bool:
        try:
            pieces.append(write(values.column.slice(start, stop - start), values.schema))
        except Unfit:
            return False
        return True

    def slow(row: int) -> None:
        try:
            pieces.append(write(values.column.slice(row, 1), values.schema))
        except Unfit as error:
            bad.append(Bad(row, str(error), stage))
            pieces.append(pa.nulls(1, pa.string()))

    settle(len(values), fast, slow)
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces or [pa.array([], pa.string())]), bad


def _typed_writer(converter: Converter) -> Callable[[pa.Array, Schema], pa.Array]:
    if converter.name != JSON:
        return JavaText(_no_text).of
    columns = JsonColumns(converter.decimal_format == "NUMERIC", converter.null_to_default)
    return columns.envelopes if converter.schemas_enable else columns.payloads


def _no_text(_values: pa.Array) -> pa.Array:
    raise Unfit("it has a time, whose text depends on the worker's zone")


# Without one, value by value


def each_written(values: Untyped, write: Callable[[object], object], stage: str) -> tuple[list[Any], list[Bad]]:
    """None for those at which `write` raises Unfit."""
    made: list[object] = []
    bad = []
    for row, value in enumerate(values.values):
        try:
            made.append(write(value))
        except Unfit as error:
            made.append(None)
            bad.append(Bad(row, str(error), stage))
    return made, bad


def _writer(converter: Converter) -> Callable[[object], bytes]:
    if converter.name == BYTES:
        return _octets
    if converter.name != JSON:
        return lambda value: java_text(value).encode()
    if converter.schemas_enable:
        return lambda value: b'{"schema":null,"payload":%s}' % json_text(value).encode()
    return lambda value: json_text(value).encode()


def _octets(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise Unfit(f"ByteArrayConverter writes bytes only, and it is of type {_kind(value)}")
    return value


def json_text(value: object) -> str:
    """As JsonConverter has it for a value without a schema: a map is an object if all of its keys are strings, else an array of
    pairs."""
    match value:
        case dict() if all(isinstance(name, str) for name in value):
            return "{" + ",".join(f"{encode_string(name)}:{json_text(one)}" for name, one in value.items()) + "}"
        case dict():
            return "[" + ",".join(f"[{json_text(name)},{json_text(one)}]" for name, one in value.items()) + "]"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case str():
            return encode_string(value)
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case float() | np.floating() if not math.isfinite(value):
            return f'"{java_double(float(value))}"'
        case _:
            return _plain_text(value)


def java_text(value: object, of_moment: Callable[[Moment], str] | None = None) -> str:
    """Java's `toString`; see `records/javatext`. `of_moment`: of a date."""
    match value:
        case dict():
            return map_text([(_name(name), java_text(one, of_moment)) for name, one in value.items()])
        case list():
            return "[" + ", ".join([java_text(one, of_moment) for one in value]) + "]"
        case Moment() if of_moment is not None:
            return of_moment(value)
        case str():
            return value
        case bytes():
            raise Unfit("it has bytes, of which Java's text is an address in memory")
        case _:
            return _plain_text(value)


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise Unfit(f"it has a map with keys of type {_kind(name)}, whose order is not known")
    return name


def _plain_text(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if value in LONG:
            return str(value)
        case float():
            return java_double(float(value))
        case np.integer():  # a cast leaves these
            return str(value)
        case np.floating():
            return java_float(np.float32(value))
        case _:
            raise Unfit(f"it has a value of type {_kind(value)}, which Connect does not have without a schema")


def _kind(value: object) -> str:
    return type(value).__name__
