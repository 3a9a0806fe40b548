"""The file sink's options and its lines, as far as they are checked without a worker."""

import pyarrow as pa
import pytest

from integration.line_files import FIRST, LineFile
from playhead.errors import ConfigInvalid
from playhead.ledger.model import Output, OutputKind
from playhead.pipeline.deliver.line_file import check_options, open_file_sink
from playhead.pipeline.deliver.sink import RejectedRecord
from playhead.pipeline.records.decode.javatext import JavaLines
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.encode.options import JSON, STRING

GOOD = {
    "connector.class": "FileStreamSink",
    "name": "files",
    "topics": "t",
    "file": "x.txt",
    "value.converter": STRING,
}


def faults(**config: str) -> list[str]:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return [str(fault) for fault in check_options(GOOD | named, {})]


def test_the_options_of_a_plain_connector_pass():
    assert faults(errors_tolerance="all", consumer_override_fetch_min_bytes="1", tasks_max="4", transforms="") == []


def test_what_is_not_honoured_is_refused_by_name():
    assert faults(flush_size="3", transforms="a") == [
        "flush.size: is not an option of this connector that the Spark engine knows",
        "transforms: names 'a', which has no transforms.a.type",
    ]


def test_standard_output_is_refused():
    assert faults(file=" ") == ["file: must be set: the stdout of Spark's executors is not shown"]
    with pytest.raises(ConfigInvalid, match="the stdout of Spark's executors"):
        open_file_sink({key: value for key, value in GOOD.items() if key != "file"}, {})


def test_bytes_are_refused_by_name():
    assert faults(value_converter=BYTES) == [
        "value.converter: FileStreamSink has no text for bytes: on a worker it would write their addresses in memory"
    ]
    assert faults(value_converter=JSON) == []


def test_the_worker_may_name_the_converter():
    config = {key: value for key, value in GOOD.items() if key != "value.converter"}
    assert check_options(config, {"value.converter": STRING}) == []


def test_bytes_that_are_no_text_are_rejected_and_all_others_are_there(tmp_path):
    seen: list[RejectedRecord] = []
    values = [b"a", b"\xff\xfe", None, "ü".encode(), b"\xed\xa0\x80", b"z"]
    one = LineFile(tmp_path, {FIRST: values}, per_claim=10, reject=seen.append)
    one.run()
    assert one.path.read_text() == "a\nnull\nü\nz\n"
    assert [(bad.topic, bad.partition, bad.offset, bad.reason) for bad in seen] == [
        ("orders", 0, 1, "it is not UTF-8"),
        ("orders", 0, 4, "it is not UTF-8"),
    ]
    (closed,) = one.recorded()
    assert (closed.count, closed.rejected, closed.hash_sum) == (4, 2, 0 + 2 + 3 + 5)
    assert closed.outputs[0] == Output(str(one.path), 4, one.path.stat().st_size, OutputKind.FILE)


def test_an_envelope_without_a_schema_and_a_struct_without_fields_have_their_text():
    empty, number = '{"type":"struct","fields":[]}', '{"type":"int32"}'
    pairs = [("null", '{"free":1}'), (empty, "{}"), (number, "7"), ("null", "null"), (number, '"x"'), ("null", "[1]")]
    values = [f'{{"schema":{schema},"payload":{payload}}}'.encode() for schema, payload in pairs]
    batch = pa.record_batch([pa.array([*values, None], pa.binary())], names=["value"])
    texts, bad = JavaLines(Converter()).lines(batch)
    assert texts.to_pylist() == ["{free=1}", "Struct{}", "7", "null", None, "[1]", "null"]
    assert [one.row for one in bad] == [4]
