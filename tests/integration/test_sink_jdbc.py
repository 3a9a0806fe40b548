"""The JDBC sink without Spark: its writer and its sink are called as a task and the driver do. psql and sqlite3 look."""

import pytest

from integration.jdbc_sinks import IDS, column, enveloped, leftovers, order, start, struct, tombstone
from integration.ledgers import only_postgresql, only_sqlite, place
from playhead.errors import NotFound, Rejected, RowsRefused
from playhead.ledger.model import ClosedRange
from playhead.pipeline.records.batch import TASK_PUT

__all__ = ["place", "start"]
ALL = "select id, name, amount from orders order by id, name"


def test_rows_and_ranges_are_committed_together(start, place):
    run = start()
    closed = run.deliver(order(1, "a", 10), order(2, None, None))
    assert place.ask(ALL) == [("1", "a", "10"), ("2", "", "")]
    assert (closed.count, closed.hash_xor, closed.hash_sum) == (2, 0 ^ 1, 1)
    assert run.position() == 2
    assert leftovers(place) == []


def test_many_batches_go_into_one_table(start, place):
    run = start()
    run.size = 70
    run.deliver(*(order(number, f"n{number}" * 40, number) for number in range(1000)))
    found = place.ask("select count(*), sum(amount), min(length(name)), count(distinct name) from orders")
    assert found == [("1000", "499500", "80", "1000")]


def test_of_several_records_of_a_key_the_last_counts(start, place):
    run = start(insert_mode="upsert", pk_mode="record_key")
    run.size = 3
    run.deliver(*(order(number % 5, f"v{number}", number) for number in range(23)))
    assert place.ask(ALL) == [(str(key), f"v{last}", str(last)) for key, last in enumerate([20, 21, 22, 18, 19])]
    run.deliver(order(3, "new", None), order(9, "nine", 9))
    assert place.ask(ALL)[3:] == [("3", "new", ""), ("4", "v19", "19"), ("9", "nine", "9")]


def test_tombstones_delete_by_key_and_in_order(start, place):
    run = start(insert_mode="upsert", pk_mode="record_key", delete_enabled="true")
    run.deliver(tombstone(7))  # there is no table yet
    run.deliver(*(order(number, "old", number) for number in range(5)))
    run.deliver(
        tombstone(0),
        order(1, "new", 1),
        tombstone(1),
        tombstone(2),
        order(2, "back", 2),
        order(5, "x", 5),
        tombstone(5),
    )
    assert place.ask(ALL) == [("2", "back", "2"), ("3", "old", "3"), ("4", "old", "4")]
    run.deliver(tombstone(3), tombstone(99))
    assert place.ask("select id from orders order by id") == [("2",), ("4",)]
    assert run.rejected == []


def test_a_deleted_and_inserted_row_forgets_what_records_do_not_say(start, place):
    place.ask("create table orders (id bigint primary key, name text, amount int, note text default 'fresh')")
    run = start(insert_mode="upsert", pk_mode="record_key", delete_enabled="true", fields_whitelist="name")
    run.deliver(order(1, "a"), order(2, "b"))
    place.ask("update orders set note = 'mine'")
    run.deliver(tombstone(1), order(1, "again"))
    assert place.ask("select id, name, note from orders order by id") == [("1", "again", "fresh"), ("2", "b", "mine")]


def test_inserts_with_deletes_keep_what_comes_after_the_last_tombstone(start, place):
    run = start(pk_mode="record_key", delete_enabled="true")
    run.deliver(order(1, "a"), tombstone(1), order(1, "b"), order(2, "c"), tombstone(2))
    assert place.ask(ALL) == [("1", "b", "")]
    with pytest.raises(Rejected, match=r"merging rows into orders: .*(pkey|orders.id)"):
        run.deliver(order(1, "twice"))
    assert place.ask(ALL) == [("1", "b", "")]


