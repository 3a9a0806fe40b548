"""Records as text: nothing is lost or confused on the way, and nothing in them can harm a terminal."""

import base64
import csv
import io
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.broker import Shown
from playhead.cli.topic_records import form_of
from playhead.errors import Invalid
from playhead.render.clean import UNSAFE
from playhead.render.topics import record_listing, size, time_of
from playhead.topics.records import Query, RecordReading, TopicRecord, cut

CONTENT = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=12).map(lambda text: text.encode()))
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=2).map(tuple)
RECORDS = st.builds(
    TopicRecord,
    st.integers(0, 99),
    st.integers(0, 2**40),
    st.one_of(st.none(), st.integers(0, 2**62)),
    st.sampled_from(["create", "append", None]),
    CONTENT,
    CONTENT,
    HEADERS,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(form, batches, stream=None, **how):
    stream = stream or io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        made = form_of(form, **how)
        for batch in batches:
            made.put(batch)
    return stream.getvalue()


def content(found):
    """What `encoded` says it was."""
    if isinstance(found, dict):
        return base64.b64decode(found["base64"])
    return None if found is None else found.encode()


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_json_lines_give_back_every_byte(records):
    lines = printed("json", [records]).splitlines()
    assert len(lines) == len(records)
    for line, record in zip(map(json.loads, lines), records, strict=True):
        assert (line["partition"], line["offset"]) == record[:2]
        assert (line["timestamp_ms"], line["timestamp_type"]) == record[2:4]
        assert (content(line["key"]), content(line["value"])) == (record.key, record.value)
        assert tuple((h["key"], content(h["value"])) for h in line["headers"]) == record.headers


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_csv_distinguishes_nothing_from_empty_and_text_from_bytes(records):
    rows = list(
        csv.DictReader(
            io.StringIO(printed("csv", [records[:1], records[1:]] if records[1:] else [records]), newline="")
        )
    )
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        for name, data in (("key", record.key), ("value", record.value)):
            assert from_csv(row[name], row[f"{name}_encoding"]) == data


def from_csv(text, encoding):
    if encoding == "":
        return None
    return base64.b64decode(text) if encoding == "base64" else text.encode()


@given(st.lists(RECORDS, min_size=1, max_size=3), st.sampled_from(["table", "wide", "json", "csv", "raw"]))
def test_no_form_lets_a_control_character_reach_a_terminal(records, form):
    text = printed(form, [records], Terminal())
    assert not UNSAFE.search(text.replace("\n", "").replace("\t", "") if form == "raw" else text.replace("\n", ""))
    assert repr(Shown(records, record_listing)).isprintable() or "\n" in repr(Shown(records, record_listing))
    assert not UNSAFE.search(repr(Shown(records, record_listing)).replace("\n", ""))


def test_raw_is_byte_for_byte_and_says_which_lines_are_tombstones():
    class Pipe(io.StringIO):
        buffer = io.BytesIO()

    records = [TopicRecord(0, n, 0, "create", None, value, ()) for n, value in enumerate([b"\x1b\xff\x00", None, b""])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", Pipe())
        form = form_of("raw")
        form.put(records)
    assert Pipe.buffer.getvalue() == b"\x1b\xff\x00\n\n\n"
    assert form.notes() == ["1 of the lines are empty: tombstones"]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (
            b'{"price": 1.10,\n "big": 123456789012345678901234567890}',
            '{"price":1.10,"big":123456789012345678901234567890}',
        ),
        (b'{"a": 1, "a": 2}', '{"a":1,"a":2}'),
        (b"no json", '"no json"'),
        (b"[1, 2", '"[1, 2"'),
        (b"1 2", '"1 2"'),
        (b"", '""'),
        (b"\xff", '{"base64":"/w=="}'),
        (b'"\xc2\x9b31m"', '"\\u009b31m"'),
        (None, "null"),
    ],
)
def test_json_values_stay_as_they_were_written_when_they_are_decoded(value, line):
    text = printed("json", [[TopicRecord(0, 0, 0, "create", b"k", value, ())]], decode=True)
    assert f'"value":{line},"headers"' in text
    assert json.loads(text)["key"] == "k"


def test_json_that_is_nested_without_end_stays_text():
    deep = b"[" * 100_000 + b"]" * 100_000
    text = printed("json", [[TopicRecord(0, 0, 0, "create", None, deep, ())]], decode=True)
    assert json.loads(text)["value"] == deep.decode()


def test_a_table_has_one_header_shows_tombstones_and_says_when_it_cuts():
    short = TopicRecord(0, 7, 1767225600000, "create", b"k", None, (("h", b"v"),))
    long = TopicRecord(1, 8, None, None, None, b"x" * 500, ())
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        form = form_of("table", widest_offset=1234567890)
        form.put([short])
        assert form.notes() == []
        form.put([long])
    header, first, second = stream.getvalue().splitlines()
    assert header.split() == ["PARTITION", "OFFSET", "TIME", "KEY", "HEADERS", "VALUE"]
    assert first.split() == ["0", "7", "2026-01-01T00:00:00.000Z", "k", "h=v", "(tombstone)"]
    assert second.endswith("x...") and len(second.split()[-1]) == 120
    assert form.notes() == ["long keys or values are truncated; -o wide shows them in full"]
    assert "x" * 500 in printed("wide", [[long]])


def test_a_form_that_records_do_not_have_is_refused_by_name():
    with pytest.raises(Invalid, match="yaml"):
        form_of("yaml")


def test_times_and_sizes_are_for_people():
    assert time_of(1767225600123) == "2026-01-01T00:00:00.123Z"
    assert time_of(2**62) == str(2**62)
    assert time_of(None) is None
    assert [size(n) for n in (None, 0, 1023, 1024, 1536, 5 << 30)] == [
        "-",
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
    ]


def test_what_a_bounded_read_holds_is_cut_by_the_number_of_records_that_it_may_hold():
    def reading(partitions: int, **words: Any) -> RecordReading:
        query = Query("orders", most_bytes=1_000_000, **words)
        return RecordReading(None, query, None, dict.fromkeys(range(partitions), (0, 9)), ())  # type: ignore[arg-type]

    assert reading(4, last=50).longest == 5000  # the newest are collected in each partition
    assert reading(4, limit=50, from_offset=0).longest == 20_000
    assert reading(1000, last=500).longest == 256
    large = TopicRecord(0, 0, 0, "create", b"k" * 900, b"v" * 900, (("a", b"h" * 90), ("b", b"x" * 900), ("c", None)))
    short = cut(large, 100)
    assert (len(short.key or b""), len(short.value or b""), short.size) == (100, 100, 900)
    assert [(name, len(value or b"")) for name, value in short.headers] == [("a", 90), ("b", 9)]
    assert cut(large, 5000) is large
