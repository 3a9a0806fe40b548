"""The small admin calls, each checked with Kafka's own tools."""

import pytest
from confluent_kafka import Consumer

from playhead.errors import AlreadyExists, NotFound, Refused
from playhead.kafka.groups import Committed, commit, delete_groups, get_group, list_committed, list_groups
from playhead.kafka.topics import create_topic, delete_topic, get_topic, list_topics, topic_ends
from playhead.model import TopicPartition

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def test_a_commit_for_an_idle_group_is_what_kafka_shows(admin, deadline, new_topic, unique, lab):
    group, topic = unique("group"), new_topic(partitions=2)
    wanted = {TopicPartition(topic, 0): Committed(0), TopicPartition(topic, 1): Committed(0)}
    assert commit(admin, group, wanted, deadline) == dict.fromkeys(wanted)
    assert list_committed(admin, group, deadline) == wanted
    table = lab.tool(GROUP_COMMAND, "--bootstrap-server", lab.bootstrap_servers, "--describe", "--group", group)
    rows = [line.split()[:4] for line in table.splitlines() if line.startswith(group)]
    assert sorted(rows) == [[group, topic, "0", "0"], [group, topic, "1", "0"]]
    assert (group, "empty") in [(g.name, g.state) for g in list_groups(admin, deadline)]
    delete_groups(admin, [group], deadline)
    assert group not in lab.tool(GROUP_COMMAND, "--bootstrap-server", lab.bootstrap_servers, "--list").split()


def test_a_partition_that_does_not_exist_gets_its_own_fault(admin, deadline, new_topic, unique):
    group, topic = unique("group"), new_topic()
    wanted = {TopicPartition(topic, 0): Committed(0), TopicPartition(topic, 7): Committed(0)}
    verdicts = commit(admin, group, wanted, deadline)
    assert verdicts[TopicPartition(topic, 0)] is None
    assert verdicts[TopicPartition(topic, 7)] is not None


def test_a_group_with_members_is_described_and_not_deleted(admin, deadline, new_topic, unique, lab):
    group, topic = unique("group"), new_topic()
    consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": group, "client.id": "member-7"})
    consumer.subscribe([topic])
    try:

        def joined():
            consumer.poll(0.1)
            found = get_group(admin, group, deadline)
            return found if found.state == "stable" else None

        described = deadline.wait_for(joined, "the member joining")
        assert [(m.client_id, m.partitions) for m in described.members] == [("member-7", (TopicPartition(topic, 0),))]
        with pytest.raises(Refused):
            delete_groups(admin, [group], deadline)
    finally:
        consumer.close()


def test_an_unknown_group_is_dead_and_has_no_offsets(admin, deadline, unique):
    name = unique("nobody")
    assert get_group(admin, name, deadline).state == "dead"
    assert list_committed(admin, name, deadline) == {}


def test_topics_are_made_looked_up_and_deleted(admin, deadline, unique, lab):
    name = unique("made")
    create_topic(admin, name, 3, deadline, config={"retention.ms": "60000"})
    with pytest.raises(AlreadyExists):
        create_topic(admin, name, 3, deadline)
    deadline.wait_for(lambda: name in list_topics(admin, deadline), "the topic")
    found = get_topic(admin, name, deadline)
    assert [partition.id for partition in found.partitions] == [0, 1, 2]
    shown = lab.tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--describe",
        "--topic",
        name,
    )
    assert "PartitionCount: 3" in shown and "retention.ms=60000" in shown
    assert f"TopicId: {found.id}" in shown
    assert {ends.high for ends in topic_ends(admin, name, range(3), deadline).values()} == {0}
    delete_topic(admin, name, deadline)
    deadline.wait_for(lambda: name not in list_topics(admin, deadline), "the topic going")
    with pytest.raises(NotFound):
        get_topic(admin, name, deadline)
