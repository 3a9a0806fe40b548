"""Values become columns by their schema; a record that does not fit is named with the reason, and only that one."""

import base64
import json
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq

from integration.record_samples import EXTREMES, NONE, SCHEMA, without
from playhead.pipeline.records.batch import Bad, Unfit
from playhead.pipeline.records.decode.columns import Columns, Converted
from playhead.pipeline.records.decode.exact import Exact
from playhead.pipeline.records.decode.lines import JsonLines
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.encode.options import STRING
from playhead.pipeline.records.schema import Schema

BARE, WITH_SCHEMAS = Converter(schemas_enable=False), Converter()
PACKAGE = "org.apache.kafka.connect.data."
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(values) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], names=["value"])


def decimal(scale, precision=None):
    parameters = {"scale": str(scale)} | ({} if precision is None else {"connect.decimal.precision": str(precision)})
    return {"type": "bytes", "name": PACKAGE + "Decimal", "version": 1, "parameters": parameters}


def logical(kind, name):
    return {"type": kind, "name": PACKAGE + name, "version": 1}


def table(**fields) -> Schema:
    return Schema.from_json(
        json.dumps({"type": "struct", "fields": [inner | {"field": name} for name, inner in fields.items()]})
    )


def optional(inner):
    return inner | {"optional": True}


def convert(rows, schema: Schema, **more) -> Converted:
    return Columns(BARE, schema, **more).convert(
        batch([row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows])
    )


def pylist(converted: Converted) -> list[dict[str, object]]:
    return [row for part in converted.parts for row in part.columns.to_pylist()]


def unscaled(number: int) -> bytes:
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def ints(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(scale, precision):
    """Unscaled numbers in base64, and the decimals that they are."""

    def pair(number):
        digits = tuple(map(int, str(abs(number))))
        return base64.b64encode(unscaled(number)).decode(), Decimal((int(number < 0), digits, -scale))

    return decimal(scale, precision), st.integers(-(10**precision) + 1, 10**precision - 1).map(pair)


finite = st.floats(allow_nan=False, allow_infinity=False)
# (schema, values as (JSON, expected))
PLAIN = [
    *[({"type": f"int{bits}"}, ints(bits).map(lambda n: (n, n))) for bits in (8, 16, 32, 64)],
    ({"type": "double"}, finite.map(lambda x: (x, x))),
    ({"type": "float"}, st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: (x, x))),
    ({"type": "boolean"}, st.booleans().map(lambda b: (b, b))),
    ({"type": "string"}, st.text(st.characters(codec="utf-8")).map(lambda s: (s, s))),
    ({"type": "bytes"}, st.binary().map(lambda b: (base64.b64encode(b).decode(), b))),
    (logical("int32", "Date"), st.integers(-700_000, 2_900_000).map(lambda n: (n, date(1970, 1, 1) + timedelta(n)))),
    (
        logical("int32", "Time"),
        st.integers(0, 86_399_999).map(lambda n: (n, (EPOCH + timedelta(milliseconds=n)).time())),
    ),
    (
        logical("int64", "Timestamp"),
        st.integers(-(10**13), 10**14).map(lambda n: (n, EPOCH + timedelta(milliseconds=n))),
    ),
    *[decimals(scale, precision) for scale, precision in ((2, 10), (0, 5), (12, 38), (3, 60))],
]


@st.composite
def kinds(draw, depth=2):
    """A schema, and values of it as (JSON, expected)."""
    schema, values = draw(st.sampled_from(PLAIN))
    if depth and draw(st.booleans()):
        inner, found = draw(kinds(depth=depth - 1))
        how = draw(st.sampled_from(["array", "map", "struct"]))
        if how == "array":
            schema = {"type": "array", "items": inner}
            values = st.lists(found, max_size=3).map(lambda pairs: ([j for j, _ in pairs], [e for _, e in pairs]))
        elif how == "map":
            schema = {"type": "map", "keys": {"type": "string"}, "values": inner}
            values = st.dictionaries(st.text(st.characters(codec="utf-8")), found, max_size=2).map(
                lambda pairs: ({k: j for k, (j, _) in pairs.items()}, [(k, e) for k, (_, e) in pairs.items()])
            )
        else:
            schema = {"type": "struct", "fields": [inner | {"field": "in"}]}
            values = found.map(lambda pair: ({"in": pair[0]}, {"in": pair[1]}))
    if draw(st.booleans()):
        return optional(schema), st.none().map(lambda n: (n, n)) | values
    return schema, values


