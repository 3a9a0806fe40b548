"""Questions to a cluster that may fall over and come back in the middle of a long run.

After a question without an answer the client is let go: librdkafka 2.16 would abort the whole process when the broker comes back
and finds that question (confluentinc/librdkafka#4605). Some questions that were asked while a broker was away it never answers,
and a new client is answered at once: that one is asked, until the deadline.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from playhead.errors import PlayheadError, TimedOut, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline

T = TypeVar("T")
ANSWER_SECONDS = 15.0  # longer than a cluster needs that is there
_PAUSE_SECONDS = 0.2


class Asking:
    """One client at a time, made when it is needed."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._admin: Admin | None = None

    def ask(self, question: Callable[[Admin, Deadline], T], deadline: Deadline) -> T:
        was_silent = False
        while True:
            patience = deadline.within(ANSWER_SECONDS)
            try:
                if self._admin is None:
                    self._admin = Admin(self._settings, patience)
                return question(self._admin, patience)
            except PlayheadError as error:
                self.close()
                was_silent = was_silent or isinstance(error, TimedOut)
                if deadline.passed or not was_silent or not isinstance(error, Unreachable):
                    raise
            time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
