"""Rows that Spark read become the bytes that Connect wrote: samples of the real connector, and Java asked about random values."""

import math
import random
import sqlite3
import struct
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from integration.record_oracle import Row, calendar_millis, calendar_texts, connect_texts, connect_values
from integration.record_samples import (
    BERLIN,
    BEST_FIT,
    CREATE,
    EXTREMES,
    GRANULARITIES,
    LADDER,
    LADDER_SQL,
    NONE,
    SCHEMA,
    ZONES,
    walls,
    without,
)
from playhead.errors import Rejected
from playhead.lab import Lab
from playhead.pipeline.ingest.encoding import RecordEncoder
from playhead.pipeline.ingest.jdbc.libpq import find_conninfo
from playhead.pipeline.ingest.jdbc.options import Connection
from playhead.pipeline.ingest.jdbc.postgres import PostgresChunks
from playhead.pipeline.records.encode.fields import SqlColumn
from playhead.pipeline.records.encode.options import JSON, STRING, Converter, RecordOptions

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from playhead.pipeline.records.encode.record import RowRecord

PLAIN = RecordOptions(value=Converter(schemas_enable=False))


class Database:
    """A database as Spark's JVM sees it: its metadata, and its rows as values of records."""

    def __init__(self, session: "SparkSession", url: str) -> None:
        self.session, self.url = session, url

    def columns(self, select: str) -> list[SqlColumn]:
        jvm: Any = self.session._jvm
        connection = jvm.java.sql.DriverManager.getConnection(self.url)
        try:
            metadata = connection.prepareStatement(select).getMetaData()
            return [_column(metadata, at) for at in range(1, metadata.getColumnCount() + 1)]
        finally:
            connection.close()

    def written(
        self, select: str, options: RecordOptions = PLAIN, product: str = "PostgreSQL", name: str = "types"
    ) -> list[bytes]:
        from playhead.pipeline.records.encode.record import make_record

        record = make_record(self.columns(select), options, name, product)
        entries = ", ".join(record.reads(lambda name: '"' + name.replace('"', '""') + '"'))
        query = f"SELECT {entries} FROM ({select}) AS a"
        conninfo = find_conninfo(Connection(self.url))
        if conninfo is not None:
            batches = PostgresChunks(conninfo, "", (), (query,)).chunk(0)
            return [value for batch in batches for value in _encoded(record, batch)]
        reader = self.session.read.format("jdbc").option("url", self.url)
        return _written(record, reader.option("dbtable", f"({query}) AS b").load())


def _written(record: "RowRecord", frame: "DataFrame") -> list[bytes]:
    return [value for batch in frame.toArrow().to_batches() for value in _encoded(record, batch)]


def _encoded(record: "RowRecord", batch: pa.RecordBatch) -> list[bytes]:
    return [value or b"" for value in RecordEncoder(record.rows, record.rows.options, "t")(batch).values.to_pylist()]


def _column(metadata: Any, at: int) -> SqlColumn:
    return SqlColumn(
        metadata.getColumnLabel(at),
        metadata.getColumnType(at),
        metadata.getColumnTypeName(at),
        metadata.getPrecision(at),
        metadata.getScale(at),
        metadata.isSigned(at),
        metadata.isNullable(at) != 0,
    )


@pytest.fixture(scope="module")
def database(lab: Lab, spark: "SparkSession") -> Database:
    """In the shared PostgreSQL, with tables in a database of their own."""
    name = f"records_{uuid.uuid4().hex[:8]}"
    lab.psql(f"CREATE DATABASE {name}")
    for statement in CREATE:
        lab.psql(statement, name)
    return Database(spark, lab.jdbc_url.replace("/lab?", f"/{name}?"))


TYPES = "SELECT * FROM types WHERE id {} ORDER BY id"


def test_rows_without_schemas_are_what_the_connector_wrote(database):
    assert database.written(TYPES.format("< 3")) == without("bt8", NONE)


