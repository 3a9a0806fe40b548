"""The group of a Spark-run sink, with real members beside it: a Connect task, Kafka's own tool, processes that are killed."""

import signal
import subprocess
import sys
import threading
import time
from typing import cast

import pytest

from integration.file_source import TEXT
from integration.groups import described, fill, kafka_groups
from playhead.errors import Fenced, Invalid, NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.groups import Committed, get_group, list_committed
from playhead.kafka.member import Member
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.lab import LabOptions
from playhead.model import Deadline, TopicPartition
from playhead.offsets.published import Mark
from playhead.pipeline.deliver import group
from playhead.pipeline.deliver.group import SinkGroup, group_settings

MARK = Mark("lab", 4)
SHORT = {"consumer.override.session.timeout.ms": "6000"}
DRIVER = """
import sys
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline
from playhead.pipeline.deliver.group import SinkGroup, group_settings
servers, name, topic = sys.argv[1:]
config = {"consumer.override.session.timeout.ms": "6000"}
settings = group_settings(name, config, {}, ClientSettings({"bootstrap.servers": servers}))
with SinkGroup(settings, [topic]) as group:
    group.join(Deadline(60))
    print("joined", flush=True)
    for line in sys.stdin:
        word, seconds = line.split()
        try:
            getattr(group, word)(Deadline(float(seconds)))
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        else:
            print("well", flush=True)
"""


@pytest.fixture
def driver(lab):
    """A run in a process of its own that obeys: one line is one call."""
    made = []

    def start(name, topic, servers=None):
        command = [sys.executable, "-c", DRIVER, servers or lab.bootstrap_servers, name, topic]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        made.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        return process

    yield start
    for process in made:
        with process:
            process.kill()


def settings_for(settings_of, name, **config):
    return group_settings(name, {key.replace("_", "."): value for key, value in config.items()}, {}, settings_of)


def fill_now(settings_of, topic, partition, count):
    fill(settings_of, topic, partition, [int(time.time() * 1000)] * count)


def is_member(admin, group_id, prefix):
    return any(m.client_id.startswith(prefix) for m in get_group(admin, group_id, Deadline(20)).members)


def test_kafkas_own_tool_shows_the_published_lag_while_the_run_is_on(lab, settings_of, new_topic, unique, deadline):
    topic, name = new_topic(3), unique("sink")
    fill_now(settings_of, topic, 0, 10)
    fill_now(settings_of, topic, 1, 5)
    settings = settings_for(settings_of, name)
    first, second, third = (TopicPartition(topic, n) for n in range(3))
    with SinkGroup(settings, [topic]) as group:
        assert group.join(deadline) == {first, second, third}
        assert group.read(deadline) == {}
        group.publish({first: 4, second: 5, third: 0}, MARK, deadline)
        published = {tp: Committed(offset, "playhead/lab/4") for tp, offset in {first: 4, second: 5, third: 0}.items()}
        assert group.read(deadline) == published
        table = kafka_groups(lab, "--describe", "--group", f"connect-{name}").splitlines()
        rows = [line.split() for line in table if line.startswith("connect-")]
        assert [(row[2], row[3], row[5]) for row in sorted(rows)] == [("0", "4", "6"), ("1", "5", "0"), ("2", "0", "0")]
        assert all(row[-1].startswith("playhead-run-") for row in rows)
        group.confirm(deadline)
        assert group.check(deadline) == frozenset()
        group.publish({first: 10}, Mark("lab", 5), deadline)
    with Admin(settings.client, deadline) as admin:
        assert list_committed(admin, settings.group_id, deadline)[first] == Committed(10, "playhead/lab/5")
    assert described(lab, f"connect-{name}")[f"connect-{name}", first] == 10
    with pytest.raises(RuntimeError):
        group.check(deadline)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_connect_task_waits_for_the_open_step_and_then_begins_behind_it(
    admin, rest, settings_of, new_topic, unique, tmp_path, deadline, protocol
):
    topic, name, group_id = new_topic(2), unique("sink"), unique("own-group")
    fill_now(settings_of, topic, 0, 10)
    out = tmp_path / "out.txt"
    config = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic}
    config |= {"value.converter": TEXT, "key.converter": TEXT, "consumer.override.group.id": group_id}
    config["consumer.override.group.protocol"] = protocol
    place = TopicPartition(topic, 0)
    with SinkGroup(group_settings(name, config, {}, settings_of), [topic]) as group:
        group.join(deadline)
        group.publish({place: 4}, MARK, deadline)
        rest.create_connector(name, config)
        deadline.wait_for(lambda: is_member(admin, group_id, f"connector-consumer-{name}"), "the task joining")
        step_ends = time.monotonic() + 7  # two heartbeats of both: a member that can get a partition has it by now
        while time.monotonic() < step_ends:
            [task] = [m for m in get_group(admin, group_id, deadline).members if m.client_id.startswith("connector")]
            assert task.partitions == ()
            time.sleep(0.2)
        assert not out.exists() or out.read_text() == ""
        group.confirm(deadline)  # the step may still be committed,
        group.publish({place: 7}, MARK, deadline)  # and shown
        with pytest.raises(Fenced, match=f"connector-consumer-{name}-0 at 127.0.0.1 joined it") as caught:
            group.check(deadline)
        assert caught.value.exit_code == 4
        deadline.wait_for(lambda: out.exists() and out.read_text().count("\n") == 3, "the task reading")
    assert out.read_text().split("\n") == ["record 7", "record 8", "record 9", ""]
    assert not is_member(admin, group_id, "playhead-run-")
    rest.delete_connector(name)


