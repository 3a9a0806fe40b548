"""Columns and values become the bytes that Kafka's own converters write, for random schemas and values."""

import base64
import json
import math
import random
import struct
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration.converter_oracle import Written, converted, java_texts, prints_fewest
from playhead.errors import Invalid
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Header, Typed, Untyped, Values
from playhead.pipeline.records.decode.options import BYTES
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.header_text import header_octets
from playhead.pipeline.records.encode.options import JSON, SIMPLE, STRING, Converter
from playhead.pipeline.records.floattext import float_texts
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

FEW, MANY = settings(max_examples=100), settings(max_examples=2000, derandomize=False)
DAY = 86_400_000


@lru_cache(maxsize=2)
def floats(*, doubles: bool) -> list[float]:
    """Any bits, usual numbers, powers of ten and their neighbours; only those that every JDK prints alike."""
    dice = random.Random(11)
    form, size = (">d", 8) if doubles else (">f", 4)
    made = [struct.unpack(form, dice.randbytes(size))[0] for _ in range(500)]
    made += [dice.uniform(-1000, 1000) for _ in range(200)] + [round(dice.uniform(0, 1e9), 2) for _ in range(200)]
    made += [10.0**power * factor for power in range(-12, 24) for factor in (1, -1, 5, 0.9999)]
    made += [float(dice.randint(-(10**9), 10**9)) for _ in range(100)]
    single = [struct.unpack(form, struct.pack(form, number))[0] for number in made]
    usual = prints_fewest([number for number in single if math.isfinite(number)], doubles=doubles)
    return [*usual, 0.0, -0.0, float("nan"), float("inf"), float("-inf")]


def test_floats_and_doubles_are_printed_as_java_prints_them():
    for doubles, kind in ((True, pa.float64()), (False, pa.float32())):
        numbers = floats(doubles=doubles)
        printed = java_texts(numbers, doubles=doubles)
        ours = float_texts(pa.array(numbers, kind)).to_pylist()
        assert dict(zip(printed, ours, strict=True)) == dict(zip(printed, printed, strict=True))


@pytest.mark.parametrize(("doubles", "most_other"), [(True, 0.01), (False, 0.15)])
def test_what_an_older_java_prints_otherwise_is_the_same_number_in_no_fewer_digits(doubles, most_other):
    """Java 19 and newer print all of them as we do: see docs/records.md."""
    dice, (form, size) = random.Random(3), (">d", 8) if doubles else (">f", 4)
    made = [struct.unpack(form, dice.randbytes(size))[0] for _ in range(5000)]
    numbers = [number for number in made if math.isfinite(number)]
    kind = pa.float64() if doubles else pa.float32()
    ours = float_texts(pa.array(numbers, kind)).to_pylist()
    java = java_texts(numbers, doubles=doubles)
    other = [(mine, its) for mine, its in zip(ours, java, strict=True) if mine != its]
    assert len(other) < len(numbers) * most_other
    assert all(len(mine) <= len(its) for mine, its in other)
    for texts in (ours, java):
        assert pa.array(texts).cast(kind).equals(pa.array(numbers, kind))


# Random schemas, and values of them

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(
    '"\\\n\t\x01é€\U0001f600x{,', max_size=6
)
NAMES = st.text('ab_é"\U0001f600', min_size=1, max_size=4)
LOGICAL = {DATE: "int32", TIME: "int32", TIMESTAMP: "int64"}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def decimal_schema(scale: int, precision: int, *, optional: bool) -> Schema:
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return Schema("bytes", optional, DECIMAL, 1, None, parameters if precision else parameters[:1])


DECIMALS = st.builds(
    lambda form, optional: decimal_schema(*form, optional=optional),
    st.sampled_from([(0, 5), (2, 12), (2, 30), (10, 38), (20, 60), (76, 76), (7, 0), (127, 0), (100, 0), (-3, 9)]),
    optional=st.booleans(),
)
PLAIN = st.builds(
    Schema, st.sampled_from([*BITS, "float", "double", "boolean", "string", "bytes"]), optional=st.booleans()
)
TIMES = st.builds(
    lambda name, optional: Schema(LOGICAL[name], optional, name, 1), st.sampled_from([*LOGICAL]), st.booleans()
)


def values_of(schema: Schema) -> st.SearchStrategy[Any]:
    made = _values_of(schema)
    return st.none() | made if schema.optional or schema.default is not None else made


def _items_of(schema: Schema) -> st.SearchStrategy[Any]:
    """No struct of Connect takes an array with a null that the schema of its items does not allow, default or not."""
    return st.none() | _values_of(schema) if schema.optional else _values_of(schema)


