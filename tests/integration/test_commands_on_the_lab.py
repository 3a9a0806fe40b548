"""The commands there are, on the real worker and broker."""

import csv
import io
import json
import re
import shlex

import pytest
from ruamel.yaml import YAML

from playhead.connect.answers import OffsetEntry
from playhead.demo.positions import CONNECTOR, TOPIC
from playhead.kafka.client import make_producer
from playhead.kafka.transactions import TransactionalProducer


@pytest.fixture
def file_source(rest, new_topic, unique, tmp_path, deadline):
    """A file source that has read three lines, deleted afterwards."""
    name = unique("files")
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\nc\n")
    rest.create_connector(name, {"connector.class": "FileStreamSource", "file": str(path), "topic": new_topic()})
    wanted = [OffsetEntry({"filename": str(path)}, {"position": 6})]
    deadline.wait_for(lambda: rest.get_offsets(name) == wanted, "the file being read")
    yield name, path
    rest.delete_connector(name)


def test_connectors_are_listed_in_every_format(playhead, lab, file_source, unique):
    name, _path = file_source
    there = ["connectors", "list", "--connect", lab.connect_urls[0]]
    table = playhead(*there).exits(0).out
    assert table.splitlines()[0].split() == ["CONNECTOR", "TYPE", "ENGINE", "STATE", "TASKS"]
    assert [name, "source", "connect", "running", "1"] in [line.split() for line in table.splitlines()]
    assert "FileStreamSource" in playhead(*there, "-o", "wide").exits(0).out
    assert name in playhead(*there, "-o", "name").exits(0).out.split()
    [row] = [row for row in json.loads(playhead(*there, "-o", "json").exits(0).out) if row["name"] == name]
    assert (row["state"], row["tasks"], row["trace"]) == ("running", 1, None)
    assert row in YAML(typ="safe").load(playhead(*there, "-o", "yaml").exits(0).out)
    listed = list(csv.DictReader(io.StringIO(playhead(*there, "-o", "csv").exits(0).out)))
    assert name in [line["name"] for line in listed]


def test_a_failed_task_is_not_called_running(playhead, lab, rest, new_topic, unique, tmp_path, deadline):
    """A sink of a topic whose records it cannot read."""
    name, topic = unique("sink"), new_topic()
    producer = make_producer_for(lab)
    producer.produce(topic, b"{not json")
    producer.flush(10)
    config = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out"), "topics": topic}
    rest.create_connector(name, config)

    def failed():
        shown = json.loads(
            playhead("connectors", "show", name, "--connect", lab.connect_urls[0], "-o", "json").exits(0).out
        )
        return shown if "failed" in shown["state"] else None

    shown = deadline.wait_for(failed, "the task failing")
    assert shown["state"] == "running, 1 of 1 tasks failed"
    assert "DataException" in shown["trace"]
    rest.delete_connector(name)


def make_producer_for(lab):
    from playhead.kafka.properties import ClientSettings

    return make_producer(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}))


def test_an_unknown_connector_is_answered_with_the_nearest_name(playhead, lab, file_source):
    name, _path = file_source
    ran = playhead("connectors", "show", name + "x", "--connect", lab.connect_urls[0]).exits(1)
    assert f"did you mean {name}" in ran.err
    assert ran.out == ""


def test_connector_names_are_completed_live(playhead, lab, file_source):
    name, _path = file_source
    env = {
        "_PLAYHEAD_COMPLETE": "bash_complete",
        "COMP_WORDS": f"playhead connectors show {name[:8]}",
        "COMP_CWORD": "3",
        "PLAYHEAD_CONNECT": lab.connect_urls[0],
    }
    assert f"plain,{name}" in playhead(env=env).exits(0).out.split()
    env["PLAYHEAD_CONNECT"] = "http://127.0.0.1:1"
    assert playhead(env=env).exits(0).out.split() == []


def test_offsets_are_listed_with_their_kafka_partition_and_past(playhead, lab, rest, file_source, deadline):
    name, path = file_source
    there = ["--worker-config", str(lab.worker_config), "-o", "json"]
    [row] = json.loads(playhead("offsets", "list", name, *there).exits(0).out)
    dump = lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *["--bootstrap-server", lab.bootstrap_servers, "--topic", "connect-offsets", "--from-beginning"],
        *["--timeout-ms", "2500", "--formatter-property", "print.key=true"],
        *["--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true"],
    )
    [*_, newest] = [line.split("\t") for line in dump.splitlines() if f'["{name}",' in line]
    assert newest[:2] == [f"Partition:{row['kafka_partition']}", f"Offset:{row['kafka_offset']}"]
    assert row["offset"] == json.loads(newest[3]) == {"position": 6}
    assert row["partition"] == {"filename": str(path)}

    rest.stop(name)
    deadline.wait_for(lambda: not rest.list_tasks(name), "the task going")
    rest.delete_offsets(name)
    assert json.loads(playhead("offsets", "list", name, *there).exits(0).out) == []
    past = [row["offset"] for row in json.loads(playhead("offsets", "history", name, *there).exits(0).out)]
    assert past[-2:] == [{"position": 6}, None]


