"""Rows and ranges of the JDBC sink are committed together or not at all, also if a task is killed, repeated or late."""

import os
import signal
import subprocess
import sys
import time
from threading import Thread

import pytest

from integration.jdbc_sinks import batches, leftovers, order, start
from integration.ledgers import only_postgresql, only_sqlite, place
from playhead.errors import Busy, Refused, Unreachable
from playhead.ledger.model import RangeState, RunTakenOver
from playhead.sql.bulk_load import copying
from playhead.sql.merge import How, MergeLayout
from playhead.sql.target_tables import TargetTableName

__all__ = ["place", "start"]
ALL = "select id, name, amount from orders order by id, name"
COUNT = "select count(*) from orders"
THREE = [order(1, "a", 1), order(2, "b", 2), order(3, "c", 3)]


def refuse() -> None:
    raise Refused("the seat is lost")


KILLED = """
import os, signal, sys
from pathlib import Path
from integration import test_sink_jdbc_commits as test
from integration.jdbc_sinks import opened
from integration.ledgers import Place
from playhead.sql import database
from playhead.ledger import ranges as range_ledger
place = Place.__new__(Place)
place.kind, place.url, place.path, point = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def dies_after(act):
    return lambda *given: (act(*given), die())
run = opened(place, auto_create="true", insert_mode=sys.argv[5], **({} if sys.argv[5] == "insert" else {"pk_mode": "record_key"}))
claim = run.claimed(3)
writer = run.writer()
if point == "written":
    closed = list(next(writer.write(claim, test.batches(test.THREE), die)) for _ in range(1)); die()
if place.kind == "sqlite" and point == "asked":
    run.attempted(writer, claim, test.THREE); die()
if point == "asked":
    type(writer.committing.consent).ask = die
if point == "closed":
    range_ledger.RangeLedger.commit_within = dies_after(range_ledger.RangeLedger.commit_within)
if point == "committed":
    database._commit = dies_after(database._commit)
run.done(claim, *test.THREE)
"""


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize("point", ["written", "asked", "closed", "committed"])
def test_a_kill_loses_nothing_and_doubles_nothing(start, place, point, mode):
    place.ask("create table orders (id bigint, name text, amount int, unique (id))")
    command = [sys.executable, "-c", KILLED, place.kind, place.url, str(place.path), point, mode]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=paths, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    run = start(insert_mode=mode, **({} if mode == "insert" else {"pk_mode": "record_key"}))
    claims = run.ranges.open_claims(run.claim)
    assert len(claims) == (0 if point == "committed" else 1)
    for claim in claims:
        run.done(claim, *THREE)
    run.deliver(order(4, "d", 4))
    assert place.ask(ALL) == [(str(n), "abcd"[n - 1], str(n)) for n in range(1, 5)]
    assert run.position() == 4
    assert {one.state for one in run.ranges.list_ranges("c1", "sink")} == {RangeState.COMMITTED}
    assert leftovers(place) == []


def test_an_attempt_that_did_not_end_is_not_there(start, place):
    run = start()
    claim = run.claimed(2)
    writer = run.writer()

    def broken():
        yield from batches([order(1, "a", 1)])
        raise OSError("the broker went away")

    with pytest.raises(OSError, match="went away"):
        list(writer.write(claim, broken(), run.rejected.append))
    assert place.ask(COUNT) == [("0",)]
    closed = run.attempted(writer, claim, [order(1, "a", 1), order(2, "b", 2)])
    run.committed(claim, closed)
    assert place.ask(ALL) == [("1", "a", "1"), ("2", "b", "2")]


def test_a_bad_record_that_cannot_be_dealt_with_takes_the_whole_claim_back(start, place):
    """The writer has yielded its range; who takes it fails before it asks for more."""
    run = start()
    claim = run.claimed(2)
    writing = run.writer().write(claim, batches([order(1), order(2)]), run.rejected.append)
    assert next(writing).count == 2
    writing.close()
    assert place.ask(COUNT) == [("0",)]
    assert run.ranges.open_claims(run.claim) == [claim]


def test_two_tasks_that_make_one_table_make_it_once(start, place):
    run = start(pk_mode="record_key")
    claims = [run.claimed(1, "orders", partition) for partition in range(4)]
    writer = run.writer()
    done = []
    tasks = [
        Thread(target=lambda claim=claim, at=at: done.append((claim, run.attempted(writer, claim, [order(at)]))))
        for at, claim in enumerate(claims)
    ]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert len(done) == 4
    assert run.ranges.commit_all(run.claim, done, run.sink.merging(done)) is (place.kind == "sqlite")
    assert place.ask("select id from orders order by id") == [("0",), ("1",), ("2",), ("3",)]


# PostgreSQL: tasks commit by themselves


@only_postgresql
def test_who_may_not_commit_takes_everything_back(start, place):
    run = start()
    claim = run.claimed(2)
    run.asked = refuse
    with pytest.raises(Refused, match="the seat is lost"):
        run.attempted(run.writer(), claim, [order(1), order(2)])
    assert place.ask(COUNT) == [("0",)]
    assert run.ranges.open_claims(run.claim) == [claim]


@only_postgresql
def test_a_second_attempt_of_a_claim_takes_everything_back(start, place):
    run = start()
    claim = run.claimed(2)
    rows = [order(1, "a", 1), order(2, "b", 2)]
    run.attempted(run.writer(), claim, rows)
    with pytest.raises(Busy, match=r"orders-0\[0,2\) was committed by another attempt"):
        run.attempted(run.writer(), claim, rows)
    assert place.ask(ALL) == [("1", "a", "1"), ("2", "b", "2")]
    assert run.position() == 2


