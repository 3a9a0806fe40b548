"""What the JDBC source does about others who write the same table, about odd names, and about a database in trouble."""

# ruff: noqa: F401  (fixtures are imported by name and asked for by name)

import random
import time
from threading import Event, Thread, Timer

import pytest

from integration.jdbc_reading import BY_BOTH, BY_ID, BY_TIME, ORDERS, Shop, database, filled, shop
from playhead.errors import AccessDenied, Invalid, NotFound, Refused, Unreachable
from playhead.model import Deadline, Map
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.options import Connection
from playhead.pipeline.ingest.jdbc.stream import JdbcStream, StreamOptions
from playhead.pipeline.ingest.jdbc.tables import find_tables

pytest.importorskip("pyspark")


@pytest.mark.parametrize("mode", [BY_ID, BY_BOTH, BY_TIME])
def test_an_open_transaction_holds_the_horizon_back(shop: Shop, mode: dict[str, str]):
    filled(shop, 5)
    with shop.session() as till:
        till.execute("INSERT INTO orders (name) VALUES ('six')")
        shop.sql("INSERT INTO orders (name) VALUES ('seven')")
        read = shop.drain(shop.stream("orders", mode))
        assert 7 not in read.ids
        assert "of playhead (till) since" in read.horizon
        till.commit()
    rest = shop.drain(shop.stream("orders", mode), position=read.position)
    assert sorted(read.ids + rest.ids) == [1, 2, 3, 4, 5, 6, 7]


def test_a_transaction_that_ends_in_time_is_waited_for(shop: Shop):
    filled(shop, 5)
    stream = shop.stream("orders", BY_ID, StreamOptions(horizon_seconds=20))
    with shop.session() as till:
        till.execute("INSERT INTO orders (name) VALUES ('six')")
        shop.sql("INSERT INTO orders (name) VALUES ('seven')")
        Timer(0.5, till.commit).start()
        assert shop.drain(stream).ids == [1, 2, 3, 4, 5, 6, 7]


def test_a_writer_who_comes_after_the_end_is_not_waited_for(shop: Shop):
    filled(shop, 5)
    stream = shop.stream("orders", BY_ID, StreamOptions(horizon_seconds=60))
    step = stream.plan(None, 1, 3)
    assert step is not None
    with shop.session() as till:
        till.execute("INSERT INTO orders (name) VALUES ('six')")
        assert stream.plan(Map({"incrementing": 3}), 1, 3) is not None


def test_a_transaction_that_began_before_it_wrote_holds_timestamps_back(shop: Shop):
    shop.sql(ORDERS)
    with shop.session() as till:
        till.execute("SELECT 1")
        shop.sql("INSERT INTO orders (name) VALUES ('later, but first')")
        read = shop.drain(shop.stream("orders", BY_TIME))
        assert read.ids == []
        till.execute("INSERT INTO orders (name) VALUES ('from the start of its transaction')")
        till.commit()
    assert sorted(shop.drain(shop.stream("orders", BY_TIME), position=read.position).ids) == [1, 2]


@pytest.mark.parametrize("mode", [BY_ID, BY_TIME, BY_BOTH])
def test_nothing_is_lost_or_doubled_under_many_writers(shop: Shop, mode: dict[str, str]):
    shop.sql(ORDERS, "CREATE INDEX ON orders (ts, id)")
    stop = Event()

    def write(seed: int) -> None:
        """Transactions that wait before and after they write; some of them are given up."""
        dice = random.Random(seed)
        with shop.session() as till:
            while not stop.is_set():
                till.execute("SELECT 1")
                stop.wait(dice.random() / 20)
                for _ in range(dice.randint(1, 3)):
                    till.execute("INSERT INTO orders (name) VALUES ('x')")
                stop.wait(dice.random() / 10)
                till.rollback() if dice.random() < 0.2 else till.commit()
            till.rollback()

    writers = [Thread(target=write, args=(seed,)) for seed in range(4)]
    for writer in writers:
        writer.start()
    read: list[int] = []
    position: Map | None = None
    rounds = 0
    end = time.monotonic() + 5
    while time.monotonic() < end or rounds < 3:
        drained = shop.drain(
            shop.stream("orders", mode, StreamOptions(horizon_seconds=10)), rows=200, position=position, most=1
        )
        read, position, rounds = read + drained.ids, drained.position, rounds + 1
    stop.set()
    for writer in writers:
        writer.join()
    read += shop.drain(shop.stream("orders", mode), rows=1000, position=position).ids
    assert sorted(read) == [int(text) for text in shop.sql("SELECT id FROM orders ORDER BY id").split()]
    assert len(read) > 50


