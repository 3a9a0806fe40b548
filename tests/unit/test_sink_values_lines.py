"""Values become lines of JSON: exactly those that Python's json module takes, whatever their neighbours are."""

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import pyarrow as pa

from playhead.pipeline.records.batch import Bad
from playhead.pipeline.records.decode import Segment
from playhead.pipeline.records.decode.fields import read_field
from playhead.pipeline.records.decode.jsontext import DEEPEST, NotJson, are_plain, join_lines, one_line
from playhead.pipeline.records.decode.lines import JsonLines, Lines
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.encode.options import STRING

BARE, WITH_SCHEMAS = Converter(schemas_enable=False), Converter()
SCHEMA = '{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false,"name":"t"}'
OTHER = '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"t"}'

NULLABLE = SCHEMA.replace('"optional":false,"name"', '"optional":true,"name"')


def batch(values) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], names=["value"])


def lines(values, converter: Converter = BARE) -> Lines:
    return JsonLines(converter).lines(batch(values))


def enveloped(payload: str, schema: str = SCHEMA) -> bytes:
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


def no_constant(name):
    raise ValueError(name)


def is_json(value: bytes) -> bool:
    """The json module's word, with big integers and without NaN; for values that are not nested deep."""
    try:
        json.loads(value.decode(), parse_constant=no_constant, parse_int=str)
    except ValueError:
        return False
    return True


ADVERSARIES = [
    b'{"a":1}{"b":2}',
    b'{"a":1} {"b":2}',
    b'{"a":"}',
    b'{"}',
    b'{":1}',
    b'{"a":{}',
    b"{}}",
    b'{"a":[{}',
    b"{}]}",
    b'{"a":NaN}',
    b'{"a":-Infinity}',
    b'{"a":Inf}',
    b'{"a":1,"a":2}',
    b'{"a":"\x01"}',
    b'{"a":"\x00"}',
    b"{}\x00",
    b'{"a":"\n"}',
    b'{"a":\n1}',
    b"\xef\xbb\xbf{}",
    b'{"a":"\xff"}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\\ud800"}',
    b'{"a":"\\udc00\\ud800"}',
    b'{"a":"\\u00zz"}',
    b'{"a":"\\x"}',
    b'{"a":1e999}',
    b'{"a":%s}' % (b"9" * 5000),
    b'{"a":01}',
    b'{"a":1.}',
    b'{"a":.5}',
    b'{"a":+1}',
    b'{"a":-}',
    b'{"a":1,}',
    b'{"a":[1,]}',
    b"{'a':1}",
    b"{a:1}",
    b'{"a":1/*x*/}',
    b'{"a":tru}',
    b"[1,2]",
    b"1,2",
    b"1][2",
    b'"text"',
    b'"te"xt"',
    b"",
    b" ",
    b"12",
    b" 12 ",
    b"nul",
    b"true",
    b'{"a":1}',
    b'{"a":{"b":[1,2.5e3,null,"x"]}}',
]
PIECES = rb'{ } [ ] " : , 1 \ \u d800 n null - . e "a": NaN true'.split()
pieces = st.sampled_from([*PIECES, b" ", b"\n", b"\xc3\xa9", b"\xff", b"\x1f", b"\x7f"])
scraps = st.lists(pieces, max_size=8).map(b"".join)
braced = scraps.map(lambda scrap: b"{" + scrap + b"}")
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
documents = st.builds(
    lambda tree, escaped, indent: json.dumps(tree, ensure_ascii=escaped, indent=indent).encode(errors="surrogatepass"),
    trees,
    st.booleans(),
    st.sampled_from([None, None, 2]),
)
damaged = st.builds(lambda text, at: text[: at % (len(text) + 1)], documents, st.integers(0, 50))
values = st.one_of(st.sampled_from(ADVERSARIES), scraps, braced, documents, damaged)


@given(st.lists(values, min_size=1, max_size=5))
def test_what_the_fast_check_takes_is_json_for_python_too(given_values):
    if are_plain(pa.array(given_values, pa.binary())):
        assert all(is_json(value) and one_line(value) == value for value in given_values)


@given(values)
def test_the_slow_check_agrees_with_python_and_keeps_the_meaning(value):
    bare = value.removeprefix(b"\xef\xbb\xbf")
    try:
        line = one_line(value)
    except NotJson:
        assert not is_json(bare)
        assert bare.strip(b" \t\r\n")
    else:
        bare = bare if bare.strip(b" \t\r\n") else b"null"  # what JsonConverter makes of nothing
        assert is_json(bare)
        assert not re.search(rb"[\x00-\x1f]", line)
        assert json.loads(line, parse_int=str, parse_float=str) == json.loads(bare, parse_int=str, parse_float=str)


