"""`playhead runs` as a user calls it, with runs that are processes of their own and know nothing but the ledger."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from integration.ledgers import HERE, LOCAL, THERE, Place, chunk, only_postgresql, only_sqlite, place  # noqa: F401
from playhead.errors import Refused
from playhead.ledger.model import RunState, config_setting
from playhead.model import Deadline
from playhead.pipeline.stop import find_run, forget_run, plan_forget


@pytest.fixture
def runs(place, playhead):
    return lambda *words, **more: playhead("runs", *words, "--ledger", place.url, **more)


RUN = """
import sys, time
from integration.ledgers import HERE, LOCAL, chunk
from playhead.ledger.runs import open_ledger
from playhead.ledger.model import RunState
with open_ledger(sys.argv[1], 10) as ledger:
    claim = ledger.claim("c1", "orders", HERE, LOCAL)
    number = 0
    while not ledger.beat(claim):
        ledger.record(claim, [chunk(number)])
        number += 1
        time.sleep(0.1)
    ledger.finish(claim, RunState.STOPPED, f"after {number} steps")
"""


@pytest.fixture
def running(place):
    """A run that beats until it is asked to stop."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", RUN, place.url], env=environment)
    with place.open() as ledger:
        Deadline(30).wait_for(lambda: ledger.list_chunks("c1", "orders"), "the first chunk", every=0.05)
    yield process
    process.kill()
    process.wait(10)


def test_a_ledger_that_was_never_written_is_empty_and_is_not_created(place, runs):
    assert "no run in the ledger" in runs("list").exits(0).err
    assert json.loads(runs("list", "-o", "json").exits(0).out) == []
    assert "nothing has run with" in runs("show", "orders").exits(1).err
    assert place.tables() == set()


def test_list_and_show_print_what_the_database_holds(place, runs):
    with place.open() as ledger:
        claim = ledger.claim("c1", "orders", THERE, LOCAL)
        ledger.set_ids(claim, 3)
        ledger.record(claim, [chunk(number) for number in range(5)])
        ledger.finish(ledger.claim("c1", "codes", HERE, LOCAL), RunState.FAILED, "no such column")
    (codes, orders) = json.loads(runs("list", "-o", "json").exits(0).out)
    assert (codes["pipeline"], codes["state"], codes["detail"]) == ("codes", "failed", "no such column")
    assert (orders["host"], orders["pid"], orders["user"], orders["run"]) == ("there", 22, "you", 1)
    assert (orders["rows"], orders["position"], orders["status"]) == (50, {"incrementing": 50}, "running")
    assert runs("list", "-o", "name").out == "codes\norders\n"
    titles = runs("list").exits(0).out.splitlines()[0].split()
    assert titles == ["PIPELINE", "STATE", "HOST", "SINCE", "ROWS", "STREAM", "POSITION"]
    shown = json.loads(runs("show", "orders", "--chunks", "2", "-o", "json").exits(0).out)
    assert [found["seq"] for found in shown["chunks"]] == [5, 4]
    assert shown["chunks"][0]["offsets"] == {"0": [40, 49]}
    assert shown["chunks"][0]["hash_sum"] == 2**63 - 1
    assert (shown["transactional_ids"], shown["settings"]) == (3, {"master": "local[2]"})
    assert "40 < id <= 50" in runs("describe", "orders").exits(0).out
    assert runs("show", "orders", "-o", "csv").out.count("\n") == 6
    assert "did you mean orders" in runs("show", "order").exits(1).err


def test_stop_shows_its_plan_and_with_execute_waits_until_the_run_says_that_it_ended(place, runs, running):
    asked = "select count(*) from playhead_runs where stop_requested_at is not null"
    planned = runs("stop", "orders").exits(0)
    assert "request a stop after its open step" in planned.out
    assert "dry run" in planned.err
    assert place.ask(asked) == [("0",)]
    done = json.loads(runs("stop", "orders", "--wait", "30s", "--execute", "-o", "json").exits(0).out)
    assert [(row["before"], row["after"], row["result"]) for row in done] == [("running", "stopped", "changed")]
    assert done[0]["detail"].startswith("after ")
    assert place.ask("select state from playhead_runs") == [("stopped",)]
    assert running.wait(10) == 0
    again = json.loads(runs("stop", "orders", "--execute", "-o", "json").exits(0).out)
    assert (again[0]["result"], again[0]["detail"]) == ("unchanged", "it is stopped already")


def test_a_run_that_was_killed_is_silent_and_a_stop_says_that_it_did_not_end(place, runs):
    with place.open() as ledger:
        ledger.claim("c1", "orders", THERE, LOCAL)
    long_ago = "2020-01-01 00:00:00.000000" + ("" if place.kind == "sqlite" else "+00")
    place.ask(f"update playhead_runs set heartbeat = '{long_ago}'")
    assert "silent for" in runs("list").exits(0).out
    assert "if its process is gone, the request has no effect" in runs("stop", "orders").exits(0).out
    done = runs("stop", "orders", "--wait", "1s", "--execute").exits(1)
    assert "requested, but it has not ended within 1 s" in done.out
    assert "from you@there (pid 22)" in done.out
    assert "stop requested" in runs("list").exits(0).out
    assert "requested a stop already" in runs("stop", "orders").exits(0).out


