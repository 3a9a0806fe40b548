"""The JDBC source on a real PostgreSQL and SQLite: modes, steps and chunks. What should be read is asked from psql."""

# ruff: noqa: F401  (fixtures are imported by name and asked for by name)

import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from integration.jdbc_reading import BULK, BY_BOTH, BY_ID, BY_TIME, ORDERS, Shop, database, filled, shop
from playhead.errors import Invalid, NotFound, Refused, Rejected
from playhead.model import Map
from playhead.pipeline.ingest.jdbc.stream import StreamOptions

pytest.importorskip("pyspark")


def test_ids_are_read_in_order_in_steps_of_chunks(shop: Shop):
    filled(shop)
    read = shop.drain(shop.stream("orders", BY_ID), slots=2, rows=10)
    assert read.ids == list(range(1, 51))
    assert [len(chunk) for chunk in read.chunks] == [10] * 5
    assert read.steps == 3
    assert read.position == Map({"incrementing": 50})
    expected = shop.sql("SELECT string_agg(id || name, ',' ORDER BY id) FROM orders").split(",")
    assert [f"{row['id']}{row['name']}" for chunk in read.chunks for row in chunk] == expected


def test_a_step_knows_whether_it_reaches_the_end(shop: Shop):
    filled(shop, 30)
    stream = shop.stream("orders", BY_ID)
    first = stream.plan(None, 2, 10)
    assert first is not None and not first.reaches_end
    assert [chunk.where for chunk in first.chunks] == ['"id" > -1 AND "id" <= 10', '"id" > 10 AND "id" <= 20']
    second = stream.plan(Map({"incrementing": 20}), 2, 10)
    assert second is not None and second.reaches_end
    assert stream.plan(Map({"incrementing": 30}), 2, 10) is None


def test_an_empty_table_has_no_step(shop: Shop):
    shop.sql(ORDERS)
    assert shop.stream("orders", BY_ID).plan(None, 2, 10) is None
    assert shop.stream("orders", BY_BOTH).plan(None, 2, 10) is None
    assert shop.stream("orders", BULK).plan(None, 2, 10) is None


def test_gaps_cost_no_steps(shop: Shop):
    shop.sql(ORDERS, "INSERT INTO orders (id) VALUES (1), (2), (1000000), (9000000000000000000)")
    read = shop.drain(shop.stream("orders", BY_ID), slots=2, rows=10)
    assert read.ids == [1, 2, 1000000, 9000000000000000000]
    assert read.steps == 2


def test_spans_widen_where_ids_are_sparse_and_narrow_again(shop: Shop):
    shop.sql(ORDERS, "INSERT INTO orders (id) SELECT g * 100 FROM generate_series(1, 400) g")
    shop.sql("INSERT INTO orders (id) SELECT 40000 + g FROM generate_series(1, 5000) g")
    stream, at, widths = shop.stream("orders", BY_ID), 0, []
    while (step := stream.plan(Map({"incrementing": at}), 1, 100)) is not None:
        (condition,) = step.conditions
        where = step.view.shown(condition)
        rows, last, first = shop.sql(f"SELECT count(*), max(id), min(id) FROM orders WHERE {where}").split("|")
        assert int(rows) <= 1600
        widths.append(int(where.rpartition(" ")[2]) - int(first) + 1)
        at = int(last)
    assert at == 45000
    assert widths[0] == 100 and max(widths) == 1600 and widths[-2] == 100
    assert len(widths) < 40000 / 1600 + 5000 / 100 + 6


def test_negative_ids_are_not_read_at_the_first_start_as_in_connect(shop: Shop):
    shop.sql(ORDERS, "INSERT INTO orders (id) VALUES (-5), (-1), (0), (1)")
    assert shop.drain(shop.stream("orders", BY_ID)).ids == [0, 1]
    assert shop.drain(shop.stream("orders", BY_ID), position=Map({"incrementing": -5})).ids == [-1, 0, 1]


