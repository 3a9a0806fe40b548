"""One point in time by which a command must be done.

Created once per command from `--timeout` and passed down, so that retries, waits and single calls share one budget. Monotonic:
a clock that is set back does not make a command hang.
"""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from playhead.errors import TimedOut

T = TypeVar("T")


class Deadline:
    __slots__ = ("_end", "_whole", "seconds")

    def __init__(self, seconds: float, whole: float | None = None) -> None:
        """`whole`: the time that messages name. A step that got what was left of `--timeout` names the timeout, not the rest."""
        self.seconds = seconds
        self._whole = seconds if whole is None else whole
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0

    @property
    def words(self) -> str:
        """The time that was given, for messages: rounded up, never `0 s`."""
        return f"{max(1, math.ceil(round(self._whole * 10, 6))) / 10:g} s"

    def check(self, doing: str) -> None:
        if self.passed:
            raise TimedOut(f"{doing} did not finish within {self.words}", "give it more time with --timeout")

    def within(self, seconds: float) -> "Deadline":
        """A shorter deadline for one step, never longer than this one."""
        left = self.remaining()
        return Deadline(seconds) if seconds < left else Deadline(left, self._whole)

    def leave(self, seconds: float) -> None:
        """At least so many seconds are left from now on: after a write the store is read back, even if the time is up."""
        self._end = max(self._end, time.monotonic() + seconds)

    def end(self) -> None:
        """No time is left from now on: for work in another thread that must not begin anything new."""
        self._end = time.monotonic()

    def share(self) -> "Deadline":
        """A part of the remaining time, for a server that may not answer. Enough is left for a fallback."""
        return self.within(max(2.0, self.remaining() / 4))

    def wait_for(self, condition: Callable[[], T | None], doing: str, every: float = 0.1) -> T:
        """Polls `condition` and returns its first truthy result. Raises `TimedOut` at the deadline."""
        while True:
            answer = condition()
            if answer:
                return answer
            self.check(doing)
            time.sleep(min(every, self.remaining()))

    def __repr__(self) -> str:
        return f"Deadline({self.remaining():.1f} of {self.seconds:g} s left)"