def test_a_prepared_transaction_holds_the_horizon_back(shop: Shop):
    filled(shop, 5)
    with shop.session() as till:
        till.execute("INSERT INTO orders (name) VALUES ('six')")
        till.execute("PREPARE TRANSACTION 'cash'")
        till.commit()
    try:
        shop.sql("INSERT INTO orders (name) VALUES ('seven')")
        for mode in (BY_ID, BY_TIME):
            read = shop.drain(shop.stream("orders", mode))
            assert read.ids == []
            assert "the prepared transaction 'cash'" in read.horizon
    finally:
        shop.sql("COMMIT PREPARED 'cash'")
    assert shop.drain(shop.stream("orders", BY_ID)).ids == [1, 2, 3, 4, 5, 6, 7]


def test_partitions_of_a_table_are_watched(shop: Shop):
    shop.sql(
        "CREATE TABLE orders (id bigserial, shop int, PRIMARY KEY (id, shop)) PARTITION BY LIST (shop)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES IN (1)",
        "CREATE TABLE orders_2 PARTITION OF orders FOR VALUES IN (2) PARTITION BY LIST (shop)",
        "CREATE TABLE orders_2a PARTITION OF orders_2 FOR VALUES IN (2)",
    )
    stream = shop.stream("orders", BY_ID, table__types="PARTITIONED TABLE")
    with shop.session() as till:
        till.execute("INSERT INTO orders_2a (id, shop) VALUES (nextval('orders_id_seq'), 2)")
        shop.sql("INSERT INTO orders (shop) VALUES (1)")
        assert shop.drain(stream).ids == []
        till.commit()
    assert shop.drain(stream).ids == [1, 2]


def test_readers_and_maintenance_are_not_waited_for(shop: Shop):
    filled(shop, 5)
    with shop.session() as till:
        till.execute("SELECT * FROM orders FOR UPDATE")
        till.execute("LOCK TABLE orders IN SHARE UPDATE EXCLUSIVE MODE")
        assert shop.drain(shop.stream("orders", BY_ID)).ids == [1, 2, 3, 4, 5]


def test_an_id_that_was_fetched_before_its_insert_is_passed_over_and_the_horizon_says_that_it_may_be(shop: Shop):
    """Nothing in the database shows such an id: the transaction has no lock on the table."""
    shop.sql(ORDERS)
    stream = shop.stream("orders", BY_ID)
    with shop.session() as till:
        till.execute("SELECT nextval('orders_id_seq')")
        shop.sql("INSERT INTO orders DEFAULT VALUES")
        step = stream.plan(None, 1, 10)
        assert step is not None and "nextval" in step.horizon
        read = shop.drain(stream)
        assert read.ids == [2]
        till.execute("INSERT INTO orders (id) VALUES (1)")
        till.commit()
    assert shop.drain(stream, position=read.position).ids == []


def test_what_weakens_the_horizon_is_said(shop: Shop):
    shop.sql("CREATE TABLE own (id int PRIMARY KEY)", "CREATE SEQUENCE pool CACHE 50")
    shop.sql("CREATE TABLE pooled (id int PRIMARY KEY DEFAULT nextval('pool'))", ORDERS)
    shop.sql("INSERT INTO own VALUES (1)", "INSERT INTO pooled DEFAULT VALUES", "INSERT INTO orders DEFAULT VALUES")
    words = {name: shop.stream(name, BY_ID).plan(None, 1, 10) for name in ("own", "pooled", "orders")}
    assert "has no default" in words["own"].horizon  # type: ignore[union-attr]
    assert "CACHE 50" in words["pooled"].horizon  # type: ignore[union-attr]
    fetched = "ids that a client fetches with nextval before its INSERT are not waited for"
    assert words["orders"].horizon == f"up to id 1; {fetched}"  # type: ignore[union-attr]
    assert words["pooled"].horizon.endswith(fetched)  # type: ignore[union-attr]


