"""What Connect makes of columns, without Spark: fields, schema and select list. The connector wrote the schema."""

import pytest

pytest.importorskip("pyspark")

from playhead.errors import Invalid
from playhead.pipeline.records.encode.fields import SqlColumn
from playhead.pipeline.records.encode.json_columns import JsonColumns
from playhead.pipeline.records.encode.options import STRING, Converter, RecordOptions
from playhead.pipeline.records.encode.record import RowRecord, make_record

LADDER = (
    '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"},{"type":"int8","optional":true,"field":"n10"},'
    '{"type":"int8","optional":true,"field":"n20"},{"type":"int16","optional":true,"field":"n30"},'
    '{"type":"int16","optional":true,"field":"n40"},{"type":"int32","optional":true,"field":"n90"},'
    '{"type":"int64","optional":true,"field":"n100"},{"type":"int64","optional":true,"field":"n180"},'
    '{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
    '"parameters":{"scale":"0","connect.decimal.precision":"19"},"field":"n190"},'
    '{"type":"double","optional":true,"field":"n182"},{"type":"bytes","optional":true,'
    '"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"19"},'
    '"field":"n192"},{"type":"double","optional":true,"field":"nneg"}],"optional":false,"name":"num0"}'
)


def schema_json(record: RowRecord) -> str:
    return JsonColumns().schema_text(record.rows.schema)


def numeric(name: str, precision: int, scale: int) -> SqlColumn:
    return SqlColumn(name, 2, "numeric", precision, scale, signed=True, nullable=True)


def column(name: str, jdbc_type: int, type_name: str = "", precision: int = 0) -> SqlColumn:
    return SqlColumn(name, jdbc_type, type_name, precision, 0, signed=True, nullable=True)


def quoted(name: str) -> str:
    return f'"{name}"'


def test_the_ladder_of_numerics_has_the_schema_that_the_connector_wrote():
    whole = [(10, 1), (20, 2), (30, 3), (40, 4), (90, 9), (100, 10), (180, 18), (190, 19)]
    columns = [SqlColumn("id", 4, "int4", 10, 0, signed=True, nullable=False)]
    columns += [numeric(f"n{name}", precision, 0) for name, precision in whole]
    columns += [numeric("n182", 18, 2), numeric("n192", 19, 2), numeric("nneg", 5, 2046)]
    record = make_record(columns, RecordOptions(numeric_mapping="best_fit"), "num0", "PostgreSQL")
    assert schema_json(record) == LADDER


def test_eager_double_takes_every_fraction():
    record = make_record(
        [numeric("n", 38, 12)], RecordOptions(numeric_mapping="best_fit_eager_double"), "t", "PostgreSQL"
    )
    assert '"type":"double"' in schema_json(record)


def test_precision_only_leaves_fractions_as_decimals():
    options = RecordOptions(numeric_mapping="precision_only")
    record = make_record([numeric("a", 9, 0), numeric("b", 9, 2)], options, "t", "PostgreSQL")
    assert [field.type for field in record.fields] == ["int32", "bytes"]


@pytest.mark.parametrize("mapping", ["precision_only", "best_fit", "best_fit_eager_double"])
def test_a_numeric_without_precision_is_refused_where_connect_would_cut_it(mapping):
    with pytest.raises(Invalid, match="'amount' is numeric without a precision") as caught:
        make_record([numeric("amount", 0, 0)], RecordOptions(numeric_mapping=mapping), "t", "PostgreSQL")
    assert "numeric.mapping=none" in (caught.value.hint or "")


def test_bits_are_refused_where_connect_would_misread_them():
    with pytest.raises(Invalid, match=r"'flags' is bit\(8\)"):
        make_record([column("flags", -7, "bit", 8)], RecordOptions(), "t", "PostgreSQL")


def test_columns_without_a_mapping_are_left_out():
    columns = [
        column("id", 4),
        column("span", 1111, "interval"),
        column("tags", 2003, "_text"),
        column("u", 1111, "uuid"),
    ]
    record = make_record(columns, RecordOptions(), "t", "PostgreSQL")
    assert record.left_out == ("span", "tags")
    assert [field.name for field in record.fields] == ["id", "u"]


def test_a_table_of_nothing_that_connect_can_write_is_refused():
    with pytest.raises(Invalid, match="none of the columns"):
        make_record([column("span", 1111, "interval")], RecordOptions(), "t", "PostgreSQL")


def test_two_names_that_spark_cannot_distinguish_are_refused():
    with pytest.raises(Invalid, match="'Id' and 'id'"):
        make_record([column("Id", 4), column("id", 4)], RecordOptions(), "t", "PostgreSQL")


def test_bytes_are_refused_for_the_string_converter():
    with pytest.raises(Invalid, match="'photo' is bytes"):
        make_record([column("photo", -2, "bytea")], RecordOptions(value=Converter(STRING)), "t", "PostgreSQL")


def test_ordinary_columns_are_read_as_they_are():
    record = make_record([column("id", -5, "int8"), column("name", 12, "text")], RecordOptions(), "t", "PostgreSQL")
    assert record.reads(quoted) == ('"id"', '"name"')


def test_numerics_of_postgres_are_read_as_text():
    record = make_record([numeric("n", 0, 0), column("j", 1111, "jsonb")], RecordOptions(), "t", "PostgreSQL")
    assert record.reads(quoted) == ('"n"::text AS "n"', '"j"::text AS "j"')


def test_names_are_escaped_in_the_schema_as_jackson_does():
    record = make_record([column('a"\U0001f600', 4)], RecordOptions(), "t\x1f", "PostgreSQL")
    assert '"field":"a\\"\\uD83D\\uDE00"' in schema_json(record)
    assert schema_json(record).endswith('"name":"t\\u001F"}')


def test_fine_timestamps_are_plain_numbers_and_texts_in_the_schema():
    for granularity, kind in (("nanos_long", "int64"), ("micros_iso_datetime_string", "string")):
        options = RecordOptions(timestamp_granularity=granularity)
        record = make_record([column("ts", 93, "timestamp")], options, "t", "PostgreSQL")
        assert f'[{{"type":"{kind}","optional":true,"field":"ts"}}]' in schema_json(record)


def test_a_type_that_sqlite_does_not_know_is_refused():
    with pytest.raises(Invalid, match="declared type TIME"):
        make_record([column("at", 2, "TIME")], RecordOptions(), "t", "SQLite")