@st.composite
def tables(draw):
    found = draw(st.lists(kinds(), min_size=1, max_size=3))
    names = [f"f{at}" for at in range(len(found))]
    schema = table(**dict(zip(names, [inner for inner, _ in found], strict=True)))
    rows = draw(st.lists(st.tuples(*[values for _, values in found]), min_size=1, max_size=5))
    return schema, [
        ({n: j for n, (j, _) in zip(names, row, strict=True)}, {n: e for n, (_, e) in zip(names, row, strict=True)})
        for row in rows
    ]


def unordered(value):
    """Maps have the order of Java's HashMap, which other tests compare with Java's."""
    if isinstance(value, dict):
        return {name: unordered(inner) for name, inner in value.items()}
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], tuple):
        return {name: unordered(inner) for name, inner in value}
    return [unordered(inner) for inner in value]


@given(tables())
def test_what_fits_a_schema_comes_out_as_it_went_in(found):
    schema, rows = found
    made = convert([payload for payload, _ in rows], schema)
    assert not made.bad
    wanted = unordered([expected for _, expected in rows])
    assert unordered(pylist(made)) == wanted
    assert made.parts[0].columns.schema.field(0).nullable == schema.fields[0][1].optional
    made.parts[0].columns.validate(full=True)
    file = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([made.parts[0].columns]), file)
    assert unordered(pq.read_table(pa.BufferReader(file.getvalue())).to_pylist()) == wanted


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | finite
    | st.text(max_size=4)
    | st.sampled_from(["AAAA", "1234", "12.5", "AA==", "A", "AB=="]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["in", "x"]), inner, max_size=2),
    max_leaves=3,
)


ODD_ROWS = [
    "{}",
    "[]",
    "5",
    '{"f0":1,"f0":"AAAA"}',
    '{"f0":1e400}',
    '{"f0":9007199254740993}',
    '{"f0":1.0}',
    '{"f0":16777217}',
    '{"f0":"\\ud800"}',
    '{"f0":12.50}',
]


@st.composite
def mixtures(draw):
    schema, rows = draw(tables())
    texts = [json.dumps(payload).encode() for payload, _ in rows]
    for _ in range(draw(st.integers(0, 2))):
        payload = dict(draw(st.sampled_from(rows))[0])
        payload[draw(st.sampled_from([*payload, "strange"]))] = draw(junk)
        texts.insert(draw(st.integers(0, len(texts))), json.dumps(payload).encode())
    extra = draw(st.sampled_from(ODD_ROWS))
    return schema, [*texts, *([extra.encode()] if draw(st.booleans()) else [])]


@given(mixtures())
def test_a_row_does_not_depend_on_its_neighbours(found):
    schema, texts = found
    together = convert(texts, schema)
    alone = [convert([text], schema) for text in texts]
    assert [bad.row for bad in together.bad] == [row for row, one in enumerate(alone) if one.bad]
    assert [bad.reason for bad in together.bad] == [one.bad[0].reason for one in alone if one.bad]
    assert _table(together) == _table(*alone)
    assert [row for part in together.parts for row in part.rows] == [row for row, one in enumerate(alone) if one.parts]


def _table(*converted: Converted) -> pa.Table | None:
    batches = [part.columns for one in converted for part in one.parts]
    return pa.Table.from_batches(batches).combine_chunks() if batches else None


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ({"type": "int64"}, "1.5", "not a whole number"),
        ({"type": "int64"}, '"1"', "not a number"),
        ({"type": "int64"}, "true", "not a number"),
        ({"type": "int64"}, "null", "missing or null"),
        ({"type": "int8"}, "128", "out of the range of int8"),
        ({"type": "int64"}, "9223372036854775808", "out of the range"),
        ({"type": "int64"}, "1e999999", "not a whole number"),
        ({"type": "double"}, "9007199254740993", "would round"),
        ({"type": "double"}, "1e400", "out of the range of double"),
        ({"type": "double"}, '"-Infinity"', None),
        ({"type": "double"}, '"inf"', "not a number"),
        ({"type": "float"}, "16777217", "would round"),
        ({"type": "float"}, "1e39", "out of the range of float"),
        ({"type": "string"}, "5", "not a string"),
        ({"type": "string"}, '"\\ud800"', "surrogates"),
        ({"type": "boolean"}, "1", "not true or false"),
        ({"type": "bytes"}, '"A"', "not base64"),
        ({"type": "bytes"}, '"AA=A"', "not base64"),
        ({"type": "bytes"}, '"AA=="', None),
        (decimal(2, 4), '"D0JA"', "4 digits"),
        (decimal(2, 4), "99.999", "scale 2"),
        (decimal(2, 4), "123.45", "4 digits"),
        (decimal(2, 4), '""', "scale 2"),
        (logical("int32", "Time"), "86400000", "millisecond of a day"),
        ({"type": "array", "items": {"type": "int32"}}, "[1,null]", "'f[1]' is missing or null"),
        ({"type": "array", "items": {"type": "int32"}}, "{}", "not an array"),
        ({"type": "struct", "fields": [{"type": "int8", "field": "x"}]}, '{"x":1,"y":2}', "'f.y' is not in the schema"),
        ({"type": "struct", "fields": [{"type": "int8", "field": "x"}]}, "{}", "'f.x' is missing or null"),
        ({"type": "map", "keys": {"type": "int32"}, "values": {"type": "int32"}}, "[[1,2]]", None),
        ({"type": "map", "keys": {"type": "int32"}, "values": {"type": "int32"}}, "[[1]]", "pairs"),
    ],
)
def test_a_value_that_does_not_fit_is_bad_for_a_reason(kind, text, reason):
    good = b'{"ok":1,"f":null}'
    found = convert([good, b'{"ok":2,"f":%s}' % text.encode(), good], table(ok={"type": "int8"}, f=optional(kind)))
    if text == "null":
        found = convert(
            [b'{"ok":1,"f":5}', b'{"ok":2,"f":null}', b'{"ok":3,"f":6}'], table(ok={"type": "int8"}, f=kind)
        )
    assert [bad.row for bad in found.bad] == ([] if reason is None else [1])
    assert reason is None or reason in found.bad[0].reason
    assert len(pylist(found)) == (3 if reason is None else 2)


