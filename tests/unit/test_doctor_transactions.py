"""The checks of `offsets doctor` on internal topics and transactions: with a broker that says what the test wants."""

import socket
import struct
import threading
import time

import pytest

from playhead.errors import Unreachable
from playhead.kafka.client import Broker, Cluster
from playhead.kafka.log import Captured
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import Ends, Topic
from playhead.kafka.transactions_seen import OpenTransaction, list_open_transactions
from playhead.model import Deadline, TopicPartition
from playhead.offsets.doctor import transactions
from playhead.offsets.doctor.case import TopicReading
from playhead.offsets.doctor.topics import internal_topics
from playhead.offsets.doctor.transactions import _task_of, check_transactions
from unit.doctoring import FILE_SOURCE, case


def test_a_transactional_id_names_its_connector_and_task():
    assert _task_of("lab-my-source-12", "lab") == ("my-source", 12)
    assert _task_of("other-my-source-12", "lab") is None
    assert _task_of("lab-my-source", "lab") is None
    assert _task_of("lab-my-source-1", None) is None


def test_the_internal_topics_are_those_of_the_worker_file_with_its_numbers():
    worker = {
        "offset.storage.topic": "o",
        "offset.storage.partitions": "5",
        "offset.storage.replication.factor": "1",
        "config.storage.topic": "c",
    }
    shown = [(topic.name, topic.partitions, topic.copies) for topic in internal_topics(worker, "o", ["mine"])]
    assert shown == [("o", "5", "1"), ("c", "1", "3"), ("mine", "5", "1")]
    assert [topic.name for topic in internal_topics(None, "o", [])] == ["o"]


class Asked:
    """As much of an admin client as the question needs."""

    def __init__(self, port: int, **common: str) -> None:
        self.settings = ClientSettings({"bootstrap.servers": f"127.0.0.1:{port}", **common})
        self.cluster = Cluster("id", 1, (Broker(1, "127.0.0.1", port),))


def answering(*answers: bytes) -> int:
    """A broker that gives these answers to one connection, whatever it is asked."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection, server:
            for answer in answers:
                connection.recv(65536)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        struct.pack(">i", 3) + b"abc",
        struct.pack(">iib", 12, 1, 0) + b"\xff" * 7,
    ],
    ids=["another protocol", "hangs up", "cut off", "nonsense"],
)
def test_a_broker_without_a_valid_answer_is_never_taken_for_one_without_transactions(answer):
    with pytest.raises(Unreachable):
        list_open_transactions(Asked(answering(answer)), Deadline(0.5))  # type: ignore[arg-type]


def undecided(monkeypatch, known: list[OpenTransaction] | None, connectors: dict[str, str] | None = None):
    """What is said of a topic whose partition 1 is not decided from offset 4 on. `known` None: the brokers do not answer."""

    def listed(admin, deadline):
        if known is None:
            raise Unreachable("listing open transactions: no broker answers")
        return known

    monkeypatch.setattr(transactions, "list_open_transactions", listed)
    ends = {0: Ends(0, 9, 9), 1: Ends(0, 4, 9)}
    reading = TopicReading(
        Captured(Topic("offsets", "id", False, ()), ends, True), (), (), 0, (), {1: 1_700_000_000_000}
    )
    return list(check_transactions(Asked(1), case(connectors=connectors), reading, "lab", Deadline(5)))  # type: ignore[arg-type]


def held_since(seconds: float, transactional_id: str = "lab-c-0") -> OpenTransaction:
    started = int((time.time() - seconds) * 1000)
    places = frozenset({TopicPartition("offsets", 1), TopicPartition("data", 0)})
    return OpenTransaction(transactional_id, "Ongoing", 77, started, 60_000, places)


def test_a_transaction_is_reported_with_its_holder_and_a_fresh_one_of_a_live_connector_needs_no_repair(monkeypatch):
    [old] = undecided(monkeypatch, [held_since(30)], {"c": FILE_SOURCE})
    assert (old.kind, old.owner) == ("open-transaction", "c")
    assert "task 0 of c (transactional id lab-c-0, producer 77)" in old.what
    assert "offsets-1 from offset 4 on is not committed" in old.what and "data-0" not in old.what
    assert "forceTerminateTransaction --transactionalId lab-c-0, then restart the connector" in old.mend
    [fresh] = undecided(monkeypatch, [held_since(1)], {"c": FILE_SOURCE})
    assert isinstance(fresh, str) and "has an open transaction" in fresh
    [orphaned] = undecided(monkeypatch, [held_since(1)], {})
    assert orphaned.mend.endswith("--transactionalId lab-c-0")


def test_a_transaction_that_no_coordinator_knows_hangs_and_begins_at_the_stable_end(monkeypatch):
    elsewhere = OpenTransaction("x", "Ongoing", 1, 0, 1, frozenset({TopicPartition("data", 1)}))
    [hanging] = undecided(monkeypatch, [elsewhere])
    assert (hanging.kind, hanging.owner) == ("open-transaction", "offsets-1")
    assert "since 2023-11-14T22:13:20Z" in hanging.what and "it hangs" in hanging.what
    assert hanging.mend == (
        "kafka-transactions.sh --bootstrap-server kafka:9092 abort --topic offsets --partition 1 --start-offset 4"
    )
    [unlisted] = undecided(monkeypatch, None)
    assert unlisted.what.endswith("its producer is unknown: listing open transactions: no broker answers")
    assert "abort" not in unlisted.mend
