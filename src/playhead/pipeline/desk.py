"""Where the tasks of a step talk with its driver: words and numbers, never data, and only with those who know the token.

The driver listens on a port of its own, at the address that the executors reach it by anyway. Every task holds one connection.
"""

import hmac
import secrets
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Self

from playhead.errors import PlayheadError, Refused, TimedOut

GO, STOP = "go", "stop"


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    token: str = field(repr=False)


class Desk(ABC):
    """`host` is where executors reach us, `bind` where we listen if that is another address. `error` is what a desk found out
    while it was asked: tasks are told its words alone."""

    def __init__(self, host: str = "127.0.0.1", bind: str = "", backlog: int = 128) -> None:
        self.error: PlayheadError | None = None
        self._token = secrets.token_hex(16)
        self._server = socket.create_server((bind or host, 0), backlog=backlog)
        self.address = Address(host, self._server.getsockname()[1], self._token)
        threading.Thread(target=self._accept, daemon=True).start()

    @abstractmethod
    def _talk(self, number: int, lines: IO[str]) -> None:
        """With one task, in a thread of its own, until its connection ends."""

    def _left(self, number: int) -> None:  # noqa: B027  most desks do not mind
        """The task went away."""

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


def answer(lines: IO[str], why: str | None) -> None:
    """`why` None: go on."""
    lines.write(f"{STOP} {' '.join(why.split())}\n" if why else f"{GO}\n")
    lines.flush()


class Seat:
    """A task's end of the line."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines

    def wait(self, word: str, late: str) -> None:
        """Returns when this task may go on; `Refused` when the step was stopped. `late` is said when nobody answers."""
        self.tell(word)
        try:
            said = self._lines.readline().strip()
        except TimeoutError:
            raise TimedOut(late) from None
        except OSError:
            raise _gone() from None
        if said != GO:
            raise Refused(said.removeprefix(STOP).strip() or _gone().what)

    def tell(self, word: str) -> None:
        try:
            self._lines.write(f"{word}\n")
            self._lines.flush()
        except OSError:
            raise _gone() from None


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
    lines = connection.makefile("rw", encoding="utf-8", newline="\n")
    try:
        yield lines
    finally:
        with suppress(OSError):  # closing says what could not be said before, and fails again
            lines.close()


def _gone() -> Refused:
    return Refused("the driver of the step went away")