def test_rows_under_best_fit_are_what_the_connector_wrote(database):
    options = replace(PLAIN, numeric_mapping="best_fit")
    columns = ", ".join(column.name for column in database.columns("SELECT * FROM types") if column.name != "n")
    assert database.written(f"SELECT {columns} FROM types WHERE id < 3 ORDER BY id", options) == without(
        "bt8", without("n", BEST_FIT)
    )


def test_extremes_are_what_the_connector_wrote(database):
    assert database.written(TYPES.format("= 3")) == EXTREMES


def test_rows_with_schemas_are_what_the_connector_wrote(database):
    payload = without("bt8", NONE)[0]
    assert database.written(TYPES.format("= 1"), RecordOptions()) == [SCHEMA + payload + b"}"]


def test_the_ladder_of_numerics_is_what_the_connector_wrote(database):
    options = replace(PLAIN, numeric_mapping="best_fit")
    assert database.written(LADDER_SQL, options) == [LADDER]


def test_numeric_format_is_what_the_connector_wrote(database):
    options = RecordOptions(value=Converter(schemas_enable=False, decimal_format="NUMERIC"))
    (value,) = database.written("SELECT n102, n200, n, nn FROM types WHERE id = 1", options)
    decimals = b"12.12" + b"0" * 125
    assert value == b'{"n102":12.30,"n200":12345678901234567890,"n":%s,"nn":1.00}' % decimals


def test_eager_double_is_what_the_connector_wrote(database):
    options = replace(PLAIN, numeric_mapping="best_fit_eager_double")
    assert database.written("SELECT n3812 FROM types WHERE id = 1", options) == [b'{"n3812":3.141592653589}']


@pytest.mark.parametrize(("granularity", "text"), GRANULARITIES)
def test_granularities_are_what_the_connector_wrote(database, granularity, text):
    options = replace(PLAIN, timestamp_granularity=granularity)
    assert database.written("SELECT ts FROM types WHERE id = 1", options) == [b'{"ts":%s}' % text]


def test_a_zone_moves_wall_times_and_nothing_else(database):
    options = replace(PLAIN, db_timezone="Europe/Berlin")
    assert database.written("SELECT ts, t, tstz, ttz, d FROM types WHERE id = 1", options) == [BERLIN]


@pytest.mark.parametrize(
    ("select", "what"),
    [
        ("SELECT 'NaN'::numeric AS n", "column 'n' holds a numeric that is no number"),
        ("SELECT 'NaN'::numeric(10,2) AS n", "column 'n' holds a numeric that is no number"),
        ("SELECT 1e-130::numeric AS n", "column 'n' holds a numeric with more than 127 decimals"),
        ("SELECT 'infinity'::date AS d", "column 'd' holds a date that is infinite"),
        ("SELECT '-infinity'::timestamp AS ts", "column 'ts' holds a timestamp that is infinite"),
        ("SELECT 'infinity'::timestamptz AS ts", "column 'ts' holds a timestamp that is infinite"),
        ("SELECT '01:00+02'::timetz AS t", "column 't' holds a time that is on another day"),
    ],
)
def test_values_that_connect_fails_at_or_spoils_name_their_column(database, select, what):
    with pytest.raises(Rejected, match=f"{what}"):
        database.written(select)


@pytest.mark.parametrize(
    ("granularity", "value", "what"),
    [
        ("micros_long", "1969-12-31 23:59:58.5", "one second too late"),
        ("nanos_long", "2300-01-01", "do not fit 64 bits"),
        ("nanos_iso_datetime_string", "1500-01-01", "before 1582-10-15"),
    ],
)
def test_timestamps_that_a_granularity_spoils_name_their_column(database, granularity, value, what):
    options = replace(PLAIN, timestamp_granularity=granularity)
    with pytest.raises(Rejected, match=f"column 'ts' .*{what}"):
        database.written(f"SELECT '{value}'::timestamp AS ts", options)


def test_years_of_9999_and_1_are_dates_like_others(database):
    select = "SELECT '9999-12-31'::date AS a, '9999-12-31 23:59:59.999'::timestamp AS b, '0001-01-01'::date AS c"
    assert database.written(select) == [b'{"a":2932896,"b":253402300799999,"c":-719164}']