def test_what_a_number_may_look_like():
    schema = table(i={"type": "int64"}, d={"type": "double"}, n=decimal(2, 6))
    rows = [b'{"i":5.0,"d":1e17,"n":12.3}', b'{"i":-0,"d":9007199254740992,"n":-1E+2}', b'{"i":1e2,"d":0.1,"n":"BM4="}']
    assert [tuple(map(str, row.values())) for row in pylist(convert(rows, schema))] == [
        ("5", "1e+17", "12.30"),
        ("0", "9007199254740992.0", "-100.00"),
        ("100", "0.1", "12.30"),
    ]


def test_base64_that_looks_like_a_number_is_never_read_as_one():
    found = convert([b'{"n":"1234"}', b'{"n":7.5}', b'{"n":"bad"}'], table(n=decimal(2, 12)))
    assert [row["n"] for row in pylist(found)] == [
        Decimal(int.from_bytes(base64.b64decode("1234"), signed=True)) / 100,
        Decimal("7.50"),
    ]
    assert [bad.row for bad in found.bad] == [2]


def test_missing_and_null_fields_take_their_default():
    schema = table(
        a={"type": "int32", "default": 7},
        b=optional({"type": "string", "default": "x"}),
        c=decimal(2, 4) | {"default": "ZA=="},
    )
    rows = [b"{}", b'{"a":null,"b":null,"c":null}', b'{"a":1,"b":"y","c":"AA=="}']
    expected = [{"a": 7, "b": "x", "c": Decimal("1.00")}] * 2 + [{"a": 1, "b": "y", "c": Decimal("0.00")}]
    assert pylist(convert(rows, schema)) == expected
    assert pylist(convert([*rows, b"5"], schema)) == expected
    kept = Columns(Converter(schemas_enable=False, null_to_default=False), schema).convert(batch(rows))
    assert [bad.row for bad in kept.bad] == [0, 1]


def test_samples_of_the_real_connector_become_columns():
    payloads = [*without("bt8", NONE), *EXTREMES]
    made = Columns(WITH_SCHEMAS).convert(batch([SCHEMA + payload + b"}" for payload in payloads]))
    assert not made.bad
    (part,) = made.parts
    assert part.columns.column("tstz").cast(pa.int64()).to_pylist() == [1704157445123, None, -62135769600000]
    first, second, third = part.columns.drop_columns(["tstz"]).to_pylist()  # Python has no year 0
    assert first["n"] == "12.12"  # a scale of 127 digits fits no decimal of Arrow
    assert [first[name] for name in ("n102", "n50", "n200")] == [
        Decimal("12.30"),
        Decimal(77),
        Decimal(12345678901234567890),
    ]
    assert first["n3812"] == Decimal("3.141592653589")
    assert first["ts"] == datetime(2024, 1, 2, 3, 4, 5, 123000, tzinfo=UTC)
    assert (first["d"], first["t"], first["ba"]) == (date(2024, 1, 2), time(3, 4, 5, 123000), b"\xde\xad\xbe\xef")
    assert first["tx"] == 'h\u00e9llo "q" \\ / \u2028 <x> \U0001f600'
    assert (first["r"], first["dp"], first["bt"]) == (single(0.1), 1.5, True)
    assert {name for name, value in second.items() if value is not None} == {"id", "nn", "tsn"}
    assert (third["n102"], third["n"], third["bi"], third["dp"]) == (Decimal("-0.01"), "-5", -(2**63), 1e300)
    assert not made.parts[0].columns.schema.field("nn").nullable


