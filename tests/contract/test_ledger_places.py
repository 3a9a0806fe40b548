"""Ledgers that cannot be used, or that break under the run: what is said, and what is left as it was."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest

from integration.ledgers import (  # noqa: F401
    HERE,
    LOCAL,
    chunk,
    claimed,
    ledger,
    only_postgresql,
    only_sqlite,
    place,
    start,
)
from playhead.config.ledger import default_ledger_url
from playhead.errors import AccessDenied, Busy, Invalid, Refused, Unreachable
from playhead.ledger import chunks, runs
from playhead.ledger.model import RunTakenOver
from playhead.ledger.runs import open_ledger

# Ledgers that cannot be used


def test_a_ledger_of_another_version_is_refused_by_readers_and_writers(place, ledger):
    claim = claimed(ledger)
    place.ask("update playhead_ledger set version = 2")
    for word in (ledger.list_runs, lambda: ledger.beat(claim)):
        with pytest.raises(Refused, match="is a ledger of version 2, but this Playhead supports version 1"):
            word()


@pytest.mark.parametrize("table", ["playhead_ledger", "playhead_runs", "playhead_chunks"])
def test_tables_of_another_program_are_left_alone(place, ledger, table):
    place.ask(f"create table {table} (x int)")
    with pytest.raises(Invalid, match=f"the table {table} of the ledger .* is not one of Playhead's"):
        claimed(ledger)
    assert place.tables() == {table}
    if table == "playhead_ledger":
        with pytest.raises(Invalid, match="not one of Playhead's"):
            ledger.list_runs()
    else:
        assert ledger.list_runs() == []


@only_sqlite
def test_a_file_that_is_no_database_is_said_and_not_touched(place, ledger):
    place.path.write_text("shopping: milk, bread\n" * 50)
    before = place.path.read_bytes()
    for word in (ledger.list_runs, lambda: claimed(ledger)):
        with pytest.raises(Invalid, match="file is not a database"):
            word()
    assert place.path.read_bytes() == before


def test_a_url_with_a_table_or_of_something_else_is_refused():
    with pytest.raises(Invalid, match="the table names of a ledger cannot be changed"):
        open_ledger("sqlite:///x.db?table=mine", 5)
    with pytest.raises(Invalid, match="is not the URL of a database"):
        open_ledger("mysql://me:s3cret@host/db", 5)
    assert open_ledger("sql+sqlite:////tmp/x.db", 5).is_local
    assert not open_ledger("postgresql://me@host/db", 5).is_local


# SQLite alone


def test_the_default_ledger_is_a_file_that_only_its_owner_can_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    old = os.umask(0)
    try:
        with open_ledger(default_ledger_url(), 5) as ledger:
            claimed(ledger)
    finally:
        os.umask(old)
    path = tmp_path / "state" / "playhead" / "ledger.db"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@only_sqlite
def test_a_locked_file_is_waited_for_and_then_said_to_be_busy(place, ledger):
    claim = claimed(ledger)
    with place.open(1.0) as hasty, closing(sqlite3.connect(place.path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        for word in (lambda: hasty.beat(claim), hasty.list_runs):
            with pytest.raises(Busy, match="database is locked"):
                word()
        other.execute("rollback")
        assert hasty.beat(claim) is False


@only_sqlite
def test_a_deleted_file_ends_the_run_instead_of_accepting_rows_that_would_be_lost(place, ledger):
    claim = claimed(ledger)
    place.path.unlink()
    with pytest.raises(RunTakenOver, match="the ledger no longer has a row for this run"):
        ledger.record(claim, [chunk(0)])


SPILLING = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1].removeprefix("sqlite:///"), isolation_level=None)
connection.execute("pragma cache_size = 1")
connection.execute("begin immediate")
connection.execute("update playhead_runs set epoch = 99, detail = ?", ["x" * 200_000])
connection.execute("update playhead_chunks set epoch = 99, source_range = ?", ["x" * 200_000])
os.kill(os.getpid(), signal.SIGKILL)
"""


