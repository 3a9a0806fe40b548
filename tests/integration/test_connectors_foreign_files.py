"""Connector files of other tools on a real worker: what is applied is what the worker has, and a second plan is empty.

The oracle is the worker itself, asked by the standard library, and Kafka's own consumer.
"""

import json

import pytest

from contract.workers import ask
from integration.connector_cluster import SOURCE, cluster  # noqa: F401
from integration.file_source import TEXT
from integration.ingesting import consumed
from playhead.model import Deadline


def strimzi(name: str, config: dict[str, str]) -> str:
    return f"""\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnector
metadata: {{name: {name}, labels: {{strimzi.io/cluster: lab}}}}
spec:
  class: {SOURCE}
  tasksMax: 1
  autoRestart: {{enabled: true}}
  state: stopped
  config: {json.dumps(config)}
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaTopic
metadata: {{name: {name}-t}}
spec: {{partitions: 1}}
"""


def jikkou(name: str, config: dict[str, str]) -> str:
    return f"""\
apiVersion: kafka.jikkou.io/v1beta1
kind: KafkaConnectorList
items:
- metadata: {{name: {name}, labels: {{kafka.jikkou.io/connect-cluster: lab}}}}
  spec:
    connectorClass: {SOURCE}
    tasksMax: 1
    state: STOPPED
    config: {json.dumps(config)}
"""


def confluent(name: str, config: dict[str, str]) -> str:
    return f"""\
apiVersion: platform.confluent.io/v1beta1
kind: Connector
metadata: {{name: in-kubernetes}}
spec:
  name: {name}
  class: {SOURCE}
  taskMax: 1
  restartPolicy: {{type: OnFailure, maxRetry: 3}}
  configs: {json.dumps(config)}
"""


def kubectl(name: str, config: dict[str, str]) -> str:
    spec = {"class": SOURCE, "tasksMax": 1, "pause": True, "config": config}
    item = {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaConnector", "metadata": {"name": name}, "spec": spec}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [item]})


def plain_map(name: str, config: dict[str, str]) -> str:
    return json.dumps({name: {"connector.class": SOURCE, "tasks.max": 1, **config}})


@pytest.mark.parametrize(
    ("form", "state", "notes"),
    [
        (strimzi, ("STOPPED", 0), ["spec.autoRestart of", "it is no connector: KafkaTopic"]),
        (jikkou, ("STOPPED", 0), []),
        (confluent, ("RUNNING", 1), ["spec.restartPolicy of"]),
        (kubectl, ("PAUSED", 0), []),
        (plain_map, ("RUNNING", 1), []),
    ],
    ids=["strimzi", "jikkou", "confluent", "kubectl", "map"],
)
def test_the_worker_has_what_the_file_of_another_tool_says(cluster, playhead, form, state, notes):
    name = cluster.name("foreign")
    lines = cluster.folder / "lines.txt"
    lines.touch()
    config = {"file": str(lines), "topic": cluster.topic(f"{name}-t"), "batch.size": "10"}
    file = cluster.folder / f"foreign.{'yaml' if form in (strimzi, jikkou, confluent) else 'json'}"
    file.write_text(form(name, config))
    where = ("-f", str(file), "--connect", cluster.url, "--worker-config", str(cluster.lab.worker_config))
    playhead("connectors", "validate", *where).exits(0)
    planned = playhead("connectors", "plan", *where).exits(1)
    said = [line for line in planned.err.splitlines() if line.startswith("note: ")]
    assert len(said) == len(notes)
    assert all(words in line for words, line in zip(notes, said, strict=True))
    assert cluster.config(name) is None
    playhead("connectors", "apply", *where, "--execute", "--settle", "400ms").exits(0)
    assert cluster.config(name) == {"name": name, "connector.class": SOURCE, "tasks.max": "1", **config}
    assert cluster.state(name) == state
    playhead("connectors", "plan", *where).exits(0)


def test_what_a_worker_answers_can_be_applied_again(cluster, playhead):
    """The dump is made with the standard library, and put back after its connectors were deleted."""
    names = [cluster.name("dumped") for _ in range(2)]
    for name, spec in ((name, cluster.source(name)) for name in names):
        body = {"name": name, "config": dict(spec.config), "initial_state": "STOPPED" if name == names[0] else "PAUSED"}
        assert ask(f"{cluster.url}/connectors", "POST", body)[0] == 201
    wanted = {names[0]: ("STOPPED", 0), names[1]: ("PAUSED", 0)}
    Deadline(60).wait_for(lambda: {n: cluster.state(n) for n in names} == wanted, "both connectors")
    code, dump = ask(f"{cluster.url}/connectors?expand=info&expand=status")
    assert code == 200
    file = cluster.folder / "dump.json"
    file.write_text(json.dumps({name: dump[name] for name in names}))
    before = {name: cluster.config(name) for name in names}
    where = ("-f", str(file), "--connect", cluster.url, "--worker-config", str(cluster.lab.worker_config))
    playhead("connectors", "plan", *where).exits(0)
    for name in names:
        assert ask(f"{cluster.url}/connectors/{name}", "DELETE")[0] == 204
    playhead("connectors", "apply", *where, "--execute", "--settle", "400ms").exits(0)
    assert {name: cluster.config(name) for name in names} == before
    assert {name: cluster.state(name) for name in names} == wanted


def test_a_file_of_another_tool_runs_on_spark(lab, playhead, tmp_path, new_topic, unique):
    pytest.importorskip("pyspark")
    name, topic = unique("foreign"), new_topic(partitions=1)
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    config = {"file": str(lines), "topic": topic, "value.converter": TEXT, "key.converter": TEXT}
    file = tmp_path / "strimzi.yaml"
    file.write_text(strimzi(name, config).replace("  state: stopped\n", ""))
    where = ("--worker-config", str(lab.worker_config), "--ledger", f"sqlite:///{tmp_path}/ledger.db")
    ran = playhead("run", str(file), "--engine", "spark", "--once", *where).exits(0)
    assert "note: " in ran.err
    assert "spec.autoRestart" in ran.err
    assert consumed(lab, topic) == ["one", "two"]


@pytest.mark.parametrize("name", ["connectors.toml", "main.tf", "main.tf.json"])
def test_toml_and_terraform_are_refused_by_every_command(playhead, tmp_path, name):
    file = tmp_path / name
    file.write_text("{}")
    for words in (
        ("connectors", "plan", "-f"),
        ("connectors", "apply", "-f"),
        ("connectors", "validate", "-f"),
        ("run",),
    ):
        ran = playhead(*words, str(file)).exits(2)
        assert f"{name}: " in ran.err
        assert "is not a form of connector files" in ran.err or "a Terraform file is not read" in ran.err
