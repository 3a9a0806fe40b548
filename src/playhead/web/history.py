"""What pipelines did lately: lag, and how many records they had moved, in memory and bounded.

A rate is the growth over the last minute. It is unknown for a connector that reports no count: a source on Connect.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from playhead.web.poller import Seen

POINTS = 360
HOUR_SECONDS = 3600.0
WINDOW_SECONDS = 60.0
MOST_PIPELINES = 5000


class Point(NamedTuple):
    """`moved`: records so far, None if unknown. `at`: by the monotonic clock."""

    at: float
    lag: int | None
    moved: int | None


class History:
    def __init__(self) -> None:
        self._points: dict[str, deque[Point]] = {}

    def note(self, part: str, seen: "Seen") -> None:
        """Called after each answer. Connectors and runs bring lags; groups and runs bring counts."""
        if part not in ("connectors", "runs"):
            return
        moved = moved_of(seen)
        if part == "connectors" and seen.connectors.value is not None:
            for row in seen.connectors.value:
                self.add(row.name, row.lag, moved.get(row.name))
        known = set() if seen.connectors.value is None else {row.name for row in seen.connectors.value}
        for one in (seen.runs.value or ()) if part == "runs" else ():
            if one.run.pipeline not in known:
                self.add(one.run.pipeline, None, moved.get(one.run.pipeline))

    def add(self, name: str, lag: int | None, moved: int | None, at: float | None = None) -> None:
        if name not in self._points and len(self._points) >= MOST_PIPELINES:
            return
        points = self._points.setdefault(name, deque(maxlen=POINTS))
        now = time.monotonic() if at is None else at
        if points and now - points[-1].at < HOUR_SECONDS / POINTS and len(points) > 24:
            points[-1] = Point(points[-1].at, lag, points[-1].moved)  # one point in ten seconds covers an hour
            return
        points.append(Point(now, lag, moved))

    def of(self, name: str) -> list[Point]:
        return list(self._points.get(name, ()))

    def rate(self, name: str) -> float | None:
        """Records a second, over the last minute or what is known of it."""
        points = [point for point in self.of(name) if point.moved is not None]
        if len(points) < 2:
            return None
        last = points[-1]
        first = next((point for point in points if point.at >= last.at - WINDOW_SECONDS), points[-2])
        first = points[-2] if first is last else first
        grown = (last.moved or 0) - (first.moved or 0)
        return max(0, grown) / max(last.at - first.at, 0.001)


def moved_of(seen: "Seen") -> dict[str, int]:
    """Records that a pipeline had moved: the sum of the commits of a sink, the rows of a run."""
    moved: dict[str, int] = {}
    for group in seen.groups.value or ():
        if group.group.startswith("connect-"):
            moved[group.group.removeprefix("connect-")] = sum(row.committed or 0 for row in group.rows)
    for one in seen.runs.value or ():
        moved[one.run.pipeline] = sum(row.position for row in one.sinks) if one.sinks else one.run.records
    return moved
