"""A topic of a thousand partitions: what is shown of it does not take a request for every partition."""

import json

from confluent_kafka import Producer

from playhead.kafka.groups import Committed, commit
from playhead.model import TopicPartition

MANY = 1000
START = 1_700_000_000_000


def test_a_topic_and_a_group_of_a_thousand_partitions_are_shown_whole(
    lab, admin, new_topic, unique, deadline, playhead
):
    topic, group = new_topic(MANY), unique("group")
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for partition in range(MANY):
        for seconds in (0, 5):
            producer.produce(topic, b"x" * 100, partition=partition, timestamp=START + partition + seconds * 1000)
    assert producer.flush(30) == 0
    commit(admin, group, {TopicPartition(topic, number): Committed(0) for number in range(MANY)}, deadline)

    shown = playhead("topics", "show", topic, "-o", "json", "-b", lab.bootstrap_servers).exits(0)
    found = json.loads(shown.out)
    assert (found["first"], found["newest"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:25.999Z")
    assert [(one["begin"], one["end"]) for one in found["partitions"]] == [(0, 2)] * MANY
    assert found["size_bytes"]

    lag = playhead("groups", "show", group, "-o", "json", "-b", lab.bootstrap_servers).exits(0)
    assert [(one["lag"], one["lag_seconds"]) for one in json.loads(lag.out)["partitions"]] == [(2, 5.0)] * MANY
