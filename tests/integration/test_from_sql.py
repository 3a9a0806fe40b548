"""Rows of PostgreSQL become the bytes that the connector wrote, without Spark. Java counts and prints times."""

import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import available_timezones

import psycopg
import pyarrow as pa
import pytest

from integration.record_oracle import calendar_millis, calendar_texts
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
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.fields import POSTGRES, SqlColumn, SqlField, SqlKind, find_field
from playhead.pipeline.records.encode.options import STRING, Converter, RecordOptions
from playhead.pipeline.records.from_sql import SqlRows
from playhead.pipeline.records.javacalendar import counted_micros

pytest.importorskip("pyspark")

PLAIN = RecordOptions(value=Converter(schemas_enable=False))
PRINTED = RecordOptions(value=Converter(STRING))
# What the JDBC driver says about the types of PostgreSQL.
JDBC_TYPES = {
    "int2": 5,
    "int4": 4,
    "int8": -5,
    "numeric": 2,
    "timestamp": 93,
    "timestamptz": 93,
    "date": 91,
    "time": 92,
    "timetz": 92,
    "bool": -7,
    "bytea": -2,
    "text": 12,
    "varchar": 12,
    "bpchar": 1,
    "json": 1111,
    "jsonb": 1111,
    "uuid": 1111,
    "float8": 8,
    "float4": 7,
    "bit": -7,
    "money": 8,
    "interval": 1111,
    "_int4": 2003,
    "inet": 1111,
}
ARROW = {
    SqlKind.BOOLEAN: pa.bool_(),
    SqlKind.INTEGER: pa.int64(),
    SqlKind.FLOAT: pa.float32(),
    SqlKind.DOUBLE: pa.float64(),
    SqlKind.DATE: pa.int32(),
    SqlKind.TIMESTAMP: pa.timestamp("us"),
    SqlKind.BYTES: pa.binary(),
}


class Database:
    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SET timezone TO 'UTC'")

    def rows(self, select: str, options: RecordOptions = PLAIN) -> list[bytes]:
        from playhead.pipeline.records.encode.reads import read_text

        fields = [field for one in self._columns(select) if (field := find_field(one, options, POSTGRES))]
        entries = [self._entry(field, read_text(field, lambda name: f'"{name}"', POSTGRES)) for field in fields]
        query = f"SELECT {', '.join(entries)} FROM ({select}) AS a"
        found = self.connection.execute(query.encode()).fetchall()
        columns = {field.name: _column([row[at] for row in found], field) for at, field in enumerate(fields)}
        is_text = options.value.name == STRING
        rows = SqlRows(tuple(fields), options, "types", printed=is_text)
        octets, bad = encode(rows.read(columns), options.value)
        assert not bad
        made: list[bytes] = octets.to_pylist()
        return made

    def _entry(self, field: SqlField, entry: str) -> str:
        """Timestamps as microseconds: Python has no years after 9999 or before 1."""
        if field.kind is SqlKind.TIMESTAMP:
            expression = entry.removesuffix(f' AS "{field.name}"')
            return f'(extract(epoch FROM {expression}) * 1000000)::bigint AS "{field.name}"'
        return entry

    def _columns(self, select: str) -> Iterator[SqlColumn]:
        """The first table's NOT NULL is known to the test; all other columns may be null."""
        described = self.connection.execute(f"SELECT * FROM ({select}) AS a LIMIT 0".encode()).description or []
        for column in described:
            kind = self.connection.execute("SELECT typname FROM pg_type WHERE oid = %s", [column.type_code]).fetchone()
            assert kind is not None
            precision, scale = (column.precision or 0, column.scale or 0) if kind[0] == "numeric" else (1, 0)
            nullable = column.name not in ("id", "nn", "tsn")
            yield SqlColumn(column.name, JDBC_TYPES[kind[0]], kind[0], precision, scale, signed=True, nullable=nullable)


def _column(values: Sequence[Any], field: SqlField) -> pa.Array:
    if field.is_numeric or field.kind is SqlKind.TIME:
        return pa.array(values, pa.string())
    if field.column.type_name == "bit":
        values = [None if value is None else value == "1" for value in values]
    return pa.array(values, ARROW.get(field.kind, pa.string()))


@pytest.fixture(scope="module")
def database(lab: Lab) -> Iterator[Database]:
    name = f"arrow_{uuid.uuid4().hex[:8]}"
    lab.psql(f"CREATE DATABASE {name}")
    for statement in CREATE:
        lab.psql(statement, name)
    made = Database(f"{lab.postgres_url.rpartition('/')[0]}/{name}")
    yield made
    made.connection.close()


TYPES = "SELECT * FROM types WHERE id {} ORDER BY id"


