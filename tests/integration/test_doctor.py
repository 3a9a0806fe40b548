"""`offsets doctor` on a whole cluster, healthy and not: real connectors, their groups, and the other stores.

The commands of the findings are run word for word by a shell, with Kafka's own tools on its path.
"""

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as RawPartition

from integration.doctoring import doctor, kinds, log_of, only, produce, run, tools, transaction  # noqa: F401
from playhead.connect.javafile import FileEntry, encode_file
from playhead.connect.rest import Rest
from playhead.kafka.client import Admin
from playhead.kafka.groups import Committed, commit
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, get_topic
from playhead.lab import LabOptions
from playhead.model import Deadline, TopicPartition
from playhead.offsets.doctor import Diagnosis

OFFSETS = "connect-offsets"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def lab(make_lab):
    """One of its own: a healthy cluster must stay one, whatever other tests leave behind."""
    made = make_lab(LabOptions(postgres=False))
    yield made
    made.down()


# The context: a cluster with real connectors


@pytest.fixture(scope="module")
def pipeline(lab, tmp_path_factory):
    """A file source and a file sink that have moved three lines."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "in.txt").write_text("a\nb\nc\n")
    deadline = Deadline(60)
    text = {"value.converter": "org.apache.kafka.connect.storage.StringConverter", "tasks.max": "1"}
    with Admin(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), deadline) as admin:
        create_topic(admin, "lines", 1, deadline)
    with Rest(lab.connect_urls, deadline) as rest:
        rest.create_connector(
            "lines-in", {**text, "connector.class": SOURCE, "file": str(folder / "in.txt"), "topic": "lines"}
        )
        rest.create_connector(
            "lines-out", {**text, "connector.class": SINK, "file": str(folder / "out.txt"), "topics": "lines"}
        )
        out = folder / "out.txt"
        deadline.wait_for(lambda: out.exists() and out.read_text() == "a\nb\nc\n", "the lines")
        deadline.wait_for(lambda: rest.get_offsets("lines-in") and rest.get_offsets("lines-out"), "the offsets")
    return folder


def test_a_healthy_cluster_has_no_finding_by_whatever_way_it_is_asked(lab, pipeline, playhead, doctor):
    done = playhead("offsets", "doctor", "-o", "json", env=lab.environment()).exits(0)
    assert (json.loads(done.out), done.err) == ([], "")
    assert doctor(f"kafka://{lab.bootstrap_servers}/{OFFSETS}?committed=true") == doctor()
    through_rest = doctor(via="rest")
    assert through_rest.findings == () and "read by REST" in through_rest.notes[0]
    assert doctor(f"groups://{lab.bootstrap_servers}").findings == ()


def test_offsets_of_a_deleted_connector_are_found_and_removed(
    lab, pipeline, rest, deadline, unique, doctor, run, produce, log_of
):
    name = unique("gone")
    (pipeline / name).write_text("x\n")
    config = {"connector.class": SOURCE, "file": str(pipeline / name), "topic": "lines", "tasks.max": "1"}
    rest.create_connector(name, config)
    deadline.wait_for(lambda: rest.get_offsets(name), "the offsets")
    assert doctor().findings == ()
    rest.delete_connector(name)
    finding = only(doctor(), "orphan", name)
    assert "1 position(s)" in finding.what and finding.mend == f"playhead offsets delete {name} --all"
    run(finding.mend)
    assert only(doctor(), "orphan", name) == finding  # shown, not done
    run(finding.mend, execute=True)
    assert doctor().findings == ()
    key = json.dumps([name, {"filename": str(pipeline / name)}], separators=(",", ":"))
    assert f"{key} -> None" in log_of(OFFSETS)  # D01: a null, and gone; a later value brings it back
    produce(OFFSETS, key.encode(), b'{"position":2}')
    run(only(doctor(), "orphan", name).mend, execute=True)
    assert doctor().findings == ()


def test_an_orphan_in_two_kafka_partitions_is_removed_by_its_one_command(
    lab, pipeline, unique, doctor, run, produce, log_of
):
    name = unique("gone")
    key = f'["{name}",{{"filename":"x"}}]'
    for number in range(2):
        produce(OFFSETS, key.encode(), b'{"position":%d}' % number, (partition_of(key.encode(), 5) + number) % 5)
    run(only(doctor(), "orphan", name).mend, execute=True)
    assert doctor().findings == ()
    removed = [line for line in log_of(OFFSETS, placed=True) if line.endswith(f": {key} -> None")]
    assert len({line.partition(":")[0] for line in removed}) == 2


def test_what_a_run_on_spark_wrote_is_no_orphan_even_after_a_plain_edit(
    lab, pipeline, doctor, produce, playhead, unique
):
    name, gone = unique("on-spark"), unique("gone")
    for owner in (name, gone):
        produce(OFFSETS, f'["{owner}",{{"table":"x"}}]'.encode(), b'{"incrementing":1}', header="playhead.chunk")
    produce(OFFSETS, f'["{name}",{{"table":"x"}}]'.encode(), b'{"incrementing":2}')
    produce(OFFSETS, f'["{gone}",{{"table":"x"}}]'.encode(), None)
    plain = f'["{gone}",{{"table":"y"}}]'.encode()
    produce(OFFSETS, plain, b'{"incrementing":2}', header="another.header")
    found = doctor()
    only(found, "orphan", gone)
    assert [
        note for note in found.notes if note.startswith(f"{name} is not an orphan: a run on Spark wrote 1 of its 1")
    ]
    listed = json.loads(playhead("offsets", "list", "-o", "json", env=lab.environment()).exits(0).out)
    notes = {row["owner"]: " ".join(row["notes"]) for row in listed if row["owner"] in (name, gone)}
    assert "a run on Spark wrote it, last at " in notes[name] and "an orphan" not in notes[name]
    assert "an orphan: no connector of this name exists" in notes[gone]
    produce(OFFSETS, f'["{name}",{{"table":"x"}}]'.encode(), None)
    produce(OFFSETS, plain, None)
    assert doctor() == Diagnosis(())


def test_without_a_worker_the_config_topic_shows_which_connectors_exist(lab, pipeline, doctor, produce, run, unique):
    name = unique("gone")
    produce(OFFSETS, json.dumps([name, {}]).replace(" ", "").encode(), b'{"n":1}')
    found = doctor(connect="http://127.0.0.1:1")
    run(only(found, "orphan", name).mend, execute=True)
    assert doctor(connect="http://127.0.0.1:1").findings == ()


def test_two_sinks_in_one_group_are_found(lab, pipeline, rest, unique, doctor, run):
    name = unique("zz")
    config = {"connector.class": SINK, "file": str(pipeline / name), "topics": "lines", "tasks.max": "1"}
    rest.create_connector(name, {**config, "consumer.override.group.id": "connect-lines-out"}, "STOPPED")
    try:
        finding = only(doctor(), "shared-group", f"lines-out, {name}")
        run(finding.mend)
        assert rest.get_config(name)["consumer.override.group.id"] == f"connect-{name}"
        assert doctor().findings == ()
    finally:
        rest.delete_connector(name)


def test_a_sink_outside_its_log_is_found_and_put_back(
    lab, pipeline, rest, admin, deadline, unique, new_topic, produce, doctor, run
):
    name, topic = unique("sink"), new_topic(2)
    config = {"connector.class": SINK, "file": str(pipeline / name), "topics": topic, "tasks.max": "1"}
    for number in range(4):
        produce(topic, None, b"%d" % number, 0)
    rest.create_connector(name, config, "STOPPED")
    try:
        wanted = {TopicPartition(topic, 0): Committed(1), TopicPartition(topic, 1): Committed(70)}
        assert set(commit(admin, f"connect-{name}", wanted, deadline).values()) == {None}
        admin.raw.delete_records([RawPartition(topic, 0, 3)])[RawPartition(topic, 0, 3)].result(20)
        found = doctor()
        assert kinds(found) == [("sink-out-of-range", name)] * 2
        assert f"{topic}-0 begins at 3, after the position 1: 2 offset(s) were deleted" in found.findings[0].what
        assert f"{topic}-1 ends at 0, before the position 70" in found.findings[1].what
        by_group = doctor(f"groups://{lab.bootstrap_servers}")
        assert kinds(by_group) == [("sink-out-of-range", f"group:connect-{name}")] * 2
        run(found.findings[0].mend, execute=True)
        assert only(doctor(), "sink-out-of-range", name) == found.findings[1]
        run(by_group.findings[1].mend, execute=True)
        assert doctor().findings == ()
        shown = lab.tool(
            GROUP_COMMAND, "--bootstrap-server", lab.bootstrap_servers, "--describe", "--group", f"connect-{name}"
        )
        rows = [line.split()[1:4] for line in shown.splitlines() if topic in line]
        assert sorted(rows) == [[topic, "0", "3"], [topic, "1", "0"]]
    finally:
        rest.delete_connector(name)


def test_a_commit_of_a_later_epoch_than_the_log_is_a_suspicion(
    lab, admin, deadline, unique, new_topic, produce, doctor, run
):
    group, topic = unique("group"), new_topic()
    for _ in range(3):
        produce(topic, None, b"x")
    uri = f"groups://{lab.bootstrap_servers}"
    assert set(commit(admin, group, {TopicPartition(topic, 0): Committed(2, "", 7)}, deadline).values()) == {None}
    finding = only(doctor(uri), "topic-recreated", f"group:{group}")
    assert "leader epoch 7" in finding.what and "probably" in finding.what
    run(finding.mend, execute=True)
    assert doctor(uri).findings == ()


def test_a_transaction_that_a_task_has_just_begun_is_no_finding(lab, pipeline, transaction, doctor, unique):
    holder = transaction("lab-lines-in-7", OFFSETS, (b'["lines-in",{"filename":"x"}]', b'{"position":2}'))
    found = doctor()
    assert found.findings == ()
    assert [note for note in found.notes if "task 7 of lines-in" in note and "has an open transaction" in note]
    holder.abort_transaction(10)


def test_missing_topics_of_the_worker_are_said_and_never_taken_for_empty(
    lab, pipeline, admin, deadline, tmp_path, unique, doctor, run
):
    """D08: a worker would make them anew without a word."""
    offsets, status = unique("offsets"), unique("status")
    file = worker_file(lab, tmp_path, {"offset.storage.topic": offsets, "status.storage.topic": status})
    found = doctor(worker_config=str(file))
    assert kinds(found) == [("topic-gone", offsets), ("topic-gone", status)]
    for finding in found.findings:
        run(finding.mend)
    deadline.wait_for(lambda: len(get_topic(admin, offsets, deadline).partitions) == 5, "the topic")
    # Now it is there and empty, although a source connector of these workers has sent records.
    finding = only(doctor(worker_config=str(file)), "topic-recreated", offsets)
    assert "lines-in sent records to Kafka" in finding.what


# Other stores


def test_a_damaged_standalone_file_is_found_and_its_copy_put_back(tmp_path, doctor, run):
    path = tmp_path / "connect.offsets"
    path.write_bytes(encode_file([FileEntry(b'["c",{"filename":"x"}]', b'{"position":5}')]))
    uri = f"file:{path}"
    whole = doctor(uri)
    assert whole.findings == () and "the existing connectors are unknown" in whole.notes[0]
    run(f"playhead offsets set c position=6 --store {uri} --worker-is-down --execute")
    data = path.read_bytes()
    path.write_bytes(data[:-7])
    finding = only(doctor(uri), "corrupt-file", str(path))
    assert f"corrupt at byte {len(data) - 7}" in finding.what
    run(finding.mend)
    assert doctor(uri).findings == ()
    path.unlink()
    run(only(doctor(uri), "file-gone", str(path)).mend)
    assert doctor(uri).findings == ()


def test_a_consumer_with_offsets_in_sql_is_compared_with_its_topics(playhead, new_topic, tmp_path, doctor, run, unique):
    """Put there without a broker in sight: with one, a topic that is gone would be refused."""
    topic, gone = new_topic(), unique("gone")
    uri = f"sql+sqlite:///{tmp_path}/offsets.db"
    lines = {"billing": [entry(topic, 0, 40), entry(gone, 0, 3)]}
    (tmp_path / "in.json").write_text(json.dumps(lines))
    playhead("offsets", "import", str(tmp_path / "in.json"), "--store", uri, "--execute").exits(0)
    found = doctor(uri)
    assert sorted(kinds(found)) == [("sink-out-of-range", "billing"), ("topic-gone", "billing")]
    for finding in found.findings:
        run(finding.mend, execute=True)
    assert doctor(uri).findings == ()


def entry(topic: str, partition: int, offset: int) -> dict[str, object]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": {"kafka_offset": offset}}


def worker_file(lab, folder: Path, changes: dict[str, str]) -> Path:
    """The lab's own worker file with some lines changed."""
    lines = [line for line in lab.worker_config.read_text().splitlines() if line.partition("=")[0] not in changes]
    path = folder / "worker.properties"
    path.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in changes.items())]) + "\n")
    return path
