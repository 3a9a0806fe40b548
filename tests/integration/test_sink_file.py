"""The file sink: killed at any instant it writes every line once. The oracle of its lines is a real FileStreamSink."""

import base64
import json
import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from integration.consents import unasked
from integration.line_files import FIRST, SECOND, LineFile
from playhead.errors import Refused
from playhead.ledger.model import Host, RangeClaim, RunState, SinkMove
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import OffsetRange
from playhead.model.ranges import Log
from playhead.pipeline.deliver import growing_file as file_target
from playhead.pipeline.deliver.line_file import FileSink, open_file_sink
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import SinkStep
from playhead.pipeline.records.encode.options import JSON, STRING

VALUES: Mapping[Log, Sequence[bytes | None]] = {
    FIRST: [b"a%d" % n for n in range(5)],
    SECOND: [b"b0", None, "bü2".encode(), b"two\nlines"],
}
WHOLE = "old\na0\na1\na2\nb0\nnull\nbü2\na3\na4\ntwo\nlines\n"
MODULES = ("pipeline/sinks/file.py", "pipeline/sinks/file_target.py", "sql/range_kept.py")


@pytest.fixture
def line_file(tmp_path, monkeypatch):
    monkeypatch.setattr(file_target, "BLOCK_BYTES", 7)  # so that an append is many writes
    made = LineFile(tmp_path, VALUES)
    made.path.write_text("old\n")
    return made


def is_whole(one: LineFile) -> None:
    assert one.path.read_text() == WHOLE
    ranges = [(each.range.partition, each.range.start, each.range.end) for each in one.recorded()]
    assert ranges == [(0, 0, 3), (1, 0, 3), (0, 3, 5), (1, 3, 4)]


# Kills


def test_every_line_is_there_once_behind_what_was_there(line_file):
    line_file.run()
    is_whole(line_file)
    line_file.run()
    is_whole(line_file)
    assert not line_file.parts.exists()


@pytest.mark.parametrize(
    ("place", "leaves"),
    [
        ("LineWriter.write", "old\n"),
        ("GrowingFile.append", "old\n"),
        ("GrowingFile._write", "old\n"),
        ("GrowingFile._write after 1 write", "old\na0\na1\na"),
        ("GrowingFile._write after 2 writes", "old\na0\na1\na2\n"),
        ("GrowingFile._write returned", "old\na0\na1\na2\nb0\nnull\nbü2\n"),
        ("swap_kept in the commit", "old\na0\na1\na2\nb0\nnull\nbü2\n"),
        ("GrowingFile.settle", "old\na0\na1\na2\nb0\nnull\nbü2\n"),
        ("GrowingFile.settle after 1 removal", "old\na0\na1\na2\nb0\nnull\nbü2\n"),
        ("GrowingFile.settle returned", "old\na0\na1\na2\nb0\nnull\nbü2\n"),
        ("GrowingFile.close", "old\na0\na1\na2\nb0\nnull\nbü2\na3\na4\ntwo\nlines\n"),
    ],
)
@pytest.mark.parametrize("again", ["the same", "in other steps"])
def test_killed_in_each_row_of_the_table_it_goes_on_where_it_was(line_file, place, leaves, again):
    assert line_file.run_killed_in(place)
    assert line_file.path.read_text() == leaves
    line_file.run(one_by_one=again == "in other steps")
    is_whole(line_file)
    assert not line_file.parts.exists() or (place == "GrowingFile.close" and not any(line_file.parts.iterdir()))


def test_killed_at_any_instant_and_once_more_it_still_has_every_line_once(tmp_path, monkeypatch):
    monkeypatch.setattr(file_target, "BLOCK_BYTES", 7)
    chosen = random.Random(7)
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        one = LineFile(folder, VALUES)
        one.path.write_text("old\n")
        one.run_killed(chosen.randrange(1, 600), MODULES)
        one.run_killed(chosen.randrange(1, 300), MODULES)
        one.run()
        is_whole(one)


def test_other_steps_after_a_kill_cut_off_what_does_not_count(line_file):
    """The claims of the killed step come one by one and in reverse: what it appended is not a beginning of theirs."""
    assert line_file.run_killed_in("GrowingFile._write returned")
    line_file.run(order=-1, one_by_one=True)
    assert line_file.path.read_text().splitlines() == [
        *["old", "b0", "null", "bü2", "a0", "a1", "a2", "two", "lines", "a3", "a4"]
    ]


