"""The files of a Spark checkpoint as values: every version Spark wrote, and what it would not read itself.

The fixtures follow what Spark 2.1 to 4.2 leaves on disk, byte for byte; what 4.0.2 writes is in the integration tests.
"""

import re
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid, PlayheadError, Refused
from playhead.model import Map, Position
from playhead.stores.checkpoint.batches import BatchLog
from playhead.stores.checkpoint.log import (
    CommitLog,
    MalformedLog,
    NewerVersion,
    OffsetLog,
    crc_bytes,
    find_flat_offset,
    find_initial_offsets,
    find_kafka_offsets,
    initial_bytes,
    matches_crc,
    positions_of,
    query_id,
    with_positions,
)

SPARK_2_1 = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1480981499528}\n0\n{"topic-0":{"0":1}}'
SPARK_2_1_BARE = b'v1\n\n{"topic-0":{"0":1}}\n-'
SPARK_2_4 = (
    b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1568508285207,"conf":{"spark.sql.shuffle.partitions":"5",'
    b'"spark.sql.streaming.stateStore.providerClass":"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"}}\n'
    b'{"my-topic":{"2":3,"4":3,"1":3,"3":3,"0":3}}\n{"logOffset":345}'
)
SPARK_4_2 = (
    b'v2\n{"batchWatermarkMs":5000,"batchTimestampMs":1,"conf":{"a":"b"},"sourceMetadataInfo":{"orders":{"provider":"kafka"}},'
    b'"controlBatchInfo":null}\norders:{"t":{"0":3}}\n0:{"logOffset":4}\nidle:-'
)
LOGS = [
    SPARK_2_1,
    SPARK_2_1_BARE,
    SPARK_2_4,
    SPARK_4_2,
    SPARK_2_4 + b"\n",
    SPARK_2_1.replace(b"\n", b"\r\n"),
    b"v1\n\n",
]


@pytest.mark.parametrize(
    ("data", "version", "sources"),
    [
        (SPARK_2_1, 1, {"0": "0", "1": '{"topic-0":{"0":1}}'}),
        (SPARK_2_1_BARE, 1, {"0": '{"topic-0":{"0":1}}', "1": "-"}),
        (SPARK_2_4, 1, {"0": '{"my-topic":{"2":3,"4":3,"1":3,"3":3,"0":3}}', "1": '{"logOffset":345}'}),
        (SPARK_4_2, 2, {"orders": '{"t":{"0":3}}', "0": '{"logOffset":4}', "idle": "-"}),
        (SPARK_2_1.replace(b"\n", b"\r\n") + b"\r\n", 1, {"0": "0", "1": '{"topic-0":{"0":1}}'}),
        (b"v1\n\n", 1, {}),
    ],
)
def test_every_version_of_the_offset_log_is_read(data, version, sources):
    log = OffsetLog.from_bytes(data, "offsets/0")
    assert (log.version, log.sources) == (version, sources)


@pytest.mark.parametrize("data", LOGS)
def test_a_log_is_written_as_it_was_read(data):
    assert OffsetLog.from_bytes(data, "offsets/0").to_bytes() == data


def test_the_watermark_is_read_and_missing_in_old_files():
    assert OffsetLog.from_bytes(SPARK_4_2, "").watermark_ms == 5000
    assert OffsetLog.from_bytes(SPARK_2_1_BARE, "").watermark_ms == 0


@pytest.mark.parametrize("data", LOGS[:-1])
def test_one_source_changes_and_every_other_byte_stays(data):
    log = OffsetLog.from_bytes(data, "offsets/0")
    for source, text in log.sources.items():
        changed = log.with_source(source, "{}CHANGED")
        assert changed.to_bytes() == data.replace(text.encode(), b"{}CHANGED", 1) or text in ("0", "-")
        assert changed.sources == {**log.sources, source: "{}CHANGED"}
        assert changed.with_source(source, text).to_bytes() == data


@pytest.mark.parametrize("first", [b"v0", b"v-10", b"xyz", b"", b"v", b"V1", b"v1.0", b"1", "v\u0661".encode()])
def test_a_first_line_that_is_no_version_is_malformed(first):
    for read in (OffsetLog.from_bytes, CommitLog.from_bytes):
        with pytest.raises(MalformedLog, match="offsets/3 is malformed"):
            read(first + b"\n{}\n", "offsets/3")


@pytest.mark.parametrize("first", ["v99999", "v3", "v" + "9" * 5000])
def test_a_newer_offset_log_is_refused_by_its_version(first):
    with pytest.raises(NewerVersion, match="offsets/3 has the newer version"):
        OffsetLog.from_bytes(f"{first}\n{{}}\n-".encode(), "offsets/3")


def test_a_newer_commit_log_is_refused_too():
    with pytest.raises(NewerVersion, match="up to v3 are supported"):
        CommitLog.from_bytes(b"v4\n{}", "commits/3")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"v1", "ends after its version"),
        (b"v1\n", "ends after its version"),
        (b"v1\nnot json\n-", "line 2 is not a JSON object"),
        (b"v1\n[1]\n-", "line 2 is not a JSON object"),
        (b"v1\n{}\n\n-", "line 3 has no offset"),
        (b"v2\n{}\n0:{}\nnothing", "line 4 has no source id"),
        (b"v2\n{}\n0:", "line 3 has no offset"),
        (b"v2\n{}\n0:-\n0:-", "twice"),
        (b"v1\n{}\n\xff", "byte 6 is not UTF-8"),
        (b"\x00" * 40, "not a version"),
    ],
)
def test_damage_is_named(data, why):
    with pytest.raises(MalformedLog, match=why):
        OffsetLog.from_bytes(data, "offsets/3")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_log_or_a_playhead_error(data):
    try:
        log = OffsetLog.from_bytes(data, "x")
    except PlayheadError:
        return
    assert log.to_bytes() == data


