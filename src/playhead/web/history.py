"""What pipelines did lately: lag, and how many records they had moved, in memory and bounded.

A rate is the growth over the last minute. It is unknown for a connector that reports no count: a source on Connect. Numbers are
kept in arrays: an hour of a thousand pipelines takes 9 MB.
"""

import time
from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from playhead.web.poller import Seen
    from playhead.web.sources import SeenRun

POINTS = 360
HOUR_SECONDS = 3600.0
WINDOW_SECONDS = 60.0
MOST_PIPELINES = 5000
_UNKNOWN = -1


class Point(NamedTuple):
    """`moved`: records so far, None if unknown. `at`: by the monotonic clock."""

    at: float
    lag: int | None
    moved: int | None


class _Line:
    """The points of one pipeline, oldest first."""

    __slots__ = ("at", "lag", "moved")

    def __init__(self) -> None:
        self.at = array("d")
        self.lag = array("q")
        self.moved = array("q")

    def add(self, at: float, lag: int, moved: int) -> None:
        if len(self.at) > 24 and at - self.at[-1] < HOUR_SECONDS / POINTS:
            self.lag[-1] = lag  # one point in ten seconds covers an hour
            return
        self.at.append(at)
        self.lag.append(lag)
        self.moved.append(moved)
        if len(self.at) > POINTS:
            del self.at[0], self.lag[0], self.moved[0]


class History:
    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def note(self, part: str, seen: "Seen") -> None:
        """Called after each answer. Connectors and runs bring lags; groups and runs bring counts."""
        if part not in ("connectors", "runs"):
            return
        moved, listed = moved_of(seen), list(seen.connectors.value or ())
        by_connect = {row.name for row in listed if row.engine != "spark" and row.state != "stopped"}
        runs = {one.run.pipeline: one for one in runs_of(seen) if one.run.pipeline not in by_connect}
        if part == "runs":
            for name, one in runs.items():
                self.add(name, one.lag, moved.get(name))
            return
        for row in listed:
            if row.name not in runs:
                self.add(row.name, row.lag, moved.get(row.name))

    def add(self, name: str, lag: int | None, moved: int | None, at: float | None = None) -> None:
        if name not in self._lines and len(self._lines) >= MOST_PIPELINES:
            return
        line = self._lines.setdefault(name, _Line())
        now = time.monotonic() if at is None else at
        line.add(now, _UNKNOWN if lag is None else max(0, lag), _UNKNOWN if moved is None else max(0, moved))

    def of(self, name: str) -> list[Point]:
        line = self._lines.get(name)
        if line is None:
            return []
        rows = zip(line.at, line.lag, line.moved, strict=False)  # the poller may add a point meanwhile
        return [Point(at, _known(lag), _known(moved)) for at, lag, moved in rows]

    def lags(self, name: str, most: int) -> list[int]:
        """The known lags, oldest first; of a long history the highest of each of `most` parts."""
        line = self._lines.get(name)
        if line is None:
            return []
        known = line.lag[:]
        if _UNKNOWN in known:
            known = array("q", [lag for lag in known if lag != _UNKNOWN])
        if len(known) <= most:
            return known.tolist()
        step = -(-len(known) // most)
        return [max(known[at : at + step]) for at in range(0, len(known), step)]

    def last_lag(self, name: str) -> int | None:
        """The newest lag that was known."""
        line = self._lines.get(name)
        return None if line is None else next((lag for lag in reversed(line.lag) if lag != _UNKNOWN), None)

    def rate(self, name: str) -> float | None:
        """Records a second, over the last minute or what is known of it."""
        line = self._lines.get(name)
        if line is None:
            return None
        first = last = None
        for place in range(len(line.moved) - 1, -1, -1):
            if line.moved[place] == _UNKNOWN:
                continue
            if last is None:
                last = place
            elif first is None or line.at[place] >= line.at[last] - WINDOW_SECONDS:
                first = place
            else:
                break
        if first is None or last is None:
            return None
        return max(0, line.moved[last] - line.moved[first]) / max(line.at[last] - line.at[first], 0.001)


def runs_of(seen: "Seen") -> "list[SeenRun]":
    """Those that are pipelines of Spark now: no copy of a topic, and none that a hand-over gave to Connect."""
    return [one for one in seen.runs.value or () if not one.run.is_copy and not one.run.is_with_connect]


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number


def moved_of(seen: "Seen") -> dict[str, int]:
    """Records that a pipeline had moved: the sum of the commits of a sink, the rows of a run."""
    moved: dict[str, int] = {}
    for group in seen.groups.value or ():
        if group.group.startswith("connect-"):
            moved[group.group.removeprefix("connect-")] = sum(row.committed or 0 for row in group.rows)
    for one in runs_of(seen):
        moved[one.run.pipeline] = sum(row.position for row in one.sinks) if one.sinks else one.run.records
    return moved
