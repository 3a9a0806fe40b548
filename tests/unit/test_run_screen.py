"""The lines of a run: rates, what is left, how often a log gets one."""

import io

import pytest

pytest.importorskip("pyspark")

from playhead.cli import run_screen
from playhead.cli.run_screen import RunScreen, Speed, span_words
from playhead.errors import Refused
from playhead.ledger.model import RunState
from playhead.pipeline.run import STARTING
from playhead.pipeline.step import Left, LeftUnit, Underway
from playhead.pipeline.supervisor import Progress
from playhead.render.progress import LiveLines


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def said(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(run_screen, "say", lines.append)
    return lines


def reading(rows: int, left: int, unit: LeftUnit = LeftUnit.IDS, is_all: bool = True) -> Progress:
    return Progress("orders", rows, 1, underway=Underway("reading public.orders", 0, Left(left, unit, is_all)))


def test_the_name_of_what_is_done_before_the_first_connector_is_the_one_that_the_run_uses():
    assert run_screen.STARTING == STARTING


def test_a_log_gets_a_line_at_the_beginning_then_every_thirty_seconds_and_one_at_the_end(said, clock):
    screen = RunScreen(is_once=True, clock=clock)
    screen.update(Progress(STARTING, underway=Underway("starting Spark, local[2]")))
    screen.update(Progress(STARTING, underway=Underway("starting Spark, local[2]")))
    for second in range(61):
        clock.now = 101.0 + second
        screen.update(reading(1000 * second, 100_000 - 1000 * second))
    screen.update(Progress("orders", 61_000, 5, 61.4, RunState.FINISHED))
    screen.update(Progress("orders", 61_000, 5, 61.4, RunState.FINISHED, notes=("a late note",)))
    assert said == [
        "starting Spark, local[2]",
        "orders: 0 rows, 100000 ids left, reading public.orders",
        "orders: 30000 rows, 1000/s, 70000 ids left, about 1 min 10 s, reading public.orders",
        "orders: 60000 rows, 1000/s, 40000 ids left, about 40 s, reading public.orders",
        "orders: finished after 61000 rows in 1 min 1 s",
    ]


def test_a_step_that_does_not_move_is_still_reported_and_a_pause_between_two_rounds_is_not(said, clock):
    screen = RunScreen(is_once=False, clock=clock)
    for second in range(0, 100, 10):
        clock.now = 100.0 + second
        screen.update(reading(5, 7))
    assert len(said) == 4
    for second in range(100, 300, 10):
        clock.now = 100.0 + second
        screen.update(Progress("orders", 12, 2))
    assert len(said) == 4


def test_a_failure_says_its_reason_and_a_quiet_run_says_nothing(said, clock):
    failed = Progress("orders", 12, 2, 3.0, RunState.FAILED, error=Refused("no table"))
    RunScreen(is_once=True, is_quiet=True, clock=clock).update(failed)
    assert said == []
    RunScreen(is_once=True, clock=clock).update(failed)
    assert said == ["orders: failed after 12 rows in 3 s: no table"]


def test_an_end_is_estimated_only_when_everything_that_is_left_is_known(said, clock):
    screen = RunScreen(is_once=True, clock=clock)
    for second in (0, 31):
        clock.now = 100.0 + second
        screen.update(reading(100 * second, 50_000_000 - 1_000_000 * second, LeftUnit.MICROSECONDS, is_all=False))
    assert said[-1] == "orders: 3100 rows, 100/s, 19 s of rows left, reading public.orders"


def test_rows_of_the_open_step_count_for_the_rate_and_a_new_round_does_not_make_it_negative():
    speed = Speed()
    for second, (rows, open_rows, left) in enumerate([(0, 0, 100), (0, 50, 50), (100, 0, 0), (100, 0, 500)]):
        progress = Progress("a", rows, underway=Underway("reading b", open_rows, Left(left, LeftUnit.IDS)))
        speed.add(float(second), progress)
        if second == 1:
            assert (speed.rows_per_second, speed.seconds_left) == (50.0, 1.0)
    assert speed.seconds_left is None
    assert speed.rows_per_second > 0


def test_spans_have_two_units_at_most():
    spans = (0.2, 8, 60, 200, 7500, 360_000)
    assert [span_words(one) for one in spans] == ["1 s", "8 s", "1 min", "3 min 20 s", "2 h 5 min", "4 d 4 h"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_lines_are_rewritten_in_place_cut_to_the_terminal_and_removed(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    live = LiveLines(stream)
    live.show(["one", "t" * 200])
    live.show([f"line {number}" for number in range(50)])
    live.clear()
    first, second, last = stream.getvalue().split("\x1b[J")[:3]
    assert first == "\r\x1b[2Kone\n\x1b[2K" + "t" * 79 + "\n"
    assert second.startswith("\r\x1b[2A\x1b[2Kline 0\n") and second.endswith("... and 28 more\n")
    assert last == "\r\x1b[23A"


def test_nothing_is_rewritten_where_the_terminal_cannot(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    LiveLines(stream).show(["one"])
    assert stream.getvalue() == ""
