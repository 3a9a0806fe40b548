"""Values without a schema as columns: they are what the exact reader gives one by one, order of members and classes included."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.pipeline.records.batch import Batch, Moment, Untyped
from playhead.pipeline.records.decode import shapes
from playhead.pipeline.records.decode.batches import read_values
from playhead.pipeline.records.decode.exact import read_plain
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.decode.pieces import FEWEST
from playhead.pipeline.records.decode.shapes import read_shapes
from playhead.pipeline.records.encode.converters import encode, json_text
from playhead.pipeline.records.encode.options import Converter as Writer
from playhead.pipeline.records.transforms.apply import apply_chain
from playhead.pipeline.records.transforms.options import parse_stages
from playhead.pipeline.records.uniform import Uniform

KAFKA = "org.apache.kafka.connect.transforms."


def column(texts):
    return pa.array([text if isinstance(text, bytes) else text.encode() for text in texts], pa.binary())


def exactly(value):
    """With its class and the order of its members."""
    if isinstance(value, dict):
        return [(name, exactly(inner)) for name, inner in value.items()]
    if isinstance(value, list):
        return [exactly(inner) for inner in value]
    return type(value), str(value)


def untyped(values):
    assert isinstance(values, Untyped)
    return values


def values_of(part):
    return untyped(part.values).values


def read(texts):
    """Of each text that is in a shape: its value."""
    found: dict[int, object] = {}
    for places, values in read_shapes(column(texts)):
        assert isinstance(values, Uniform)
        assert list(places) == sorted(places)
        found |= {int(place): value for place, value in zip(places, values.values, strict=True)}
    return found


def check(texts, expected_columns):
    found = read(texts)
    for place, value in found.items():
        assert exactly(value) == exactly(read_plain(column(texts)[place].as_py()))
    assert sorted(found) == sorted(expected_columns)


MANY = range(FEWEST)


def test_objects_of_one_shape_are_columns():
    check([f'{{"id":{n},"name":"é {n}","x":-0.0,"l":[1,null],"in":{{"a":null,"t":true}}}}' for n in MANY], MANY)


@pytest.mark.parametrize(
    "other",
    [
        '{"b":"x","a":2}',  # another order, which HashMap may keep
        '{"a":2}',
        '{"a":2,"b":"x","c":3}',
        '{"a":2.0,"b":"x"}',
        '{"a":2e3,"b":"x"}',
        '{"a":99999999999999999999,"b":"x"}',
        '{"a":"2","b":"x"}',
        '{"a":2,"b":5}',
        '{"a":2,"b":{"a":3}}',
        '{"a":2,"b":["x"]}',
        r'{"a":2,"\u0062":"x"}',
        '{"a" :2,"b":"x"}',
        '{"a":2,"a":3,"b":"x"}',
        '{"a":1,"b":"x","b":"y"}',
        "[]",
        '[{"a":2,"b":"x"}]',
        "5",
        '"\\"a\\":2,\\"b\\":\\"x\\""',
        r'{"a":2,"b":"\ud800"}',
    ],
)
def test_what_has_another_shape_is_left_and_hides_no_other(other):
    texts = [f'{{"a":{n},"b":"y"}}' for n in range(2 * FEWEST)]
    found = read([*texts, other])
    assert 2 * FEWEST not in found
    values = read_values(column([*texts, other]), Converter(schemas_enable=False))
    alone = read_values(column([other]), Converter(schemas_enable=False))
    rows = {int(row): value for part in values.parts for row, value in zip(part.rows, values_of(part), strict=True)}
    assert [one.reason for one in values.bad] == [one.reason for one in alone.bad]
    assert [exactly(rows[row]) for row in range(len(texts))] == [exactly(read_plain(text.encode())) for text in texts]
    if not alone.bad:
        assert exactly(rows[len(texts)]) == exactly(values_of(alone.parts[0])[0])


def test_members_that_are_missing_make_several_shapes():
    texts = [json.dumps({"a": n, **({"b": 1} if n % 2 else {}), **({"c": "x"} if n % 3 else {})}) for n in range(100)]
    check(texts, range(100))


def test_whole_numbers_and_others_are_different_shapes():
    check([f'{{"a":{n if n % 2 else n + 0.5}}}' for n in range(4 * FEWEST)], range(4 * FEWEST))


@pytest.mark.parametrize("items", [[{"x": None}, {}], [{}, {"x": 1}], [[1], None], [1, {"x": 1}]])
def test_lists_of_objects_or_lists_are_left(items):
    assert read([json.dumps({"a": items})] * 2 * FEWEST) == {}


def test_few_of_one_shape_are_left():
    check(['{"a":1}'] * (FEWEST - 1), [])


leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    leaves | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
STYLES = [{}, {"separators": (",", ":")}, {"ensure_ascii": False}]


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "AaAa", "BBBB", "é"]), values), max_size=6), st.data())
def test_any_objects_are_what_the_exact_reader_gives(objects, data):
    texts = [json.dumps(one, **data.draw(st.sampled_from(STYLES))) for one in objects]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "FEWEST", 1)
        found = read(texts)
        uniform = [part for _, part in read_shapes(column(texts))]
    for place, value in found.items():
        assert exactly(value) == exactly(read_plain(texts[place].encode()))
    for one in uniform:
        written, bad = encode(one, Writer(schemas_enable=False))
        assert not bad
        assert [text.decode() for text in written.to_pylist()] == [json_text(value) for value in one.values]


def chain(*stages):
    config = {"transforms": ",".join(f"t{at}" for at in range(len(stages)))}
    for at, (type_, options) in enumerate(stages):
        config[f"transforms.t{at}.type"] = KAFKA + type_
        config |= {f"transforms.t{at}.{name}": text for name, text in options.items()}
    return parse_stages(config)


def batch(values, count):
    return Batch(
        np.arange(count), "t", Untyped([None] * count), values, pa.array([5] * count, pa.int64()), 0, np.arange(count)
    )


STAGES = {
    "ReplaceField$Value": {"renames": "a:z", "exclude": "t"},
    "InsertField$Value": {"topic.field": "topic", "offset.field": "o", "timestamp.field": "at", "static.field": "s"}
    | {"static.value": "v"},
    "Cast$Value": {"spec": "a:string,x:float32,gone:int8"},
    "MaskField$Value": {"fields": "a,x,name,t"},
    "TimestampConverter$Value": {"field": "a", "target.type": "Timestamp"},
    "Flatten$Value": {"delimiter": "_"},
    "HoistField$Value": {"field": "h"},
    "ExtractField$Value": {"field": "in"},
}


@pytest.mark.parametrize("type_", STAGES)
def test_a_transform_leaves_columns_and_does_to_them_what_it_does_to_each(type_):
    texts = [f'{{"a":{n},"x":{n}.5,"name":"n","t":true,"in":{{"b":[1],"c":null}}}}' for n in MANY]
    ((_, uniform),) = read_shapes(column(texts))
    each = Untyped([read_plain(text.encode()) for text in texts])
    (made,) = apply_chain(chain((type_, STAGES[type_])), batch(uniform, FEWEST)).batches
    (slow,) = apply_chain(chain((type_, STAGES[type_])), batch(each, FEWEST)).batches
    assert isinstance(made.value, Uniform)
    assert not isinstance(slow.value, Uniform)
    assert [exactly(one) for one in made.value.values] == [exactly(one) for one in untyped(slow.value).values]


def test_a_transform_that_fails_at_some_records_fails_at_those_only():
    texts = [f'{{"a":"{n}{"x" if n == 3 else ""}"}}' for n in MANY]
    ((_, uniform),) = read_shapes(column(texts))
    made = apply_chain(chain(("Cast$Value", {"spec": "a:int32"})), batch(uniform, FEWEST))
    assert [one.row for one in made.bad] == [3]
    (left,) = made.batches
    assert list(untyped(left.value).values) == [{"a": np.int32(n)} for n in MANY if n != 3]


def test_dates_without_a_schema_stay_dates():
    texts = [f'{{"a":{n}}}' for n in MANY]
    ((_, uniform),) = read_shapes(column(texts))
    convert = ("TimestampConverter$Value", {"field": "a", "target.type": "Date"})
    (made,) = apply_chain(chain(convert), batch(uniform, FEWEST)).batches
    assert untyped(made.value).values[7] == {"a": Moment(0)}
    assert [one.row for one in encode(made.value, Writer(schemas_enable=False))[1]] == list(MANY)


@pytest.mark.parametrize(
    "odd", [b'{"\\ud800":1}', b'{"a":1,"\\ud800":1}', b'{"a":{"\\ud800":1}}', b'{"a":[{"\\ud800":1}]}']
)
def test_half_a_pair_of_surrogates_in_a_name_is_one_bad_record(odd):
    plain = [b'{"a":1}'] * 2 * FEWEST
    for texts, place in (([odd, *plain], 0), ([*plain, odd], len(plain))):
        found = read_values(column(texts), Converter(schemas_enable=False))
        assert [one.row for one in found.bad] == [place]
        assert sum(len(part.rows) for part in found.parts) == len(plain)


def test_names_with_escapes_are_not_swapped():
    texts = [json.dumps({name: n}) for n, name in enumerate(["a\n", "a\\n"] * 2 * FEWEST)]
    found = read_values(column(texts), Converter(schemas_enable=False))
    assert [value for part in found.parts for value in values_of(part)] == [json.loads(text) for text in texts]
