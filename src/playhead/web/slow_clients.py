"""HTTP connections with a time limit: a client has to send the head of its request within a few seconds.

uvicorn limits how long a connection may be idle after an answer, not how long a head may take. Bodies are timed in `gate.py`.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
LARGEST_HEAD = 32 * 1024


class TimedProtocol(H11Protocol):
    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._ends is None and not self.transport.is_closing():
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._ends = self.loop.call_later(HEAD_SECONDS, self._cut)

    def _stop(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None

    def _cut(self) -> None:
        self._ends = None
        if not self.transport.is_closing():
            self.transport.abort()
