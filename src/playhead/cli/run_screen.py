"""What `playhead run` says on stderr while it runs.

On a terminal: one live line per connector, and above them, as permanent lines, what it waits for and what failed. Without a
terminal, in a log: a line when something begins, one every 30 seconds while it lasts, and one for each end.
"""

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from playhead.cli.frame import say
from playhead.render.progress import LiveLines

if TYPE_CHECKING:
    from playhead.pipeline.step import Left
    from playhead.pipeline.supervisor import Progress

REMIND_SECONDS = 60.0
LINE_SECONDS = 30.0
REDRAW_SECONDS = 0.2
RATE_SECONDS = 20.0


class RunScreen:
    """Reports come one at a time. `is_once`: the ends of connectors are in the table that follows at once."""

    def __init__(self, *, is_once: bool, is_quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._live = LiveLines(sys.stderr)
        self._is_once = is_once
        self._is_quiet = is_quiet
        self._clock = clock
        self._seen: dict[str, Progress] = {}
        self._speeds: dict[str, Speed] = {}
        self._waits: dict[str, tuple[str, float]] = {}
        self._said: dict[str, tuple[str, float]] = {}
        self._drawn = -REDRAW_SECONDS

    def start(self) -> None:
        """Before anything is loaded: on a terminal there is a line from the beginning."""
        if not self._is_quiet:
            self._live.show(["starting"])

    def update(self, progress: "Progress") -> None:
        if self._is_quiet:
            return
        name, is_new_state = progress.name, progress.state is not None and self._state_of(progress.name) is None
        self._seen[name] = progress
        self._speeds.setdefault(name, Speed()).add(self._clock(), progress)
        if progress.waiting:
            self._say_wait(name, progress.waiting)
        elif self._waits.pop(name, None) and progress.state is None:
            self._say(f"{name}: continues")
        if is_new_state:
            self._say_end(progress)
        elif not self._live.on and progress.state is None and not progress.waiting:
            self._log(progress)
        self._draw(is_forced=is_new_state or name == STARTING)

    def close(self) -> None:
        self._live.clear()

    def _state_of(self, name: str) -> object:
        return self._seen[name].state if name in self._seen else None

    def _draw(self, *, is_forced: bool) -> None:
        now = self._clock()
        if not self._live.on or (now - self._drawn < REDRAW_SECONDS and not is_forced):
            return
        self._drawn = now
        started = [one for one in self._seen.values() if one.steps or one.underway.doing or one.state or one.waiting]
        # What was done before the first connector is over as soon as one is open.
        self._live.show([self._line(one) for one in started if len(started) == 1 or one.name != STARTING])

    def _line(self, progress: "Progress") -> str:
        if progress.name == STARTING and progress.underway.doing:
            return progress.underway.doing
        if progress.state is not None:
            return f"{progress.name}: {_end_of(progress)}"
        if progress.waiting:
            return f"{progress.name}: waits: {progress.waiting}"
        return f"{progress.name}: {self._words(progress)}"

    def _words(self, progress: "Progress") -> str:
        """`120000+8000 rows, 24000/s, 180000 ids left, about 8 s, reading public.orders`: what counts comes first, because a
        terminal cuts the end."""
        now, speed = progress.underway, self._speeds[progress.name]
        parts = [f"{progress.rows}+{now.rows} rows" if now.rows else f"{progress.rows} rows"]
        if now.doing and (rate := speed.rows_per_second):
            parts.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        if now.left is not None:
            parts.append(f"{left_words(now.left)} left")
            if now.left.is_all and (seconds := speed.seconds_left) is not None:
                parts.append(f"about {span_words(seconds)}")
        return ", ".join([*parts, now.doing or "caught up"])

    def _log(self, progress: "Progress") -> None:
        """A line when something begins, and every 30 seconds while it is done. Between two rounds nothing is said."""
        now, (known, since) = self._clock(), self._said.get(progress.name, ("", -LINE_SECONDS))
        doing = progress.underway.doing
        if not doing or (progress.name != STARTING and now - since < LINE_SECONDS) or doing == "opening":
            return
        line = self._line(progress)
        if progress.name == STARTING and line == known:
            return
        self._said[progress.name] = (line, now)
        self._say(line)

    def _say_end(self, progress: "Progress") -> None:
        """On a terminal the ends of a run until caught up are in its table at once, except for failures, which come first."""
        if not (self._live.on and self._is_once and progress.error is None):
            self._say(f"{progress.name}: {_end_of(progress)}")

    def _say_wait(self, name: str, words: str) -> None:
        """Prints each reason once, and again every minute while it lasts."""
        reason = words.rpartition("; next try")[0]
        known, since = self._waits.get(name, ("", 0.0))
        if known != reason or self._clock() - since >= REMIND_SECONDS:
            self._waits[name] = (reason, self._clock())
            self._say(f"{name}: waits: {words}")

    def _say(self, words: str) -> None:
        self._live.clear()
        say(words)
        self._drawn = -REDRAW_SECONDS


STARTING = "starting"  # as in pipeline/run.py, which loads Spark


class Speed:
    """Rows per second, and how fast what is left becomes less, over the last seconds."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, int]] = deque()
        self._left: deque[tuple[float, int]] = deque()
        self._left_of: tuple[str, str] = ("", "")

    def add(self, now: float, progress: "Progress") -> None:
        _append(self._rows, now, progress.rows + progress.underway.rows)
        left = progress.underway.left
        if left is None:
            return
        if (what := (progress.underway.doing.partition(" ")[2], left.unit.value)) != self._left_of:
            self._left_of = what
            self._left.clear()
        if self._left and left.count > self._left[-1][1]:
            self._left.clear()  # a new round, or a step that failed
        _append(self._left, now, left.count)

    @property
    def rows_per_second(self) -> float:
        return max(0.0, _slope(self._rows))

    @property
    def seconds_left(self) -> float | None:
        """None: it is not known yet."""
        slope = -_slope(self._left)
        return self._left[-1][1] / slope if slope > 0 else None


def _append(points: "deque[tuple[float, int]]", now: float, value: int) -> None:
    points.append((now, value))
    while len(points) > 2 and now - points[0][0] > RATE_SECONDS:
        points.popleft()


def _slope(points: "deque[tuple[float, int]]") -> float:
    if len(points) < 2 or points[-1][0] - points[0][0] < 0.5:
        return 0.0
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def left_words(left: "Left") -> str:
    unit = left.unit.value
    if unit == "microseconds":
        return f"{span_words(left.count / 1e6)} of rows"
    return f"{left.count} {unit}"


def span_words(seconds: float) -> str:
    """Two units at most: `8 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`."""
    whole = max(1, round(seconds))
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def one_line(text: str) -> str:
    """Of a message with a fault in each line."""
    return "; ".join(text.splitlines())


def _end_of(progress: "Progress") -> str:
    why = one_line(progress.error.what) if progress.error else progress.held
    if progress.is_refused:
        return f"refused: {why}"
    state = progress.state.value if progress.state else "stopped"
    return f"{state} after {progress.rows} rows in {span_words(progress.seconds)}" + (f": {why}" if why else "")
