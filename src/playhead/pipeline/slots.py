"""The slots of a session, shared by all connectors of a run: never more chunks in flight than tasks can run at once.

A step waits for all of its tasks before the first row. Were two steps to hold half of their slots each, both would wait for
ever; so a step takes its slots in one go. It is planned for its share before it takes them: a slot that waits for a plan works
for nobody.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._users = 0
        self._changed = threading.Condition()

    @contextmanager
    def user(self) -> Iterator[None]:
        """Somebody who will take slots again and again; the shares are made by their number."""
        with self._changed:
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @property
    def share(self) -> int:
        """What one step should ask for: a fair part, and at least one."""
        return max(1, self.total // max(1, self._users))

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        """So many slots, all in one go."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= count)
            self._free -= count
        try:
            yield
        finally:
            with self._changed:
                self._free += count
                self._changed.notify_all()
