"""Sockets of the HTTP client whose reads and writes all end at one point in time.

The timeouts of the client begin again with every piece it receives: a server that sends one byte of a header now and then
holds it for ever. Here each operation gets at most the time that is left of the whole request. Several threads may use one
client, each with its own request.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2

from playhead.model import Deadline

_PIECE_BYTES = 16 * 1024
_NO_TIME_SECONDS = 0.001  # 0 would mean: do not block


class RequestTime(threading.local):
    """The time that is left for the request of this thread."""

    def __init__(self) -> None:
        self._deadline: Deadline | None = None

    @contextmanager
    def ends_at(self, deadline: Deadline) -> Iterator[None]:
        self._deadline = deadline
        try:
            yield
        finally:
            self._deadline = None

    def limit(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        left = max(_NO_TIME_SECONDS, self._deadline.remaining())
        return left if timeout is None else min(timeout, left)


class TimedStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, time: RequestTime) -> None:
        self._inner = inner
        self._time = time

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._time.limit(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """In pieces: the stream below begins its timeout again for the rest of what a slow reader left."""
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], self._time.limit(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        stream = self._inner.start_tls(ssl_context, server_hostname, self._time.limit(timeout))
        return TimedStream(stream, self._time)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class TimedNetwork(httpcore2.NetworkBackend):
    def __init__(self, time: RequestTime) -> None:
        self._inner = httpcore2.SyncBackend()
        self._time = time

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore2.NetworkStream:
        stream = self._inner.connect_tcp(host, port, self._time.limit(timeout), local_address, socket_options)
        return TimedStream(stream, self._time)


def limit_requests(client: httpx2.Client, time: RequestTime) -> None:
    """Makes all connections of the client timed ones, also those through a proxy. The client has no option for it."""
    network = TimedNetwork(time)
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.HTTPTransport):
            transport._pool._network_backend = network
