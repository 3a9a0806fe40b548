"""Two connectors that exclude each other are reported with both places, within a file and between files."""

import pytest

from playhead.connectors.files import read_specs
from playhead.connectors.files.read import topics_of
from unit.connector_files import faults, file_faults, yaml

FILE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"
KAFKA = "org.apache.kafka.connect.transforms."


def two(first: str, second: str) -> str:
    return f"connectors:\n  a:\n    config: {{{first}}}\n  b:\n    config: {{{second}}}\n"


def test_one_name_in_two_files_is_reported_with_both_places(tmp_path):
    (tmp_path / "one.json").write_text('\n{"name": "a", "connector.class": "x"}')
    (tmp_path / "two.yaml").write_text("connectors:\n\n  a: {config: {connector.class: x}}\n")
    (tmp_path / "three.properties").write_text("connector.class=x\nname=a\n")
    one, second, third = (tmp_path / name for name in ("one.json", "two.yaml", "three.properties"))
    assert file_faults(one, second, third) == [
        "two.yaml:3: the connector 'a' is given twice, here and at one.json:2",
        "three.properties:2: the connector 'a' is given twice, here and at one.json:2",
    ]


def test_a_template_may_not_make_a_name_that_is_there():
    text = (
        "connectors:\n  log_a: {config: {connector.class: x}}\n"
        "  log_{t}:\n    for: {t: [a, b]}\n    config: {connector.class: x}\n"
    )
    assert faults(text) == ["3: the connector 'log_a' is given twice, here and at stdin:2"]


def test_two_sinks_on_one_group_are_a_fault():
    sink = "connector.class: x.Sink, topics: t"
    shared = f"{sink}, consumer.override.group.id: g"
    what = "share the consumer group 'g'; give one of them another consumer.override.group.id"
    assert faults(two(shared, shared)) == [f"5: the sinks 'a' and 'b' {what}"]
    what = what.replace("'g'", "'connect-a'")
    assert faults(two(sink, shared.replace(": g", ": connect-a"))) == [f"5: the sinks 'a' and 'b' {what}"]
    assert len(yaml(two(sink, shared))) == 2
    assert len(yaml(two(shared, "connector.class: x.Source, consumer.override.group.id: g"))) == 2


@pytest.mark.parametrize(
    ("first", "second", "topic"),
    [
        (f"connector.class: {FILE}, topic: t", "connector.class: FileStreamSource, topic: t", "t"),
        (f"connector.class: {JDBC}, topic.prefix: p_, table.whitelist: [u, public.v]",
         "connector.class: io.aiven.connect.jdbc.JdbcSourceConnector, topic.prefix: p_, table.whitelist: shop.sales.v", "p_v"),
        (f"connector.class: {JDBC}, topic.prefix: p, query: select 1", f"connector.class: {FILE}, topic: p", "p"),
        (f"connector.class: {FILE}, topic: t, transforms: h, transforms.h.type: {KAFKA}HoistField$Value",
         f"connector.class: {FILE}, topic: t", "t"),
    ],
)  # fmt: skip
def test_two_sources_of_one_topic_are_a_fault_where_the_topic_is_known(first, second, topic):
    text = two(first, second)
    assert faults(text) == [f"5: the sources 'a' and 'b' write to the same topic {topic!r}"]
    assert len(read_specs(["-"], stdin=text.encode(), shared_topics=True)) == 2


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": FILE},
        {"connector.class": "x.Other", "topic": "t"},
        {"connector.class": "x.FileStreamSinkConnector", "topics": "t"},
        {"connector.class": FILE, "topic": "t", "transforms": "r", "transforms.r.type": f"{KAFKA}RegexRouter"},
        {"connector.class": FILE, "topic": "t", "transforms": "r", "transforms.r.type": "x.Mine"},
        {"connector.class": FILE, "topic": "t", "transforms": "r"},
        {"connector.class": JDBC, "topic.prefix": "p"},
        {"connector.class": JDBC, "topic.prefix": "p", "table.include.list": "public\\..*"},
    ],
)
def test_a_topic_that_cannot_be_known_is_not_guessed(config):
    assert topics_of(config)[1] == []


def test_one_connector_may_read_equal_tables_of_two_schemas():
    assert (
        len(
            yaml(
                f"connectors:\n  a:\n    config: {{connector.class: {JDBC}, topic.prefix: p, table.whitelist: 'a.t,b.t'}}\n"
            )
        )
        == 1
    )
