"""Which tasks of a step have begun, and whether they have ended.

Spark reports a failed job while its other tasks still run, or are about to start. A task that initialised its transactional id
late would fence the task of the next step that has the same id. So a task asks before it initialises its id, and keeps its
connection while it works. When a step is over, later requests are refused, and the driver waits for the tasks that have begun.
"""

import threading
from typing import IO

from playhead.pipeline.task_link import ROWS, TaskServer, answer

LEAVE_SECONDS = 30.0  # Spark kills the Python process of a cancelled task after two
OVER = "the step is over"


class StepGate(TaskServer):
    """`rows`: sent so far by all tasks."""

    def __init__(self, host: str = "127.0.0.1", bind: str = "") -> None:
        self._changed = threading.Condition()
        self._inside: set[int] = set()
        self._is_over = False
        self._rows: dict[int, int] = {}
        super().__init__(host, bind)

    @property
    def rows(self) -> int:
        return sum(list(self._rows.values()))  # a copy: tasks add theirs at the same time

    def close(self) -> None:
        """Returns when the tasks that have begun are gone. One that does not end in time cannot commit after the next step has
        initialised its id; it may fence that step, which is then planned again."""
        with self._changed:
            self._is_over = True
        super().close()
        with self._changed:
            self._changed.wait_for(lambda: not self._inside, LEAVE_SECONDS)

    def _talk(self, number: int, lines: IO[str]) -> None:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == ROWS:
                self._rows[number] = int(rest)
                continue
            with self._changed:
                is_over = self._is_over
                if not is_over:
                    self._inside.add(number)
            answer(lines, OVER if is_over else None)

    def _left(self, number: int) -> None:
        with self._changed:
            self._inside.discard(number)
            self._changed.notify_all()