def test_rows_are_what_the_connector_wrote(database):
    assert database.rows(TYPES.format("< 3")) == without("bt8", NONE)
    assert database.rows(TYPES.format("= 3")) == EXTREMES
    assert database.rows(TYPES.format("= 1"), RecordOptions()) == [SCHEMA + without("bt8", NONE)[0] + b"}"]


def test_rows_under_best_fit_are_what_the_connector_wrote(database):
    options = replace(PLAIN, numeric_mapping="best_fit")
    names = [one.name for one in database._columns("SELECT * FROM types") if one.name != "n"]
    select = f"SELECT {', '.join(names)} FROM types WHERE id < 3 ORDER BY id"
    assert database.rows(select, options) == without("bt8", without("n", BEST_FIT))
    without_negative = LADDER_SQL.partition(", 12300")[0]  # psycopg reports a scale of -2 in another way than JDBC
    assert database.rows(without_negative, options) == [LADDER.replace(b',"nneg":12300.0', b"")]


def test_decimals_as_numbers_and_doubles_are_what_the_connector_wrote(database):
    numeric = RecordOptions(value=Converter(schemas_enable=False, decimal_format="NUMERIC"))
    (value,) = database.rows("SELECT n102, n200, n, nn FROM types WHERE id = 1", numeric)
    assert value == b'{"n102":12.30,"n200":12345678901234567890,"n":12.12%s,"nn":1.00}' % (b"0" * 125)
    eager = replace(PLAIN, numeric_mapping="best_fit_eager_double")
    assert database.rows("SELECT n3812 FROM types WHERE id = 1", eager) == [b'{"n3812":3.141592653589}']


@pytest.mark.parametrize(("granularity", "text"), GRANULARITIES)
def test_granularities_are_what_the_connector_wrote(database, granularity, text):
    options = replace(PLAIN, timestamp_granularity=granularity)
    assert database.rows("SELECT ts FROM types WHERE id = 1", options) == [b'{"ts":%s}' % text]


def test_a_zone_moves_wall_times_and_nothing_else(database):
    options = replace(PLAIN, db_timezone="Europe/Berlin")
    assert database.rows("SELECT ts, t, tstz, ttz, d FROM types WHERE id = 1", options) == [BERLIN]


@pytest.mark.parametrize(
    ("select", "what"),
    [
        ("SELECT 'NaN'::numeric AS n", "column 'n' holds a numeric that is no number"),
        ("SELECT 'NaN'::numeric(10,2) AS n", "column 'n' holds a numeric that is no number"),
        ("SELECT '-Infinity'::numeric AS n", "column 'n' holds a numeric that is no number"),
        ("SELECT 1e-130::numeric AS n", "column 'n' holds a numeric with more than 127 decimals"),
        ("SELECT 'infinity'::date AS d", "column 'd' holds a date that is infinite"),
        ("SELECT '-infinity'::timestamp AS ts", "column 'ts' holds a timestamp that is infinite"),
        ("SELECT 'infinity'::timestamptz AS ts", "column 'ts' holds a timestamp that is infinite"),
        ("SELECT '294276-12-31'::timestamp AS ts", "column 'ts' holds a timestamp that is infinite or cannot be read"),
        ("SELECT '01:00+02'::timetz AS t", "column 't' holds a time that is on another day"),
    ],
)
def test_values_that_connect_fails_at_or_spoils_name_their_column(database, select, what):
    with pytest.raises(Rejected, match=what):
        database.rows(select)


@pytest.mark.parametrize(
    ("granularity", "value", "what"),
    [
        ("micros_long", "1969-12-31 23:59:58.5", "one second too late"),
        ("nanos_long", "2300-01-01", "do not fit 64 bits"),
        ("nanos_iso_datetime_string", "1500-01-01", "before 1582-10-15"),
    ],
)
def test_timestamps_that_a_granularity_spoils_name_their_column(database, granularity, value, what):
    with pytest.raises(Rejected, match=f"column 'ts' .*{what}"):
        database.rows(f"SELECT '{value}'::timestamp AS ts", replace(PLAIN, timestamp_granularity=granularity))


def test_years_of_9999_and_1_are_dates_like_others(database):
    select = "SELECT '9999-12-31'::date AS a, '9999-12-31 23:59:59.999'::timestamp AS b, '0001-01-01'::date AS c"
    assert database.rows(select) == [b'{"a":2932896,"b":253402300799999,"c":-719164}']
    far = replace(PLAIN, timestamp_granularity="micros_iso_datetime_string")
    assert database.rows("SELECT '12024-02-29 01:02:03'::timestamp AS ts", far) == [
        b'{"ts":"+12024-02-29T01:02:03.000000"}'
    ]


def test_times_are_printed_as_java_sql_prints_them(database):
    assert database.rows("SELECT ts, d, t FROM types WHERE id = 1", PRINTED) == [
        b"Struct{ts=2024-01-02 03:04:05.123456,d=2024-01-02,t=03:04:05}"
    ]