@pytest.mark.parametrize("data", [SPARK_2_4, SPARK_4_2])
def test_a_log_cut_off_anywhere_is_damage_or_lacks_an_offset_never_another_position(data):
    whole = OffsetLog.from_bytes(data, "x").sources
    for length in range(len(data)):
        try:
            cut = OffsetLog.from_bytes(data[:length], "x").sources
        except MalformedLog:
            continue
        for source, text in cut.items():
            shown = positions_of("s", text)
            if text != whole[source] and shown:
                assert [position.offset and list(position.offset) for position in shown] == [["json"]]


@pytest.mark.parametrize(
    ("data", "commit"),
    [
        (b"v1\n{}", CommitLog(1, 0, False)),
        (b"v1", CommitLog(1, 0, False)),
        (b'v1\n{"nextBatchWatermarkMs":7}', CommitLog(1, 7, False)),
        (b'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a"]]}}', CommitLog(2, 7, True)),
        (b'v3\n{"nextBatchWatermarkMs":7,"sinkMetadataMap":{}}', CommitLog(3, 7, False)),
    ],
)
def test_every_version_of_the_commit_log_is_read(data, commit):
    assert CommitLog.from_bytes(data, "commits/0") == commit


def test_the_query_id_is_read_or_the_file_is_malformed():
    assert query_id(b'{"id":"809b2d88-df9a-464a-9993-21c6b0a4adac"}') == "809b2d88-df9a-464a-9993-21c6b0a4adac"
    for data in (b"", b"{}", b'{"id":5}', b"x"):
        with pytest.raises(MalformedLog, match="metadata is malformed"):
            query_id(data)