def _values_of(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.is_struct:
        return st.tuples(*(values_of(inner) for _, inner in schema.fields))
    if schema.keys is not None and schema.items is not None:
        pairs = st.tuples(_values_of(schema.keys), _items_of(schema.items))
        return st.lists(pairs, max_size=4, unique_by=lambda pair: repr(pair[0]))
    if schema.items is not None:
        return st.lists(_items_of(schema.items), max_size=4)
    if schema.is_decimal:
        most = schema.parameter("connect.decimal.precision", 0) or 38
        return st.integers(-(10**most) + 1, 10**most - 1) | st.sampled_from(
            [0, 1, -1, 127, 128, -128, -129, 255, 32768]
        )
    if schema.name in LOGICAL:
        return {
            DATE: st.integers(-(2**31), 2**31 - 1),
            TIME: st.integers(0, DAY - 1),
            TIMESTAMP: st.integers(-(2**63), 2**63 - 1),
        }[schema.name]
    if schema.type in BITS:
        half = 1 << BITS[schema.type] - 1
        return st.integers(-half, half - 1)
    if schema.type in ("float", "double"):
        return st.deferred(lambda: st.sampled_from(floats(doubles=schema.type == "double")))
    return {"boolean": st.booleans(), "string": TEXTS, "bytes": st.binary(max_size=20)}[schema.type]


@st.composite
def with_defaults(draw: st.DrawFn, leaves: st.SearchStrategy[Schema]) -> Schema:
    schema = draw(leaves)
    if schema.type in ("float", "double") or draw(st.integers(0, 3)):
        return schema
    value = draw(_values_of(schema))
    if schema.is_decimal:
        value = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    parts = (schema.type, schema.optional, schema.name, schema.version, schema.doc, schema.parameters)
    return Schema(*parts, default=json.dumps(text, ensure_ascii=False))


def schemas(leaves: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    def struct_of(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
        return st.builds(
            lambda fields, optional, name, doc: Schema("struct", optional, name, doc=doc, fields=tuple(fields)),
            st.lists(st.tuples(NAMES, inner), max_size=6, unique_by=lambda field: field[0]),
            st.booleans(),
            st.just("") | NAMES,
            st.none() | TEXTS,
        )

    def deeper(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
        keys = st.builds(Schema, st.sampled_from(["string", "int32", "boolean"]))
        lists = st.builds(lambda items, optional: Schema("array", optional, items=items), inner, st.booleans())
        maps = st.builds(
            lambda key, items, optional: Schema("map", optional, keys=key, items=items), keys, inner, st.booleans()
        )
        return struct_of(inner) | lists | maps

    return struct_of(leaves) | st.recursive(leaves, deeper, max_leaves=6)


@st.composite
def columns(draw: st.DrawFn, leaves: st.SearchStrategy[Schema]) -> tuple[Schema, list[Any]]:
    schema = draw(schemas(leaves))
    return schema, draw(st.lists(values_of(schema), min_size=1, max_size=8))


def to_column(schema: Schema, rows: list[Any]) -> pa.Array:
    """With a row too much on either side: a slice is a column like any other."""
    made = pa.array([_arrow_value(row, schema) for row in (rows[-1], *rows, rows[0])], arrow_type(schema))
    return made.slice(1, len(rows))


def _arrow_value(value: Any, schema: Schema) -> object:
    if value is None:
        return None
    if schema.is_struct:
        return {name: _arrow_value(one, inner) for one, (name, inner) in zip(value, schema.fields, strict=True)}
    if schema.keys is not None and schema.items is not None:
        return [(_arrow_value(key, schema.keys), _arrow_value(one, schema.items)) for key, one in value]
    if schema.items is not None:
        return [_arrow_value(one, schema.items) for one in value]
    if schema.is_decimal:
        exact = Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -schema.parameter("scale", 0)))
        return f"{exact:f}" if pa.types.is_string(arrow_type(schema)) else exact
    return value


def written(values: Values, converter: Converter) -> list[Written]:
    octets, bad = encode(values, converter)
    assert octets.type == pa.binary()
    failed = {one.row: one.reason for one in bad}
    return [Written(one, failed.get(row)) for row, one in enumerate(octets.to_pylist())]


def is_alike(ours: list[Written], theirs: list[Written]) -> None:
    assert [one.octets for one in ours] == [one.octets for one in theirs]
    assert [one.error is None for one in ours] == [one.error is None for one in theirs]


def json_is_alike(made: tuple[Schema, list[Any]], enabled: bool, numeric: bool, null_to_default: bool) -> None:
    schema, rows = made
    converter = Converter(JSON, enabled, "NUMERIC" if numeric else "BASE64", null_to_default)
    config = {
        "schemas.enable": str(enabled).lower(),
        "decimal.format": converter.decimal_format,
        "replace.null.with.default": str(null_to_default).lower(),
    }
    is_alike(written(Typed(schema, to_column(schema, rows)), converter), converted(schema, rows, JSON, config))


EVERY = columns(with_defaults(PLAIN | DECIMALS | TIMES))
SWITCH = st.booleans()


@given(EVERY, SWITCH, SWITCH, SWITCH)
@FEW
def test_columns_are_what_json_converter_writes(made, enabled, numeric, null_to_default):
    json_is_alike(made, enabled, numeric, null_to_default)


@pytest.mark.soak
@given(EVERY, SWITCH, SWITCH, SWITCH)
@MANY
def test_many_columns_are_what_json_converter_writes(made, enabled, numeric, null_to_default):
    json_is_alike(made, enabled, numeric, null_to_default)


# Bytes have no text, nor have times; keys that are no strings are in an order that is not known.
TEXTUAL = PLAIN.filter(lambda schema: schema.type != "bytes") | DECIMALS


def has_known_order(schema: Schema) -> bool:
    inner = [one for _, one in schema.fields] + [one for one in (schema.keys, schema.items) if one]
    return (schema.keys is None or schema.keys.type == "string") and all(map(has_known_order, inner))


def text_is_alike(made: tuple[Schema, list[Any]]) -> None:
    schema, rows = made
    is_alike(written(Typed(schema, to_column(schema, rows)), Converter(STRING)), converted(schema, rows, STRING))


TEXT_COLUMNS = columns(TEXTUAL).filter(lambda made: has_known_order(made[0]))


@given(TEXT_COLUMNS)
@FEW
def test_columns_are_what_string_converter_writes(made):
    text_is_alike(made)


@pytest.mark.soak
@given(TEXT_COLUMNS)
@MANY
def test_many_columns_are_what_string_converter_writes(made):
    text_is_alike(made)


def test_bytes_are_what_byte_array_converter_writes():
    schema, rows = Schema("bytes", optional=True), [b"", None, b"\x00\xff"]
    is_alike(written(Typed(schema, to_column(schema, rows)), Converter(BYTES)), converted(schema, rows, BYTES))


@pytest.mark.parametrize("schema", [Schema("string"), decimal_schema(2, 5, optional=False)])
def test_what_byte_array_converter_fails_at_is_refused(schema):
    (java,) = converted(schema, ["1"], BYTES)
    assert java.error is not None
    with pytest.raises(Invalid, match="ByteArrayConverter writes bytes only"):
        encode(Typed(schema, to_column(schema, [1 if schema.is_decimal else "1"])), Converter(BYTES))


def test_a_null_that_the_schema_does_not_allow_is_bad_and_its_neighbours_are_written():
    schema = Schema("struct", fields=(("a", Schema("int32")), ("b", Schema("array", items=Schema("string")))))
    rows: list[Any] = [[1, ["x"]], [None, ["x"]], [2, [None]], [3, None], [4, []]]
    ours = written(Typed(schema, to_column(schema, rows)), Converter(schemas_enable=False))
    is_alike(ours, converted(schema, rows, JSON, {"schemas.enable": "false"}))
    assert [one.error for one in ours] == [
        None,
        "field 'a' is null, which its schema does not allow",
        "field 'b[]' is null, which its schema does not allow",
        "field 'b' is null, which its schema does not allow",
        None,
    ]


# Without a schema

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | TEXTS
    | st.deferred(lambda: st.sampled_from(floats(doubles=True)))
)


def bare(scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=8
    )


@given(st.lists(bare(SCALARS | st.binary(max_size=9), TEXTS | st.integers(0, 99)), max_size=8), SWITCH)
@FEW
def test_values_without_a_schema_are_what_json_converter_writes(values, enabled):
    config = {"schemas.enable": str(enabled).lower()}
    ours = written(Untyped(values), Converter(schemas_enable=enabled))
    is_alike(ours, converted(None, values, JSON, config))


@given(st.lists(bare(SCALARS, TEXTS), max_size=8))
@FEW
def test_values_without_a_schema_are_what_string_converter_writes(values):
    is_alike(written(Untyped(values), Converter(STRING)), converted(None, values, STRING))


def test_values_without_a_schema_are_what_byte_array_converter_writes():
    values: list[object] = [b"\x00", None, "text", 5]
    is_alike(written(Untyped(values), Converter(BYTES)), converted(None, values, BYTES))


# Headers of a source


def header_value(schema: Schema, value: Any) -> Any:
    """A value of the oracle as a header has it."""
    if value is None:
        return None
    if schema.name == DECIMAL:
        return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -schema.parameter("scale", 0)))
    if schema.is_struct:
        return {name: header_value(inner, one) for (name, inner), one in zip(schema.fields, value, strict=True)}
    if schema.keys is not None and schema.items is not None:
        return [(header_value(schema.keys, key), header_value(schema.items, one)) for key, one in value]
    return [header_value(schema.items, one) for one in value] if schema.items is not None else value


def header_is_alike(made: tuple[Schema, list[Any]]) -> None:
    schema, rows = made
    ours = [Written(header_octets(Header("h", schema, header_value(schema, row)))) for row in rows]
    is_alike(ours, converted(schema, rows, SIMPLE))


@given(columns(PLAIN | DECIMALS | TIMES))
@FEW
def test_headers_are_what_simple_header_converter_writes(made):
    header_is_alike(made)


@given(st.lists(bare(SCALARS | st.binary(max_size=9), TEXTS | st.integers(0, 99)), max_size=4))
@FEW
def test_headers_without_a_schema_are_what_simple_header_converter_writes(rows):
    ours = [Written(header_octets(Header("h", None, row))) for row in rows]
    is_alike(ours, converted(None, rows, SIMPLE))
