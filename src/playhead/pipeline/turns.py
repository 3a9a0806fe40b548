"""The tasks of one step wait here for each other: all have fenced before the first commits, and they commit in turn.

Spark's own barrier does the same, but looks only once a second whether everybody has come; a small step would be nothing but
waiting. A connection that breaks ends the step for all of them.
"""

import threading
from collections.abc import Callable
from typing import IO

from playhead.errors import PlayheadError
from playhead.pipeline.desk import Desk, answer

READY, PRODUCED, COMMITTED, ROWS = "ready", "produced", "committed", "rows"
ARRIVAL_SECONDS = 60.0
LATE = "the other tasks of the step did not finish in time"


class Turns(Desk):
    """`check` is asked once, when every task has fenced what was before it: a sentence stops the step, None lets it go on."""

    def __init__(self, chunks: int, check: Callable[[], str | None], host: str = "127.0.0.1", bind: str = "") -> None:
        self._chunks = chunks
        self._check = check
        self._changed = threading.Condition()
        self._arrived: set[int] = set()
        self._may_commit = False
        self._turn = 0
        self._stopped: str | None = None
        self._rows: dict[int, int] = {}
        super().__init__(host, bind, backlog=max(8, chunks))

    @property
    def committed(self) -> int:
        """Chunks 0 to here are committed."""
        return self._turn

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    def stop(self, why: str) -> None:
        """No task commits from here on; one that is committing right now is not held back."""
        with self._changed:
            self._stopped = self._stopped or why
            self._changed.notify_all()

    def close(self) -> None:
        self.stop("the step is over")
        super().close()

    def _talk(self, number: int, lines: IO[str]) -> None:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == ROWS:
                self._rows[number] = int(rest)
            elif word == READY:
                self._arrive(number)
            elif word == COMMITTED:
                with self._changed:
                    self._turn = number + 1
                    self._changed.notify_all()
            else:
                answer(lines, self._wait_for_turn(number))

    def _left(self, number: int) -> None:
        if self._turn <= number:
            self.stop(f"the task of chunk {number} went away")

    def _arrive(self, number: int) -> None:
        with self._changed:
            self._arrived.add(number)
            are_all = len(self._arrived) == self._chunks
        if are_all:
            why = self._asked()
            with self._changed:
                self._stopped = self._stopped or why
                self._may_commit = True
                self._changed.notify_all()

    def _asked(self) -> str | None:
        try:
            return self._check()
        except PlayheadError as error:
            self.error = error
            return error.what

    def _wait_for_turn(self, number: int) -> str | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._may_commit or self._stopped, ARRIVAL_SECONDS):
                self._stopped = f"{len(self._arrived)} of {self._chunks} tasks got a slot: something else uses them"
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == number or self._stopped)
            return self._stopped