def test_initial_offsets_of_kafka_are_distinguished_from_other_sources():
    assert find_initial_offsets(b'\x00v1\n{"t":{"0":2}}', "sources/0/0") == '{"t":{"0":2}}'
    assert find_initial_offsets(b'\x00{"t":{"0":2}}', "sources/0/0") == '{"t":{"0":2}}'  # Spark 2.1.0
    assert find_initial_offsets(b'v1\n{"path":"a","timestamp":1,"batchId":0}', "sources/0/0") is None
    assert initial_bytes('{"t":{"0":2}}') == b'\x00v1\n{"t":{"0":2}}'
    for data in (b"\x00", b"\x00v1\n", b"\x00vx\n{}"):
        with pytest.raises(MalformedLog):
            find_initial_offsets(data, "sources/0/0")
    with pytest.raises(NewerVersion):
        find_initial_offsets(b"\x00v2\n{}", "sources/0/0")


@pytest.mark.parametrize(
    ("text", "kafka", "flat"),
    [
        ('{"t":{"0":3,"1":4},"u":{"0":0}}', {"t": {0: 3, 1: 4}, "u": {0: 0}}, None),
        ('{"t":{"0":-2}}', {"t": {0: -2}}, None),
        ("{}", {}, None),
        ('{"t":{}}', {"t": {}}, None),
        ('{"logOffset":345}', None, {"logOffset": 345}),
        ('{"sourceVersion":1,"reservoirId":"x","index":-1,"isStartingVersion":false}', None, 4),
        ('{"0":{"value":1,"runTimeMs":2}}', None, None),  # the rate source
        ('{"t":{"0":3.0}}', None, None),
        ('{"t":{"0":true}}', None, None),
        ('{"t":{"00":1}}', None, None),
        ('{"t":{"0":99999999999999999999}}', None, None),
        ('{"t":{"0":"3"}}', None, None),
        ("345", None, None),
        ("[1]", None, None),
        ("nonsense", None, None),
        ("[" * 5000, None, None),
    ],
)
def test_kinds_of_offsets_are_distinguished(text, kafka, flat):
    assert find_kafka_offsets(text) == kafka
    found = find_flat_offset(text)
    assert (len(found) if isinstance(flat, int) and found else found and dict(found)) == flat


def test_positions_are_kafkas_in_order_or_the_whole_offset():
    assert positions_of("source-0", '{"u":{"10":7,"9":6},"t":{"0":5}}') == [
        Position.of_kafka("source-0", "t", 0, 5),
        Position.of_kafka("source-0", "u", 9, 6),
        Position.of_kafka("source-0", "u", 10, 7),
    ]
    assert positions_of("s", '{"logOffset":3}') == [Position("s", Map({}), Map({"logOffset": 3}))]
    assert positions_of("s", "345") == [Position("s", Map({}), Map({"json": "345"}))]
    assert positions_of("s", "-") == positions_of("s", "{}") == []


def kafka(topic, partition):
    return Map({"kafka_topic": topic, "kafka_partition": partition})


def at(offset):
    return Map({"kafka_offset": offset})


def test_a_set_position_keeps_the_order_and_new_ones_come_last():
    text = '{"t":{"2":3,"0":3},"u":{"0":1}}'
    assert with_positions(text, {kafka("t", 0): at(1)}) == '{"t":{"2":3,"0":1},"u":{"0":1}}'
    assert with_positions(text, {kafka("t", 1): at(9)}) == '{"t":{"2":3,"0":3,"1":9},"u":{"0":1}}'
    assert with_positions(text, {kafka("é", 0): at(9)}) == '{"t":{"2":3,"0":3},"u":{"0":1},"é":{"0":9}}'
    assert with_positions("-", {kafka("t", 0): at(9)}) == '{"t":{"0":9}}'


def test_what_is_forgotten_goes_and_with_none_left_every_partition_is_new_to_spark():
    text = '{"t":{"0":3,"1":4},"u":{"0":1}}'
    assert with_positions(text, {kafka("u", 0): None}) == '{"t":{"0":3,"1":4}}'
    assert with_positions(text, {kafka("t", 1): None, kafka("nope", 0): None}) == '{"t":{"0":3},"u":{"0":1}}'
    everything = {kafka("t", 0): None, kafka("t", 1): None, kafka("u", 0): None}
    assert with_positions(text, everything) == "{}"
    with pytest.raises(Invalid, match="cannot be deleted"):
        with_positions('{"logOffset":3}', {Map({}): None})


