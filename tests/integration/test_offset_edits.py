"""Edits of connector offsets on the real worker: the connector that resumes and Kafka's own consumer say what happened."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from playhead.connect.answers import OffsetEntry
from playhead.connect.rest import Rest
from playhead.kafka.client import make_producer
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.transactions import TransactionalProducer
from playhead.lab import Lab
from playhead.model import Deadline

TEXT = "org.apache.kafka.connect.storage.StringConverter"


@dataclass
class FileSource:
    """A file source on the lab's worker, seen by REST and by Kafka's own consumer."""

    lab: Lab
    rest: Rest
    name: str
    topic: str
    file: Path
    deadline: Deadline

    def at(self, position: int | None) -> None:
        """Waits until the worker shows this position."""
        wanted = [] if position is None else [OffsetEntry({"filename": str(self.file)}, {"position": position})]
        self.deadline.wait_for(lambda: self.rest.get_offsets(self.name) == wanted, f"{self.name} at {position}")

    def state(self) -> str:
        status = self.rest.find_status(self.name)
        return status.connector.state if status else "none"

    def stop(self) -> None:
        self.rest.stop(self.name)
        self.deadline.wait_for(lambda: self.state() == "STOPPED" and not self.rest.list_tasks(self.name), "stopping")

    def records(self) -> list[str]:
        return [value for _, _, value in dump(self.lab, self.topic)]


@pytest.fixture
def source(lab, rest, new_topic, unique, tmp_path, deadline):
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\nc\n")
    made = FileSource(lab, rest, unique("files"), new_topic(), file, deadline)
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": made.topic, "value.converter": TEXT}
    rest.create_connector(made.name, config)
    made.at(6)
    yield made
    rest.delete_connector(made.name)


@pytest.fixture
def there(lab):
    """The flags that lead to the lab: workers, brokers and the worker's own file."""
    return ("--connect", lab.connect_urls[0], "--worker-config", str(lab.worker_config))


def dump(lab, topic="connect-offsets"):
    """Every committed record of a topic, by a plain consumer of the client library: (partition, key, value)."""
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap_servers,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[tuple[int, str, str]] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(10)
        assert message is not None, "the topic does not end"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(cast(int, message.partition()))
        else:
            value = message.value()
            found.append(
                (
                    cast(int, message.partition()),
                    (message.key() or b"").decode(),
                    "NULL" if value is None else value.decode(),
                )
            )
    consumer.close()
    return sorted(found, key=lambda record: record[0])


def test_a_set_position_is_where_the_connector_resumes(playhead, source, there, lab):
    ran = playhead("offsets", "set", source.name, "position=2", "--stop", "--execute", "-o", "json", *there).exits(0)
    [row] = json.loads(ran.out)
    assert (row["before"], row["after"], row["result"]) == ({"position": 6}, {"position": 2}, "changed")
    assert f"{source.name} was running: resumed" in ran.err
    source.at(6)
    assert source.records() == ["a", "b", "c", "b", "c"]
    shown = lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", source.topic, "--from-beginning"),
        *("--max-messages", "5", "--isolation-level", "read_committed"),
    )
    assert shown.split() == source.records()


def test_without_execute_nothing_changes(playhead, source, there, lab):
    before = dump(lab)
    for words in (["set", source.name, "position=2"], ["delete", source.name], ["reset", source.name, "--to-earliest"]):
        ran = playhead("offsets", *words, "--stop", *there).exits(0)
        assert "nothing was changed" in ran.err
    assert source.state() == "RUNNING"
    assert dump(lab) == before
    assert playhead("offsets", "journal", "-o", "json").exits(0).out == "[]\n"


@pytest.mark.parametrize("via", ["rest", "topic"])
@pytest.mark.parametrize("state", ["RUNNING", "PAUSED"])
def test_a_connector_that_is_not_stopped_is_refused(playhead, source, there, lab, via, state):
    if state == "PAUSED":
        source.rest.pause(source.name)
        source.deadline.wait_for(lambda: source.state() == "PAUSED", "pausing")
    before = dump(lab)
    ran = playhead("offsets", "set", source.name, "position=2", "--execute", "--via", via, *there).exits(4)
    assert f"{source.name} is {state} with 1 task(s)" in ran.out
    assert dump(lab) == before


def test_a_paused_connector_is_paused_again_and_a_stopped_one_stays_stopped(playhead, source, there):
    source.rest.pause(source.name)
    source.deadline.wait_for(lambda: source.state() == "PAUSED", "pausing")
    playhead("offsets", "set", source.name, "position=4", "--stop", "--execute", *there).exits(0)
    source.deadline.wait_for(lambda: source.state() == "PAUSED", "pausing again")
    source.stop()
    playhead("offsets", "set", source.name, "position=2", "--stop", "--execute", *there).exits(0)
    assert source.state() == "STOPPED"
    source.at(2)


