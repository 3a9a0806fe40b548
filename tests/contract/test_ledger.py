"""One suite over both databases of the ledger. The rows are looked at with psql and with the sqlite3 module."""

import signal
import threading
from datetime import UTC, datetime

import pytest

from integration.ledgers import (  # noqa: F401
    HERE,
    LOCAL,
    THERE,
    chunk,
    claimed,
    ledger,
    place,
    start,
)
from playhead.errors import Fenced, NotFound, Rejected
from playhead.ledger.model import Behind, Claim, RunState, RunTakenOver, config_setting
from playhead.model import Map


def test_a_reader_makes_nothing(place, ledger):
    assert ledger.list_runs() == []
    assert ledger.list_chunks("c1", "orders") == []
    assert ledger.last_chunk("c1", "orders", "public.orders") is None
    assert ledger.ids_used("c1", "orders") == 0
    with pytest.raises(NotFound, match="'orders' does not exist"):
        ledger.get_run("c1", "orders")
    if place.kind == "sqlite":
        assert not place.path.exists()
    assert place.tables() == set()


def test_the_config_of_a_connector_is_recorded_beside_the_settings_and_that_of_an_older_playhead_is_unknown(ledger):
    config = {"connector.class": "X", "query": "select '\0', 'ü', '\ud800'"}
    ledger.claim("c1", "orders", HERE, {**LOCAL, **config_setting(config)})
    claimed(ledger, pipeline="older")
    older, orders = ledger.list_runs()
    assert orders.config == {"connector.class": "X", "query": "select '\0', 'ü', '?'"}
    assert (orders.settings, older.settings, older.config) == (LOCAL, LOCAL, {})


def test_the_topics_of_a_source_are_those_of_its_chunks(ledger):
    ledger.record(claimed(ledger), [chunk(0), chunk(1), chunk(0, stream="public.other", topic="a_topic")])
    ledger.record(claimed(ledger, pipeline="other"), [chunk(0, topic="of another")])
    assert ledger.list_topics("c1", "orders") == ["a_topic", "pg_orders"]


def test_what_is_recorded_is_what_the_databases_own_client_shows(place, ledger):
    claim = claimed(ledger)
    ledger.record(claim, [chunk(0), chunk(1, hash_xor=-(2**63), offsets={1: (5, 9), 0: (10, 14)})])
    rows = place.ask(
        "select seq, epoch, start_position, end_position, offsets, hash_xor, hash_sum from playhead_chunks"
    )
    assert sorted(rows) == [
        ("1", "1", "", '{"incrementing":10}', '{"0":[0,9]}', "0", "9223372036854775807"),
        (
            "2",
            "1",
            '{"incrementing":10}',
            '{"incrementing":20}',
            '{"0":[10,14],"1":[5,9]}',
            str(-(2**63)),
            str(2**63 - 1),
        ),
    ]
    asked = "select cluster, pipeline, epoch, host, pid, username, state, settings, records from playhead_runs"
    assert place.ask(asked) == [("c1", "orders", "1", "here", "11", "me", "running", '{"master":"local[2]"}', "20")]
    assert place.ask("select name, version from playhead_ledger") == [("ledger", "1")]
    found = ledger.last_chunk("c1", "orders", "public.orders")
    assert found.chunk == chunk(1, hash_xor=-(2**63), offsets={0: (10, 14), 1: (5, 9)})
    assert (found.seq, found.epoch, found.state) == (2, 1, "committed")
    assert abs((datetime.now(UTC) - found.committed_at).total_seconds()) < 60


def test_the_newest_claim_takes_over_and_the_older_run_is_refused_at_its_next_call(place, ledger):
    first, second = claimed(ledger), claimed(ledger, THERE)
    assert (first.epoch, second.epoch) == (1, 2)
    words = (
        lambda: ledger.beat(first),
        lambda: ledger.record(first, [chunk(0)]),
        lambda: ledger.set_ids(first, 9),
        lambda: ledger.finish(first, RunState.FAILED, "too late"),
    )
    for word in words:
        with pytest.raises(RunTakenOver, match=r"run 2 by you@there \(pid 22\) took over from run 1") as raised:
            word()
        assert isinstance(raised.value, Fenced)
        assert raised.value.exit_code == 4
    assert place.ask("select count(*) from playhead_chunks") == [("0",)]
    assert ledger.beat(second) is False
    assert ledger.get_run("c1", "orders").state is RunState.RUNNING
    assert claimed(ledger, pipeline="other").epoch == 1