def test_a_query_is_held_back_by_writers_of_its_tables(shop: Shop):
    filled(shop, 5)
    shop.sql("CREATE TABLE names (name text)")
    query = "SELECT o.id, o.name FROM orders o LEFT JOIN names n USING (name) WHERE o.id <> 3"
    shop.sql(f"CREATE VIEW seen AS {query}")
    view = shop.stream("seen", BY_ID, table__types="VIEW", validate__non__null="false")
    stream = shop.query(query, BY_ID)
    assert (stream.topic, stream.name, list(stream.partitions)) == ("q", "query", [Map({"query": "query"})])
    with shop.session() as till:
        till.execute("INSERT INTO orders (name) VALUES ('six')")
        shop.sql("INSERT INTO orders (name) VALUES ('seven')")
        assert shop.drain(stream).ids == shop.drain(view).ids == []
        till.commit()
    assert shop.drain(stream).ids == shop.drain(view).ids == [1, 2, 4, 5, 6, 7]


def test_missing_rights_to_see_others_are_said_and_do_not_hurt(shop: Shop):
    filled(shop, 5)
    shop.sql(
        "DROP ROLE IF EXISTS weak",
        "CREATE ROLE weak LOGIN",
        "GRANT USAGE ON SCHEMA public TO weak",
        "GRANT SELECT ON orders TO weak",
    )
    stream = shop.stream("orders", {**BY_ID, "connection.user": "weak"})
    with shop.session() as till:
        till.execute("INSERT INTO orders (name) VALUES ('six')")
        shop.sql("INSERT INTO orders (name) VALUES ('seven')")
        assert shop.drain(stream).ids == []
        assert shop.drain(shop.stream("orders", {**BY_TIME, "connection.user": "weak"})).ids == []
        till.commit()
    step = stream.plan(None, 1, 10)
    assert step is not None and "pg_read_all_stats" in step.horizon
    assert len(shop.read(step)[0]) == 7
    shop.sql("DROP OWNED BY weak")


def test_a_table_is_found_by_each_form_of_its_name(shop: Shop, database: str):
    shop.sql("CREATE SCHEMA sales", "CREATE TABLE sales.orders (id serial)", ORDERS)
    with pytest.raises(Invalid, match=r"public\.orders and sales\.orders have one name"):
        shop.source(BY_ID, table__whitelist="orders").streams()
    for form in ("sales.orders", f"{database}.sales.orders", '"sales"."orders"'):
        (stream,) = shop.source(BY_ID, table__include__list=form).streams()
        assert (stream.name, stream.topic) == ("sales.orders", "t_orders")
        assert list(stream.partitions) == [
            Map({"protocol": "1", "table": "sales.orders"}),
            Map({"protocol": "1", "table": f"{database}.sales.orders"}),
            Map({"table": "orders"}),
        ]
    (stream,) = shop.source(BY_ID, StreamOptions(with_catalog=True), schema__pattern="sales").streams()
    assert stream.partitions[0] == Map({"protocol": "1", "table": f"{database}.sales.orders"})
    for pattern in ("sales\\..*", ".*\\.sales\\.ord[a-z]+"):
        (stream,) = shop.source(BY_ID, table__include__list=pattern).streams()
        assert stream.name == "sales.orders"
    (stream,) = shop.source(BY_ID, table__exclude__list="public.*").streams()
    assert stream.name == "sales.orders"
    (stream,) = shop.source(BY_ID, table__blacklist="public.orders").streams()
    assert stream.name == "sales.orders"


def test_a_table_that_is_not_there_is_answered_with_what_is(shop: Shop):
    shop.sql(ORDERS, 'CREATE TABLE "Mixed" (id int)', "CREATE VIEW seen AS SELECT * FROM orders")
    with pytest.raises(NotFound) as error:
        shop.stream("order", BY_ID)
    assert "public.orders" in (error.value.hint or "")
    with pytest.raises(NotFound):
        shop.stream("mixed", BY_ID)
    assert shop.stream("Mixed", BY_ID).name == "public.Mixed"
    assert shop.stream("seen", BY_ID, table__types="VIEW").name == "public.seen"


