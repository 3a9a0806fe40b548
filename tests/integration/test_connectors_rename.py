"""A connector gets another name and keeps its position. The oracle is the worker, by plain HTTP, and Kafka's own tools."""

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from contract.workers import ask, consumed, path_of
from integration.connector_cluster import SINK, cluster  # noqa: F401
from integration.connector_life import TEXT, produce
from integration.groups import described
from integration.test_connectors_undo import KILLER, offsets_of
from playhead.model import Result, TopicPartition
from playhead.model.connector import ConnectorSpec

QUICK = ("--settle", "300ms")


@pytest.fixture
def there(cluster):
    return ("--connect", cluster.url, "--worker-config", str(cluster.lab.worker_config))


@pytest.fixture
def source(cluster, new_topic, deadline):
    """A file source that has read three lines."""
    name = cluster.name("w_ok")
    (cluster.folder / f"{name}.txt").write_text("a\nb\nc\n")
    spec = cluster.source(name, topic=new_topic())
    assert cluster.results(spec) == [Result.CHANGED]
    deadline.wait_for(lambda: offsets_of(cluster, name), "the file being read")
    return spec


def continues(cluster, spec, *lines):
    """The topic of the source has every line once, also one that is written now."""
    with (cluster.folder / f"{spec.name}.txt").open("a") as file:
        file.write("last\n")
    assert consumed(cluster.lab, spec.config["topic"], len(lines) + 1) == [*lines, "last"]


def test_a_name_that_was_changed_in_the_file_is_recognised(cluster, there, playhead, source):
    new = f"{source.name}_v2"
    file = cluster.file(replace(source, name=new, config={**source.config, "batch.size": "9"}))
    planned = playhead("connectors", "plan", "-f", file, *there).exits(1)
    assert f"create  {new}" in planned.out
    assert f"looks like {source.name} under a new name" in planned.out
    assert f"playhead connectors rename {source.name} {new}" in planned.out
    pruned = playhead("connectors", "plan", "-f", file, *there, "--prune", "--scope", f"{source.name}*").exits(1)
    assert f"delete  {source.name}  running  renamed to {new} in the files" in pruned.out
    other = cluster.file(replace(source, name=new, config={**source.config, "topic": cluster.topic(f"{new}-another")}))
    assert "under a new name" not in playhead("connectors", "plan", "-f", other, *there).exits(1).out


def test_a_source_continues_under_its_new_name(cluster, there, playhead, source):
    new = cluster.name("w_ok_v2")
    offsets = offsets_of(cluster, source.name)
    dry = playhead("connectors", "rename", source.name, new, *there).exits(0)
    assert f"stop {source.name} (it is running), read its 1 offset(s)" in dry.out and "dry run" in dry.err
    assert (cluster.state(source.name), cluster.config(new)) == (("RUNNING", 1), None)
    done = playhead("connectors", "rename", source.name, new, *QUICK, *there, "--execute").exits(0)
    assert f"continues from 1 offset(s) of {source.name}" in done.out
    assert (cluster.config(source.name), cluster.state(new)) == (None, ("RUNNING", 1))
    assert cluster.config(new) == {**source.config, "name": new}
    assert offsets_of(cluster, new) == offsets
    continues(cluster, source, "a", "b", "c")
    gone = playhead("connectors", "rename", source.name, new, *there, "--execute").exits(1)
    assert f"connector {source.name!r} does not exist" in gone.err
    undone = playhead("connectors", "undo", *there).exits(4)
    assert f"playhead connectors rename {new} {source.name}" in undone.err


def test_a_sink_continues_in_the_group_of_its_new_name(cluster, there, playhead, new_topic, deadline):
    old, new, topic, out = cluster.name("sink"), cluster.name("sink_v2"), new_topic(), cluster.folder / "out.txt"
    produce(cluster.lab, topic, b"1", b"2", b"3")
    config = {"connector.class": SINK, "topics": topic, "file": str(out), "value.converter": TEXT}
    cluster.apply(ConnectorSpec(old, config))
    deadline.wait_for(lambda: out.exists() and out.read_text() == "1\n2\n3\n", "the sink's file")
    playhead("connectors", "rename", old, new, *QUICK, *there, "--execute").exits(0)
    produce(cluster.lab, topic, b"4")
    deadline.wait_for(lambda: out.read_text().endswith("4\n"), "the fourth line")
    assert out.read_text() == "1\n2\n3\n4\n"
    place = (f"connect-{new}", TopicPartition(topic, 0))
    deadline.wait_for(lambda: described(cluster.lab, f"connect-{new}")[place] == 4, "the commit of the fourth", every=1)


@pytest.mark.parametrize(
    "function", ["stop", "create_connector", "alter_offsets", "resume", "delete_connector", "finish"]
)
def test_a_rename_that_was_killed_is_continued_by_the_same_command(cluster, there, playhead, source, function):
    new = cluster.name(f"killed_{function}")
    words = ["connectors", "rename", source.name, new, *QUICK, *there, "--execute"]
    killed = subprocess.run([sys.executable, "-c", KILLER, function, "1", *words], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [cluster.state(source.name), cluster.state(new)].count(("RUNNING", 1)) <= 1
    again = playhead(*words).exits(0)
    assert "continues a rename that was interrupted" in again.err
    assert (cluster.config(source.name), cluster.state(new)) == (None, ("RUNNING", 1))
    continues(cluster, source, "a", "b", "c")


def test_if_its_offsets_cannot_be_carried_the_old_one_runs_on(cluster, there, playhead, source, deadline):
    """The file source refuses offsets if it has no file."""
    new = cluster.name("refuses")
    file = cluster.file(ConnectorSpec(new, {key: value for key, value in source.config.items() if key != "file"}))
    failed = playhead("connectors", "rename", source.name, new, "-f", file, *QUICK, *there, "--execute").exits(1)
    assert f"the offsets of {source.name} cannot be carried" in failed.out
    assert cluster.config(new) is None
    deadline.wait_for(lambda: cluster.state(source.name) == ("RUNNING", 1), "the old one running")
    continues(cluster, source, "a", "b", "c")


def test_a_name_that_is_taken_is_refused(cluster, there, playhead, source):
    other = cluster.source(cluster.name("other"))
    cluster.apply(other)
    refused = playhead("connectors", "rename", source.name, other.name, *there, "--execute").exits(4)
    assert f"a connector {other.name} exists already" in refused.err
    assert (cluster.state(source.name), cluster.state(other.name)) == (("RUNNING", 1), ("RUNNING", 1))
    assert ask(f"{cluster.url}{path_of(other.name)}/config")[1]["file"] == other.config["file"]
