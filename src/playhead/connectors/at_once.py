"""Does one thing for many connectors, some of them at the same time; and says what was done if it is interrupted.

Each thread has clients of its own, because a client has one deadline. Each connector has its own time. A Ctrl-C lets the requests
end that are under way, for a moment; no thread sends another one. The threads are daemons: a request that hangs does not keep the
process alive.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

from playhead.config import Context
from playhead.model import Deadline
from playhead.stores import Access

T = TypeVar("T")
R = TypeVar("R")
AT_ONCE = 8
GRACE_SECONDS = 5.0
Tell = Callable[[str], None]


@dataclass
class Work(Generic[R]):
    """By the place in the list: the results so far, and what was begun."""

    results: dict[int, R] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    was_interrupted: bool = False


class _Pool(Generic[T, R]):
    def __init__(self, context: Context, items: Sequence[T], do: Callable[[Access, T], R], seconds: float) -> None:
        self.context, self.items, self.do, self.seconds = context, items, do, seconds
        self.waiting = deque(range(len(items)))
        self.begun: set[int] = set()
        self.deadlines: dict[int, Deadline] = {}
        self.is_stopped = False
        self.lock = threading.Lock()
        self.ended: SimpleQueue[tuple[int, R | None, BaseException | None]] = SimpleQueue()

    def take(self) -> tuple[int, Deadline] | None:
        with self.lock:
            if self.is_stopped or not self.waiting:
                return None
            at = self.waiting.popleft()
            self.begun.add(at)
            self.deadlines[at] = Deadline(self.seconds)
            return at, self.deadlines[at]

    def stop(self) -> None:
        """Nothing is begun from now on, and what is under way sends nothing more."""
        with self.lock:
            self.is_stopped = True
            for deadline in self.deadlines.values():
                deadline.end()

    def run(self) -> None:
        with Access(self.context, Deadline(self.seconds)) as access:
            while (taken := self.take()) is not None:
                at, access.deadline = taken
                try:
                    self.ended.put((at, self.do(access, self.items[at]), None))
                except BaseException as error:  # noqa: BLE001  (raised again by the thread that waits)
                    self.ended.put((at, None, error))


def do_at_once(
    context: Context,
    items: Sequence[T],
    do: Callable[[Access, T], R],
    seconds: float,
    on_end: Callable[[int], None] = lambda at: None,
) -> Work[R]:
    """`do` gets an `Access` whose deadline is that of the item. An error that it raises ends the whole, after those under way."""
    work: Work[R] = Work()
    if not items:
        return work
    pool = _Pool(context, items, do, seconds)
    try:
        for number in range(min(AT_ONCE, len(items))):
            run = copy_context().run  # the name of the user for whom a server acts
            threading.Thread(target=run, args=(pool.run,), name=f"connector-{number}", daemon=True).start()
        while len(work.results) < len(items):
            _collect(pool, work, None)
            on_end(len(work.results))
    except KeyboardInterrupt:
        pool.stop()
        work.was_interrupted = True
        _collect_rest(pool, work, Deadline(GRACE_SECONDS))
    except BaseException:
        pool.stop()
        raise
    work.begun = set(pool.begun)
    return work


def _collect(pool: "_Pool[T, R]", work: Work[R], seconds: float | None) -> None:
    at, result, error = pool.ended.get(timeout=seconds)
    if error is not None:
        raise error
    work.results[at] = result  # type: ignore[assignment]  # without an error there is a result


def _collect_rest(pool: "_Pool[T, R]", work: Work[R], deadline: Deadline) -> None:
    while len(work.results) < len(pool.begun) and not deadline.passed:
        if pool.ended.empty():
            time.sleep(0.02)
        else:
            _collect(pool, work, None)
