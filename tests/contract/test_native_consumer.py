"""Ranges of a topic that librdkafka reads in columns. Kafka's own consumer and what was sent are the oracle."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

from kafka_jvm import KAFKA_JVM
from playhead.errors import ConfigInvalid, PlayheadError, Rejected, Unreachable
from playhead.kafka import native_consumer
from playhead.kafka.c_library import is_available
from playhead.kafka.client import make_native_consumer
from playhead.kafka.native_consumer import Fetched
from playhead.kafka.properties import ClientSettings

pytestmark = pytest.mark.skipif(not is_available(), reason="this build of librdkafka hides its interface")
Read = Callable[..., list[Fetched]]
Sent = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None, int]


@pytest.fixture
def read(settings_of) -> Read:
    def records(topic: str, start: int, end: int, **config: str) -> list[Fetched]:
        own = {name.replace("_", "."): value for name, value in config.items()}
        with make_native_consumer(replace(settings_of, consumer=own), has_headers=True) as consumer:
            return list(consumer.read(topic, 0, start, end))

    return records


@pytest.fixture
def send(lab) -> Callable[..., None]:
    def sent(topic: str, values: Sequence[bytes | None], **config: str | int) -> None:
        own = {name.replace("_", "."): value for name, value in config.items()}
        producer = Producer({"bootstrap.servers": lab.bootstrap_servers, **own})
        for value in values:
            producer.produce(topic, value, partition=0)
        assert not producer.flush(30)

    return sent


def offsets(found: Sequence[Fetched]) -> list[int]:
    return [int(offset) for one in found for offset in one.offsets]


def values(found: Sequence[Fetched]) -> list[bytes | None]:
    return [value for one in found for value in one.values.to_pylist()]


def test_every_part_of_a_record_is_as_it_was_sent(lab, new_topic, read):
    topic = new_topic(1, max_message_bytes="6000000")
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "message.max.bytes": 6_000_000})
    sent: list[Sent] = [
        (b"k", b"v", [("h", b"1"), ("h", None), ("é", b"")], 1_700_000_000_000),
        (None, None, None, 5),
        (b"", b"", [("only", b"\x00\xff")], 1),
        (b"\x00" * 3, random.Random(1).randbytes(5_000_000), None, 1_600_000_000_000),
        (b"after", b"the large one", None, 7),
    ]
    for key, value, headers, stamp in sent:
        producer.produce(topic, value, key, 0, timestamp=stamp, headers=headers)
        assert not producer.flush(30)
    found = read(topic, 0, len(sent))
    columns = [(one.keys.to_pylist(), one.values.to_pylist(), one.headers, one.timestamps_ms.tolist()) for one in found]
    rows = [row for keys, vals, heads, stamps in columns for row in zip(keys, vals, heads, stamps, strict=True)]
    assert [(k, v, h and list(h), t) for k, v, h, t in rows] == sent
    assert offsets(found) == list(range(len(sent)))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_ranges_of_batches_of_every_codec(codec, new_topic, read, send, monkeypatch):
    monkeypatch.setattr(native_consumer, "BATCH", 700)
    topic = new_topic(1)
    wanted = [b"%d %s" % (number, b"x" * (number % 50)) for number in range(5000)]
    send(topic, wanted, compression_type=codec, linger_ms=50)
    for start, end in ((0, 5000), (0, 1), (4999, 5000), (1234, 4321)):
        found = read(topic, start, end)
        assert offsets(found) == list(range(start, end))
        assert values(found) == wanted[start:end]


def test_aborted_records_and_markers_are_left_out_wherever_a_range_ends(lab, new_topic, read, unique):
    """By transactions of 2: committed, aborted, committed, aborted; each has a marker after it."""
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": unique("t")})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for part in range(2):
            producer.produce(topic, b"%d.%d" % (number, part), partition=0)
        producer.flush(30)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
    committed = {one.offset: one.value for one in KAFKA_JVM.read(lab.bootstrap_servers, topic)}
    assert sorted(committed) == [0, 1, 6, 7]
    for start in range(12):
        for end in range(start + 1, 13):
            found = read(topic, start, end)
            wanted = [offset for offset in sorted(committed) if start <= offset < end]
            assert offsets(found) == wanted, (start, end)
            assert values(found) == [committed[offset] for offset in wanted]
    everything = read(topic, 0, 12, isolation_level="read_uncommitted")
    assert offsets(everything) == [0, 1, 3, 4, 6, 7, 9, 10]


def test_a_range_ends_in_the_middle_of_a_topic_that_grows(lab, new_topic, read, send):
    topic = new_topic(1)
    send(topic, [b"%d" % number for number in range(100)])
    assert offsets(read(topic, 10, 50)) == list(range(10, 50))


def test_records_that_have_expired_are_an_error_and_not_a_hole(admin, new_topic, read, send):
    topic = new_topic(1)
    send(topic, [b"%d" % number for number in range(20)])
    admin.raw.delete_records([TopicPartition(topic, 0, 10)])[TopicPartition(topic, 0)].result(30)
    began = time.monotonic()
    with pytest.raises(PlayheadError, match="out of range"):
        read(topic, 5, 20)
    assert time.monotonic() - began < 30
    assert offsets(read(topic, 10, 20)) == list(range(10, 20))


def test_a_topic_that_is_not_there_is_an_error(unique, read):
    with pytest.raises(Rejected, match="Unknown topic or partition"):
        read(unique("none"), 0, 10)


def test_brokers_that_are_away_are_an_outage():
    settings = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})
    with make_native_consumer(settings) as consumer, pytest.raises(Unreachable):
        list(consumer.read("any", 0, 0, 1))


def test_settings_of_javas_consumers_that_librdkafka_does_not_know_are_left_out(new_topic, read, send):
    topic = new_topic(1)
    send(topic, [b"a"])
    assert values(read(topic, 0, 1, max_poll_records="7", exclude_internal_topics="true")) == [b"a"]


def test_keys_that_are_not_needed_are_not_read(settings_of, new_topic, send):
    topic = new_topic(1)
    send(topic, [b"a"])
    with make_native_consumer(settings_of, has_keys=False) as consumer:
        (found,) = consumer.read(topic, 0, 0, 1)
    assert (found.keys, found.headers, found.values) == (None, None, pa.array([b"a"]))


def test_a_setting_that_librdkafka_refuses_is_named_without_secrets(settings_of):
    wrong = replace(settings_of, common={**settings_of.common, "security.protocol": "no-such"})
    with pytest.raises(ConfigInvalid, match=r"security\.protocol"):
        make_native_consumer(wrong)
