"""The bytes of Connect's converters, from columns: samples. Kafka's own classes check the rest in the integration tests."""

import base64
import math
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.connect.javajson import encode_string, java_double, java_float
from playhead.errors import Invalid
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import KEY_CONVERTER, Bad, Typed, Unfit, Untyped
from playhead.pipeline.records.decimals import decimal_octets, decimal_texts
from playhead.pipeline.records.decode.options import BYTES
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.json_columns import JsonColumns, escaped
from playhead.pipeline.records.encode.options import STRING, Converter
from playhead.pipeline.records.floattext import float_texts
from playhead.pipeline.records.octets import encode_base64
from playhead.pipeline.records.schema import DATE, DECIMAL, TIMESTAMP, Schema

PLAIN = Converter(schemas_enable=False)
AMOUNT = Schema("bytes", True, DECIMAL, 1, None, (("scale", "2"), ("connect.decimal.precision", "12")), default=None)
ORDER = Schema(
    "struct",
    name="orders",
    fields=(
        ("id", Schema("int64")),
        ("name", Schema("string", optional=True)),
        ("amount", AMOUNT),
        ("at", Schema("int64", True, TIMESTAMP, 1)),
    ),
)
ROWS: list[dict[str, object]] = [
    {"id": 1, "name": 'x"\n\u00e9\U0001f600', "amount": Decimal("12.30"), "at": 1704164645123},
    {"id": -2, "name": None, "amount": None, "at": None},
]


def column(schema: Schema, *values: object) -> Typed:
    return Typed(schema, pa.array(values, arrow_type(schema)))


def written(values: Typed | Untyped, converter: Converter = PLAIN) -> list[bytes | None]:
    octets, bad = encode(values, converter)
    assert not bad
    made: list[bytes | None] = octets.to_pylist()
    return made


def test_a_struct_is_an_object_with_all_of_its_fields():
    assert written(column(ORDER, *ROWS)) == [
        b'{"id":1,"name":"x\\"\\n\xc3\xa9\\uD83D\\uDE00","amount":"BM4=","at":1704164645123}',
        b'{"id":-2,"name":null,"amount":null,"at":null}',
    ]


def test_with_schemas_the_schema_is_in_front_of_every_payload():
    begin = (
        b'{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},'
        b'{"type":"string","optional":true,"field":"name"},{"type":"bytes","optional":true,'
        b'"name":"org.apache.kafka.connect.data.Decimal","version":1,'
        b'"parameters":{"scale":"2","connect.decimal.precision":"12"},"field":"amount"},'
        b'{"type":"int64","optional":true,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"at"}],'
        b'"optional":false,"name":"orders"},"payload":'
    )
    plain = written(column(ORDER, *ROWS))
    assert written(column(ORDER, *ROWS), Converter()) == [begin + one + b"}" for one in plain if one]


def test_decimals_are_numbers_if_so_configured():
    numeric = Converter(schemas_enable=False, decimal_format="NUMERIC")
    assert written(column(AMOUNT, Decimal("12.30"), None), numeric) == [b"12.30", b"null"]


def test_a_null_takes_the_default_unless_that_is_switched_off():
    schema = Schema("struct", fields=(("a", Schema("int32", optional=True, default="5")),))
    row = column(schema, {"a": None})
    assert written(row) == [b'{"a":5}']
    assert written(row, Converter(schemas_enable=False, null_to_default=False)) == [b'{"a":null}']


def test_null_with_a_schema_is_json_and_without_one_it_is_nothing():
    assert written(column(Schema("string", optional=True), None)) == [b"null"]
    assert written(Untyped([None])) == [None]
    assert written(column(Schema("string", optional=True), None, "a"), Converter(STRING)) == [None, b"a"]


def test_values_without_a_schema_have_an_envelope_without_one():
    assert written(Untyped([{"b": [1, None, 2.5]}]), Converter()) == [b'{"schema":null,"payload":{"b":[1,null,2.5]}}']


def test_a_struct_is_printed_without_its_nulls():
    schema = Schema("struct", fields=ORDER.fields[:3])
    rows = [{name: row[name] for name in ("id", "name", "amount")} for row in ROWS]
    assert written(column(schema, *rows), Converter(STRING)) == [
        'Struct{id=1,name=x"\n\u00e9\U0001f600,amount=12.30}'.encode(),
        b"Struct{id=-2}",
    ]


def test_a_bad_record_names_its_field_and_its_stage_and_the_others_are_written():
    schema = Schema("struct", fields=(("a", Schema("struct", optional=True, fields=(("b", Schema("int8")),))),))
    rows = [{"a": {"b": number % 100 if number != 150 else None}} for number in range(300)]
    octets, bad = encode(column(schema, *rows), PLAIN, KEY_CONVERTER)
    assert bad == [Bad(150, "field 'a.b' is null, which its schema does not allow", KEY_CONVERTER)]
    assert octets.null_count == 1 and octets[150].as_py() is None
    assert octets[299].as_py() == b'{"a":{"b":99}}'
    assert written(column(schema, {"a": None})) == [b'{"a":null}']


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (Schema("struct", fields=(("raw", Schema("bytes")),)), "column 'raw' is bytes, which StringConverter writes"),
        (Schema("struct", fields=(("day", Schema("int32", name=DATE)),)), "field 'day' is a time that a transform"),
        (Schema("array", items=Schema("bytes")), "column '' is bytes"),
    ],
)
def test_what_has_no_clear_text_is_refused_before_anything_is_written(schema, what):
    with pytest.raises(Invalid, match=what):
        encode(column(schema), Converter(STRING))


