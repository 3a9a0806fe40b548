"""The parts of a JDBC plan that need no database."""

import time
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid, NotFound
from playhead.model import Map
from playhead.pipeline.ingest.jdbc.chunks import even_ranges
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.flavour import Flavour, PostgreSql, check_zone
from playhead.pipeline.ingest.jdbc.horizon import OpenWriter, await_writers, find_protection, lower
from playhead.pipeline.ingest.jdbc.stream import ToJdbcPosition
from playhead.pipeline.ingest.jdbc.view import Relation, find_cursor, refuse_nulls
from playhead.pipeline.ingest.source import Last
from playhead.pipeline.records.encode.fields import SqlColumn

BIGINT, TIMESTAMP = -5, 93


def column(name: str, jdbc_type: int = BIGINT, type_name: str = "int8", *, nullable: bool = False) -> SqlColumn:
    return SqlColumn(name, jdbc_type, type_name, 19, 0, True, nullable)


def writer(name: str, started: int | None = 5, *, wrote: bool = True, pid: str = "7") -> OpenWriter:
    return OpenWriter(name, pid, "app", "till", "today", started, wrote)


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**6), st.integers(1, 50))
def test_even_ranges_cover_everything_once(low: int, width: int, parts: int):
    ranges = even_ranges(low, low + width, parts)
    assert ranges[0][0] == low - 1 and ranges[-1][1] == low + width
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert len(ranges) <= parts


def test_positions_are_the_bytes_of_the_connector():
    # Samples of facts/jdbc-connector.md section 1, written by the real connector.
    moment = 1704164645123456
    assert list(ToJdbcPosition(True, True)(Last(5, moment)).items()) == [
        ("timestamp_nanos", 123456000),
        ("incrementing", 5),
        ("timestamp", 1704164645123),
    ]
    assert ToJdbcPosition(False, True)(Last(None, 1704164648000789)) == Map(
        {"timestamp_nanos": 789000, "timestamp": 1704164648000}
    )
    assert ToJdbcPosition(True, False)(Last(5)) == Map({"incrementing": 5})


def test_the_time_before_the_epoch_is_floored():
    assert ToJdbcPosition(False, True)(Last(None, -1)) == Map({"timestamp_nanos": 999999000, "timestamp": -1})


def test_writers_that_came_later_are_not_waited_for():
    answers = iter([[writer("1/1")], [writer("1/1"), writer("2/1")], [writer("2/1")]])
    assert await_writers(lambda: next(answers), lambda one: True, 60) == []


def test_a_transaction_that_is_prepared_meanwhile_is_still_waited_for():
    answers = iter([[writer("1/1")], [writer("-1/9", None, pid="")], []])
    assert await_writers(lambda: next(answers), lambda one: True, 60) == []
    with pytest.raises(StopIteration):
        next(answers)


def test_waiting_ends_in_time():
    began = time.monotonic()
    assert await_writers(lambda: [writer("1/1")], lambda one: True, 0.2) == [writer("1/1")]
    assert 0.2 <= time.monotonic() - began < 5


def test_the_oldest_writer_left_bounds_a_timestamp_step():
    assert lower(100, [], 1).end == 100
    assert lower(100, [writer("1/1", 40), writer("2/1", 60)], 1).end == 40
    assert lower(100, [writer("1/1", None, pid="")], 1).end is None
    ignored = lower(100, [writer("1/1", 40, wrote=False)], 1)
    assert ignored.end == 100 and "nothing was written" in ignored.words


def test_names_are_quoted_with_the_databases_mark():
    assert Flavour('"').quote('a"b; --') == '"a""b; --"'
    assert Flavour("`").quote("a`b") == "`a``b`"
    assert Flavour("").quote("a_1") == "a_1"
    for name in ("a b", 'a"', "a;", ""):
        with pytest.raises(Invalid, match="needs quotes"):
            Flavour("").quote(name)


def test_a_moment_carries_the_offset_of_db_timezone():
    assert PostgreSql('"').moment(1704161048000789) == "'2024-01-02 02:04:08.000789+00:00'"
    assert PostgreSql('"', "Europe/Berlin").moment(1704161048000789) == "'2024-01-02 03:04:08.000789+01:00'"
    assert PostgreSql('"', "GMT-08:00").moment(1704161048000789) == "'2024-01-01 18:04:08.000789-08:00'"


def test_an_offset_is_an_interval_for_postgresql_which_reads_the_sign_of_a_name_the_other_way_round():
    plain = column("ts", TIMESTAMP, "timestamp")
    assert PostgreSql('"', "GMT-08:00").instant_of([plain]) == "(\"ts\" AT TIME ZONE INTERVAL '-08:00')"
    assert PostgreSql('"', "Europe/Berlin").instant_of([plain]) == "(\"ts\" AT TIME ZONE 'Europe/Berlin')"


def test_a_zone_without_rules_on_this_machine_is_refused():
    with pytest.raises(Invalid, match="has no rules"):
        check_zone("Europe/Nowhere")


def test_timestamps_with_and_without_zone_do_not_mix():
    zoned, plain = column("a", TIMESTAMP, "timestamptz"), column("b", TIMESTAMP, "timestamp")
    assert PostgreSql('"').time_of([plain]) == '"b"'
    with pytest.raises(Invalid, match="mixes"):
        PostgreSql('"').time_of([zoned, plain])
    with pytest.raises(Invalid, match="not a timestamp"):
        PostgreSql('"').time_of([column("c", 91, "date")])


def test_the_cursor_is_found_by_name_or_by_counting_up():
    columns = [(column("Id"), True), (column("other"), False)]
    assert find_cursor(columns, "Id", (), "t").id == find_cursor(columns, "", (), "t").id == column("Id")
    assert find_cursor(columns, "ID", (), "t").id == column("Id")
    with pytest.raises(NotFound):
        find_cursor(columns, "ident", (), "t")
    with pytest.raises(Invalid, match="0 auto-increment columns"):
        find_cursor(columns[1:], "", (), "t")


def test_one_timestamp_that_is_never_null_is_enough():
    maybe, always = column("a", TIMESTAMP, nullable=True), column("b", TIMESTAMP)
    refuse_nulls(find_cursor([(maybe, False), (always, False)], None, ("a", "b"), "t"), "t")
    with pytest.raises(Invalid, match="can be null"):
        refuse_nulls(find_cursor([(maybe, False)], None, ("a",), "t"), "t")


class Answers:
    """A database that says who it is and whether it is a standby."""

    def __init__(self, product: str) -> None:
        self.product = product

    def scalar(self, sql: str) -> str:
        assert sql == "SELECT pg_is_in_recovery()"
        return "t"


@pytest.mark.parametrize(("product", "words"), [("PostgreSQL", "a standby"), ("MySQL", "MySQL does not report")])
def test_where_writers_cannot_be_seen_that_is_said(product: str, words: str):
    found = find_protection(cast(JdbcDatabase, Answers(product)), Relation(None, "public", "t", "t"), "id")
    assert found.tables is None
    assert found.words.startswith(words) and "timestamp.delay.interval.ms" in found.words