@pytest.mark.parametrize(
    "kind", ["smallint", "int", "bigint", "numeric(12,0)", "smallserial", "int GENERATED ALWAYS AS IDENTITY"]
)
def test_whole_numbers_of_every_kind_are_ids(shop: Shop, kind: str):
    shop.sql(f"CREATE TABLE t (id {kind} NOT NULL, name text)")
    shop.sql("INSERT INTO t OVERRIDING SYSTEM VALUE SELECT g, 'x' FROM generate_series(1, 12) g")
    stream = shop.stream("t", BY_ID)
    step = stream.plan(None, 2, 10)
    assert step is not None
    assert [row["_id"] for chunk in shop.read(step) for row in chunk] == list(range(1, 13))


@pytest.mark.parametrize("kind", ["numeric", "numeric(10,2)", "text", "double precision", "uuid"])
def test_other_types_are_no_ids(shop: Shop, kind: str):
    shop.sql(f"CREATE TABLE t (id {kind} NOT NULL)")
    with pytest.raises(Invalid, match="not a whole number"):
        shop.stream("t", BY_ID).plan(None, 2, 10)


def test_the_column_that_counts_up_is_found(shop: Shop):
    filled(shop, 5)
    assert shop.drain(shop.stream("orders", {"mode": "incrementing"})).ids == [1, 2, 3, 4, 5]


def test_a_cursor_that_can_be_null_is_refused(shop: Shop):
    shop.sql("CREATE TABLE t (id int, ts timestamp)", "INSERT INTO t VALUES (1), (NULL)")
    for mode in (BY_ID, BY_TIME):
        with pytest.raises(Invalid, match="can be null"):
            shop.stream("t", mode).plan(None, 2, 10)
    assert shop.drain(shop.stream("t", BY_ID, validate__non__null="false")).ids == [1]


def test_an_index_gives_the_order(shop: Shop):
    filled(shop, 20000)
    shop.sql("ANALYZE orders")
    step = shop.stream("orders", BY_ID).plan(Map({"incrementing": 100}), 1, 50)
    assert step is not None
    (condition,) = step.conditions
    plan = shop.sql(f"EXPLAIN SELECT * FROM {step.view.rows} WHERE {step.view.ending(condition)}")
    assert "Index Scan using orders_pkey" in plan
    assert "Sort" not in plan


def test_equal_timestamps_are_never_parted(shop: Shop):
    shop.sql(
        ORDERS,
        "INSERT INTO orders (id, ts) SELECT g, timestamptz '2024-01-01' + g / 7 * interval '1 s' FROM generate_series(1, 60) g",
    )
    read = shop.drain(shop.stream("orders", BY_TIME), slots=2, rows=10)
    assert sorted(read.ids) == list(range(1, 61))
    for before, after in pairwise(read.chunks):
        assert before[-1]["_time"] < after[0]["_time"]
    assert read.position == Map({"timestamp_nanos": 0, "timestamp": 1704067200000 + 8000})


def test_a_tie_too_large_for_a_transaction_is_refused(shop: Shop):
    shop.sql(ORDERS, "INSERT INTO orders (id, ts) SELECT g, '2024-01-01' FROM generate_series(1, 30) g")
    with pytest.raises(Refused, match="share one timestamp"):
        shop.stream("orders", BY_TIME, StreamOptions(most_rows=20)).plan(None, 2, 10)
    assert shop.drain(shop.stream("orders", BY_BOTH, StreamOptions(most_rows=20))).ids == list(range(1, 31))


def test_ties_are_cut_by_id_with_both(shop: Shop):
    shop.sql(
        ORDERS,
        "INSERT INTO orders (id, ts) SELECT g, timestamptz '2024-01-01 00:00:00.000789' + g / 25 * interval '1 s' "
        "FROM generate_series(1, 60) g",
    )
    read = shop.drain(shop.stream("orders", BY_BOTH), slots=2, rows=10)
    assert read.ids == list(range(1, 61))
    assert [len(chunk) for chunk in read.chunks] == [10] * 6
    assert read.position == Map({"timestamp_nanos": 789000, "incrementing": 60, "timestamp": 1704067202000})
    assert list(read.position or ()) == ["timestamp_nanos", "incrementing", "timestamp"]


def test_the_first_start_is_connects(shop: Shop):
    shop.sql(ORDERS, "INSERT INTO orders (id, ts) VALUES (1, '1969-12-31Z'), (2, '1970-01-01Z'), (3, '1970-01-02Z')")
    assert shop.drain(shop.stream("orders", BY_TIME)).ids == [3]
    assert shop.drain(shop.stream("orders", BY_BOTH)).ids == [2, 3]
    assert shop.drain(shop.stream("orders", BY_TIME, timestamp__initial="-86400001")).ids == [1, 2, 3]
    assert shop.drain(shop.stream("orders", BY_TIME, timestamp__initial="-1")).ids == []


