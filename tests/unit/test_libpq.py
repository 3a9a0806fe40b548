"""A JDBC URL and its properties as libpq takes them; what has no counterpart is left to Spark's JDBC reader."""

import pytest

from playhead.model.secret import Secret
from playhead.pipeline.ingest.jdbc.libpq import find_conninfo
from playhead.pipeline.ingest.jdbc.options import Connection

URL = "jdbc:postgresql://db:5433/shop"


def settings(url: str = URL, **properties: str) -> dict[str, str]:
    found = find_conninfo(Connection(url, "anna", Secret("x"), None, properties))
    assert found is not None
    return dict(part.split("=", 1) for part in found[:-1].split("' ") for part in [part.replace("='", "=", 1)])


def test_place_user_and_defaults_are_written_out():
    assert settings() == {
        "host": "db",
        "port": "5433",
        "dbname": "shop",
        "user": "anna",
        "password": "x",
        "sslmode": "prefer",
        "connect_timeout": "10",
        "client_encoding": "UTF8",
        "options": "",
    }


@pytest.mark.parametrize(
    ("url", "host", "port", "database"),
    [
        ("jdbc:postgresql://db/shop", "db", "5432", "shop"),
        ("jdbc:postgresql://db1:1,db2/shop", "db1,db2", "1,5432", "shop"),
        ("jdbc:postgresql://[::1]:5433/shop", "::1", "5433", "shop"),
        ("jdbc:postgresql://db:5433/sh%20op", "db", "5433", "sh op"),
        ("jdbc:postgresql:shop", "localhost", "5432", "shop"),
        ("jdbc:postgresql:///shop", "localhost", "5432", "shop"),
    ],
)
def test_hosts_ports_and_the_database(url, host, port, database):
    found = settings(url)
    assert (found["host"], found["port"], found["dbname"]) == (host, port, database)


def test_quotes_and_backslashes_are_escaped():
    found = find_conninfo(Connection(URL, "o'neil", Secret("a\\b'c"), None, {}))
    assert found is not None
    assert r"user='o\'neil'" in found
    assert r"password='a\\b\'c'" in found


@pytest.mark.parametrize(
    ("properties", "name", "value"),
    [
        ({"sslmode": "require"}, "sslmode", "require"),
        ({"ssl": "true"}, "sslmode", "verify-full"),
        ({"ssl": "true", "sslmode": "require"}, "sslmode", "require"),
        ({"ssl": "false"}, "sslmode", "prefer"),
        ({"currentSchema": "sales"}, "options", "-c search_path=sales"),
        ({"options": "-c work_mem=1MB", "currentSchema": "a b"}, "options", "-c work_mem=1MB -c search_path=a\\\\ b"),
        ({"ApplicationName": "us"}, "application_name", "us"),
        ({"targetServerType": "primary"}, "target_session_attrs", "read-write"),
        ({"tcpKeepAlive": "true"}, "keepalives", "1"),
    ],
)
def test_properties_have_their_counterpart(properties, name, value):
    assert settings(**properties)[name] == value


def test_what_the_url_sets_wins():
    assert settings(URL + "?sslmode=require&user=bert", sslmode="disable")["sslmode"] == "require"
    assert settings(URL + "?sslmode=require&user=bert")["user"] == "bert"


@pytest.mark.parametrize("name", ["sslcert", "sslkey", "socketTimeout", "gsslib", "kerberosServerName", "unheardOf"])
def test_what_has_no_counterpart_is_left_to_the_jdbc_driver(name):
    assert find_conninfo(Connection(URL, None, None, None, {name: "x"})) is None


def test_the_drivers_own_settings_change_nothing():
    assert settings(prepareThreshold="0", defaultRowFetchSize="10") == settings()


def test_another_database_has_no_conninfo():
    assert find_conninfo(Connection("jdbc:sqlite:x.db")) is None