def test_times_are_printed_as_java_sql_prints_them(database):
    select = "SELECT ts, d, t FROM types WHERE id = 1"
    printed = b"Struct{ts=2024-01-02 03:04:05.123456,d=2024-01-02,t=03:04:05}"
    assert database.written(select, RecordOptions(value=Converter(STRING))) == [printed]


def test_days_that_java_s_calendar_does_not_have_are_printed_as_java_reads_them(database):
    """As java.util.GregorianCalendar: they are taken as Julian and printed as Gregorian."""
    select = "SELECT '1582-10-04'::date AS a, '1582-10-10'::date AS b, '1582-10-10 01:02:03'::timestamp AS c"
    printed = b"Struct{a=1582-10-04,b=1582-10-20,c=1582-10-20 01:02:03.0}"
    assert database.written(select, RecordOptions(value=Converter(STRING))) == [printed]
    assert database.written("SELECT '1582-10-10'::date AS b") == [b'{"b":-141422}']


def test_a_time_of_another_day_in_utc_has_a_text_and_no_number(database):
    """Connect's Time has no day before 1970-01-01; java.sql.Time prints its hours whatever its day."""
    select = "SELECT '03:04:05'::time AS t, '01:00+02'::timetz AS z"
    options = RecordOptions(value=Converter(STRING), db_timezone="Asia/Tokyo")
    assert database.written(select, options) == [b"Struct{t=18:04:05,z=23:00:00}"]
    with pytest.raises(Rejected, match="column 't' holds a time that is on another day"):
        database.written(select, replace(PLAIN, db_timezone="Asia/Tokyo"))


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
@pytest.mark.parametrize("converter", [JSON, STRING])
@pytest.mark.parametrize("year", [290000, 294276])
def test_a_timestamp_that_spark_cannot_hold_names_its_column(database, kind, converter, year):
    options = RecordOptions(value=Converter(converter, schemas_enable=False))
    with pytest.raises(Rejected, match="column 'ts' holds a timestamp that is infinite or cannot be read"):
        database.written(f"SELECT '{year}-12-31 23:59:59.999999'::{kind} AS ts", options)


@pytest.mark.parametrize("day", ["0044-03-15 BC", "10000-01-01", "5874897-12-31"])
def test_a_year_without_a_clear_text_names_its_column(database, day):
    with pytest.raises(Rejected, match="column 'd' holds a year before 1"):
        database.written(f"SELECT '{day}'::date AS d", RecordOptions(value=Converter(STRING)))


@pytest.mark.parametrize("moment", ["0044-03-15 12:00:00 BC", "0001-12-31 12:00:00 BC", "0001-01-01 03:00:00"])
def test_a_timestamp_of_such_a_year_names_its_column_too(database, moment):
    """Java prints the year 1 BC as 0001; the last one is of that year in UTC only."""
    options = RecordOptions(value=Converter(STRING), db_timezone="Asia/Tokyo")
    with pytest.raises(Rejected, match="column 'd' holds a year before 1"):
        database.written(f"SELECT '{moment}'::timestamp AS d", options)


def test_odd_names_are_written_as_jackson_does(database):
    select = 'SELECT 1 AS "a.b`c""d", \'x\' AS "\U0001f600"'
    assert database.written(select) == [b'{"a.b`c\\"d":1,"\\uD83D\\uDE00":"x"}']


def test_controls_are_escaped_as_the_connector_did(database):
    select = r"SELECT E'\t\n\r\b\f\x01\x1f\x7f\u0080\u2028' AS s"
    assert database.written(select) == [b'{"s":"\\t\\n\\r\\b\\f\\u0001\\u001F\x7f\xc2\x80\xe2\x80\xa8"}']


def test_numbers_that_are_none_are_strings(database):
    select = "SELECT 'NaN'::float8 AS a, '-Infinity'::float8 AS b, 'Infinity'::real AS c"
    assert database.written(select) == [b'{"a":"NaN","b":"-Infinity","c":"Infinity"}']


# Java as the oracle