def test_a_moved_position_leaves_nothing_of_the_abandoned_claim(line_file):
    assert line_file.run_killed_in("GrowingFile._write after 1 write")
    with open_ledger(f"sqlite:///{line_file.folder}/ledger.db", 10) as ledger:
        ledger.finish(ledger.claim("cluster", "lines", Host.here(), {}), RunState.FAILED)
        moves = [SinkMove(FIRST, 0, 4), SinkMove(SECOND, 0, 3)]
        RangeLedger(ledger).move("cluster", "lines", moves, Host.here())
    line_file.run()
    assert line_file.path.read_text() == "old\na4\ntwo\nlines\n"


# Others


def test_a_file_that_another_process_wrote_to_is_refused(line_file):
    line_file.run(steps=1)
    with line_file.path.open("a") as file:
        file.write("mine\n")
    with pytest.raises(Refused, match="changed by another process: it has 31 bytes, and the ledger says 26"):
        line_file.run()
    os.truncate(line_file.path, 26)
    line_file.run()
    is_whole(line_file)


def test_bytes_behind_an_unfinished_append_that_are_not_ours_are_not_cut_off(line_file):
    assert line_file.run_killed_in("GrowingFile._write after 1 write")
    with line_file.path.open("a") as file:
        file.write("mine\n")
    with pytest.raises(Refused, match="changed by another process"):
        line_file.run()
    assert line_file.path.read_text().endswith("mine\n")


def test_an_end_of_the_same_length_but_other_bytes_is_refused(line_file):
    line_file.run(steps=1)
    line_file.path.write_bytes(line_file.path.read_bytes()[:-2] + b"x\n")
    with pytest.raises(Refused, match="its end differs"):
        line_file.run()


def test_a_file_that_was_rotated_away_begins_anew(line_file):
    line_file.run(steps=1)
    line_file.path.rename(line_file.folder / "out.txt.1")
    line_file.run()
    assert line_file.path.read_text() == "a3\na4\ntwo\nlines\n"


def test_a_file_that_was_rotated_away_in_the_middle_of_an_append_is_refused(line_file):
    assert line_file.run_killed_in("GrowingFile._write after 1 write")
    line_file.path.rename(line_file.folder / "out.txt.1")
    with pytest.raises(Refused, match="changed by another process"):
        line_file.run()


def test_a_second_run_on_the_same_file_is_refused_while_the_first_is_open(line_file):
    first, second = line_file.sink(), line_file.sink()
    kept: dict[str, str] = {}
    first.writer(SinkStep(lambda key, make: kept.setdefault(key, make()), {}, unasked))
    with pytest.raises(Refused, match="another run, or another connector of this run"):
        second.writer(SinkStep(lambda key, make: kept.setdefault(key, make()), {}, unasked))
    first.close()
    second.writer(SinkStep(lambda key, make: kept.setdefault(key, make()), {}, unasked))
    second.close()


# A real worker


class Beside:
    """One topic, written by a real FileStreamSink and by ours, through Spark's own reader."""

    def __init__(self, lab, rest, deadline, spark, topic, config):
        self.lab, self.rest, self.deadline, self.spark, self.topic = lab, rest, deadline, spark, topic
        self.config = {"connector.class": "FileStreamSink", "topics": topic, **config}

    def send(self, partition, values):
        from integration.sinks_on_the_lab import produce

        produce(self.lab, self.topic, partition, values)

    def theirs(self, path, is_whole):
        self.rest.create_connector(self.topic, {**self.config, "file": str(path)})
        self.deadline.wait_for(lambda: path.exists() and is_whole(path.read_bytes()), "the worker's lines")
        self.rest.delete_connector(self.topic)
        return path.read_bytes()

    def ours(self, path, steps, partitions):
        from playhead.pipeline.deliver.reading import ReadOptions
        from playhead.pipeline.deliver.task import deliver

        sink, kept = open_file_sink({**self.config, "file": str(path)}, {}), dict[str, str]()
        assert isinstance(sink, FileSink)
        for start, end in steps:
            spans = [OffsetRange(self.topic, "", partition, start, end) for partition in range(partitions)]
            claims = [RangeClaim(span, True, sink.shape, 0) for span in spans]
            writer = sink.writer(SinkStep(lambda key, make: kept.setdefault(key, make()), {}, unasked))
            reading = ReadOptions({"bootstrap.servers": self.lab.bootstrap_servers}, sink.has_keys, sink.has_headers)
            done = deliver(self.spark, reading, claims, writer, RejectPolicy(self.topic))
            sink.merging(done)
            sink.settled(claims)
            kept.update({key: sink._target.present_end().text for key in kept})  # as the ledger's commit does it
            assert [each.count for _, closed in done for each in closed] == [end - start] * partitions
        sink.close()
        return path.read_bytes()


@pytest.fixture
def beside(lab, rest, new_topic, deadline, spark):
    return lambda partitions, config: Beside(lab, rest, deadline, spark, new_topic(partitions), config)


