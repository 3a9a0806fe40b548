"""What a sink infers a schema from: the first JSON objects of all partitions of a step, read from a real broker."""

import pytest

pytest.importorskip("pyarrow")
from playhead.kafka.client import make_producer
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.model.ranges import OffsetRange
from playhead.pipeline.deliver.topics import SAMPLE, TopicLogs


@pytest.fixture
def sampled(settings_of, new_topic, deadline):
    """The sample of a topic with these values, a list for each partition."""

    def sample(*partitions):
        topic = new_topic(len(partitions))
        producer = make_producer(settings_of)
        for partition, values in enumerate(partitions):
            for value in values:
                producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0
        spans = [OffsetRange(topic, "id", place, 0, len(values)) for place, values in enumerate(partitions)]
        with ReconnectingAdmin(settings_of) as admin:
            return TopicLogs(admin).sample(spans, deadline).column("value").to_pylist()

    return sample


def test_a_tombstone_or_a_bad_record_in_the_first_partition_hides_nothing(sampled):
    objects = [b'{"id":%d}' % n for n in range(20)]
    assert sampled([None, b"poison", b"5"], objects) == objects


def test_each_partition_has_its_share_of_objects(sampled):
    share = SAMPLE // 2
    assert (
        sampled([b"{}"] * (share + 9), [None] * 9 + [b' {"b":1}'] * (share + 9))
        == [b"{}"] * share + [b' {"b":1}'] * share
    )


def test_where_there_is_no_object_there_is_no_sample(sampled):
    assert sampled([None], [b"[1]"]) == []


def test_headers_are_part_of_it(settings_of, new_topic, deadline):
    topic, producer = new_topic(1), make_producer(settings_of)
    producer.produce(topic, b'{"a":1}', partition=0, headers=[("h", b"1"), ("none", None)])
    producer.produce(topic, b'{"a":2}', partition=0)
    assert producer.flush(30) == 0
    with ReconnectingAdmin(settings_of) as admin:
        found = TopicLogs(admin).sample([OffsetRange(topic, "id", 0, 0, 2)], deadline).column("headers").to_pylist()
    assert found == [[{"key": "h", "value": b"1"}, {"key": "none", "value": None}], []]