COLUMNS = [
    SqlColumn("s", 12, "text", 0, 0, signed=False, nullable=True),
    SqlColumn("d", 8, "float8", 17, 17, signed=True, nullable=True),
    SqlColumn("f", 7, "float4", 8, 8, signed=True, nullable=True),
    SqlColumn("a", 2, "numeric", 12, 2, signed=True, nullable=True),
    SqlColumn("b", 2, "numeric", 38, 10, signed=True, nullable=True),
    SqlColumn("c", 2, "numeric", 60, 20, signed=True, nullable=True),
    SqlColumn("u", 2, "numeric", 0, 0, signed=True, nullable=True),
]
FRAME = "s string, d double, f float, a string, b string, c string, u string"


def random_rows(count: int) -> list[Row]:
    dice = random.Random(20240102)
    return [
        (
            _random_text(dice),
            _random_double(dice),
            struct.unpack(">f", struct.pack(">f", dice.choice([dice.uniform(-1, 1), dice.uniform(-3e38, 3e38), 0.1])))[
                0
            ],
            _random_decimal(dice, 12, 2),
            _random_decimal(dice, 38, 10),
            _random_decimal(dice, 60, 20),
            _random_decimal(dice, dice.randint(1, 80), dice.randint(0, 100)),
        )
        for _ in range(count)
    ]