@given(st.lists(st.none() | values, max_size=6))
def test_a_line_does_not_depend_on_its_neighbours(given_values):
    together = lines(given_values)
    alone = [lines([value]) for value in given_values]
    assert together.array.to_pylist() == [line.array[0].as_py() for line in alone]
    assert together.tombstones.tolist() == [bool(line.tombstones[0]) for line in alone]
    assert [one.row for one in together.bad] == [row for row, line in enumerate(alone) if line.bad]


@given(
    st.lists(
        values.map(lambda payload: b'{"schema":%s,"payload":%s}' % (SCHEMA.encode(), payload)) | values, max_size=6
    )
)
def test_a_payload_does_not_depend_on_its_neighbours(given_values):
    together = lines(given_values, WITH_SCHEMAS)
    alone = [lines([value], WITH_SCHEMAS) for value in given_values]
    assert together.array.to_pylist() == [line.array[0].as_py() for line in alone]
    assert [one.row for one in together.bad] == [row for row, line in enumerate(alone) if line.bad]


@given(documents)
def test_a_payload_means_what_the_envelope_means(document):
    value = b'{"schema":null,"payload":%s}' % document
    found = lines([value], WITH_SCHEMAS)
    assert not found.bad
    assert found.segments == [Segment(0, 1, "")]
    expected = json.loads(value, parse_int=str, parse_float=str)["payload"]
    line = found.array[0].as_py()
    assert (line is None) == (expected is None)
    assert expected is None or json.loads(line, parse_int=str, parse_float=str) == expected


def test_every_row_is_a_line_a_tombstone_or_bad():
    found = lines([b'{"a": 1}', None, b"null", b"{", b'{\n "b": "x y"\n}', b""])
    assert found.array.to_pylist() == [b'{"a": 1}', None, None, None, b'{"b":"x y"}', None]
    assert found.tombstones.tolist() == [False, True, True, False, False, True]
    assert [bad.row for bad in found.bad] == [3]
    assert found.segments == [Segment(0, 6, "")]


def test_a_null_payload_is_a_tombstone_a_default_or_bad():
    number = '{"type":"int32","optional":%s%s}'
    given_values = [
        enveloped("null", number % ("true", "")),
        enveloped("null", number % ("false", "")),
        enveloped("null", number % ("false", ',"default":4')),
        enveloped("5", number % ("false", "")),
    ]
    found = lines(given_values, WITH_SCHEMAS)
    assert found.array.to_pylist() == [None, None, b"4", b"5"]
    assert found.tombstones.tolist() == [True, False, False, False]
    assert [bad.row for bad in found.bad] == [1]


def test_one_bad_record_in_a_large_batch_is_found_and_the_others_are_kept():
    given_values: list[bytes | None] = [b'{"id":%d}' % at for at in range(10_000)]
    given_values[7_777] = b'{"id":1}{"id":2}'
    found = lines(given_values)
    assert found.bad == [Bad(7_777, "it is no JSON: Extra data at character 8")]
    given_values[7_777] = None
    assert found.array.to_pylist() == given_values


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1, 100_000])
def test_nesting_has_the_same_limit_beside_other_values(depth):
    value = b'{"a":' * depth + b"1" + b"}" * depth
    for neighbours in ([], [b"{"]):
        found = lines([value, *neighbours])
        assert (found.array[0].as_py() == value) == (depth <= DEEPEST)
        assert depth <= DEEPEST or found.bad[0] == Bad(0, f"it is nested deeper than {DEEPEST} levels")


def test_lines_are_joined_with_a_newline_behind_each():
    found = lines([b"{}", None, b"[1]", b"2"]).array
    assert bytes(join_lines(found)) == b"{}\n[1]\n2\n"
    assert bytes(join_lines(found.slice(2, 1))) == b"[1]\n"
    assert bytes(join_lines(found.slice(1, 1))) == b""


def test_a_change_of_the_schema_is_a_boundary():
    given_values = [
        enveloped('{"id":1}'),
        None,
        b"{",
        enveloped('{"id":2}', OTHER),
        enveloped("null", NULLABLE),
        enveloped('{"id":3}'),
    ]
    found = lines(given_values, WITH_SCHEMAS)
    assert found.array.to_pylist() == [b'{"id":1}', None, None, b'{"id":2}', None, b'{"id":3}']
    assert [(part.start, part.stop) for part in found.segments] == [(0, 3), (3, 5), (5, 6)]
    assert json.loads(found.segments[1].schema) == json.loads(OTHER)
    assert found.tombstones.tolist() == [False, True, False, False, True, False]