@only_sqlite
def test_after_a_kill_in_the_middle_of_a_commit_even_a_reader_sees_the_old_rows(place, ledger):
    """The pages are half in the file: SQLite must take them back, which a read-only connection may not."""
    ledger.record(claimed(ledger), [chunk(number) for number in range(30)])
    start(SPILLING, place).communicate(timeout=60)
    assert place.path.with_name("ledger.db-journal").stat().st_size > 0
    with place.open() as fresh:
        assert [run.epoch for run in fresh.list_runs()] == [1]
        assert {found.epoch for found in fresh.list_chunks("c1", "orders")} == {1}


@only_sqlite
def test_a_place_where_no_file_can_be_made_is_said(place):
    place.path.write_text("")
    with (
        open_ledger(f"{place.url}/inside/ledger.db", 5) as ledger,
        pytest.raises(AccessDenied, match="cannot be created: Not a directory"),
    ):
        claimed(ledger)


UNPRIVILEGED = """
import os, sys
from integration.ledgers import HERE, LOCAL
from playhead.errors import Unreachable
from playhead.ledger.runs import open_ledger
ledger = open_ledger(sys.argv[1], 5)
ledger.list_runs()
os.chmod(sys.argv[1].removeprefix("sqlite:///"), 0o000)
if os.geteuid() == 0:
    os.setuid(65534)
for word in (ledger.list_runs, lambda: ledger.claim("c1", "orders", HERE, LOCAL)):
    try:
        word()
    except Unreachable as error:
        print(error.what)
"""


@only_sqlite
def test_a_file_that_we_may_not_open_is_said(place, ledger):
    claimed(ledger)
    said = start(UNPRIVILEGED, place).communicate(timeout=60)[0].splitlines()
    assert len(said) == 2
    assert {line.rpartition(": ")[2] for line in said} <= {"unable to open database file", "Permission denied"}


# PostgreSQL alone


@only_postgresql
def test_a_user_without_rights_gets_access_denied(place, lab, unique):
    name = unique("reader").replace("-", "_")
    lab.psql(f"create role {name} login")
    with open_ledger(place.url.replace("playhead@", f"{name}@"), 5) as unprivileged:
        with pytest.raises(AccessDenied, match="permission denied for schema public"):
            claimed(unprivileged)
        with place.open() as ledger:
            claimed(ledger)
        with pytest.raises(AccessDenied, match="permission denied for table playhead_ledger"):
            unprivileged.list_runs()


@only_postgresql
def test_a_connection_that_breaks_while_committing_is_no_loss_for_writes_can_be_repeated(place, lab, monkeypatch):
    with open_ledger(f"{place.url}?application_name=doomed", 10) as ledger:
        claim = claimed(ledger)
        real = chunks.add_chunk
        broken: list[str] = []

        def add(connection, *rest):
            done = real(connection, *rest)
            if not broken:
                end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'doomed'"
                broken.append(lab.psql(end))
            return done

        monkeypatch.setattr(runs, "add_chunk", add)
        monkeypatch.setattr(ledger, "update_run", lambda *_, **__: None)  # so that the commit is what fails
        ledger.record(claim, [chunk(0)])
    assert broken == ["t"]
    assert place.ask("select seq from playhead_chunks") == [("1",)]


@only_postgresql
def test_a_server_that_goes_away_is_unreachable_and_when_it_is_back_the_run_goes_on(place, lab, ledger):
    claim = claimed(ledger)
    lab.kill("postgres")
    try:
        for word in (lambda: ledger.record(claim, [chunk(0)]), ledger.list_runs):
            with pytest.raises(Unreachable) as raised:
                word()
            assert raised.value.exit_code == 3
    finally:
        lab.start("postgres")
    ledger.record(claim, [chunk(0)])
    assert [found.seq for found in ledger.list_chunks("c1", "orders")] == [1]
