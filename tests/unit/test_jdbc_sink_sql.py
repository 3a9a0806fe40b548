"""The SQL of the JDBC sink: tables as the connector makes them, merges of few statements, rows as COPY reads them."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from playhead.errors import Invalid
from playhead.pipeline.deliver.jdbc.copy_format import Fixed, Varying, encode_rows
from playhead.pipeline.deliver.jdbc.layout import UnfitRecord, find_layout
from playhead.pipeline.deliver.jdbc.options import JdbcSinkOptions
from playhead.pipeline.deliver.jdbc.tables import column_rule
from playhead.pipeline.records.schema import Schema
from playhead.sql.merge import How, MergeLayout, merge_statements, temporary_statement
from playhead.sql.target_tables import TargetTableName, create_statement, parse_table_name

VALUE = Schema.from_json(
    '{"type":"struct","fields":[{"type":"string","optional":true,"field":"b"},{"type":"int32","field":"a"},'
    '{"type":"boolean","optional":true,"field":"c"}]}'
)
KEY = Schema.from_json('{"type":"struct","fields":[{"type":"int64","field":"z"},{"type":"int64","field":"a"}]}')
ORDERS = MergeLayout(TargetTableName(None, "orders"), ("id", "name"), ("int8", "text"), ("id",))


def names(options: JdbcSinkOptions, key: Schema | None = None) -> tuple[list[str], list[str], list[str]]:
    layout = find_layout(options, key, VALUE)
    return [one.name for one in layout.keys], [one.name for one in layout.fields], [one.name for one in layout.created]


def test_columns_come_from_where_pk_mode_says():
    assert names(JdbcSinkOptions()) == ([], ["b", "a", "c"], ["b", "a", "c"])
    coordinates = ["__connect_topic", "__connect_partition", "__connect_offset"]
    assert names(JdbcSinkOptions(pk_mode="kafka")) == (
        coordinates,
        [*coordinates, "b", "a", "c"],
        [*coordinates, "b", "a", "c"],
    )
    by_key = names(JdbcSinkOptions(pk_mode="record_key", pk_fields=("z",)), KEY)
    assert by_key == (["z"], ["z", "b", "a", "c"], ["b", "a", "c", "z"])
    assert names(JdbcSinkOptions(pk_mode="record_key"), KEY)[1] == ["z", "a", "b", "c"]
    assert names(JdbcSinkOptions(pk_mode="record_value", pk_fields=("a",), fields=("c",))) == (
        ["a"],
        ["a", "c"],
        ["a", "c"],
    )


def test_keys_that_cannot_be_made_are_reported():
    with pytest.raises(UnfitRecord, match=r"pk.fields must name exactly one column"):
        find_layout(JdbcSinkOptions(pk_mode="record_key"), Schema("int32"), VALUE)
    with pytest.raises(UnfitRecord, match=r"has no field 'x', which pk.fields names"):
        find_layout(JdbcSinkOptions(pk_mode="record_value", pk_fields=("x",)), None, VALUE)
    with pytest.raises(UnfitRecord, match="no field that would become a column"):
        find_layout(JdbcSinkOptions(fields=("x",)), None, VALUE)


@pytest.mark.parametrize(
    ("schema", "postgresql", "sqlite"),
    [
        ('{"type":"int8","field":"x"}', "SMALLINT NOT NULL", "INTEGER NOT NULL"),
        ('{"type":"int32","optional":true}', "INT NULL", "INTEGER NULL"),
        ('{"type":"int64","default":5,"optional":true}', "BIGINT DEFAULT 5", "INTEGER DEFAULT 5"),
        ('{"type":"float","optional":true}', "REAL NULL", "REAL NULL"),
        ('{"type":"double","default":0.5}', "DOUBLE PRECISION DEFAULT 0.5", "REAL DEFAULT 0.5"),
        ('{"type":"boolean","default":true}', "BOOLEAN DEFAULT TRUE", "INTEGER DEFAULT 1"),
        ('{"type":"string","default":"it\'s"}', "TEXT DEFAULT 'it''s'", "TEXT DEFAULT 'it''s'"),
        ('{"type":"bytes","default":"3q0="}', "BYTEA DEFAULT '\\xDEAD'::bytea", "BLOB DEFAULT x'DEAD'"),
        ('{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"default":"BM4="}',
         "DECIMAL DEFAULT 12.30", "NUMERIC DEFAULT 12.30"),
        ('{"type":"int32","name":"org.apache.kafka.connect.data.Date","default":19724}',
         "DATE DEFAULT '2024-01-02'", "NUMERIC DEFAULT 1704153600000"),
        ('{"type":"int32","name":"org.apache.kafka.connect.data.Time","default":11045123}',
         "TIME DEFAULT '03:04:05.123'", "NUMERIC DEFAULT 11045123"),
        ('{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","default":1704164645123}',
         "TIMESTAMP DEFAULT '2024-01-02 03:04:05.123'", "NUMERIC DEFAULT 1704164645123"),
    ],
)  # fmt: skip
def test_columns_are_made_as_the_connector_makes_them(schema, postgresql, sqlite):
    field = Schema("struct", fields=(("x", Schema.from_json(schema.replace(',"field":"x"', ""))),))
    one = find_layout(JdbcSinkOptions(), None, field).fields[0]
    assert (column_rule(one, "postgresql"), column_rule(one, "sqlite")) == (postgresql, sqlite)


def test_a_table_is_made_once_with_its_key():
    made = create_statement(TargetTableName("s", 'o"x'), {"id": "INT NOT NULL", "n": "TEXT NULL"}, ["id"])
    assert made == 'CREATE TABLE IF NOT EXISTS "s"."o""x" (\n"id" INT NOT NULL,\n"n" TEXT NULL,\nPRIMARY KEY("id"))'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", TargetTableName("here", "orders")),
        ("Sales.Orders", TargetTableName("Sales", "Orders")),
        ('"a.b".c', TargetTableName("a.b", "c")),
        ('"or""ders"', TargetTableName("here", 'or"ders')),
        ("my-topic", TargetTableName("here", "my-topic")),
    ],
)
def test_a_name_with_a_dot_has_a_schema(text, expected):
    assert parse_table_name(text, "here", quotes=True) == expected


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", 'a"b', '"a'])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(Invalid):
        parse_table_name(text, None, quotes=True)


def test_names_that_are_not_quoted_are_folded():
    assert parse_table_name("Sales.Orders", None, quotes=False) == TargetTableName("sales", "orders")


def test_an_upsert_takes_the_last_record_of_a_key():
    [statement] = merge_statements(ORDERS, How("upsert"), "postgresql")
    assert statement.startswith('INSERT INTO "orders" ("id", "name") SELECT "id", "name" FROM (')
    assert 'PARTITION BY "id" ORDER BY __playhead_partition DESC, __playhead_offset DESC' in statement
    assert statement.endswith('ON CONFLICT ("id") DO UPDATE SET "name" = EXCLUDED."name"')
    [statement] = merge_statements(ORDERS, How("upsert"), "sqlite")
    assert statement.startswith('INSERT OR REPLACE INTO "orders"') and "ON CONFLICT" not in statement


def test_deletes_come_before_what_is_written_again():
    delete, insert = merge_statements(ORDERS, How("insert", deletes=True), "postgresql")
    assert delete == 'DELETE FROM "orders" WHERE ("id") IN (SELECT "id" FROM playhead_merge_0 WHERE __playhead_deleted)'
    assert insert.endswith("WHERE __playhead_place > __playhead_gone) AS last")


def test_a_percent_sign_in_a_name_is_no_mark_of_a_parameter():
    odd = MergeLayout(TargetTableName(None, "a%b"), ("x",), ("int4",), ("x",))
    assert '"a%%b"' in temporary_statement(odd, "postgresql") and '"a%b"' in temporary_statement(odd, "sqlite")
    assert "DO NOTHING" in merge_statements(odd, How("upsert"), "postgresql")[0]


def test_rows_are_what_a_binary_copy_reads():
    """Against the form in PostgreSQL's manual: count of fields, then length and bytes of each."""
    numbers = Fixed(np.array([1, -2, 3]).astype(">i8"))
    texts = Varying.of(pa.array([b"ab", None, b""], pa.binary()))
    some = Fixed(np.array([7, 9]).astype(">i4")).spread(np.array([True, False, True]))
    made = b"".join(bytes(piece) for piece in encode_rows([numbers, texts, some, numbers], 3))
    expected = b""
    for number, text, other in ((1, b"ab", 7), (-2, None, None), (3, b"", 9)):
        expected += struct.pack(">hiq", 4, 8, number)
        expected += struct.pack(">i", -1) if text is None else struct.pack(">i", len(text)) + text
        expected += struct.pack(">i", -1) if other is None else struct.pack(">ii", 4, other)
        expected += struct.pack(">iq", 8, number)
    assert made == expected


def test_rows_without_a_text_are_laid_out_at_once():
    made = b"".join(bytes(piece) for piece in encode_rows([Fixed(np.array([5, 6]).astype(">i2"))], 2))
    assert made == struct.pack(">hihhih", 1, 2, 5, 1, 2, 6)
    assert list(encode_rows([Fixed(np.empty(0, ">i2"))], 0)) == []