def test_a_chunk_is_recorded_once_however_often_it_is_sent(place, ledger):
    claim = claimed(ledger)
    both = Map({"timestamp": 1, "incrementing": 10})
    ledger.record(claim, [chunk(0, end_position=both), chunk(1)])
    turned = Map({"incrementing": 10, "timestamp": 1})
    ledger.record(claim, [chunk(0, end_position=turned), chunk(1), chunk(2)])
    ledger.record(claimed(ledger), [chunk(2)])
    assert [found.seq for found in ledger.list_chunks("c1", "orders")] == [3, 2, 1]
    assert ledger.get_run("c1", "orders").records == 0
    # The same rows at other offsets are another chunk: they were sent again.
    ledger.record(Claim("c1", "orders", 2), [chunk(2, offsets={0: (90, 99)})])
    ledger.record(
        Claim("c1", "orders", 2), [chunk(2, offsets={0: (90, 99)}, start_position=Map({"incrementing": 20.0}))]
    )
    assert place.ask("select count(*) from playhead_chunks") == [("5",)]
    assert ledger.get_run("c1", "orders").records == 20


def test_chunks_are_numbered_by_stream_and_listed_newest_first(ledger):
    claim = claimed(ledger)
    ledger.record(claim, [chunk(0, "a"), chunk(0, "b"), chunk(1, "a")])
    ledger.record(claim, [chunk(1, "b", end_position=None)])
    assert ledger.last_chunk("c1", "orders", "a").seq == 2
    newest = ledger.list_chunks("c1", "orders", limit=1)
    assert [(found.chunk.stream, found.seq, found.chunk.end_position) for found in newest] == [("b", 2, None)]
    assert [found.seq for found in ledger.list_chunks("c1", "orders", "a")] == [2, 1]
    run = ledger.get_run("c1", "orders")
    assert (run.records, run.last_stream, run.last_position) == (40, "b", None)


def test_one_chunk_that_cannot_be_written_takes_the_others_with_it(place, ledger):
    claim = claimed(ledger)
    with pytest.raises((OverflowError, Rejected)):
        ledger.record(claim, [chunk(0), chunk(1, hash_sum=2**70)])
    assert place.ask("select count(*) from playhead_chunks") == [("0",)]
    assert ledger.get_run("c1", "orders").records == 0


def test_a_stop_is_heard_at_the_next_beat_and_forgotten_by_the_next_run(ledger):
    claim = claimed(ledger)
    assert ledger.beat(claim) is False
    assert ledger.request_stop("c1", "orders", THERE).stop.who == "you@there"
    assert ledger.request_stop("c1", "orders", HERE).stop.who == "you@there"
    assert ledger.beat(claim) is True
    ledger.finish(claim, RunState.STOPPED, "odd \0 words \udc80")
    run = ledger.get_run("c1", "orders")
    assert (run.state, run.detail, run.is_running) == (RunState.STOPPED, "odd   words ?", False)
    assert ledger.beat(claimed(ledger)) is False
    with pytest.raises(NotFound) as raised:
        ledger.request_stop("c1", "ordres", HERE)
    assert raised.value.hint == "did you mean orders?"


def test_only_the_hand_over_that_requested_a_stop_withdraws_it_and_a_users_request_stands(ledger):
    claim = claimed(ledger)
    asked = ledger.request_stop("c1", "orders", THERE, "first")
    assert (asked.stop.who, asked.stop.handover) == ("you@there, hand-over first", "first")
    assert ledger.withdraw_stop(asked, "second").stop == asked.stop
    assert ledger.beat(claim) is True
    assert ledger.withdraw_stop(asked, "first").stop is None
    assert ledger.beat(claim) is False and ledger.finish(claim, RunState.STOPPED, "asked", if_asked=True) is False
    assert ledger.get_run("c1", "orders").is_running
    ledger.request_stop("c1", "orders", THERE, "first")
    assert ledger.request_stop("c1", "orders", HERE, "second").stop.handover == "second"
    users = ledger.request_stop("c1", "orders", HERE)
    assert (users.stop.who, users.stop.handover) == ("me@here", "")
    assert ledger.request_stop("c1", "orders", THERE, "first").stop == users.stop
    assert ledger.withdraw_stop(users, "first").stop == ledger.withdraw_stop(users, "").stop == users.stop


def test_a_run_that_has_written_its_end_has_left_whatever_is_withdrawn(ledger):
    claim = claimed(ledger)
    asked = ledger.request_stop("c1", "orders", THERE, "first")
    assert ledger.finish(claim, RunState.STOPPED, "asked", if_asked=True) is True
    assert ledger.withdraw_stop(asked, "first").state is RunState.STOPPED
    claimed(ledger)
    ledger.request_stop("c1", "orders", THERE, "first")
    assert ledger.withdraw_stop(asked, "first").stop is not None, "of the run after it"