@pytest.mark.parametrize(
    ("text", "partition", "offset"),
    [
        ('{"t":{"0":3}}', {}, {"logOffset": 3}),
        ('{"t":{"0":3}}', {"kafka_topic": "t"}, {"kafka_offset": 3}),
        ('{"t":{"0":3}}', {"kafka_topic": "t", "kafka_partition": -1}, {"kafka_offset": 3}),
        ('{"t":{"0":3}}', {"kafka_topic": "t", "kafka_partition": 2**31}, {"kafka_offset": 3}),
        ('{"t":{"0":3}}', {"kafka_topic": "t", "kafka_partition": "0"}, {"kafka_offset": 3}),
        ('{"t":{"0":3}}', {"kafka_topic": "", "kafka_partition": 0}, {"kafka_offset": 3}),
        ('{"t":{"0":3}}', {"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": -1}),
        ('{"t":{"0":3}}', {"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": True}),
        ('{"t":{"0":3}}', {"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 1.0}),
        ('{"t":{"0":3}}', {"kafka_topic": "t", "kafka_partition": 0}, {"position": 1}),
        ('{"logOffset":3}', {"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 3}),
    ],
)
def test_what_does_not_fit_the_source_is_refused_in_words(text, partition, offset):
    with pytest.raises(Invalid, match="Kafka source"):
        with_positions(text, {Map(partition): Map(offset)})


TOPICS = st.dictionaries(
    st.from_regex(r"[a-z.]{1,4}", fullmatch=True),
    st.dictionaries(st.integers(0, 12), st.integers(0, 2**63 - 1), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
)


@given(TOPICS, TOPICS)
def test_setting_all_positions_of_another_offset_gives_that_offset(one, other):
    def text_of(topics):
        return with_positions("-", {kafka(t, p): at(o) for t, found in topics.items() for p, o in found.items()})

    now, then = positions_of("s", text_of(one)), positions_of("s", text_of(other))
    wanted = {p.partition: None for p in now} | {p.partition: p.offset for p in then}
    assert positions_of("s", with_positions(text_of(one), wanted)) == then
    assert find_kafka_offsets(text_of(other)) == other


@given(st.binary(max_size=1600))
def test_the_checksum_is_hadoops_and_a_changed_byte_is_seen(data):
    crc = crc_bytes(data)
    assert crc[:8] == b"crc\x00\x00\x00\x02\x00"
    sums = struct.unpack(f">{(len(crc) - 8) // 4}I", crc[8:])
    assert sums == tuple(zlib.crc32(data[i : i + 512]) for i in range(0, len(data), 512))
    assert matches_crc(data, crc)
    if data:
        assert not matches_crc(bytes([data[0] ^ 1]) + data[1:], crc)
    assert matches_crc(data, b"something else")


# Batches: where Spark goes on. Each row was seen on Spark 4.0.2.


def batches(offsets, commits):
    return BatchLog(frozenset(offsets), frozenset(commits))


@pytest.mark.parametrize(
    ("offsets", "commits", "position", "planned"),
    [
        ([], [], None, []),
        ([0], [], None, [0]),
        ([0], [0], 0, []),
        ([0, 1, 2], [0, 1, 2], 2, []),
        ([0, 1, 2], [0, 1], 1, [2]),
        ([3, 4], [3, 4], 4, []),
        ([0, 1, 2, 3], [], 2, [3]),  # Spark 2.1 wrote no commits
        ([0, 1, 2, 3], [0, 1], 2, [3]),
        ([0, 4, 8], [0, 4], 4, [8]),  # asynchronous progress tracking
        ([0, 1, 2], [0, 1, 2, 3], 1, [2]),
    ],
)
def test_a_restart_goes_on_where_spark_would(offsets, commits, position, planned):
    assert batches(offsets, commits).position == position
    assert batches(offsets, commits).planned == planned


def test_only_names_that_spark_writes_are_batches():
    names = [
        "0",
        "10",
        "9",
        ".9.crc",
        ".11.6a1d.tmp",
        "9~",
        "#9#",
        "9.swp",
        "007",
        "-1",
        "9.crc",
        "_spark_metadata",
        "\u0661",
    ]
    assert BatchLog.of(names, []).offsets == {0, 9, 10}


@pytest.mark.parametrize(
    ("offsets", "commits", "notes"),
    [
        ([0, 1], [0], []),
        ([3, 4, 5], [4, 5], []),
        ([0, 1, 2, 3, 4, 6, 7], range(8), ["offsets/5 is missing between offsets/4 and offsets/6"]),
        (
            [0, 4, 6],
            [0, 4, 6],
            ["offsets/1 to 3 are missing", "offsets/5 is missing .* Spark does not start without it"],
        ),
        ([0, 1, 2, 3], [0, 3], ["commits/1 to 2 are missing"]),
        ([0, 1, 2, 3], [0, 1], ["commits/2 is missing, although a later batch was planned"]),
        ([0, 1, 2], [0, 1, 2, 3, 4], ["commits/3 to 4 are there without offsets: Spark would run batch 2 again"]),
        ([3], [2, 3], ["offsets/2 is missing before offsets/3: Spark does not start without it"]),
    ],
)
def test_gaps_are_named_by_batch(offsets, commits, notes):
    found = batches(offsets, commits).gaps()
    assert len(found) == len(notes)
    for note, expected in zip(found, notes, strict=True):
        assert re.search(expected, note), note


@pytest.mark.parametrize(
    ("offsets", "commits", "missing"),
    [
        ([0], [0], []),
        ([0, 1, 2], [0, 1], []),
        ([5, 6, 7], [6, 7], []),
        ([0, 1, 2, 3], [0, 3], []),  # missing commits do not keep Spark from starting
        ([0, 1, 3], [0, 1, 2, 3], [("offsets/2", "offsets/3")]),
        ([3], [2, 3], [("offsets/2", "offsets/3")]),
        ([0, 1, 3], [0, 1, 2], [("offsets/2", "")]),
        ([5], [3], [("offsets/4", "")]),
        ([0, 1], [0, 1, 2], [("offsets/2", "")]),
        ([], [0, 1], [("offsets/1", "")]),
        ([0, 4, 6], [0, 4, 6], []),  # progress is tracked asynchronously: both logs skip the same batches
    ],
)
def test_the_files_without_which_spark_does_not_start_are_named(offsets, commits, missing):
    assert [(one.path, one.like) for one in batches(offsets, commits).find_missing()] == missing


@pytest.mark.parametrize(("offsets", "commits"), [([], [3]), ([5], []), ([5], [3])])
def test_a_log_without_its_start_is_malformed(offsets, commits):
    with pytest.raises(MalformedLog, match="offsets is malformed"):
        _ = batches(offsets, commits).position


@pytest.mark.parametrize(
    ("offsets", "commits", "why"),
    [
        ([0, 1, 2, 3], [], "the last commit is that of nothing"),
        ([0, 1, 2, 3], [0, 1], "the last commit is that of batch 1"),
        ([0, 1, 2], [0, 1, 2, 3], "commits/3 is there without offsets"),
        ([6, 7], [5, 6], "offsets/5 is already missing"),
    ],
)
def test_where_an_edit_would_not_be_what_spark_goes_on_from_it_is_refused(offsets, commits, why):
    with pytest.raises(Refused, match=why):
        batches(offsets, commits).check_writable()


@pytest.mark.parametrize(
    ("offsets", "commits"), [([], []), ([0], []), ([0], [0]), ([5, 6, 7], [5, 6]), ([6, 7], [6, 7])]
)
def test_other_logs_can_be_edited(offsets, commits):
    batches(offsets, commits).check_writable()