def test_a_failed_edit_leaves_the_connector_stopped_and_says_so(playhead, source, there, tmp_path):
    """The connector itself refuses a position when its file setting is gone."""
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), "--via", "rest", *there).exits(0)
    spoiled = json.loads(plan.read_text())
    spoiled["changes"][0]["after"] = {"position": -7}
    plan.write_text(json.dumps(spoiled))
    assert "$.offset.position" in playhead("offsets", "apply", str(plan), "--stop", "--execute", *there).exits(2).err
    assert source.state() == "RUNNING"
    spoiled["changes"][0]["after"] = {"position": 2}
    plan.write_text(json.dumps(spoiled))
    source.rest.patch_config(source.name, {"file": None})  # then the connector declines every position
    source.deadline.wait_for(lambda: source.state() in ("RUNNING", "FAILED"), "the new configuration")
    ran = playhead("offsets", "apply", str(plan), "--stop", "--execute", *there).exits(1)
    assert "failed" in ran.out
    assert f"{source.name} was RUNNING and is left STOPPED" in ran.err
    assert source.state() == "STOPPED"
    source.at(6)


def test_forgetting_starts_the_connector_over_and_undo_brings_the_position_back(playhead, source, there):
    source.stop()
    playhead("offsets", "delete", source.name, "--execute", *there).exits(0)
    source.at(None)
    playhead("offsets", "delete", source.name, "--execute", *there).exits(0)  # twice is once
    [entry] = json.loads(playhead("offsets", "journal", "-o", "json").exits(0).out)
    assert entry["outcome"] == "1 changed"
    playhead("offsets", "undo", entry["id"], *there).exits(0)
    source.at(None)
    playhead("offsets", "undo", entry["id"], "--execute", *there).exits(0)
    source.at(6)
    assert playhead("offsets", "undo", entry["id"], "--execute", *there).exits(0).err.count("nothing to undo") == 1
    with source.file.open("a") as file:
        file.write("d\n")
    source.rest.resume(source.name)
    source.at(8)
    assert source.records() == ["a", "b", "c", "d"]


def test_a_direct_edit_keeps_key_bytes_and_partition_and_the_connector_resumes_there(playhead, source, there, lab):
    source.stop()
    playhead("offsets", "set", source.name, "position=4", "--execute", "--via", "topic", *there).exits(0)
    key = f'["{source.name}",{{"filename":"{source.file}"}}]'
    written = [(partition, value) for partition, found, value in dump(lab) if found == key]
    assert written[-1] == (partition_of(key.encode(), 5), '{"position":4}')
    assert len({partition for partition, _ in written}) == 1
    source.at(4)  # the worker sees it without a restart
    source.rest.resume(source.name)
    source.at(6)
    assert source.records() == ["a", "b", "c", "c"]


def test_a_saved_plan_is_what_runs_and_is_refused_when_the_position_moved(playhead, source, there, tmp_path):
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), *there).exits(0)
    source.stop()
    with source.file.open("a") as file:
        file.write("d\n")
    source.rest.resume(source.name)
    source.at(8)
    source.stop()
    ran = playhead("offsets", "apply", str(plan), "--execute", *there).exits(4)
    assert "moved since the plan was made" in ran.out
    source.at(8)


def test_offsets_of_a_deleted_connector_are_seen_copied_and_picked_up(playhead, source, there, unique, rest):
    """REST does not see them; a new connector of that name does."""
    old, new = unique("old"), unique("new")
    playhead("offsets", "copy", source.name, old, "--execute", *there).exits(0)
    [row] = json.loads(playhead("offsets", "list", old, *there, "-o", "json").exits(0).out)
    assert row["offset"] == {"position": 6}
    playhead("offsets", "set", old, "position=4", "--execute", *there).exits(0)
    ran = playhead("offsets", "copy", old, new, "--execute", "-o", "json", *there).exits(0)
    assert json.loads(ran.out)[0]["after"] == {"position": 4}
    config = rest.get_config(source.name) | {"name": new}
    rest.create_connector(new, config)
    source.deadline.wait_for(lambda: source.records().count("c") == 2, "the new connector reading on")
    assert source.records() == ["a", "b", "c", "c"]
    rest.delete_connector(new)