def test_only_bytes_are_written_as_bytes():
    assert written(column(Schema("bytes", optional=True), b"\x00", None), Converter(BYTES)) == [b"\x00", None]
    _, bad = encode(Untyped([b"a", 1]), Converter(BYTES))
    assert bad == [Bad(1, "ByteArrayConverter writes bytes only, and it is of type int")]


def test_a_number_beyond_64_bits_without_a_schema_is_bad():
    _, bad = encode(Untyped([1 << 63]), PLAIN)
    assert [one.row for one in bad] == [0]


def test_no_rows_are_no_bytes():
    assert written(column(ORDER)) == []
    assert written(column(ORDER), Converter(schemas_enable=True)) == []
    assert written(Untyped([])) == []


def test_a_default_is_written_as_a_value_of_its_schema():
    schema = Schema("double", default="1e22")
    assert JsonColumns().schema_text(schema) == '{"type":"double","optional":false,"default":1.0E22}'
    text = Schema("string", default='"\U0001f600"')
    assert JsonColumns().schema_text(text) == '{"type":"string","optional":false,"default":"\\uD83D\\uDE00"}'


# Columns of one type, against the ways to write one value


@given(st.lists(st.text() | st.text('a"\\\n\x00\x1f\x7f\U0001f600', max_size=5)))
def test_strings_are_escaped_like_single_ones(texts):
    made = escaped(pa.array(["\n", *texts, "\\"], pa.string()).slice(1, len(texts)))
    assert made.to_pylist() == [encode_string(text)[1:-1] for text in texts]


@given(st.lists(st.binary(max_size=10)))
def test_bytes_are_encoded_like_single_ones(octets):
    made = encode_base64(pa.array([b"ab", *octets, b"c"], pa.binary()).slice(1, len(octets)))
    assert made.to_pylist() == [base64.b64encode(one).decode() for one in octets]


def octets_of(unscaled: int) -> str:
    """By the definition: the shortest that holds it."""
    size = next(size for size in range(1, 99) if -(1 << 8 * size - 1) <= unscaled < 1 << 8 * size - 1)
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


@pytest.mark.parametrize("precision", [18, 38, 76])
@given(st.data())
def test_decimals_have_the_fewest_bytes(precision, data):
    edges = st.sampled_from(
        [sign * (1 << 8 * size - 1) + one for size in (1, 2, 3, 7) for sign in (1, -1) for one in (-1, 0, 1)]
    )
    numbers = data.draw(st.lists(edges | st.integers(-(10**precision) + 1, 10**precision - 1), min_size=1))
    kind = pa.decimal128(precision, 2) if precision <= 38 else pa.decimal256(precision, 2)
    with_scale = [Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -2)) for one in numbers]
    assert decimal_octets(pa.array(with_scale, kind), 2).to_pylist() == [octets_of(one) for one in numbers]


@given(st.lists(st.tuples(st.integers(-(10**25), 10**25) | st.integers(-999, 999), st.integers(0, 30)), min_size=1))
def test_decimals_held_as_text_are_those_of_their_scale(numbers):
    exact = [Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -digits)) for one, digits in numbers]
    texts = pa.array([f"{one:f}" for one in exact])
    unscaled = [one * 10 ** (127 - digits) for one, digits in numbers]
    assert decimal_octets(texts, 127).to_pylist() == [octets_of(one) for one in unscaled]
    printed = [str(Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -127))) for one in unscaled]
    assert decimal_texts(texts, 127).to_pylist() == printed


@pytest.mark.parametrize("text", ["NaN", "1.2.3", "", "0." + "1" * 128])
def test_a_text_that_is_no_decimal_of_its_scale_is_unfit(text):
    with pytest.raises(Unfit):
        decimal_octets(pa.array(["1", text]), 127)


@given(
    st.lists(st.floats() | st.integers(-(10**18), 10**18).map(float) | st.sampled_from([1e-3, 1e7, 1e15, 5e-324, 1e-6]))
)
def test_doubles_are_printed_like_single_ones(numbers):
    assert float_texts(pa.array([None, *numbers], pa.float64())).to_pylist() == [None, *map(java_double, numbers)]


@given(st.lists(st.binary(min_size=4, max_size=4)))
def test_floats_are_printed_like_single_ones(raw):
    numbers = [np.float32(struct.unpack(">f", one)[0]) for one in raw]
    assert float_texts(pa.array(numbers, pa.float32())).to_pylist() == [java_float(one) for one in numbers]


def test_numbers_that_are_none_are_strings_of_json():
    assert written(column(Schema("double"), math.nan, -math.inf, 1.0)) == [b'"NaN"', b'"-Infinity"', b"1.0"]
