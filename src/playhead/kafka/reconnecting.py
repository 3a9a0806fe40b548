"""An admin client for a long run, during which brokers fail and come back.

After a request without an answer the client is replaced: librdkafka 2.16 would abort the whole process when the broker comes
back and the request is still open (confluentinc/librdkafka#4605). Some requests that were sent while a broker was down are
never answered. A new client gets an answer at once, so the request is sent once more with it.
"""

import threading
from collections.abc import Callable
from typing import Self, TypeVar

from playhead.errors import PlayheadError, TimedOut
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline

T = TypeVar("T")
ANSWER_SECONDS = 8.0  # longer than a healthy cluster needs


class ReconnectingAdmin:
    """One client at a time, created when needed. May be shared by threads: the last thread that uses a client closes it."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._admin: Admin | None = None
        self._users: dict[Admin, int] = {}

    def ask(self, question: Callable[[Admin, Deadline], T], deadline: Deadline) -> T:
        try:
            return self._asked(question, deadline.within(ANSWER_SECONDS))
        except TimedOut:
            if deadline.passed:
                raise
        return self._asked(question, deadline.within(ANSWER_SECONDS))

    def close(self) -> None:
        with self._lock:
            self._drop(self._admin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asked(self, question: Callable[[Admin, Deadline], T], patience: Deadline) -> T:
        admin = self._borrow(patience)
        try:
            return question(admin, patience)
        except PlayheadError:
            with self._lock:
                self._drop(admin)
            raise
        finally:
            self._give_back(admin)

    def _borrow(self, patience: Deadline) -> Admin:
        with self._lock:
            if self._admin is None:
                self._admin = Admin(self.settings, patience)
                self._users[self._admin] = 0
            self._users[self._admin] += 1
            return self._admin

    def _give_back(self, admin: Admin) -> None:
        with self._lock:
            self._users[admin] -= 1
            if admin is not self._admin and not self._users[admin]:
                del self._users[admin]
                admin.close()

    def _drop(self, admin: Admin | None) -> None:
        """Sends no new request to this client. Closes it if no other thread is waiting for an answer from it."""
        if admin is None or admin is not self._admin:
            return
        self._admin = None
        if not self._users[admin]:
            del self._users[admin]
            admin.close()