def test_a_copy_can_map_names_inside_the_partition(playhead, source, there, unique):
    new = unique("mapped")
    ran = playhead("offsets", "copy", source.name, new, "--map", f"{source.file}=/other", "-o", "json", *there).exits(0)
    assert json.loads(ran.out)[0]["partition"] == {"filename": "/other"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["position=-1"], "$.offset.position"),
        (["position=3.14"], "not a whole number"),
        (['position="10"'], "not a whole number"),
        (["position=99999999999999999999"], "64 bits"),
        (["position"], "is not NAME=VALUE"),
        (["position=1", "position=2"], "given twice"),
    ],
)
def test_a_value_the_connector_would_choke_on_is_refused_before_anything_is_sent(playhead, source, there, words, said):
    ran = playhead("offsets", "set", source.name, *words, "--execute", *there).exits(2)
    assert said in ran.err
    source.at(6)


def test_an_unknown_owner_is_answered_with_near_names(playhead, source, there):
    ran = playhead("offsets", "set", source.name + "x", "position=1", "--execute", *there).exits(1)
    assert f"did you mean {source.name}" in ran.err


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


def test_an_own_offsets_topic_is_written_in_connects_order(playhead, lab, rest, source, unique, there, deadline):
    own, name = unique("own-offsets"), unique("own")
    config = rest.get_config(source.name) | {"name": name, "offsets.storage.topic": own}
    rest.create_connector(name, config)
    partition = {"filename": str(source.file)}
    deadline.wait_for(lambda: rest.get_offsets(name) == [OffsetEntry(partition, {"position": 6})], "reading the file")
    playhead("offsets", "set", name, "position=2", "--stop", "--execute", "--via", "topic", *there).exits(0)
    key = f'["{name}",{{"filename":"{source.file}"}}]'
    deadline.wait_for(lambda: rest.get_offsets(name) == [OffsetEntry(partition, {"position": 6})], "reading on")
    assert source.records() == ["a", "b", "c"] * 2 + ["b", "c"]
    assert '{"position":2}' in [value for _, found, value in dump(lab, own) if found == key]
    assert '{"position":2}' in [value for _, found, value in dump(lab) if found == key]
    rest.stop(name)
    deadline.wait_for(lambda: not rest.list_tasks(name), "stopping")
    playhead("offsets", "delete", name, "--execute", "--via", "topic", *there).exits(0)
    assert [value for _, found, value in dump(lab, own) if found == key][-1] == "NULL"
    assert [value for _, found, value in dump(lab) if found == key][-1] == "NULL"
    assert rest.get_offsets(name) == []
    rest.delete_connector(name)


def test_a_zombie_of_the_first_task_is_fenced_by_a_direct_edit(playhead, source, there, lab, settings_of):
    source.stop()
    with TransactionalProducer(settings_of, f"lab-{source.name}-0", Deadline(20)) as zombie:
        playhead("offsets", "set", source.name, "position=2", "--execute", "--via", "topic", *there).exits(0)
        with pytest.raises(Exception, match="another producer took over"), zombie.transaction():
            zombie.produce(
                "connect-offsets", f'["{source.name}",{{"filename":"{source.file}"}}]'.encode(), b'{"position":6}'
            )
    source.at(2)


@pytest.mark.parametrize("calls", [40, 400, 900, 1300, 1700, 2200, 2700])
def test_kill_9_at_any_point_leaves_the_old_or_the_new_position_and_undo_knows_which(
    playhead, source, there, tmp_path, calls
):
    source.stop()
    words = ["offsets", "set", source.name, "position=2", "--execute", "--via", "topic", *there]
    killed = subprocess.run([sys.executable, "-c", KILLER, str(calls), *words], capture_output=True, check=False)
    assert killed.returncode in (-signal.SIGKILL, 0)
    [row] = json.loads(playhead("offsets", "list", source.name, *there, "-o", "json").exits(0).out)
    assert row["offset"] in ({"position": 6}, {"position": 2})
    entries = json.loads(playhead("offsets", "journal", "-o", "json").exits(0).out)
    if row["offset"] == {"position": 2}:
        assert len(entries) == 1
    if entries:
        playhead("offsets", "undo", "--execute", *there).exits(0)
    source.at(6)


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


def test_what_an_open_transaction_hides_is_not_written_over(playhead, lab, settings_of, unique, there):
    """Behind it may lie a newer position, which a reader of committed records cannot see yet."""
    owner, holder = unique("orphan"), unique("holder")
    key = f'["{owner}",{{"filename":"/x"}}]'.encode()
    partition = partition_of(key, 5)
    producer = make_producer(settings_of)
    producer.produce("connect-offsets", b'{"position":1}', key, partition)
    assert producer.flush(10) == 0
    with TransactionalProducer(settings_of, holder, Deadline(30)) as open_one:
        open_one._step("beginning", open_one._producer.begin_transaction)
        open_one.produce("connect-offsets", f'["{holder}",{{}}]'.encode(), b'{"n":1}', partition=partition)
        assert open_one._producer.flush(10) == 0
        ran = playhead("offsets", "set", owner, "position=5", "--execute", *there).exits(4)
        assert "has an open transaction" in ran.out
        assert "has an open transaction" in playhead("offsets", "list", owner, *there).exits(0).err
        open_one.abort()
    playhead("offsets", "set", owner, "position=5", "--execute", *there).exits(0)