def test_a_stop_that_is_not_waited_for_leaves_a_run_that_is_stopping(place, runs):
    with place.open() as ledger:
        claim = ledger.claim("c1", "orders", THERE, LOCAL)
        assert "requested; not waited for" in runs("stop", "orders", "--no-wait", "--execute").exits(0).out
        assert "stopping" in runs("list").exits(0).out
        assert ledger.beat(claim) is True


def test_a_second_copy_that_takes_over_while_the_first_is_stopped_is_reported(place, runs, monkeypatch):
    from playhead.pipeline.stop import find_run, plan_stop, stop_run

    with place.open() as ledger, place.open() as other:
        ledger.claim("c1", "orders", HERE, LOCAL)
        plan = plan_stop(find_run(ledger, "orders"))
        real = ledger.request_stop

        def then_taken_over(*words):
            done = real(*words)
            other.claim("c1", "orders", THERE, LOCAL)
            return done

        monkeypatch.setattr(ledger, "request_stop", then_taken_over)
        done = stop_run(ledger, plan, 10)
    assert (done.exit_code, done.detail) == (1, "run 2 by you@there (pid 22) took over and continues")


def test_the_same_name_on_two_clusters_needs_the_cluster(place, runs):
    with place.open() as ledger:
        ledger.claim("c1", "orders", HERE, LOCAL)
        ledger.claim("c2", "orders", THERE, LOCAL)
    assert "name one with --cluster c1 or c2" in runs("show", "orders").exits(2).err
    assert json.loads(runs("show", "orders", "--cluster", "c2", "-o", "json").exits(0).out)["host"] == "there"


def test_a_clock_that_was_set_back_is_shown(place, runs):
    with place.open() as ledger:
        ledger.claim("c1", "orders", HERE, LOCAL)
    ahead = "2999-01-01 00:00:00.000000" + ("" if place.kind == "sqlite" else "+00")
    place.ask(f"update playhead_runs set heartbeat = '{ahead}'")
    assert "running (its clock is" in runs("list").exits(0).out


def test_a_newer_ledger_is_refused(place, runs):
    with place.open() as ledger:
        ledger.claim("c1", "orders", HERE, LOCAL)
    place.ask("update playhead_ledger set version = 7")
    for words in (["list"], ["show", "orders"], ["stop", "orders", "--execute"]):
        assert "version 7" in runs(*words).exits(4).err


@only_postgresql
def test_a_server_that_is_gone_is_unreachable_and_in_the_middle_of_waiting_the_outcome_is_unknown(place, lab, runs):
    from playhead.pipeline.stop import find_run, plan_stop, stop_run

    with place.open() as ledger:
        ledger.claim("c1", "orders", HERE, LOCAL)
        plan = plan_stop(find_run(ledger, "orders"))
        real = ledger.request_stop

        def then_gone(*words):
            done = real(*words)
            lab.kill("postgres")
            return done

        ledger.request_stop = then_gone
        try:
            done = stop_run(ledger, plan, 1)
            assert "is the database running" in runs("list").exits(3).err
            runs("stop", "orders", "--execute").exits(3)
        finally:
            lab.start("postgres")
    assert done.exit_code == 5
    assert done.detail.startswith("requested, but its state cannot be read")


@only_sqlite
def test_flag_environment_and_context_name_the_ledger(place, playhead, tmp_path):
    with place.open() as ledger:
        ledger.claim("c1", "orders", HERE, LOCAL)
    (tmp_path / "playhead.toml").write_text('current = "x"\n[contexts.x]\nledger = "sqlite:///ledger.db"\n')
    (tmp_path / "deep").mkdir()
    assert playhead("runs", "list", "-o", "name", cwd=tmp_path / "deep").exits(0).out == "orders\n"
    named = {"PLAYHEAD_LEDGER": place.url}
    assert playhead("runs", "list", "-o", "name", env=named, cwd=tmp_path.parent).exits(0).out == "orders\n"
    elsewhere = f"sqlite:///{tmp_path}/other.db"
    assert playhead("runs", "list", "-o", "name", "--ledger", elsewhere, env=named).exits(0).out == ""
    assert "is not the URL of a ledger" in playhead("runs", "list", "--ledger", "ledger.db").exits(2).err
    shown = playhead("config", "view", env={"PLAYHEAD_LEDGER": "postgresql://me:s3cret@db/x"}).exits(0)
    assert "***@db/x" in shown.out
    assert "s3cret" not in shown.out + shown.err


