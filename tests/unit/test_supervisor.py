"""A supervisor with scripted connectors and a real ledger of SQLite: which are claimed, retried, stopped, ended."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark")

from playhead.errors import (
    AccessDenied,
    Busy,
    Fenced,
    Invalid,
    NotFound,
    OutcomeUnknown,
    PlayheadError,
    Refused,
    Unreachable,
)
from playhead.ledger.model import Behind, Host, RunState
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import Deadline, Map
from playhead.pipeline import supervisor as module
from playhead.pipeline.slots import Slots
from playhead.pipeline.spark_faults import TaskFailed
from playhead.pipeline.step import IDLE, Left, LeftUnit, PlanAgain, StepReport, Underway
from playhead.pipeline.supervisor import Grant, Pace, Pipeline, Progress, Retries, RunEnd, Supervisor

ONE = StepReport("rows", Map({"incrementing": 1}), 1)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(Retries, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(Retries, "LONGEST_PAUSE_SECONDS", 0.02)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def ledger(url) -> Iterator[Ledger]:
    with open_ledger(url, 10) as opened:
        yield opened


@dataclass
class Fake:
    """A connector whose rounds are scripted: each is a list of reports and errors. The last one is repeated."""

    name: str
    rounds: Sequence[Sequence[StepReport | Exception]] = ((ONE,),)
    opening: Sequence[Exception | None] = ()
    target: str | None = None
    wait_in_step: threading.Event | None = None
    doing: Underway | None = None
    opened: int = 0
    closed: int = 0
    kept_alive: int = 0
    seen: list[Grant] = field(default_factory=list)
    _round: int = 0

    @property
    def pipeline(self) -> Pipeline:
        settings = {"master": "local", "type": "sink"} | ({"ranges": self.target} if self.target else {})
        return Pipeline(self.name, settings, self.target, self.open, lambda text: text.replace("hunter2", "***"))

    def open(self, grant: Grant) -> "Fake":
        self.seen.append(grant)
        error = self.opening[self.opened] if self.opened < len(self.opening) else None
        self.opened += 1
        if error is not None:
            raise error
        return self

    def steps(self):
        script = self.rounds[min(self._round, len(self.rounds) - 1)]
        self._round += 1
        for word in script:
            if isinstance(word, Exception):
                raise word
            if self.wait_in_step is not None:
                self.wait_in_step.wait(20)
            yield word

    @property
    def underway(self) -> Underway:
        return self.doing or Underway("reading", len(self.seen))

    def keep_alive(self) -> None:
        self.kept_alive += 1

    def close(self) -> None:
        self.closed += 1


class Running:
    """A supervisor in a thread of its own."""

    def __init__(self, ledger: Ledger, fakes: Sequence[Fake], pace: Pace) -> None:
        self.reports: list[Progress] = []
        self.cancelled = 0
        self.supervisor = Supervisor(ledger, "c1", Slots(2), pace, self._cancel, self.reports.append)
        self.ends: list[RunEnd] = []
        self._thread = threading.Thread(
            target=lambda: self.ends.append(self.supervisor.run([f.pipeline for f in fakes]))
        )
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _cancel(self) -> None:
        self.cancelled += 1

    def ended(self, seconds: float = 20) -> dict[str, Progress]:
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        return {one.name: one for one in self.ends[0].connectors}

    def until(self, condition: Callable[[], object], what: str) -> None:
        Deadline(20).wait_for(lambda: condition() or None, what, every=0.01)


@contextmanager
def running(ledger: Ledger, *fakes: Fake, continuous: bool = False, give_up: float = 60.0) -> Iterator[Running]:
    run = Running(ledger, fakes, Pace(0.05 if continuous else None, give_up))
    try:
        yield run
    finally:
        for fake in fakes:
            if fake.wait_in_step is not None:
                fake.wait_in_step.set()
        run.until(lambda: run.is_over or stop_all(ledger, fakes), "the end of all")
        run.ended()


def stop_all(ledger: Ledger, fakes: Sequence[Fake]) -> bool:
    for fake in fakes:
        with suppress(NotFound):  # not claimed yet
            ledger.request_stop("c1", fake.name, Host.here())
    return False  # asked again until all have ended


def state_of(ledger: Ledger, name: str) -> RunState | None:
    return next((run.state for run in ledger.list_runs() if run.pipeline == name), None)


def run_once(ledger: Ledger, *fakes: Fake, give_up: float = 60.0) -> dict[str, Progress]:
    with running(ledger, *fakes, give_up=give_up) as run:
        return run.ended()


def test_the_ledger_says_how_far_a_running_source_is_behind(ledger):
    reading = threading.Event()
    fake = Fake("a", wait_in_step=reading)

    def behind(doing: Underway, wanted: Callable[[Behind], bool]) -> None:
        fake.doing = doing
        run.until(lambda: (found := ledger.get_run("c1", "a").behind) and wanted(found), "a heartbeat with it")

    with running(ledger, fake, continuous=True) as run:
        run.until(lambda: fake.opened, "its opening")
        behind(Underway("reading", left=Left(1204, LeftUnit.IDS)), lambda one: one == Behind(1204, "ids"))
        reading.set()
        behind(IDLE, lambda one: one.count == 0 and one.caught_up is not None)
        behind(
            Underway("reading", left=Left(7, LeftUnit.IDS)), lambda one: one.count == 7 and one.caught_up is not None
        )


def test_what_a_sink_has_not_delivered_is_not_said_twice(ledger):
    fake = Fake("a", doing=Underway("delivering", left=Left(9, LeftUnit.OFFSETS)))
    with running(ledger, fake, continuous=True) as run:
        run.until(lambda: fake._round > 3, "some rounds")
        assert ledger.get_run("c1", "a").behind is None


def test_a_connector_that_is_caught_up_is_finished_and_the_ledger_says_so(ledger):
    done = run_once(ledger, Fake("a", [[ONE, ONE]]))
    assert (done["a"].state, done["a"].rows, done["a"].steps, done["a"].error) == (RunState.FINISHED, 2, 2, None)
    [run] = ledger.list_runs()
    assert (run.state, run.detail) == (RunState.FINISHED, "")


def test_one_that_is_held_back_is_not_finished_and_says_what_holds_it(ledger):
    held = StepReport("orders", Map({"incrementing": 1}), note="n", held="waited 60 s for pid 7")
    with running(ledger, Fake("a", [[held, ONE]]), Fake("b")) as run:
        done = run.ended()
        assert run.ends[0].exit_code == 1
    assert (done["a"].state, done["a"].rows, done["a"].held) == (
        RunState.HELD_BACK,
        1,
        "orders: waited 60 s for pid 7",
    )
    assert done["b"].state is RunState.FINISHED
    assert {run.pipeline: (run.state, run.detail) for run in ledger.list_runs()} == {
        "a": (RunState.HELD_BACK, "orders: waited 60 s for pid 7"),
        "b": (RunState.FINISHED, ""),
    }


def test_one_that_was_held_back_and_then_read_on_is_finished(ledger):
    held = StepReport("rows", None, held="waited")
    done = run_once(ledger, Fake("a", [[held, Unreachable("away")], [ONE]]))
    assert (done["a"].state, done["a"].held) == (RunState.FINISHED, "")


def test_one_that_fails_ends_at_once_in_the_ledger_and_on_the_screen_while_the_other_goes_on(ledger):
    bad, good = Fake("bad", [[Refused("no table hunter2")]]), Fake("good")
    with running(ledger, bad, good, continuous=True) as run:
        run.until(lambda: state_of(ledger, "bad") is RunState.FAILED, "the end in the ledger")
        assert ledger.get_run("c1", "bad").detail == "no table ***"
        assert [one.state for one in run.reports if one.name == "bad"][-1] is RunState.FAILED
        beat = ledger.get_run("c1", "bad").heartbeat
        before = ledger.get_run("c1", "good").heartbeat
        run.until(lambda: ledger.get_run("c1", "good").heartbeat > before, "a heartbeat of the living")
        assert ledger.get_run("c1", "bad").heartbeat == beat, "the dead have none"


def test_one_that_is_asked_to_stop_ends_alone(ledger):
    with running(ledger, Fake("a"), Fake("b"), continuous=True) as run:
        run.until(lambda: len(ledger.list_runs()) == 2, "two claims")
        ledger.request_stop("c1", "b", Host.here())
        run.until(lambda: state_of(ledger, "b") is RunState.STOPPED, "the end of b")
        assert ledger.get_run("c1", "b").detail == "stop requested"
        assert ledger.get_run("c1", "a").is_running


def test_a_request_that_is_withdrawn_before_the_open_step_ends_is_not_followed(ledger):
    slow = Fake("a", wait_in_step=threading.Event())
    with running(ledger, slow, continuous=True) as run:
        run.until(lambda: slow.seen, "the first step")
        user = slow.seen[0].slots
        ledger.request_stop("c1", "a", Host.here(), "the record")
        run.until(lambda: user.is_cancelled, "the request is seen")
        assert ledger.withdraw_stop(ledger.get_run("c1", "a"), "the record").is_running
        run.until(lambda: not user.is_cancelled, "its slots are back")
        assert slow.wait_in_step is not None
        slow.wait_in_step.set()
        run.until(lambda: run.reports[-1].steps >= 3, "more steps")
        assert ledger.get_run("c1", "a").is_running and slow.opened == 1


def test_a_run_that_followed_a_request_goes_on_if_it_is_withdrawn_before_its_end_is_written(ledger, monkeypatch):
    """It has closed everything by then, and opens it again."""
    real, told = ledger.beat, threading.Event()

    def beat(*words):
        return real(*words) or not told.is_set()  # what was there a moment ago

    monkeypatch.setattr(ledger, "beat", beat)
    fake = Fake("a")
    with running(ledger, fake, continuous=True) as run:
        run.until(lambda: fake.opened >= 3, "it is opened again")
        told.set()
        before = run.reports[-1].steps
        run.until(lambda: run.reports[-1].steps >= before + 3, "more steps")
        assert ledger.get_run("c1", "a").is_running and fake.closed == fake.opened - 1


def test_either_the_run_has_left_or_the_request_is_withdrawn(ledger):
    fake = Fake("a")
    with running(ledger, fake, continuous=True) as run:
        run.until(lambda: state_of(ledger, "a"), "the claim")
        seen = ledger.request_stop("c1", "a", Host.here(), "the record")
        run.until(lambda: not ledger.get_run("c1", "a").is_running, "its end")
        after = ledger.withdraw_stop(seen, "the record")
        assert (after.state, after.detail) == (RunState.STOPPED, "stop requested") and after.stop is not None


def test_a_withdrawn_request_does_not_take_back_the_interrupt_of_the_user(ledger):
    slow = Fake("a", wait_in_step=threading.Event())
    runner = module._Runner(Supervisor(ledger, "c1", Slots(1), Pace(0.05), lambda: None), slow.pipeline)
    runner.stop(module.REQUESTED)
    runner.stop("interrupted")
    runner._withdraw()
    assert runner._stop.is_set() and runner._slots.is_cancelled and runner._leaves()


def test_one_that_waits_for_slots_stops_at_once(ledger):
    class Waiting(Fake):
        def steps(self):
            with self.seen[-1].slots.request(1) as ticket:
                ticket.wait()
                yield ONE

    waiting = Waiting("b")
    with running(ledger, waiting, continuous=True) as run:
        with run.supervisor._slots.join().request(2) as all_of_them:
            all_of_them.wait()
            run.until(lambda: run.supervisor._slots._waiting, "the request for a slot")
            ledger.request_stop("c1", "b", Host.here())
            run.until(lambda: state_of(ledger, "b") is RunState.STOPPED, "the end")
        assert waiting.closed == waiting.opened


@pytest.mark.parametrize(
    "error", [Unreachable("gone"), Busy("rebalance"), OutcomeUnknown("perhaps"), TaskFailed("lost")]
)
def test_a_failure_is_followed_by_another_try_with_everything_opened_anew(ledger, error):
    fake = Fake("a", [[ONE, error], [ONE]])
    done = run_once(ledger, fake)
    assert (done["a"].state, done["a"].rows) == (RunState.FINISHED, 2)
    assert (fake.opened, fake.closed) == (2, 2)
    assert len({grant.own.claim for grant in fake.seen}) == 1, "the claim is kept over all tries"


@pytest.mark.parametrize("error", [AccessDenied("password"), Refused("no"), Invalid("bad"), Fenced("id-0")])
def test_what_another_try_cannot_cure_ends_it(ledger, error):
    fake = Fake("a", [[error]])
    done = run_once(ledger, fake)
    assert (done["a"].state, done["a"].error, fake.opened, fake.closed) == (RunState.FAILED, error, 1, 1)


def test_an_outage_is_outlived_by_a_continuous_run_and_said(ledger):
    fake = Fake("a", opening=[Unreachable("no broker")] * 50)
    with running(ledger, fake, continuous=True, give_up=0.05) as run:
        run.until(lambda: run.supervisor and any(one.rows for one in run.reports), "the first row")
    waits = [one.waiting for one in run.reports if one.waiting]
    assert waits and all("no broker; next try in" in one for one in waits)
    assert run.reports[-1].waiting == ""


def test_a_run_until_caught_up_gives_up_after_its_time(ledger):
    fake = Fake("a", opening=[Unreachable("no broker")] * 1000)
    done = run_once(ledger, fake, give_up=0.1)
    assert (done["a"].state, str(done["a"].error)) == (RunState.FAILED, "no broker")
    assert 2 < fake.opened < 1000


def test_good_rounds_refill_the_budget_even_if_they_are_empty(ledger):
    """One failure in each of ten rounds, with an empty good one after each."""
    rounds = [word for _ in range(10) for word in ([TaskFailed("hiccup")], [])]
    fake = Fake("a", [*rounds, [ONE]])
    with running(ledger, fake, continuous=True, give_up=0.0) as run:
        run.until(lambda: any(one.rows for one in run.reports), "the row after all of them")
    assert fake.opened == 11


def test_a_committed_step_is_counted_though_what_follows_it_fails(ledger):
    broken = StepReport("rows", Map({"incrementing": 5}), 5, problem=Unreachable("ledger away"))
    done = run_once(ledger, Fake("a", [[broken], [ONE]]))
    assert (done["a"].rows, done["a"].steps, done["a"].state) == (6, 2, RunState.FINISHED)


def test_between_rounds_what_is_open_is_kept_alive(ledger):
    fake = Fake("a")
    run = Running(ledger, [fake], Pace(3600.0))
    run.until(lambda: fake.kept_alive >= 3, "signs of life during a long pause")
    ledger.request_stop("c1", "a", Host.here())
    assert run.ended()["a"].state is RunState.STOPPED
    assert fake._round == 1


def test_a_second_ledger_is_claimed_has_heartbeats_and_gets_the_end(ledger, tmp_path):
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    fake = Fake("a", target=target_url)
    with open_ledger(target_url, 10) as target, running(ledger, fake, continuous=True) as run:
        run.until(lambda: target.list_runs() and any(one.rows for one in run.reports), "the claim in the target")
        before = target.get_run("c1", "a").heartbeat
        run.until(lambda: target.get_run("c1", "a").heartbeat > before, "a heartbeat in the target")
        assert fake.seen[0].ranges.claim != fake.seen[0].own.claim or fake.seen[0].ranges.ledger is not ledger
        assert ledger.get_run("c1", "a").records >= 1, "the run's own ledger shows how far it is"
        ledger.request_stop("c1", "a", Host.here())
        run.ended()
        assert target.get_run("c1", "a").state is RunState.STOPPED


def test_a_failed_end_is_failed_in_the_second_ledger_too(ledger, tmp_path):
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    run_once(ledger, Fake("a", [[Refused("no column")]], target=target_url))
    with open_ledger(target_url, 10) as target:
        run = target.get_run("c1", "a")
    assert (run.state, run.detail) == (RunState.FAILED, "no column")


def test_two_urls_of_one_ledger_are_one_claim(ledger, url):
    fake = Fake("a", target=url)
    run_once(ledger, fake)
    assert fake.seen[0].ranges == fake.seen[0].own
    assert [run.epoch for run in ledger.list_runs()] == [1]


def test_a_run_that_is_taken_over_says_so_and_leaves_the_row_alone(ledger):
    with running(ledger, Fake("a"), continuous=True) as run:
        run.until(ledger.list_runs, "the claim")
        ledger.claim("c1", "a", Host("elsewhere", 1, "other"), {})
        done = run.ended()
    assert isinstance(done["a"].error, Fenced)
    assert "took over" in done["a"].error.what
    assert ledger.get_run("c1", "a").is_running


def test_a_ledger_that_is_away_for_a_moment_ends_nothing(ledger, monkeypatch):
    real, away = ledger.claim, [Unreachable("the ledger is away")] * 3

    def claim(*words):
        if away:
            raise away.pop()
        return real(*words)

    monkeypatch.setattr(ledger, "claim", claim)
    assert run_once(ledger, Fake("a"))["a"].state is RunState.FINISHED


def test_an_end_that_cannot_be_written_is_a_note(ledger, monkeypatch):
    def finish(*_, **__):
        raise Unreachable("the ledger is away")

    monkeypatch.setattr(ledger, "finish", finish)
    monkeypatch.setattr(module, "FINISH_SECONDS", 0.1)
    done = run_once(ledger, Fake("a"))
    assert done["a"].state is RunState.FINISHED
    assert any("its end was not written in" in note and "away" in note for note in done["a"].notes)


def test_a_bug_is_reported_as_one_without_the_secrets(ledger):
    done = run_once(ledger, Fake("a", [[ZeroDivisionError("hunter2")]]))
    assert isinstance(done["a"].error, PlayheadError)
    assert "a fault in Playhead itself" in done["a"].error.what and "hunter2" not in done["a"].error.what


def test_the_note_of_a_step_is_shown_without_the_secrets(ledger):
    done = run_once(ledger, Fake("a", [[StepReport("", None, note="task 0: no answer to ?token=hunter2")]]))
    assert done["a"].notes == ("task 0: no answer to ?token=***",)


@pytest.mark.parametrize("signals", [1, 2])
def test_the_first_signal_lets_the_open_step_finish_the_second_abandons_it(ledger, signals):
    """In the main thread, as a command has it."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Fake):
        def steps(self):
            inside.set()
            go_on.wait(20)
            if cancelled:
                raise TypeError("'NoneType' object has no attribute 'setCallSite'")  # as Spark says when it goes away
            yield ONE

    def send() -> None:
        inside.wait(20)
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(0.3)
        go_on.set()

    cancelled: list[int] = []
    sender = threading.Thread(target=send)
    sender.start()
    supervisor = Supervisor(ledger, "c1", Slots(1), Pace(0.05), lambda: cancelled.append(1))
    end = supervisor.run([Slow("a").pipeline])
    sender.join()
    [one] = end.connectors
    assert (end.interrupted, end.exit_code, one.state, one.error) == (True, 130, RunState.STOPPED, None)
    assert one.rows == (1 if signals == 1 else 0)
    assert bool(cancelled) == (signals == 2)
    assert ("abandoned" in " ".join(one.notes)) == (signals == 2)
    assert ledger.get_run("c1", "a").state is RunState.STOPPED


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def tries(pace: Pace, error: PlayheadError, seconds_each: float, most: int = 1000) -> tuple[int, list[float]]:
    """How many failures it takes until there is no next try, and the pauses."""
    clock, pauses = Clock(), []
    retries = Retries(pace, clock)
    for count in range(1, most):
        try:
            pauses.append(retries.pause_after(error))
        except PlayheadError:
            return count, pauses
        clock.now += seconds_each + pauses[-1]
    return most, pauses


def test_pauses_grow_to_a_limit(monkeypatch):
    monkeypatch.setattr(Retries, "FIRST_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(Retries, "LONGEST_PAUSE_SECONDS", 30.0)
    _, pauses = tries(Pace(5.0), Unreachable("x"), 0, most=10)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_an_outage_is_never_the_end_of_a_continuous_run():
    assert tries(Pace(5.0, 120.0), Unreachable("x"), 10.0)[0] == 1000


def test_a_failure_that_nothing_explains_ends_a_continuous_run_after_its_time():
    assert 4 < tries(Pace(5.0, 120.0), TaskFailed("x"), 1.0)[0] < 200
    assert tries(Pace(None, 120.0), TaskFailed("x"), 1.0)[0] == Retries.DOUBTFUL_TRIES
    assert tries(Pace(None, 120.0), PlanAgain("x"), 1.0)[0] == Retries.DOUBTFUL_TRIES


def test_a_failure_that_turns_out_to_be_an_outage_is_one():
    """A task fails because the database is away; opening again says so. The count of unexplained failures begins anew."""
    retries = Retries(Pace(5.0, 0.0), Clock())
    for _ in range(20):
        retries.pause_after(TaskFailed("connection refused"))
        retries.pause_after(Unreachable("connection refused"))
