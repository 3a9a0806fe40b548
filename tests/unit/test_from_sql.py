"""Columns of a database become the struct of Connect's JDBC source; integration tests compare the connector's own bytes."""

from dataclasses import replace
from datetime import UTC, datetime, time
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Rejected
from playhead.pipeline.records.batch import Typed
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.fields import POSTGRES, SQLITE, SqlColumn, find_field
from playhead.pipeline.records.encode.options import Converter, RecordOptions
from playhead.pipeline.records.encode.reads import INFINITE_DAY, INFINITE_MICROS, INFINITE_TIME
from playhead.pipeline.records.from_sql import SqlRows
from playhead.pipeline.records.javacalendar import DAY_MICROS, counted_micros, instants_of, label_millis, shown_micros
from playhead.pipeline.records.schema import DATE, TIMESTAMP

OPTIONS = RecordOptions()


def column(jdbc_type: int, type_name: str, precision: int = 0, scale: int = 0) -> SqlColumn:
    return SqlColumn("c", jdbc_type, type_name, precision, scale, signed=True, nullable=True)


def rows(one: SqlColumn, values: pa.Array, options: RecordOptions = OPTIONS, product: str = POSTGRES) -> Typed:
    field = find_field(one, options, product)
    assert field is not None
    return SqlRows((field,), options, "t", product).read({"c": values})


def written(one: SqlColumn, values: pa.Array, options: RecordOptions = OPTIONS, product: str = POSTGRES) -> list[str]:
    octets, bad = encode(rows(one, values, options, product), Converter(schemas_enable=False))
    assert not bad
    return [text.decode().removeprefix('{"c":').removesuffix("}") for text in octets.to_pylist()]


NUMERIC = column(2, "numeric", 10, 2)
STAMP = column(93, "timestamp")
SQLITE_NUMERIC = column(2, "NUMERIC", 10, 2)


def test_the_schema_is_that_of_the_connector():
    schema = rows(NUMERIC, pa.array(["1.00"])).schema
    assert (schema.name, schema.optional) == ("t", False)
    inner = dict(schema.fields)["c"]
    assert inner.optional
    assert inner.parameters == (("scale", "2"), ("connect.decimal.precision", "10"))
    assert dict(rows(STAMP, pa.array([None], pa.timestamp("us"))).schema.fields)["c"].name == TIMESTAMP
    assert dict(rows(column(91, "date"), pa.array([1])).schema.fields)["c"].name == DATE


def test_nulls_stay_where_they_are():
    assert written(NUMERIC, pa.array([None, "1.25", None])) == ["null", '"fQ=="', "null"]
    assert written(STAMP, pa.array([None, 5_000, None], pa.timestamp("us"))) == ["null", "5", "null"]
    assert written(column(92, "time"), pa.array([None, "00:00:01"])) == ["null", "1000"]
    assert written(column(91, "date"), pa.array([None, 3])) == ["null", "3"]
    assert written(column(91, "date"), pa.array([None, None], pa.int32())) == ["null", "null"]


def test_times_of_day_are_texts_with_or_without_a_fraction_and_an_offset():
    texts = ["00:00:00", "03:04:05.1", "23:59:59.999999", "24:00:00", "01:00:00.25 3600"]
    assert written(column(92, "time"), pa.array(texts)) == ["0", "11045100", "86399999", "86400000", "250"]


def test_a_timestamp_below_a_millisecond_before_1970_is_rounded_down():
    assert written(STAMP, pa.array([-1, -1000, -1001], pa.timestamp("us"))) == ["-1", "-1", "-2"]


def test_columns_in_chunks_and_slices_are_columns():
    chunks = pa.chunked_array([["1.00", "2.00"], ["3.00"]])
    assert written(NUMERIC, chunks) == ['"ZA=="', '"AMg="', '"ASw="']
    assert written(NUMERIC, pa.array(["1.00", "2.00", "3.00"]).slice(1)) == ['"AMg="', '"ASw="']
    assert written(STAMP, pa.array([1, None, 3_000], pa.timestamp("us")).slice(1)) == ["null", "3"]


@pytest.mark.parametrize(
    ("one", "values", "what"),
    [
        (column(91, "date"), pa.array([1, INFINITE_DAY]), "holds a date that is infinite or cannot be read"),
        (STAMP, pa.array([1, INFINITE_MICROS], pa.timestamp("us")), "none after the year 289999 can"),
        (column(92, "time"), pa.array(["1 o'clock"]), "holds a time that cannot be read"),
        (column(2, "numeric"), pa.array(["1", "0." + "1" * 128]), "holds a numeric with more than 127 decimals"),
        (column(4, "int4"), pa.array([1 << 31]), "holds a value that is no int32"),
    ],
)
def test_a_value_that_must_not_be_written_names_its_column(one, values, what):
    with pytest.raises(Rejected, match=f"column 'c' .*{what}"):
        rows(one, values)


def test_zeros_behind_the_127_decimals_are_no_fault():
    assert written(column(2, "numeric"), pa.array(["0." + "0" * 140])) == ['"AA=="']


# Other databases