def test_the_same_schema_in_other_words_is_no_boundary():
    indented = json.dumps(json.loads(SCHEMA), sort_keys=True, indent=1)
    given_values = [
        enveloped('{"id":1}'),
        f'{{"payload": {{"id":2}}, "schema": {indented}}}'.encode(),
        enveloped(' {"id":3} '),
        b'{"schema":%s,"payload":0,"payload":{"id":4}}' % SCHEMA.encode(),
    ]
    found = lines(given_values, WITH_SCHEMAS)
    assert found.array.to_pylist() == [b'{"id":%d}' % at for at in (1, 2, 3, 4)]
    assert len(found.segments) == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"payload":{"id":1}}', "schema"),
        (enveloped('{"id":1},"more":1'), "no other"),
        (enveloped('{"id":1}', '{"type":"int128"}'), "int128"),
        (enveloped("null"), "does not allow"),
        (b"[1]", "envelope"),
        (b"\xff", "UTF-8"),
    ],
)
def test_what_is_no_envelope_is_bad(value, reason):
    (bad,) = lines([enveloped('{"id":1}'), value], WITH_SCHEMAS).bad
    assert bad.row == 1
    assert reason in bad.reason


def test_many_schemas_in_one_batch_are_all_found():
    given_values = [
        enveloped("%d" % at, '{"type":"int32","optional":false,"name":"n%d"}' % (at % 40)) for at in range(400)
    ]
    found = lines(given_values, WITH_SCHEMAS)
    assert found.array.to_pylist() == [b"%d" % at for at in range(400)]
    assert [json.loads(part.schema)["name"] for part in found.segments] == [f"n{at % 40}" for at in range(400)]


@given(st.lists(st.text() | st.none(), max_size=5))
def test_a_string_is_a_line_of_json(texts):
    texts = [None if text is None else text.encode(errors="surrogatepass") for text in texts]
    found = lines(texts, Converter(STRING, schemas_enable=False))
    for row, text in enumerate(texts):
        line = found.array[row].as_py()
        assert (line is None) == (text is None or row in [bad.row for bad in found.bad])
        assert line is None or (json.loads(line).encode() == text and b"\n" not in line)


def test_bytes_are_a_line_of_base64_and_text_that_is_none_is_bad():
    assert lines([b"\xff\x00"], Converter(BYTES)).array.to_pylist() == [b'"%s"' % base64.b64encode(b"\xff\x00")]
    assert lines([b"a", b"\xff"], Converter(STRING)).bad == [Bad(1, "it is not UTF-8")]


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b"]), trees, max_size=2), min_size=1, max_size=4),
    st.sampled_from(["a", "a.b"]),
)
def test_a_field_has_the_same_text_whatever_its_neighbours_are(objects, path):
    texts = [json.dumps(one).encode() for one in objects]
    together = read_field(pa.array(texts, pa.binary()), path).to_pylist()
    alone = [read_field(pa.array([text], pa.binary()), path)[0].as_py() for text in texts]
    assert [_text(value) for value in together] == [_text(value) for value in alone]


def _text(value):
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def test_fields_have_types_where_all_agree():
    def field(*texts):
        return read_field(pa.array([text.encode() for text in texts], pa.binary()), "a.b")

    assert field('{"a":{"b":1},"c":2}', '{"a":{"b":-0}}').to_pylist() == [1, 0]
    assert field('{"a":{"b":"x"}}', '{"a":5}', '{"a":{"b":true}}', '{"a":{"b":1.50}}').to_pylist() == [
        "x",
        None,
        "true",
        "1.50",
    ]
    assert field('{"a":{"b":false}}', "{}").to_pylist() == [False, None]


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[%s]}' % b",".join([b'{"b":[1]}'] * 300),
        b'{"a":"%s"}' % (b"[{" * 300),
        b'{"a":"%s"}' % (b'\\"[' * 300),
        b'{"a":"%s\\\\","b":[[]]}' % (b"[" * 300),
    ],
)
def test_many_brackets_side_by_side_or_in_a_text_are_not_deep(text):
    assert are_plain(pa.array([b"{}", text], pa.binary()))
    assert not are_plain(pa.array([text, b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1)], pa.binary()))
    assert not are_plain(pa.array([text, text[:-1], text + b"\\"], pa.binary()))
