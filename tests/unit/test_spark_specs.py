"""Connector files for the Spark engine: what Connect would refuse is refused, at the line that says it."""

import pytest

from playhead.errors import ConfigInvalid
from playhead.model import ConnectorSpec, Engine
from playhead.pipeline.spec import check_specs, sort_specs

TEXT = "org.apache.kafka.connect.storage.StringConverter"
CONFIGS = {
    "sink": {"connector.class": "FileStreamSink", "topics": "a", "file": "/nowhere/out", "value.converter": TEXT},
    "source": {"connector.class": "FileStreamSource", "topic": "a", "file": "/tmp/in", "value.converter": TEXT},  # noqa: S108
}


def spec_of(kind: str, tasks: str) -> ConnectorSpec:
    return ConnectorSpec(kind, {**CONFIGS[kind], "tasks.max": tasks}, Engine.SPARK)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("tasks", ["0", "-1", "many", "1.5", "", "2147483648"])
def test_a_number_of_tasks_that_connect_would_refuse_is_refused(kind, tasks):
    with pytest.raises(ConfigInvalid) as refused:
        check_specs([spec_of(kind, tasks)], {})
    assert refused.value.what == f"{kind}: {kind}: tasks.max: must be a whole number from 1 on, not {tasks!r}"


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("tasks", ["1", " 4 ", "+2", "2147483647"])
def test_a_number_of_tasks_that_connect_takes_is_taken(kind, tasks):
    assert [one.name for one in check_specs([spec_of(kind, tasks)], {})] == [kind]


def test_a_connector_that_is_refused_does_not_take_the_others_with_it_and_keeps_its_hints():
    vault = ConnectorSpec("vault", {**CONFIGS["sink"], "file": "${vault:a:b}"}, Engine.SPARK)
    found = sort_specs([spec_of("sink", "0"), vault, spec_of("source", "1")], {})
    assert [one.name for one in found.ready] == ["source"]
    assert {name: error.what for name, error in found.refused.items()} == {
        "sink": "sink: sink: tasks.max: must be a whole number from 1 on, not '0'",
        "vault": "vault: vault: file: only a Connect worker can resolve references to 'vault'; use ${env:NAME}",
    }
    with pytest.raises(ConfigInvalid) as refused:
        found.check()
    assert [str(fault) for fault in refused.value.faults] == [error.what for error in found.refused.values()]