@only_sqlite
def test_runs_are_listed_where_spark_is_not_installed(place):
    with place.open() as ledger:
        ledger.claim("c1", "orders", HERE, LOCAL)
    code = f"""
import sys
sys.modules["pyspark"] = None
from playhead.__main__ import main
sys.argv = ["playhead", "runs", "list", "-o", "name", "--ledger", {place.url!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "orders\n")


def days_ago(place: Place, days: int, pipeline: str) -> None:
    moment = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S.%f")
    zone = "" if place.kind == "sqlite" else "+00"
    place.ask(f"update playhead_runs set heartbeat = '{moment}{zone}' where pipeline = '{pipeline}'")


def test_a_forgotten_run_is_not_listed_and_everything_that_fences_or_places_it_stays(place, runs):
    with place.open() as ledger:
        claim = ledger.claim("c1", "orders", HERE, {**LOCAL, "ranges": "sqlite:///x.db", **config_setting({"a": "b"})})
        ledger.set_ids(claim, 4)
        ledger.record(claim, [chunk(0)])
        ledger.finish(claim, RunState.FAILED, "no such column")
        planned = runs("forget", "orders").exits(0)
        assert "the ledger keeps its positions" in planned.out
        assert "dry run" in planned.err
        assert runs("list", "-o", "name").exits(0).out == "orders\n"
        done = json.loads(runs("forget", "orders", "--execute", "-o", "json").exits(0).out)
        assert [(row["before"], row["after"], row["result"]) for row in done] == [("failed", "forgotten", "changed")]
        assert runs("list", "-o", "name").exits(0).out == ""
        assert runs("list", "--all", "-o", "name").exits(0).out == "orders\n"
        for words in (["show", "orders"], ["stop", "orders"], ["forget", "orders", "--execute"]):
            assert "had it forgotten" in runs(*words).exits(1).err
        assert place.ask("select epoch, transactional_ids from playhead_runs") == [("1", "4")]
        assert place.ask("select count(*) from playhead_chunks") == [("1",)]
        run = ledger.get_run("c1", "orders")
        assert (run.ranges_at, run.config) == ("sqlite:///x.db", {"a": "b"})
        assert ledger.claim("c1", "orders", THERE, LOCAL).epoch == 2
    assert runs("list", "-o", "name").exits(0).out == "orders\n"


def test_a_live_run_is_not_forgotten_and_a_silent_one_comes_back_with_its_next_heartbeat(place, runs):
    with place.open() as ledger:
        claim = ledger.claim("c1", "orders", THERE, LOCAL)
        for words in ([], ["--execute"]):
            refused = runs("forget", "orders", *words).exits(4)
            assert "orders is running, by you@there" in refused.err
            assert "runs stop orders --execute" in refused.err
        days_ago(place, 2, "orders")
        assert "it sends no heartbeats" in runs("forget", "orders", "--execute").exits(0).out
        assert runs("list", "-o", "name").exits(0).out == ""
        ledger.beat(claim)
    assert runs("list", "-o", "name").exits(0).out == "orders\n"


def test_a_run_that_began_after_the_plan_is_not_forgotten(place):
    with place.open() as ledger:
        ledger.finish(ledger.claim("c1", "orders", HERE, LOCAL), RunState.FINISHED)
        plan = plan_forget(find_run(ledger, "orders"))
        ledger.finish(ledger.claim("c1", "orders", THERE, LOCAL), RunState.FINISHED)
        with pytest.raises(Refused, match="run 2 by you@there"):
            forget_run(ledger, plan)
        assert ledger.get_run("c1", "orders").forgotten_by is None


@only_sqlite
def test_a_run_that_finished_more_than_a_day_ago_is_no_longer_among_the_connectors(place, lab, rest, runs, playhead):
    cluster = rest.worker().kafka_cluster_id
    ends = {"old": RunState.FINISHED, "new": RunState.FINISHED, "broken": RunState.FAILED, "gone": RunState.FAILED}
    with place.open() as ledger:
        for name, state in ends.items():
            ledger.finish(ledger.claim(cluster, f"run-{name}", HERE, LOCAL), state)
            if name != "new":
                days_ago(place, 2, f"run-{name}")
    runs("forget", "run-gone", "--execute").exits(0)

    def listed(*words: str) -> tuple[set[str], str]:
        there = ("--connect", lab.connect_urls[0], "--ledger", place.url)
        done = playhead("connectors", "list", "-o", "name", *words, *there).exits(0)
        return {name for name in done.out.split() if name.startswith("run-")}, done.err

    names, err = listed()
    assert names == {"run-new", "run-broken"}
    assert "finished on Spark more than a day ago: 1; --all lists them" in err
    assert listed("--all")[0] == {f"run-{name}" for name in ends}
    assert listed("run-old") == ({"run-old"}, "")
    assert listed("run-*")[0] == {"run-new", "run-broken"}
    shown = ("connectors", "show", "--connect", lab.connect_urls[0], "--ledger", place.url)
    assert "run-old" in playhead(*shown, "run-old").exits(0).out
    assert "does not exist" in playhead(*shown, "run-gone").exits(1).err


def test_a_ledger_that_cannot_be_read_is_the_reason_why_a_connector_is_not_found(lab, playhead):
    where = ["--connect", lab.connect_urls[0], "--ledger", "postgresql://nobody@127.0.0.1:1/none"]
    failed = playhead("connectors", "show", "run-anything", *where).exits(1)
    assert "the connectors on Spark are unknown" in failed.err