def test_many_partitions_of_one_connector_change_together(playhead, lab, settings_of, unique, there):
    owner = unique("many")
    producer = make_producer(settings_of)
    for n in range(60):
        producer.produce("connect-offsets", b'{"position":0}', f'["{owner}",{{"filename":"/{n}"}}]'.encode())
    assert producer.flush(10) == 0
    words = [sys.executable, "-m", "playhead", "offsets", "set", owner, "position=1", "--all", "--execute", *there]
    mixtures = []
    with subprocess.Popen(words, stdout=subprocess.PIPE) as edit:
        while edit.poll() is None:
            latest = {key: value for _, key, value in dump(lab) if key.startswith(f'["{owner}"')}
            mixtures.append(len(set(latest.values())))
        assert edit.stdout is not None
        assert edit.stdout.read().count(b"changed") == 60
    assert set(mixtures) == {1}
    assert set({k: v for _, k, v in dump(lab) if k.startswith(f'["{owner}"')}.values()) == {'{"position":1}'}


@pytest.mark.parametrize("calls", [20, 60, 100, 130, 160, 190])
def test_kill_9_leaves_the_old_or_the_new_file(playhead, tmp_path, calls):
    file = tmp_path / "connect.offsets"
    words = [
        "offsets",
        "set",
        "c",
        "--partition",
        "filename=/x",
        "--store",
        f"file:{file}",
        "--execute",
        "--worker-is-down",
    ]
    playhead(*words, "position=1").exits(0)
    old = file.read_bytes()
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, str(calls), *words, "position=2"], capture_output=True, check=False
    )
    assert killed.returncode in (-signal.SIGKILL, 0)
    [row] = json.loads(playhead("offsets", "list", "--store", f"file:{file}", "-o", "json").exits(0).out)
    assert row["offset"] in ({"position": 1}, {"position": 2})
    if row["offset"] == {"position": 2}:
        playhead("offsets", "undo", "--execute", "--worker-is-down").exits(0)
    assert file.read_bytes() == old


def test_without_rest_a_live_worker_is_seen_by_its_group(playhead, source, lab):
    """Whether it runs this connector nobody can say then: refused, and forced only by a word."""
    there = ("--worker-config", str(lab.worker_config))
    ran = playhead("offsets", "set", source.name, "position=2", "--execute", *there).exits(4)
    assert "1 worker(s) of lab are up" in ran.out
    source.at(6)


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


def test_a_slip_does_not_stop_a_connector(playhead, source, there):
    playhead("offsets", "set", source.name, "position=abc", "--stop", "--execute", *there).exits(2)
    ran = playhead(
        "offsets",
        "set",
        source.name,
        "position=1",
        "--partition",
        f"filename={source.file}x",
        "--stop",
        "--execute",
        *there,
    )
    assert "does not exist" in ran.exits(1).err
    assert "resumed" not in ran.err
    assert source.state() == "RUNNING"
    source.at(6)


def test_a_plan_for_another_cluster_is_not_run_with_the_credentials_of_this_one(playhead, source, there, tmp_path):
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), *there).exits(0)
    foreign = json.loads(plan.read_text()) | {"store": "connect+http://127.0.0.1:9"}
    plan.write_text(json.dumps(foreign))
    ran = playhead("offsets", "apply", str(plan), "--execute", *there).exits(4)
    assert "is not a store of this context" in ran.err


def test_a_saved_plan_that_moved_says_so_in_its_dry_run(playhead, source, there, tmp_path):
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), *there).exits(0)
    assert plan.stat().st_mode & 0o777 == 0o600
    changed = json.loads(plan.read_text())
    changed["changes"][0]["before"] = {"position": 5}
    plan.write_text(json.dumps(changed))
    assert "will be refused" in playhead("offsets", "apply", str(plan), *there).exits(0).out


KILLER = """
import os, signal, sys
left = int(sys.argv.pop(1))
def count(frame, event, arg):
    global left
    if event == "call" and "/playhead/" in frame.f_code.co_filename and "/cli/" not in frame.f_code.co_filename:
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(count)
sys.argv[0] = "playhead"
from playhead.__main__ import main
main()
"""


def make_producer_for(lab):
    from playhead.kafka.properties import ClientSettings

    return make_producer(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}))
