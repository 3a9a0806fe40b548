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
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from playhead.config import Context, Setting
from playhead.connect.javafile import Entry, encode_file
from playhead.connect.rest import Rest
from playhead.errors import NotFound
from playhead.kafka.client import Admin, make_producer
from playhead.kafka.groups import Committed, commit
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, delete_topic, get_topic
from playhead.lab import LabOptions
from playhead.lab.java import java_command
from playhead.model import Change, Deadline, Map, Plan, TopicPartition
from playhead.offsets.doctor import Diagnosis, diagnose
from playhead.offsets.journal import Journal
from playhead.offsets.select import Selection
from playhead.pipeline.jars import fetch_jars
from playhead.stores import Access

OFFSETS = "connect-offsets"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
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
        return diagnose(Selection(Access(context, deadline), uri, via))

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


@pytest.fixture
def log_of(lab):
    """Every committed record of a topic by a plain consumer, by partition: `key -> value`, None for a null."""

    def read(topic: str) -> list[str]:
        settings = {"bootstrap.servers": lab.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        partitions = consumer.list_topics(topic, 20).topics[topic].partitions
        consumer.assign([RawPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[tuple[int, str]] = []
        waiting, until = set(partitions), Deadline(20)
        while waiting:
            until.check("reading")
            for message in consumer.consume(100, 0.05):
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    waiting.discard(message.partition())
                else:
                    value = message.value()
                    shown = None if value is None else value.decode()
                    found.append((message.partition(), f"{message.key().decode()} -> {shown}"))
        consumer.close()
        return [line for _, line in sorted(found, key=lambda one: one[0])]

    return read


# The context: a cluster with real connectors


@pytest.fixture(scope="module")
def pipeline(lab, tmp_path_factory) -> Path:
    """A file source and a file sink that have moved three lines."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "in.txt").write_text("a\nb\nc\n")
    deadline = Deadline(60)
    text = {"value.converter": "org.apache.kafka.connect.storage.StringConverter", "tasks.max": "1"}
    with Admin(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), deadline) as admin:
        create_topic(admin, "lines", 1, deadline)
    with Rest(lab.connect_urls, deadline) as rest:
        rest.create_connector(
            "lines-in", {**text, "connector.class": SOURCE, "file": str(folder / "in.txt"), "topic": "lines"}
        )
        rest.create_connector(
            "lines-out", {**text, "connector.class": SINK, "file": str(folder / "out.txt"), "topics": "lines"}
        )
        out = folder / "out.txt"
        deadline.wait_for(lambda: out.exists() and out.read_text() == "a\nb\nc\n", "the lines")
        deadline.wait_for(lambda: rest.get_offsets("lines-in") and rest.get_offsets("lines-out"), "the offsets")
    return folder


def test_a_healthy_cluster_has_no_finding_by_whatever_way_it_is_asked(lab, pipeline, playhead, doctor):
    done = playhead("offsets", "doctor", "-o", "json", env=lab.environment()).exits(0)
    assert (json.loads(done.out), done.err) == ([], "")
    assert doctor(f"kafka://{lab.bootstrap_servers}/{OFFSETS}?committed=true") == doctor()
    through_rest = doctor(via="rest")
    assert through_rest.findings == () and "the workers were asked" in through_rest.notes[0]
    assert doctor(f"groups://{lab.bootstrap_servers}").findings == ()


def test_offsets_of_a_deleted_connector_are_found_and_removed(
    lab, pipeline, rest, deadline, unique, doctor, run, produce
):
    name = unique("gone")
    (pipeline / name).write_text("x\n")
    config = {"connector.class": SOURCE, "file": str(pipeline / name), "topic": "lines", "tasks.max": "1"}
    rest.create_connector(name, config)
    deadline.wait_for(lambda: rest.get_offsets(name), "the offsets")
    assert doctor().findings == ()
    rest.delete_connector(name)
    finding = only(doctor(), "orphan", name)
    assert "1 position(s)" in finding.what and finding.mend == f"playhead offsets delete {name} --all"
    run(finding.mend)
    assert only(doctor(), "orphan", name) == finding  # shown, not done
    run(finding.mend, execute=True)
    assert doctor().findings == ()
    key = json.dumps([name, {"filename": str(pipeline / name)}], separators=(",", ":"))
    assert log_of(OFFSETS)[-1] == f"{key} -> None"  # D01: a null, and gone; a later value brings it back
    produce(OFFSETS, key.encode(), b'{"position":2}')
    run(only(doctor(), "orphan", name).mend, execute=True)
    assert doctor().findings == ()


def test_without_a_worker_the_config_topic_tells_who_exists(lab, pipeline, doctor, produce, run, unique):
    name = unique("gone")
    produce(OFFSETS, json.dumps([name, {}]).replace(" ", "").encode(), b'{"n":1}')
    found = doctor(connect="http://127.0.0.1:1")
    run(only(found, "orphan", name).mend, execute=True)
    assert doctor(connect="http://127.0.0.1:1").findings == ()


def test_two_sinks_in_one_group_are_found(lab, pipeline, rest, unique, doctor, run):
    name = unique("zz")
    config = {"connector.class": SINK, "file": str(pipeline / name), "topics": "lines", "tasks.max": "1"}
    rest.create_connector(name, {**config, "consumer.override.group.id": "connect-lines-out"}, "STOPPED")
    try:
        finding = only(doctor(), "shared-group", f"lines-out, {name}")
        run(finding.mend)
        assert rest.get_config(name)["consumer.override.group.id"] == f"connect-{name}"
        assert doctor().findings == ()
    finally:
        rest.delete_connector(name)


def test_a_sink_outside_its_log_is_found_and_put_back(
    lab, pipeline, rest, admin, deadline, unique, new_topic, produce, doctor, run
):
    name, topic = unique("sink"), new_topic(2)
    config = {"connector.class": SINK, "file": str(pipeline / name), "topics": topic, "tasks.max": "1"}
    for number in range(4):
        produce(topic, None, b"%d" % number, 0)
    rest.create_connector(name, config, "STOPPED")
    try:
        wanted = {TopicPartition(topic, 0): Committed(1), TopicPartition(topic, 1): Committed(70)}
        assert set(commit(admin, f"connect-{name}", wanted, deadline).values()) == {None}
        purge = {"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1}
        (pipeline / "purge.json").write_text(json.dumps(purge))
        words = ["--bootstrap-server", lab.bootstrap_servers, "--offset-json-file", str(pipeline / "purge.json")]
        lab.tool("org.apache.kafka.tools.DeleteRecordsCommand", *words)
        found = doctor()
        assert kinds(found) == [("sink-out-of-range", name)] * 2
        assert f"{topic}-0 begins at 3, after the position 1: 2 offset(s) were deleted" in found.findings[0].what
        assert f"{topic}-1 ends at 0, before the position 70" in found.findings[1].what
        by_group = doctor(f"groups://{lab.bootstrap_servers}")
        assert kinds(by_group) == [("sink-out-of-range", f"group:connect-{name}")] * 2
        run(found.findings[0].mend, execute=True)
        assert only(doctor(), "sink-out-of-range", name) == found.findings[1]
        run(by_group.findings[1].mend, execute=True)
        assert doctor().findings == ()
        shown = lab.tool(
            GROUP_COMMAND, "--bootstrap-server", lab.bootstrap_servers, "--describe", "--group", f"connect-{name}"
        )
        rows = [line.split()[1:4] for line in shown.splitlines() if topic in line]
        assert sorted(rows) == [[topic, "0", "3"], [topic, "1", "0"]]
    finally:
        rest.delete_connector(name)


def test_a_commit_of_a_later_epoch_than_the_log_is_a_suspicion(
    lab, admin, deadline, unique, new_topic, produce, doctor, run
):
    group, topic = unique("group"), new_topic()
    for _ in range(3):
        produce(topic, None, b"x")
    uri = f"groups://{lab.bootstrap_servers}"
    assert set(commit(admin, group, {TopicPartition(topic, 0): Committed(2, "", 7)}, deadline).values()) == {None}
    finding = only(doctor(uri), "topic-recreated", f"group:{group}")
    assert "leader epoch 7" in finding.what and "probably" in finding.what
    run(finding.mend, execute=True)
    assert doctor(uri).findings == ()


# The topic: keys


def test_one_partition_under_two_keys_is_a_twin(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    produce(topic, b'["c",{"a":1,"b":2}]', b'{"n":1}')
    assert doctor(uri).findings == ()
    produce(topic, b'["c",{"b":2,"a":1}]', b'{"n":2}')
    finding = only(doctor(uri), "twin", "c")
    run(finding.mend)  # Kafka's own producer
    assert doctor(uri).findings == ()


def test_a_twin_of_a_known_connector_is_the_key_that_it_does_not_make(topic_uri, produce, doctor, run, lab):
    topic, uri = topic_uri()
    produce(topic, b'["c",{"protocol":"1","table":"public.orders"}]', b'{"incrementing":1}')
    produce(topic, b'["c",{"table":"public.orders","protocol":"1"}]', b'{"incrementing":9}')
    run(only(doctor(uri), "twin", "c").mend)
    assert doctor(uri).findings == ()
    assert log_of(topic)[-1] == '["c",{"table":"public.orders","protocol":"1"}] -> None'


def test_a_key_in_two_kafka_partitions_is_a_twin_until_both_copies_agree(topic_uri, produce, doctor, run, lab):
    topic, uri = topic_uri()
    key = b'["c",{"filename":"x"}]'
    home = partition_of(key, 5)
    produce(topic, key, b'{"position":5}')
    produce(topic, key, b'{"position":7}', (home + 1) % 5)
    found = doctor(uri)
    assert kinds(found) == [("twin", "c"), ("misplaced", "c")]
    for step in found.findings[0].mend.split(", then "):
        run(step, execute=True)
    assert kinds(doctor(uri)) == [("misplaced", "c")]
    assert log_of(topic).count('["c",{"filename":"x"}] -> {"position":7}') == 3  # as it was, and both anew


def test_keys_of_a_topic_that_grew_are_misplaced_until_they_are_in_a_new_one(
    topic_uri, admin, deadline, produce, doctor, run, tmp_path, monkeypatch, lab
):
    topic, uri = topic_uri()
    keys = [b'["c",{"filename":"%d"}]' % number for number in range(20)]
    for number, key in enumerate(keys):
        produce(topic, key, b'{"position":%d}' % number)
    assert doctor(uri).findings == ()
    admin.raw.create_partitions([NewPartitions(topic, 11)])[topic].result(20)
    deadline.wait_for(lambda: len(get_topic(admin, topic, deadline).partitions) == 11, "the new partitions")
    moved = sum(partition_of(key, 11) != partition_of(key, 5) for key in keys)
    finding = only(doctor(uri), "misplaced", "c")
    assert finding.what.startswith(f"{moved} key(s) lie where Java would not put them")
    monkeypatch.chdir(tmp_path)
    run(finding.mend.partition(", then")[0])
    new, new_uri = topic_uri()
    run(f"playhead offsets import offsets.json --store '{new_uri}' --force --execute")
    assert doctor(new_uri).findings == ()
    assert len(log_of(new)) == 20


def test_keys_that_no_worker_will_find_are_removed_alone(topic_uri, produce, doctor, run, lab):
    topic, uri = topic_uri()
    good, spaced, alone = b'["c",{"filename":"x"}]', b'["c", {"filename": "x"}]', b'["d", {"filename":"y"}]'
    produce(topic, good, b'{"position":5}')
    produce(topic, spaced, b'{"position":6}')
    produce(topic, alone, b'{"position":7}')
    found = doctor(uri)
    assert sorted(kinds(found)) == [("unfindable", "c"), ("unfindable", "d")]
    mends = {finding.owner: finding.mend for finding in found.findings}
    run(mends["c"])
    run(mends["d"] + " --force", execute=True)
    assert doctor(uri).findings == ()
    assert (
        sorted(line for line in log_of(topic) if "null" not in line)[0]
        == '["c", {"filename": "x"}] -> {"position":6}'
    )
    assert good.decode() + " -> None" not in log_of(topic)


def test_an_unfindable_key_in_the_wrong_partition_is_removed_there(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    good, spaced = b'["c",{"filename":"x"}]', b'["c", {"filename": "x"}]'
    produce(topic, good, b'{"position":5}')
    produce(topic, spaced, b'{"position":6}', (partition_of(spaced, 5) + 2) % 5)
    found = doctor(uri)
    assert kinds(found) == [("unfindable", "c"), ("misplaced", "c")]
    run(found.findings[0].mend)  # kcat: Kafka's own producer cannot choose the partition
    assert doctor(uri).findings == ()


def test_legacy_envelopes_and_foreign_records_are_found_and_removed(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    produce(topic, b'{"schema":null,"payload":["c",{"filename":"x"}]}', b'{"schema":null,"payload":{"position":5}}')
    produce(topic, b"who am I", b"1")
    found = doctor(uri)
    assert kinds(found) == [("legacy", "c"), ("foreign", topic)]
    run(found.findings[0].mend + " --force", execute=True)
    run(found.findings[1].mend)
    assert doctor(uri).findings == ()


def test_records_without_a_key_are_foreign(new_topic, produce, doctor, lab):
    topic = new_topic(1)  # a compacted topic would not take them
    produce(topic, None, b"1")
    found = doctor(f"kafka://{lab.bootstrap_servers}/{topic}")
    assert kinds(found) == [("not-compacted", topic), ("foreign", topic)]
    assert "1 record(s) have no key" in found.findings[1].what


# The topic: values


def test_values_a_connector_would_choke_on_are_found_and_corrected(topic_uri, produce, doctor, run, lab):
    topic, uri = topic_uri()
    produce(topic, b'["c",{"filename":"x"}]', b'{"position":"5"}')
    produce(
        topic, b'["j",{"protocol":"1","table":"public.t"}]', b'{"timestamp_nanos":5000000,"timestamp":1704164648123}'
    )
    produce(topic, b'["n",{"filename":"y"}]', b'{"position":{"at":5}}')
    found = doctor(uri)
    assert sorted(kinds(found)) == [("bad-value", "c"), ("bad-value", "j"), ("bad-value", "n")]
    mends = {finding.owner: finding.mend for finding in found.findings}
    run(mends["c"] + " --force", execute=True)
    run(mends["j"] + " --force", execute=True)
    run(mends["n"].replace("FIELD=VALUE", "position=9") + " --force", execute=True)
    assert doctor(uri).findings == ()
    lines = log_of(topic)
    assert '["c",{"filename":"x"}] -> {"position":5}' in lines
    assert '["j",{"protocol":"1","table":"public.t"}] -> {"timestamp_nanos":123000000,"timestamp":1704164648123}' in lines


def test_an_old_jdbc_key_beside_the_new_one_is_found_and_removed_alone(topic_uri, produce, doctor, run, lab):
    topic, uri = topic_uri()
    produce(topic, b'["j",{"table":"orders"}]', b'{"incrementing":4}')
    assert doctor(uri).findings == ()  # alone it is read, so it is no finding
    produce(topic, b'["j",{"protocol":"1","table":"public.orders"}]', b'{"incrementing":9}')
    finding = only(doctor(uri), "jdbc-v0", "j")
    run(finding.mend + " --force", execute=True)
    assert doctor(uri).findings == ()
    assert log_of(topic)[-1] == '["j",{"table":"orders"}] -> None'


def test_a_jdbc_table_under_two_names_is_found(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    produce(topic, b'["j",{"protocol":"1","table":"public.orders"}]', b'{"incrementing":4}')
    produce(topic, b'["j",{"protocol":"1","table":"shop.public.orders"}]', b'{"incrementing":9}')
    produce(topic, b'["j",{"protocol":"1","table":"sales.orders"}]', b'{"incrementing":1}')
    finding = only(doctor(uri), "jdbc-two-names", "j")
    assert "public.orders and shop.public.orders are two names of one table" in finding.what
    assert "shop.public.orders" in run(finding.mend)  # which of them moves


# The topic: transactions


def test_an_open_transaction_is_named_with_its_holder_and_ended_by_the_command(
    topic_uri, produce, transaction, doctor, run, unique
):
    """D05: newer commits lie behind it, and nothing waits for it or takes the older state for whole."""
    topic, uri = topic_uri(committed=True)
    name = unique("held")
    key = b'["c",{"filename":"x"}]'
    produce(topic, key, b'{"position":1}')
    holder = transaction(f"lab-{name}-0", topic, (key, b'{"position":2}'))
    produce(topic, key, b'{"position":3}')
    finding = only(doctor(uri), "open-transaction", name)
    assert f"task 0 of {name} (transactional id lab-{name}-0" in finding.what
    assert f"{topic}-{partition_of(key, 5)} from offset 1 on" in finding.what
    run(finding.mend)
    assert doctor(uri).findings == ()
    with pytest.raises(KafkaException):
        holder.commit_transaction(5)


def test_a_transaction_of_somebody_else_is_found_too(topic_uri, transaction, doctor, run, unique):
    topic, uri = topic_uri()
    name = unique("é x")
    holder = transaction(name, topic, (b'["c",{"filename":"x"}]', b'{"position":2}'))
    finding = only(doctor(uri), "open-transaction", name)
    assert "somebody (transactional id" in finding.what
    holder.commit_transaction(10)
    assert doctor(uri).findings == ()


def test_a_transaction_that_a_task_has_just_begun_is_no_finding(lab, pipeline, transaction, doctor, unique):
    holder = transaction("lab-lines-in-7", OFFSETS, (b'["lines-in",{"filename":"x"}]', b'{"position":2}'))
    found = doctor()
    assert found.findings == ()
    assert [note for note in found.notes if "task 7 of lines-in" in note and "under way" in note]
    holder.abort_transaction(10)


def test_an_aborted_position_is_found_where_a_worker_would_read_it(
    topic_uri, produce, transaction, doctor, run, unique, lab
):
    topic, uri = topic_uri()
    key, other = b'["c",{"filename":"x"}]', b'["c",{"filename":"y"}]'
    produce(topic, key, b'{"position":5}')
    transaction(unique("tx"), topic, (key, b'{"position":6}')).commit_transaction(10)
    assert doctor(uri).findings == ()
    transaction(unique("tx"), topic, (key, b'{"position":7}'), (other, b'{"position":8}')).abort_transaction(10)
    found = doctor(uri)
    assert kinds(found) == [("aborted-newest", "c")] * 2
    exactly_once = doctor(uri + "&committed=true")
    assert exactly_once.findings == ()
    assert [note for note in exactly_once.notes if note.startswith("the newest record of 2 key(s) is aborted (c)")]
    for finding in found.findings:
        run(finding.mend + " --force", execute=True)
    assert doctor(uri).findings == ()
    assert [line for line in log_of(topic) if '"x"' in line][-1] == '["c",{"filename":"x"}] -> {"position":6}'


# The topics themselves


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_not_compacted_is_found_and_mended(lab, new_topic, doctor, run, policy):
    """D07: the worker would refuse to start on it."""
    topic = new_topic(1, cleanup_policy=policy)
    uri = f"kafka://{lab.bootstrap_servers}/{topic}"
    finding = only(doctor(uri), "not-compacted", topic)
    assert f"is {policy}:" in finding.what
    run(finding.mend)
    assert doctor(uri).findings == ()


def test_missing_topics_of_the_worker_are_said_and_never_taken_for_empty(
    lab, pipeline, admin, deadline, tmp_path, unique, doctor, run
):
    """D08: a worker would make them anew without a word."""
    offsets, status = unique("offsets"), unique("status")
    file = worker_file(lab, tmp_path, {"offset.storage.topic": offsets, "status.storage.topic": status})
    found = doctor(worker_config=str(file))
    assert kinds(found) == [("topic-gone", offsets), ("topic-gone", status)]
    for finding in found.findings:
        run(finding.mend)
    deadline.wait_for(lambda: len(get_topic(admin, offsets, deadline).partitions) == 5, "the topic")
    # Now it is there and empty, although a source connector of these workers has sent records.
    finding = only(doctor(worker_config=str(file)), "topic-recreated", offsets)
    assert "lines-in sent records to Kafka" in finding.what


def test_a_topic_that_does_not_reach_what_the_journal_saw_was_made_again(
    topic_uri, admin, deadline, produce, doctor, run, lab, tmp_path
):
    topic, uri = topic_uri()
    key = b'["c",{"filename":"x"}]'
    for number in range(3):
        produce(topic, key, b'{"position":%d}' % number)
    run(f"playhead offsets set c position=9 --store '{uri}' --force --execute")
    assert doctor(uri).findings == ()
    delete_topic(admin, topic, deadline)
    deadline.wait_for(lambda: not exists(admin, topic, deadline), "the topic going")
    create_topic(admin, topic, 5, deadline, config={"cleanup.policy": "compact"})
    deadline.wait_for(lambda: exists(admin, topic, deadline), "the topic coming")
    finding = only(doctor(uri), "topic-recreated", topic)
    assert "saw a record at offset 2" in finding.what
    (tmp_path / "BACKUP.json").write_text('{"c": [{"partition": {"filename": "x"}, "offset": {"position": 9}}]}')
    run(f"cd {tmp_path} && {finding.mend} --force", execute=True)
    assert doctor(uri).findings == ()
    assert log_of(topic) == ['["c",{"filename":"x"}] -> {"position":9}']


# Applies that were cut off


def test_an_apply_that_was_cut_off_is_judged_by_what_the_store_holds(topic_uri, produce, doctor, run, deadline):
    topic, uri = topic_uri()
    for name in (b"a", b"b"):
        produce(topic, b'["%b",{"filename":"x"}]' % name, b'{"position":1}')
    partition, old, new = Map({"filename": "x"}), Map({"position": 1}), Map({"position": 5})
    plan = Plan.of(uri, [Change("a", partition, old, new), Change("b", partition, old, new)])
    entry = Journal.of_context(Context(None, {})).begin(plan, ())  # and then, nothing: kill -9
    untouched = doctor(uri)
    assert untouched.findings == ()
    assert [
        note for note in untouched.notes if entry.id in note and "a is at the old position; b is at the old" in note
    ]
    produce(topic, b'["b",{"filename":"x"}]', b'{"position":5}')
    finding = only(doctor(uri), "unfinished-apply", "a, b")
    assert "a is at the old position; b is at the new position" in finding.what
    assert finding.mend == f"playhead offsets undo {entry.id}"
    run(finding.mend + " --force", execute=True)
    after = doctor(uri)
    assert after.findings == () and any(entry.id in note for note in after.notes)


# Other stores


def test_a_damaged_standalone_file_is_found_and_its_copy_put_back(tmp_path, doctor, run):
    path = tmp_path / "connect.offsets"
    path.write_bytes(encode_file([Entry(b'["c",{"filename":"x"}]', b'{"position":5}')]))
    uri = f"file:{path}"
    whole = doctor(uri)
    assert whole.findings == () and "which connectors exist cannot be told" in whole.notes[0]
    run(f"playhead offsets set c position=6 --store {uri} --worker-is-down --execute")
    data = path.read_bytes()
    path.write_bytes(data[:-7])
    finding = only(doctor(uri), "corrupt-file", str(path))
    assert f"corrupt at byte {len(data) - 7}" in finding.what
    run(finding.mend)
    assert doctor(uri).findings == ()
    path.unlink()
    run(only(doctor(uri), "file-gone", str(path)).mend)
    assert doctor(uri).findings == ()


def test_a_consumer_with_offsets_in_sql_is_compared_with_its_topics(lab, new_topic, tmp_path, doctor, run, unique):
    topic, gone = new_topic(), unique("gone")
    uri = f"sql+sqlite:///{tmp_path}/offsets.db"
    lines = {"billing": [entry(topic, 0, 40), entry(gone, 0, 3)]}
    (tmp_path / "in.json").write_text(json.dumps(lines))
    run(f"playhead offsets import {tmp_path}/in.json --store {uri} --execute")
    found = doctor(uri)
    assert sorted(kinds(found)) == [("sink-out-of-range", "billing"), ("topic-gone", "billing")]
    for finding in found.findings:
        run(finding.mend, execute=True)
    assert doctor(uri).findings == ()


def entry(topic: str, partition: int, offset: int) -> dict[str, object]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": {"kafka_offset": offset}}


def worker_file(lab, folder: Path, changes: dict[str, str]) -> Path:
    """The lab's own worker file with some lines changed."""
    lines = [line for line in lab.worker_config.read_text().splitlines() if line.partition("=")[0] not in changes]
    path = folder / "worker.properties"
    path.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in changes.items())]) + "\n")
    return path


def exists(admin, topic: str, deadline: Deadline) -> bool:
    try:
        get_topic(admin, topic, deadline)
    except NotFound:
        return False
    return True
