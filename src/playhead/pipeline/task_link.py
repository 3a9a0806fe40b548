"""The connection between the tasks of a step and its driver: short lines of text over TCP, never data.

The driver listens on a port of its own, at the address that executors use for it anyway. Each task holds one connection and
presents a token. There are two servers here: `StepTurns` for ingest (all tasks have fenced before the first one produces; they
produce in turn and commit in turn) and `CommitGate` for sinks whose tasks commit themselves (each requests permission from the
driver first).
"""

import hmac
import secrets
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Self

from playhead.errors import PlayheadError, Refused, TimedOut

GO, STOP = "go", "stop"


@dataclass(frozen=True, slots=True)
class DriverAddress:
    host: str
    port: int
    token: str = field(repr=False)


class TaskServer(ABC):
    """`host` is where executors reach us, `bind` where we listen if that is another address. `error`: what the check raised;
    tasks get its message only."""

    def __init__(self, host: str = "127.0.0.1", bind: str = "", backlog: int = 128) -> None:
        self.error: PlayheadError | None = None
        self._token = secrets.token_hex(16)
        self._server = socket.create_server((bind or host, 0), backlog=backlog)
        self.address = DriverAddress(host, self._server.getsockname()[1], self._token)
        threading.Thread(target=self._accept, daemon=True).start()

    @abstractmethod
    def _talk(self, number: int, lines: IO[str]) -> None:
        """Serves one task, in a thread of its own, until its connection ends."""

    def _left(self, number: int) -> None:  # noqa: B027  not every server needs it
        """The task closed its connection."""

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, _lines_of(connection) as lines, suppress(OSError, UnicodeError):
            token, _, number = lines.readline().strip().partition(" ")
            if not hmac.compare_digest(token, self._token) or not number.isdigit():
                return
            with suppress(OSError):
                self._talk(int(number), lines)
            self._left(int(number))


def answer(lines: IO[str], why: str | None, found: str = "") -> None:
    """`why` None: the task may continue. `found`: what it asked for."""
    lines.write(f"{STOP} {' '.join(why.split())}\n" if why else f"{GO} {found}".strip() + "\n")
    lines.flush()


class TaskConnection:
    """A task's end of the connection. A task has one request open at most, so a reply belongs to its last request."""

    def __init__(self, connection: socket.socket, lines: IO[str]) -> None:
        self._connection = connection
        self._lines = lines

    def wait(self, word: str, late: str) -> None:
        """Returns when this task may continue; `Refused` when the step was stopped. `late`: the message of a timeout."""
        self.tell(word)
        self.take_reply(late)

    def has_reply(self) -> bool:
        """Whether `take_reply` returns at once."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def ask(self, words: str, late: str) -> str:
        """As `wait`, for a request whose reply has an answer in it."""
        self.tell(words)
        return self.take_reply(late)

    def take_reply(self, late: str) -> str:
        try:
            reply = self._lines.readline().strip()
        except TimeoutError:
            raise TimedOut(late) from None
        except OSError:
            raise _disconnected() from None
        if reply != GO and not reply.startswith(f"{GO} "):
            raise Refused(reply.removeprefix(STOP).strip() or _disconnected().what)
        return reply.removeprefix(GO).strip()

    def tell(self, word: str) -> None:
        """Sends a line; there is no reply."""
        try:
            self._lines.write(f"{word}\n")
            self._lines.flush()
        except OSError:
            raise _disconnected() from None


@contextmanager
def connect_task(address: DriverAddress, number: int, seconds: float) -> Iterator[TaskConnection]:
    try:
        connection = socket.create_connection((address.host, address.port), timeout=seconds)
    except OSError as error:
        raise Refused(f"the driver does not answer at {address.host}:{address.port}: {error.strerror}") from None
    with connection, _lines_of(connection) as lines:
        task = TaskConnection(connection, lines)
        task.tell(f"{address.token} {number}")
        yield task


@contextmanager
def _lines_of(connection: socket.socket) -> Iterator[IO[str]]:
    lines = connection.makefile("rw", encoding="utf-8", newline="\n")
    try:
        yield lines
    finally:
        with suppress(OSError):  # closing flushes the line that failed before, and fails again
            lines.close()


def _disconnected() -> Refused:
    return Refused("the connection to the driver was lost")


# Spark's own barrier would work, but it checks only once a second whether all tasks have arrived: a small step would mostly
# wait. A broken connection ends the step for all tasks.

READY, TURN, PRODUCED, COMMITTED, ROWS = "ready", "turn", "produced", "committed", "rows"
ARRIVAL_SECONDS = 60.0
LATE = "the other tasks of the step did not finish in time"


def chunks_of(task: int, tasks: int, chunks: int) -> range:
    """The chunks that a task does, in this order."""
    return range(task, chunks, tasks)


class FencedStart(TaskServer):
    """A step whose tasks all fence before the first one begins. `check` is called once, when every task has fenced its
    predecessor: a message stops the step, None lets it continue."""

    def __init__(self, tasks: int, check: Callable[[], str | None], host: str, bind: str) -> None:
        self._tasks = tasks
        self._check = check
        self._changed = threading.Condition()
        self._arrived: set[int] = set()
        self._is_checked = False
        self._stopped: str | None = None
        self._rows: dict[int, int] = {}
        super().__init__(host, bind, backlog=max(8, tasks))

    @property
    def rows(self) -> int:
        return sum(list(self._rows.values()))  # a copy: tasks add theirs at the same time

    def stop(self, why: str) -> None:
        """No further task commits; one that is committing right now is not stopped."""
        with self._changed:
            self._stopped = self._stopped or why
            self._changed.notify_all()

    def close(self) -> None:
        self.stop("the step is over")
        super().close()

    def _arrive(self, number: int) -> None:
        with self._changed:
            self._arrived.add(number)
            are_all = len(self._arrived) == self._tasks
        if are_all:
            why = self._checked()
            with self._changed:
                self._stopped = self._stopped or why
                self._is_checked = True
                self._changed.notify_all()

    def _checked(self) -> str | None:
        try:
            return self._check()
        except PlayheadError as error:
            self.error = error
            return error.what

    def _wait(self, is_turn: Callable[[], bool] = lambda: True) -> str | None:
        """Until all have arrived and were checked, and then for the turn. Why the step was stopped, if it was."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_checked or self._stopped, ARRIVAL_SECONDS):
                self._stopped = f"only {len(self._arrived)} of {self._tasks} tasks got a slot: other jobs use the rest"
                self._changed.notify_all()
            self._changed.wait_for(lambda: is_turn() or self._stopped)
            return self._stopped


