"""What the JDBC sink makes of every type of Connect, and which columns of an existing table take it. psql and sqlite3 read it."""

import base64
import re
import sqlite3
import subprocess
from decimal import Context, Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.jdbc_sinks import MS, Record, column, decimal, enveloped, logical, opened, start, struct
from integration.ledgers import only_postgresql, only_sqlite, place
from playhead.errors import Refused

__all__ = ["place", "start"]
REFUSED = (subprocess.CalledProcessError, sqlite3.IntegrityError)


def unscaled(number: int) -> str:
    size = max(1, (number.bit_length() + 8) // 8)
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


EVERY = struct(
    column("i8", "int8"),
    column("i16", "int16"),
    column("i32", "int32"),
    column("i64", "int64"),
    column("f32", "float"),
    column("f64", "double"),
    column("b", "boolean"),
    column("s", "string"),
    column("o", "bytes"),
    decimal("n", 2),
    logical("d", "int32", "Date"),
    logical("t", "int32", "Time"),
    logical("ts", "int64", "Timestamp"),
)
NAMES = [str(one["field"]) for one in EVERY["fields"]]  # type: ignore[attr-defined]
SAMPLE = {
    "i8": -128,
    "i16": 32767,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "f32": 0.1,
    "f64": 1e300,
    "b": True,
    "s": 'hé"l\\lo\n\t| %s',
    "o": "3q2+7w==",
    "n": unscaled(-1234567),
    "d": 19724,
    "t": 11_045_123,
    "ts": MS,
}


def value(schema: dict[str, object], payload: object) -> Record:
    return None, enveloped(schema, payload)


@only_postgresql
def test_every_type_has_the_column_that_the_connector_would_make(start, place):
    start().deliver(value(EVERY, SAMPLE), value(EVERY, dict.fromkeys(SAMPLE)))
    types = place.ask(
        "select column_name, data_type, is_nullable from information_schema.columns where table_name = 'orders'"
        " order by ordinal_position"
    )
    assert types == [
        (name, kind, "YES")
        for name, kind in zip(
            NAMES,
            ["smallint", "smallint", "integer", "bigint", "real", "double precision", "boolean", "text", "bytea",
             "numeric", "date", "time without time zone", "timestamp without time zone"],
            strict=True,
        )
    ]  # fmt: skip
    texts = place.ask("select i8, i16, i32, i64, f32, f64, b, o, n, d, t, ts from orders where i8 is not null")
    assert texts == [
        ("-128", "32767", str(-(2**31)), str(2**63 - 1), "0.1", "1e+300", "t", "\\xdeadbeef", "-12345.67",
         "2024-01-02", "03:04:05.123", "2024-01-02 03:04:05.123"),
    ]  # fmt: skip
    [(found,)] = place.ask("select encode(convert_to(s, 'UTF8'), 'hex') from orders where i8 is not null")
    assert bytes.fromhex(found).decode() == SAMPLE["s"]
    assert place.ask("select count(*) from orders where num_nulls(" + ", ".join(NAMES) + ") = 13") == [("1",)]


@only_sqlite
def test_every_type_is_stored_in_sqlite_as_its_driver_does(start, place):
    start().deliver(value(EVERY, SAMPLE), value(EVERY, dict.fromkeys(SAMPLE)))
    kinds = [kind for _, _, kind, *_ in place.ask("pragma table_info(orders)")]
    assert kinds == ["INTEGER"] * 4 + ["REAL"] * 2 + ["INTEGER", "TEXT", "BLOB"] + ["NUMERIC"] * 4
    [row] = place.ask("select i8, i16, i32, i64, f64, b, s, hex(o), n, d, t, ts from orders where i8 is not null")
    assert row[:6] == ("-128", "32767", str(-(2**31)), str(2**63 - 1), "1e+300", "1")
    assert row[6:] == (SAMPLE["s"], "DEADBEEF", "-12345.67", str(19724 * 86_400_000), "11045123", str(MS))
    assert place.ask("select typeof(n), typeof(f32), round(f32, 6) from orders where i8 is not null") == [
        ("real", "real", "0.1")
    ]


def test_defaults_keys_and_required_columns_are_in_the_table(start, place):
    schema = struct(
        column("id", "int32", optional=False),
        column("name", "string", default="it's"),
        column("size", "int16", optional=False, default=7),
        column("need", "boolean", optional=False),
    )
    start(pk_mode="record_value", pk_fields="id").deliver(
        value(schema, {"id": 1, "name": "a", "size": 1, "need": True})
    )
    place.ask(f"insert into orders (id, need) values (2, {'true' if place.kind == 'postgresql' else 1})")
    assert place.ask("select name, size from orders where id = 2") == [("it's", "7")]
    with pytest.raises(REFUSED):
        place.ask("insert into orders (id) values (3)")
    with pytest.raises(REFUSED):
        place.ask(f"insert into orders (id, need) values (2, {'true' if place.kind == 'postgresql' else 1})")


@only_postgresql
def test_columns_of_other_types_take_what_fits_them(start, place):
    place.ask("create type mood as enum ('sad', 'glad')")
    place.ask("create domain positive as bigint check (value > 0)")
    place.ask(
        "create table orders (i8 bigint, i16 numeric(8,3), i32 double precision, i64 positive, s varchar(5), u uuid, j jsonb,"
        " k json, m mood, c char(4), ts timestamptz, n numeric(10,4), f double precision)"
    )
    schema = struct(
        *(column(name, kind) for name, kind in (("i8", "int8"), ("i16", "int16"), ("i32", "int32"), ("i64", "int64"))),
        *(column(name, "string") for name in ("s", "u", "j", "k", "m", "c")),
        logical("ts", "int64", "Timestamp"),
        decimal("n", 2),
        column("f", "float"),
    )
    payload = {
        "i8": 1, "i16": -2, "i32": 3, "i64": 4, "s": "fünf!", "u": "123E4567-e89b-12d3-a456-426614174000",
        "j": '{"b": 1,  "a":[1,2]}', "k": "[1 ]", "m": "glad", "c": "ab", "ts": MS, "n": unscaled(123), "f": 0.5,
    }  # fmt: skip
    start().deliver(value(schema, payload), value(schema, dict.fromkeys(payload)))
    place.ask("alter database " + place.url.rpartition("/")[2] + " set timezone = 'UTC'")
    assert place.ask("select * from orders where i8 is not null") == [
        ("1", "-2.000", "3", "4", "fünf!", "123e4567-e89b-12d3-a456-426614174000", '{"a": [1, 2], "b": 1}', "[1 ]",
         "glad", "ab  ", "2024-01-02 03:04:05.123+00", "1.2300", "0.5"),
    ]  # fmt: skip


@only_postgresql
@pytest.mark.parametrize(
    ("kind", "field", "good", "bad", "reason"),
    [
        ("smallint", column("x", "int32"), 5, 40000, "out of the range of its column"),
        ("double precision", column("x", "int64"), 2**53, 2**53 + 1, "out of the range"),
        ("varchar(3)", column("x", "string"), "äöü", "abcd", "longer than the 3 characters"),
        ("uuid", column("x", "string"), "123e4567e89b12d3a456426614174000", "123", "is not a UUID"),
        ("jsonb", column("x", "string"), "{}", "{", "is not JSON"),
        ("text", column("x", "string"), "a", "a\0b", r"U\+0000"),
        ("numeric(4,2)", decimal("x", 2), unscaled(9999), unscaled(10000), "more digits than its column"),
        ("numeric(4,2)", column("x", "double"), 19.990000000000002, 1.239, r"a double that numeric\(4,2\) cannot hold"),
        ("numeric(4,2)", column("x", "double"), -99.99, 100.0, "cannot hold without rounding"),
        ("numeric(20,2)", column("x", "double"), 1e15, 2.0**53, "cannot hold without rounding"),
        ("numeric(20,2)", column("x", "double"), 9999999999999.25, 999999999999999.9, "cannot hold without rounding"),
        ("numeric(65,30)", column("x", "double"), 123456789.5, 1e40, "cannot hold without rounding"),
        ("numeric(5,-2)", column("x", "double"), 12300.0, 12345.0, "cannot hold without rounding"),
        ("numeric(2,4)", column("x", "double"), 0.0099, 0.5, "cannot hold without rounding"),
        ("numeric", column("x", "double"), 2.0**53, "NaN", "cannot hold without rounding"),
        ("date", logical("x", "int32", "Date"), -2_440_626, -2_440_627, "before PostgreSQL's first day"),
        ("date", logical("x", "int32", "Date"), -171_595, -171_596, "a 29 February that only the Julian calendar has"),
        ("real", column("x", "double"), 1e-30, 1e-60, "out of the range of its column, a real"),
        ("real", column("x", "double"), 1e30, 1e300, "out of the range of its column, a real"),
        ("varchar(3)", column("x", "int32"), -99, 1000, "longer than the 3 characters"),
        ("timestamp", logical("x", "int64", "Timestamp"), 0, 2**62, "first day or after its last"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_a_bad_record(start, place, kind, field, good, bad, reason):
    place.ask(f"create table orders (x {kind})")
    schema = struct(field)
    run = start()
    run.deliver(*(value(schema, {"x": one}) for one in (good, bad, None, good)))
    assert [one.offset for one in run.rejected] == [1]
    assert re.search(reason, run.rejected[0].reason)
    assert place.ask("select count(*), count(x) from orders") == [("3", "2")]


@only_postgresql
def test_doubles_in_a_numeric_column_are_what_the_server_makes_of_them(start, place):
    numbers = [0.1 + 0.2, 19.990000000000002, -1234.5, 0.0, 1e-7, 123456.78, -0.0, 1e20, 4.35 * 100]
    place.ask("create table orders (x numeric, y numeric(30,7), z double precision)")
    schema = struct(*(column(name, "double") for name in "xyz"))
    start().deliver(*(value(schema, dict.fromkeys("xyz", one)) for one in numbers), value(schema, {}))
    same = "x::double precision = z and y = z::numeric(30,7)"  # every digit, and those that the column has
    assert place.ask(f"select count(*), count(*) filter (where {same}) from orders") == [
        (str(len(numbers) + 1), str(len(numbers)))
    ]


@only_postgresql
def test_a_numeric_column_may_be_null_in_all_rows(start, place):
    place.ask("create table orders (x numeric(10,2), y numeric, z numeric(10,2))")
    start().deliver(value(struct(column("x", "double"), column("y", "int64"), decimal("z", 2)), {}))
    assert place.ask("select count(*), count(x), count(y), count(z) from orders") == [("1", "0", "0", "0")]


@only_postgresql
@pytest.mark.parametrize(
    ("kind", "field", "reason"),
    [
        ("int", column("x", "string"), "has the type int4, which cannot hold a field of type string"),
        ("text", column("x", "double"), "has the type text"),
        ("numeric(10,1)", decimal("x", 2), "keeps 1 decimals, and the field has 2"),
        ("bigint generated always as (1) stored", column("x", "int64"), "computed by the database"),
    ],
)
def test_a_table_that_cannot_hold_the_schema_stops_the_run(start, place, kind, field, reason):
    place.ask(f"create table orders (x {kind})")
    run = start()
    with pytest.raises(Refused, match=re.escape(reason)):
        run.deliver(value(struct(field), {"x": None}))
    assert run.position() == 0 and run.rejected == []


@only_postgresql
def test_a_record_without_a_field_that_its_table_needs_is_a_bad_record(start, place):
    place.ask("create table orders (x int, need int not null)")
    run = start()
    whole = struct(column("x", "int32"), column("need", "int32"))
    run.deliver(value(struct(column("x", "int32")), {"x": 1}), value(whole, {"x": 2, "need": 2}))
    [rejected] = run.rejected
    assert rejected.offset == 0 and "column need of orders is NOT NULL" in rejected.reason
    assert place.ask("select x, need from orders") == [("2", "2")]


def test_a_struct_or_a_map_is_a_bad_record(start, place):
    inner = struct(column("a", "int32"))
    nested = struct(column("id", "int32"), {**inner, "field": "in", "optional": True})
    plain = struct(column("id", "int32"))
    run = start()
    run.deliver(value(plain, {"id": 1}), value(nested, {"id": 2, "in": {"a": 1}}), value(plain, {"id": 3}))
    assert [(one.offset, one.reason) for one in run.rejected] == [(1, "field 'in' is a struct, which no column holds")]
    assert place.ask("select id from orders order by id") == [("1",), ("3",)]


def items(name: str, kind: str) -> dict[str, object]:
    return column(name, "array", items={"type": kind, "optional": True})


@only_postgresql
def test_arrays_of_primitives_are_arrays(start, place):
    schema = struct(
        items("i", "int32"), items("l", "int64"), items("s", "string"), items("b", "boolean"), items("d", "double")
    )
    full = {"i": [1, None, 3], "l": [2**40], "s": ["a", 'b"', None, ""], "b": [True, False], "d": [0.5]}
    start().deliver(value(schema, full), value(schema, {**dict.fromkeys(full), "i": [], "s": ["x"]}))
    assert place.ask("select i, l, s, b, d from orders") == [
        ("{1,NULL,3}", "{1099511627776}", '{a,"b\\"",NULL,""}', "{t,f}", "{0.5}"),
        ("{}", "", "{x}", "", ""),
    ]


@only_sqlite
def test_sqlite_has_no_column_for_an_array(start, place):
    run = start()
    run.deliver(value(struct(items("i", "int32")), {"i": [1]}))
    assert [one.reason for one in run.rejected] == ["SQLite has no column for an array"]


@only_postgresql
def test_times_without_a_zone_are_those_of_the_given_zone(start, place):
    place.ask("create table orders (ts timestamp, tz timestamptz, t time)")
    schema = struct(
        logical("ts", "int64", "Timestamp"), logical("tz", "int64", "Timestamp"), logical("t", "int32", "Time")
    )
    summer = MS + 182 * 86_400_000
    run = start(db_timezone="America/New_York")
    run.deliver(*(value(schema, {"ts": at, "tz": at, "t": 3_600_000}) for at in (MS, summer)))
    assert place.ask("select ts, tz at time zone 'UTC', t from orders order by tz") == [
        ("2024-01-01 22:04:05.123", "2024-01-02 03:04:05.123", "20:00:00"),
        ("2024-07-01 23:04:05.123", "2024-07-02 03:04:05.123", "20:00:00"),
    ]


DATE, TIMESTAMP = logical("x", "int32", "Date"), logical("x", "int64", "Timestamp")
OLD = [-62_135_596_800_001, -14_000_000_000_000, -12_219_292_800_001, -12_219_292_800_000]
NEW_YORK, TOKYO, FIXED = ({"db_timezone": zone} for zone in ("America/New_York", "Asia/Tokyo", "GMT-08:00"))


@only_postgresql
@pytest.mark.parametrize(
    ("kind", "field", "options", "values", "stored"),
    [
        ("real", column("x", "double"), {}, [0.1, 1e30, 1e-30], ["0.1", "1e+30", "1e-30"]),
        ("text", column("x", "int32"), {}, [1, -5, None], ["1", "-5", ""]),
        ("char(8)", column("x", "int64"), {}, [12345], ["12345   "]),
        ("text", column("x", "boolean"), {}, [True, False], ["true", "false"]),
        ("date", DATE, NEW_YORK, [0, 19000, -1], ["1969-12-31", "2022-01-07", "1969-12-30"]),
        ("date", DATE, TOKYO, [0, 19000, -1], ["1970-01-01", "2022-01-08", "1969-12-31"]),
        ("date", DATE, NEW_YORK | {"date_timezone": "UTC"}, [0, -1], ["1970-01-01", "1969-12-31"]),
        ("date", DATE, FIXED, [-30000, 19180], ["1887-11-11", "2022-07-06"]),
        ("date", DATE, {}, [-800_000, -719_162, -171_595, -141_428, -141_427],
         ["0222-09-08 BC", "0001-01-03", "1500-03-01", "1582-10-04", "1582-10-15"]),
        ("timestamp", TIMESTAMP, {}, OLD,
         ["0001-01-02 23:59:59.999", "1526-05-01 23:06:40", "1582-10-04 23:59:59.999", "1582-10-15 00:00:00"]),
        ("timestamp", TIMESTAMP, NEW_YORK, [*OLD[1:3], -3_786_825_600_000, -2_000_000_000_000],
         ["1526-05-01 18:06:40", "1582-10-04 18:59:59.999", "1849-12-31 19:00:00", "1906-08-16 15:26:40"]),
        ("timestamp", TIMESTAMP, FIXED, [-14_000_000_000_000, 1_700_000_000_000],
         ["1526-05-01 15:06:40", "2023-11-14 14:13:20"]),
        ("timestamptz", TIMESTAMP, NEW_YORK, [*OLD[1:3], -3_786_825_600_000],
         ["1526-05-01 23:06:40+00", "1582-10-04 23:59:59.999+00", "1850-01-01 00:00:00+00"]),
    ],
)  # fmt: skip
def test_values_are_stored_as_the_connector_stores_them(start, place, kind, field, options, values, stored):
    """What the connector itself (10.9.7) wrote into such a column from the same records."""
    place.ask("alter database " + place.url.rpartition("/")[2] + " set timezone = 'UTC'")
    place.ask(f"create table orders (x {kind}, place serial)")
    run = start(**options)
    run.deliver(*(value(struct(field), {"x": one}) for one in values))
    assert run.rejected == []
    assert place.ask("select x from orders order by place") == [(one,) for one in stored]


@only_postgresql
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_decimals_of_any_size_are_exact(start, place, data):
    """psql prints what we sent."""
    scale = data.draw(st.integers(0, 38))
    digits = data.draw(st.integers(max(1, scale), 60))
    numbers = data.draw(st.lists(st.integers(-(10**digits) + 1, 10**digits - 1), min_size=1, max_size=30))
    schema = struct(column("at", "int32"), decimal("n", scale, **{"connect.decimal.precision": str(digits)}))
    run = start()
    place.ask("drop table if exists orders")
    run.deliver(*(value(schema, {"at": at, "n": unscaled(number)}) for at, number in enumerate(numbers)))
    assert run.rejected == []
    found = [Decimal(text) for (text,) in place.ask("select n from orders order by at")]
    assert found == [Decimal(number).scaleb(-scale, context=Context(prec=100)) for number in numbers]


@only_postgresql
def test_a_numeric_without_a_scale_keeps_its_digits(start, place):
    """The JDBC source gives such a column the scale 127."""
    schema = struct(decimal("n", 127))
    start().deliver(*(value(schema, {"n": unscaled(number * 10**120)}) for number in (12_120_000_000, -5, 0)))
    assert place.ask("select n from orders") == [("1212",), ("-0.0000005",), ("0",)]


@only_postgresql
def test_texts_are_right_in_a_database_of_another_encoding(place):
    name = place.url.rpartition("/")[2] + "_latin"
    place.ask(f"create database {name} encoding 'LATIN1' template template0 locale 'C'")
    place.url = place.url.rpartition("/")[0] + f"/{name}"
    run = opened(place, auto_create="true")
    run.deliver(value(struct(column("s", "string")), {"s": "Grüße"}))
    run.ledger.close()
    assert place.ask("select encode(convert_to(s, 'UTF8'), 'hex') from orders") == [("Grüße".encode().hex(),)]
