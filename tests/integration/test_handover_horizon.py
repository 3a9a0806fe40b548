"""Open transactions before a source goes to Connect, in a real PostgreSQL; the writers are plain sessions of psycopg."""

from threading import Timer
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from playhead.errors import Refused
from playhead.handover.horizon import HeldBack, await_held_back, find_held_back
from playhead.model import Deadline

BY_ID = {"mode": "incrementing", "incrementing.column.name": "id"}
BY_TIME = {"mode": "timestamp", "timestamp.column.name": "ts"}


@pytest.fixture
def table(lab, unique):
    name = unique("held").replace("-", "_")
    lab.psql(f"CREATE TABLE {name} (id bigserial, ts timestamptz DEFAULT now()) PARTITION BY RANGE (id)")
    lab.psql(f"CREATE TABLE {name}_part PARTITION OF {name} FOR VALUES FROM (0) TO (1000)")
    return name


def session(lab):
    return psycopg.connect(lab.postgres_url, application_name="till")


def source(lab, table, mode, **more) -> Any:
    url = {"connection.url": lab.jdbc_url, "table.whitelist": f"public.{table}", **mode, **more}
    return SimpleNamespace(name="orders", config=url)


def test_a_busy_table_is_waited_for_until_the_first_writers_have_ended(lab, table):
    """Another writer is open whenever one looks."""
    with session(lab) as first, session(lab) as second:
        first.execute(f"INSERT INTO {table} DEFAULT VALUES")

        def overlap():
            second.execute(f"INSERT INTO {table} DEFAULT VALUES")
            first.commit()

        Timer(0.5, overlap).start()
        assert await_held_back(source(lab, table, BY_ID), Deadline(20)) == ""
        assert "(till) since" in find_held_back(source(lab, table, BY_ID), Deadline(20)).writers
        with pytest.raises(Refused, match=r"hold rows of orders back, and Connect would skip them: pid \d+"):
            await_held_back(source(lab, table, BY_ID), Deadline(0.3))


def test_a_writer_of_a_partition_is_seen(lab, table):
    with session(lab) as till:
        till.execute(f"INSERT INTO {table}_part (id) VALUES (1)")
        assert "(till) since" in find_held_back(source(lab, table, BY_ID), Deadline(20)).writers
        query = source(lab, table, BY_ID, query=f"SELECT * FROM {table}")
        assert "(till) since" in find_held_back(query, Deadline(20)).writers
        every = source(lab, table, BY_ID, **{"table.whitelist": ""})
        assert "(till) since" in find_held_back(every, Deadline(20)).writers
    assert find_held_back(source(lab, table, BY_ID), Deadline(20)) == HeldBack()


def test_by_timestamps_a_transaction_counts_before_it_writes(lab, table):
    with session(lab) as till:
        till.execute("SELECT 1")
        assert find_held_back(source(lab, table, BY_ID), Deadline(20)) == HeldBack()
        assert "(till) since" in find_held_back(source(lab, table, BY_TIME), Deadline(20)).writers
        assert find_held_back(source(lab, table, {"mode": "bulk"}), Deadline(20)) == HeldBack()


def test_what_cannot_be_asked_is_not_none():
    hosts = SimpleNamespace(name="orders", config={"connection.url": "jdbc:postgresql://a,b/shop?user=me", **BY_ID})
    found = find_held_back(hosts, Deadline(5))  # type: ignore[arg-type]
    assert found.writers == "" and "must name one host" in found.unknown
    assert "is unknown: our own client cannot open" in await_held_back(hosts, Deadline(5))  # type: ignore[arg-type]
