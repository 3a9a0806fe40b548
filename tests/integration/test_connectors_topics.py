"""Connectors whose topics do not exist: a worker accepts them and shows them as running, while nothing flows."""

import json
import shlex
import socket
from dataclasses import replace

import pytest

from contract.workers import consumed
from integration.connector_cluster import SINK, SOURCE, Cluster, cluster  # noqa: F401
from playhead.config import open_context
from playhead.connectors.plan.check import Severity
from playhead.connectors.plan.make import plan_connectors
from playhead.lab import LabOptions
from playhead.model import Deadline, Result
from playhead.model.connector import ConnectorSpec, WantedState

CREATION = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}


def where(cluster):
    return ("--connect", cluster.url, "-b", cluster.lab.bootstrap_servers)


def lines(cluster, name, topic, **more):
    """A source with a record to write."""
    file = cluster.folder / f"{name}.txt"
    file.write_text("a\n")
    return ConnectorSpec(name, {"connector.class": SOURCE, "file": str(file), "topic": topic} | more)


def sink(cluster, name, topic, **more):
    config = {"connector.class": SINK, "file": str(cluster.folder / f"{name}.out"), "topics": topic}
    return ConnectorSpec(name, config | more)


def findings(plan):
    return [(finding.level, finding.key) for row in plan.rows for finding in row.findings]


def topics(lab):
    """By Kafka's own tool."""
    words = ("--bootstrap-server", lab.bootstrap_servers, "--list")
    return lab.tool("org.apache.kafka.tools.TopicCommand", *words).split()


def test_a_connector_whose_topic_nobody_creates_is_refused_and_runs_once_the_topic_is_there(cluster, playhead):
    name, reader, topic = cluster.name("lines"), cluster.name("reader"), cluster.unique("nobody")
    path = cluster.file(lines(cluster, name, topic), sink(cluster, reader, topic))
    ran = playhead("connectors", "plan", "-f", path, *where(cluster))
    ran.exits(2)
    assert f"! error: topic: the topic '{topic}' does not exist, and the brokers do not create it" in ran.out
    assert f"! error: topics: the topic '{topic}' does not exist" in ran.out
    assert "2 create; 2 cannot be applied" in ran.err
    checked = playhead("connectors", "validate", "-f", path, *where(cluster)).exits(1)
    assert checked.out.count(f"the topic '{topic}' does not exist") == 2
    refused = playhead("connectors", "apply", "-f", path, *where(cluster), "--execute", "-o", "json").exits(4)
    assert [row["result"] for row in json.loads(refused.out)] == ["refused", "refused"]
    assert (cluster.config(name), cluster.config(reader)) == (None, None)

    command = ran.out.split("create it: ")[1].split(";")[0]
    playhead(*shlex.split(command)[1:]).exits(0)
    assert topic in topics(cluster.lab)
    playhead("connectors", "apply", "-f", path, *where(cluster), "--execute", "--settle", "400ms").exits(0)
    assert consumed(cluster.lab, topic, 1) == ["a"]


def test_a_missing_topic_is_allowed_by_a_flag_and_the_state_says_so(cluster, playhead):
    name, topic = cluster.name("idle"), cluster.unique("nobody")
    path = cluster.file(sink(cluster, name, topic))
    words = ("-f", path, *where(cluster), "--allow-missing-topics")
    assert "! warning: topics: the topic" in playhead("connectors", "plan", *words).exits(1).out
    applied = playhead("connectors", "apply", *words, "--execute", "--settle", "400ms", "-o", "json").exits(0)
    [row] = json.loads(applied.out)
    assert (row["result"], row["state"]) == ("changed", f"running, but topic {topic} does not exist")
    assert cluster.state(name) == ("RUNNING", 1)
    # Without the flag the same connector does not count as running, although nothing would be sent.
    again = playhead("connectors", "apply", *words[:-1], "--execute", "--settle", "400ms", "-o", "json").exits(1)
    [row] = json.loads(again.out)
    assert (row["action"], row["result"]) == ("same", "failed")
    assert row["state"] == f"running, but topic {topic} does not exist"
    assert playhead("connectors", "plan", *words[:-1]).code == 1
    playhead("connectors", "plan", *words).exits(0)