def test_a_run_is_refused_while_a_connect_task_is_in_the_group(
    admin, rest, settings_of, new_topic, unique, tmp_path, deadline
):
    topic, name = new_topic(), unique("sink")
    config = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out"), "topics": topic}
    rest.create_connector(name, config)
    deadline.wait_for(lambda: is_member(admin, f"connect-{name}", "connector-consumer"), "the task joining")
    with (
        SinkGroup(settings_for(settings_of, name), [topic]) as group,
        pytest.raises(Refused, match=f"connect-{name} has a member: connector-consumer-{name}-0 at 127.0.0.1"),
    ):
        group.join(deadline)
    assert len(get_group(admin, f"connect-{name}", deadline).members) == 1
    rest.delete_connector(name)


def test_a_killed_run_keeps_its_seat_for_its_session_and_the_next_one_waits_for_that(
    admin, settings_of, new_topic, unique, deadline, driver
):
    topic, name = new_topic(2), unique("sink")
    killed = driver(name, topic)
    killed.kill()
    killed.wait(10)
    messages: list[str] = []
    with SinkGroup(group_settings(name, SHORT, {}, settings_of), [topic]) as group:
        assert len(group.join(deadline, messages.append)) == 2
        group.publish({TopicPartition(topic, 0): 0}, MARK, deadline)
    assert len(messages) == 1
    assert "waiting for its session to end" in messages[0]


def test_of_two_runs_the_second_is_refused_and_the_first_goes_on(settings_of, new_topic, unique, deadline, driver):
    topic, name = new_topic(), unique("sink")
    first = driver(name, topic)
    with (
        SinkGroup(group_settings(name, SHORT, {}, settings_of), [topic]) as second,
        pytest.raises(Refused, match=f"has a member: playhead-run-.*-{first.pid}-[0-9a-f]+ at 127.0.0.1"),
    ):
        second.join(deadline)
    assert asked(first, "check") == "well"


def test_a_driver_that_slept_through_its_session_is_refused_before_it_commits(
    admin, settings_of, new_topic, unique, deadline, driver
):
    topic, name = new_topic(), unique("sink")
    sleeper = driver(name, topic)
    assert asked(sleeper, "confirm") == "well"
    sleeper.send_signal(signal.SIGSTOP)
    deadline.wait_for(lambda: not get_group(admin, f"connect-{name}", deadline).members, "its session ending")
    with SinkGroup(group_settings(name, SHORT, {}, settings_of), [topic]) as successor:
        successor.join(deadline)
        sleeper.send_signal(signal.SIGCONT)
        assert asked(sleeper, "confirm").startswith("SeatLost")
        assert successor.check(deadline) == frozenset()


def test_a_step_longer_than_the_poll_interval_has_lost_the_group(admin, settings_of, new_topic, unique, deadline):
    topic, name = new_topic(), unique("sink")
    config = SHORT | {"consumer.override.max.poll.interval.ms": "6000"}
    settings = group_settings(name, config, {}, settings_of)
    assert settings.step_seconds == 3
    with SinkGroup(settings, [topic]) as group:
        group.join(deadline)
        assert 0 < group.seconds_left <= 6
        deadline.wait_for(lambda: group.seconds_left <= 0, "the time passing")
        with pytest.raises(Fenced, match=r"open for longer than its max.poll.interval.ms, 6 s"):
            group.confirm(deadline)
    assert not is_member(admin, f"connect-{name}", "playhead-run-")


