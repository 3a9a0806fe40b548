"""How the tasks of a step of polls and its driver talk. All fence first, then the driver checks the positions, then all begin.

Tasks are independent of each other, as in Connect: each has source partitions of its own, and commits when it likes. A source
partition that two tasks of a step read is refused: their offsets would overwrite each other.
"""

import threading
from collections.abc import Callable
from typing import IO

from playhead.errors import PlayheadError
from playhead.pipeline.task_link import READY, ROWS, TaskServer, answer

TOPIC, OWN = "topic", "own"
ARRIVAL_SECONDS = 60.0


class PollGate(TaskServer):
    """`check` is called once, when all tasks have fenced: a message stops the step. `count_partitions` makes a missing topic."""

    def __init__(
        self,
        tasks: int,
        check: Callable[[], str | None],
        count_partitions: Callable[[str], int],
        host: str = "127.0.0.1",
        bind: str = "",
    ) -> None:
        self._tasks = tasks
        self._check = check
        self._count_partitions = count_partitions
        self._changed = threading.Condition()
        self._arrived: set[int] = set()
        self._is_checked = False
        self._stopped: str | None = None
        self._rows: dict[int, int] = {}
        self._owners: dict[str, int] = {}
        super().__init__(host, bind, backlog=max(8, tasks))

    @property
    def rows(self) -> int:
        return sum(list(self._rows.values()))  # a copy: tasks add theirs at the same time

    def close(self) -> None:
        with self._changed:
            self._stopped = self._stopped or "the step is over"
            self._changed.notify_all()
        super().close()

    def _talk(self, number: int, lines: IO[str]) -> None:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == ROWS:
                self._rows[number] = int(rest)
            elif word == READY:
                answer(lines, self._arrive(number))
            elif word == TOPIC:
                answer(lines, *self._topic(rest))
            elif word == OWN:
                answer(lines, None, str(self._own(number, rest)))

    def _left(self, number: int) -> None:
        with self._changed:
            if not self._is_checked:
                self._stopped = self._stopped or f"task {number} of the step ended before all had begun"
                self._changed.notify_all()

    def _arrive(self, number: int) -> str | None:
        with self._changed:
            self._arrived.add(number)
            are_all = len(self._arrived) == self._tasks
        if are_all:
            why = self._checked()
            with self._changed:
                self._stopped = self._stopped or why
                self._is_checked = True
                self._changed.notify_all()
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_checked or self._stopped, ARRIVAL_SECONDS):
                self._stopped = f"only {len(self._arrived)} of {self._tasks} tasks got a slot: other jobs use the rest"
                self._changed.notify_all()
            return self._stopped

    def _checked(self) -> str | None:
        try:
            return self._check()
        except PlayheadError as error:
            self.error = error
            return error.what

    def _topic(self, name: str) -> tuple[str | None, str]:
        try:
            return None, str(self._count_partitions(name))
        except PlayheadError as error:
            return f"{error.what}; {error.hint}" if error.hint else error.what, ""

    def _own(self, number: int, partition: str) -> int:
        """The task that has this source partition in this step: this one, if it is the first."""
        with self._changed:
            return self._owners.setdefault(partition, number)