def test_who_creates_a_topic_decides(cluster):
    fed, topic, missing = cluster.name("fed"), cluster.unique("made"), cluster.unique("nobody")
    source = lines(cluster, cluster.name("makes"), topic, **CREATION)
    plan = cluster.plan(source, sink(cluster, fed, topic))
    assert findings(plan) == [(Severity.NOTE, "topics")]  # the source creates it
    asleep = replace(lines(cluster, cluster.name("asleep"), missing), state=WantedState.STOPPED)
    assert findings(cluster.plan(asleep)) == [(Severity.WARNING, "topic")]
    pattern = ConnectorSpec(cluster.name("any"), {"connector.class": SINK, "topics.regex": f"{missing}.*", "file": "x"})
    assert findings(cluster.plan(pattern)) == [(Severity.WARNING, "topics.regex")]
    queue = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": missing}
    existing = cluster.topic(cluster.unique("there"))
    dead = sink(cluster, cluster.name("dead"), existing, **queue)
    assert findings(cluster.plan(dead)) == [(Severity.ERROR, "errors.deadletterqueue.topic.name")]
    one_copy = {"errors.deadletterqueue.topic.replication.factor": "1"}
    assert findings(cluster.plan(replace(dead, config=dead.config | one_copy))) == []
    assert cluster.results(source) == [Result.CHANGED]
    assert consumed(cluster.lab, topic, 1) == ["a"]


def test_topics_that_could_not_be_checked_are_named_with_the_reason(cluster, playhead):
    spec = sink(cluster, cluster.name("unasked"), cluster.unique("nobody"))
    ran = playhead("connectors", "plan", "-f", cluster.file(spec), "--connect", cluster.url).exits(1)
    assert f"note: the topics of {spec.name} were not checked: no Kafka broker is named" in ran.err
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{probe.getsockname()[1]}"
    away = open_context(None, {"connect": cluster.url, "bootstrap-servers": closed})
    plan = plan_connectors(away, [spec], Deadline(20))
    assert findings(plan) == []
    [note] = plan.notes
    assert f"the topics of {spec.name} were not checked" in note and "nothing listens there" in note
    other = ConnectorSpec(
        cluster.name("mock"), {"connector.class": "org.apache.kafka.connect.tools.MockSourceConnector"}
    )
    assert cluster.plan(other).notes == (f"the topics of {other.name} were not checked: the config does not name them",)


@pytest.fixture(scope="module")
def generous(make_lab):
    """Its broker creates topics; its worker does not."""
    options = LabOptions(
        postgres=False,
        broker_overrides={"auto.create.topics.enable": "true"},
        worker_overrides={"topic.creation.enable": "false"},
    )
    return make_lab(options)


def test_brokers_that_create_topics_make_it_a_warning_and_no_check_creates_one(generous, tmp_path, unique, cluster):
    there = Cluster(generous, tmp_path, unique)
    topic = unique("auto")
    source = lines(there, there.name("lines"), topic, **CREATION)
    reader = sink(there, there.name("reader"), topic)
    plan = there.plan(source, reader)
    assert findings(plan) == [(Severity.WARNING, "topic"), (Severity.WARNING, "topics")]
    strict = sink(there, unique("strict"), topic, **{"consumer.override.allow.auto.create.topics": "false"})
    assert findings(there.plan(strict)) == [(Severity.ERROR, "topics")]
    assert topic not in topics(generous)
    assert there.results(source, reader) == [Result.CHANGED, Result.CHANGED]
    assert consumed(generous, topic, 1) == ["a"]
    # The brokers of one cluster say nothing about the workers of another.
    mixed = open_context(None, {"connect": there.url, "bootstrap-servers": cluster.lab.bootstrap_servers})
    [note] = plan_connectors(mixed, [reader], Deadline(20)).notes
    assert "the workers use the Kafka cluster" in note