def test_updates_change_only_rows_that_are_there(start, place):
    run = start(insert_mode="update", pk_mode="record_value", pk_fields="id")
    place.ask("create table orders (id bigint primary key, name text, amount int)")
    place.ask("insert into orders values (1, 'a', 1), (2, 'b', 2)")
    run.deliver(order(1, "first", 5), order(1, "last", 6), order(3, "none", 7))
    assert place.ask(ALL) == [("1", "last", "6"), ("2", "b", "2")]


def test_a_null_value_is_a_bad_record_unless_it_deletes(start, place):
    run = start()
    closed = run.deliver(order(1), tombstone(2), order(3))
    assert [(one.offset, one.reason) for one in run.rejected] == [(1, "its value is null")]
    assert (closed.count, closed.rejected) == (2, 1)
    assert place.ask("select id from orders order by id") == [("1",), ("3",)]


def test_a_record_without_a_key_is_bad_where_the_key_is_needed(start, place):
    run = start(pk_mode="record_key", insert_mode="upsert")
    closed = run.deliver((None, order(1)[1]), order(2), (b"{", order(3)[1]))
    assert [one.offset for one in run.rejected] == [0, 2]
    assert "its key is null" in run.rejected[0].reason and "its key does not fit" in run.rejected[1].reason
    assert closed.count == 1 and place.ask("select id from orders") == [("2",)]


def test_coordinates_are_a_primary_key(start, place):
    run = start(pk_mode="kafka", insert_mode="upsert")
    run.deliver(order(5, "a"), order(5, "b"))
    run.deliver(order(5, "c"), partition=3)
    found = place.ask("select __connect_topic, __connect_partition, __connect_offset, name from orders order by 2, 3")
    assert found == [("orders", "0", "0", "a"), ("orders", "0", "1", "b"), ("orders", "3", "0", "c")]


def test_a_primitive_key_is_one_column(start, place):
    run = start(pk_mode="record_key", pk_fields="code", insert_mode="upsert", delete_enabled="true",
                key_converter="org.apache.kafka.connect.storage.StringConverter", fields_whitelist="amount")  # fmt: skip
    run.deliver((b"x", order(1, "a", 1)[1]), (b"y", order(2, "b", 2)[1]), (b"x", order(3, "c", 3)[1]), (b"y", None))
    assert place.ask("select code, amount from orders") == [("x", "3")]


def test_topics_and_partitions_go_to_their_tables(start, place):
    run = start(insert_mode="upsert", pk_mode="record_key", table_name_format="t_${topic}")
    run.deliver(order(1, "a"), order(2, "b"))
    run.deliver(order(2, "later partition"), order(3, "c"), partition=1)
    run.deliver(order(1, "bill"), topic="bills")
    assert place.ask("select id, name from t_orders order by id") == [("1", "a"), ("2", "later partition"), ("3", "c")]
    assert place.ask("select id, name from t_bills") == [("1", "bill")]


def test_records_of_several_schemas_in_one_claim_keep_their_order(start, place):
    run = start(insert_mode="upsert", pk_mode="record_key", delete_enabled="true")
    short = struct(column("id", "int64", optional=False), column("name", "string"))
    brief = [
        (enveloped(IDS, {"id": number}), enveloped(short, {"id": number, "name": f"short{number}"}))
        for number in (1, 2)
    ]
    run.deliver(order(1, "a", 1), *brief, order(2, "long", 7), tombstone(1), order(3, "c", 3), *brief[:1])
    assert place.ask(ALL) == [("1", "short1", ""), ("2", "long", "7"), ("3", "c", "3")]


def test_a_table_that_is_missing_is_made_only_if_wanted(start, place):
    run = start(auto_create="false")
    with pytest.raises(NotFound, match="table 'orders' does not exist"):
        run.deliver(order(1))
    assert place.tables() & {"orders"} == set() and run.position() == 0


def test_a_record_with_a_field_that_the_table_lacks_is_a_bad_record(start, place):
    place.ask("create table orders (id bigint, name text)")
    run = start()
    short = struct(column("id", "int64", optional=False), column("name", "string"))
    fits = (None, enveloped(short, {"id": 2, "name": "b"}))
    closed = run.deliver(order(1, "a", 7), fits, order(3, "c", 9))
    assert [one.offset for one in run.rejected] == [0, 2]
    assert all("table orders has no column amount" in one.reason for one in run.rejected)
    assert (closed.count, closed.rejected) == (1, 2)
    assert place.ask("select id, name from orders") == [("2", "b")]


