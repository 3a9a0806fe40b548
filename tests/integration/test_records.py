"""`playhead topics records`, beside what was sent and beside Kafka's own consumer."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.groups import kafka_groups
from playhead import broker
from playhead.config import open_context
from playhead.kafka.client import make_producer
from playhead.kafka.log import read_messages
from playhead.model import Deadline
from playhead.topics import records as reading
from playhead.topics.session import open_session

START = 1767225600000  # 2026-01-01T00:00:00Z
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ODD: list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]] = [
    (b"key", b"\x1b]0;owned\x07\x1b[31mred\xff\x00", [("h", b"\xfe"), ("h", None)]),
    (b"\xff\n", None, []),
    (None, b"", []),
    ("열쇠".encode(), "값 \u202e\u009b31m".encode(), []),
    (b"", b"line one\nline two\r\ttab", []),
]


@pytest.fixture
def send(settings_of):
    """(partition, seconds after START, key, value) each, delivered when the call returns."""

    def send(topic, *sent, headers=None):
        producer = make_producer(settings_of, linger_ms=0)
        for partition, seconds, key, value in sent:
            producer.produce(topic, value, key, partition, timestamp=START + int(seconds * 1000), headers=headers)
        assert producer.flush(20) == 0
        del producer

    return send


@pytest.fixture
def numbered(new_topic, send):
    """Three partitions; record n is in partition n % 3, n seconds after START, with key k{n % 5}."""
    topic = new_topic(partitions=3, retention_ms="-1")
    send(topic, *[(n % 3, n, b"k%d" % (n % 5), b"value %d" % n) for n in range(60)])
    return topic


@pytest.fixture
def records(playhead, lab):
    return lambda *words: playhead("topics", "records", *words, "-b", lab.bootstrap_servers)


def numbers(ran):
    return [int(json.loads(line)["value"].split()[1]) for line in ran.exits(0).out.splitlines()]


def test_every_byte_of_every_record_comes_out(lab, records, new_topic, settings_of):
    topic = new_topic()
    producer = make_producer(settings_of)
    for n, (key, value, headers) in enumerate(ODD):
        producer.produce(topic, value, key, 0, timestamp=START + n, headers=headers)
    assert producer.flush(20) == 0
    lines = [json.loads(line) for line in records(topic, "-o", "json").exits(0).out.splitlines()]
    assert [(line["offset"], line["timestamp_ms"], line["timestamp_type"]) for line in lines] == [
        (n, START + n, "create") for n in range(len(ODD))
    ]
    assert [line["key"] for line in lines] == ["key", {"base64": "/wo="}, None, "열쇠", ""]
    assert [line["value"] for line in lines[1:]] == [None, "", "값 \u202e\u009b31m", "line one\nline two\r\ttab"]
    assert lines[0]["value"] == {"base64": "G10wO293bmVkBxtbMzFtcmVk/wA="}
    assert lines[0]["headers"] == [{"key": "h", "value": {"base64": "/g=="}}, {"key": "h", "value": None}]
    table = records(topic).exits(0).out
    assert "(tombstone)" in table and "\\x1b]0;owned\\x07" in table and len(table.splitlines()) == 6

    command = [str(Path(sys.executable).parent / "playhead"), "topics", "records", topic, "-b", lab.bootstrap_servers]
    raw = subprocess.run([*command, "-o", "raw"], capture_output=True, check=True, timeout=60)
    assert raw.stdout == b"".join((value or b"") + b"\n" for _, value, _ in ODD)
    assert b"1 of the lines are empty: tombstones" in raw.stderr
    for form in ("raw", "table", "csv", "json"):
        assert not {0x1B, 0x07, 0x9B} & set(on_a_terminal([*command, "-o", form]))


def on_a_terminal(command):
    """What a terminal would get, of stdout alone."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert process.wait(30) == 0
    assert seen
    return seen


def test_the_whole_topic_is_what_kafkas_own_consumer_shows(lab, records, numbered):
    words = [
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--topic",
        numbered,
        "--from-beginning",
        "--max-messages",
        "60",
    ]
    printed = [
        word
        for name in ("partition", "offset", "timestamp", "key")
        for word in ("--formatter-property", f"print.{name}=true")
    ]
    theirs = sorted(line.split("\t") for line in lab.tool(CONSOLE, *words, *printed).splitlines())
    lines = [json.loads(line) for line in records(numbered, "-o", "json").exits(0).out.splitlines()]
    ours = sorted(
        [
            f"CreateTime:{line['timestamp_ms']}",
            f"Partition:{line['partition']}",
            f"Offset:{line['offset']}",
            line["key"],
            line["value"],
        ]
        for line in lines
    )
    assert ours == theirs


@pytest.fixture
def chosen(lab):
    """The numbers of the records that these options choose, asked at a Python prompt: much faster than many commands."""
    here = open_context(None, {"bootstrap-servers": lab.bootstrap_servers})

    def chosen(topic, **options):
        found = broker.show_records(topic, context=here, **options)
        return [int((record.value or b"").split()[1]) for record in found]

    return chosen