def test_a_beat_says_how_far_a_source_is_behind_and_keeps_its_settings_and_its_config(ledger):
    config = {"connector.class": "X"}
    claim = ledger.claim("c1", "orders", HERE, {**LOCAL, **config_setting(config)})
    assert ledger.get_run("c1", "orders").behind is None
    caught_up = datetime(2026, 11, 18, 3, 0, tzinfo=UTC)
    for behind in (Behind(1204, "ids", caught_up), Behind(0, "ids", caught_up)):
        ledger.beat(claim, behind)
        run = ledger.get_run("c1", "orders")
        assert (run.behind, run.settings, run.config) == (behind, LOCAL, config)
    ledger.beat(claim)  # not known at the moment: what was known stays
    assert ledger.get_run("c1", "orders").behind == behind


def test_a_run_that_ended_is_not_asked_to_stop(ledger):
    claim = claimed(ledger)
    ledger.finish(claim, RunState.FINISHED)
    assert ledger.request_stop("c1", "orders", THERE).stop is None


def test_the_next_run_knows_how_many_transactional_ids_the_last_one_used(ledger):
    ledger.set_ids(claimed(ledger), 7)
    claimed(ledger, THERE)
    assert ledger.ids_used("c1", "orders") == 7
    assert ledger.ids_used("c2", "orders") == 0


def test_a_heartbeat_of_a_clock_that_was_set_back_is_shown_and_is_no_fault(place, ledger):
    claim = claimed(ledger)
    zone = "" if place.kind == "sqlite" else "+00"
    place.ask(f"update playhead_runs set heartbeat = '2999-01-01 00:00:00.000000{zone}'")
    run = ledger.get_run("c1", "orders")
    assert run.silent_seconds < 0
    assert not run.is_silent
    place.ask(f"update playhead_runs set heartbeat = '1999-01-01 00:00:00.000000{zone}'")
    assert ledger.get_run("c1", "orders").is_silent
    ledger.beat(claim)
    assert not ledger.get_run("c1", "orders").is_silent


def test_threads_share_a_ledger(place, ledger):
    claims = [claimed(ledger, pipeline=f"p{number}") for number in range(6)]
    faults = []

    def work(claim):
        try:
            for number in range(10):
                ledger.record(claim, [chunk(number)])
                ledger.last_chunk("c1", claim.pipeline, "public.orders")
        except Exception as error:  # noqa: BLE001 - shown below
            faults.append(error)

    threads = [threading.Thread(target=work, args=(claim,)) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert place.ask("select count(*), max(seq) from playhead_chunks") == [("60", "10")]


RACER = """
import sys, time
from integration.ledgers import HERE, LOCAL, chunk
from playhead.ledger.runs import open_ledger
from playhead.ledger.model import RunTakenOver
with open_ledger(sys.argv[1], 30) as ledger:
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(15):
        claim = ledger.claim("c1", "orders", HERE, LOCAL)
        try:
            for number in range(4):
                time.sleep(0.002)  # so that others get in between, however few processors there are
                at = claim.epoch * 100 + number
                ledger.record(claim, [chunk(2 * at), chunk(2 * at + 1)])
        except RunTakenOver:
            print("taken over")
"""


def test_of_many_writers_only_the_newest_writes_and_none_of_them_fails(place, ledger):
    """They also race to create the tables. The chunks of a run are contiguous: no older run writes after a newer one."""
    racers = [start(RACER, place) for _ in range(4)]
    assert [next(iter(racer.stdout or ())) for racer in racers] == ["ready\n"] * 4
    for racer in racers:
        print("go", file=racer.stdin, flush=True)
    said = [racer.communicate(timeout=100)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 4
    assert "taken over" in "".join(said)
    rows = place.ask("select seq, epoch from playhead_chunks order by seq")
    assert [int(seq) for seq, _ in rows] == list(range(1, len(rows) + 1))
    epochs = [int(epoch) for _, epoch in rows]
    assert epochs == sorted(epochs)
    assert all(epochs.count(epoch) % 2 == 0 for epoch in epochs), "half of a record call"
    assert ledger.get_run("c1", "orders").epoch == 60


KILLED = """
import os, signal, sys
from integration.ledgers import HERE, LOCAL, chunk
from playhead.ledger.runs import Ledger, open_ledger
ledger = open_ledger(sys.argv[1], 10)
claim = ledger.claim("c1", "orders", HERE, LOCAL)
ledger.record(claim, [chunk(0)])
Ledger.update_run = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
ledger.record(claim, [chunk(1), chunk(2)])
"""


def test_a_writer_killed_before_its_commit_leaves_the_old_rows(place, ledger):
    killed = start(KILLED, place)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert [found.seq for found in ledger.list_chunks("c1", "orders")] == [1]
    assert ledger.get_run("c1", "orders").is_running
    ledger.record(claimed(ledger, THERE), [chunk(1)])
    assert place.ask("select seq, epoch from playhead_chunks order by seq") == [("1", "1"), ("2", "2")]
