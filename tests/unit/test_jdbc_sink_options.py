"""The options of the JDBC sinks: what is honoured, what is refused by its name, and where the ledger is."""

import pickle

import pytest

from playhead.errors import ConfigInvalid, Invalid
from playhead.pipeline.deliver.jdbc.options import (
    JdbcSinkOptions,
    Zones,
    check_options,
    find_target,
    ledger_url,
    parse_options,
)
from playhead.pipeline.deliver.jdbc.sink import open_jdbc_sink
from playhead.sql.address import parse_address

JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {"value.converter": JSON, "key.converter": JSON}
PLAIN = {
    "name": "sink",
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db:5433/shop",
    "connection.user": "me",
    "connection.password": "p@ss/w:rd",
}


def faults(**options: str) -> dict[str, str]:
    given = {**PLAIN, **{name.replace("_", "."): value for name, value in options.items()}}
    return {fault.where: fault.what for fault in check_options(given, WORKER)}


def test_the_defaults_are_the_connectors():
    assert parse_options(PLAIN, WORKER) == JdbcSinkOptions(
        insert_mode="insert",
        pk_mode="none",
        table_format="${topic}",
        deletes=False,
        creates=False,
        quotes=True,
        zone="",
    )


@pytest.mark.parametrize("option", [{"insert_mode": "Upsert", "pk_mode": "record_key"}, {"pk_mode": "Kafka"}])
def test_words_in_mixed_case_are_refused_as_by_the_connectors(option):
    (name,) = [name.replace("_", ".") for name, word in option.items() if word != word.lower()]
    assert "must be one of" in faults(**option)[name]
    in_capitals = {key: word.upper() for key, word in option.items()}
    assert name not in faults(**in_capitals)


def test_all_options_of_both_connectors_are_taken():
    given = {
        **PLAIN,
        "insert.mode": "UPSERT",
        "delete.enabled": "true",
        "pk.mode": "record_key",
        "pk.fields": "a, b",
        "fields.whitelist": "c,d",
        "table.name.format": "x_${topic}",
        "auto.create": "true",
        "auto.evolve": "false",
        "batch.size": "5000",
        "max.retries": "3",
        "retry.backoff.ms": "10",
        "table.types": "TABLE,PARTITIONED TABLE",
        "sql.quote.identifiers": "false",
        "table.name.normalize": "true",
        "db.timezone": "Europe/Berlin",
        "dialect.name": "PostgreSqlDatabaseDialect",
        "connection.reWriteBatchedInserts": "true",
        "errors.tolerance": "all",
        "consumer.override.max.poll.records": "5",
    }
    found = parse_options(given, WORKER)
    assert found == JdbcSinkOptions(
        "upsert", "record_key", ("a", "b"), ("c", "d"), "x_${topic}", ("TABLE", "PARTITIONED TABLE"),
        normalizes=True, deletes=True, creates=True, quotes=False, zone="Europe/Berlin",
    )  # fmt: skip
    assert parse_options({**PLAIN, "insert.mode": "multi"}, WORKER).insert_mode == "insert"


def test_zones_of_times_and_dates():
    def zones(**more: str) -> Zones:
        return parse_options(PLAIN | {name.replace("_", "."): value for name, value in more.items()}, WORKER).zones

    assert zones() == zones(db_timezone="Etc/UTC") == zones(db_timezone="GMT") == Zones()
    assert zones(db_timezone="GMT-08:00") == Zones("GMT-08:00", "GMT-08:00")
    assert zones(db_timezone="PST", date_timezone="utc") == Zones("", "America/Los_Angeles")
    assert set(faults(date_timezone="Mars", date_calendar_system="PROLEPTIC_GREGORIAN")) == {
        "date.timezone", "date.calendar.system",
    }  # fmt: skip


def test_a_digest_of_the_shape_is_that_of_earlier_versions_unless_dates_are_plain():
    plain = JdbcSinkOptions(zone="Asia/Tokyo")
    assert plain.shape() == "967b9f2da51eb0707d1cb68fd32007a849fd744e56ed8dfae3a934f3e2d07424"
    assert JdbcSinkOptions(zone="Asia/Tokyo", plain_dates=True).shape() != plain.shape()


