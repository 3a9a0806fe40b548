"""`playhead topics` as a user runs it, beside Kafka's own tools."""

import json
import re

import pytest
from confluent_kafka import TopicPartition as RawPartition

from integration.groups import fill, member_of
from playhead import broker
from playhead.config import open_context
from playhead.errors import AlreadyExists, Refused, Unreachable
from playhead.kafka.groups import Committed, commit
from playhead.lab import LabOptions
from playhead.model import Deadline, TopicPartition

TOPICS, LOG_DIRS = "org.apache.kafka.tools.TopicCommand", "org.apache.kafka.tools.LogDirsCommand"
CONFIGS, OFFSETS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.GetOffsetShell"


@pytest.fixture
def topics(playhead, lab):
    return lambda *words: playhead("topics", *words, "-b", lab.bootstrap_servers)


@pytest.fixture
def kafka(lab):
    """What Kafka's own tool answers."""
    return lambda tool, *words: lab.tool(tool, "--bootstrap-server", lab.bootstrap_servers, *words)


def cells(table):
    return [line.split() for line in table.splitlines()]


def described(text):
    """Kafka's description of one topic: partition count, replication factor, configs."""
    found = re.search(r"PartitionCount: (\d+)\s+ReplicationFactor: (\d+)\s+Configs: ?(\S*)", text)
    assert found, text
    configs = dict(one.split("=", 1) for one in found.group(3).split(",") if one)
    configs.pop("min.insync.replicas", None)  # the lab's brokers set it for all topics
    return int(found.group(1)), int(found.group(2)), configs


def test_a_topic_is_made_as_planned_and_only_with_execute(lab, topics, kafka, unique):
    name = unique("made")
    words = ["create", name, "--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=60000"]
    ran = topics(*words).exits(0)
    assert "dry run: nothing was changed (3 planned)" in ran.err
    assert cells(ran.out)[1:] == [
        [name, "partitions", "-", "3"],
        [name, "replication", "factor", "-", "1"],
        [name, "retention.ms", "-", "60000"],
    ]
    assert name not in kafka(TOPICS, "--list").split()
    assert "changed" in topics(*words, "--execute").exits(0).out
    assert described(kafka(TOPICS, "--describe", "--topic", name)) == (3, 1, {"retention.ms": "60000"})
    again = topics(*words, "--execute").exits(0)
    assert "nothing to change" in again.err and again.out == ""
    other = topics("create", name, "--partitions", "2", "--config", "retention.ms=5", "--execute").exits(1)
    assert "partitions 3, not 2; retention.ms 60000, not 5" in other.err and other.err.rstrip().endswith(
        f"playhead topics alter {name} --config retention.ms=5 --bootstrap-server {lab.bootstrap_servers}"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config", "retention.mss=5"], "did you mean retention.ms"),
        (["--config", "retention.ms=soon"], "Not a number"),
        (["--replication-factor", "7"], "only 1 broker(s) are registered"),
    ],
)
def test_the_broker_checks_a_plan_that_is_only_shown(topics, unique, admin, deadline, words, said):
    assert said in topics("create", unique("wrong"), *words).exits(1).err


def test_a_name_kafka_does_not_take_is_said_in_its_words(topics):
    assert "ASCII alphanumerics" in topics("create", "a b", "--execute").exits(1).err


def test_settings_are_changed_and_taken_back_and_partitions_added(topics, kafka, new_topic, unique, admin, deadline):
    name, group = new_topic(partitions=2, cleanup_policy="compact", retention_ms="1000"), unique("reader")
    commit(admin, group, {TopicPartition(name, 0): Committed(0)}, deadline)
    words = ["alter", name, "--partitions", "3", "--config", "segment.ms=70000", "--delete-config", "retention.ms"]
    ran = topics(*words).exits(0)
    assert "about 67% of the keys go to another partition" in ran.err  # 2 of 6 remainders stay
    assert "the topic is compacted" in ran.err and f"latest: {group}" in ran.err
    topics(*words, "--execute").exits(0)
    shape = (3, 1, {"cleanup.policy": "compact", "segment.ms": "70000"})
    assert described(kafka(TOPICS, "--describe", "--topic", name)) == shape
    assert "nothing to change" in topics(*words, "--execute").exits(0).err
    fewer = topics("alter", name, "--partitions", "1", "--execute").exits(4)
    assert "cannot have 1" in fewer.err and "create a topic with fewer partitions" in fewer.err
    typo = topics("alter", name, "--delete-config", "retention.m", "--execute").exits(2)
    assert "did you mean retention.ms" in typo.err
    assert topics("alter", name).exits(2).out == ""


def test_topics_of_kafka_and_connect_are_not_widened_or_deleted_by_accident(topics, lab, kafka):
    topics("alter", "__consumer_offsets", "--partitions", "9", "--execute").exits(4)
    mine = ["--worker-config", str(lab.worker_config)]
    widened = topics("alter", "connect-configs", "--partitions", "2", "--execute", *mine).exits(4)
    assert "the config topic of the Connect cluster" in widened.err
    assert "would be refused" in topics("delete", "connect-status", *mine).exits(0).err
    topics("delete", "connect-status", "__consumer_offsets", "--execute", *mine).exits(4)
    left = kafka(TOPICS, "--describe", "--topic", "connect-configs|connect-status|__consumer_offsets")
    counts = dict(re.findall(r"Topic: (\S+)\s+TopicId: \S+\s+PartitionCount: (\d+)", left))
    assert counts == {"connect-configs": "1", "connect-status": "5", "__consumer_offsets": "1"}


