"""Open transactions and their owners.

librdkafka cannot request this, so we send two small requests of our own: ListTransactions and DescribeTransactions (KIP-664,
brokers 3.0 and later). Each broker reports the ids that it coordinates and that the user may see. A broker that requires SASL or
a client certificate cannot be queried this way. The result is then unknown; it does not mean that there is no owner.
"""

import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from playhead.kafka.client import Admin, Broker
from playhead.kafka.properties import ClientSettings
from playhead.kafka.wire import Reader, ask, ask_brokers, connected
from playhead.model import Deadline, TopicPartition

_DESCRIBE_TRANSACTIONS, _LIST_TRANSACTIONS, _VERSION = 65, 66, 0
_UNDECIDED = ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`state` as Kafka names it. `started_ms` by the coordinator's clock; Kafka aborts the transaction after `timeout_ms`."""

    transactional_id: str
    state: str
    producer_id: int
    started_ms: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]


def list_open_transactions(admin: Admin, deadline: Deadline) -> list[OpenTransaction] | None:
    """Every transaction that is neither committed nor aborted yet. None if a broker cannot be queried."""
    found = ask_brokers(admin, deadline, _transactions_of)
    if found is None:
        return None
    return sorted(
        (one for report in found.values() for one in report), key=lambda one: (one.started_ms, one.transactional_id)
    )


def list_transactional_ids(admin: Admin, deadline: Deadline) -> set[str] | None:
    """Every id that a coordinator knows, with or without an open transaction. None if a broker cannot be queried."""
    found = ask_brokers(admin, deadline, _ids_of)
    return None if found is None else {one for report in found.values() for one in report}


def _ids_of(settings: ClientSettings, broker: Broker, patience: float) -> Iterator[str]:
    with connected(settings, broker.host, broker.port, patience) as connection:
        yield from _listed(_asked(connection, _LIST_TRANSACTIONS, _strings(()) + b"\1"))  # any state and producer id


def _transactions_of(settings: ClientSettings, broker: Broker, patience: float) -> Iterator[OpenTransaction]:
    with connected(settings, broker.host, broker.port, patience) as connection:
        ids = _listed(_asked(connection, _LIST_TRANSACTIONS, _strings(_UNDECIDED) + b"\1"))  # any producer id
        if ids:
            yield from _described(_asked(connection, _DESCRIBE_TRANSACTIONS, _strings(ids)))


def _asked(connection: socket.socket, api: int, body: bytes) -> Reader:
    answer = ask(connection, api, _VERSION, body)
    answer.take(4)  # throttle time
    return answer


def _listed(answer: Reader) -> list[str]:
    (error,) = struct.unpack(">h", answer.take(2))
    if error:
        raise IndexError(f"the broker answered with error {error}")
    for _ in range(answer.varint() - 1):
        answer.text()  # a state that the broker does not know
    ids = []
    for _ in range(answer.varint() - 1):
        ids.append(answer.text())
        answer.take(8)  # producer id: DescribeTransactions returns it too
        answer.text()
        answer.skip_tags()
    return ids


def _described(answer: Reader) -> Iterator[OpenTransaction]:
    for _ in range(answer.varint() - 1):
        (error,) = struct.unpack(">h", answer.take(2))
        transactional_id, state = answer.text(), answer.text()
        timeout_ms, started_ms, producer_id, _epoch = struct.unpack(">iqqh", answer.take(22))
        partitions = frozenset(_partitions(answer))
        answer.skip_tags()
        if not error and state in _UNDECIDED:  # it may have ended between the two requests
            yield OpenTransaction(transactional_id, state, producer_id, started_ms, timeout_ms, partitions)


def _partitions(answer: Reader) -> Collection[TopicPartition]:
    found = []
    for _ in range(answer.varint() - 1):
        topic, count = answer.text(), answer.varint() - 1
        found += [TopicPartition(topic, number) for number in struct.unpack(f">{count}i", answer.take(4 * count))]
        answer.skip_tags()
    return found


def _strings(texts: Sequence[str]) -> bytes:
    return _varint(len(texts) + 1) + b"".join(_varint(len(text.encode()) + 1) + text.encode() for text in texts)


def _varint(number: int) -> bytes:
    data = b""
    while number >= 0x80:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])
