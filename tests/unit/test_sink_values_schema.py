"""Schemas of Connect: read, written and compared by their text, and made for values that carry none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import pyarrow as pa

from integration.record_samples import SCHEMA
from playhead.errors import Invalid
from playhead.pipeline.records.decode.columns import Columns
from playhead.pipeline.records.decode.inference import find_empty, infer_schema
from playhead.pipeline.records.decode.lines import JsonLines
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.schema import Schema

BARE = Converter(schemas_enable=False)


def batch(values) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], names=["value"])


def test_an_inferred_schema_is_wide_enough_for_what_it_saw():
    rows = [
        {"id": 1, "price": 2, "tags": [], "at": "2024-01-02T03:04:05Z", "who": {"name": "x"}, "never": None},
        {"id": 2, "price": 2.5, "tags": ["a"], "ok": True, "who": {"age": 3}, "id2": None},
        {"id": "x"},
    ]
    records = batch([json.dumps(row).encode() for row in rows])
    schema = infer_schema(records, BARE)
    assert schema is not None
    made = Columns(BARE, Schema.from_json(schema.text)).convert(records)
    assert [bad.row for bad in made.bad] == [2]
    assert {field.name: str(field.type) for field in made.parts[0].columns.schema} == {
        "id": "int64",
        "price": "double",
        "tags": "list<item: string>",
        "at": "string",
        "who": "struct<name: string, age: int64>",
        "never": "string",
        "ok": "bool",
        "id2": "string",
    }
    assert made.parts[0].columns.to_pylist()[1]["who"] == {"name": None, "age": 3}
    assert infer_schema(batch([b"5", None, b"{}"]), BARE) is None


@pytest.mark.parametrize(
    ("rows", "empty"),
    [
        ([{"id": 1, "meta": {}}], "meta"),
        ([{"id": 1, "meta": None}, {"meta": {}}], "meta"),
        ([{"id": 1, "in": {"x": 1, "meta": {}}}], "in.meta"),
        ([{"id": 1, "many": [{}]}], "many[]"),
        ([{"id": 1, "meta": {}}, {"meta": {"a": 1}}], None),
        ([{"id": 1, "meta": {"a": 1}}, {"meta": {}}], None),
        ([{"id": 1, "meta": {}}, {"meta": "x"}], None),
    ],
)
def test_a_field_that_was_always_an_empty_object_is_named(rows, empty):
    schema = infer_schema(batch([json.dumps(row).encode() for row in rows]), BARE)
    assert schema is not None
    assert find_empty(schema) == empty


def test_an_empty_object_fits_a_field_that_had_members_elsewhere():
    records = batch([b'{"id":1,"meta":{}}', b'{"id":2,"meta":{"a":1}}'])
    schema = infer_schema(records, BARE)
    assert schema is not None
    made = Columns(BARE, schema).convert(records)
    assert not made.bad
    assert made.parts[0].columns.to_pylist()[0] == {"id": 1, "meta": {"a": None}}


safe = st.integers(-(2**53), 2**53)
finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(codec="utf-8"), max_size=4)
leaves = st.none() | st.booleans() | safe | finite | words
arrays = st.lists(st.none() | safe | finite, max_size=3) | st.lists(st.lists(words, max_size=2), max_size=2)
trees = st.recursive(
    leaves | arrays,
    lambda inner: st.dictionaries(st.sampled_from(["a", "b"]), inner, min_size=1, max_size=2),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["x", "y"]), trees, min_size=1))
def test_one_record_always_fits_the_schema_inferred_from_it(payload):
    """As long as its arrays are of one type, and no object is empty: a schema of Connect has no room for those."""
    records = batch([json.dumps(payload).encode()])
    schema = infer_schema(records, BARE)
    assert schema is not None
    assert Schema.from_json(schema.text) == schema
    assert not Columns(BARE, schema).convert(records).bad


def test_a_schema_survives_its_text_and_equals_itself_in_other_words():
    written = json.loads((SCHEMA + b"null}").decode())["schema"]
    schema = Schema.from_json(json.dumps(written, sort_keys=True, indent=2))
    assert json.loads(schema.text) == written
    assert list(json.loads(schema.text)) == list(written)
    assert Schema.from_json(schema.text) == schema


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        '{"type":"int128"}',
        '{"type":"struct"}',
        '{"type":"array"}',
        '{"type":"int8","optional":1}',
        '{"type":"int8","strange":1}',
        '{"type":"string","name":"org.apache.kafka.connect.data.Date"}',
        '{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal"}',
        '{"type":"struct","fields":[{"type":"int8","field":"a"},{"type":"int8","field":"a"}]}',
    ],
)
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(Invalid):
        Schema.from_json(text)


@pytest.mark.parametrize("odd", [b'{"\\ud800":1}', b'{"id":2,"in":{"\\ud800":1}}', b'{"id":2,"in":{"x":"\\ud800"}}'])
def test_a_record_with_half_a_pair_of_surrogates_is_not_in_the_schema(odd):
    records = batch([b'{"id":1}', odd])
    schema = infer_schema(records, BARE)
    assert schema is not None
    assert [name for name, _ in schema.fields] == ["id"]
    assert [one.row for one in Columns(BARE, Schema.from_json(schema.text)).convert(records).bad] == [1]


HALVES = [
    {"type": "struct", "fields": [{"type": "int8", "field": "\ud800"}]},
    {"type": "struct", "fields": [{"type": "int8", "field": "a", "doc": "\udc00"}]},
    {"type": "struct", "fields": [{"type": "string", "field": "a", "default": "\ud800"}]},
    {"type": "struct", "fields": [{"type": "int8", "field": "a", "parameters": {"\ud800": "x"}}]},
    {"type": "struct", "name": "\ud800", "fields": [{"type": "int8", "field": "a"}]},
]


@pytest.mark.parametrize("schema", HALVES)
def test_a_schema_with_half_a_pair_of_surrogates_makes_its_record_bad(schema):
    with pytest.raises(Invalid, match="half a pair of surrogates"):
        Schema.from_json(json.dumps(schema))
    good = {"schema": table_of("a"), "payload": {"a": 1}}
    records = batch([json.dumps(one).encode() for one in (good, {"schema": schema, "payload": {"a": 1}})])
    assert [one.row for one in Columns(Converter()).convert(records).bad] == [1]
    found = JsonLines(Converter()).lines(records)
    assert [one.row for one in found.bad] == [1]
    assert [one.schema.encode() for one in found.segments] == [
        Schema.from_json(json.dumps(good["schema"])).text.encode()
    ]


def table_of(name):
    return {"type": "struct", "fields": [{"type": "int32", "field": name}]}