class StepTurns(FencedStart):
    """Task t of n does the chunks t, t + n, t + 2n and so on, one after the other. It asks to produce a chunk (`TURN`), and gets
    the reply when the chunk before it is produced. Tasks that do not ask produce side by side. It asks to commit a chunk
    (`PRODUCED`), and gets the reply when the chunk before it is committed.
    """

    def __init__(
        self, tasks: int, chunks: int, check: Callable[[], str | None], host: str = "127.0.0.1", bind: str = ""
    ) -> None:
        self._chunks = chunks
        self._produced = 0
        self._turn = 0
        super().__init__(tasks, check, host, bind)

    @property
    def committed(self) -> int:
        """The number of committed chunks, from chunk 0 on."""
        return self._turn

    def _talk(self, number: int, lines: IO[str]) -> None:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == ROWS:
                self._rows[number] = int(rest)
            elif word == READY:
                self._arrive(number)
            elif word == COMMITTED:
                with self._changed:
                    self._turn = int(rest) + 1
                    self._changed.notify_all()
            elif word == TURN:
                self._answer_turn(lines, int(rest))
            else:
                self._answer_produced(lines, int(rest))

    def _answer_turn(self, lines: IO[str], chunk: int) -> None:
        answer(lines, self._wait(lambda: self._produced == chunk))

    def _answer_produced(self, lines: IO[str], chunk: int) -> None:
        with self._changed:
            self._produced = max(self._produced, chunk + 1)
            self._changed.notify_all()
        answer(lines, self._wait(lambda: self._turn == chunk))

    def _left(self, number: int) -> None:
        left = [chunk for chunk in chunks_of(number, self._tasks, self._chunks) if chunk >= self._turn]
        if left:
            self.stop(f"the task of chunk {left[0]} ended before it committed")


HOLDS_SECONDS = 0.2  # many tasks end at about the same time, and each check sends requests to the brokers
WAIT_SECONDS = 120.0


class CommitGate(TaskServer):
    """`check` raises when this run must not commit any more. Its error is kept in `error`, and no task may commit."""

    def __init__(self, check: Callable[[], None], host: str = "127.0.0.1", bind: str = "") -> None:
        self._check = check
        self._checking = threading.Lock()
        self._holds_until = 0.0
        super().__init__(host, bind)

    @property
    def permit(self) -> "GatePermit":
        return GatePermit(self.address)

    def _talk(self, number: int, lines: IO[str]) -> None:  # noqa: ARG002  all tasks are treated alike
        for _ in lines:
            answer(lines, self._refusal())

    def _refusal(self) -> str | None:
        with self._checking:
            if self.error is None and time.monotonic() >= self._holds_until:
                try:
                    self._check()
                except PlayheadError as error:
                    self.error = error
                else:
                    self._holds_until = time.monotonic() + HOLDS_SECONDS
            return None if self.error is None else self.error.what


@dataclass(frozen=True, slots=True)
class GatePermit:
    """Sent to the executors."""

    address: DriverAddress

    def ask(self) -> None:
        """Returns when the task may commit, else raises `Refused`."""
        with connect_task(self.address, 0, WAIT_SECONDS) as task:
            task.wait("commit", "the driver did not permit the commit in time; nothing of the partition is committed")