def test_rows_of_the_future_and_of_the_delay_wait(shop: Shop):
    shop.sql(
        ORDERS,
        "INSERT INTO orders (id, ts) VALUES (1, now() - interval '1 h'), (2, now() - interval '1 min')",
        "INSERT INTO orders (id, ts) VALUES (3, now() + interval '1 h')",
    )
    assert shop.drain(shop.stream("orders", BY_TIME)).ids == [1, 2]
    assert shop.drain(shop.stream("orders", BY_TIME, timestamp__delay__interval__ms="600000")).ids == [1]


def test_the_position_of_a_wall_clock_follows_db_timezone(shop: Shop):
    shop.sql("CREATE TABLE t (id int, ts timestamp NOT NULL)", "INSERT INTO t VALUES (1, '2024-01-02 03:04:08.000789')")
    read = shop.drain(shop.stream("t", BY_TIME, db__timezone="Europe/Berlin"))
    assert read.position == Map({"timestamp_nanos": 789000, "timestamp": 1704161048000})
    assert shop.drain(shop.stream("t", BY_TIME, db__timezone="Europe/Berlin"), position=read.position).ids == []
    before = Map({"timestamp_nanos": 788000, "timestamp": 1704161048000})
    assert shop.drain(shop.stream("t", BY_TIME, db__timezone="Europe/Berlin"), position=before).ids == [1]


def test_several_timestamp_columns_are_coalesced(shop: Shop):
    shop.sql("CREATE TABLE t (id int, changed timestamptz, made timestamptz NOT NULL)")
    shop.sql("INSERT INTO t VALUES (1, NULL, '2024-01-03'), (2, '2024-01-04', '2024-01-01'), (3, NULL, '2024-01-02')")
    read = shop.drain(shop.stream("t", {"mode": "timestamp", "timestamp.column.name": "changed, made"}), rows=1)
    assert read.ids == [3, 1, 2]


def test_chunks_of_a_timestamp_step_share_one_snapshot(shop: Shop):
    shop.sql(
        ORDERS,
        "INSERT INTO orders (id, ts) SELECT g, timestamptz '2024-01-01' + g * interval '1 s' FROM generate_series(1, 20) g",
    )
    step = shop.stream("orders", BY_TIME).plan(None, 2, 10)
    assert step is not None
    shop.sql("UPDATE orders SET ts = ts + interval '1 day' WHERE id = 3", "DELETE FROM orders WHERE id = 15")
    assert sorted(row["id"] for chunk in shop.read(step) for row in chunk) == list(range(1, 21))


@pytest.mark.parametrize(("mode", "index"), [(BY_TIME, "(ts)"), (BY_BOTH, "(ts, id)")])
def test_an_index_gives_the_order_of_times(shop: Shop, mode: dict[str, str], index: str):
    shop.sql(ORDERS, "INSERT INTO orders (ts) SELECT now() - g * interval '1 min' FROM generate_series(1, 20000) g")
    shop.sql(f"CREATE INDEX by_time ON orders {index}", "ANALYZE orders")
    at = int(shop.sql("SELECT extract(epoch FROM ts)::bigint FROM orders WHERE id = 10000")) * 1000
    step = shop.stream("orders", mode).plan(Map({"timestamp": at}), 1, 50)
    assert step is not None
    (condition,) = step.conditions
    plan = shop.sql(f"EXPLAIN SELECT * FROM {step.view.rows} WHERE {step.view.ending(condition)}")
    step.close()
    assert "Index Scan using by_time" in plan
    assert "Sort" not in plan


def test_bulk_reads_the_whole_table_by_ranges_of_its_key(shop: Shop):
    filled(shop, 40)
    stream = shop.stream("orders", BULK)
    assert not stream.has_position
    assert list(stream.partitions) == [Map({"table": "orders"})]
    step = stream.plan(None, 2, 10)
    assert step is not None and step.reaches_end and len(step.chunks) == 2
    shop.sql("DELETE FROM orders WHERE id > 30")
    assert sorted(row["id"] for chunk in shop.read(step) for row in chunk) == list(range(1, 41))


