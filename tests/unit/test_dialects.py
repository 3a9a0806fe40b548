"""Dialects: what is known about the offset maps of real connectors.

Where a connector of Apache Kafka checks offsets itself, that very class is the oracle; the JDBC maps are those observed from real
workers, the Debezium ones follow its loaders.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.connect.dialects import (
    DIALECTS,
    KAFKA,
    PLAIN,
    find_dialect,
    parse_literal,
)
from playhead.connect.dialects.notation import parse_instant, parse_lsn, show_instant, show_lsn
from playhead.errors import Invalid
from playhead.model import Map
from playhead.pipeline.jars import fetch_jars, java
from unit.dialect_checks import JDBC, dialect, fatal

ORACLE = """
import com.fasterxml.jackson.databind.*;
import java.util.*;
import org.apache.kafka.connect.source.SourceConnector;

public class Verdicts {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper().enable(DeserializationFeature.USE_LONG_FOR_INTS);  // as Connect reads them
        List<Boolean> answers = new ArrayList<>();
        for (Object asked : json.readValue(System.in, List.class)) {
            List<?> each = (List<?>) asked;
            Object made = Class.forName((String) each.get(0)).getDeclaredConstructor().newInstance();
            SourceConnector connector = (SourceConnector) made;
            Map<Map<String, ?>, Map<String, ?>> offsets = new HashMap<>();
            offsets.put((Map<String, ?>) each.get(1), (Map<String, ?>) each.get(2));
            try {
                answers.add(connector.alterOffsets(Map.of("file", "some.txt", "topic", "t"), offsets));
            } catch (org.apache.kafka.connect.errors.ConnectException refused) {
                answers.add(false);
            }
        }
        System.out.println("verdicts " + json.writeValueAsString(answers));
    }
}
"""
FILE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
MIRROR = "org.apache.kafka.connect.mirror.Mirror{}Connector"
ODD_VALUES = [None, True, 0, 1, 5, -1, -420, 3.14, 5.0, "10", "", "x", 2**31 - 1, 2**31, 2**63 - 1]
MM2_PARTITIONS: dict[str, dict[str, Any]] = {
    "Source": {"cluster": "a", "partition": 0, "topic": "t"},
    "Checkpoint": {"partition": 0, "topic": "t", "group": "g"},
    "Heartbeat": {"sourceClusterAlias": "a", "targetClusterAlias": "b"},
}
GARBAGE = {"some": "garbage"}


Fields = dict[str, Any]


def verdict_cases() -> list[tuple[str, Fields, Fields | None]]:
    cases: list[tuple[str, Fields, Fields | None]] = [
        (FILE, {"filename": "f"}, {"position": value}) for value in ODD_VALUES
    ]
    cases += [
        (FILE, {"filename": "f"}, {}),
        (FILE, {"filename": "f"}, {"pos": 5}),
        (FILE, {"filename": "f"}, {"position": 5, "more": "x"}),
        (FILE, {"name": "f"}, {"position": 5}),
        (FILE, {"filename": "f"}, None),
        (FILE, GARBAGE, None),
        (FILE, {"filename": "f", "more": 1}, {"position": 5}),
    ]
    for kind, partition in MM2_PARTITIONS.items():
        name = MIRROR.format(kind)
        cases += [(name, partition, {"offset": value}) for value in ODD_VALUES]
        cases += [(name, partition, {}), (name, partition, None), (name, GARBAGE, None), (name, GARBAGE, {"offset": 0})]
        for field in partition:
            cases += [(name, {**partition, field: value}, {"offset": 0}) for value in (*ODD_VALUES, 7)]
            cases.append((name, {key: value for key, value in partition.items() if key != field}, {"offset": 0}))
    return cases


def test_verdicts_are_those_of_kafkas_own_connectors(tmp_path):
    cases = verdict_cases()
    (tmp_path / "Verdicts.java").write_text(ORACLE)
    class_path = ":".join(str(jar) for jar in fetch_jars("kafka"))
    command = [java(), "-cp", class_path, str(tmp_path / "Verdicts.java")]
    asked = json.dumps(cases)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("verdicts "))[9:])
    differ = [
        (case, verdict)
        for case, verdict in zip(cases, answers, strict=True)
        if (not fatal(dialect(case[0]), *case[1:])) != verdict
    ]
    assert differ == []
    assert 10 < sum(answers) < len(answers) - 40


@pytest.mark.parametrize(
    ("partition", "offset", "path"),
    [
        ({"name": "f"}, {"position": 10}, "$.partition"),
        ({"filename": "f"}, {"position": "10"}, "$.offset.position"),
        ({"filename": "f"}, {"position": 3.14}, "$.offset.position"),
        ({"filename": "f"}, {"position": -420}, "$.offset.position"),
        ({"filename": "f"}, {"position": None}, "$.offset.position"),
    ],
)
def test_a_wrong_position_of_a_file_is_refused_with_its_path(partition, offset, path):
    assert fatal(dialect("FileStreamSource"), partition, offset) == [path]


@pytest.mark.parametrize("known", DIALECTS, ids=lambda known: known.name)
def test_a_tombstone_is_accepted_for_anything(known):
    assert known.check(Map(GARBAGE), None) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (FILE, "FileStreamSource"),
        ("FileStreamSourceConnector", "FileStreamSource"),
        ("FileStreamSource", "FileStreamSource"),
        (JDBC, "the JDBC source connector"),
        ("io.aiven.connect.jdbc.JdbcSourceConnector", "the JDBC source connector"),
        ("io.debezium.connector.mariadb.MariaDbConnector", "Debezium MySQL"),
        ("MirrorHeartbeat", "MirrorHeartbeatConnector"),
        ("com.mongodb.kafka.connect.MongoSourceConnector", "the MongoDB source connector"),
        ("MongoDbConnector", "Debezium MongoDB"),
    ],
)
def test_a_class_is_found_in_every_way_connect_lets_it_be_written(name, found):
    assert dialect(name).name == found


SHAPES = [
    ({"protocol": "1", "table": "public.orders"}, {"incrementing": 5}, "the JDBC source connector"),
    ({"protocol": "1", "table": "public.orders"}, None, "the JDBC source connector"),
    ({"table": "orders"}, {"timestamp": 5}, "the JDBC source connector"),
    ({"table": "orders"}, None, None),
    ({"table": "orders"}, {"ID": 5}, None),
    ({"query": "query"}, None, "the JDBC source connector"),
    ({"query": "select 1"}, {"incrementing": 5}, None),
    ({"filename": "f"}, {"position": 5}, "FileStreamSource"),
    ({"filename": "direct:x"}, {"position": "ID-1"}, None),
    ({"server": "s"}, {"lsn": 5}, "Debezium PostgreSQL"),
    ({"server": "s"}, {"file": "b.1", "pos": 4}, "Debezium MySQL"),
    ({"server": "s"}, {"scn": "5"}, "Debezium Oracle"),
    ({"server": "s"}, {"vgtid": "[]"}, "Debezium Vitess"),
    ({"server": "s"}, {"commit_lsn": "x"}, None),
    ({"server": "s", "database": "d"}, {"commit_lsn": "x"}, "Debezium SQL Server"),
    ({"server_id": "s"}, {"sec": 5, "ord": 1}, "Debezium MongoDB"),
    ({"databaseName": "s"}, {"commit_lsn": "5"}, "Debezium Informix"),
    ({"partitionToken": "s"}, {"startTime": "x"}, "Debezium Spanner"),
    ({"cluster": "a", "partition": 0, "topic": "t"}, {"offset": 5}, "MirrorSourceConnector"),
    ({"partition": 0, "topic": "t", "group": "g"}, {"offset": 0}, "MirrorCheckpointConnector"),
    ({"sourceClusterAlias": "a", "targetClusterAlias": "b"}, {"offset": 0}, "MirrorHeartbeatConnector"),
    ({"ns": "mongodb://h/db.c"}, None, "the MongoDB source connector"),
    ({"ns": "mine"}, {"_id": '{"_data":"82"}'}, "the MongoDB source connector"),
    ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 5}, "a sink connector or consumer group"),
    ({}, {"offset": "5-0"}, None),
    ({"path": "p"}, {"offset": 5}, None),
]


@pytest.mark.parametrize(("partition", "offset", "name"), SHAPES)
def test_without_a_class_only_an_unmistakable_form_identifies_the_connector(partition, offset, name):
    found = find_dialect(None, Map(partition), None if offset is None else Map(offset))
    assert (found.name if found else None) == name
    if offset is not None:
        matching = [d for d in DIALECTS if d.matches(Map(partition), Map(offset))]
        assert len(matching) == (1 if name else 0), "more than one dialect claims it"


def test_a_class_that_is_not_known_is_not_guessed_by_form_except_for_sinks():
    assert find_dialect("com.acme.Source", Map({"filename": "f"}), Map({"position": 5})) is None
    sink = Map({"kafka_topic": "t", "kafka_partition": 0})
    assert find_dialect("com.acme.Sink", sink, None) is KAFKA
    assert find_dialect(JDBC, sink, None) is not KAFKA
    assert find_dialect(None) is None


@pytest.mark.parametrize("known", [*DIALECTS, PLAIN], ids=lambda known: known.name)
def test_every_dialect_says_what_starting_over_and_skipping_mean(known):
    for sentence in (known.start_over, known.skip_one):
        assert sentence[0].isupper()
        assert sentence.endswith(".")


def test_the_last_replicated_record_of_a_mirror_is_readable_and_ordered():
    mirror = dialect("MirrorSourceConnector")
    partition = Map({"cluster": "west", "partition": 3, "topic": "orders"})
    assert mirror.readable(partition, Map({"offset": 41})) == "west orders-3: offset 41"
    assert mirror.compare(Map({"offset": 41}), Map({"offset": 42})) == -1
    assert mirror.compare(Map({"offset": 41}), Map({"offset": "42"})) is None
    beats = dialect("MirrorHeartbeatConnector")
    assert beats.readable(Map(MM2_PARTITIONS["Heartbeat"]), None) == "a -> b: nothing stored, starts over"


def test_the_position_of_a_sink_is_kafkas():
    partition = {"kafka_topic": "orders", "kafka_partition": 3}
    assert KAFKA.readable(Map(partition), Map({"kafka_offset": 41})) == "orders-3: next record 41"
    assert fatal(KAFKA, partition, {"kafka_offset": "41"}) == ["$.offset.kafka_offset"]
    assert fatal(KAFKA, partition, {"kafka_offset": -1}) == ["$.offset.kafka_offset"]
    assert KAFKA.compare(Map({"kafka_offset": 1}), Map({"kafka_offset": 1})) == 0


def test_without_a_dialect_anything_flat_goes():
    assert PLAIN.check(Map(GARBAGE), Map({"x": 1.5})) == []
    assert PLAIN.readable(Map({"a": "b", "n": 1}), Map({"x": 1.5})) == "b, 1: x 1.5"
    assert PLAIN.readable(Map({}), Map({"offset": "5-0"})) == "the only partition: offset 5-0"
    assert PLAIN.compare(Map({"x": 1}), Map({"x": 2})) is None
    assert PLAIN.field_order(["a"]) is None
    assert PLAIN.parse_fields({"a": "5", "b": "t"}, Map({"c": 1})).offset == Map({"c": 1, "a": 5, "b": "t"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5.0", 5.0),
        ("-1e3", -1000.0),
        ("true", True),
        ("null", None),
        ('"5"', "5"),
        ('"a b"', "a b"),
        ("abc", "abc"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("", ""),
        ('"', '"'),
        ("0/16B3748", "0/16B3748"),
        ("007", "007"),
        ("9" * 5000, "9" * 5000),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_what_is_typed_is_a_scalar_of_json_or_text(text, value):
    parsed = parse_literal(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "field", "text", "value"),
    [
        ("PostgresConnector", "lsn", "0/16B3748", 23803720),
        ("PostgresConnector", "lsn", "16/B374D848", 97500059720),
        ("PostgresConnector", "lsn", "23803720", 23803720),
        ("PostgresConnector", "lsn", "FFFFFFFF/FFFFFFFF", -1),
        ("PostgresConnector", "ts_usec", "2022-04-15T05:20:00.000001Z", 1650000000000001),
        ("PostgresConnector", "snapshot", "INITIAL", "INITIAL"),
        ("PostgresConnector", "last_snapshot_record", "true", True),
        ("MySqlConnector", "ts_sec", "2022-04-15T05:20:00Z", 1650000000),
        ("OracleConnector", "scn", "369034", "369034"),
        ("MongoSourceConnector", "_id", '{"_data":"82"}', '{"_data":"82"}'),
        ("MongoSourceConnector", "copy", "true", "true"),
        ("MongoSourceConnector", "copy", '"true"', "true"),
        (JDBC, "incrementing", "369034", 369034),
        (JDBC, "timestamp", "2022-11-29", 1669680000000),
        (JDBC, "timestamp", "2022-11-29 05:59", 1669701540000),
        (JDBC, "new_field", "5", 5),
        (JDBC, "incrementing", "null", None),
    ],
)
def test_what_is_typed_becomes_what_the_connector_keeps(name, field, text, value):
    parsed = dialect(name).parse_field(field, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "field", "text"),
    [
        (JDBC, "incrementing", "4.0"),
        (JDBC, "incrementing", "abc"),
        (JDBC, "incrementing", ""),
        (JDBC, "incrementing", "٣"),
        (JDBC, "timestamp", "yesterday"),
        (JDBC, "timestamp", "2022-02-30T00:00:00Z"),
        (JDBC, "timestamp", "2022-11-29T25:00:00Z"),
        (JDBC, "timestamp", "2022-11-29T05:59:60Z"),
        (JDBC, "timestamp", "2022-11-29T05:59:55+02:75"),
        (JDBC, "timestamp", "2022-11-29T05:59:55.8171234567Z"),
        ("PostgresConnector", "lsn", "0/1GB"),
        ("PostgresConnector", "lsn", "0/123456789"),
        (FILE, "position", '"10"'),
        (FILE, "position", "3.14"),
    ],
)
def test_what_cannot_be_the_fields_value_is_refused(name, field, text):
    with pytest.raises(Invalid):
        dialect(name).parse_fields({field: text}, None)


@given(st.integers(-62135596800 * 10**9, 253402300799 * 10**9 + 10**9 - 1))
def test_a_shown_moment_reads_back(nanos):
    assert parse_instant(show_instant(nanos)) == nanos


@given(st.integers(0, 2**64 - 1))
def test_a_shown_lsn_reads_back(lsn):
    assert parse_lsn(show_lsn(lsn)) == lsn


JSON_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(-9, 9), st.text(max_size=9)
)


@pytest.mark.parametrize("known", DIALECTS, ids=lambda known: known.name)
@given(data=st.data())
def test_no_value_makes_a_dialect_fail(known, data):
    names = [field.name for field in known.fields] + ["other"]
    fields = st.dictionaries(st.sampled_from(names), JSON_SCALARS, max_size=6)
    a, b = Map(data.draw(fields)), Map(data.draw(fields))
    places = [field.name for shape in known.shapes for field in shape] + ["other"]
    partition = Map(data.draw(st.dictionaries(st.sampled_from(places), JSON_SCALARS, max_size=3)))
    for problem in known.check(partition, a):
        assert problem.path.startswith("$")
    assert known.compare(a, a) in (0, None)
    there, back = known.compare(a, b), known.compare(b, a)
    assert there == back == 0 if there == 0 else there == (None if back is None else -back)
    assert known.readable(partition, a).isprintable()
    assert set(known.completed(a, b).offset) <= {
        *a,
        *b,
        "timestamp_nanos",
        "pos",
        "lsn_proc",
        "lsn_commit",
        "change_lsn",
        "event_serial_no",
        "commit_scn",
    }
    assert set(known.renamed(partition, {"x": "y"})) == set(partition)


def test_the_page_on_dialects_names_every_class_and_field_of_a_partition():
    page = (Path(__file__).parent.parent.parent / "docs" / "dialects.md").read_text()
    missing = [full for known in DIALECTS for full in known.classes if f"`{full}`" not in page]
    missing += [
        field.name for known in DIALECTS for shape in known.shapes for field in shape if f"`{field.name}`" not in page
    ]
    assert missing == []