def test_numbers_of_sqlite_are_written_with_the_scale_of_their_column():
    expected = ['"BM4="', "null"]
    for values in (pa.array([Decimal("12.300000"), None]), pa.array([12.3, None]), pa.array(["12.3", None])):
        assert written(SQLITE_NUMERIC, values, product=SQLITE) == expected
    assert written(SQLITE_NUMERIC, pa.array([12]), product=SQLITE) == ['"BLA="']


def test_a_number_of_sqlite_may_have_more_digits_than_its_column_says():
    assert written(SQLITE_NUMERIC, pa.array(["123456789012345.00"]), product=SQLITE) == ['"K9xUXWtLRA=="']


@pytest.mark.parametrize("values", [pa.array([1.234]), pa.array([Decimal("1.234")]), pa.array(["1.234"])])
def test_a_number_of_sqlite_that_is_too_fine_names_its_column(values):
    with pytest.raises(Rejected, match="column 'c' holds a number with more than 2 decimals"):
        rows(SQLITE_NUMERIC, values, product=SQLITE)


@pytest.mark.parametrize("values", [pa.array([4e36]), pa.array([1e300]), pa.array(["4" + "0" * 36])])
def test_a_number_of_sqlite_with_more_digits_than_arrow_holds_names_its_column(values):
    with pytest.raises(Rejected, match="column 'c' holds a number with more than 2 decimals or 38 digits"):
        rows(SQLITE_NUMERIC, values, product=SQLITE)


def test_an_integer_of_sqlite_that_connect_would_cut_names_its_column():
    with pytest.raises(Rejected, match="column 'c' holds an integer of more than 32 bits"):
        rows(column(4, "INTEGER"), pa.array([1 << 31]), product=SQLITE)


def test_times_of_sqlite_are_milliseconds():
    assert written(column(91, "DATETIME"), pa.array([1704164645123]), product=SQLITE) == ["1704164645123"]


def test_dates_and_times_of_other_drivers_are_read_as_they_are():
    moment = pa.array([datetime(2024, 1, 2, 3, 4, 5, 999, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert written(column(91, "DATE"), moment.cast(pa.date32()), product="MySQL") == ["19724"]
    assert written(column(92, "TIME"), pa.array([time(3, 4, 5, 999)]), product="MySQL") == ["11045000"]
    assert written(STAMP, moment, product="MySQL") == ["1704164645000"]


# Zones


@given(st.integers(31_536_000, 253_000_000_000), st.sampled_from(["Europe/Berlin", "America/Lima", "Australia/Sydney"]))
def test_instants_are_shown_as_the_zone_shows_them(second, zone):
    """After 2037, too, where Arrow has no rules."""
    instant = datetime.fromtimestamp(second, UTC)
    offset = instant.astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    micros = np.array([second * 1_000_000])
    expected = micros + offset // offset.resolution
    assert shown_micros(micros, zone).tolist() == expected.tolist()
    assert label_millis(micros // 1000, zone, keeps_zone=False).tolist() == (expected // 1000).tolist()


@given(st.integers(-60_000_000_000, 200_000_000_000), st.sampled_from(["Europe/Berlin", "GMT-08:00", "Asia/Kolkata"]))
def test_a_label_is_one_of_an_instant_that_shows_it_unless_the_zone_leaves_it_out(second, zone):
    labels = np.array([second * 1_000_000])
    shown = shown_micros(instants_of(labels, zone), zone)
    assert shown.tolist() == labels.tolist() or 0 < int(shown[0] - labels[0]) <= 3_600_000_000


def test_a_wall_time_that_a_zone_has_twice_is_standard_time_and_a_missing_one_is_after_the_gap():
    def of(text: str) -> int:
        label = np.array([text], "datetime64[us]").astype(np.int64)
        return int((label - instants_of(label, "Europe/Berlin"))[0]) // 3_600_000_000

    assert [of(f"{year}-10-{day}T02:30") for year, day in (("2024", 27), ("2050", 30))] == [1, 1]
    assert [of(f"{year}-03-{day}T02:30") for year, day in (("2024", 31), ("2050", 27))] == [1, 1]
    assert [of(f"{year}-07-01T02:30") for year in ("2024", "2050", "2450")] == [2, 2, 2]


def test_days_before_1582_are_counted_by_the_julian_calendar():
    labels = np.array(["1582-10-04", "1582-10-15", "1500-03-01", "0001-01-01"], "datetime64[us]").astype(np.int64)
    days = counted_micros(labels, "") // DAY_MICROS
    assert days.tolist() == [-141_428, -141_427, -171_595, -719_164]


def test_finer_granularities_are_numbers_or_texts():
    moment = pa.array([1_704_164_645_123_456], pa.timestamp("us"))
    for granularity, text in (
        ("micros_long", "1704164645123456"),
        ("nanos_string", '"1704164645123456000"'),
        ("nanos_iso_datetime_string", '"2024-01-02T03:04:05.123456000"'),
    ):
        assert written(STAMP, moment, replace(OPTIONS, timestamp_granularity=granularity)) == [text]


def test_the_mark_of_an_infinite_timestamp_is_the_one_of_the_select_list():
    days = (pa.scalar("2000-01-01").cast(pa.date32()).cast(pa.int32()).as_py(), 720 * 146_097)  # 720 * 400 years later
    assert INFINITE_TIME == "290000-01-01 00:00:00"
    assert sum(days) * DAY_MICROS == INFINITE_MICROS
