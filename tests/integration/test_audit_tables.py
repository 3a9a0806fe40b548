"""What an audit finds in the table of a JDBC sink that was spoilt by SQL: every spoilt row, and nothing else."""

import json
from dataclasses import replace

import pytest

from integration.auditing import Audits, only, verdicts
from integration.ingesting import ingest  # noqa: F401
from integration.on_spark import Topics
from playhead.kafka.transactions import PlainProducer
from playhead.model import ConnectorSpec, Deadline, Engine

pytest.importorskip("pyspark")

CONVERTERS = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
}
KEYED = {
    "transforms": "key,id",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "id",
    "transforms.id.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
    "transforms.id.field": "id",
}
TYPES = """id bigserial PRIMARY KEY, n int, s smallint, b bigint, t text, d numeric(12,3), big numeric(30,5), r real,
 f double precision, flag boolean, day date, clock time(3), at timestamp(3), atz timestamptz(3), raw bytea, js jsonb, u uuid"""
VALUES = """i, i % 100, i % 50, i::bigint * 10000000000, 'row é ' || i, i / 8.0, 123456789012345678.12345 + i, i / 3.0, i / 7.0,
 i % 2 = 0, date '2026-01-01' + i, time '01:02:03.004' + i * interval '1 s',
 timestamp '2026-03-29 01:30:00.123' + i * interval '1 h',
 timestamptz '2026-10-25 00:30:00.5+00' + i * interval '1 h', decode(lpad(to_hex(i), 8, '0'), 'hex'),
 jsonb_build_object('b', i, 'a', null), gen_random_uuid()"""
NAMES = ("n", "s", "b", "t", "d", "big", "r", "f", "flag", "day", "clock", "at", "atz", "raw", "js", "u")
NULLS = ", ".join(f"{name} = NULL" for name in NAMES)


def sink_of(lab, topic, target, **config):
    own = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "connection.url": lab.jdbc_url,
        "topics": topic,
        "table.name.format": target,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "pk.fields": "id",
    }
    return ConnectorSpec(f"s-{target}", {**own, **CONVERTERS, **config}, Engine.SPARK)


@pytest.fixture
def copied(ingest, tmp_path, unique):
    """A table of all types in a topic, keyed, and in a table of the same types."""

    def make(rows=300, **config):
        table = unique("src").replace("-", "_")
        lab = ingest.lab
        for name in (table, f"{table}_copy"):
            lab.psql(f"CREATE TABLE {name} ({TYPES})")
        lab.psql(f"INSERT INTO {table} SELECT {VALUES} FROM generate_series(1, {rows}) i")
        lab.psql(f"UPDATE {table} SET {NULLS} WHERE id = 7")
        source = ingest.table(table, **CONVERTERS, **KEYED)
        sink = sink_of(lab, table, f"{table}_copy", **config)
        for spec in (source, sink):
            (done,) = ingest.run(spec)
            assert (done.error, done.rows) == (None, rows)
        return table, Audits(ingest, tmp_path, source, sink)

    return make


def test_every_type_of_a_table_arrives_equal_and_spoilt_rows_are_found(copied, ingest):
    table, audit = copied()
    copy = f"{table}_copy"
    clean = audit()
    assert [(pair.verdict, pair.source_rows, pair.target_rows, pair.error) for pair in clean.pairs] == [
        ("clean", 300, 300, None),
        ("clean", 300, 300, None),
    ]
    ingest.lab.psql(f"DELETE FROM {copy} WHERE id IN (3, 250)")
    ingest.lab.psql(f"INSERT INTO {copy} (id, t) VALUES (-9, 'foreign')")
    changes = {
        11: "t = t || ' '",
        12: "d = d + 0.001",
        13: "big = big + 0.00001",
        14: "at = at + interval '1 ms'",
        15: "js = js || '{\"b\": 1000}'",
        16: "flag = NOT flag",
        17: "f = f + 1e-9",
        18: "raw = NULL",
        19: "u = gen_random_uuid()",
        20: "clock = clock + interval '1 ms'",
        21: "day = day + 1",
        22: "atz = atz + interval '1 h'",
    }
    for number, change in changes.items():
        ingest.lab.psql(f"UPDATE {copy} SET {change} WHERE id = {number}")
    ingest.lab.psql(f'UPDATE {copy} SET js = \'{{"a": null, "b": 30}}\', d = 3.7500 WHERE id = 30')  # what they were
    found = audit(f"s-{copy}")
    assert verdicts(found) == {"missing": ["250", "3"], "changed": sorted(map(str, changes)), "extra": ["-9"]}
    lost = only(found.pairs[0].items, "missing")[0]
    assert (lost.hop, lost.run, found.exit_code) == ("delivered and gone", "run 1", 1)
    assert audit(f"s-{copy}", level=0).exit_code == 0