def test_a_record_without_a_field_that_the_table_needs_is_a_bad_record(start, place):
    place.ask("create table orders (id bigint, name text, amount int, due text not null)")
    run = start()
    closed = run.deliver(order(1, "a", 7))
    assert (closed.count, closed.rejected) == (0, 1)
    assert "column due of orders is NOT NULL, and the record has no such field" in run.rejected[0].reason


def test_a_null_for_a_column_that_needs_a_value_is_a_bad_record(start, place):
    place.ask("create table orders (id bigint, name text not null, amount int)")
    run = start()
    run.deliver(order(1, "a"), order(2, None), order(3, "c"))
    assert [(one.offset, one.reason) for one in run.rejected] == [
        (1, "field 'name' is null, and its column is NOT NULL")
    ]
    assert place.ask("select id from orders order by id") == [("1",), ("3",)]


def test_what_the_database_refuses_is_named_and_nothing_is_committed(start, place):
    place.ask("create table orders (id bigint, name text, amount int constraint small check (amount < 10))")
    run = start()
    with pytest.raises(Rejected, match="small") as caught:
        run.deliver(order(1, "a", 1), order(2, "b", 50))
    assert "nothing of its partition was committed" in str(caught.value.hint)
    assert place.ask("select count(*) from orders") == [("0",)] and run.position() == 0


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_what_the_database_refuses_is_found_record_by_record(start, place, mode):
    """After a first try that was refused as a whole."""
    rule = "constraint more check (amount > 0)"
    place.ask(f"create table orders (id bigint primary key, name text, amount int {rule})")
    run = start(insert_mode=mode, pk_mode="record_key")
    records = [order(n, "x" * n, -1 if n in (3, 7, 8, 40) else n) for n in range(1, 51)]
    claim = run.claimed(len(records) + 1)
    with pytest.raises(RowsRefused, match="more"):
        run.done(claim, *records, order(5, "again", 5))
    run.is_careful = True
    closed = run.done(claim, *records, order(5, "again", 5))
    refused = [2, 6, 7, 39] + (
        [50] if mode == "insert" else []
    )  # where a key comes twice, its second row is one too many
    assert [one.offset for one in run.rejected] == refused
    assert {one.stage for one in run.rejected} == {TASK_PUT}
    assert run.rejected[0].reason.startswith("table orders refuses it: ")
    assert "more" in run.rejected[0].reason
    assert (closed.count, closed.rejected) == (51 - len(refused), len(refused))
    assert place.ask("select count(*), min(amount) from orders") == [("46", "1")]
    assert place.ask("select name from orders where id = 5") == [("xxxxx" if mode == "insert" else "again",)]
    run.deliver(order(60, "later", 1))
    assert run.position() == 52


@only_sqlite
def test_a_table_that_ends_the_transaction_by_itself_is_reported(start, place):
    place.ask("create table orders (id bigint, name text, amount int unique on conflict rollback)")
    run = start()
    run.is_careful = True
    claim = run.claimed(3)
    with pytest.raises(Rejected, match="UNIQUE constraint failed") as caught:
        run.done(claim, order(1, "a", 1), order(2, "b", 1), order(3, "c", 3))
    assert not isinstance(caught.value, RowsRefused)
    assert place.ask("select count(*) from orders") == [("0",)]


@only_sqlite
def test_a_trial_of_many_rows_does_not_keep_readers_out(start, place):
    """Not its own task either, which looks for the table of every new schema."""
    place.ask("create table orders (id bigint, name text, amount int)")
    run = start()
    run.is_careful = True
    short = struct(column("id", "int64", optional=False), column("name", "string"))
    records = [order(n, "x" * 2_000, n) for n in range(3_000)]
    run.deliver(*records, (enveloped(IDS, {"id": 1}), enveloped(short, {"id": 1, "name": "last"})))
    assert place.ask("select count(*) from orders") == [("3001",)]