def test_every_fault_is_reported_at_once_and_by_name():
    found = faults(
        insert_mode="replace", pk_mode="some", auto_evolve="true", table_types="VIEW", batch_size="many", db_timezone="Mars",
        delete_enabled="true", dialect_name="MySqlDatabaseDialect", table_nam_format="x", transforms="a",
        table_name_format="${partition}",
    )  # fmt: skip
    assert set(found) == {
        "insert.mode", "pk.mode", "auto.evolve", "table.types", "batch.size", "db.timezone", "delete.enabled", "dialect.name",
        "table.nam.format", "transforms", "table.name.format",
    }  # fmt: skip
    assert "did you mean table.name.format" in found["table.nam.format"]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"insert_mode": "upsert"}, "pk.mode"),
        ({"insert_mode": "update"}, "pk.mode"),
        ({"delete_enabled": "true", "pk_mode": "record_value"}, "delete.enabled"),
        ({"pk_mode": "kafka", "pk_fields": "a,b"}, "pk.fields"),
        ({"table_name_format": ""}, "table.name.format"),
        ({"table_name_format": " "}, "table.name.format"),
        ({"value_converter": "org.apache.kafka.connect.storage.StringConverter"}, "value.converter"),
        ({"value_converter": JSON, "value_converter_schemas_enable": "false"}, "value.converter"),
        ({"pk_mode": "record_key", "key_converter": JSON, "key_converter_schemas_enable": "false"}, "key.converter"),
        ({"connection_url": "jdbc:mysql://h/db"}, "connection.url"),
        ({"connection_url": ""}, "connection.url"),
        ({"connection_url": "jdbc:postgresql://a,b/db"}, "connection.url"),
        ({"connection_url": "jdbc:postgresql://a/db?socketFactory=x"}, "connection.url"),
        ({"connection_url": "jdbc:sqlite::memory:"}, "connection.url"),
        ({"connection_url": "jdbc:sqlite:/x.db?date_class=TEXT"}, "connection.url"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, where):
    assert where in faults(**options)


def test_the_ledger_is_in_the_database_of_the_sink():
    address = parse_address(ledger_url(PLAIN))
    assert (address.url.host, address.url.port, address.url.database) == ("db", 5433, "shop")
    assert (address.url.username, address.url.password) == ("me", "p@ss/w:rd")
    assert address.shown == "sql+postgresql://me@db:5433/shop"
    assert parse_address(ledger_url({"connection.url": "jdbc:sqlite:/a/b c.db"})).path.as_posix() == "/a/b c.db"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("jdbc:sqlite:/a/50%25.db", "/a/50%25.db"),
        ("jdbc:sqlite:/a/50%.db", "/a/50%.db"),
        ("jdbc:sqlite:file:/a/50%25.db", "/a/50%.db"),
    ],
)
def test_a_path_of_sqlite_is_taken_as_it_is_written_and_only_its_own_uris_have_escapes(url, path):
    address = parse_address(ledger_url({"connection.url": url}))
    assert address.path.as_posix() == path
    assert parse_address(address.shown).path == address.path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h/db?user=u&password=s%26t", "postgresql://u:s%26t@h:5432/db"),
        ("jdbc:postgresql://[::1]:1/db", "postgresql://me:p%40ss%2Fw%3Ard@[::1]:1/db"),
        ("jdbc:postgresql:db?user=u&password=x", "postgresql://u:x@localhost:5432/db"),
        ("jdbc:postgresql://h/db?ssl=true&ApplicationName=a&prepareThreshold=3",
         "postgresql://me:p%40ss%2Fw%3Ard@h:5432/db?sslmode=verify-full&application_name=a"),
    ],
)  # fmt: skip
def test_a_jdbc_url_becomes_one_of_ours(url, expected):
    target = find_target({**PLAIN, "connection.url": url})
    assert target.url == expected
    assert parse_address(target.url)


def test_tables_are_in_the_schema_that_the_url_names():
    assert (
        find_target({**PLAIN, "connection.url": "jdbc:postgresql://h/db?currentSchema=sales,public"}).schema == "sales"
    )


def test_a_password_is_in_no_text():
    with pytest.raises(Invalid) as caught:
        find_target({**PLAIN, "connection.url": "jdbc:postgresql://a,b/db?password=secret"})
    said = f"{caught.value.what} {caught.value.hint} {find_target(PLAIN)!r} {faults(connection_url='jdbc:x:secret')}"
    assert "secret" not in said and "p@ss" not in said and "p%40ss" not in said


def test_a_table_name_that_is_none_is_refused_before_anything_runs():
    with pytest.raises(Invalid, match="not the name of a table"):
        open_jdbc_sink({**PLAIN, "topics": "a.b.c"}, WORKER)
    with pytest.raises(Invalid, match="longer than 63 bytes"):
        open_jdbc_sink({**PLAIN, "topics": "x" * 64}, WORKER)
    with pytest.raises(Invalid, match="reserved for Playhead's own tables"):
        open_jdbc_sink({**PLAIN, "topics": "playhead_runs"}, WORKER)


def test_a_sink_is_not_opened_with_faults():
    with pytest.raises(ConfigInvalid):
        open_jdbc_sink({**PLAIN, "auto.evolve": "true"}, WORKER)


def test_the_shape_follows_what_shapes_rows_and_nothing_else():
    shape = open_jdbc_sink(PLAIN, WORKER).shape
    assert open_jdbc_sink({**PLAIN, "batch.size": "1", "connection.password": "other"}, WORKER).shape == shape
    assert open_jdbc_sink({**PLAIN, "pk.mode": "kafka"}, WORKER).shape != shape
    assert open_jdbc_sink(PLAIN, {**WORKER, "value.converter.replace.null.with.default": "false"}).shape != shape


def test_options_travel_to_executors():
    options = parse_options(PLAIN, WORKER)
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