def test_offsets_times_keys_patterns_and_limits_choose_records(records, chosen, numbered):
    assert sorted(numbers(records(numbered, "-o", "json", "--from-offset", "18"))) == list(range(54, 60))
    between = ["--from-time", "2026-01-01T09:00:09.500+09:00", "--to-time", "2026-01-01T00:00:12Z"]
    assert sorted(numbers(records(numbered, "-o", "json", *between, "--grep", "value 1[0-9]"))) == [10, 11]
    assert sorted(chosen(numbered, from_offset=0, to_offset=1)) == [0, 1, 2]
    assert chosen(numbered, partition=1, from_offset=2, to_offset=4) == [7, 10]
    assert sorted(chosen(numbered, from_offset=0, key="k4", to_offset=5)) == [4, 9, 14]
    assert sorted(chosen(numbered, from_offset=0, grep="value [12]?7$")) == [7, 17, 27]
    assert len(chosen(numbered, limit=7)) == 7
    assert chosen(numbered, from_time="PT1H") == [] == chosen(numbered, from_offset=19, to_offset=3)
    assert "no record" in records(numbered, "--from-offset", "99").exits(0).err
    assert "has 3 partition(s)" in records(numbered, "--partition", "3").exits(1).err
    assert f"did you mean {numbered}" in records(numbered + "x").exits(1).err
    records(numbered, "--last", "3", "--from-offset", "1").exits(2)


def test_the_last_records_are_the_newest_of_all_partitions_whatever_lies_between(
    records, chosen, numbered, settings_of, unique
):
    assert numbers(records(numbered, "-o", "json", "--last", "4")) == [56, 57, 58, 59]
    assert chosen(numbered, last=2, key="k0") == [50, 55]
    assert chosen(numbered, last=3, to_time="2026-01-01T00:00:30Z") == [27, 28, 29]
    assert chosen(numbered, last=1000) == list(range(60))
    producer = Producer({"bootstrap.servers": settings_of.bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(20)
    for _ in range(8):  # offsets without a record that counts, at the end of one partition
        producer.begin_transaction()
        producer.produce(numbered, b"value 999", partition=0, timestamp=START)
        producer.flush(10)
        producer.abort_transaction(10)
    del producer
    assert chosen(numbered, last=4) == [56, 57, 58, 59]
    assert 999 in chosen(numbered, from_offset=0, committed=False)


def test_the_last_records_are_found_without_reading_the_topic(lab, new_topic, send, monkeypatch):
    topic, seen = new_topic(partitions=2, retention_ms="-1"), []
    send(topic, *[(n % 2, n / 1000, None, b"value %d" % n) for n in range(20_000)])
    real = read_messages

    def counted(*words):
        for batch in real(*words):
            seen.extend(batch)
            yield batch

    monkeypatch.setattr(reading, "read_messages", counted)
    with open_session(open_context(None, {"bootstrap-servers": lab.bootstrap_servers}), Deadline(30)) as session:
        found = reading.open_reading(session, reading.Query(topic, last=5))
        assert [r.value for batch in found.batches() for r in batch] == [b"value %d" % n for n in range(19_995, 20_000)]
    assert len(seen) == 10


def test_records_of_an_open_transaction_are_not_shown_but_mentioned(
    lab, playhead, records, new_topic, send, settings_of, unique
):
    topic, owner, group = new_topic(retention_ms="-1"), unique("tx"), unique("readers")
    send(topic, (0, 0, None, b"value 1"))
    producer = Producer({"bootstrap.servers": settings_of.bootstrap, "transactional.id": owner})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"value 2", timestamp=START)
    producer.flush(10)
    ran = records(topic, "-o", "json")
    assert numbers(ran) == [1] and "at most 1 record(s) of open transactions are not shown" in ran.err
    held = rf"{topic}-0 is committed up to 1 of 2: the open transaction of {owner} \(open since 20\S+Z\) hides the rest"
    assert re.search(held, ran.err)
    kafka_groups(lab, "--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    for words in (["topics", "show", topic], ["groups", "show", group]):
        assert re.search(held, playhead(*words, "-b", lab.bootstrap_servers).exits(0).err), words
    assert numbers(records(topic, "-o", "json", "--uncommitted")) == [1, 2]
    producer.abort_transaction(10)
    del producer


def test_following_prints_what_arrives_until_it_is_interrupted(lab, numbered, send):
    process = started(lab, numbered, "--last", "1", "--follow", "-o", "json", stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["value"] == "value 59"
    send(numbered, (1, 100, b"k", b"value 100"))
    assert json.loads(process.stdout.readline())["value"] == "value 100"
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=30)
    assert (process.returncode, rest, said.split()) == (130, b"", [b"interrupted"])


@pytest.mark.parametrize("count", [1, 3000], ids=["while nothing arrives", "in the middle of a batch"])
def test_a_reader_that_goes_away_ends_it_without_a_word(lab, new_topic, send, count):
    topic = new_topic(retention_ms="-1")
    send(topic, *[(0, n, None, b"x" * 500) for n in range(count)])
    process = started(lab, topic, "-o", "json", "--follow", stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""


def started(lab, topic, *words, stderr):
    command = [str(Path(sys.executable).parent / "playhead"), "topics", "records", topic, *words]
    return subprocess.Popen(
        [*command, "-b", lab.bootstrap_servers], stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL
    )