def test_a_claim_without_a_record_is_committed(start, place):
    """Its offsets are markers, or were aborted."""
    run = start()
    claim = run.claimed(3)
    run.writer()
    run.committed(claim, [ClosedRange(claim.range, 0, 0, 0)])
    assert run.position() == 3


@only_postgresql
def test_schemas_that_alternate_need_no_table_for_every_change(start, place):
    """Of two that take turns, one has a column more; each key ends with what its last record says."""
    place.ask("create table orders (id bigint primary key, name text, amount int)")
    run = start(insert_mode="upsert", pk_mode="record_key")
    short = struct(column("id", "int64", optional=False), column("name", "string"))
    records = [
        order(n % 50, f"n{n}", n)
        if n % 2
        else (enveloped(IDS, {"id": n % 50}), enveloped(short, {"id": n % 50, "name": f"n{n}"}))
        for n in range(1_000)
    ]
    run.deliver(*records)
    temporary = "select count(*) from pg_class where relname like 'playhead_merge_%'"
    assert place.ask(temporary) == [("0",)]
    wanted = [(str(key), f"n{950 + key}", str(950 + key) if key % 2 else "") for key in range(50)]
    assert place.ask("select id, name, coalesce(amount::text, '') from orders order by id") == wanted


def test_a_tombstone_beside_a_record_that_does_not_fit_deletes(start, place):
    run = start(insert_mode="upsert", pk_mode="record_key", delete_enabled="true")
    run.deliver(order(1, "a", 1), order(2, "b", 2), order(3, "c", 3))
    nested = struct(column("id", "int64", optional=False), {**struct(column("x", "string")), "field": "st"})
    unfit = (enveloped(IDS, {"id": 1}), enveloped(nested, {"id": 1, "st": {"x": "y"}}))
    run.deliver(tombstone(2), unfit, tombstone(1), unfit)
    assert [(one.offset, one.stage) for one in run.rejected] == [(4, TASK_PUT), (6, TASK_PUT)]
    assert "is a struct" in run.rejected[0].reason
    assert place.ask("select id from orders") == [("3",)]


@only_sqlite
def test_keys_that_are_one_to_the_table_end_with_the_last_record(start, place):
    place.ask("create table orders (name text collate nocase primary key, amount int)")
    named = struct(column("name", "string"), column("amount", "int32"))
    run = start(insert_mode="upsert", pk_mode="record_value", pk_fields="name")
    run.deliver(
        *[(None, enveloped(named, {"name": name, "amount": n})) for n, name in enumerate(["b", "a", "B", "A", "b"])]
    )
    assert place.ask("select lower(name), amount from orders order by 1") == [("a", "3"), ("b", "4")]


def test_names_are_folded_where_they_are_not_quoted(start, place):
    run = start(quote_sql_identifiers="never", table_name_format="MyOrders")
    run.deliver((None, enveloped(struct(column("Id", "int32", optional=False)), {"Id": 4})))
    assert place.ask("select id from myorders") == [("4",)]


def test_odd_names_are_only_names(start, place):
    odd = 'a "b" %s; drop table x --'
    run = start(pk_mode="record_value", pk_fields=odd, insert_mode="upsert", table_name_format='"or""ders %d :name"')
    schema = struct(column(odd, "int32", optional=False), column("%(x)s", "string", default="it's %"))
    run.deliver((None, enveloped(schema, {odd: 1, "%(x)s": "y"})), (None, enveloped(schema, {odd: 1, "%(x)s": "z"})))
    assert place.ask('select "a ""b"" %s; drop table x --", "%(x)s" from "or""ders %d :name"') == [("1", "z")]


@only_sqlite
def test_a_schema_is_not_known_to_sqlite(start, place):
    run = start(table_name_format="sales.orders")
    with pytest.raises(Exception, match="no schema 'sales'"):
        run.deliver(order(1))


@only_postgresql
def test_a_dot_names_the_schema(start, place):
    place.ask("create schema sales")
    start(table_name_format="sales.${topic}").deliver(order(1))
    assert place.ask("select id from sales.orders") == [("1",)]
