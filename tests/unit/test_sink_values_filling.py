"""Lines of values with a schema: only what fits, and with all the members that Connect would write."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import pyarrow as pa

from playhead.pipeline.records.decode import Segment, filling
from playhead.pipeline.records.decode.filling import Filling
from playhead.pipeline.records.decode.lines import JsonLines, Lines
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.schema import Schema

PACKAGE = "org.apache.kafka.connect.data."
INT32, TEXT = {"type": "int32"}, {"type": "string"}
OPTIONAL_TEXT = TEXT | {"optional": True}
DEFAULTED = TEXT | {"default": "dflt"}
DECIMAL = {"type": "bytes", "name": PACKAGE + "Decimal", "parameters": {"scale": "2", "connect.decimal.precision": "4"}}


def struct(**fields):
    return {"type": "struct", "fields": [inner | {"field": name} for name, inner in fields.items()]}


SAMPLE = struct(id=INT32, v=OPTIONAL_TEXT, **{"def": DEFAULTED})


def lines(payloads, schema, **settings) -> Lines:
    values = [f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode() for payload in payloads]
    batch = pa.record_batch([pa.array(values, pa.binary())], names=["value"])
    return JsonLines(Converter(**settings)).lines(batch)


def texts(found: Lines) -> list[str | None]:
    return [None if line is None else line.decode() for line in found.array.to_pylist()]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('{"v":"no id"}', "field 'id' is missing or null, which its schema does not allow"),
        ('{"id":"text"}', "field 'id' is \"text\", not a number"),
        ('{"id":3000000000}', "field 'id' is 3000000000, out of the range of int32"),
        ('{"id":1,"more":2}', "field 'more' is not in the schema"),
        ("[1]", "the value is an array, not an object"),
    ],
)
def test_a_payload_that_does_not_fit_its_schema_is_bad(payload, reason):
    good = '{"id":1,"v":null,"def":"x"}'
    found = lines([good, payload, good], SAMPLE)
    assert texts(found) == [good, None, good]
    assert [(bad.row, bad.reason) for bad in found.bad] == [(1, reason)]
    assert not found.tombstones.any()
    assert [(part.start, part.stop) for part in found.segments] == [(0, 3)]


def test_a_payload_that_lacks_a_member_is_written_as_connect_writes_it():
    payloads = ['{"id":1}', '{"def":null,"v":"ü\\n","id":2}', '{"def":"x","id":3}', '{"id": 4, "def":"x", "v":null}']
    assert texts(lines(payloads, SAMPLE)) == [
        '{"id":1,"v":null,"def":"dflt"}',
        '{"id":2,"v":"ü\\n","def":"dflt"}',
        '{"id":3,"v":null,"def":"x"}',
        payloads[3],
    ]


def test_without_defaults_for_nulls_a_null_stays_null():
    schema = struct(id=INT32, v=OPTIONAL_TEXT | {"default": "dflt"})
    assert texts(lines(['{"id":1}', '{"id":2,"v":null}'], schema)) == ['{"id":1,"v":"dflt"}', '{"id":2,"v":"dflt"}']
    found = lines(['{"id":1}', '{"id":2,"v":null}'], schema, null_to_default=False)
    assert texts(found) == ['{"id":1,"v":null}', '{"id":2,"v":null}']


def test_members_are_filled_in_inside_of_others_and_numbers_keep_their_digits():
    inner = struct(a=OPTIONAL_TEXT, b={"type": "double"})
    schema = struct(
        one=inner | {"optional": True},
        many={"type": "array", "items": inner},
        named={"type": "map", "keys": TEXT, "values": inner},
    )
    found = lines(['{"one":null,"many":[{"b":1.50}],"named":{"x":{"b":1e3,"a":"y"},"w":{"b":7}}}'], schema)
    assert texts(found) == [
        '{"one":null,"many":[{"a":null,"b":1.50}],"named":{"x":{"a":"y","b":1e3},"w":{"a":null,"b":7}}}'
    ]


def test_a_value_that_is_no_struct_must_fit_too():
    found = lines(["1", '"x"', "4000000000"], INT32)
    assert texts(found) == ["1", None, None]
    assert [bad.row for bad in found.bad] == [1, 2]


def test_a_struct_without_fields_is_an_empty_object():
    found = lines(["{}", '{"a":1}'], struct())
    assert (texts(found), [bad.row for bad in found.bad]) == (["{}", None], [1])


def test_a_decimal_may_have_more_digits_than_a_column_would_hold():
    payloads = ['{"d":"%s"}' % ("AAAA" * 8), '{"d":12345678901234567890.12}', '{"d":1.234}', '{"d":""}']
    found = lines(payloads, struct(d=DECIMAL))
    assert texts(found) == [*payloads[:2], None, None]


def test_a_schema_whose_default_does_not_fit_cannot_be_used():
    (bad,) = lines(['{"id":1}'], struct(id=INT32 | {"default": "x"})).bad
    assert bad.reason == 'its schema cannot be used: the value is "x", not a number'


def test_a_schema_that_is_given_counts_as_one_that_came_along():
    converter = Converter(schema_text=Schema.from_json(json.dumps(SAMPLE)).text)
    batch = pa.record_batch([pa.array([b'{"id":1}', b'{"id":"x"}'], pa.binary())], names=["value"])
    found = JsonLines(converter).lines(batch)
    assert (texts(found), [bad.row for bad in found.bad]) == (['{"id":1,"v":null,"def":"dflt"}', None], [1])


def test_without_schemas_nothing_is_looked_at():
    batch = pa.record_batch([pa.array([b'{"id":"x"}', b"5"], pa.binary())], names=["value"])
    found = JsonLines(Converter(schemas_enable=False)).lines(batch)
    assert (texts(found), found.bad, found.segments) == (['{"id":"x"}', "5"], [], [Segment(0, 2, "")])
    assert texts(lines(['{"free":1}'], None)) == ['{"free":1}']


# Whole arrays and single rows agree

SCALARS = [
    *["null", "true", "false", "0", "-0", "1", "127", "128", "-128", "-129", "32768", "2147483647", "2147483648"],
    *["1.0", "1e2", "1.5", "1e-400", "1E400", "-0.0", "16777217", "16777216.5", "9007199254740993", "86400000", "-1"],
    *["9223372036854775807", "9223372036854775808", "-9223372036854775809", "123456789012345678901234567890"],
    *['""', '"x"', '"NaN"', '"1"', '"ü😀"', '"\\ud83d\\ude00"', '"\\ud800"', '"a\\":"', '"dflt"'],
    *['"AA=="', '"AAA="', '"AB=="', '"AAA"', '"A==="', '"AA=A"', '"A A="', '"AA-_"', '"AAAAAA=="'],
    *["{}", "[]", '{"a":1}', '[[1,"x"]]', '[["x",1]]', "[null]", "[[null,1]]", "[1,2]"],
]
NAMES = ["a", "b", "ü", "a b", 'q"', "n\n"]
plain = st.sampled_from(["int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"])
logical = st.sampled_from(
    [DECIMAL, *({"type": kind, "name": PACKAGE + name} for kind, name in (("int32", "Date"), ("int32", "Time")))]
)
leaves = plain.map(lambda kind: {"type": kind}) | logical


def wider(inner):
    keys = st.sampled_from([TEXT, OPTIONAL_TEXT, INT32])
    return st.one_of(
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=3).map(lambda fields: struct(**fields)),
        inner.map(lambda items: {"type": "array", "items": items}),
        st.builds(lambda key, items: {"type": "map", "keys": key, "values": items}, keys, inner),
        inner.map(lambda one: one | {"optional": True}),
    )


schemas = st.recursive(leaves | st.just(DEFAULTED), wider, max_leaves=5)
documents = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3).map(
            lambda members: "{" + ", ".join(f"{json.dumps(name)}:{text}" for name, text in members) + "}"
        ),
    ),
    max_leaves=6,
)


def fitting(schema):
    """Texts that often fit: the schema's own members, some of them, and any scalar where one belongs."""
    if schema.get("fields") is not None:
        members = [st.none() | fitting(inner).map(_member(inner["field"])) for inner in schema["fields"]]
        return st.tuples(*members).map(lambda texts: "{" + ",".join(one for one in texts if one) + "}")
    if schema["type"] == "array":
        return st.lists(fitting(schema["items"]), max_size=2).map(lambda items: "[" + ",".join(items) + "]")
    return st.sampled_from(SCALARS)


def _member(name):
    return lambda text: f"{json.dumps(name)}:{text}"


@given(st.data())
def test_what_becomes_of_a_value_is_the_same_for_whole_arrays_and_for_single_rows(data):
    schema = data.draw(schemas)
    given_texts = data.draw(st.lists(fitting(schema) | documents, min_size=1, max_size=6))
    array = pa.array([text.encode() for text in given_texts], pa.binary())
    one = Filling(Schema.from_json(json.dumps(schema)), data.draw(st.booleans()))
    together = one.fill(array)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(filling, "_fit", lambda whole, texts: False)
        assert one.fill(array) == together
    for row, text in together[0].items():
        if text is not None:
            assert one.fill(pa.array([text], pa.binary())) == ({}, []), "what is written stands as it is"
            assert all(bad.row != row for bad in together[1])


def test_whole_arrays_are_taken_where_every_member_is_there(monkeypatch):
    monkeypatch.setattr(filling, "settle", lambda count, fast, slow: None if fast(0, count) else pytest.fail("slow"))
    assert texts(lines(['{"def":"x", "id":%d,"v":null}' % n for n in range(5)], SAMPLE))[4] == (
        '{"def":"x", "id":4,"v":null}'
    )