def test_days_that_java_s_calendar_does_not_have_are_printed_as_java_reads_them(database):
    select = "SELECT '1582-10-04'::date AS a, '1582-10-10'::date AS b, '1582-10-10 01:02:03'::timestamp AS c"
    assert database.rows(select, PRINTED) == [b"Struct{a=1582-10-04,b=1582-10-20,c=1582-10-20 01:02:03.0}"]
    assert database.rows("SELECT '1582-10-10'::date AS b") == [b'{"b":-141422}']


def test_a_time_of_another_day_in_utc_has_a_text_and_no_number(database):
    select = "SELECT '03:04:05'::time AS t, '01:00+02'::timetz AS z"
    assert database.rows(select, replace(PRINTED, db_timezone="Asia/Tokyo")) == [b"Struct{t=18:04:05,z=23:00:00}"]
    with pytest.raises(Rejected, match="column 't' holds a time that is on another day"):
        database.rows(select, replace(PLAIN, db_timezone="Asia/Tokyo"))


@pytest.mark.parametrize("day", ["0044-03-15 BC", "10000-01-01", "5874897-12-31"])
def test_a_year_without_a_clear_text_names_its_column(database, day):
    with pytest.raises(Rejected, match="column 'd' holds a year before 1"):
        database.rows(f"SELECT '{day}'::date AS d", PRINTED)


@pytest.mark.parametrize("moment", ["0044-03-15 12:00:00 BC", "0001-12-31 12:00:00 BC", "0001-01-01 03:00:00"])
def test_a_timestamp_of_such_a_year_names_its_column_too(database, moment):
    with pytest.raises(Rejected, match="column 'd' holds a year before 1"):
        database.rows(f"SELECT '{moment}'::timestamp AS d", replace(PRINTED, db_timezone="Asia/Tokyo"))


# Java's calendar

ALL_ZONES = ["UTC", *ZONES, "GMT-08:00", "Asia/Tokyo", "Africa/Casablanca", "Europe/Dublin", "Pacific/Apia"]
COLUMN = SqlColumn("ts", 93, "timestamp", 26, 6, signed=False, nullable=True)


def labels_of(times: Sequence[str]) -> pa.Array:
    moments = [datetime.fromisoformat(wall).replace(tzinfo=UTC) for wall in times]
    return pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def written(times: Sequence[str], options: RecordOptions) -> list[str]:
    field = find_field(COLUMN, options, POSTGRES)
    assert field is not None
    rows = SqlRows((field,), options, "t", printed=options.value.name == STRING)
    octets, bad = encode(rows.read({"ts": labels_of(times)}), options.value)
    assert not bad
    return [one.decode() for one in octets.to_pylist()]


@pytest.mark.parametrize("zone", ALL_ZONES)
def test_wall_times_are_counted_as_java_s_calendar_does(zone):
    times = list(walls())
    ours = written(times, replace(PLAIN, db_timezone=zone))
    java = [f'{{"ts":{millis}}}' for millis in calendar_millis([(zone, wall) for wall in times])]
    assert dict(zip(times, ours, strict=True)) == dict(zip(times, java, strict=True))


@pytest.mark.parametrize("zone", ALL_ZONES)
def test_wall_times_are_printed_as_java_does(zone):
    times = [wall for wall in walls() if not wall.startswith("1500-03-01")]  # in most zones no text here
    ours = written(times, replace(PRINTED, db_timezone=zone))
    java = [f"Struct{{ts={text}.0}}" for text in calendar_texts([(zone, wall) for wall in times])]
    assert dict(zip(times, ours, strict=True)) == dict(zip(times, java, strict=True))


@pytest.mark.soak
def test_all_zones_are_counted_as_java_s_calendar_does():
    """Since 1970, for which all editions of the zones agree, and before 1900, where Java has only one offset of each."""
    dice = random.Random(5)
    unlike = {"Africa/Windhoek", "America/Coyhaique"}  # one hour for Java after 2037; not in its files before 2025
    zones = sorted(zone for zone in available_timezones() - unlike if "/" in zone)
    asked = []
    for zone in zones:
        for _ in range(60):
            year = dice.choice([dice.randint(1, 1899), dice.randint(1971, 2037), dice.randint(2038, 9000)])
            asked.append(
                (zone, f"{year:04}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02} {dice.randint(0, 23):02}:00:07")
            )
    java = calendar_millis(asked)
    for zone in zones:
        own = {wall: millis for (one, wall), millis in zip(asked, java, strict=True) if one == zone}
        labels = labels_of(list(own)).cast(pa.int64()).to_numpy()
        assert dict(zip(own, (counted_micros(labels, zone) // 1000).tolist(), strict=True)) == own, zone
