"""The tasks of one step wait here for each other: all have fenced before the first commits, and they commit in turn.

Spark's own barrier does the same, but looks only once a second whether everybody has come; a small step would be nothing but
waiting. So the driver listens on a port of its own, at the address that the executors reach it by anyway. Every task holds one
connection to it; a connection that breaks ends the step for all of them. What is said here is words and numbers, never data,
and only to those who know the token of this step.
"""

import hmac
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Self

from playhead.errors import PlayheadError, Refused, TimedOut

READY, PRODUCED, COMMITTED, ROWS = "ready", "produced", "committed", "rows"
GO, STOP = "go", "stop"
ARRIVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    token: str = field(repr=False)


class Turns:
    """`check` is asked once, when every task has fenced what was before it: a sentence stops the step, None lets it go on.
    `host` is where executors reach us, `bind` where we listen if that is another address."""

    def __init__(self, chunks: int, check: Callable[[], str | None], host: str = "127.0.0.1", bind: str = "") -> None:
        self._chunks = chunks
        self._check = check
        self._token = secrets.token_hex(16)
        self._changed = threading.Condition()
        self._arrived: set[int] = set()
        self._may_commit = False
        self._turn = 0
        self._stopped: str | None = None
        self._rows: dict[int, int] = {}
        self.error: PlayheadError | None = None
        self._server = socket.create_server((bind or host, 0), backlog=max(8, chunks))
        self.address = Address(host, self._server.getsockname()[1], self._token)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def committed(self) -> int:
        """Chunks 0 to here are committed."""
        return self._turn

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    def stop(self, why: str) -> None:
        """No task commits from here on; one that is committing right now is not held back."""
        with self._changed:
            self._stopped = self._stopped or why
            self._changed.notify_all()

    def close(self) -> None:
        self.stop("the step is over")
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
                return  # closed: the step is over
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, _lines_of(connection) as lines:
            token, _, number = lines.readline().strip().partition(" ")
            if not hmac.compare_digest(token, self._token) or not number.isdigit():
                return
            with suppress(OSError):
                self._talk(int(number), lines)
            if self._turn <= int(number):
                self.stop(f"the task of chunk {number} went away")

    def _talk(self, number: int, lines: IO[str]) -> None:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == ROWS:
                self._rows[number] = int(rest)
            elif word == READY:
                self._arrive(number)
            elif word == COMMITTED:
                with self._changed:
                    self._turn = number + 1
                    self._changed.notify_all()
            else:
                why = self._wait_for_turn(number)
                lines.write(f"{STOP} {why}\n" if why else f"{GO}\n")
                lines.flush()

    def _arrive(self, number: int) -> None:
        with self._changed:
            self._arrived.add(number)
            are_all = len(self._arrived) == self._chunks
        if are_all:
            why = self._asked()
            with self._changed:
                self._stopped = self._stopped or why
                self._may_commit = True
                self._changed.notify_all()

    def _asked(self) -> str | None:
        try:
            return self._check()
        except PlayheadError as error:
            self.error = error
            return error.what

    def _wait_for_turn(self, number: int) -> str | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._may_commit or self._stopped, ARRIVAL_SECONDS):
                self._stopped = f"{len(self._arrived)} of {self._chunks} tasks got a slot: something else uses them"
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == number or self._stopped)
            return self._stopped


class Seat:
    """A task's end of the line."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines

    def wait(self, word: str) -> None:
        """Returns when this task may go on; `Refused` when the step was stopped."""
        self._say(word)
        try:
            answer = self._lines.readline().strip()
        except TimeoutError:
            raise TimedOut("the other tasks of the step did not finish in time") from None
        if answer != GO:
            raise Refused(answer.removeprefix(STOP).strip() or "the driver of the step went away")

    def tell(self, word: str) -> None:
        self._say(word)

    def _say(self, word: str) -> None:
        try:
            self._lines.write(f"{word}\n")
            self._lines.flush()
        except OSError:
            raise Refused("the driver of the step went away") from None


@contextmanager
def seat_at(address: Address, number: int, seconds: float) -> Iterator[Seat]:
    try:
        connection = socket.create_connection((address.host, address.port), timeout=seconds)
    except OSError as error:
        raise Refused(f"the driver does not answer at {address.host}:{address.port}: {error.strerror}") from None
    with connection, _lines_of(connection) as lines:
        seat = Seat(lines)
        seat.tell(f"{address.token} {number}")
        yield seat


@contextmanager
def _lines_of(connection: socket.socket) -> Iterator[IO[str]]:
    lines = connection.makefile("rw", encoding="ascii", newline="\n")
    try:
        yield lines
    finally:
        with suppress(OSError):  # closing says what could not be said before, and fails again
            lines.close()
