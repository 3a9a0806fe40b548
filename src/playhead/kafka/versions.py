"""Which release a broker runs.

Kafka's protocol does not report the release. It reports the newest `metadata.version` that a broker supports, and every release
has its own; the table is that of `kafka-features version-mapping`. We send a plain ApiVersions request of our own: librdkafka
does not expose the answer, and kafka-python does not let us choose the broker. A broker answers before authentication, so this
needs no login; TLS is that of the other clients.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka

from playhead.errors import Invalid
from playhead.kafka.properties import ClientSettings
from playhead.kafka.second_client import find_tls
from playhead.model import Deadline

# Newest metadata.version of each release.
RELEASES = {
    7: "3.3",
    8: "3.4",
    11: "3.5",
    14: "3.6",
    19: "3.7",
    20: "3.8",
    21: "3.9",
    25: "4.0",
    27: "4.1",
    29: "4.2",
    30: "4.3",
}
_API_VERSIONS, _VERSION = 18, 3
_LARGEST_ANSWER = 1 << 20


def library_version() -> str:
    return f"{confluent_kafka.libversion()[0]} (confluent-kafka {confluent_kafka.version()})"


def broker_release(settings: ClientSettings, host: str, port: int, deadline: Deadline) -> str | None:
    """For example `4.3`; None if the broker does not report it (before 3.3) or cannot be queried this way."""
    try:
        features = _supported_features(settings, host, port, max(0.5, min(5.0, deadline.remaining())))
    except (OSError, struct.error, IndexError, UnicodeDecodeError, Invalid):
        return None
    level = features.get("metadata.version")
    if level is None:
        return None
    newest = max(RELEASES)
    if level > newest:
        return f"newer than {RELEASES[newest]}"
    return next(release for top, release in sorted(RELEASES.items()) if level <= top)


def _supported_features(settings: ClientSettings, host: str, port: int, seconds: float) -> dict[str, int]:
    """Feature name -> newest supported version."""
    with _connected(settings, host, port, seconds) as connection:
        answer = _ask(connection)
    answer.take(2)  # error code
    for _ in range(answer.varint() - 1):
        answer.take(6)
        answer.skip_tags()
    answer.take(4)  # throttle time
    features: dict[str, int] = {}
    for _ in range(answer.varint()):
        tag, length = answer.varint(), answer.varint()
        content = _Reader(answer.take(length))
        if tag == 0:
            for _ in range(content.varint() - 1):
                name = content.take(content.varint() - 1).decode()
                _lowest, newest = struct.unpack(">hh", content.take(4))
                content.skip_tags()
                features[name] = newest
    return features


@contextmanager
def _connected(settings: ClientSettings, host: str, port: int, seconds: float) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=seconds) as raw:
        tls = find_tls(settings)
        yield raw if tls is None else tls.wrap_socket(raw, server_hostname=host)


def _ask(connection: socket.socket) -> "_Reader":
    """The answer, after its correlation id."""
    body = b"".join(bytes([len(text) + 1]) + text for text in (b"playhead", b"0"))
    request = struct.pack(">hhih", _API_VERSIONS, _VERSION, 1, -1) + b"\0" + body + b"\0"
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 < size < _LARGEST_ANSWER:
        raise IndexError("this is not a Kafka response")
    answer = _Reader(_exactly(connection, size))
    answer.take(4)
    return answer


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


class _Reader:
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

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())
