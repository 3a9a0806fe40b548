"""Fixtures for the tests of `offsets doctor`: damage is made with other tools, and commands of findings are run by a shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as RawPartition

from playhead.config import Context, Setting
from playhead.kafka.client import make_producer
from playhead.lab.java import java_command
from playhead.model import Deadline
from playhead.offsets.doctor import Diagnosis, diagnose
from playhead.offsets.locate import Locator
from playhead.pipeline.jars import fetch_jars
from playhead.stores import Access

TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


@pytest.fixture(scope="module")
def tools(lab, tmp_path_factory):
    """Kafka's tools under the names that people know."""
    folder = tmp_path_factory.mktemp("bin")
    for name, main in TOOLS.items():
        command = java_command(fetch_jars("kafka"), main, (), logging=lab.folder / "tool-log4j2.xml", heap="256m")
        command[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        (folder / name).write_text(f'#!/bin/sh\nexec {subprocess.list2cmdline(command)} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def run(lab, tools):
    """Runs a command of a finding as it stands; `execute` adds the word that a dry run lacks."""

    def run(command: str, *, execute: bool = False) -> str:
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", command + (" --execute" if execute else "")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, **lab.environment(), "PATH": path},
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def doctor(lab, deadline):
    """What the doctor says of the lab's own context, or of a store."""

    def ask(uri: str | None = None, *, via: str | None = None, **settings: str) -> Diagnosis:
        named = {**lab.context(), **{key.replace("_", "-"): value for key, value in settings.items()}}
        context = Context(None, {key: Setting(value, "a test") for key, value in named.items()})
        with Access(context, deadline) as access:
            return diagnose(Locator(access, uri, via))

    return ask


@pytest.fixture
def topic_uri(lab, new_topic):
    """A compacted topic of five partitions, and the store on it. `committed`: as exactly-once workers read it."""

    def make(*, committed: bool = False) -> tuple[str, str]:
        topic = new_topic(5, cleanup_policy="compact")
        return topic, f"kafka://{lab.bootstrap_servers}/{topic}?{'' if committed else 'committed=false&'}group.id=lab"

    return make


@pytest.fixture
def produce(settings_of):
    """A plain producer, as any other tool would be one."""

    def send(
        topic: str, key: bytes | None, value: bytes | None, partition: int | None = None, header: str | None = None
    ) -> None:
        producer = make_producer(settings_of)
        headers: list[tuple[str, str | bytes | None]] = [] if header is None else [(header, b"{}")]
        if partition is None:
            producer.produce(topic, value, key, headers=headers)
        else:
            producer.produce(topic, value, key, partition, headers=headers)
        assert producer.flush(20) == 0

    return send


@pytest.fixture
def transaction(settings_of):
    """A transaction with some records in it, left open; ended when the test ends."""
    open_ones: list[Producer] = []

    def begin(transactional_id: str, topic: str, *pairs: tuple[bytes, bytes]) -> Producer:
        producer = make_producer(settings_of, transactional_id=transactional_id)
        producer.init_transactions(20)
        producer.begin_transaction()
        for key, value in pairs:
            producer.produce(topic, value, key)
        assert producer.flush(20) == 0
        open_ones.append(producer)
        return producer

    yield begin
    open_ones.clear()


def kinds(diagnosis) -> list[tuple[str, str]]:
    return [(finding.kind, finding.owner) for finding in diagnosis.findings]


def only(diagnosis, kind: str, owner: str):
    assert kinds(diagnosis) == [(kind, owner)], diagnosis
    return diagnosis.findings[0]


@pytest.fixture
def log_of(lab):
    """Every committed record of a topic by a plain consumer, by partition: `key -> value`, None for a null.

    `placed`: with the partition before it, `3: key -> value`."""

    def read(topic: str, *, placed: bool = False) -> list[str]:
        settings = {"bootstrap.servers": lab.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        partitions = consumer.list_topics(topic, 20).topics[topic].partitions
        consumer.assign([RawPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[tuple[int, str]] = []
        waiting, until = set(partitions), Deadline(20)
        while waiting:
            until.check("reading")
            for message in consumer.consume(100, 0.05):
                partition, error = message.partition() or 0, message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    waiting.discard(partition)
                else:
                    key, value = message.key() or b"", message.value()
                    found.append((partition, f"{key.decode()} -> {None if value is None else value.decode()}"))
        consumer.close()
        return [f"{at}: {line}" if placed else line for at, line in sorted(found, key=lambda one: one[0])]

    return read
