"""Connectors in the forms of other tools: the same connectors as in our own form, and what is left out is named.

Every file of `foreign_files` has a golden file beside it: the same connectors, written by hand in our own form.
"""

import json
from pathlib import Path

import pytest

from playhead.config import open_context
from playhead.connectors.api import specs_of
from playhead.connectors.export import plan_into_file
from playhead.connectors.files import read_files, read_specs
from playhead.errors import Invalid
from playhead.model import Deadline, WantedState
from unit.connector_files import bare, faults, file_faults, yaml

FOREIGN = Path(__file__).parent / "foreign_files"
FILES = sorted(path for path in FOREIGN.iterdir() if ".golden." not in path.name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_of_another_tool_reads_as_its_golden_file(file):
    assert bare(read_specs([file])) == bare(read_specs([FOREIGN / f"{file.stem}.golden.yaml"]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_form_is_found_without_a_suffix(file):
    golden = bare(read_specs([FOREIGN / f"{file.stem}.golden.yaml"]))
    assert bare(read_specs(["-"], stdin=file.read_bytes())) == golden


@pytest.mark.parametrize("name", ["kubectl.json", "expanded.json", "map.json"])
def test_a_dict_reads_as_the_file(name):
    text = (FOREIGN / name).read_text()
    assert bare(specs_of([json.loads(text)], shared_topics=False).specs) == bare(read_specs([FOREIGN / name]))


def notes(*names: str) -> list[str]:
    return [note.replace(f"{FOREIGN}/", "") for note in read_files([FOREIGN / name for name in names]).notes]


def test_what_is_left_out_is_named_once_for_each_reason():
    assert notes("strimzi.yaml") == [
        "strimzi.yaml: the annotation strimzi.io/restart of orders-src is left out: it is an order to the tool, and no key of "
        "a connector",
        "strimzi.yaml: spec.autoRestart of orders-src is left out: the operator does this; playhead connectors watch restarts "
        "failed connectors",
        "strimzi.yaml: not read, because it is no connector: Secret db-credentials, KafkaTopic orders",
    ]
    assert notes("confluent.yaml") == [
        "confluent.yaml: spec.restartPolicy of s3-sink is left out: the operator does this; playhead connectors watch restarts "
        "failed connectors",
        "confluent.yaml: spec.connectRest of s3-sink is left out: the context says how to reach the workers",
    ]
    assert notes("jikkou.yaml") == ["jikkou.yaml: not read, because it is no connector: old (jikkou.io/ignore)"]
    assert notes("kubectl.json") == ["kubectl.json: not read, because it is no connector: ConfigMap settings"]
    assert notes("map.yaml") == notes("expanded.json") == []


def test_files_for_several_clusters_are_noted(tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(
        strimzi("other", "class: x.Source").replace("metadata: {", "metadata: {labels: {strimzi.io/cluster: b}, ")
    )
    found = read_files([FOREIGN / "strimzi.yaml", other]).notes
    assert found[-1] == (
        "the files name several Connect clusters, and one context is one cluster: my-connect (orders-src), b (other)"
    )


def test_many_connectors_share_one_note():
    text = "\n---\n".join(strimzi(f"c{n}", "class: x.Source, autoRestart: {enabled: true}") for n in range(7))
    [note] = read_files(["-"], stdin=text.encode()).notes
    assert note.startswith("stdin: spec.autoRestart of c0, c1, c2, c3, c4 and 2 more is left out")


def strimzi(name: str, spec: str) -> str:
    return f"apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def confluent(spec: str) -> str:
    return f"apiVersion: platform.confluent.io/v1beta1\nkind: Connector\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"


def jikkou(spec: str, metadata: str = "name: a") -> str:
    return f"apiVersion: kafka.jikkou.io/v1beta1\nkind: KafkaConnector\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            strimzi("a", "class: x, taskMax: 1"),
            "4: unknown key 'taskMax' in the spec of 'a' (Strimzi); did you mean tasksMax?",
        ),
        (
            confluent("class: x, tasksMax: 1"),
            "4: unknown key 'tasksMax' in the spec of 'a' (Confluent for Kubernetes); did you mean taskMax?",
        ),
        (
            confluent("class: x, config: {}"),
            "4: unknown key 'config' in the spec of 'a' (Confluent for Kubernetes); did you mean configs?",
        ),
        (jikkou("tasksMax: 1"), "4: the KafkaConnector 'a' has no 'spec.connectorClass'"),
        (
            strimzi("a", "connectorClass: x"),
            "4: the KafkaConnector 'a' has no 'spec.class'; there is: connectorClass",
        ),
        (
            strimzi("a", "class: x, state: resting"),
            "4: 'state' is 'resting', which is not supported; there is: paused, running, stopped",
        ),
        (strimzi("a", "class: x, pause: maybe"), "4: 'spec.pause' of 'a' is text; write true or false"),
        (strimzi("a", "class: x, config: [1]"), "4: 'spec.config' of 'a' is a list"),
        (
            strimzi("a", "class: x, config: {k: {l: m}}"),
            "4: the value of 'k' is a table, and Connect takes only text; write the whole key on one line: k.l: ...",
        ),
        (
            strimzi("a", "class: x, tasksMax: 2, config: {tasks.max: 3}"),
            "4: 'tasks.max' in 'spec.config' of 'a' differs from 'spec.tasksMax'; Strimzi uses 'spec.tasksMax'; remove the other",
        ),
        (
            strimzi("a", 'class: x, config: {url: "http://{{ .Values.host }}/"}'),
            "4: the value of 'url' is a template that is not filled; "
            "render the file first (helm template, jikkou prepare)",
        ),
        (
            strimzi('"{{ name }}"', "class: x"),
            "1: the name of a KafkaConnector is a template that is not filled; "
            "render the file first (helm template, jikkou prepare)",
        ),
        (
            jikkou("connectorClass: x", "name: a, annotations: {jikkou.io/delete: true}"),
            "3: 'a' is marked to be deleted (jikkou.io/delete); playhead connectors delete a",
        ),
        (
            "apiVersion: kafka.strimzi.io/v1\nkind: KafkaConnector\nspec: {class: x}",
            "1: the KafkaConnector has no 'metadata.name'",
        ),
        (
            "apiVersion: kafka.strimzi.io/v1\nkind: KafkaConnector\nmetadata: {name: a}",
            "1: the KafkaConnector 'a' has no 'spec'",
        ),
        (
            "apiVersion: apps.cpc.platform.confluent.io/v1beta1\nkind: Connector\nmetadata: {name: a}\nspec: {}",
            "1: a Connector of apps.cpc.platform.confluent.io/v1beta1 is not known; there is: kafka.strimzi.io (KafkaConnector), "
            "kafka.jikkou.io (KafkaConnector), platform.confluent.io (Connector)",
        ),
        ("apiVersion: v1\nkind: List", "1: the List has no list 'items'"),
        ("apiVersion: v1\nkind: List\nitems: [7]", "3: an item of the List is a number"),
        (
            '{"a": {"status": {"connector": {"state": "RUNNING"}}}}',
            "1: the config of 'a' is not in this answer of a worker; ask the worker for /connectors?expand=info&expand=status",
        ),
        ("a: {connector.class: x}\nb: {topic: t}", "2: connector 'b' has no 'connector.class'"),
        (
            "a: {connector.class: x, topic: }",
            "1: 'topic' has no value; write \"\" for an empty text, or leave the key out",
        ),
    ],
)
def test_a_fault_names_its_key_and_its_line(text, fault):
    assert fault in faults(text)


def test_a_resource_that_is_broken_has_one_fault_for_one_mistake():
    assert len(faults(jikkou("tasksMax: 1"))) == 1


def test_a_secret_is_never_in_a_fault_or_a_note():
    text = strimzi("a", "class: x, autoRestart: {}, tasksMaxx: 1, config: {password: c4n4ry, url: '{{c4n4ry}}'}")
    assert faults(text)
    assert "c4n4ry" not in "\n".join(faults(text))


def test_the_state_wins_over_pause():
    [spec] = yaml(strimzi("a", "class: x, state: running, pause: true"))
    assert spec.state is WantedState.RUNNING
    [note] = read_files(["-"], stdin=strimzi("a", "class: x, state: running, pause: true").encode()).notes
    assert note == "stdin: spec.pause of a is left out: 'spec.state' wins"


def test_a_file_may_hold_our_own_documents_too():
    specs = yaml(
        strimzi("a", "class: x") + "---\ncommon: {tasks.max: 2}\nconnectors: {b: {config: {connector.class: x}}}\n"
    )
    assert [(spec.name, dict(spec.config)) for spec in specs] == [
        ("a", {"connector.class": "x"}),
        ("b", {"connector.class": "x", "tasks.max": "2"}),
    ]


def test_a_name_that_two_resources_have_is_reported_with_both_lines():
    text = strimzi("a", "class: x") + "---\n" + jikkou("connectorClass: x")
    assert faults(text) == ["8: the connector 'a' is given twice, here and at stdin:3"]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("c.toml", "c.toml: TOML is not a form of connector files; write YAML: connectors: NAME: {config: {...}}"),
        (
            "c.tf",
            "c.tf: a Terraform file is not read: its values are known only to Terraform; playhead connectors export --file "
            "connectors.yaml writes what runs",
        ),
        (
            "c.tf.json",
            "c.tf.json: a Terraform file is not read: its values are known only to Terraform; playhead connectors export --file "
            "connectors.yaml writes what runs",
        ),
    ],
)
def test_toml_and_terraform_are_refused_by_name(tmp_path, name, fault):
    (tmp_path / name).write_text('{"a": {"connector.class": "x"}}')
    assert file_faults(tmp_path / name) == [fault]


def test_terraform_in_a_folder_is_skipped(tmp_path):
    (tmp_path / "main.tf.json").write_text('{"resource": {}}')
    (tmp_path / "a.yaml").write_text("a: {connector.class: x}")
    assert [spec.name for spec in read_specs([tmp_path])] == ["a"]


def test_an_export_into_a_file_of_another_tool_is_refused(tmp_path):
    file = tmp_path / "strimzi.yaml"
    file.write_bytes((FOREIGN / "strimzi.yaml").read_bytes())
    with pytest.raises(Invalid, match=r"strimzi\.yaml is a Kubernetes resource, which is read but not edited"):
        plan_into_file(open_context(None), [], file, Deadline(1))
    assert file.read_bytes() == (FOREIGN / "strimzi.yaml").read_bytes()


def test_a_note_holds_no_control_characters_of_a_terminal():
    text = strimzi("a", "class: x") + '---\napiVersion: v1\nkind: Secret\nmetadata: {name: "\\e[31mred"}\n'
    [note] = read_files(["-"], stdin=text.encode()).notes
    assert note == r"stdin: not read, because it is no connector: Secret \x1b[31mred"
