"""A progress line that is updated in place. Only on a terminal, to keep logs readable."""

from typing import TextIO


class ProgressLine:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._on = stream.isatty()
        self._width = 0

    def update(self, text: str) -> None:
        if self._on:
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)

    def reading(self, done: int, total: int) -> None:
        """`total` counts offsets. Not every offset has a record."""
        self.update(f"reading: {done} of at most {total} records")

    def clear(self) -> None:
        if self._on and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
