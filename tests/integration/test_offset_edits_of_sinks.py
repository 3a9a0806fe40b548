"""Edits of a sink connector's position: its consumer group, by Kafka's own tools and by the sink that reads again."""

import json

from confluent_kafka import Consumer

from integration.file_source import TEXT, there  # noqa: F401
from integration.groups import described
from playhead.connect.answers import OffsetEntry
from playhead.kafka.client import make_producer
from playhead.kafka.topics import delete_topic, list_topics
from playhead.model import TopicPartition as Place


def test_a_sink_is_moved_by_its_own_name_and_its_overriding_group(
    playhead, lab, rest, new_topic, unique, tmp_path, there, deadline
):
    topic, name, group = new_topic(), unique("sink"), unique("own-group")
    producer = make_producer_for(lab)
    for n in range(5):
        producer.produce(topic, f"r{n}".encode())
    assert producer.flush(10) == 0
    out = tmp_path / "out.txt"
    config = {
        "connector.class": "FileStreamSink",
        "file": str(out),
        "topics": topic,
        "consumer.override.group.id": group,
    }
    rest.create_connector(name, config | {"value.converter": TEXT, "key.converter": TEXT})
    deadline.wait_for(lambda: out.exists() and len(out.read_text().split()) == 5, "the sink reading")
    end = [OffsetEntry({"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": 5})]
    deadline.wait_for(lambda: rest.get_offsets(name) == end, "the sink committing")
    ran = playhead("offsets", "reset", name, "--shift-by", "-2", "--stop", "--execute", "-o", "json", *there).exits(0)
    assert json.loads(ran.out)[0]["after"] == {"kafka_offset": 3}
    deadline.wait_for(lambda: len(out.read_text().split()) == 7, "the sink reading again")
    assert out.read_text().split()[5:] == ["r3", "r4"]
    listed = lab.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--list",
    )
    assert group in listed.split()
    assert f"connect-{name}" not in listed.split()
    rest.delete_connector(name)


def test_a_zombie_in_the_group_of_a_sink_is_waited_for_and_then_named(
    playhead, lab, rest, new_topic, unique, tmp_path, there, deadline
):
    """A member that did not go with its connector: the worker asks to try again, until the time is up."""
    topic, name = new_topic(), unique("sink")
    config = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out"), "topics": topic}
    rest.create_connector(name, config, initial_state="STOPPED")
    deadline.wait_for(lambda: (s := rest.find_status(name)) and s.connector.state == "STOPPED", "stopping")
    zombie = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": f"connect-{name}"})
    zombie.subscribe([topic])
    deadline.wait_for(lambda: zombie.poll(0.1) is None and zombie.assignment(), "the zombie joining")
    words = ["offsets", "set", name, "kafka_offset=0", "--partition", f"kafka_topic={topic},kafka_partition=0"]
    ran = playhead(*words, "--execute", "--timeout", "6s", *there).exits(1)
    assert "tasks have not stopped completely yet" in ran.out
    zombie.close()
    assert rest.get_offsets(name) == []
    playhead(*words, "--execute", *there).exits(0)
    assert rest.get_offsets(name) == [OffsetEntry({"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": 0})]
    rest.delete_connector(name)


def test_the_position_of_a_sink_never_goes_into_the_offsets_topic(
    playhead, lab, rest, new_topic, unique, tmp_path, there
):
    topic, name, new = new_topic(), unique("sink"), unique("renamed")
    config = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out"), "topics": topic}
    rest.create_connector(name, config, initial_state="STOPPED")
    place = ["--partition", f"kafka_topic={topic},kafka_partition=0"]
    playhead("offsets", "set", name, "kafka_offset=0", *place, "--execute", *there).exits(0)
    assert (
        "consumer group"
        in playhead("offsets", "set", name, "kafka_offset=0", *place, "--via", "topic", *there).exits(2).err
    )
    ran = playhead("offsets", "copy", name, new, "--execute", *there).exits(0)
    assert "store: groups://" in ran.err
    [row] = json.loads(playhead("offsets", "list", f"group:connect-{new}", "-o", "json", *there).exits(0).out)
    assert (row["owner"], row["offset"]) == (f"group:connect-{new}", {"kafka_offset": 0})
    saved = tmp_path / "group.json"
    playhead("offsets", "export", f"group:connect-{new}", "--file", str(saved), *there).exits(0)
    assert "nothing to change" in playhead("offsets", "import", str(saved), *there).exits(0).err
    gone = playhead(
        "offsets", "set", name, "kafka_offset=0", "--partition", "kafka_topic=nosuch,kafka_partition=0", *there
    )
    assert "there is no topic nosuch" in gone.exits(2).err
    past = playhead("offsets", "set", name, "kafka_offset=99", "-o", "json", *there).exits(0)
    assert "outside the log 0..0" in json.loads(past.out)[0]["note"]
    rest.delete_connector(name)


def test_a_half_failed_edit_reports_each_partition_and_undo_restores_those_that_changed(
    playhead, lab, rest, new_topic, unique, tmp_path, deadline, admin
):
    """One of three topics is gone: the worker deletes one position, sets one, and answers that all of it failed."""
    first, second, gone, name = new_topic(), new_topic(), new_topic(), unique("sink")
    config = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out"), "topics": f"{first},{second},{gone}"}
    rest.create_connector(name, config, initial_state="STOPPED")
    deadline.wait_for(lambda: (s := rest.find_status(name)) and s.connector.state == "STOPPED", "stopping")
    rest.alter_offsets(name, [kafka_offset(topic, 0) for topic in (first, second)])
    group = f"connect-{name}"
    usual = {(group, Place(first, 0)): 0, (group, Place(second, 0)): 0}
    assert described(lab, group) == usual
    delete_topic(admin, gone, deadline)
    deadline.wait_for(lambda: gone not in list_topics(admin, deadline), f"deleting {gone}")
    wanted = [kafka_offset(first, None), kafka_offset(second, 7), kafka_offset(gone, 3)]
    file = tmp_path / "wanted.json"
    file.write_text(json.dumps({name: [{"partition": e.partition, "offset": e.offset} for e in wanted]}))
    workers = ("--connect", lab.connect_urls[0])
    ran = playhead("offsets", "import", str(file), "--execute", "--timeout", "60s", "-o", "json", *workers).exits(1)
    results = {row["partition"]["kafka_topic"]: row["result"] for row in json.loads(ran.out)}
    assert results == {first: "changed", second: "changed", gone: "failed"}
    assert described(lab, group) == {(group, Place(second, 0)): 7}
    playhead("offsets", "undo", "--execute", *workers).exits(0)
    assert described(lab, group) == usual
    rest.delete_connector(name)


def kafka_offset(topic, offset):
    place = {"kafka_topic": topic, "kafka_partition": 0}
    return OffsetEntry(place, None if offset is None else {"kafka_offset": offset})


def make_producer_for(lab):
    from playhead.kafka.properties import ClientSettings

    return make_producer(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}))
