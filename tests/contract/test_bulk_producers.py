"""Both producers of runs, columns and one call per record, do the same. Kafka's own consumer reads what they sent."""

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from kafka_jvm import KAFKA_JVM
from playhead.errors import ConfigInvalid, Fenced, PlayheadError, Rejected, TimedOut, Unreachable
from playhead.kafka import bulk
from playhead.kafka.bulk import BulkProducer, ColumnProducer, open_bulk
from playhead.kafka.c_library import is_available
from playhead.kafka.groups import Committed, list_committed, list_decided
from playhead.kafka.markers import Marker
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import topic_ends
from playhead.model import Deadline, TopicPartition


@pytest.fixture(params=[ColumnProducer, BulkProducer])
def kind(request):
    return request.param


@pytest.fixture
def producer(kind, settings_of, unique) -> Iterator[BulkProducer]:
    with kind(settings_of, unique("bulk"), Deadline(60)) as opened:
        yield opened


@pytest.fixture
def read(lab):
    """(partition, offset, key, value) of the committed records."""

    def records(topic):
        return [(one.partition, one.offset, one.key, one.value) for one in KAFKA_JVM.read(lab.bootstrap_servers, topic)]

    return records


def test_columns_arrive_in_order_each_where_it_belongs(producer, new_topic, read):
    topic = new_topic(3)
    values = pa.array([b"a", None, b"", b"\x00\xff" * 40, b"e", b"f"], pa.binary())
    keys = pa.array([b"k", b"", None, b"k\x00", b"l", None], pa.binary())
    producer.begin()
    producer.send(topic, values, keys, np.array([0, 2, 2, 0, 0, 2]))
    producer.send(topic, pa.array([b"g", b"h"]), None, 2)
    producer.commit()
    assert sorted(read(topic)) == [
        (0, 0, b"k", b"a"),
        (0, 1, b"k\x00", b"\x00\xff" * 40),
        (0, 2, b"l", b"e"),
        (2, 0, b"", None),
        (2, 1, None, b""),
        (2, 2, None, b"f"),
        (2, 3, None, b"g"),
        (2, 4, None, b"h"),
    ]
    assert producer.ranges(topic) == {0: (0, 2), 2: (0, 4)}


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_a_slice_of_a_column_is_only_that_slice(producer, new_topic, read, type_):
    topic = new_topic(1)
    whole = pa.array([b"no", b"no", b"yes", None, b"and", b"no"], type_)
    producer.begin()
    producer.send(topic, whole.slice(2, 3), whole.slice(1, 3), 0)
    producer.send(topic, whole.slice(2, 0), None, 0)
    producer.commit()
    assert [(key, value) for _, _, key, value in read(topic)] == [(b"no", b"yes"), (b"yes", None), (None, b"and")]


def test_a_column_of_nothing_but_empty_values_has_no_nulls(producer, new_topic, read):
    topic = new_topic(1)
    producer.begin()
    producer.send(topic, pa.array([b"", b""]), None, 0)
    producer.commit()
    assert [value for *_, value in read(topic)] == [b"", b""]