@only_postgresql
def test_a_late_writer_of_a_dead_run_takes_everything_back(start, place):
    older, taken = start(), []
    claim = older.claimed(2)

    def slow():
        yield from batches([order(1)])
        newer = start()  # takes over while the task is still loading
        newer.done(claim, order(1), order(2))
        taken.append(newer)
        yield from batches([order(2)], 1)

    with pytest.raises(RunTakenOver):
        list(older.writer().write(claim, slow(), older.rejected.append))
    taken[0].deliver(order(3))
    assert place.ask("select id from orders order by id") == [("1",), ("2",), ("3",)]


@only_postgresql
def test_a_table_cannot_change_between_rows_and_commit(start, place):
    run = start()
    run.deliver(order(1))
    claim = run.claimed(2)
    change = "set lock_timeout = '1s'; alter table orders alter id type double precision"

    def slow():
        yield from batches([order(2)], 1)
        with pytest.raises(subprocess.CalledProcessError):
            place.ask(change)
        yield from batches([order(3)], 2)

    list(run.writer().write(claim, slow(), run.rejected.append))
    place.ask(change)
    run.deliver(order(4))
    assert place.ask("select id from orders order by id") == [("1",), ("2",), ("3",), ("4",)]


@only_postgresql
def test_a_table_that_changed_after_it_was_looked_at_is_refused(start, place):
    start().deliver(order(1))
    layout = MergeLayout(TargetTableName(None, "orders"), ("id",), ("int4",), ())
    with (
        pytest.raises(Busy, match="was changed while rows were being loaded"),
        copying(place.url, How("insert")) as rows,
    ):
        rows.begin(layout)


@only_postgresql
def test_a_database_that_falls_over_takes_everything_back(start, place, lab):
    run = start()
    run.deliver(order(1))
    claim = run.claimed(2)

    def fall():
        yield from batches([order(2)], 1)
        lab.kill("postgres")
        yield from batches([order(3)], 2)

    try:
        with pytest.raises(Unreachable):
            list(run.writer().write(claim, fall(), run.rejected.append))
    finally:
        lab.start("postgres")
    assert place.ask("select id from orders order by id") == [("1",)]
    run.done(claim, order(2), order(3))
    assert place.ask("select id from orders order by id") == [("1",), ("2",), ("3",)]


@only_postgresql
def test_tasks_with_the_same_keys_in_another_order_do_not_block_each_other(start, place):
    run = start(insert_mode="upsert", pk_mode="record_key", delete_enabled="true")
    run.deliver(*(order(key, "old", 0) for key in range(200)))
    claims = [run.claimed(200, "orders", partition) for partition in range(1, 5)]
    said: list[object] = []

    def task(at: int) -> None:
        keys = range(200) if at % 2 else reversed(range(200))
        said.append(run.attempted(run.writer(), claims[at], [order(key, f"p{at}", key) for key in keys])[0].count)

    tasks = [Thread(target=task, args=(at,)) for at in range(4)]
    for one in tasks:
        one.start()
    for one in tasks:
        one.join()
    assert said == [200] * 4
    found = place.ask("select count(*), count(distinct id), count(distinct name), sum(amount) from orders")
    assert found == [("200", "200", "1", "19900")]  # the last to commit


@only_postgresql
def test_a_transaction_that_is_never_ended_holds_back_only_its_own_keys(start, place):
    """A task of a host that fell silent: its run was taken over, its rows are not there, other keys are written meanwhile."""
    place.ask("create table orders (id bigint primary key, name text, amount int)")
    older = start()
    silent = older.writer().write(older.claimed(1), batches([order(1)]), older.rejected.append)
    next(silent)
    newer = start()
    newer.deliver(order(7), partition=1)
    assert place.ask("select id from orders") == [("7",)]

    def end() -> None:
        time.sleep(0.5)
        silent.close()

    ending = Thread(target=end)
    ending.start()
    newer.done(newer.ranges.open_claims(newer.claim)[0], order(1))  # waits for it
    ending.join()
    assert place.ask("select id from orders order by id") == [("1",), ("7",)]


# SQLite: tasks stage, the driver merges


@only_sqlite
def test_a_merge_that_fails_later_leaves_neither_rows_nor_ranges(start, place):
    run = start()
    claim = run.claimed(2)
    done = [(claim, run.attempted(run.writer(), claim, [order(1), order(2)]))]
    merge = run.sink.merging(done)

    def fail(connection):
        merge(connection)
        raise Refused("the last moment")

    with pytest.raises(Refused, match="the last moment"):
        run.ranges.commit_all(run.claim, done, fail)
    assert place.ask(COUNT) == [("0",)]
    assert run.ranges.open_claims(run.claim) == [claim]
    assert run.committed(*done[0])
    assert place.ask(COUNT) == [("2",)]


@only_sqlite
def test_of_two_attempts_of_one_claim_one_is_merged(start, place):
    run = start()
    claim = run.claimed(2)
    writer = run.writer()
    first = run.attempted(writer, claim, [order(1, "a", 1), order(2, "b", 2)])
    second = run.attempted(writer, claim, [order(1, "a", 1), order(2, "b", 2)])
    assert first == second
    assert run.committed(claim, second)
    assert not run.committed(claim, first)  # requested twice, done once
    assert place.ask(ALL) == [("1", "a", "1"), ("2", "b", "2")]


@only_sqlite
def test_what_was_swept_is_not_merged_and_nothing_is_committed(start, place):
    older, newer = start(), start()
    claim = newer.claimed(1)
    closed = newer.attempted(newer.writer(), claim, [order(1)])
    older.writer()  # sweeps, although it was taken over
    with pytest.raises(Busy, match=r"the staged rows of .* are missing"):
        newer.committed(claim, closed)
    assert newer.position() == 0
    newer.done(claim, order(1))
    assert place.ask(COUNT) == [("1",)]
