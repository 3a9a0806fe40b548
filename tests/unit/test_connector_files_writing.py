"""What is written reads back to the same connectors, whatever they hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from playhead.connectors.files import read_specs, write_specs
from playhead.connectors.files.templates import escape, fill
from playhead.model import ConnectorSpec, Engine, Map, Position, Positions, WantedState
from unit.connector_files import bare, yaml
from unit.strategies import FIELDS, TEXT

TRICKY = st.sampled_from(
    ["yes", "no", "null", "~", "1", "1.0", "0x10", "1:30", "2024-01-01", "true", "- a", "a: b", "a #b", "{a}", "{{a}}", "${a:b}",
     "${", "<<", "*a", "&a", "!x", "%x", "|", ">", "'", '"', "\\", "\n", " a ",
     "a\tb", "\u2028", "\x85", "\ufeff", "\x00", "=", "", "?", "---",
     "...", "a:", ":a", "@a", "`a", ",", "[a]", "😀", "\ue000", "é", "0o7", ".inf", "1e3", "a" * 2000]
)  # fmt: skip
TEXTS = st.one_of(TEXT, TRICKY, st.lists(st.one_of(TEXT, TRICKY), max_size=3).map("".join))
NAMES = TEXTS.map(lambda text: "".join(c for c in text if c.isprintable()).strip()).filter(bool)
CONFIGS = st.dictionaries(TEXTS.filter(lambda key: key not in ("", "name")), TEXTS, max_size=5)


@st.composite
def specs(draw) -> ConnectorSpec:
    name = draw(NAMES)
    maps = draw(st.lists(FIELDS.map(Map), unique=True, max_size=2))
    plain = [m for m in maps if not {"kafka_topic", "kafka_offset"} & set(m)]
    positions = [Position(name, partition, draw(st.none() | FIELDS.map(Map))) for partition in plain]
    return ConnectorSpec(
        name,
        {**draw(CONFIGS), "connector.class": draw(TEXTS.filter(bool))},
        draw(st.sampled_from(Engine)),
        draw(st.sampled_from([None, *WantedState])),
        Positions(positions) if positions else None,
    )


MANY = st.lists(specs(), max_size=3, unique_by=lambda spec: spec.name)


def read_back(text: str) -> list[ConnectorSpec]:
    return bare(read_specs(["-"], stdin=text.encode(), shared_topics=True))


def groups_differ(many: list[ConnectorSpec]) -> bool:
    groups = [s.config.get("consumer.override.group.id") or f"connect-{s.name}" for s in many if s.is_sink]
    return len(set(groups)) == len(groups)


@given(MANY.filter(groups_differ))
def test_yaml_reads_back_to_the_same_connectors(many):
    text = write_specs(many, "yaml")
    assert read_back(text) == many
    assert write_specs(read_back(text), "yaml") == text


@given(MANY.filter(groups_differ))
def test_json_reads_back_to_the_same_connectors(many):
    assert read_back(write_specs(many, "json")) == many


@given(specs().filter(lambda spec: not {"{", "}"} & set(spec.name)))  # braces are doubled there
def test_another_reader_of_yaml_old_or_new_sees_the_same_texts(spec):
    for version in ((1, 1), (1, 2)):
        reader = YAML(typ="safe", pure=True)
        reader.version = version
        found = reader.load(write_specs([spec], "yaml"))["connectors"]
        assert {name: body["config"] for name, body in found.items()} == {spec.name: spec.config}


@given(TEXTS)
def test_an_escaped_text_is_a_template_that_gives_the_text(text):
    assert fill(escape(text), {}) == text


def test_the_written_yaml_is_easy_to_read():
    spec = ConnectorSpec(
        "orders src",
        {"topic": "t", "connector.class": "a.B", "url": "jdbc:postgresql://db:5432/x", "tasks.max": "1",
         "pw": "${env:P}", "f": "no"},
        Engine.SPARK,
        WantedState.PAUSED,
        Positions([Position("orders src", Map({"t": "x"}), Map({"o": 1, "f": 1.0}))]),
    )  # fmt: skip
    text = """\
connectors:
  "orders src":
    engine: spark
    state: paused
    config:
      connector.class: a.B
      f: "no"
      pw: "${env:P}"
      tasks.max: "1"
      topic: t
      url: jdbc:postgresql://db:5432/x
    offsets:
    - partition: {"t": "x"}
      offset: {"o": 1, "f": 1.0}
"""
    assert write_specs([spec], "yaml") == text
    assert bare(yaml(text)) == [spec]


def test_one_connector_in_json_is_the_body_connect_takes_and_several_are_a_list():
    one = ConnectorSpec("a", {"connector.class": "x"})
    assert json.loads(write_specs([one], "json")) == {"name": "a", "config": {"connector.class": "x"}}
    assert [body["name"] for body in json.loads(write_specs([one, ConnectorSpec("b", {})], "json"))] == ["a", "b"]


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_nothing_is_written_as_nothing(form):
    assert read_specs(["-"], stdin=write_specs([], form).encode()) == []
