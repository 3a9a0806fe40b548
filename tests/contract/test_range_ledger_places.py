"""Many writers of one sink, writers that are killed, and ledgers that were made before there were sinks."""

import signal

import pytest
from sqlalchemy import text

from contract.range_ledgers import LOG, begun, closed, deliver, ended, live, sinks, wanted  # noqa: F401
from integration.ledgers import (  # noqa: F401
    THERE,
    chunk,
    claimed,
    ledger,
    only_postgresql,
    only_sqlite,
    place,
    start,
)
from playhead.errors import Invalid, OutcomeUnknown, Refused, Unreachable
from playhead.ledger.model import RunTakenOver
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.sql import database

SOURCES = {"playhead_ledger", "playhead_runs", "playhead_chunks"}
SINKS = {"playhead_positions", "playhead_claims", "playhead_ranges", "playhead_kept"}

# The tables


def test_a_ledger_of_sources_gets_the_tables_of_sinks_when_one_first_writes(place, ledger, sinks):
    claim = claimed(ledger)
    ledger.record(claim, [chunk(0)])
    assert place.tables() == SOURCES
    sinks.adopt(claim, {LOG: 0})
    assert place.tables() == SOURCES | SINKS
    ledger.record(claim, [chunk(1)])
    assert [found.seq for found in ledger.list_chunks("c1", "orders")] == [2, 1]
    assert place.ask("select version from playhead_ledger where name = 'ledger'") == [("1",)]


def test_sinks_of_another_version_are_refused_and_sources_are_not(place, ledger, sinks):
    claim = begun(sinks)
    place.ask("update playhead_ledger set version = 2 where name = 'ranges'")
    for word in (lambda: sinks.positions("c1", "orders"), lambda: sinks.open_claims(claim)):
        with pytest.raises(Refused, match="is a ledger of version 2, but this Playhead supports version 1"):
            word()
    assert ledger.beat(claim) is False


@pytest.mark.parametrize("table", sorted(SINKS))
def test_tables_of_another_program_are_left_alone(place, ledger, sinks, table):
    claim = claimed(ledger)
    place.ask(f"create table {table} (x int)")
    with pytest.raises(Invalid, match=f"the table {table} of the ledger .* is not one of Playhead's"):
        sinks.adopt(claim, {LOG: 0})
    assert place.tables() == SOURCES | {table}
    assert sinks.positions("c1", "orders") == {}
    assert ledger.beat(claim) is False


@only_sqlite
def test_a_deleted_file_ends_the_run_instead_of_beginning_anew(place, sinks):
    claim = begun(sinks)
    place.path.unlink()
    with pytest.raises(RunTakenOver, match="the ledger no longer has a row for this run"):
        sinks.plan(claim, [wanted(0, 10)])


# Many writers

RACER = """
import sys
from contract.range_ledgers import LOG, closed, wanted
from integration.ledgers import HERE, LOCAL
from playhead.ledger.runs import open_ledger
from playhead.ledger.model import RunTakenOver
from playhead.ledger.ranges import RangeLedger
from sqlalchemy import text
with open_ledger(sys.argv[1], 30) as ledger:
    sinks = RangeLedger(ledger)
    def row(number):
        return lambda connection: connection.execute(text(f"insert into target values ({number})"))
    for turn in range(12):
        claim = ledger.claim("c1", "orders", HERE, LOCAL)
        try:
            if not sinks.positions("c1", "orders"):
                sinks.adopt(claim, {LOG: 0})
            for one in sinks.open_claims(claim):
                sinks.commit_all(claim, [(one, [closed(one.range.start, one.range.end)])], row(one.range.start))
            for number in range(3):
                at = sinks.positions("c1", "orders")[LOG].next_offset
                one = wanted(at, at + 10, made_ms=claim.epoch)
                sinks.plan(claim, [one])
                sinks.commit_all(claim, [(one, [closed(at, at + 10)])], row(at))
        except RunTakenOver:
            print("taken over")
"""


