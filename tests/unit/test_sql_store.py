"""The SQL store on SQLite, and everything about it that needs no server: addresses, names, faults, a missing extra."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from sqlalchemy.exc import DBAPIError

from playhead.config import Context
from playhead.errors import AccessDenied, Busy, Invalid, Rejected, TimedOut, Unreachable
from playhead.ledger.consumer_offsets import Begin, OffsetMove, OffsetsTable
from playhead.model import Change, Deadline, Map, Result, TopicPartition
from playhead.sql.address import parse_address, parse_table
from playhead.sql.database import Database
from playhead.sql.faults import fault_of
from playhead.stores import Access
from playhead.stores.open import open_store

PLACE = Map({"kafka_topic": "orders", "kafka_partition": 0})
ORDERS = TopicPartition("orders", 0)


def change(before, after, owner="billing", partition=PLACE):
    return Change(owner, partition, at(before), at(after))


def at(offset):
    return None if offset is None else Map({"kafka_offset": offset})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "offsets.db"


@pytest.fixture
def store(path):
    return open_store(f"sql+sqlite:///{path}", Access(Context(None), Deadline(10)))


def ask(path, sql):
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(sql).fetchall()
        connection.commit()
    return found


# Addresses


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sqlite:////tmp/x.db", "sql+sqlite:////tmp/x.db"),
        ("sql+sqlite:////tmp/x.db?table=mine", "sql+sqlite:////tmp/x.db?table=mine"),
        ("postgresql://me@db/shop", "sql+postgresql://me@db/shop"),
        ("sql+postgresql://me:s3cret@db:5433/shop", "sql+postgresql://me@db:5433/shop"),
        ("postgresql+psycopg://me:s3%40cret@[::1]:5433/shop", "sql+postgresql://me@[::1]:5433/shop"),
        ("postgresql:///shop", "sql+postgresql:///shop"),
        (
            "postgresql://db/shop?sslmode=require&table=app.offsets",
            "sql+postgresql://db/shop?sslmode=require&table=app.offsets",
        ),
        ("postgresql://me:${env:SECRET_WORD}@db/shop", "sql+postgresql://me:${env:SECRET_WORD}@db/shop"),
    ],
)
def test_what_is_shown_of_an_address_has_no_password_and_leads_to_the_same_place(text, shown, monkeypatch):
    monkeypatch.setenv("SECRET_WORD", "s3cret:/@")
    address = parse_address(text)
    assert address.shown == shown
    assert parse_address(shown).shown == shown
    assert "s3" not in repr(address)
    if "env:" in text:
        assert address.url.password == "s3cret:/@"


def test_a_relative_path_is_shown_so_that_it_works_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_address("sqlite:///sub/x.db").shown == f"sql+sqlite:///{tmp_path}/sub/x.db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mysql://me:s3cret@db/shop", "is not the URL of a database"),
        ("postgresql:db", "is not the URL of a database"),
        ("postgresql://me:s3cret@db:port/shop", "is not the URL of a database"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite://host/x.db", "must be a file"),
        ("sqlite:///x.db?mode=ro", "no option 'mode'"),
        ("sqlite:///x.db?table=a.b", "cannot be a table"),
        ("sqlite:///x.db?table=sqlite_x", "cannot be a table"),
        ("postgresql://db/shop?password=s3cret", "'password' of a PostgreSQL URL is not allowed"),
        ("postgresql://db/shop?service=s3cret", "'service' of a PostgreSQL URL is not allowed"),
        ("postgresql://me:${env:NOT_SET_ANYWHERE}@db/shop", "cannot be resolved"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_secrets(text, words):
    with pytest.raises(Invalid, match=words) as raised:
        parse_address(text)
    assert "s3cret" not in f"{raised.value.what} {raised.value.hint}"


def test_a_reference_to_a_file_is_not_followed(tmp_path):
    """An address may come from a plan that another user wrote; it must not be able to send our files anywhere."""
    (tmp_path / "key").write_text("s3cret")
    address = parse_address(f"postgresql://me:${{file:{tmp_path}/key}}@db/shop")
    assert address.url.password == f"${{file:{tmp_path}/key}}"
    assert address.shown == "sql+postgresql://me@db/shop"


@pytest.mark.parametrize(
    "name", ["", "a b", 'x"y', "x;drop table y", "x'--", "a.b.c", ".a", "a.", "1x", "x" * 64, "é" * 32, "a\x00b", "a-b"]
)
def test_a_name_that_no_table_should_have_is_refused(name):
    with pytest.raises(Invalid):
        parse_table(name)


@pytest.mark.parametrize("name", ["offsets", "Offsets", "_x$1", "größe", "select", "x" * 63])
def test_any_other_name_is_quoted_and_works(name, path):
    store = open_store(f"sql+sqlite:///{path}?table={name}", Access(Context(None), Deadline(10)))
    assert store.write([change(None, 7)]).exit_code == 0
    assert ask(path, f'select next_offset from "{name}"') == [(7,)]
    assert store.snapshot().entries[0].position.offset == at(7)


# The store


def test_where_nothing_was_written_yet_there_is_nothing_and_nothing_is_made(store, path):
    found = store.snapshot()
    assert (found.entries, store.guard(["billing"])) == ((), [])
    assert "does not exist: no consumer has stored an offset there yet" in found.notes[0]
    assert not path.exists()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table something_else (x)")
    assert "does not exist" in store.snapshot().notes[0]
    assert ask(path, "select name from sqlite_master") == [("something_else",)]


def test_a_written_position_is_the_row_and_is_read_back(store, path):
    outcomes = store.write([change(None, 5), change(None, 0, owner="audit"), change(None, 2**63 - 1, owner="far")])
    assert [outcome.result for outcome in outcomes] == [Result.CHANGED] * 3
    rows = ask(path, "select owner, topic, partition, next_offset, epoch, holder from playhead_offsets order by owner")
    assert rows == [
        ("audit", "orders", 0, 0, 1, None),
        ("billing", "orders", 0, 5, 1, None),
        ("far", "orders", 0, 2**63 - 1, 1, None),
    ]
    found = store.snapshot(["billing"])
    (entry,) = found.entries
    assert (entry.position.owner, entry.position.partition, entry.position.offset) == ("billing", PLACE, at(5))
    assert entry.where["epoch"] == 1
    assert str(entry.where["written"]).endswith("Z")
    assert "@" in str(entry.where["written_by"])
    assert "no history" in store.history().notes[0]


def test_a_change_is_made_only_from_where_the_plan_saw_it(store):
    assert store.write([change(None, 5)]).exit_code == 0
    other = Map({"kafka_topic": "orders", "kafka_partition": 1})
    for wrong in (change(4, 6), change(None, 6), change(6, None)):
        outcomes = list(store.write([change(None, 1, partition=other), wrong]))
        assert [outcome.result for outcome in outcomes] == [Result.REFUSED] * 2
        assert "found 5" in outcomes[1].detail
    assert [entry.position.offset for entry in store.snapshot().entries] == [at(5)]
    assert [o.result for o in store.write([change(5, 5)])] == [Result.UNCHANGED]
    assert store.snapshot().entries[0].where["epoch"] == 1
    assert [o.result for o in store.write([change(5, 6), change(9, 8, owner="other")])] == [
        Result.CHANGED,
        Result.REFUSED,
    ]
    assert [o.result for o in store.write([change(6, None)])] == [Result.CHANGED]
    assert store.snapshot().entries == ()


@pytest.mark.parametrize(
    "wrong",
    [
        change(None, -1),
        Change("g", PLACE, None, Map({"kafka_offset": "5"})),
        Change("g", PLACE, None, Map({"kafka_offset": True})),
        Change("g", PLACE, None, Map({"kafka_offset": 5, "more": 1})),
        Change("g", PLACE, None, Map({})),
        Change("g", Map({"kafka_topic": "t"}), None, at(1)),
        Change("g", Map({"kafka_topic": "t", "kafka_partition": -1}), None, at(1)),
        Change("g", Map({"kafka_topic": "t", "kafka_partition": 2**31}), None, at(1)),
        Change("g", Map({"kafka_topic": 5, "kafka_partition": 1}), None, at(1)),
        Change("g", Map({"filename": "x"}), None, at(1)),
    ],
    ids=str,
)
def test_what_is_no_position_of_a_consumer_is_refused_before_anything_is_written(store, path, wrong):
    with pytest.raises(Invalid):
        store.write([change(None, 5), wrong])
    assert not path.exists()


def test_a_table_of_another_shape_is_refused_with_words(store, path):
    ask(path, "create table playhead_offsets (owner text, topic text, partition int)")
    for attempt in (store.snapshot, lambda: store.write([change(None, 1)])):
        with pytest.raises(Invalid, match=r"playhead_offsets has no column 'topic_id': it is not one of Playhead's"):
            attempt()
    ask(path, "drop table playhead_offsets")
    columns = "owner, topic, partition, topic_id, next_offset, epoch, holder, held_until, written, written_by"
    ask(path, f"create table playhead_offsets ({columns})")
    with pytest.raises(Invalid, match="has another primary key"):
        store.snapshot()


def test_what_is_not_a_database_is_said(store, path):
    path.write_text("this is a text file, long enough to be looked at as a database header")
    with pytest.raises(Invalid, match="file is not a database"):
        store.snapshot()
    assert path.read_text().startswith("this is a text file")
    missing = open_store("sql+sqlite:////no/such/folder/x.db", Access(Context(None), Deadline(10)))
    with pytest.raises(Unreachable, match="unable to open database file"):
        missing.write([change(None, 1)])


def test_a_database_that_another_process_writes_is_waited_for_and_then_reported(path):
    store = open_store(f"sql+sqlite:///{path}", Access(Context(None), Deadline(1)))
    store.write([change(None, 5)])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(Busy, match="database is locked"):
            store.write([change(5, 6)])
    assert ask(path, "select next_offset from playhead_offsets") == [(5,)]


# The table, as the consumer uses it


@pytest.fixture
def table(path):
    table = OffsetsTable(parse_table("playhead_offsets"))
    with Database(parse_address(f"sqlite:///{path}"), 5) as database:
        with database.transaction("making") as connection:
            table.ensure(connection)
        yield lambda act: _within(database, act, table)


def _within(database, act, table):
    with database.transaction("testing") as connection:
        return act(table, connection)


def claim(holder, *, start=0, polite=False, topic_id="id-1"):
    begins = {ORDERS: Begin(topic_id, start)}
    return lambda table, connection: table.claim(connection, "billing", holder, begins, polite=polite)


def advance(holder, epoch, before, after):
    move = OffsetMove(ORDERS, epoch, before, after)
    return lambda table, connection: table.advance(connection, "billing", holder, [move])


def test_the_last_claim_is_the_only_one_that_can_move(table):
    first = table(claim("a", start=3))[ORDERS]
    assert (first.next_offset, first.epoch) == (3, 1)
    assert table(advance("a", 1, 3, 10)) is None
    second = table(claim("b"))[ORDERS]
    assert (second.next_offset, second.epoch) == (10, 2)
    assert table(advance("a", 1, 10, 20)) == ORDERS
    assert table(advance("a", 2, 10, 20)) == ORDERS
    assert table(advance("b", 1, 10, 20)) == ORDERS
    assert table(advance("b", 2, 9, 20)) == ORDERS
    assert table(advance("b", 2, 10, 20)) is None


def test_a_polite_claim_leaves_what_a_live_consumer_holds(table, path):
    table(claim("a"))
    assert table(claim("b", polite=True)) == {}
    assert table(claim("a", polite=True))[ORDERS].epoch == 1
    ask(path, "update playhead_offsets set held_until = '2020-01-01 00:00:00.000000'")
    assert table(claim("b", polite=True))[ORDERS].epoch == 2
    table(lambda table, connection: table.release(connection, "billing", "a", [ORDERS]))
    assert ask(path, "select holder from playhead_offsets") == [("b",)]
    table(lambda table, connection: table.release(connection, "billing", "b", [ORDERS]))
    assert ask(path, "select holder, held_until from playhead_offsets") == [(None, None)]
    assert table(claim("a", polite=True))[ORDERS].epoch == 3


def test_without_a_beginning_a_claim_makes_no_row(table, path):
    assert table(claim("a", start=None)) == {}
    assert ask(path, "select count(*) from playhead_offsets") == [(0,)]


def test_an_edit_takes_the_row_away_and_a_live_consumer_is_named_by_the_guard(table, store, path):
    table(claim("host:1:abc"))
    (refusal,) = store.guard(["billing", "other"])
    assert (refusal.owner, refusal.lifted_by) == ("billing", "--force")
    assert "host:1:abc" in refusal.what
    assert store.snapshot().entries[0].notes == ("host:1:abc reads it now",)
    assert store.write([change(0, 4)]).exit_code == 0
    assert ask(path, "select epoch, holder, topic_id from playhead_offsets") == [(2, None, "")]
    assert table(advance("host:1:abc", 1, 4, 9)) == ORDERS
    assert store.guard(["billing"]) == []
    assert store.write([change(4, None)]).exit_code == 0
    assert table(advance("host:1:abc", 1, 4, 9)) == ORDERS


def test_a_beat_returns_what_is_still_held(table, store):
    table(claim("a"))
    beat = lambda table, connection: table.beat(connection, "billing", "a")  # noqa: E731
    assert [(row.next_offset, row.epoch) for row in table(beat).values()] == [(0, 1)]
    store.write([change(0, 4)])
    assert table(beat) == {}


def test_many_may_make_the_table_at_once(path):
    address, table, faults = parse_address(f"sqlite:///{path}"), OffsetsTable(parse_table("playhead_offsets")), []
    ready = threading.Barrier(6)

    def make():
        try:
            ready.wait(10)
            with Database(address, 10) as database, database.transaction("making") as connection:
                table.ensure(connection)
        except Exception as error:  # noqa: BLE001 - shown below
            faults.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


# Faults


class FakePostgres(Exception):
    def __init__(self, said: str, sqlstate: str | None) -> None:
        super().__init__(said)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("said", "state", "kind"),
    [
        ('connection to server at "x", port 1 failed: Connection refused\n\tIs it running?', None, Unreachable),
        ('FATAL:  password authentication failed for user "x"', None, AccessDenied),
        ("fe_sendauth: no password supplied", None, AccessDenied),
        ('FATAL:  database "x" does not exist', None, Unreachable),
        ("connection timeout expired", None, TimedOut),
        ("permission denied for table x", "42501", AccessDenied),
        ("canceling statement due to statement timeout", "57014", TimedOut),
        ("terminating connection due to administrator command", "57P01", Unreachable),
        ("canceling statement due to lock timeout", "55P03", Busy),
        ("deadlock detected", "40P01", Busy),
        ("current transaction is aborted", "25P02", Rejected),
        ("duplicate key", "23505", Rejected),
    ],
)
def test_what_postgresql_says_becomes_one_of_ours(said, state, kind):
    fault = fault_of(DBAPIError("select secret", {}, FakePostgres(said, state)), "reading")
    assert type(fault) is kind
    assert "\n" not in fault.what
    assert "secret" not in fault.what


def test_without_the_extra_the_answer_is_the_install_command(tmp_path):
    code = f"""
import sys
sys.modules["sqlalchemy"] = None
from playhead.errors import MissingExtra
from playhead.config import Context
from playhead.model import Deadline
from playhead.stores import Access
from playhead.stores.open import open_store
import playhead
for attempt in (
    lambda: open_store("sql+sqlite:///{tmp_path}/x.db", Access(Context(None), Deadline(1))),
    lambda: playhead.consume(["t"], "g", "sqlite:///x.db", bootstrap_servers="x:1"),
):
    try:
        attempt()
    except MissingExtra as error:
        print(error.what, error.hint)
playhead.consume(["t"], "g", commit="sync", bootstrap_servers="x:1")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "this needs SQLAlchemy, which is not installed pip install 'playhead[sql]'\n" * 2
