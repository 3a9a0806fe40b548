"""How the tasks of a step of polls and its driver talk. All fence first, then the driver checks the positions, then all begin.

Tasks are independent of each other, as in Connect: each has source partitions of its own, and commits when it likes. A source
partition that two tasks of a step read is refused: their offsets would overwrite each other.
"""

from collections.abc import Callable
from typing import IO

from playhead.errors import PlayheadError
from playhead.pipeline.task_link import READY, ROWS, FencedStart, answer

TOPIC, OWN = "topic", "own"


class PollGate(FencedStart):
    """`count_partitions` makes a missing topic."""

    def __init__(
        self,
        tasks: int,
        check: Callable[[], str | None],
        count_partitions: Callable[[str], int],
        host: str = "127.0.0.1",
        bind: str = "",
    ) -> None:
        self._count_partitions = count_partitions
        self._owners: dict[str, int] = {}
        super().__init__(tasks, check, host, bind)

    def _talk(self, number: int, lines: IO[str]) -> None:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == ROWS:
                self._rows[number] = int(rest)
            elif word == READY:
                self._arrive(number)
                answer(lines, self._wait())
            elif word == TOPIC:
                answer(lines, *self._topic(rest))
            elif word == OWN:
                answer(lines, None, str(self._own(number, rest)))

    def _left(self, number: int) -> None:
        with self._changed:
            is_checked = self._is_checked
        if not is_checked:
            self.stop(f"task {number} of the step ended before all had begun")

    def _topic(self, name: str) -> tuple[str | None, str]:
        try:
            return None, str(self._count_partitions(name))
        except PlayheadError as error:
            return f"{error.what}; {error.hint}" if error.hint else error.what, ""

    def _own(self, number: int, partition: str) -> int:
        """The task that has this source partition in this step: this one, if it is the first."""
        with self._changed:
            return self._owners.setdefault(partition, number)