def test_of_many_writers_each_range_is_delivered_by_one(place, sinks):
    """They also race to create the tables. The target has each start once, and no hole between them."""
    claimed(sinks.ledger)
    place.ask("create table target (x int)")
    racers = [start(RACER, place) for _ in range(4)]
    said = [racer.communicate(timeout=100)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 4
    assert "taken over" in "".join(said)
    rows = [int(x) for (x,) in place.ask("select x from target order by x")]
    assert rows == list(range(0, 10 * len(rows), 10))
    assert place.ask("select start_offset from playhead_ranges order by 1") == [(str(x),) for x in rows]
    assert place.ask("select next_offset from playhead_positions") == [(str(rows[-1] + 10),)]
    epochs = [int(x) for (x,) in place.ask("select epoch from playhead_ranges order by start_offset")]
    assert epochs == sorted(epochs)


MOVER = """
import sys
from contract.range_ledgers import LOG
from integration.ledgers import THERE
from playhead.errors import Refused
from playhead.ledger.runs import open_ledger
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.model import SinkMove as Move
with open_ledger(sys.argv[1], 30) as ledger:
    try:
        print(RangeLedger(ledger).move("c1", "orders", [Move(LOG, 0, int(sys.argv[2]))], THERE)[0].changed)
    except Refused as error:
        print(error.what)
"""


def test_of_two_moves_from_the_same_place_one_wins(place, sinks):
    ended(sinks, begun(sinks))
    programs = [MOVER.replace("sys.argv[2]", str(number)) for number in (10, 20, 30)]
    movers = [start(program, place) for program in programs]
    said = sorted(mover.communicate(timeout=60)[0].strip() for mover in movers)
    winner = sinks.positions("c1", "orders")[LOG].next_offset
    assert winner in (10, 20, 30)
    assert said == ["True"] + [f"orders-0 was at 0 and is at {winner} now"] * 2
    assert live(sinks) == [(0, winner, 1, "skipped")]


# Writers that are killed

KILLED = """
import os, signal, sys
from contract.range_ledgers import begun, closed, deliver, wanted
from playhead.sql import database
from playhead.ledger import range_rows
from playhead.ledger.runs import open_ledger
from playhead.ledger.ranges import RangeLedger
from sqlalchemy import text
sinks = RangeLedger(open_ledger(sys.argv[1], 10))
claim = begun(sinks)
deliver(sinks, claim, 10)
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
real = database._commit
if AT == "plan":
    sinks.ledger.update_run = die
one = wanted(10, 20)
sinks.plan(claim, [one])
if AT == "ranges":
    range_rows.add_ranges = die
if AT == "before":
    database._commit = die
if AT == "after":
    database._commit = lambda *a: (real(*a), die())
also = lambda connection: connection.execute(text("insert into target values (10)"))
sinks.commit_all(claim, [(one, [closed(10, 15), closed(15, 20)])], die if AT == "also" else also)
"""


@pytest.mark.parametrize("at", ["plan", "also", "ranges", "before", "after"])
def test_the_writer_after_a_killed_writer_finishes_its_claim_once(place, sinks, at):
    claimed(sinks.ledger)
    place.ask("create table target (x int)")
    killed = start(f"AT = {at!r}\n" + KILLED, place)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    claim = claimed(sinks.ledger, THERE)
    assert sinks.positions("c1", "orders")[LOG].next_offset == (20 if at == "after" else 10)
    found = sinks.open_claims(claim)
    assert found == ([] if at in ("plan", "after") else [wanted(10, 20)])
    if at != "after":
        sinks.plan(claim, [wanted(10, 20)])
        sinks.commit_all(
            claim,
            [(wanted(10, 20), [closed(10, 15), closed(15, 20)])],
            lambda connection: connection.execute(text("insert into target values (10)")),
        )
    assert place.ask("select x from target") == [("10",)]
    assert [row[:2] for row in live(sinks)] == [(0, 10), (10, 15), (15, 20)]
    assert sinks.list_claims("c1", "orders") == []


def test_a_commit_that_succeeded_with_an_unknown_outcome_is_not_made_again(place, sinks, monkeypatch):
    claim = begun(sinks)
    place.ask("create table target (x int)")
    sinks.plan(claim, [wanted(0, 10)])
    real = database._commit
    lost: list[str] = []

    def commit(begun, doing):
        real(begun, doing)
        if not lost:
            lost.append(doing)
            raise OutcomeUnknown(doing)

    monkeypatch.setattr(database, "_commit", commit)
    calls = []

    def also(connection):
        calls.append(connection.execute(text("insert into target values (1)")).rowcount)

    assert sinks.commit_all(claim, [(wanted(0, 10), [closed(0, 10)])], also) is False
    assert calls == [1]
    assert len(lost) == 1
    assert place.ask("select x from target") == [("1",)]
    assert live(sinks) == [(0, 10, 1, "committed")]


@only_postgresql
def test_a_connection_that_breaks_before_the_commit_leaves_nothing_and_is_made_again(place, lab):
    with open_ledger(f"{place.url}?application_name=doomed", 10) as ledger:
        sinks = RangeLedger(ledger)
        claim = begun(sinks)
        sinks.plan(claim, [wanted(0, 10)])
        end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'doomed'"
        with pytest.raises(Unreachable):
            sinks.commit_all(claim, [(wanted(0, 10), [closed(0, 10)])], lambda _: lab.psql(end))
        assert sinks.open_claims(claim) == [wanted(0, 10)]
        assert sinks.commit_all(claim, [(wanted(0, 10), [closed(0, 10)])])


def test_a_merge_that_ends_the_transaction_itself_is_refused(place, sinks):
    claim = begun(sinks)
    sinks.plan(claim, [wanted(0, 10)])
    with pytest.raises(Refused, match="the transaction was already ended inside its block"):
        sinks.commit_all(claim, [(wanted(0, 10), [closed(0, 10)])], lambda connection: connection.rollback())
    assert sinks.open_claims(claim) == [wanted(0, 10)]
    deliver(sinks, claim, 10)