def test_offsets_need_to_know_the_worker_and_say_so(playhead, lab):
    assert "--worker-config" in playhead("offsets", "list", "-b", lab.bootstrap_servers).exits(2).err


def test_connect_offsets_exports_what_the_worker_itself_shows(playhead, lab, rest, file_source):
    name, _path = file_source
    words = ["--config", str(lab.worker_config), "--connectors", name]
    shown = json.loads(playhead(*words, program="connect-offsets").exits(0).out)
    entries = [{"partition": entry.partition, "offset": entry.offset} for entry in rest.get_offsets(name)]
    assert shown == {name: entries}


def test_connect_offsets_prints_every_pair_in_log_order_and_removals(
    playhead, lab, rest, file_source, deadline, tmp_path
):
    name, path = file_source
    rest.stop(name)
    deadline.wait_for(lambda: not rest.list_tasks(name), "the task going")
    rest.alter_offsets(name, [OffsetEntry({"filename": str(path)}, {"position": 2})])
    rest.delete_offsets(name)
    words = ["--config", str(lab.worker_config), f"--connectors={name}"]
    assert json.loads(playhead(*words, program="connect-offsets").exits(0).out) == {}
    target = tmp_path / "out.json"
    playhead(*words, "--from-beginning", "--export", str(target), program="connect-offsets").exits(0)
    history = [pair["offset"] for pair in json.loads(target.read_text())[name]]
    assert history[-2:] == [{"position": 2}, None]
    assert {"position": 6} in history


def test_connect_offsets_leaves_foreign_keys_out_and_says_so(playhead, lab, settings_of, deadline, unique):
    with TransactionalProducer(settings_of, unique("tx"), deadline) as producer, producer.transaction():
        producer.produce("connect-offsets", b"not a key", b"{}")
        producer.produce("connect-offsets", b'["bad-value",{"a":1}]', b'{"nested":{"x":1}}')
    ran = playhead("--config", str(lab.worker_config), program="connect-offsets").exits(0)
    assert "key that is not Connect's" in ran.err
    assert "bad-value" in ran.err
    assert "bad-value" not in json.loads(ran.out)


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.timeout(1900)
def test_the_demo_counts_every_row_once_though_its_runs_are_killed(playhead, lab, times):
    for _ in range(times):
        story = playhead("demo", "--dir", str(lab.folder), "--rows", "20000", seconds=900).exits(0).out
        assert "kafka-console-consumer shows: alpha bravo charlie charlie delta" in story
        assert "playhead lab down --dir" in story
        assert story.count("kill -9") == 2
        for table in ("login", "purchase"):
            assert f"demo_{table}: psql counts 21000 rows; kafka-console-consumer shows 21000 of them once" in story
        assert "The file is back; no other file was touched." in story
        (lost,) = re.findall(r"8\. Take the row with id (\d+) out of", story)
        audit = story.partition("8. Take the row")[2]
        assert re.search(rf"missing +demo_lake +{lost} +1 .* delivered and gone +(run \d+|a replay)", audit), audit
        assert "audited again: clean" in audit
        assert f"The row with id {lost} is back." in audit
        assert "of them once in demo-orders-p2" in story
        assert story.count("Nothing lost, nothing duplicated.") == 5
    shown = lab.tool(
        "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", lab.bootstrap_servers, "--topic", TOPIC
    )
    assert shown.startswith(f"{TOPIC}:0:")
    [last] = [line for line in story.splitlines() if line.startswith("The lab is still running. Try: ")]
    words = shlex.split(last.partition("Try: ")[2])[1:]
    assert "--ledger" not in words
    assert {CONNECTOR, "demo_lake", "demo_copies"} <= set(playhead(*words, "-o", "name").exits(0).out.split())
    assert "demo_lake" in playhead("runs", "list", "-o", "name", *words[2:]).exits(0).out.split()


def test_info_names_the_release_of_broker_and_worker(playhead, lab):
    ran = playhead("info", "-b", lab.bootstrap_servers, "--connect", lab.connect_urls[0], "-o", "json").exits(0)
    found = {row["part"]: row["version"] for row in json.loads(ran.out)}
    assert found["broker 1"] == "4.3"
    assert found["worker"] == "4.3.1"
    assert found["java"] and found["spark"] == "4.0.2"