def test_the_lines_are_those_of_a_real_file_stream_sink(beside, tmp_path):
    """In two steps; the order of partitions differs, that within one does not."""
    one = beside(2, {"value.converter": STRING})
    texts = [
        "plain",
        "",
        "  blanks  ",
        "ünï → 🎈",
        '{"a": 1}',
        "tab\tand\rreturn",
        "two\nlines",
        None,
        "null",
        "x" * 5000,
    ]
    for partition in (0, 1):
        one.send(partition, [None if text is None else f"{partition}{text}".encode() for text in texts])
    size = sum(len("null" if text is None else f"0{text}".encode()) + 1 for text in texts) * 2
    theirs = one.theirs(tmp_path / "theirs.txt", lambda content: len(content) >= size)
    ours = one.ours(tmp_path / "ours.txt", [(0, 7), (7, 10)], 2)
    assert _by_partition(ours) == _by_partition(theirs)
    assert len(ours) == len(theirs) == size


@pytest.mark.parametrize("has_schemas", [True, False])
def test_the_lines_of_json_are_those_of_a_real_file_stream_sink(beside, tmp_path, has_schemas):
    one = beside(1, {"value.converter": JSON, "value.converter.schemas.enable": str(has_schemas).lower()})
    values: list[bytes | None]
    values = [_envelope(*pair) for pair in ENVELOPED] if has_schemas else [json.dumps(value).encode() for value in BARE]
    values += [None, _envelope({"type": "string"}, "the last") if has_schemas else b'"the last"']
    one.send(0, values)
    ours = one.ours(tmp_path / "ours.txt", [(0, len(values))], 1)
    theirs = one.theirs(tmp_path / "theirs.txt", lambda content: content.endswith(b"the last\n"))
    assert ours.decode().splitlines() == theirs.decode().splitlines()
    assert ours.endswith(b"null\nthe last\n")


TRANSFORMS = "org.apache.kafka.connect.transforms."
FLAT = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "ms", "type": "int64"},
        {"field": "text", "type": "string", "optional": True},
        {"field": "in", "type": "struct", "fields": [{"field": "d", "type": "double"}], "optional": True},
    ],
}
ROWS = [
    {"id": 1, "ms": 1_700_000_000_123, "text": "7", "in": {"d": 1.5}},
    None,
    {"id": 2, "ms": 0, "text": "-12", "in": {"d": -0.001}},
    {"id": 3, "ms": 86_400_000, "text": None, "in": None},
]
CHAINS: dict[str, dict[str, dict[str, str]]] = {
    "filter and hoist": {
        "drop": {"type": "Filter", "predicate": "gone"},
        "hoist": {"type": "HoistField$Value", "field": "line"},
    },
    "cast": {"cast": {"type": "Cast$Value", "spec": "id:string,text:int32"}},
    "flatten": {"flat": {"type": "Flatten$Value", "delimiter": "_"}},
    "timestamps": {
        "ms": {
            "type": "TimestampConverter$Value",
            "field": "ms",
            "target.type": "string",
            "format": "yyyy-MM-dd'T'HH:mm:ss.SSS",
        }
    },
    "insert": {
        "route": {"type": "RegexRouter", "regex": ".*", "replacement": "other"},
        "add": {"type": "InsertField$Value", "topic.field": "t", "offset.field": "o", "partition.field": "p"},
    },
    "keys": {
        "key": {"type": "ValueToKey", "fields": "id", "predicate": "gone", "negate": "true"},
        "static": {"type": "InsertField$Value", "static.field": "s", "static.value": "v"},
    },
    "headers": {
        "mark": {"type": "InsertHeader", "header": "h", "value.literal": "1", "predicate": "gone"},
        "drop": {"type": "Filter", "predicate": "marked"},
    },
}


def _chain(stages: dict[str, dict[str, str]]) -> dict[str, str]:
    config = {
        "predicates": "gone,marked",
        "predicates.gone.type": f"{TRANSFORMS}predicates.RecordIsTombstone",
        "predicates.marked.type": f"{TRANSFORMS}predicates.HasHeaderKey",
        "predicates.marked.name": "h",
        "transforms": ",".join(stages),
    }
    for alias, options in stages.items():
        config |= {f"transforms.{alias}.{name}": value for name, value in options.items()}
        config[f"transforms.{alias}.type"] = TRANSFORMS + options["type"]
    return config


