"""The slots of a Spark session, shared by all connectors of a run: never more tasks in flight than can run at once.

A step waits for all of its tasks before the first row, so it gets all its slots together. Two steps that held half of theirs
each would deadlock. Requests are served in order, so small steps do not starve a step that needs many slots. A step is planned
before it requests slots: a slot held during planning does no work.
"""

import threading
from collections import deque
from typing import Self


class Cancelled(Exception):
    """The connector must stop: it gets no more slots."""


class Slots:
    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._users = 0
        self._waiting: deque[Ticket] = deque()
        self._changed = threading.Condition()

    def join(self) -> "SlotUser":
        return SlotUser(self)

    @property
    def share(self) -> int:
        """The fair share of one step, at least one."""
        return max(1, self.total // max(1, self._users))

    def _add_user(self, count: int) -> None:
        with self._changed:
            self._users += count

    def _grant(self) -> None:
        """Called with the lock held: serves requests from the head of the queue while free slots last."""
        while self._waiting and self._waiting[0].count <= self._free:
            ticket = self._waiting.popleft()
            self._free -= ticket.count
            ticket.is_granted = True
        self._changed.notify_all()


class SlotUser:
    """A connector that requests slots repeatedly; use it in a `with` block. The number of users decides the share of each."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.is_cancelled = False

    @property
    def total(self) -> int:
        return self._slots.total

    @property
    def share(self) -> int:
        return self._slots.share

    def request(self, count: int) -> "Ticket":
        """A place in the queue for `count` slots, at most the total."""
        return Ticket(self._slots, self, min(count, self._slots.total))

    def cancel(self) -> None:
        """From any thread: every wait for slots, now or later, raises `Cancelled`. Slots that are held stay held."""
        with self._slots._changed:
            self.is_cancelled = True
            self._slots._changed.notify_all()

    def restore(self) -> None:
        """From any thread: takes `cancel` back."""
        with self._slots._changed:
            self.is_cancelled = False

    def __enter__(self) -> Self:
        self._slots._add_user(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._slots._add_user(-1)


class Ticket:
    """A request for slots; use it in a `with` block, which releases them."""

    def __init__(self, slots: Slots, user: SlotUser, count: int) -> None:
        self.count = count
        self.is_granted = False
        self._slots = slots
        self._user = user

    def wait(self, seconds: float | None = None) -> bool:
        """True once the slots are granted; False after `seconds`."""
        with self._slots._changed:
            self._slots._changed.wait_for(lambda: self.is_granted or self._user.is_cancelled, seconds)
            if not self.is_granted and self._user.is_cancelled:
                raise Cancelled
            return self.is_granted

    def __enter__(self) -> Self:
        slots = self._slots
        with slots._changed:
            slots._waiting.append(self)
            slots._grant()
        return self

    def __exit__(self, *_: object) -> None:
        slots = self._slots
        with slots._changed:
            if self.is_granted:
                slots._free += self.count
                self.is_granted = False
            else:
                slots._waiting.remove(self)
            slots._grant()