def test_of_upserts_the_last_record_counts_and_records_above_the_line_are_late(copied, ingest):
    table, audit = copied(50)
    copy = f"{table}_copy"
    source, sink = audit.specs
    ingest.lab.psql(f"UPDATE {table} SET t = 'new' WHERE id <= 10")
    (done,) = ingest.run(replace(source, name=f"again-{table}"))
    assert (done.error, done.rows) == (None, 50)
    late = audit(sink.name)
    assert (late.exit_code, late.pairs[0].verdict) == (0, "clean")
    (done,) = ingest.run(sink)
    assert (done.error, done.rows) == (None, 50)
    (pair,) = audit(sink.name).pairs
    assert (pair.verdict, pair.source_rows, pair.target_rows) == ("clean", 50, 50)
    ingest.lab.psql(f"UPDATE {copy} SET t = 'row é 5' WHERE id = 5")  # an old version came back
    assert verdicts(audit(sink.name)) == {"changed": ["5"]}


def test_what_a_live_sink_has_written_or_deleted_above_the_line_is_late(copied, ingest):
    table, audit = copied(50, **{"delete.enabled": "true"})
    copy, sink = f"{table}_copy", audit.specs[1]
    values = [json.loads(value) for value in ingest.values(table)]
    by_id = {value["payload"]["id"]: value for value in values}
    key = {"schema": {"type": "int64", "optional": False}, "payload": 0}

    def records(number, *texts):
        for text in texts:
            value = {**by_id[number], "payload": {**by_id[number]["payload"], "t": text}}
            yield json.dumps({**key, "payload": number}).encode(), None if text is None else json.dumps(value).encode()

    with PlainProducer(Topics(ingest.lab).settings, Deadline(30)) as producer:
        for number, texts in ((3, [None]), (4, ["new", "newer"]), (5, ["new", None]), (6, [None])):
            for name, value in records(number, *texts):
                producer.produce(table, name, value, partition=0)
    ingest.lab.psql(f"DELETE FROM {copy} WHERE id = 3")  # as the tombstone does
    ingest.lab.psql(f"UPDATE {copy} SET t = 'new' WHERE id IN (4, 5)")  # the version between
    ingest.lab.psql(f"DELETE FROM {copy} WHERE id = 20")  # not by a record
    found = audit(sink.name)
    assert verdicts(found) == {"late": ["3", "4", "5"], "missing": ["20"]}
    (done,) = ingest.run(sink)
    assert (done.error, done.rows) == (None, 6)
    found = audit(sink.name)
    assert verdicts(found) == {"missing": ["20"]}
    assert found.pairs[0].source_rows == 47  # of 50, 3 were deleted by tombstones


def test_two_topics_in_one_table_are_compared_together(copied, ingest, tmp_path):
    table, _ = copied(20)
    other, _ = copied(10)
    copy = f"{table}_copy"
    ingest.lab.psql(f"UPDATE {other} SET id = id + 1000")
    again = replace(ingest.table(other, **CONVERTERS, **KEYED), name=f"more-{other}")
    both = replace(sink_of(ingest.lab, f"{table},{other}", copy), name=f"both-{table}")
    for spec in (again, both):
        (done,) = ingest.run(spec)
        assert done.error is None
    found = Audits(ingest, tmp_path, both)()
    (pair,) = found.pairs
    assert (pair.error, pair.verdict, pair.source_rows) == (None, "clean", 30)
    assert (pair.source, pair.target_rows) == (f"topics {', '.join(sorted([table, other]))}", 30)
    ingest.lab.psql(f"DELETE FROM {copy} WHERE id IN (4, 1004)")
    assert verdicts(Audits(ingest, tmp_path, both)()) == {"missing": ["1004", "4"]}


def test_of_inserts_every_record_is_a_row(copied, ingest):
    table, audit = copied(50, **{"insert.mode": "insert", "pk.mode": "none", "pk.fields": ""})
    copy = f"{table}_copy"
    assert audit(f"s-{copy}").exit_code == 0
    ingest.lab.psql(f"ALTER TABLE {copy} DROP CONSTRAINT {copy}_pkey")
    ingest.lab.psql(f"INSERT INTO {copy} SELECT * FROM {copy} WHERE id IN (4, 9)")
    ingest.lab.psql(f"INSERT INTO {copy} SELECT * FROM {copy} WHERE id = 9")
    ingest.lab.psql(f"DELETE FROM {copy} WHERE id = 12")
    found = audit(f"s-{copy}")
    assert verdicts(found) == {"missing": ["12"], "duplicate": ["4", "9"]}
    assert [item.count for item in only(found.pairs[0].items, "duplicate")] == [1, 3]


def test_what_cannot_be_compared_says_so(copied, ingest, tmp_path):
    table, _ = copied(5)
    sink = sink_of(ingest.lab, table, f"{table}_nowhere")
    found = Audits(ingest, tmp_path, sink)()
    assert (found.exit_code, found.pairs[0].verdict) == (3, "not compared")
