"""Transforms of sinks: what the converters give to the chain, and what files and lines become of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration.line_files import records as line_records
from playhead.errors import Refused
from playhead.ledger.model import ClosedRange, RangeClaim
from playhead.model.ranges import OffsetRange
from playhead.pipeline.classes import ConnectorKind, check_options
from playhead.pipeline.deliver.files.sink import FilesSink, open_file_writer
from playhead.pipeline.deliver.line_file import LineWriter, _Reading
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import HEADERS, RECORDS, SAMPLED, RejectedRecord, SinkStep, TaskCommit
from playhead.pipeline.records.batch import TRANSFORMATION, VALUE_CONVERTER, Header, Typed, Untyped
from playhead.pipeline.records.decode.batches import Decoding, read_headers, read_values
from playhead.pipeline.records.decode.javatext import JavaLines
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.encode.options import JSON, SIMPLE, STRING
from playhead.pipeline.records.schema import Schema
from unit.sink_files import BASE, PARQUET, Record, batches, claim, read_files

PACKAGE = "org.apache.kafka.connect.transforms."
FREE, PLAIN, RAW = Converter(schemas_enable=False), Converter(STRING, False), Converter(BYTES, False)
POINT = {"type": "struct", "optional": True, "fields": [{"field": "x", "type": "int32"}]}
LABEL = {"type": "string", "optional": True}
X = Schema("struct", True, fields=(("x", Schema("int32")),))


def chain(**stages: Mapping[str, str]) -> dict[str, str]:
    """Transforms by alias, predicates by an alias that ends with `?`; `_` stands for a dot."""
    config = {"transforms": ",".join(stages)}
    for alias, options in stages.items():
        for name, text in options.items():
            config[f"transforms.{alias}.{name.replace('_', '.')}"] = PACKAGE + text if name == "type" else text
    return config


def when(config: dict[str, str], alias: str, kind: str, *, negate: bool = False, **options: str) -> dict[str, str]:
    """The transform `alias` only where the predicate holds."""
    named = {f"predicates.p_{alias}.{name}": text for name, text in options.items()}
    others = [config["predicates"]] if "predicates" in config else []
    return {
        **config,
        "predicates": ",".join([*others, f"p_{alias}"]),
        f"predicates.p_{alias}.type": f"{PACKAGE}predicates.{kind}",
        **named,
        f"transforms.{alias}.predicate": f"p_{alias}",
        f"transforms.{alias}.negate": str(negate).lower(),
    }


def enveloped(schema: object, payload: object) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def column(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


# What the converters give


def test_records_of_one_schema_are_one_part_wherever_they_stand():
    values = [
        enveloped(POINT, {"x": 1}),
        enveloped(LABEL, "a"),
        None,
        enveloped(POINT, {"x": 2}),
        enveloped(LABEL, "b"),
    ]
    found = read_values(column(values), Converter())
    assert found.bad == []
    assert [part.rows.tolist() for part in found.parts] == [[0, 3], [1, 4], [2]]
    points, labels, rest = (part.values for part in found.parts)
    assert isinstance(points, Typed)
    assert (points.schema, points.column.to_pylist()) == (X, [{"x": 1}, {"x": 2}])
    assert isinstance(labels, Typed)
    assert labels.column.to_pylist() == ["a", "b"]
    assert rest == Untyped([None])


def test_a_null_under_a_schema_keeps_it_and_a_tombstone_has_none():
    found = read_values(
        column([enveloped(POINT, None), None, enveloped(None, None), enveloped(POINT, {"x": 3})]), Converter()
    )
    typed, rest = (part.values for part in found.parts)
    assert [part.rows.tolist() for part in found.parts] == [[0, 3], [1, 2]]
    assert isinstance(typed, Typed)
    assert typed.column.to_pylist() == [None, {"x": 3}]
    assert rest == Untyped([None, None])


def test_values_without_a_schema_are_longs_and_doubles():
    text = b'{"a":[1,-0.0,1.50,1e2],"b":{"c":null,"d":true},"a2":"\\u00e4"}'
    (part,) = read_values(column([text, b"7", b"null", None]), FREE).parts
    assert part.values == Untyped([{"a": [1, 0.0, 1.5, 100.0], "b": {"c": None, "d": True}, "a2": "ä"}, 7, None, None])
    assert isinstance(part.values, Untyped)
    assert str(part.values.values[0]["a"][1]) == "0.0"  # type: ignore[index]


def test_what_a_converter_cannot_read_is_bad_and_the_others_are_there():
    found = read_values(column([b"{", b"1", b"9223372036854775808", b"1e999"]), FREE)
    assert [one.row for one in found.bad] == [0, 2, 3]
    assert [part.rows.tolist() for part in found.parts] == [[1]]


def test_of_a_member_that_is_there_twice_only_the_last_counts():
    found = read_values(
        column([b'{"a":9223372036854775808,"a":1}', b'{"a":"\\ud800","a":2}', b'{"a":"\\ud800"}']), FREE
    )
    assert [one.row for one in found.bad] == [2]
    assert [part.values for part in found.parts] == [Untyped([{"a": 1}, {"a": 2}])]


def test_strings_and_bytes_have_a_schema_also_where_they_are_null():
    strings = read_values(column([b"a", None, b"\xff", b"b"]), PLAIN)
    assert [one.row for one in strings.bad] == [2]
    (part,) = strings.parts
    assert part.rows.tolist() == [0, 1, 3]
    assert isinstance(part.values, Typed)
    assert (part.values.schema, part.values.column.to_pylist()) == (Schema("string", True), ["a", None, "b"])
    (part,) = read_values(column([None, b"\xff", b"b"]), PLAIN).parts
    assert isinstance(part.values, Typed)
    assert (part.rows.tolist(), part.values.column.to_pylist()) == ([0, 2], [None, "b"])
    (octets,) = read_values(column([b"\xff", None]), RAW).parts
    assert isinstance(octets.values, Typed)
    assert (octets.values.schema, octets.values.column.to_pylist()) == (Schema("bytes", True), [b"\xff", None])


def test_keys_and_values_make_one_batch_for_each_pair_of_schemas():
    values = [
        enveloped(POINT, {"x": 1}),
        enveloped(LABEL, "a"),
        enveloped(POINT, {"x": 2}),
        b"?",
        enveloped(LABEL, "c"),
    ]
    keys = [b"k", None, b"\xff", b"k", b"k"]
    arrays = [[4, 5, 6, 7, 8], [1000, 2000, 3000, 4000, -1000], keys, values, [0] * 5]
    given = pa.RecordBatch.from_arrays(
        [pa.array(a, t) for a, t in zip(arrays, RECORDS.types, strict=True)], schema=RECORDS
    )
    found = Decoding(Converter(), PLAIN).decode(given, "orders", 3)
    assert [(one.row, one.stage) for one in found.bad] == [(2, "KEY_CONVERTER"), (3, "VALUE_CONVERTER")]
    shown = [
        (one.rows.tolist(), one.topic, one.partition, np.asarray(one.offsets).tolist(), one.timestamps.to_pylist())
        for one in found.batches
    ]
    assert shown == [([0], "orders", 3, [4], [1]), ([1, 4], "orders", 3, [5, 8], [2, None])]


def test_headers_are_read_as_connect_reads_them():
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    listed = pa.array([[("n", b"12"), ("s", b"text"), ("z", None), ("d", b"1.5")], None, []], kind)
    (first, second, third), bad = read_headers(listed, SIMPLE)
    assert not bad
    assert second == third == ()
    assert [(one.name, one.schema and one.schema.type, one.value) for one in first] == [
        ("n", "int8", 12),
        ("s", "string", "text"),
        ("z", None, None),
        ("d", "float", 1.5),
    ]
    assert read_headers(listed, STRING)[0][0][0] == Header("n", Schema("string", True), "12")


# Options


FILES, LINES = ConnectorKind.FILES_SINK, ConnectorKind.FILE_SINK


def faults(kind: ConnectorKind, config: Mapping[str, str], **worker: str) -> list[str]:
    given = {name.replace("_", "."): text for name, text in worker.items()}
    return [f"{fault.where}: {fault.what}" for fault in check_options(kind, {"topics": "t", **config}, given)]


def lines_config(**stages: Mapping[str, str]) -> dict[str, str]:
    return {"file": "x.txt", "value.converter": STRING, **chain(**stages)}


def test_a_typo_in_a_transform_is_refused_by_name():
    config = lines_config(a={"type": "HoistField$Value", "feild": "x"})
    assert faults(LINES, config) == [
        "transforms.a.feild: is not an option of HoistField; did you mean field?",
        "transforms.a.field: is missing",
    ]


def test_a_header_converter_counts_only_where_a_predicate_needs_headers():
    config = lines_config(a={"type": "Filter"}) | {"header.converter": JSON}
    assert faults(LINES, when(config, "a", "RecordIsTombstone")) == []
    (said,) = faults(LINES, when(config, "a", "HasHeaderKey", name="h"))
    assert said.startswith(
        f"header.converter: the Spark engine has no header.converter {JSON}, and a predicate needs headers"
    )


def test_two_topics_that_end_in_one_are_refused_for_files():
    config = BASE | chain(a={"type": "RegexRouter", "regex": "orders-.*", "replacement": "orders"})
    assert faults(FILES, config | {"topics": "orders-eu"}) == []
    (said,) = faults(FILES, config | {"topics": "orders-eu,orders-us"})
    assert said.startswith("transforms: records of orders-eu and of orders-us would both become records of orders")
    timed = chain(a={"type": "TimestampRouter"}, b={"type": "RegexRouter", "regex": "x", "replacement": "y"})
    (said,) = faults(FILES, BASE | timed)
    assert "RegexRouter after a TimestampRouter" in said


# Lines


def write_lines(
    config: Mapping[str, str], values: Sequence[bytes | None], folder
) -> tuple[str, ClosedRange, list[RejectedRecord]]:
    options = _Reading({"topics": "t", **config, "file": str(folder / "out.txt")}, {}).parsed()
    writer = LineWriter(str(options.path), JavaLines(options.converter), options.chain)
    (folder / ".out.txt.playhead").mkdir()
    rejected: list[RejectedRecord] = []
    what = RangeClaim(OffsetRange("t", "id", 1, 10, 10 + len(values)), True, "shape", 0)
    (closed,) = writer.write(what, iter([line_records(values, 10)]), rejected.append)
    (part,) = (folder / ".out.txt.playhead").iterdir()
    return part.read_text(), closed, rejected


def test_lines_are_those_of_the_chain_and_what_is_filtered_counts(tmp_path):
    config = lines_config(drop={"type": "Filter"}, hoist={"type": "HoistField$Value", "field": "line"})
    text, closed, rejected = write_lines(when(config, "drop", "RecordIsTombstone"), [b"a", None, b"b"], tmp_path)
    assert text == "Struct{line=a}\nStruct{line=b}\n"
    assert (closed.count, closed.hash_sum, closed.rejected, rejected) == (3, 10 + 11 + 12, 0, [])
    assert closed.outputs[0].count == 2


def test_a_record_that_a_transform_fails_at_is_rejected_with_its_transform(tmp_path):
    config = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
    config |= chain(num={"type": "Cast$Value", "spec": "a:int32"})
    text, closed, (bad,) = write_lines(config, [b'{"a":"1"}', b'{"a":"x"}', b'{"a":2.5}'], tmp_path)
    assert text == "{a=1}\n{a=2}\n"
    assert (closed.count, closed.rejected) == (2, 1)
    assert (bad.offset, bad.stage, bad.alias) == (11, TRANSFORMATION, "num")
    assert bad.reason.startswith("transform 'num': ")
    policy = RejectPolicy("c", transforms={"num": f"{PACKAGE}Cast$Value"})
    named = dict(policy.headers_of(bad))
    assert named["__connect.errors.class.name"] == f"{PACKAGE}Cast$Value".encode()
    assert named["__connect.errors.stage"] == b"TRANSFORMATION"
    assert named["__connect.errors.exception.class.name"] == b"org.apache.kafka.connect.errors.DataException"
    assert "t-1@11 cannot be delivered: transform 'num'" in str(policy.stop(bad))


# Files


def write_files(
    root: Path, config: dict[str, str], records: Sequence[Record], *, sizes: Sequence[int] = (), closes: bool = True
):
    given = BASE | {"store.url": f"file://{root}"} | config
    writer = open_file_writer(given, {})
    rejected: list[RejectedRecord] = []
    span = claim(records[0].offset, records[-1].offset + 1, closes=closes)
    closed = list(writer.write(span, batches(records, sizes), rejected.append))
    data = {name: content for name, content in read_files(root).items() if not name.startswith("_playhead/")}
    return closed, rejected, data


SCHEMALESS = {"value.converter.schemas.enable": "false"}
ROUTED = when(
    SCHEMALESS
    | chain(
        drop={"type": "Filter"},
        day={"type": "TimestampRouter", "topic_format": "${topic}_${timestamp}", "timestamp_format": "dd"},
    ),
    "drop",
    "RecordIsTombstone",
)
DAY = 86_400_000
NUMBERED = [Record(n, (n % 2) * DAY, None if n % 5 == 4 else b'{"n":%d}' % n, n) for n in range(20, 40)]


@pytest.mark.parametrize("sizes", [(), (1,), (3, 7)])
def test_a_router_makes_two_sets_of_files_named_by_their_first_offsets(tmp_path, sizes):
    closed, rejected, files = write_files(tmp_path, ROUTED | {"flush.size": "8"}, NUMBERED, sizes=sizes)
    assert rejected == []
    assert files == {
        f"topics/orders_{day}/partition=2/orders_{day}+2+{numbers[0]:010d}.json": b"".join(
            b'{"n":%d}\n' % number for number in numbers
        )
        for day, numbers in [
            ("01", [20, 22, 26, 28]),
            ("02", [21, 23, 25, 27]),
            ("01", [30, 32, 36, 38]),
            ("02", [31, 33, 35, 37]),
        ]
    }
    assert [(one.range.start, one.range.end, one.count, one.hash_sum) for one in closed] == [
        (20, 30, 10, sum(range(20, 30))),
        (30, 40, 10, sum(range(30, 40))),
    ]
    assert [sum(file.count for file in one.outputs) for one in closed] == [8, 8]


def test_what_is_filtered_before_an_open_tail_is_counted_and_the_tail_is_left(tmp_path):
    records = [Record(n, 0, None if n < 3 else b'{"n":%d}' % n, n) for n in range(1, 5)]
    closed, _, files = write_files(tmp_path, ROUTED | {"flush.size": "8"}, records, closes=False)
    assert files == {}
    assert [(one.range.start, one.range.end, one.count, one.hash_sum) for one in closed] == [(1, 3, 2, 3)]
    (whole,), _, _ = write_files(tmp_path, ROUTED | {"flush.size": "8"}, records[:2], closes=False)
    assert (whole.range.end, whole.count) == (3, 2)


def test_a_topic_that_is_no_path_is_rejected(tmp_path):
    config = SCHEMALESS | chain(up={"type": "RegexRouter", "regex": "(.*)", "replacement": "../$1"})
    _, (bad,), files = write_files(tmp_path, config, [Record(1, 0, b"{}")])
    assert files == {}
    assert bad.reason == "its topic '../orders' is not a valid path"


def test_records_of_two_schemas_keep_their_order(tmp_path):
    values = [enveloped(POINT, {"x": 1}), enveloped(LABEL, "a"), enveloped(POINT, {"x": 2}), enveloped(POINT, None)]
    config = chain(hoist={"type": "HoistField$Value", "field": "v"}) | {"flush.size": "9"}
    closed, rejected, files = write_files(tmp_path, config, [Record(n, 0, value) for n, value in enumerate(values)])
    assert rejected == []
    assert list(files.values()) == [b'{"v":{"x":1}}\n', b'{"v":"a"}\n', b'{"v":{"x":2}}\n{"v":null}\n']
    assert [(one.range.start, one.range.end) for one in closed] == [(0, 1), (1, 2), (2, 4)]


def test_parquet_has_the_columns_of_the_chain(tmp_path):
    values = [enveloped(POINT, {"x": 1}), None, enveloped(POINT, {"x": 2})]
    stages = chain(
        ins={"type": "InsertField$Value", "offset_field": "at!", "topic_field": "of", "timestamp_field": "when"},
        text={"type": "Cast$Value", "spec": "x:string"},
    )
    config = stages | {"format.class": PARQUET, "behavior.on.null.values": "ignore"}
    closed, rejected, files = write_files(tmp_path, config, [Record(n, n + 5, value) for n, value in enumerate(values)])
    assert rejected == []
    (name,) = files
    table = pq.read_table(tmp_path / name)
    assert table.schema.field("at").type == pa.int64()
    assert not table.schema.field("at").nullable
    assert [(row["x"], row["at"], row["of"], row["when"].timestamp()) for row in table.to_pylist()] == [
        ("1", 0, "orders", 0.005),
        ("2", 2, "orders", 0.007),
    ]
    assert [one.count for one in closed] == [2]


def test_parquet_of_values_without_a_schema_gets_the_columns_that_the_chain_leaves(tmp_path):
    config = BASE | SCHEMALESS | {"store.url": f"file://{tmp_path}", "format.class": PARQUET, "topics": "orders"}
    config |= chain(flat={"type": "Flatten$Value", "delimiter": "_"}, num={"type": "Cast$Value", "spec": "a_b:int32"})
    found = next(batches([Record(0, 0, b'{"a":{"b":"12","c":1.5}}'), Record(1, 0, b'{"a":{"b":"13"}}')]))
    kept: dict[str, str] = {}

    def recall(key: str, make) -> str:
        return kept.setdefault(key, make())

    def committing() -> TaskCommit:
        raise AssertionError

    writer = FilesSink(config, {}).writer(SinkStep(recall, {"orders": lambda: found}, committing))
    (closed,) = writer.write(claim(0, 2), iter([found]), print)
    (output,) = closed.outputs
    assert pq.read_table(tmp_path / output.name).to_pylist() == [{"a_b": 12, "a_c": 1.5}, {"a_b": 13, "a_c": None}]


def test_parquet_has_the_columns_of_a_stage_for_records_with_a_header(tmp_path):
    config = BASE | SCHEMALESS | {"store.url": f"file://{tmp_path}", "format.class": PARQUET, "topics": "orders"}
    insert = chain(src={"type": "InsertField$Value", "static.field": "src", "static.value": "eu"})
    config |= when(insert, "src", "HasHeaderKey", name="h")
    headers = pa.array([[("h", b"1")], [("h", None)]], SAMPLED.field(HEADERS).type)
    found = next(batches([Record(0, 0, b'{"a":1}'), Record(1, 0, b'{"a":2}')])).append_column(HEADERS, headers)
    step = SinkStep(lambda _key, make: make(), {"orders": lambda: found}, pytest.fail)
    rejected: list[RejectedRecord] = []
    (closed,) = FilesSink(config, {}).writer(step).write(claim(0, 2), iter([found]), rejected.append)
    assert rejected == []
    (output,) = closed.outputs
    assert pq.read_table(tmp_path / output.name).to_pylist() == [{"a": 1, "src": "eu"}, {"a": 2, "src": "eu"}]


def test_behind_a_chain_that_only_routes_lines_are_as_they_stand_in_the_topic(tmp_path):
    values = [b'{"b": 1.50, "a":1}', b'{"a":1e2}', b"{", None, b'{"z":"no"}', b"null"]
    routes = chain(
        drop={"type": "Filter"},
        new={"type": "RegexRouter", "regex": "orders", "replacement": "new"},
        none={"type": "DropHeaders", "headers": "h"},
    )
    config = when(SCHEMALESS | routes | {"behavior.on.null.values": "ignore"}, "drop", "HasHeaderKey", name="h")
    headers = pa.array([[], None, [("h", b"1")], [], [("h", b"1")], [("h", b"1")]], SAMPLED.field(HEADERS).type)
    records = next(batches([Record(n, 0, value, n) for n, value in enumerate(values)]))
    writer = open_file_writer(BASE | {"store.url": f"file://{tmp_path}"} | config, {})
    rejected: list[RejectedRecord] = []
    closed = list(writer.write(claim(0, 6), iter([records.append_column(HEADERS, headers)]), rejected.append))
    files = {name: content for name, content in read_files(tmp_path).items() if not name.startswith("_playhead/")}
    assert files == {"topics/new/partition=2/new+2+0000000000.json": b'{"b": 1.50, "a":1}\n{"a":1e2}\n'}
    assert [(one.offset, one.stage) for one in rejected] == [(2, VALUE_CONVERTER)]  # before the chain could drop it
    assert [(one.count, one.rejected, one.hash_sum) for one in closed] == [(4, 1, 0 + 1 + 4 + 5)]


def test_the_ledger_keeps_which_topic_a_target_is_made_of():
    config = BASE | SCHEMALESS | {"topics.regex": "orders-.*"}
    config |= chain(one={"type": "RegexRouter", "regex": "orders-.*", "replacement": "orders"})
    kept: dict[str, str] = {}

    def step(topic: str) -> SinkStep:
        return SinkStep(lambda key, make: kept.setdefault(key, make()), {topic: lambda: None}, lambda: None)  # type: ignore[arg-type,return-value]

    sink = FilesSink(config, {})
    sink.writer(step("orders-eu"))
    sink.writer(step("orders-eu"))
    with pytest.raises(Refused, match="orders-eu and of orders-us would both become records of orders"):
        sink.writer(step("orders-us"))


def test_the_shape_of_a_sink_changes_with_its_transforms_only():
    plain = FilesSink(BASE | {"topics": "t"}, {}).shape
    one = BASE | {"topics": "t"} | chain(a={"type": "HoistField$Value", "field": "x"})
    other = one | {"transforms.a.field": "y"}
    assert len({plain, FilesSink(one, {}).shape, FilesSink(other, {}).shape}) == 3
    assert FilesSink(BASE | {"topics": "t", "transforms": ""}, {}).shape == plain


def test_a_sink_without_a_predicate_on_headers_does_not_read_them():
    config = BASE | SCHEMALESS | {"topics": "t"} | chain(a={"type": "Filter"})
    assert not FilesSink(when(config, "a", "RecordIsTombstone"), {}).has_headers
    assert FilesSink(when(config, "a", "HasHeaderKey", name="h"), {}).has_headers
