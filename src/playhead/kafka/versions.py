"""Which release a broker runs.

Kafka's protocol does not say it outright. It does tell the newest `metadata.version` a broker supports, and every release has
its own; the table is that of `kafka-features version-mapping`. Asked with a plain ApiVersions request of our own, which a
broker answers before any authentication, because librdkafka keeps the answer to itself.
"""

import socket
import ssl
import struct

import confluent_kafka

from playhead.kafka.properties import ClientSettings
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
    """Like `4.3`; None when the broker does not tell (before 3.3) or cannot be asked this way."""
    try:
        features = _supported_features(settings, host, port, max(0.5, min(5.0, deadline.remaining())))
    except (OSError, struct.error, IndexError, UnicodeDecodeError):
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
    body = struct.pack(">hhih", _API_VERSIONS, _VERSION, 1, -1) + b"\0" + _compact("playhead") + _compact("0") + b"\0"
    with socket.create_connection((host, port), timeout=seconds) as raw:
        connection = _secured(raw, settings, host)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 0 < size < _LARGEST_ANSWER:
            return {}
        answer = _Reader(_exactly(connection, size))
    answer.take(4 + 2)  # correlation id, error code
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


def _secured(raw: socket.socket, settings: ClientSettings, host: str) -> socket.socket:
    if not str(settings.common.get("security.protocol", "")).upper().endswith("SSL"):
        return raw
    ca = settings.common.get("ssl.ca.location")
    return ssl.create_default_context(cafile=ca if isinstance(ca, str) else None).wrap_socket(raw, server_hostname=host)


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker hung up")
        data += part
    return data


class _Reader:
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
