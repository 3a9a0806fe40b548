"""What the tests of consumer groups share: records at known times, members, and groups of other kinds."""

import base64
import socket
import struct
import uuid
from collections.abc import Iterable, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer

from playhead.kafka.client import make_producer
from playhead.kafka.properties import ClientSettings
from playhead.lab import Lab
from playhead.model import Deadline, TopicPartition

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def kafka_groups(lab: Lab, *words: str) -> str:
    """What Kafka's own tool answers."""
    return lab.tool(GROUP_COMMAND, "--bootstrap-server", lab.bootstrap_servers, *words)


def described(lab: Lab, *groups: str) -> dict[tuple[str, TopicPartition], int | None]:
    """Group and partition -> committed offset, as Kafka's own tool describes them."""
    table = kafka_groups(lab, "--describe", *(word for group in groups for word in ("--group", group)))
    found = {}
    for line in table.splitlines():
        columns = line.split()
        if columns and columns[0] in groups:
            offset = None if columns[3] == "-" else int(columns[3])
            found[columns[0], TopicPartition(columns[1], int(columns[2]))] = offset
    return found


def fill(settings: ClientSettings, topic: str, partition: int, times_ms: Iterable[int]) -> None:
    producer = make_producer(settings)
    for n, time_ms in enumerate(times_ms):
        producer.produce(topic, b"record %d" % n, partition=partition, timestamp=time_ms)
    assert producer.flush(20) == 0
    del producer


@contextmanager
def member_of(lab: Lab, group: str, topics: Sequence[str], deadline: Deadline, **settings: str):
    """A consumer that has joined, and leaves at the end."""
    consumer = Consumer(
        {"bootstrap.servers": lab.bootstrap_servers, "group.id": group, "client.id": "member-7"}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    consumer.subscribe(list(topics))
    try:

        def joined() -> bool:
            consumer.poll(0.05)
            return bool(consumer.assignment())

        deadline.wait_for(joined, "the member joining", every=0.01)
        yield consumer
    finally:
        consumer.close()


def make_share_group(lab: Lab, group: str, topic: str) -> None:
    """By one heartbeat as a share consumer sends it."""
    body = _text(group) + _text(_uuid()) + struct.pack(">i", 0) + _NULL + _array(_text(topic)) + _NO_TAGS
    _heartbeat(lab, 76, 1, body)


def make_streams_group(lab: Lab, group: str, topic: str) -> None:
    """By one heartbeat as a member of the streams protocol sends it, with a topology of one source topic."""
    subtopology = _text("0") + _array(_text(topic)) + _array() * 5 + _NO_TAGS
    topology = b"\1" + struct.pack(">i", 0) + _array(subtopology) + _NO_TAGS
    body = _text(group) + _text(_uuid()) + struct.pack(">ii", 0, 0) + _NULL * 2 + struct.pack(">i", 30_000) + topology
    body += _array() * 3 + _text("process") + b"\xff" + _array() + _NULL * 2 + b"\0" + _NO_TAGS
    _heartbeat(lab, 88, 0, body)


_NULL, _NO_TAGS = b"\0", b"\0"


def _text(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _array(*items: bytes) -> bytes:
    return bytes([len(items) + 1]) + b"".join(items)


def _uuid() -> str:
    return base64.urlsafe_b64encode(b"\1" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def _heartbeat(lab: Lab, api: int, version: int, body: bytes) -> None:
    request = struct.pack(">hhih", api, version, 1, -1) + _NO_TAGS + body
    host, _, port = lab.bootstrap_servers.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        _correlation, _tags, _throttle, error = struct.unpack(">ibih", answer.read(size)[:11])
    assert error == 0, f"the heartbeat was answered with error {error}"
