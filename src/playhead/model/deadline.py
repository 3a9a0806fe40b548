"""One point in time by which a command must be done.

Created once per command from `--timeout` and passed down, so that retries, waits and single calls share one budget. Monotonic:
a clock that is set back does not make a command hang.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from playhead.errors import TimedOut

T = TypeVar("T")


class Deadline:
    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0

    def check(self, doing: str) -> None:
        if self.passed:
            raise TimedOut(f"{doing} did not finish within {self.seconds:g} s", "give it more time with --timeout")

    def within(self, seconds: float) -> "Deadline":
        """A shorter deadline for one step, never longer than this one."""
        return Deadline(min(seconds, self.remaining()))

    def leave(self, seconds: float) -> None:
        """At least so many seconds are left from now on: after a write the store is read back, even if the time is up."""
        self._end = max(self._end, time.monotonic() + seconds)

    def end(self) -> None:
        """No time is left from now on: for work in another thread that must not begin anything new."""
        self._end = time.monotonic()

    def share(self) -> "Deadline":
        """A part of the remaining time, for a server that may not answer. Enough is left for a fallback."""
        return Deadline(min(self.remaining(), max(2.0, self.remaining() / 4)))

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
