"""The thread in which a connector's code runs, so that a call that does not return can be given up.

All calls of a task are made by one thread: a connection may belong to the thread that opened it. Python cannot end a thread. One
that hangs is left behind; it can do nothing but fill a queue that is not read.
"""

import gc
import queue
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from playhead.errors import PlayheadError, Rejected
from playhead.sdk.life import calling
from playhead.sdk.source import SourceTask

T = TypeVar("T")
FIRST_RECORDS, MOST_RECORDS = 64, 10_000
SLOW_SECONDS = 0.2  # of a source that gives its records slowly, they are passed on in smaller parts
CLOSING_SECONDS = 0.5
END = object()


class Hung(Rejected):
    """The thread is still in a call, so no other call can be made."""


class CallThread:
    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._replies: queue.Queue[Any] = queue.Queue(2)
        self._is_given_up = False
        self._part = FIRST_RECORDS
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T], seconds: float, what: str) -> T:
        """The result of a call, or its error. `what`: its name."""
        self._calls.put(lambda: self._reply(function, what))
        return cast(T, self._taken(seconds, what))

    def poll(self, task: SourceTask, seconds: float) -> Generator[list[Any], None, None]:
        """The records of one poll, in parts."""
        self._is_given_up = False
        self._calls.put(lambda: self._poll(task))
        is_over = False
        try:
            while not is_over:
                try:
                    part = self._taken(seconds, "poll")
                except PlayheadError:
                    is_over = True
                    raise
                is_over = part is END
                if not is_over:
                    yield part
        finally:
            if not is_over:
                self._drain(seconds)

    def close(self) -> None:
        self._calls.put(None)

    def _taken(self, seconds: float, what: str) -> Any:
        try:
            reply = self._replies.get(timeout=seconds)
        except queue.Empty:
            raise Hung(f"{what} has not returned for {seconds:g} s") from None
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _drain(self, seconds: float) -> None:
        """Lets a poll whose records are not needed come to its end, so that `stop` can be called."""
        self._is_given_up = True
        deadline = time.monotonic() + seconds
        reply: object = None
        while reply is not END and not isinstance(reply, BaseException) and time.monotonic() < deadline:
            with suppress(queue.Empty):
                reply = self._replies.get(timeout=max(0.01, deadline - time.monotonic()))

    # In the thread

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            call()
            del call  # it may be the last that holds the task

    def _reply(self, function: Callable[[], object], what: str) -> None:
        try:
            with calling(what):
                reply: object = function()
        except PlayheadError as error:
            reply = error
        self._replies.put(reply)

    def _poll(self, task: SourceTask) -> None:
        try:
            with calling("poll"):
                polled = task.poll()
                if polled is not None:
                    self._pass_on(iter(polled))
        except PlayheadError as error:
            self._replies.put(error)
        else:
            self._replies.put(END)

    def _pass_on(self, records: Iterator[Any]) -> None:
        """In parts that grow from poll to poll, as long as the source is quick."""
        while not self._is_given_up:
            started = time.monotonic()
            part = list(islice(records, self._part))
            is_slow = time.monotonic() - started > SLOW_SECONDS
            if not part:
                return
            is_last = len(part) < self._part
            if is_slow:
                self._part = max(1, self._part // 4)
            elif not is_last:
                self._part = min(MOST_RECORDS, self._part * 4)
            self._replies.put(part)
            if is_last:
                return


class SocketWatch:
    """Finds the connections that a task leaves open, whichever library opened them. It begins before the task's Kafka client is
    made and counts after that is closed, because the client opens connections as it likes. A system that does not show the
    files of a process shows only the connections that Python itself opened."""

    def __init__(self) -> None:
        self._before = _socket_files()
        self._known = set() if self._before is not None else _python_sockets()

    def count_new(self) -> int:
        """The number of connections that have been opened since, and are open. The threads of a client need a moment to end."""
        if self._before is None:
            return len(_python_sockets() - self._known)
        deadline = time.monotonic() + CLOSING_SECONDS
        while (new := self._count_files()) and time.monotonic() < deadline:
            gc.collect()  # what nothing refers to any more is no leak
            time.sleep(0.02)
        return new

    def _count_files(self) -> int:
        before, after = self._before or {}, _socket_files() or {}
        return sum(before.get(file) != name for file, name in after.items())


def _socket_files() -> dict[int, str] | None:
    """The sockets of this process by number, with names that are never used again. None: this system does not show them."""
    found: dict[int, str] = {}
    try:
        files = list(Path("/proc/self/fd").iterdir())
    except OSError:
        return None
    for file in files:
        with suppress(OSError):  # closed in the meantime
            name = str(file.readlink())
            if name.startswith("socket:"):
                found[int(file.name)] = name
    return found


def _python_sockets() -> set[int]:
    gc.collect()
    found = {one.fileno() for one in gc.get_objects() if issubclass(type(one), socket.socket)}
    return found - {-1}