@pytest.mark.parametrize("has_schemas", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_the_lines_of_a_chain_are_those_of_a_real_file_stream_sink(beside, tmp_path, name, has_schemas):
    """The order of members in a map that a transform has copied is not Java's: see docs/records.md."""
    schemas = {"value.converter.schemas.enable": str(has_schemas).lower()}
    one = beside(1, {"value.converter": JSON, **schemas, **_chain(CHAINS[name])})
    rows = [*ROWS, {"id": 99, "ms": 1, "text": "0", "in": {"d": 9.25}}]
    values = [row and (_envelope(FLAT, row) if has_schemas else json.dumps(row).encode()) for row in rows]
    one.send(0, values)
    ours = one.ours(tmp_path / "ours.txt", [(0, len(values))], 1).decode().splitlines()
    theirs = one.theirs(tmp_path / "theirs.txt", lambda content: b"9.25" in content and content.endswith(b"\n"))
    expected = theirs.decode().splitlines()
    if not has_schemas:
        ours, expected = (
            ["".join(sorted(re.findall(r"[^ ,{}]+", line))) for line in lines] for lines in (ours, expected)
        )
    assert ours == expected


LOGICAL = "org.apache.kafka.connect.data."
DECIMAL = {"type": "bytes", "name": f"{LOGICAL}Decimal", "parameters": {"scale": "9"}}
DATES = [{"type": "int32", "name": f"{LOGICAL}Date"}, {"type": "int32", "name": f"{LOGICAL}Time"}]
ROW = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int32"},
        {"field": "text", "type": "string", "optional": True},
        {"field": "kept", "type": "boolean", "default": True},
        {"field": "many", "type": "array", "items": {"type": "double", "optional": True}, "optional": True},
        {
            "field": "by name",
            "type": "map",
            "keys": {"type": "string"},
            "values": {"type": "int64", "optional": True},
            "optional": True,
        },
        {
            "field": "in",
            "type": "struct",
            "fields": [{"field": "f", "type": "float", "optional": True}],
            "optional": True,
        },
        {"field": "raw", "type": "bytes", "optional": True},
    ],
}
NAMES = {
    name: number for number, name in enumerate(["zeta", "alpha", "Ab", "BB", "C#", *(f"key{n}" for n in range(20))])
}
EMPTY = {"type": "struct", "fields": []}
HOLDS_EMPTY = {
    "type": "struct",
    "fields": [{"field": "e", **EMPTY, "optional": True}, {"field": "n", "type": "int32"}],
}
ENVELOPED: list[tuple[dict[str, Any] | None, Any]] = [
    ({"type": "string"}, "as in the quickstart"),
    *[(None, value) for value in ({"free": 1}, {"b": [1, None, {}], "a": 1e10}, "text", 5, None)],
    (EMPTY, {}),
    *[(HOLDS_EMPTY, value) for value in ({"e": {}, "n": 1}, {"n": 2}, {"e": None, "n": 3})],
    ({"type": "array", "items": EMPTY}, [{}, {}]),
    ({"type": "int8"}, -5),
    ({"type": "int64"}, 2**63 - 1),
    *[
        ({"type": "double"}, value)
        for value in (0.0, -0.0, 5e-324, 2e-323, 1.5, 1e7, 9999999.0, 0.001, 0.00099, -1e-300, 1.7976931348623157e308)
    ],
    *[({"type": "float"}, value) for value in (0.1, 16777216, 3.4028235e38, 1.4e-45, 1e10)],
    ({"type": "boolean"}, False),
    ({"type": "string", "optional": True}, None),
    ({"type": "array", "items": {"type": "string"}}, ["a", "", "c, d"]),
    ({"type": "array", "items": {"type": "array", "items": {"type": "int32"}}}, [[1, 2], [], [3]]),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, NAMES),
    *[(DECIMAL, base64.b64encode(n.to_bytes(16, "big", signed=True)).decode()) for n in (1, -1, 10**12, 0, 10**30)],
    (ROW, {"id": 1}),
    (ROW, {"id": 2, "text": "x", "kept": False, "many": [1, None, 2.5e10], "by name": NAMES, "in": {"f": 0.1}}),
    (ROW, {"id": 3, "many": [], "by name": {"a": None}, "in": {}, "text": "Struct{,}"}),
    *([(kind, number) for kind in DATES for number in (0, 18_000)] if time.timezone == time.altzone == 0 else []),
]
BARE = [
    "text",
    12,
    -0.0,
    1e-7,
    1234567.125,
    1e22,
    True,
    None,
    [],
    {},
    [1, "a", None, [True], {"q": 1.0}],
    NAMES,
    {"a": 1, "b": "x", "zeta": 2.5, "n": None, "deep": {"l": [{"x": {}}]}, "ü": "→ 🎈"},
]


def _envelope(schema: dict[str, Any] | None, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def _by_partition(content: bytes) -> list[list[bytes]]:
    """The lines of each partition in their order; those without its number (null, second lines) are sorted apart."""
    lines = content.split(b"\n")
    return [
        [line for line in lines if line.startswith(b"0")],
        [line for line in lines if line.startswith(b"1")],
        sorted(line for line in lines if not line.startswith((b"0", b"1"))),
    ]