def test_each_schema_is_a_part_and_tombstones_are_reported():
    def value(payload, kind):
        schema = {"type": "struct", "fields": [{"type": kind, "optional": False, "field": "a"}], "optional": True}
        schema["strange"] = "a member that Connect reads past"
        return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()

    given_values = [
        value({"a": 1}, "int8"),
        None,
        value({"a": 300}, "int8"),
        value({"a": 2}, "int8"),
        value(None, "int8"),
    ]
    given_values += [value({"a": 300}, "int16"), value({"a": 3}, "int8"), b"{"]
    made = Columns(WITH_SCHEMAS).convert(batch(given_values))
    assert [(part.rows.tolist(), str(part.columns.schema.field("a").type)) for part in made.parts] == [
        ([0, 3], "int8"),
        ([5], "int16"),
        ([6], "int8"),
    ]
    assert made.tombstones.tolist() == [False, True, False, False, True, False, False, False]
    assert [bad.row for bad in made.bad] == [2, 7]


def test_values_that_are_no_struct_need_a_name_for_their_column():
    schema = Schema("int64")
    named = convert([b"5", b"6.5", b"null", b'"x"'], schema, single="id")
    assert pylist(named) == [{"id": 5}]
    assert [bad.row for bad in named.bad] == [1, 3]
    assert [bad.reason for bad in convert([b"5"], schema).bad] == [
        "its schema is int64, not a struct, so that it has no columns"
    ]
    strings = Columns(Converter(STRING), single="k").convert(batch([b"a", None, b"\xff", b"c"]))
    assert (pylist(strings), strings.parts[0].rows.tolist()) == ([{"k": "a"}, {"k": "c"}], [0, 3])
    assert strings.bad == [Bad(2, "it is not UTF-8")]
    assert pylist(Columns(Converter(BYTES), single="k").convert(batch([b"\xff"]))) == [{"k": b"\xff"}]


def test_without_a_schema_every_value_is_bad():
    assert Columns(BARE).convert(batch([b"{}", None])).bad == [Bad(0, "it has no schema, and none is given")]


def test_keys_are_read_from_their_own_column():
    records = pa.record_batch(
        [pa.array([b'{"id":1}'], pa.binary()), pa.array([b"{"], pa.binary())], names=["key", "value"]
    )
    assert pylist(Columns(BARE, table(id={"type": "int32"}), column="key").convert(records)) == [{"id": 1}]


def test_a_default_that_does_not_fit_its_schema_makes_the_records_bad():
    assert "cannot be used" in convert([b"{}"], table(a={"type": "int8", "default": 300})).bad[0].reason
    with pytest.raises(Unfit):
        Exact().value(None, Schema("int8", default='"x"'), "a")


def enveloped(schema: str, payload: str) -> bytes:
    return b'{"schema":%s,"payload":%s}' % (schema.encode(), payload.encode())


def field(kind, default):
    inner = json.dumps(kind)[1:-1]
    return f'{{"type":"struct","fields":[{{{inner},"default":{default},"field":"a"}}]}}'


@pytest.mark.parametrize("digits", ["123456789012345678.12", "1234567890123456789012.34", "0.10", "-1e2", "1e35"])
def test_the_default_of_a_decimal_keeps_its_digits(digits):
    values = [enveloped(field(decimal(2), digits), payload) for payload in ("{}", '{"a":null}')] * 10
    made = Columns(Converter()).convert(batch(values))
    assert not made.bad
    assert pylist(made) == [{"a": Decimal(digits)}] * 20
    found = JsonLines(Converter()).lines(batch(values))
    assert {Decimal(str(json.loads(line, parse_float=Decimal)["a"])) for line in found.array.to_pylist()} == {
        Decimal(digits)
    }
    assert Schema.from_json(found.segments[0].schema).text == found.segments[0].schema


@pytest.mark.parametrize(
    ("kind", "default"),
    [("double", "1e400"), ("float", "1e39"), ("double", "NaN"), ("int32", "1e99999"), ("int8", "1.5")],
)
def test_a_default_that_is_no_number_of_its_type_makes_its_own_record_bad(kind, default):
    good = enveloped(field({"type": kind}, "1"), "{}")
    values = batch([good, enveloped(field({"type": kind}, default), "{}"), good])
    assert [bad.row for bad in Columns(Converter()).convert(values).bad] == [1]
    assert [bad.row for bad in JsonLines(Converter()).lines(values).bad] == [1]


def test_a_default_is_the_same_however_it_is_written():
    for one, other in (("1.0E10", "10000000000.0"), ("1.50", "1.5"), ('"\\u00e9"', '"é"')):
        kind = {"type": "string" if '"' in one else "double"}
        assert Schema.from_json(field(kind, one)) == Schema.from_json(field(kind, other))
