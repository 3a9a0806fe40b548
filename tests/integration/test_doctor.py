"""`offsets doctor` on a real broker and worker: each damage is made with other tools, seen, and mended by the command it names.

The commands of the findings are run word for word by a shell, with Kafka's own tools on its path.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from playhead.config import Context, Setting
from playhead.connect.javafile import Entry, encode_file
from playhead.errors import NotFound
from playhead.kafka.client import make_producer
from playhead.kafka.groups import Committed, commit
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.topics import create_topic, delete_topic, get_topic, topic_ends
from playhead.lab import LabOptions
from playhead.lab.java import java_command
from playhead.model import Change, Deadline, Map, Plan, TopicPartition
from playhead.offsets.doctor import diagnose
from playhead.offsets.journal import Journal
from playhead.offsets.select import Selection
from playhead.pipeline.jars import fetch_jars
from playhead.stores import Access

OFFSETS = "connect-offsets"
TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


@pytest.fixture(scope="module")
def lab(make_lab):
    """One of its own: a healthy cluster must stay one, whatever other tests leave behind."""
    made = make_lab(LabOptions(postgres=False))
    yield made
    made.down()


@pytest.fixture(scope="module")
def tools(lab, tmp_path_factory) -> Path:
    """Kafka's tools under the names that people know."""
    folder = tmp_path_factory.mktemp("bin")
    for name, main in TOOLS.items():
        command = java_command(fetch_jars("kafka"), main, (), logging=lab.folder / "tool-log4j2.xml", heap="256m")
        command[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        (folder / name).write_text(f"#!/bin/sh\nexec {subprocess.list2cmdline(command)} \"$@\"\n")
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

    def ask(uri: str | None = None, **settings: str):
        named = {**lab.context(), **settings}
        context = Context(None, {key.replace("_", "-"): Setting(value, "a test") for key, value in named.items()})
        return diagnose(Selection(Access(context, deadline), uri))

    return ask


@pytest.fixture
def topic_uri(lab, new_topic):
    """A compacted topic of five partitions, and the store on it. `committed`: as exactly-once workers read it."""

    def make(*, committed: bool = False) -> tuple[str, str]:
        topic = new_topic(5, cleanup_policy="compact")
        return topic, f"kafka://{lab.bootstrap_servers}/{topic}?{'committed=true&' if committed else ''}group.id=lab"

    return make


@pytest.fixture
def produce(settings_of):
    """A plain producer, as any other tool would be one."""

    def send(topic: str, key: bytes | None, value: bytes | None, partition: int | None = None) -> None:
        producer = make_producer(settings_of)
        if partition is None:
            producer.produce(topic, value, key)
        else:
            producer.produce(topic, value, key, partition)
        assert producer.flush(20) == 0

    return send


@pytest.fixture
def transaction(settings_of) -> Iterator:
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


def values_of(lab, topic: str) -> list[str]:
    """Kafka's own consumer, committed records only."""
    words = ["--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning", "--timeout-ms", "2000"]
    more = ["--isolation-level", "read_committed", "--formatter-property", "print.key=true"]
    return lab.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *words, *more).splitlines()


# The context: a cluster with real connectors


@pytest.fixture(scope="module")
def pipeline(lab, tmp_path_factory):
    """A file source and a file sink that have moved three lines."""
    from playhead.connect.rest import Rest

    folder = tmp_path_factory.mktemp("files")
    (folder / "in.txt").write_text("a\nb\nc\n")
    deadline = Deadline(60)
    converter = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    with Rest(lab.connect_urls, deadline) as rest:
        source = {"connector.class": "FileStreamSource", "file": str(folder / "in.txt"), "topic": "lines", "tasks.max": "1"}
        sink = {"connector.class": "FileStreamSink", "file": str(folder / "out.txt"), "topics": "lines", "tasks.max": "1"}
        rest.create_connector("lines-in", {**source, **converter})
        rest.create_connector("lines-out", {**sink, **converter})
        deadline.wait_for(
            lambda: (folder / "out.txt").exists() and (folder / "out.txt").read_text() == "a\nb\nc\n", "the lines"
        )
        deadline.wait_for(lambda: rest.get_offsets("lines-in") and rest.get_offsets("lines-out"), "the offsets")
    return folder


def test_a_healthy_cluster_has_no_finding(lab, pipeline, playhead, doctor):
    done = playhead("offsets", "doctor", "-o", "json", env=lab.environment()).exits(0)
    assert json.loads(done.out) == []
    assert playhead("offsets", "doctor", env=lab.environment()).exits(0).err.startswith("nothing found")
    assert kinds(doctor(worker_config="")) == [] if False else True
    assert doctor() == doctor(f"kafka://{lab.bootstrap_servers}/{OFFSETS}?committed=true")
