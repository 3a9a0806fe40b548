"""Tasks that commit by themselves ask the driver right before: whether the step is still ours is known there alone."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from playhead.errors import PlayheadError
from playhead.pipeline.desk import Address, Desk, answer, seat_at

HOLDS_SECONDS = 0.2  # many tasks end at about the same time, and each answer costs questions to the brokers
WAIT_SECONDS = 120.0


class Consents(Desk):
    """`check` raises when nothing of this run must be committed any more; that is kept in `error`, and nobody may go on."""

    def __init__(self, check: Callable[[], None], host: str = "127.0.0.1", bind: str = "") -> None:
        self._check = check
        self._asking = threading.Lock()
        self._holds_until = 0.0
        super().__init__(host, bind)

    @property
    def consent(self) -> "Consent":
        return Consent(self.address)

    def _talk(self, number: int, lines: IO[str]) -> None:  # noqa: ARG002  all tasks are alike
        for _ in lines:
            answer(lines, self._refusal())

    def _refusal(self) -> str | None:
        with self._asking:
            if self.error is None and time.monotonic() >= self._holds_until:
                try:
                    self._check()
                except PlayheadError as error:
                    self.error = error
                else:
                    self._holds_until = time.monotonic() + HOLDS_SECONDS
            return None if self.error is None else self.error.what


@dataclass(frozen=True, slots=True)
class Consent:
    """Sent to the executors."""

    address: Address

    def ask(self) -> None:
        """Returns when the task may commit, else `Refused`."""
        with seat_at(self.address, 0, WAIT_SECONDS) as seat:
            seat.wait("commit", "the driver did not say in time whether to commit, so nothing of the partition was")
