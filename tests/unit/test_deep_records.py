"""A record that is nested too deeply is one bad record, wherever it is read and written, and one at the limit is read."""

from collections.abc import Callable

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa

from playhead.errors import Invalid
from playhead.pipeline.records.decode.batches import Decoding, read_values
from playhead.pipeline.records.decode.columns import Columns
from playhead.pipeline.records.decode.inference import find_empty, infer_schema
from playhead.pipeline.records.decode.javatext import JavaLines
from playhead.pipeline.records.decode.jsontext import DEEPEST
from playhead.pipeline.records.decode.lines import JsonLines
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.options import SIMPLE, STRING
from playhead.pipeline.records.encode.options import Converter as Writer
from playhead.pipeline.records.literals import parse_literal
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms.apply import apply_chain
from playhead.pipeline.records.transforms.options import parse_stages

BARE = Converter(schemas_enable=False)
CALLS = 250  # of Spark and of Python's own, before a record is read
WRITERS = [Writer(), Writer(schemas_enable=False), Writer(STRING)]


def below(calls: int, run: Callable[[], None]) -> None:
    if calls:
        below(calls - 1, run)
    else:
        run()


def objects(depth):
    return b'{"a":' * depth + b"1" + b"}" * depth


def lists(depth):
    return b'{"a":' + b"[" * (depth - 1) + b"1" + b"]" * (depth - 1) + b"}"


def both(depth):
    return b'{"a":[' * (depth // 2) + b"1" + b"]}" * (depth // 2)


def of_arrays(depth):
    schema = '{"type":"array","optional":true,"items":' * depth + '{"type":"int32"}' + "}" * depth
    return b'{"schema":%s,"payload":%s}' % (schema.encode(), b"[" * depth + b"1" + b"]" * depth)


def of_structs(depth):
    begin, end = '{"type":"struct","optional":true,"fields":[', '],"field":"a"}'
    schema = begin * (depth // 2) + '{"type":"int32","field":"a"}' + end * (depth // 2)
    return b'{"schema":%s,"payload":%s}' % (schema.encode(), objects(depth // 2))


def batch(values):
    return pa.record_batch([pa.array(values, pa.binary())], names=["value"])


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("write", [objects, lists, both, of_arrays, of_structs])
def test_a_record_at_the_limit_is_read_and_written_by_everything(write, count):
    converter = Converter() if write in (of_arrays, of_structs) else BARE
    texts = [write(DEEPEST if converter is BARE else DEEPEST - 2)] * count

    def run() -> None:
        found = read_values(pa.array(texts, pa.binary()), converter)
        assert not found.bad
        for part in found.parts:
            for writer in WRITERS:
                assert not encode(part.values, writer)[1]
        assert not JsonLines(converter).lines(batch(texts)).bad
        assert not JavaLines(converter).lines(batch(texts))[1]
        if converter is BARE:
            schema = infer_schema(batch(texts), BARE)
            assert schema is not None
            assert find_empty(schema) is None
            assert not Columns(BARE, Schema.from_json(schema.text)).convert(batch(texts)).bad

    below(CALLS, run)


@pytest.mark.parametrize("depth", [DEEPEST + 2, 500, 5000])
@pytest.mark.parametrize("write", [objects, lists, both, of_arrays, of_structs])
def test_a_record_beyond_the_limit_is_one_bad_record(write, depth):
    converter = Converter() if write in (of_arrays, of_structs) else BARE
    good = write(6)
    for texts, bad in (([good] * 20 + [write(depth)], 20), ([write(depth)] + [good] * 20, 0)):
        assert [one.row for one in read_values(pa.array(texts, pa.binary()), converter).bad] == [bad]
        assert [one.row for one in JsonLines(converter).lines(batch(texts)).bad] == [bad]
        assert [one.row for one in JavaLines(converter).lines(batch(texts))[1]] == [bad]


def test_a_schema_that_is_too_deep_is_refused():
    with pytest.raises(Invalid):
        Schema.from_json('{"type":"array","items":' * 3000 + '{"type":"int8"}' + "}" * 3000)


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MILLISECONDS = pa.timestamp("us", "UTC")


def records(headers):
    count = len(headers)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([b"{}"] * count),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([0] * count, MILLISECONDS),
        "headers": pa.array(headers, HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("opening", ["[", "{", "[{", '{"a":'])
def test_a_header_with_thousands_of_brackets_is_one_bad_record(opening):
    deep = (opening * 2000).encode()
    made = Decoding(BARE, header=SIMPLE).decode(records([[("a", b"1")], [("a", b"1"), ("b", deep)], None]), "t", 0)
    assert [(one.row, one.stage) for one in made.bad] == [(1, "HEADER_CONVERTER")]
    (whole,) = made.batches
    assert whole.rows.tolist() == [0, 2]
    assert [[one.value for one in listed] for listed in whole.headers or ()] == [[1], []]


def test_a_header_at_the_limit_is_read():
    text = "[" * DEEPEST + "1" + "]" * DEEPEST
    below(CALLS, lambda: None if parse_literal(text)[0] else pytest.fail("it has no schema"))


def test_a_literal_with_thousands_of_brackets_fails_at_its_records():
    kafka = "org.apache.kafka.connect.transforms.InsertHeader"
    config = {"transforms": "x", "transforms.x.type": kafka, "transforms.x.header": "h"}
    stages = parse_stages(config | {"transforms.x.value.literal": "[" * 2000})
    (whole,) = Decoding(BARE).decode(records([None, None]), "t", 0).batches
    assert [one.row for one in apply_chain(stages, whole).bad] == [0, 1]