def test_bulk_without_a_whole_number_as_key_is_one_chunk(shop: Shop):
    shop.sql("CREATE TABLE codes (id text PRIMARY KEY)", "INSERT INTO codes VALUES ('a'), ('b')")
    step = shop.stream("codes", BULK).plan(None, 2, 1)
    assert step is not None and len(step.chunks) == 1
    assert sorted(row["id"] for row in shop.read(step)[0]) == ["a", "b"]


def test_a_query_may_have_its_own_where_order_and_comment(shop: Shop):
    filled(shop, 20)
    query = "SELECT * FROM orders WHERE id % 2 = 0 ORDER BY name -- the even ones"
    stream = shop.query(query, BY_ID)
    assert shop.drain(stream, rows=4).ids == list(range(2, 21, 2))


def test_a_query_suffix_limits_a_step_and_loses_nothing(shop: Shop):
    filled(shop, 10)
    assert shop.drain(shop.stream("orders", BY_ID, query__suffix="LIMIT 3")).ids == list(range(1, 11))
    assert shop.drain(shop.stream("orders", BY_BOTH, query__suffix="LIMIT 3")).ids == list(range(1, 11))


def test_a_broken_query_is_reported_in_the_databases_words(shop: Shop):
    stream = shop.query("SELECT id FRM orders", BY_ID)
    with pytest.raises(Rejected, match="syntax error"):
        stream.plan(None, 1, 10)
    stream = shop.query("SELECT id FROM nowhere", BY_ID)
    with pytest.raises(NotFound, match="nowhere"):
        stream.plan(None, 1, 10)


