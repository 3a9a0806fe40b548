"""Reading a topic to its captured end, on real transactional, aborted, open and compacted topics.

What is there is decided by Kafka's own console consumer and by plain lists of what was sent.
"""

import threading

import pytest
from confluent_kafka import Producer

from playhead.errors import NotFound, TimedOut
from playhead.kafka.client import make_producer
from playhead.kafka.log import capture, read_latest, read_records
from playhead.kafka.topics import topic_ends
from playhead.kafka.transactions import TransactionalProducer
from playhead.model import Deadline, TopicPartition


@pytest.fixture
def send(settings_of):
    """Plain records, delivered when the call returns."""

    def send(topic, *pairs, partition=0):
        producer = make_producer(settings_of, linger_ms=0)
        for key, value in pairs:
            producer.produce(topic, value, key, partition)
        assert producer.flush(20) == 0

    return send


@pytest.fixture
def console(lab):
    """The values Kafka's own consumer shows."""

    def read(topic, isolation="read_committed"):
        arguments = ["--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning"]
        return lab.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *arguments,
            "--isolation-level",
            isolation,
            "--timeout-ms",
            "2500",
        ).split()

    return read


@pytest.fixture
def open_producer(settings_of, unique):
    """A transactional producer whose transactions the test ends, or does not."""

    def make(transactional_id=None):
        producer = Producer(
            {
                "bootstrap.servers": settings_of.bootstrap,
                "transactional.id": transactional_id or unique("tx"),
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(20)
        return producer

    return make


def values(admin, topic, deadline, **how):
    captured = capture(admin, topic, deadline, **how)
    return [(record.value or b"").decode() for record in read_records(admin, captured, deadline)]


def test_an_empty_topic_has_nothing_to_read(admin, deadline, new_topic):
    assert values(admin, new_topic(partitions=3), deadline) == []


def test_a_missing_topic_is_not_found_and_not_created(admin, deadline, new_topic, lab):
    name = new_topic()
    with pytest.raises(NotFound) as caught:
        capture(admin, name + "x", deadline)
    assert name in (caught.value.hint or "")
    listed = lab.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", lab.bootstrap_servers, "--list")
    assert name in listed.split() and name + "x" not in listed.split()


def test_committed_records_are_read_and_aborted_ones_are_not(admin, deadline, new_topic, open_producer, console):
    topic = new_topic()
    producer = open_producer()
    for word, ends in (("one", "commit"), ("two", "abort"), ("three", "commit"), ("four", "abort")):
        producer.begin_transaction()
        producer.produce(topic, word)
        producer.flush(10)
        producer.commit_transaction(10) if ends == "commit" else producer.abort_transaction(10)

    assert values(admin, topic, deadline) == ["one", "three"] == console(topic)
    everything = ["one", "two", "three", "four"]
    assert values(admin, topic, deadline, committed=False) == everything == console(topic, "read_uncommitted")
    # The log ends with the marker of an aborted transaction: no record carries the last offset.
    assert topic_ends(admin, topic, [0], deadline)[0].high > len(everything)


def test_an_open_transaction_is_reported_and_does_not_hang_the_reading(admin, deadline, new_topic, open_producer, send):
    topic = new_topic(partitions=2)
    send(topic, (None, b"before"), partition=1)
    producer = open_producer()
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=1)
    producer.flush(10)
    send(topic, (None, b"behind"), partition=1)
    send(topic, (None, b"elsewhere"), partition=0)

    captured = capture(admin, topic, deadline)
    assert captured.open_transactions == [TopicPartition(topic, 1)]
    assert sorted(r.value or b"" for r in read_records(admin, captured, Deadline(20))) == [b"before", b"elsewhere"]

    producer.commit_transaction(10)
    captured = capture(admin, topic, deadline)
    assert captured.open_transactions == []
    found = [r.value for r in read_records(admin, captured, deadline) if r.partition == 1]
    assert found == [b"before", b"undecided", b"behind"]


def test_an_open_transaction_in_an_otherwise_empty_topic_is_reported(admin, deadline, new_topic, open_producer):
    topic = new_topic()
    producer = open_producer()
    producer.begin_transaction()
    producer.produce(topic, b"undecided")
    producer.flush(10)
    captured = capture(admin, topic, deadline)
    assert captured.open_transactions == [TopicPartition(topic, 0)]
    assert list(read_records(admin, captured, Deadline(10))) == []
    producer.abort_transaction(10)


def test_compaction_holes_do_not_stop_or_hang_the_reading(admin, deadline, new_topic, send, lab):
    """The cleaner really runs: many small segments, no waiting, and the reading passes the holes it leaves."""
    topic = new_topic(
        cleanup_policy="compact",
        segment_bytes="1048576",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms="0",
        min_compaction_lag_ms="0",
    )
    filler = b"x" * 3000
    for round_ in range(6):
        send(topic, *[(b"k%d" % key, b"%d:" % round_ + filler) for key in range(100)])
    send(topic, (b"gone", b"1"), (b"gone", None))

    def compacted():
        send(topic, (b"tick", filler))  # a segment is closed, and so cleaned, only when something follows
        captured = capture(admin, topic, deadline)
        offsets = [record.offset for record in read_records(admin, captured, deadline)]
        return len(offsets) < captured.span and captured

    captured = deadline.wait_for(compacted, "the log cleaner")
    latest = {record.key: record.value for record in read_latest(admin, captured, deadline).records}
    assert {key: value[:2] for key, value in latest.items() if key and value and key.startswith(b"k")} == {
        b"k%d" % key: b"5:" for key in range(100)
    }


def test_the_end_is_the_one_captured_though_the_topic_keeps_growing(admin, deadline, new_topic, send):
    topic = new_topic()
    send(topic, *[(None, b"%d" % n) for n in range(500)])
    captured = capture(admin, topic, deadline)
    stop = threading.Event()

    def keep_writing():
        while not stop.is_set():
            send(topic, *[(None, b"later")] * 50)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        Deadline(20).wait_for(lambda: topic_ends(admin, topic, [0], deadline)[0].high > 600, "the topic growing")
        found = [record.value for record in read_records(admin, captured, deadline)]
    finally:
        stop.set()
        writer.join()
    assert found == [b"%d" % n for n in range(500)]


def test_records_removed_from_the_front_are_no_obstacle(admin, deadline, new_topic, send, lab, tmp_path):
    topic = new_topic()
    send(topic, *[(None, b"%d" % n) for n in range(10)])
    captured = capture(admin, topic, deadline)
    request = tmp_path / "delete.json"
    request.write_text('{"partitions":[{"topic":"%s","partition":0,"offset":6}],"version":1}' % topic)
    lab.tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--offset-json-file",
        str(request),
    )
    assert [r.offset for r in read_records(admin, captured, deadline)] == [6, 7, 8, 9]
    assert values(admin, topic, deadline) == ["6", "7", "8", "9"]