def test_topics_are_listed_and_shown_as_kafkas_tools_see_them(
    topics, kafka, new_topic, settings_of, unique, admin, deadline
):
    name, group = new_topic(partitions=2, retention_ms="-1"), unique("reader")
    start = 1767225600000
    fill(settings_of, name, 0, range(start, start + 120_000, 1000))
    fill(settings_of, name, 1, range(start + 500, start + 30_000, 1000))
    commit(admin, group, {TopicPartition(name, 0): Committed(7)}, deadline)

    ends = {int(line.split(":")[1]): int(line.split(":")[2]) for line in kafka(OFFSETS, "--topic", name).split()}
    log_dirs = json.loads(kafka(LOG_DIRS, "--describe", "--topic-list", name).splitlines()[-1])
    size = sum(p["size"] for b in log_dirs["brokers"] for folder in b["logDirs"] for p in folder["partitions"])

    [row] = json.loads(topics("list", name, "-o", "json").exits(0).out)
    assert (row["partitions"], row["replication_factor"], row["state"]) == (2, 1, "ok")
    assert (row["offsets"], row["size_bytes"], row["disk_bytes"]) == (sum(ends.values()), size, size)
    assert size > 0

    shown = json.loads(topics("describe", name, "-o", "json").exits(0).out)
    assert {p["partition"]: p["end"] for p in shown["partitions"]} == ends
    assert [(p["leader"], p["replicas"], p["in_sync"], p["begin"]) for p in shown["partitions"]] == [
        (1, [1], [1], 0)
    ] * 2
    assert (shown["first"], shown["newest"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:01:59.000Z")
    assert {"name": "retention.ms", "value": "-1", "source": "topic"} in shown["settings"]
    assert [(g["group"], g["committed"], g["reading"]) for g in shown["groups"]] == [(group, 1, 0)]
    assert shown["connectors"] is None  # no Connect URL was given
    settings = kafka(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", name, "--all")
    differing = {s["name"] for s in shown["settings"]}
    ours = {
        line.split("=")[0].strip()
        for line in settings.splitlines()
        if " sensitive=" in line and "DYNAMIC" in line.split("synonyms")[1].split(",")[0]
    }
    assert differing == ours


def test_kafkas_own_topics_are_hidden_patterns_work_and_unknown_names_have_near_ones(topics, new_topic):
    name = new_topic()
    assert "__consumer_offsets" not in topics("list").exits(0).out
    assert "__consumer_offsets" in topics("list", "--internal", "-o", "name").exits(0).out.split()
    assert topics("list", f"{name[:-2]}*", "-o", "name").exits(0).out.split() == [name]
    assert f"did you mean {name}" in topics("show", name + "x").exits(1).err
    assert "does not exist" in topics("list", "no-such-*").exits(1).err


def test_a_topic_that_a_group_reads_is_not_deleted_unless_forced(topics, lab, kafka, unique, new_topic, deadline):
    name, other, group = new_topic(), new_topic(), unique("alive")
    with member_of(lab, group, [name], deadline) as consumer:
        consumer.commit(offsets=[RawPartition(name, 0, 0)], asynchronous=False)
        dry = topics("delete", name).exits(0)
        assert f"in use by group {group} (stable, 1 member(s)): --execute would be refused" in dry.err
        refused = topics("delete", other, name, "--execute").exits(4)
        assert group in refused.err and refused.out == ""
    assert f"group {group} (empty, 0 member(s))" in topics("delete", name, "--execute").exits(0).out
    left = kafka(TOPICS, "--list").split()
    assert name not in left and other in left


def test_connectors_that_use_a_topic_are_named_and_keep_it_until_they_are_stopped(
    playhead, lab, rest, new_topic, unique, tmp_path, deadline
):
    name, connector = new_topic(), unique("sink")
    config = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out"), "topics": f"other, {name}"}
    there = ["-b", lab.bootstrap_servers, "--connect", lab.connect_urls[0]]
    rest.create_connector(connector, config)
    try:
        deadline.wait_for(lambda: (status := rest.find_status(connector)) and status.tasks, "the task")
        shown = json.loads(playhead("topics", "show", name, *there, "-o", "json").exits(0).out)
        [use] = shown["connectors"]
        assert use == {"connector": connector, "type": "sink", "state": "running", "how": "reads it"}
        assert connector in playhead("topics", "delete", name, "--execute", *there).exits(4).err
        rest.stop(connector)
        deadline.wait_for(lambda: rest.get_status(connector).connector.state == "STOPPED", "stopping")
        assert "(sink, stopped)" in playhead("topics", "delete", name, "--execute", *there).exits(0).out
    finally:
        rest.delete_connector(connector)


def test_an_unreachable_connect_is_a_note_and_not_an_empty_list(playhead, lab, new_topic):
    ran = playhead(
        "topics", "show", new_topic(), "-b", lab.bootstrap_servers, "--connect", "http://127.0.0.1:1", "-o", "json"
    )
    assert "which connectors use it is unknown" in ran.exits(0).err
    assert json.loads(ran.out)["connectors"] is None


def test_a_topic_is_not_deleted_while_its_users_are_unknown(playhead, lab, new_topic, kafka):
    name = new_topic()
    words = ("topics", "delete", name, "--execute", "-b", lab.bootstrap_servers, "--connect", "http://127.0.0.1:1")
    ran = playhead(*words).exits(4)
    assert f"whether {name} is in use is unknown: which connectors use it is unknown" in ran.err
    assert name in kafka(TOPICS, "--list").split()
    playhead(*words, "--force").exits(0)
    assert name not in kafka(TOPICS, "--list").split()


def test_the_broker_at_a_python_prompt_keeps_the_same_rules(lab, unique, kafka, settings_of):
    here, name = open_context(None, {"bootstrap-servers": lab.bootstrap_servers}), unique("prompt")
    planned = broker.create_topic(name, partitions=2, config={"retention.ms": -1}, context=here)
    assert "planned only: nothing was changed" in repr(planned)
    assert name not in [row.name for row in broker.show_topics(context=here)]
    done = broker.create_topic(name, partitions=2, config={"retention.ms": -1}, execute=True, context=here)
    assert re.search(rf"{name} +partitions +- +2 +changed", repr(done))
    with pytest.raises(AlreadyExists, match="partitions 2, not 3"):
        broker.create_topic(name, partitions=3, execute=True, context=here)
    fill(settings_of, name, 0, [1767225600000 + n for n in range(30)])
    assert broker.show_topics(name, context=here)[0].offsets == 30
    assert repr(broker.show_topics(name, context=here)).splitlines()[0].startswith("TOPIC")
    found = broker.show_topic(name, context=here)
    assert found.replication_factor == 1 and "PARTITION  LEADER" in repr(found)
    records = broker.show_records(name, last=5, context=here)
    assert [record.value for record in records] == [b"record %d" % n for n in range(25, 30)]
    assert len(repr(records).splitlines()) == 6
    assert len(broker.show_records(name, context=here)) == 10
    with pytest.raises(Refused):
        broker.alter_topic(name, partitions=1, execute=True, context=here)
    broker.delete_topic(name, execute=True, context=here)
    assert name not in kafka(TOPICS, "--list").split()


@pytest.mark.soak
def test_topics_with_lost_replicas_are_marked_as_kafka_marks_them(make_lab, playhead):
    lab = make_lab(LabOptions(brokers=3, workers=0, postgres=False))
    here, deadline = open_context(None, {"bootstrap-servers": lab.bootstrap_servers.split(",")[0]}), Deadline(90)
    for name, partitions, copies, min_isr in (("three", 3, 3, 3), ("two", 1, 3, 2), ("one", 6, 1, 1)):
        config = {"min.insync.replicas": min_isr}
        broker.create_topic(
            name, partitions=partitions, replication_factor=copies, config=config, execute=True, context=here
        )
    lost = [p.partition for p in broker.show_topic("one", context=here).partitions if p.replicas == (3,)]
    lab.kill("broker-3")
    expected = {
        "three": "3 under min ISR, 3 under-replicated",
        "two": "1 under-replicated",
        "one": f"{len(lost)} offline, {len(lost)} under min ISR, {len(lost)} under-replicated",
    }

    impatient = open_context(None, {"bootstrap-servers": lab.bootstrap_servers.split(",")[0], "timeout": "5s"})

    def noticed():
        try:
            return {row.name: row.state for row in broker.show_topics(context=impatient)} == expected
        except Unreachable:  # the client asked the broker that is gone
            return False

    deadline.wait_for(noticed, "the cluster noticing that a broker is gone")
    assert {row.name: row.offsets for row in broker.show_topics(context=here)} == {"three": 0, "two": 0, "one": None}

    def marked(flag):
        lines = lab.tool(TOPICS, "--bootstrap-server", lab.bootstrap_servers, "--describe", flag).splitlines()
        found = [re.search(r"Topic: (\S+)\s+Partition: (\d+)", line) for line in lines]
        return sorted((m.group(1), int(m.group(2))) for m in found if m and not m.group(1).startswith("__"))

    def ours(word):
        shown = [broker.show_topic(name, context=here) for name in expected]
        return sorted((topic.name, p.partition) for topic in shown for p in topic.partitions if word in p.state)

    assert ours("offline") == marked("--unavailable-partitions") == [("one", number) for number in lost]
    assert ours("under min ISR") == marked("--under-min-isr-partitions")
    read = playhead("topics", "records", "one", "-b", lab.bootstrap_servers).exits(0)
    assert f"without a leader, so not read: one-{lost[0]}" in read.err
    for part in (
        "broker-2",
        "broker-1",
    ):  # nothing here is worth an orderly end, which takes long with a broker missing
        lab.kill(part)