def test_more_records_than_the_queue_holds_arrive_once_and_in_order(producer, new_topic, read):
    topic, count = new_topic(2), 260_000
    producer.begin()
    values = pa.array([b"%d" % number for number in range(count)])
    producer.send(topic, values, None, np.arange(count) % 2)
    producer.commit()
    found = read(topic)
    for partition in (0, 1):
        assert [int(value) for at, _, _, value in found if at == partition] == list(range(partition, count, 2))
    assert producer.ranges(topic) == {0: (0, count // 2 - 1), 1: (0, count // 2 - 1)}


def test_headers_reach_the_topic(producer, new_topic, lab):
    topic = new_topic(1)
    producer.begin()
    producer.send(topic, pa.array([b"a", b"b"]), None, 0, [[("x", b"1"), ("x", None), ("é", b"")], []])
    producer.produce(topic, b"key", None, partition=0, headers=[("h", b"v")], timestamp_ms=1_700_000_000_000)
    producer.commit()
    shown = lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *["--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "3"],
        *["--formatter-property", "print.headers=true", "--formatter-property", "print.timestamp=true"],
        *["--timeout-ms", "20000"],
    ).splitlines()
    assert [line.split("\t", 1)[1] for line in shown] == ["x:1,x:null,é:\ta", "NO_HEADERS\tb", "h:v\tnull"]
    assert shown[2].startswith("CreateTime:1700000000000\t")
    assert producer.ranges(topic)[0] in ((0, 1), (0, 2))


def test_headers_and_timestamps_stay_with_their_records_however_many_there_are(producer, new_topic, lab):
    topic, count = new_topic(2), 3_000
    its = [[(f"h{at}", str(number).encode()) for at in range(number % 3)] for number in range(count)]
    moments = np.array([1_700_000_000_000 + number if number % 2 else 0 for number in range(count)])
    values, keys = (pa.array([b"%s%d" % (sign, number) for number in range(count)]) for sign in (b"v", b"k"))
    producer.begin()
    producer.send(topic, values, keys, np.arange(count) % 2, its, moments)
    producer.commit()
    assert producer.ranges(topic) == {0: (0, count // 2 - 1), 1: (0, count // 2 - 1)}

    def committed():
        records = KAFKA_JVM.read(lab.bootstrap_servers, topic)
        return {one.value: one for one in records} if len(records) == count else None

    found = Deadline(60).wait_for(
        committed, "all records"
    )  # a broker writes its markers after it has answered the commit
    for number in range(count):
        one = found[b"v%d" % number]
        assert (one.key, one.partition, one.offset) == (b"k%d" % number, number % 2, number // 2)
        assert (one.timestamp_ms == moments[number]) if number % 2 else (one.timestamp_ms > 1_750_000_000_000)
    shown = lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *["--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning", "--timeout-ms", "20000"],
        *["--max-messages", str(count), "--formatter-property", "print.headers=true"],
    ).splitlines()
    told = {value: headers for headers, value in (line.split("\t") for line in shown)}
    assert told == {
        f"v{number}": ",".join(f"h{at}:{number}" for at in range(number % 3)) or "NO_HEADERS" for number in range(count)
    }


def test_what_is_aborted_is_not_seen_and_the_next_transaction_is(producer, new_topic, read):
    topic = new_topic(1)
    for round_ in range(4):
        producer.begin()
        producer.send(topic, pa.array([b"%d gone" % round_] * 60_000), None, 0)  # some of them are in flight
        producer.abort()
        producer.begin()
        producer.send(topic, pa.array([b"kept"]), None, 0)
        producer.commit()
        (*_, (_, offset, _, value)) = found = read(topic)
        assert (value, len(found)) == (b"kept", round_ + 1)
        assert producer.ranges(topic) == {0: (offset, offset)}


def test_an_error_in_the_block_aborts(kind, settings_of, unique, new_topic, read, admin, deadline):
    topic = new_topic(1)
    with (
        pytest.raises(ZeroDivisionError),
        kind(settings_of, unique("bulk"), Deadline(60)) as producer,
    ):
        producer.begin()
        producer.send(topic, pa.array([b"x"] * 1000), None, 0)
        producer.flush()
        raise ZeroDivisionError
    assert read(topic) == []
    assert topic_ends(admin, topic, [0], deadline)[0].high > 1000  # the records and the marker of their end


def test_a_fenced_producer_commits_nothing_and_says_so(kind, settings_of, unique, new_topic, read):
    topic, name = new_topic(1), unique("bulk")
    with kind(settings_of, name, Deadline(60)) as old:
        old.begin()
        old.send(topic, pa.array([b"old"]), None, 0)
        old.flush()
        with kind(settings_of, name, Deadline(60)) as new:
            new.begin()
            new.send(topic, pa.array([b"new"]), None, 0)
            new.commit()
        with pytest.raises(Fenced):
            for _ in range(50):
                old.send(topic, pa.array([b"late"] * 100), None, 0)
                old.flush()
            old.commit()
    assert [value for *_, value in read(topic)] == [b"new"]


def test_a_record_above_the_limit_of_the_client_or_the_topic_is_an_error(kind, settings_of, unique, new_topic, read):
    topic = new_topic(1, max_message_bytes="2000")
    for size in (2_000_000, 10_000):
        with kind(settings_of, unique("bulk"), Deadline(60)) as producer:
            producer.begin()
            with pytest.raises(Rejected, match=r"(?i)large"):
                producer.send(topic, pa.array([b"ok", bytes(np.arange(size) % 251)]), None, 0)
                producer.flush()
            producer.abort()
    assert read(topic) == []


def test_an_unknown_partition_is_an_error(kind, settings_of, unique, new_topic):
    topic = new_topic(1)
    with kind(settings_of, unique("bulk"), Deadline(20)) as producer:
        producer.begin()
        producer.send(topic, pa.array([b"a"]), None, 0)
        with pytest.raises(PlayheadError, match=r"(?i)partition"):
            producer.send(topic, pa.array([b"b"]), None, 7)
            producer.flush()


def test_a_missing_topic_is_an_error(kind, settings_of, unique):
    with kind(settings_of, unique("bulk"), Deadline(40)) as producer:
        producer.begin()
        with pytest.raises(PlayheadError, match=r"(?i)topic"):
            producer.send(unique("nowhere"), pa.array([b"b"]), None, 0)
            producer.flush()


def test_offsets_of_a_group_are_committed_with_the_records_or_not_at_all(producer, new_topic, unique, admin, deadline):
    topic, group = new_topic(2), unique("group")
    place = TopicPartition(topic, 1)
    producer.begin()
    producer.send(topic, pa.array([b"a"]), None, 0)
    producer.send_offsets(group, {place: Committed(7, "é note")})
    producer.abort()
    assert list_committed(admin, group, deadline) == {}
    producer.begin()
    producer.send(topic, pa.array([b"a"]), None, 0)
    producer.send_offsets(group, {place: Committed(8, "é note"), TopicPartition(topic, 0): Committed(1)})
    producer.commit()
    found = list_decided(admin, group, [place, TopicPartition(topic, 0)], deadline)
    assert {tp: (one.offset, one.metadata) for tp, one in found.items()} == {
        place: (8, "é note"),
        TopicPartition(topic, 0): (1, ""),
    }


def test_offsets_of_any_number_of_partitions_are_committed(producer, new_topic, unique, admin, deadline):
    topic, group = new_topic(12), unique("group")
    offsets = {TopicPartition(topic, at): Committed(100 + at, f"note {at}" * at) for at in range(12)}
    producer.begin()
    producer.send(topic, pa.array([b"a"]), None, 0)
    producer.send_offsets(group, offsets)
    producer.commit()
    found = list_decided(admin, group, list(offsets), deadline)
    assert {tp: (one.offset, one.metadata) for tp, one in found.items()} == {
        tp: (one.offset, one.metadata) for tp, one in offsets.items()
    }


def test_a_marker_is_written_by_either(producer, new_topic, unique, admin, deadline):
    marker = Marker(unique("group"), TopicPartition(new_topic(), 0))
    producer.begin()
    marker.write(producer, "half")
    producer.commit()
    assert marker.read(admin, deadline) == "half"


def test_a_setting_that_librdkafka_refuses_is_named(kind):
    settings = ClientSettings({"bootstrap.servers": "127.0.0.1:1"}, producer={"compression.type": "brotli"})
    with pytest.raises(ConfigInvalid, match="brotli"):
        kind(settings, "t", Deadline(5))


def test_no_broker_is_unreachable_or_late(kind):
    with pytest.raises((TimedOut, Unreachable)):
        kind(ClientSettings({"bootstrap.servers": "127.0.0.1:1"}), "t", Deadline(2))


def test_a_broker_that_stops_answering_is_noticed_at_the_deadline(kind, make_lab):
    from playhead.kafka.client import Admin
    from playhead.kafka.topics import create_topic
    from playhead.lab import LabOptions

    lab = make_lab(LabOptions(workers=0, postgres=False))
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    with Admin(settings, Deadline(30)) as admin:
        create_topic(admin, "frozen", 1, Deadline(30))
    with kind(settings, "frozen", Deadline(60)) as producer:
        producer.begin(Deadline(6))
        producer.send("frozen", pa.array([b"a"]), None, 0)
        producer.flush()
        lab.pause("broker-1")
        try:
            with pytest.raises(PlayheadError, match="not delivered"):
                producer.send("frozen", pa.array([b"b"] * 1000), None, 0)
                producer.flush()
        finally:
            lab.resume("broker-1")


def test_closing_a_producer_ends_its_threads(settings_of, unique):
    def count() -> int:
        from pathlib import Path

        return sum((one / "comm").read_text().startswith("rdk:") for one in Path("/proc/self/task").iterdir())

    before, python = count(), threading.active_count()
    for _ in range(3):
        with ColumnProducer(settings_of, unique("bulk"), Deadline(60)):
            assert count() > before
    assert (count(), threading.active_count()) == (before, python)


def test_columns_are_used_where_librdkafka_can_be_reached(monkeypatch, settings_of, unique):
    assert is_available()
    with open_bulk(settings_of, unique("bulk"), Deadline(60)) as producer:
        assert isinstance(producer, ColumnProducer)
    monkeypatch.setattr(bulk, "is_available", lambda: False)
    with open_bulk(settings_of, unique("bulk"), Deadline(60)) as producer:
        assert type(producer) is BulkProducer
