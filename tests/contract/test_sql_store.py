"""One suite over both databases of the SQL store. The rows are looked at with psql and with the sqlite3 module."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.consuming import Database as Rows
from playhead.config import Context
from playhead.errors import AccessDenied, Busy, Invalid, OutcomeUnknown, Unreachable
from playhead.ledger.consumer_offsets import Begin, OffsetMove, OffsetsTable
from playhead.model import Change, Deadline, Map, Position, Positions, Result, TopicPartition
from playhead.sql.address import parse_address, parse_table
from playhead.sql.database import Database
from playhead.sql.faults import translated
from playhead.stores import Access
from playhead.stores.open import open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def rows(request, lab, tmp_path, unique):
    return Rows(lab, request.param, tmp_path, unique("rows").replace("-", "_"))


@pytest.fixture
def table(unique):
    return unique("offsets").replace("-", "_")


@pytest.fixture
def open_it(rows, table):
    return lambda seconds=10.0, name=table: open_store(
        f"sql+{rows.url}?table={name}", Access(Context(None), Deadline(seconds))
    )


def change(before, after, owner="billing", partition=0):
    place = Map({"kafka_topic": "orders", "kafka_partition": partition})
    return Change(owner, place, at(before), at(after))


def at(offset):
    return None if offset is None else Map({"kafka_offset": offset})


def next_offsets(rows, table, owner="billing"):
    return {int(row["partition"]): int(row["next_offset"]) for row in rows.offsets(owner, table)}


def test_writes_are_what_the_databases_own_client_shows(rows, table, open_it):
    store = open_it()
    assert store.snapshot().entries == ()
    assert "does not exist" in store.snapshot().notes[0]
    assert store.write([change(None, 2**63 - 1), change(None, 0, partition=7), change(None, 3, "audit")]).exit_code == 0
    assert next_offsets(rows, table) == {0: 2**63 - 1, 7: 0}
    assert store.write([change(2**63 - 1, 5), change(0, None, partition=7)]).exit_code == 0
    assert next_offsets(rows, table) == {0: 5}
    assert next_offsets(rows, table, "audit") == {0: 3}
    shown = [(e.position.owner, e.position.offset) for e in open_it().snapshot().entries]
    assert shown == [("audit", at(3)), ("billing", at(5))]
    assert open_it().snapshot(["audit"]).by_owner().keys() == {"audit"}


def test_a_position_that_moved_meanwhile_is_refused_with_all_of_its_owner(rows, table, open_it):
    store = open_it()
    store.write([change(None, 5), change(None, 6, partition=1)])
    outcomes = store.write([change(5, 50), change(7, 70, partition=1), change(None, 1, "audit")])
    assert [outcome.result for outcome in outcomes] == [Result.REFUSED, Result.REFUSED, Result.CHANGED]
    assert next_offsets(rows, table) == {0: 5, 1: 6}


def test_of_two_who_write_at_once_one_is_refused(rows, table, open_it):
    open_it().write([change(None, 0)])
    results: list[Result] = []
    ready = threading.Barrier(8)

    def write(number):
        ready.wait(20)
        results.extend(outcome.result for outcome in open_it(30).write([change(0, number)]))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [Result.CHANGED, *[Result.REFUSED] * 7]


def test_of_many_that_create_the_table_at_once_none_fails(rows, table, open_it):
    faults: list[object] = []
    ready = threading.Barrier(8)

    def write(number):
        ready.wait(20)
        try:
            faults.extend(o for o in open_it(30).write([change(None, 1, f"g{number}")]) if o.result != Result.CHANGED)
        except Exception as error:  # noqa: BLE001 - shown below
            faults.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(open_it().snapshot().entries) == 8


def test_a_reader_makes_and_changes_nothing(rows, table, open_it):
    store = open_it()
    store.snapshot()
    store.history()
    store.guard(["billing"])
    ask = (
        "select count(*) from sqlite_master where name = '{}'"
        if rows.kind == "sqlite"
        else "select count(*) from pg_tables where tablename = '{}'"
    )
    assert rows.ask(ask.format(table)) == [("0",)]


def test_a_foreign_table_is_refused_with_words(rows, open_it):
    with pytest.raises(Invalid, match="it is not one of Playhead's"):
        open_it(name=rows.table).snapshot()
    with pytest.raises(Invalid, match="it is not one of Playhead's"):
        open_it(name=rows.table).write([change(None, 1)])


def test_odd_owners_and_topics_are_only_text(rows, table, open_it):
    owner, topic = "o'; drop table x; -- \" ü", "t'\"%s:x"
    place = Map({"kafka_topic": topic, "kafka_partition": 0})
    store = open_it()
    assert store.write([Change(owner, place, None, at(4))]).exit_code == 0
    (entry,) = store.snapshot([owner]).entries
    assert (entry.position.owner, entry.position.partition, entry.position.offset) == (owner, place, at(4))
    assert store.write([Change(owner, place, at(4), None)]).exit_code == 0


KILLED = """
import os, signal, sys
from playhead.sql.database import Database
from playhead.sql.faults import translated
from playhead.ledger.consumer_offsets import OffsetsTable
real = OffsetsTable.put
def put(self, connection, *values):
    done = real(self, connection, *values)
    os.kill(os.getpid(), signal.SIGKILL)
    return done