@pytest.fixture
def till(tmp_path: Path) -> Path:
    path = tmp_path / "till.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE sold (id INTEGER PRIMARY KEY NOT NULL, name TEXT, ts TIMESTAMP NOT NULL)")
        rows = [(n, f"n{n}", 1704067200000 + n // 7 * 1000) for n in range(1, 31)]
        file.executemany("INSERT INTO sold VALUES (?, ?, ?)", rows)
    file.close()
    return path


def test_sqlite_is_read_by_id(shop: Shop, till: Path):
    stream = shop.sqlite(till, BY_ID)
    assert (stream.name, stream.topic) == ("sold", "t_sold")
    assert list(stream.partitions) == [Map({"protocol": "1", "table": "sold"}), Map({"table": "sold"})]
    read = shop.drain(stream, slots=2, rows=10)
    assert read.ids == list(range(1, 31))
    assert read.position == Map({"incrementing": 30})
    step = stream.plan(None, 1, 10)
    assert step is not None and "one transaction write at a time" in step.horizon


def test_sqlite_is_read_by_time_in_one_chunk_a_step(shop: Shop, till: Path):
    read = shop.drain(shop.sqlite(till, BY_TIME), slots=2, rows=10)
    assert sorted(read.ids) == list(range(1, 31))
    assert read.steps == len(read.chunks) == 3
    assert read.position == Map({"timestamp_nanos": 0, "timestamp": 1704067204000})
    assert shop.drain(shop.sqlite(till, BY_BOTH), rows=4).ids == list(range(1, 31))


def test_sqlite_is_read_whole(shop: Shop, till: Path):
    read = shop.drain(shop.sqlite(till, BULK), rows=5)
    assert sorted(read.ids) == list(range(1, 31))
    assert len(read.chunks) == 1


def test_text_is_a_time_in_sqlite_too(shop: Shop, tmp_path: Path):
    path = tmp_path / "text.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE t (id BIGINT NOT NULL, ts TEXT NOT NULL)")
        file.execute("INSERT INTO t VALUES (5000000000, '2024-01-02 03:04:05.123'), (2, '2024-01-02T03:04:06')")
    file.close()
    read = shop.drain(shop.sqlite(path, BY_BOTH))
    assert read.ids == [5000000000, 2]
    assert read.position == Map({"timestamp_nanos": 0, "incrementing": 2, "timestamp": 1704164646000})


def test_a_file_that_is_not_there_is_not_made(shop: Shop, tmp_path: Path):
    with pytest.raises(NotFound, match=r"none\.db"):
        shop.sqlite(tmp_path / "none.db", BY_ID)
    assert not (tmp_path / "none.db").exists()


def test_two_tables_of_one_name_are_refused_and_one_of_them_is_read_by_its_qualified_name(shop: Shop):
    for schema in ("sales", "archive"):
        shop.sql(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.orders (id bigserial PRIMARY KEY)")
        shop.sql(f"INSERT INTO {schema}.orders DEFAULT VALUES", f'CREATE TABLE {schema}."odd name" (id int)')
    with pytest.raises(Invalid, match=r"archive\.orders and sales\.orders"):
        shop.source({**BY_ID, "table.whitelist": "orders"}).streams()
    assert shop.drain(shop.stream("sales.orders", BY_ID, quote__sql__identifiers="never")).ids == [1]
    assert shop.drain(shop.stream("orders", BY_ID, schema__pattern="archive")).ids == [1]


def test_cursor_columns_are_found_by_the_name_of_the_table(shop: Shop):
    shop.sql("CREATE TABLE map_a (a_id bigserial PRIMARY KEY, changed timestamptz, created timestamptz NOT NULL)")
    shop.sql("CREATE TABLE map_b (b_id bigserial PRIMARY KEY, created timestamptz NOT NULL)")
    shop.sql("INSERT INTO map_a (created) VALUES ('2024-01-02'), ('2024-01-01')")
    shop.sql("INSERT INTO map_b (created) VALUES ('2024-01-03')")
    mode = {
        "mode": "timestamp+incrementing",
        "table.include.list": r"public\.map_.",
        "incrementing.column.mapping": "public.map_a:a_id, public.map_b:b_id",
        "timestamp.columns.mapping": "public.map_a:[changed|created],public.map_b:[created]",
    }
    first, second = shop.source(mode).streams()
    assert [row["_id"] for chunk in shop.drain(first).chunks for row in chunk] == [2, 1]
    assert shop.drain(second).position == Map({"timestamp_nanos": 0, "incrementing": 1, "timestamp": 1704240000000})
    short = shop.source({**mode, "incrementing.column.mapping": "public.map_a:a_id"})
    with pytest.raises(Invalid, match=r"no entry of incrementing\.column\.mapping matches the table public\.map_b"):
        short.streams()


@pytest.mark.parametrize("mode", [BY_ID, BY_TIME, BULK], ids=["id", "time", "bulk"])
@pytest.mark.parametrize("level", ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"])
def test_rows_are_read_with_the_isolation_level_of_the_connector(shop: Shop, mode, level: str):
    shop.sql("CREATE TABLE levels (id bigserial PRIMARY KEY, ts timestamptz NOT NULL DEFAULT now() - interval '1 day')")
    shop.sql("INSERT INTO levels DEFAULT VALUES")
    text = "SELECT id, ts, current_setting('transaction_isolation') AS level FROM levels"
    read = shop.drain(shop.query(text, mode, transaction__isolation__mode=level))
    (row,) = [row for chunk in read.chunks for row in chunk]
    is_shared = mode is not BY_ID and level == "READ_COMMITTED"  # readers of one snapshot need at least this level
    assert row["level"] == ("repeatable read" if is_shared else level.lower().replace("_", " "))


@pytest.mark.parametrize("zone", ["GMT-08:00", "+05:30", "PST", "Asia/Tokyo"])
def test_wall_times_are_read_in_every_zone_that_java_knows(shop: Shop, zone: str):
    shop.sql("CREATE TABLE walls (id bigserial PRIMARY KEY, ts timestamp NOT NULL)")
    shop.sql("INSERT INTO walls (ts) VALUES ('2024-01-02 03:04:05.25')")
    offset = {"GMT-08:00": "-08:00", "+05:30": "+05:30", "PST": "-08:00", "Asia/Tokyo": "+09:00"}[zone]
    millis = shop.sql(f"SELECT extract(epoch FROM timestamptz '2024-01-02 03:04:05.25{offset}') * 1000").split(".")[0]
    read = shop.drain(shop.stream("walls", BY_TIME, db__timezone=zone))
    assert read.position == Map({"timestamp_nanos": 250000000, "timestamp": int(millis)})
    assert read.chunks[0][0]["ts"] == int(millis)
    assert shop.stream("walls", BY_TIME, db__timezone=zone).plan(read.position, 1, 10) is None
