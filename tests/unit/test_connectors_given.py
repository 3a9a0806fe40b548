"""What a script may hand to plan() and apply(): files, specs and dicts give one and the same connector."""

import json

import pytest

from playhead.connectors.api import specs_of
from playhead.errors import ConfigInvalid, Invalid
from playhead.model import ConnectorSpec, Engine, Map, Position, Positions, WantedState

CONFIG = {"connector.class": "x.Source", "tasks.max": "2", "tables": "a,b", "fast": "true"}
LOOSE = {"connector.class": "x.Source", "tasks.max": 2, "tables": ["a", "b"], "fast": True}
SPEC = ConnectorSpec("orders", CONFIG)


def given(*what, shared_topics=False):
    return specs_of(what, shared_topics=shared_topics).specs


def faults(*what) -> list[str]:
    with pytest.raises(ConfigInvalid) as raised:
        given(*what)
    return [str(fault) for fault in raised.value.faults]


def test_every_form_gives_the_same_connector(tmp_path):
    body = {"name": "orders", "config": LOOSE}
    file = tmp_path / "orders.json"
    file.write_text(json.dumps(body))
    forms = [SPEC, [SPEC], body, [body], (one for one in [body]), {"orders": LOOSE}, {"name": "orders", **LOOSE}]
    forms += [
        str(file),
        file,
        [file],
        {"name": "orders", "config": {**CONFIG, "name": "orders"}, "tasks": [], "type": "source"},
    ]
    assert [given(form) for form in forms] == [[SPEC]] * len(forms)


def test_many_things_of_many_forms_come_in_one_call(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("connectors: {a: {config: {connector.class: x}}}")
    many = {"c": {"connector.class": "x"}, "config": {"connector.class": "x"}, "name": {"connector.class": "x"}}
    found = given({"name": "b", "config": {"connector.class": "x"}}, many, file, ConnectorSpec("d", CONFIG))
    assert [spec.name for spec in found] == ["a", "b", "c", "config", "name", "d"]


def test_a_body_may_say_what_a_file_may_say():
    body = {
        "name": "orders",
        "config": LOOSE,
        "engine": "spark",
        "state": "STOPPED",
        "offsets": [{"partition": {"filename": "/x"}, "offset": {"position": 3}}],
    }
    [spec] = given(body)
    assert (spec.engine, spec.state) == (Engine.SPARK, WantedState.STOPPED)
    assert spec.offsets == Positions([Position("orders", Map({"filename": "/x"}), Map({"position": 3}))])


def test_all_faults_of_all_arguments_come_at_once(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("connectors: {a: {config: {}}}")
    bad = {"name": "b", "config": {"connector.class": "x", "secret": {"password": "hunter2"}}, "stat": "running"}
    found = faults(file, {"config": {"connector.class": "x"}, "state": "running"}, [bad, 7])
    assert found == [
        f"{file}:1: connector 'a' has no 'connector.class'",
        "argument 2: the connector has no 'name'",
        "argument 3, item 1: unknown key 'stat'; did you mean state?",
        "argument 3, item 1: the value of 'secret' is a table, and Connect takes only text; "
        "write the whole key on one line: secret.password: ...",
        "argument 3, item 2: this is a int; a connector is a dict or a ConnectorSpec",
    ]
    assert "hunter2" not in " ".join(found)


def test_two_of_one_name_and_two_on_one_topic_are_faults_between_arguments():
    files = {"connector.class": "FileStreamSource", "topic": "t"}
    assert faults({"a": files}, {"name": "a", "config": {**files, "topic": "u"}}) == [
        "argument 2: the connector 'a' is given twice, here and at argument 1"
    ]
    assert faults({"a": files, "b": files}) == ["argument 1: the sources 'a' and 'b' write to the same topic 't'"]
    assert len(given({"a": files, "b": files}, shared_topics=True)) == 2


def test_nothing_at_all_is_said():
    with pytest.raises(Invalid, match="no file and no connector is given"):
        given()
    with pytest.raises(Invalid, match="no file and no connector is given"):
        given([])
