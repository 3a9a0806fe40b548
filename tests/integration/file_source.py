"""A file source on the lab's worker, for the tests of offset edits, and what the topics hold by a plain consumer."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from playhead.connect.answers import OffsetEntry
from playhead.connect.rest import Rest
from playhead.lab import Lab
from playhead.model import Deadline

TEXT = "org.apache.kafka.connect.storage.StringConverter"


@dataclass
class FileSource:
    """A file source on the lab's worker, seen by REST and by Kafka's own consumer."""

    lab: Lab
    rest: Rest
    name: str
    topic: str
    file: Path
    deadline: Deadline

    def at(self, position: int | None) -> None:
        """Waits until the worker shows this position."""
        wanted = [] if position is None else [OffsetEntry({"filename": str(self.file)}, {"position": position})]
        self.deadline.wait_for(lambda: self.rest.get_offsets(self.name) == wanted, f"{self.name} at {position}")

    def state(self) -> str:
        status = self.rest.find_status(self.name)
        return status.connector.state if status else "none"

    def stop(self) -> None:
        self.rest.stop(self.name)
        self.deadline.wait_for(lambda: self.state() == "STOPPED" and not self.rest.list_tasks(self.name), "stopping")

    def records(self) -> list[str]:
        return [value for _, _, value in dump(self.lab, self.topic)]


@pytest.fixture
def source(lab, rest, new_topic, unique, tmp_path, deadline):
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\nc\n")
    made = FileSource(lab, rest, unique("files"), new_topic(), file, deadline)
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": made.topic, "value.converter": TEXT}
    rest.create_connector(made.name, config)
    made.at(6)
    yield made
    rest.delete_connector(made.name)


@pytest.fixture
def there(lab):
    """The flags that lead to the lab: workers, brokers and the worker's own file."""
    return ("--connect", lab.connect_urls[0], "--worker-config", str(lab.worker_config))


def dump(lab, topic="connect-offsets"):
    """Every committed record of a topic, by a plain consumer of the client library: (partition, key, value)."""
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap_servers,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[tuple[int, str, str]] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(10)
        assert message is not None, "the topic does not end"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(cast(int, message.partition()))
        else:
            value = message.value()
            found.append(
                (
                    cast(int, message.partition()),
                    (message.key() or b"").decode(),
                    "NULL" if value is None else value.decode(),
                )
            )
    consumer.close()
    return sorted(found, key=lambda record: record[0])


KILLER = """
import os, signal, sys
left = int(sys.argv.pop(1))
def count(frame, event, arg):
    global left
    if event == "call" and "/playhead/" in frame.f_code.co_filename and "/cli/" not in frame.f_code.co_filename:
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(count)
sys.argv[0] = "playhead"
from playhead.__main__ import main
main()
"""
