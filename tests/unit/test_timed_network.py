"""Every operation on a socket gets at most the time that is left of its request."""

import ssl
import threading

import httpcore2
import httpx2

from playhead.connect.timed_network import RequestTime, TimedNetwork, TimedStream, limit_requests
from playhead.model import Deadline


class Recorded(httpcore2.NetworkStream):
    def __init__(self) -> None:
        self.timeouts: list[float | None] = []
        self.sizes: list[int] = []

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.timeouts.append(timeout)
        return b"x" * max_bytes

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.timeouts.append(timeout)
        self.sizes.append(len(buffer))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        self.timeouts.append(timeout)
        return self


def test_reads_writes_and_handshakes_share_the_time_of_the_request():
    inner, time = Recorded(), RequestTime()
    with time.ends_at(Deadline(10)):
        stream = TimedStream(inner, time).start_tls(ssl.create_default_context(), "host", 60)
        assert stream.read(3, 60) == b"xxx"
        stream.write(b"y" * 100_000, None)
    assert sum(inner.sizes) == 100_000
    assert max(inner.sizes) <= 16 * 1024  # a slow reader is noticed between two pieces
    given = [timeout for timeout in inner.timeouts if timeout is not None]
    assert len(given) == len(inner.timeouts) == 2 + len(inner.sizes)
    assert 0 < min(given) <= max(given) <= 10
    assert given == sorted(given, reverse=True)


def test_a_shorter_timeout_stays_and_without_a_request_nothing_is_limited():
    time = RequestTime()
    with time.ends_at(Deadline(10)):
        assert time.limit(2) == 2
    assert time.limit(60) == 60
    assert time.limit(None) is None


def test_after_the_deadline_an_operation_neither_waits_nor_blocks_for_ever():
    time = RequestTime()
    with time.ends_at(Deadline(0)):
        assert time.limit(60) == 0.001


def test_threads_have_their_own_requests():
    time = RequestTime()
    seen: list[float | None] = []
    with time.ends_at(Deadline(10)):
        other = threading.Thread(target=lambda: seen.append(time.limit(60)))
        other.start()
        other.join()
    assert seen == [60]


def test_connections_through_a_proxy_are_timed_too(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    with httpx2.Client() as client:
        limit_requests(client, RequestTime())
        transports = [client._transport, *client._mounts.values()]
        pools = [transport._pool for transport in transports if isinstance(transport, httpx2.HTTPTransport)]
        assert len(pools) == 2
        assert all(isinstance(pool._network_backend, TimedNetwork) for pool in pools)
