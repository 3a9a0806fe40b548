"""One budget of time per command, on a clock that only the test moves."""

import time

import pytest

from playhead.errors import TimedOut
from playhead.model import Deadline


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    monkeypatch.setattr(time, "sleep", made.sleep)
    return made


def test_time_left_runs_down_and_never_below_nothing(clock):
    deadline = Deadline(10)
    assert deadline.remaining() == 10
    clock.now += 4
    assert deadline.remaining() == 6
    assert not deadline.passed
    clock.now += 100
    assert deadline.remaining() == 0
    assert deadline.passed


def test_a_clock_set_back_does_not_matter(clock, monkeypatch):
    deadline = Deadline(10)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    clock.now += 11
    assert deadline.passed


def test_a_check_in_time_is_silent_and_a_late_one_says_what_was_being_done(clock):
    deadline = Deadline(1.5)
    deadline.check("reading")
    clock.now += 2
    with pytest.raises(TimedOut, match=r"^reading did not finish within 1\.5 s$") as caught:
        deadline.check("reading")
    assert caught.value.hint == "give it more time with --timeout"


def test_a_step_gets_its_own_time_but_never_more_than_is_left(clock):
    deadline = Deadline(10)
    assert deadline.within(3).remaining() == 3
    assert deadline.within(30).remaining() == 10
    clock.now += 9
    assert deadline.within(3).remaining() == 1


def test_waiting_returns_the_first_answer(clock):
    answers = iter([None, 0, "", "here"])
    assert Deadline(10).wait_for(lambda: next(answers), "looking", every=0.5) == "here"
    assert clock.slept == [0.5, 0.5, 0.5]


def test_waiting_ends_with_the_deadline_and_not_a_sleep_later(clock):
    with pytest.raises(TimedOut, match=r"^looking did not finish within 1 s$"):
        Deadline(1).wait_for(lambda: None, "looking", every=0.4)
    assert clock.now == pytest.approx(1001)
    assert sum(clock.slept) == pytest.approx(1)


def test_the_condition_is_asked_even_when_no_time_is_left(clock):
    assert Deadline(0).wait_for(lambda: 5, "looking") == 5
    with pytest.raises(TimedOut):
        Deadline(0).wait_for(lambda: None, "looking")


def test_an_error_of_the_condition_is_not_swallowed(clock):
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Deadline(10).wait_for(fails, "looking")


def test_a_deadline_shows_how_much_is_left(clock):
    deadline = Deadline(10)
    clock.now += 2.25
    assert repr(deadline) == "Deadline(7.8 of 10 s left)"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(30, "30 s"), (1.5, "1.5 s"), (0.01, "0.1 s"), (0, "0.1 s"), (7.421, "7.5 s"), (0.3, "0.3 s")],
)
def test_the_time_in_words_is_rounded_up_and_never_nothing(clock, seconds, words):
    assert Deadline(seconds).words == words


def test_a_step_that_got_the_rest_of_the_time_names_the_time_that_was_given(clock):
    deadline = Deadline(30)
    clock.now += 29.999
    for step in (deadline.within(5), deadline.share(), deadline.within(5).within(3)):
        assert step.remaining() == pytest.approx(0.001)
        assert step.words == "30 s"
    assert Deadline(30).within(5).words == "5 s"
    clock.now += 1
    with pytest.raises(TimedOut, match="reading did not finish within 30 s"):
        deadline.within(5).check("reading")
