"""Progress that is updated in place. Only on a terminal, to keep logs readable."""

import os
from collections.abc import Sequence
from typing import TextIO

from playhead.render.clean import clean

_CLEAR_LINE, _CLEAR_BELOW = "\x1b[2K", "\x1b[J"


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


class LiveLines:
    """A block of lines at the end of the output, rewritten in place. `on` is False where the stream is not a terminal that moves
    its cursor: then nothing is written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.on = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = 0

    def show(self, lines: Sequence[str]) -> None:
        if not self.on:
            return
        width, height = self._size()
        room = max(1, height - 1)
        if len(lines) > room:
            lines = [*lines[: room - 1], f"... and {len(lines) - room + 1} more"]
        body = "".join(f"{_CLEAR_LINE}{clean(line)[: width - 1]}\n" for line in lines)
        self._stream.write(f"{self._up()}{body}{_CLEAR_BELOW}")
        self._stream.flush()
        self._shown = len(lines)

    def clear(self) -> None:
        if self._shown:
            self._stream.write(f"{self._up()}{_CLEAR_BELOW}")
            self._stream.flush()
            self._shown = 0

    def _up(self) -> str:
        return f"\r\x1b[{self._shown}A" if self._shown else "\r"

    def _size(self) -> tuple[int, int]:
        """Of the terminal behind this stream; stdout may be a file. A terminal that does not know its size says 0."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return 80, 24
        return size.columns or 80, size.lines or 24