def _random_text(dice: random.Random) -> str:
    ranges = [(0x01, 0x1F), (0x20, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    chosen = dice.sample(ranges, dice.randint(1, len(ranges)))
    return "".join(chr(dice.randint(*dice.choice(chosen))) for _ in range(dice.randint(0, 30)))


def _random_double(dice: random.Random) -> float:
    number: float = struct.unpack(">d", dice.randbytes(8))[0]
    return dice.choice(
        [0.0 if math.isnan(number) else number, dice.uniform(-1000, 1000), round(dice.uniform(0, 100), 2), -0.0]
    )


def _random_decimal(dice: random.Random, precision: int, scale: int) -> str:
    """As PostgreSQL prints it: exactly `scale` decimals, a digit before the point."""
    whole = dice.choice([0, 1, 127, 128, 255, 256, dice.getrandbits(dice.randint(1, 3 * precision))]) % 10**precision
    digits = str(whole).rjust(scale + 1, "0")
    text = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else digits
    return f"-{text}" if whole and dice.random() < 0.5 else text


@pytest.mark.parametrize("decimal_format", ["BASE64", "NUMERIC"])
def test_random_values_are_what_the_json_converter_makes_of_them(spark, tmp_path, decimal_format):
    rows = random_rows(1000)
    options = RecordOptions(value=Converter(schemas_enable=False, decimal_format=decimal_format))
    assert _values(spark, rows, options) == connect_values(rows, decimal_format)


def test_random_values_are_what_a_struct_prints(spark, tmp_path):
    rows = random_rows(300)
    assert _values(spark, rows, RecordOptions(value=Converter(STRING))) == connect_texts(rows)


def _values(session: "SparkSession", rows: list[Row], options: RecordOptions) -> list[bytes]:
    from playhead.pipeline.records.encode.record import make_record

    frame = session.createDataFrame(rows, FRAME)
    record = make_record(COLUMNS, options, "t", "PostgreSQL")
    return _written(record, frame)


@pytest.mark.parametrize("zone", ["UTC", *ZONES])
def test_wall_times_are_counted_as_java_s_calendar_does(spark, tmp_path, zone):
    from playhead.pipeline.records.encode.record import make_record

    times = list(walls())
    frame = spark.createDataFrame([(wall,) for wall in times], "ts string").selectExpr("cast(ts as timestamp) as ts")
    column = SqlColumn("ts", 93, "timestamp", 26, 6, signed=False, nullable=True)
    record = make_record([column], replace(PLAIN, db_timezone=zone), "t", "PostgreSQL")
    ours = _written(record, frame)
    java = [f'{{"ts":{millis}}}'.encode() for millis in calendar_millis([(zone, wall) for wall in times])]
    assert dict(zip(times, ours, strict=True)) == dict(zip(times, java, strict=True))


@pytest.mark.parametrize("zone", ["UTC", *ZONES, "GMT-08:00", "Asia/Tokyo"])
def test_wall_times_are_printed_as_java_does(spark, zone):
    from playhead.pipeline.records.encode.record import make_record

    times = [wall for wall in walls() if not wall.startswith("1500-03-01")]  # in most zones no text here
    frame = spark.createDataFrame([(wall,) for wall in times], "ts string").selectExpr("cast(ts as timestamp) as ts")
    column = SqlColumn("ts", 93, "timestamp", 26, 6, signed=False, nullable=True)
    options = RecordOptions(value=Converter(STRING), db_timezone=zone)
    ours = _written(make_record([column], options, "t", "PostgreSQL"), frame)
    java = [f"Struct{{ts={text}.0}}".encode() for text in calendar_texts([(zone, wall) for wall in times])]
    assert dict(zip(times, ours, strict=True)) == dict(zip(times, java, strict=True))


def test_the_hash_of_a_value_is_spark_s_own(spark):
    from playhead.pipeline.digest import hashes_of

    dice = random.Random(42)
    values = [b"", None, *(dice.randbytes(size) for size in range(1, 200))]
    frame = spark.createDataFrame([(value,) for value in values], "v binary").selectExpr("xxhash64(v) AS h")
    assert hashes_of(values).tolist() == [row.h for row in frame.collect()]


# SQLite

SQLITE = """CREATE TABLE t(id INTEGER PRIMARY KEY, b BIGINT, tx TEXT, vc VARCHAR(9), r REAL, d DOUBLE, bl BLOB, n NUMERIC(10,2),
ts TIMESTAMP, dt DATETIME, da DATE, bo BOOLEAN, si SMALLINT)"""


@pytest.fixture
def sqlite(spark: "SparkSession", tmp_path: Any) -> Iterator[tuple[Database, sqlite3.Connection]]:
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    connection.execute(SQLITE)
    yield Database(spark, f"jdbc:sqlite:{tmp_path / 't.db'}"), connection
    connection.close()


def test_usual_types_of_sqlite_are_written_by_their_declared_types(sqlite):
    database, connection = sqlite
    connection.execute(
        "INSERT INTO t VALUES(1, 5000000000, 'é😀', 'v', 1.5, 2.5, x'DEADBEEF', 12.3, '2024-01-02 03:04:05.123', "
        "'2024-01-02 03:04:05', '2024-01-02', 1, 3)"
    )
    connection.execute("INSERT INTO t(id, ts, dt, da) VALUES(2, 1704164645123, 1704164645123, 1704164645123)")
    assert database.written("SELECT * FROM t ORDER BY id", product="SQLite") == [
        b'{"id":1,"b":5000000000,"tx":"\xc3\xa9\\uD83D\\uDE00","vc":"v","r":1.5,"d":2.5,"bl":"3q2+7w==","n":"BM4=",'
        b'"ts":1704164645123,"dt":1704164645000,"da":19724,"bo":true,"si":3}',
        b'{"id":2,"b":null,"tx":null,"vc":null,"r":null,"d":null,"bl":null,"n":null,'
        b'"ts":1704164645123,"dt":1704164645123,"da":19724,"bo":null,"si":null}',
    ]


@pytest.mark.parametrize(
    ("insert", "what"),
    [
        ("INSERT INTO t(id) VALUES(5000000000)", "column 'id' holds an integer of more than 32 bits"),
        ("INSERT INTO t(n) VALUES(1.234)", "column 'n' holds a number with more than 2 decimals"),
        ("INSERT INTO t(da) VALUES('tomorrow')", "column 'da' holds a date that is infinite or cannot be read"),
        ("INSERT INTO t(dt) VALUES('later')", "column 'dt' holds a timestamp that is infinite or cannot be read"),
    ],
)
def test_values_that_do_not_fit_their_declared_type_name_their_column(sqlite, insert, what):
    database, connection = sqlite
    connection.execute(insert)
    with pytest.raises(Rejected, match=f"{what}"):
        database.written("SELECT * FROM t", product="SQLite")
