"""Which topics a connector uses, by its config alone; and that "not known" is never "none"."""

import pytest

from playhead.connectors.plan.topics import Usage, topics_used
from playhead.model import ConnectorSpec

FILE = {"connector.class": "FileStreamSource", "topic": "lines"}
JDBC = {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "topic.prefix": "db-"}
SINK = {"connector.class": "FileStreamSink"}
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"


def routed(regex, replacement, **more):
    own = {f"transforms.r.{key}": value for key, value in more.items()}
    return {
        **FILE,
        "transforms": "r",
        "transforms.r.type": ROUTER,
        "transforms.r.regex": regex,
        "transforms.r.replacement": replacement,
        **own,
    }


@pytest.mark.parametrize(
    ("config", "topics"),
    [
        (FILE, ["lines"]),
        ({**JDBC, "table.whitelist": "public.orders, codes"}, ["db-orders", "db-codes"]),
        ({**JDBC, "query": "select 1"}, ["db-"]),
        ({"connector.class": "io.confluent.kafka.connect.datagen.DatagenConnector", "kafka.topic": "made"}, ["made"]),
        (
            {**FILE, "transforms": "m", "transforms.m.type": "org.apache.kafka.connect.transforms.MaskField$Value"},
            ["lines"],
        ),
        (routed("li(.*)", "x-$1"), ["x-nes"]),
        (routed(".*", "all"), ["all"]),
        (routed("other", "x"), ["lines"]),
        (routed("l|lines", "x"), ["xines"]),  # as Java: it matches as a whole, and the first find is replaced
        ({**SINK, "topics": " a, b,,a "}, ["a", "b"]),
    ],
)
def test_topics_that_the_config_names_are_known(config, topics):
    found = topics_used(ConnectorSpec("c", config))
    assert ([use.topic for use in found.uses], found.unknown) == (topics, "")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}, "does not name them"),
        (JDBC, "does not name them"),
        ({**JDBC, "table.include.list": "public\\..*"}, "does not name them"),
        ({**FILE, "topic": "${env:TOPIC}"}, "only the worker resolves"),
        ({**SINK, "topics": "${env:TOPIC}"}, "only the worker resolves"),
        ({**FILE, "transforms": "t", "transforms.t.type": "com.acme.Route"}, "transforms"),
        (
            {**FILE, "transforms": "t", "transforms.t.type": "org.apache.kafka.connect.transforms.TimestampRouter"},
            "transforms",
        ),
        (routed("(?i)LINES", "x"), "transforms"),
        (routed("\\p{Lower}+", "x"), "transforms"),
        (routed("li(.*)", "${name}"), "transforms"),
        (routed("(l)ines", "$12"), "transforms"),
        (routed("lines", "x", predicate="p"), "transforms"),
        ({**FILE, "producer.override.bootstrap.servers": "far:9092"}, "another cluster, far:9092"),
        ({**SINK, "topics": "a", "consumer.override.bootstrap.servers": "far:9092"}, "another cluster, far:9092"),
    ],
)
def test_topics_that_cannot_be_told_are_unknown_and_not_none(config, why):
    found = topics_used(ConnectorSpec("c", config))
    assert found.uses == () and why in found.unknown


def test_a_sink_has_its_pattern_and_its_dead_letter_queue():
    config = {**SINK, "topics.regex": "orders-.*", "errors.deadletterqueue.topic.name": "dead"}
    found = topics_used(ConnectorSpec("c", config))
    assert [(use.topic, use.usage) for use in found.uses] == [("dead", Usage.DEAD_LETTERS)]
    assert (found.pattern, found.unknown) == ("orders-.*", "")