def test_a_run_outlives_its_coordinator(make_lab, unique, driver):
    """Questions that a dead broker leaves open once aborted the whole process when it came back."""
    own = make_lab(LabOptions(workers=0, postgres=False))
    topic, name, settings_of = "orders", unique("sink"), ClientSettings({"bootstrap.servers": own.bootstrap_servers})
    with Admin(settings_of, Deadline(60)) as admin:
        create_topic(admin, topic, 2, Deadline(60))
    run = driver(name, topic, own.bootstrap_servers)
    own.kill("broker-1")
    for _ in range(3):
        assert asked(run, "confirm", 2).split()[0] in ("TimedOut", "Unreachable")
    own.start("broker-1", seconds=120)
    said = asked(run, "check", 60)  # whether the seat was lost depends on how long the broker was away
    assert said == "well" or said.startswith("SeatLost this run left"), said
    run.stdin.close()
    assert run.wait(60) == 0
    with SinkGroup(group_settings(name, SHORT, {}, settings_of), [topic]) as group:
        group.join(Deadline(60))
        group.publish({TopicPartition(topic, 0): 0}, MARK, Deadline(60))
    own.down()


def test_new_partitions_and_topics_are_reported_and_the_run_goes_on(
    lab, admin, settings_of, new_topic, unique, deadline
):
    topic, other, name = new_topic(1), new_topic(2), unique("sink")
    with SinkGroup(settings_for(settings_of, name), [topic]) as group:
        group.join(deadline)
        lab.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", lab.bootstrap_servers, "--alter", "--topic", topic, "--partitions", "3"),
        )
        new = deadline.wait_for(lambda: group.check(deadline), "the group learning of it")
        assert new == {TopicPartition(topic, 1), TopicPartition(topic, 2)}
        assert group.subscribe([topic, other], deadline) == {TopicPartition(other, 0), TopicPartition(other, 1)}
        assert len(group.partitions) == 5
        group.publish(dict.fromkeys(group.partitions, 0), MARK, deadline)
        assert group.check(deadline) == frozenset()


def test_a_topic_that_is_not_there_is_named(settings_of, unique, deadline):
    name = unique("sink")
    with (
        SinkGroup(settings_for(settings_of, name), ["no-such-topic"]) as group,
        pytest.raises(NotFound, match="no-such"),
    ):
        group.join(deadline)


def test_a_thousand_partitions_are_joined_and_published_in_seconds(settings_of, new_topic, unique, deadline):
    topic, name = new_topic(1000), unique("sink")
    with SinkGroup(settings_for(settings_of, name), [topic]) as group:
        assert len(group.join(deadline)) == 1000
        started = time.monotonic()
        group.publish(dict.fromkeys(group.partitions, 0), MARK, deadline)
        group.check(deadline)
        assert time.monotonic() - started < 10
        assert len(group.read(deadline)) == 1000


def test_settings_come_from_the_worker_file_and_the_connectors_overrides():
    base = ClientSettings({"bootstrap.servers": "a:1"}, consumer={"isolation.level": "read_committed"})
    worker = {"consumer.security.protocol": "SSL", "consumer.session.timeout.ms": "20000", "producer.acks": "1"}
    config = {
        "consumer.override.session.timeout.ms": "7000",
        "consumer.override.isolation.level": "read_uncommitted",
        "consumer.override.auto.offset.reset": "latest",
        "consumer.override.group.id": "theirs",
        "consumer.override.fetch.max.wait.ms": "100",
    }
    found = group_settings("sink", config, worker, base)
    assert (found.group_id, found.session_ms, found.max_poll_ms, found.begins_at) == ("theirs", 7000, 600_000, "latest")
    assert found.client.common == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    assert found.client.consumer == {"isolation.level": "read_uncommitted"}
    assert group_settings("sink", {}, {}, base).group_id == "connect-sink"
    assert group_settings("sink", {}, {}, base).begins_at == "earliest"
    with pytest.raises(Invalid, match=r"session\.timeout\.ms='soon'"):
        group_settings("sink", {"consumer.override.session.timeout.ms": "soon"}, {}, base)


def asked(process, word, seconds=60):
    process.stdin.write(f"{word} {seconds}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_client_that_never_ends_its_close_does_not_block_the_run(monkeypatch):
    """As librdkafka does when a commit had no answer (confluentinc/librdkafka#3740)."""
    monkeypatch.setattr(group, "LEAVE_SECONDS", 0.2)
    ended = threading.Event()

    class Stuck:
        def close(self) -> None:
            ended.wait(30)

    started = time.monotonic()
    group._leave(cast(Member, Stuck()))
    assert time.monotonic() - started < 10
    ended.set()

    class Failing:
        def close(self) -> None:
            raise Refused("no")

    with pytest.raises(Refused, match="no"):
        group._leave(cast(Member, Failing()))
