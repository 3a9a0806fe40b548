"""Sends our own requests in Kafka's protocol, for the few requests that librdkafka does not support.

Flexible versions only (compact strings, tagged fields). TLS works if it needs only a certificate authority. SASL and client
certificates are not supported; callers do not use this module then.
"""

import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from playhead.kafka.client import Admin, Broker
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline

T = TypeVar("T")

UNREADABLE = (OSError, struct.error, IndexError, UnicodeDecodeError)  # the errors of a failed request
_LARGEST_ANSWER = 64 << 20


def ask_brokers(
    admin: Admin, deadline: Deadline, read_from: Callable[[ClientSettings, Broker, float], Iterable[T]]
) -> dict[int, list[T]] | None:
    """Broker -> what `read_from` reads from it within its timeout. None if a broker cannot be queried or returns an error."""
    if "SASL" in str(admin.settings.common.get("security.protocol", "")).upper():
        return None
    found: dict[int, list[T]] = {}
    try:
        for broker in admin.cluster.brokers:
            found[broker.id] = list(read_from(admin.settings, broker, max(0.5, min(5.0, deadline.remaining()))))
    except UNREADABLE:
        return None
    return found


@contextmanager
def connected(settings: ClientSettings, host: str, port: int, seconds: float) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=seconds) as raw:
        yield _secured(raw, settings, host)


def ask(connection: socket.socket, api: int, version: int, body: bytes) -> "Reader":
    """The answer, after its correlation id. The header of an ApiVersions answer has no tags, all others have."""
    request = struct.pack(">hhih", api, version, 1, -1) + b"\0" + body + b"\0"
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 < size < _LARGEST_ANSWER:
        raise IndexError("this is not a Kafka response")
    answer = Reader(_exactly(connection, size))
    answer.take(4)
    if api != _API_VERSIONS:
        answer.skip_tags()
    return answer


_API_VERSIONS = 18


class Reader:
    """Reads an answer. Raises IndexError if it is shorter than its length fields say."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise IndexError("the answer is shorter than it says")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        return self.take(self.varint() - 1).decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _secured(raw: socket.socket, settings: ClientSettings, host: str) -> socket.socket:
    if not str(settings.common.get("security.protocol", "")).upper().endswith("SSL"):
        return raw
    ca = settings.common.get("ssl.ca.location")
    return ssl.create_default_context(cafile=ca if isinstance(ca, str) else None).wrap_socket(raw, server_hostname=host)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)
