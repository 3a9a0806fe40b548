"""Which release a broker runs.

Kafka's protocol does not report the release. It reports the newest `metadata.version` that a broker supports, and every release
has its own; the table is that of `kafka-features version-mapping`. We send a plain ApiVersions request of our own, because
librdkafka does not expose its answer. A broker answers it before authentication.
"""

import struct

import confluent_kafka

from playhead.kafka.properties import ClientSettings
from playhead.kafka.wire import UNREADABLE, Reader, ask, connected
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


def library_version() -> str:
    return f"{confluent_kafka.libversion()[0]} (confluent-kafka {confluent_kafka.version()})"


def broker_release(settings: ClientSettings, host: str, port: int, deadline: Deadline) -> str | None:
    """For example `4.3`; None if the broker does not report it (before 3.3) or cannot be queried this way."""
    try:
        features = _supported_features(settings, host, port, max(0.5, min(5.0, deadline.remaining())))
    except UNREADABLE:
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
    body = _compact("playhead") + _compact("0")
    with connected(settings, host, port, seconds) as connection:
        answer = ask(connection, _API_VERSIONS, _VERSION, body)
    answer.take(2)  # error code
    for _ in range(answer.varint() - 1):
        answer.take(6)
        answer.skip_tags()
    answer.take(4)  # throttle time
    features: dict[str, int] = {}
    for _ in range(answer.varint()):
        tag, length = answer.varint(), answer.varint()
        content = Reader(answer.take(length))
        if tag == 0:
            for _ in range(content.varint() - 1):
                name = content.take(content.varint() - 1).decode()
                _lowest, newest = struct.unpack(">hh", content.take(4))
                content.skip_tags()
                features[name] = newest
    return features


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()