OffsetsTable.put = put
from playhead.config import Context
from playhead.model import Change, Deadline, Map
from playhead.stores import Access
from playhead.stores.open import open_store
place = Map({"kafka_topic": "orders", "kafka_partition": 0})
store = open_store(sys.argv[1], Access(Context(None), Deadline(10)))
store.write([Change("billing", place, Map({"kafka_offset": 5}), Map({"kafka_offset": 99}))])
"""


def test_a_writer_killed_before_its_commit_leaves_the_old_rows(rows, table, open_it):
    """F02, with a real process."""
    store = open_it()
    store.write([change(None, 5)])
    done = subprocess.run([sys.executable, "-c", KILLED, f"sql+{rows.url}?table={table}"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert next_offsets(rows, table) == {0: 5}
    assert store.write([change(5, 6)]).exit_code == 0


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    plans=st.lists(
        st.dictionaries(
            st.tuples(st.sampled_from("ab"), st.integers(0, 2)), st.one_of(st.none(), st.integers(0, 2**63 - 1))
        ),
        max_size=3,
    )
)
def test_planning_again_after_any_write_gives_nothing_to_do(open_it, unique, plans):
    store = open_it(name=unique("t").replace("-", "_"))
    for plan in plans:
        wanted = Positions(Position.of_kafka(owner, "orders", number, at) for (owner, number), at in plan.items())
        assert store.write(_now(store).diff(wanted)).exit_code == 0
        assert _now(store).diff(wanted) == []


def _now(store):
    return Positions(entry.position for entry in store.snapshot().entries)


# The rows under a consumer's hands


@pytest.fixture
def hands(rows, table):
    """The table, and a function that runs something in a transaction of it."""
    offsets = OffsetsTable(parse_table(table))
    with Database(parse_address(rows.url), 10) as database:
        with database.transaction("making") as connection:
            offsets.ensure(connection)

        def within(act):
            with database.transaction("testing", lock_seconds=0.5) as connection, translated("testing"):
                return act(offsets, connection)

        yield within


PLACE = TopicPartition("orders", 0)


def claimed(hands, holder, **options):
    return hands(lambda table, c: table.claim(c, "billing", holder, {PLACE: Begin("id", 0)}, **options)).get(PLACE)


def moved(hands, holder, epoch, before, after):
    return (
        hands(lambda table, c: table.advance(c, "billing", holder, [OffsetMove(PLACE, epoch, before, after)])) is None
    )


def test_only_the_last_to_claim_can_move_and_an_edit_takes_it_away(hands, open_it):
    assert claimed(hands, "a").epoch == 1
    assert moved(hands, "a", 1, 0, 10)
    assert claimed(hands, "b", polite=True) is None
    assert claimed(hands, "b").epoch == 2
    assert not moved(hands, "a", 1, 10, 20)
    assert [refusal.owner for refusal in open_it().guard(["billing", "audit"])] == ["billing"]
    assert open_it().write([change(10, 4)]).exit_code == 0
    assert not moved(hands, "b", 2, 10, 20)
    assert not moved(hands, "b", 2, 4, 20)
    assert open_it().guard(["billing"]) == []


def test_a_lease_lapses_by_the_databases_own_clock(rows, hands, table, open_it):
    claimed(hands, "a")
    past = "2020-01-01 00:00:00.000000" + ("" if rows.kind == "sqlite" else "+00")
    rows.ask(f"update {table} set held_until = '{past}'")
    assert open_it().guard(["billing"]) == []
    assert claimed(hands, "b", polite=True).epoch == 2


@pytest.mark.parametrize("rows", ["postgresql"], indirect=True)
def test_a_row_that_another_process_is_moving_is_waited_for(rows, hands, table):
    """The wait has a limit. (SQLite locks the whole file: see the unit tests.)"""
    claimed(hands, "a")
    with (
        Database(parse_address(rows.url), 10) as other,
        other.transaction("moving") as connection,
    ):
        OffsetsTable(parse_table(table)).locked(connection, "billing", [PLACE])
        with pytest.raises(Busy, match="lock timeout"):
            claimed(hands, "b")
    assert claimed(hands, "b").epoch == 2


# PostgreSQL alone


@pytest.fixture
def postgres(lab):
    return lab.postgres_url


def test_a_server_that_is_not_there_does_not_know_us_or_has_no_such_database_is_said(postgres, monkeypatch):
    def ask(url):
        open_store(f"sql+{url}", Access(Context(None), Deadline(5))).snapshot()

    with pytest.raises(Unreachable, match="refused"):
        ask("postgresql://me@127.0.0.1:1/x")
    with pytest.raises(Unreachable, match='database "nowhere" does not exist') as raised:
        ask(postgres.replace("/lab", "/nowhere"))
    assert raised.value.hint == "create the database first"
    with pytest.raises(AccessDenied, match='role "stranger" does not exist') as denied:
        ask(postgres.replace("playhead@", "stranger:s3cret@"))
    assert "s3cret" not in f"{denied.value.what} {denied.value.hint}"


def test_a_user_without_rights_gets_access_denied(lab, postgres, unique):
    name = unique("reader").replace("-", "_")
    lab.psql(f"create role {name} login")
    store = open_store(f"sql+{postgres.replace('playhead@', name + '@')}", Access(Context(None), Deadline(5)))
    with pytest.raises(AccessDenied, match="permission denied"):
        store.write([change(None, 1)])


def test_a_connection_that_breaks_while_committing_is_an_unknown_outcome(lab, postgres, table):
    """The server ends our session at that moment: the client cannot know the outcome."""
    name = f"doomed-{os.getpid()}"
    address = parse_address(f"{postgres}?application_name={name}")
    end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = "
    with (
        closing(Database(address, 10)) as database,
        pytest.raises(OutcomeUnknown, match="while committing"),
        database.transaction("committing a batch") as connection,
    ):
        connection.exec_driver_sql(f"create table {table} (x int)")
        lab.psql(end + f"'{name}'")
    assert lab.psql("select count(*) from pg_tables where tablename = " + f"'{table}'") == "0"


def test_a_writer_that_falls_asleep_in_its_transaction_is_thrown_out(lab, postgres):
    name = f"sleeper-{os.getpid()}"
    seen = "select count(*) from pg_stat_activity where application_name = " + f"'{name}'"
    address = parse_address(f"{postgres}?application_name={name}")
    with (
        closing(Database(address, 10)) as database,
        pytest.raises((Unreachable, OutcomeUnknown)),
        database.transaction("sleeping", idle_limit_seconds=0.3) as connection,
    ):
        connection.exec_driver_sql("select 1")
        Deadline(20).wait_for(lambda: lab.psql(seen) == "0", "the end of the session")