def test_the_latest_record_of_each_key_is_kept_per_partition_with_tombstones(admin, deadline, new_topic, send):
    topic = new_topic(partitions=2)
    send(topic, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (None, b"keyless"), partition=0)
    send(topic, (b"a", b"9"), partition=1)
    latest = read_latest(admin, capture(admin, topic, deadline), deadline)
    found = {(record.partition, record.key): record.value for record in latest.records}
    assert found == {(0, b"a"): b"3", (0, b"b"): None, (1, b"a"): b"9"}
    assert latest.without_key == 1


def test_a_reading_that_cannot_finish_in_time_names_what_is_missing(admin, new_topic, send, lab, deadline):
    topic = new_topic()
    send(topic, (None, b"x"))
    captured = capture(admin, topic, deadline)
    lab.pause("broker-1")
    try:
        with pytest.raises(TimedOut, match=f"missing: {topic}-0 before 1"):
            list(read_records(admin, captured, Deadline(1)))
    finally:
        lab.resume("broker-1")


def test_a_new_producer_of_the_same_id_fences_the_old_one(settings_of, admin, deadline, new_topic, unique, console):
    from playhead.errors import Fenced

    topic, name = new_topic(), unique("tx")
    old = TransactionalProducer(settings_of, name, deadline)
    with pytest.raises(Fenced), old.transaction():
        old.produce(topic, None, b"old")
        with TransactionalProducer(settings_of, name, deadline) as new, new.transaction():
            new.produce(topic, None, b"new")
    assert values(admin, topic, deadline) == ["new"] == console(topic)


def test_a_block_that_raises_is_aborted(settings_of, admin, deadline, new_topic, unique):
    topic = new_topic()
    with TransactionalProducer(settings_of, unique("tx"), deadline) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.produce(topic, b"k", b"never")
            raise ZeroDivisionError
        with producer.transaction():
            producer.produce(topic, b"k", b"after", headers=[("h", b"1")], timestamp_ms=1_600_000_000_000)
    captured = capture(admin, topic, deadline)
    assert captured.open_transactions == []
    assert [(r.value, r.timestamp_ms) for r in read_records(admin, captured, deadline)] == [
        (b"after", 1_600_000_000_000)
    ]


def test_a_commit_without_an_answer_is_unknown(settings_of, new_topic, unique, lab):
    from playhead.errors import OutcomeUnknown

    topic = new_topic()
    deadline = Deadline(6)
    producer = TransactionalProducer(settings_of, unique("tx"), deadline)
    producer._producer.begin_transaction()
    producer.produce(topic, None, b"x")
    producer._producer.flush(5)
    lab.pause("broker-1")
    try:
        with pytest.raises(OutcomeUnknown):
            producer.commit()
    finally:
        lab.resume("broker-1")