ODD = [
    'a "quoted" one',
    "a; DROP TABLE orders; --",
    "ünïcödé 😀",
    "Mixed. Dot",
    "it's",
    "back\\slash",
    "per%cent ?",
    "$1 {ts x}",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_read_as_they_are(shop: Shop, name: str):
    quoted = '"' + name.replace('"', '""') + '"'
    shop.sql(
        ORDERS,
        f"CREATE TABLE {quoted} ({quoted} bigserial NOT NULL, v int)",
        f"INSERT INTO {quoted} (v) SELECT 1 FROM generate_series(1, 5)",
    )
    config = {"mode": "incrementing", "incrementing.column.name": name}
    with pytest.raises(Invalid, match="is not a valid topic name"):
        shop.stream(name, config)
    stream = shop.query(f"SELECT * FROM {quoted}", config)
    step = stream.plan(None, 2, 3)
    assert step is not None
    assert [row[name] for chunk in shop.read(step) for row in chunk] == [1, 2, 3, 4, 5]
    assert shop.sql("SELECT count(*) FROM orders") == "0"


def test_an_odd_table_name_is_quoted_everywhere(shop: Shop):
    shop.sql('CREATE TABLE "o""d; é\\\'s" (id bigserial PRIMARY KEY)', 'INSERT INTO "o""d; é\\\'s" DEFAULT VALUES')
    plain = shop.query("SELECT 1 AS id", BY_ID)
    (table,) = find_tables(plain.database, plain.flavour, plain.options.tables)
    stream = JdbcStream(plain.database, plain.flavour, plain.options, table)
    assert shop.drain(stream).ids == [1]
    assert stream.protection.words == "ids that a client fetches with nextval before its INSERT are not waited for"


def test_an_unreachable_database_and_wrong_credentials_are_distinguished(shop: Shop):
    def opened(url: str, user: str = "playhead") -> str:
        return JdbcDatabase(shop.spark, Connection(url, user)).product

    with pytest.raises(Unreachable) as refused:
        opened("jdbc:postgresql://127.0.0.1:1/lab?password=geheim")
    assert "geheim" not in refused.value.what
    with pytest.raises(AccessDenied, match="role"):
        opened(shop.jdbc_url, "nobody")
    with pytest.raises(NotFound, match="elsewhere"):
        opened(shop.jdbc_url + "elsewhere")
    with pytest.raises(Invalid, match="no JDBC driver"):
        opened("jdbc:nosuch:thing")


def test_a_driver_may_be_named(shop: Shop):
    filled(shop, 3)
    assert shop.drain(shop.stream("orders", {**BY_ID, "connection.driver": "org.postgresql.Driver"})).ids == [1, 2, 3]
    with pytest.raises(Invalid, match="no JDBC driver"):
        shop.stream("orders", {**BY_ID, "connection.driver": "no.such.Driver"})


def test_a_table_that_goes_away_between_plan_and_read_is_not_found(shop: Shop):
    filled(shop, 3)
    step = shop.stream("orders", BY_ID).plan(None, 1, 10)
    assert step is not None
    shop.sql("DROP TABLE orders")
    with pytest.raises(NotFound, match="orders"):
        shop.read(step)


def test_no_snapshot_is_left_behind(shop: Shop):
    filled(shop, 20)
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'playhead' AND xact_start IS NOT NULL"
    stream = shop.stream("orders", BY_TIME)
    step = stream.plan(None, 2, 5)
    assert step is not None and shop.sql(open_ones) == "1"
    step.close()
    with pytest.raises(Refused):
        shop.stream("orders", BY_TIME, StreamOptions(most_rows=5)).plan(None, 2, 5)
    Deadline(10).wait_for(lambda: shop.sql(open_ones) == "0", "the end of the snapshots")


def test_a_broken_connection_is_made_anew(shop: Shop):
    filled(shop, 5)
    stream = shop.stream("orders", BY_ID)
    assert stream.plan(None, 1, 10) is not None
    shop.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'playhead'")
    with pytest.raises(Unreachable):
        stream.plan(Map({"incrementing": 5}), 1, 10)
    assert stream.plan(Map({"incrementing": 2}), 1, 10) is not None
