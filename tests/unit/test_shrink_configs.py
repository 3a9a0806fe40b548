"""What of a connector's config changes with its topic, and what a sink would do otherwise."""

import pytest

from playhead.shrink.configs import changed_config, routed, still_uses, why_overwrites, whys_other
from playhead.shrink.record import MovedConnector
from playhead.topics.usage import ConnectorUse

JDBC = "io.confluent.connect.jdbc.JdbcSinkConnector"
S3 = "io.confluent.connect.s3.S3SinkConnector"
FILE = "org.apache.kafka.connect.file.FileStreamSinkConnector"
KAFKA = "org.apache.kafka.connect.transforms."
READS = ConnectorUse("out", "sink", "running", "reads it")
WRITES = ConnectorUse("in", "source", "running", "writes to it")


def test_a_sink_reads_the_new_topic_in_the_place_of_the_old_one():
    config = {"topics": "a, orders ,b"}
    assert changed_config(READS, config, "orders", "orders-p2") == {"topics": "a,orders-p2,b"}


def test_a_sink_with_a_pattern_is_not_moved():
    assert changed_config(READS, {"topics.regex": "ord.*"}, "orders", "orders-p2") is None


def test_a_source_with_a_topic_of_its_own_gets_another_one():
    assert changed_config(WRITES, {"topic": "orders"}, "orders", "orders-p2") == {"topic": "orders-p2"}


def test_a_source_that_writes_to_its_topics_gets_another_one_among_them():
    assert changed_config(WRITES, {"topics": "a, orders"}, "orders", "orders-p2") == {"topics": "a,orders-p2"}


@pytest.mark.parametrize(("chain", "after"), [(None, "playheadShrink"), ("cast,route", "cast,route,playheadShrink")])
def test_any_other_source_gets_a_router_at_the_end_of_its_transforms(chain, after):
    assert changed_config(WRITES, {"topic.prefix": "shop.", "transforms": chain}, "shop.orders", "new") == {
        "transforms": after,
        "transforms.playheadShrink.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.playheadShrink.regex": r"shop\.orders",
        "transforms.playheadShrink.replacement": "new",
    }


@pytest.mark.parametrize("how", ["dead letter queue", "its offsets topic"])
def test_a_topic_with_another_use_is_not_moved(how):
    use = ConnectorUse("out", "sink", "running", how)
    assert changed_config(use, {"topics": "a"}, "orders", "new") is None


def routing(regex: str, replacement: str) -> dict[str, str]:
    words = {"type": f"{KAFKA}RegexRouter", "regex": regex, "replacement": replacement}
    return {"transforms": "route"} | {f"transforms.route.{key}": value for key, value in words.items()}


def others(config: dict[str, str]) -> list[str]:
    """What a sink of `orders` does otherwise when it is moved."""
    after = changed_config(READS, config, "orders", "orders-p2")
    return list(whys_other({**config, **(after or {})}, "orders", "orders-p2"))


@pytest.mark.parametrize("kind", ["source", "unknown"])
def test_a_source_that_reads_the_topic_is_not_moved(kind):
    """Its positions are in connect-offsets, by the name of the topic: it would read the new one from the beginning."""
    use = ConnectorUse("in", kind, "running", "reads it")
    assert changed_config(use, {"topics": "orders"}, "orders", "orders-p2") is None


@pytest.mark.parametrize(
    ("format_", "after"), [(None, "orders"), ("shop.${topic}_v1", "shop.orders_v1"), ("fixed", None)]
)
def test_a_jdbc_sink_goes_on_writing_to_its_table(format_, after):
    config = {"connector.class": JDBC, "topics": "orders"} | ({"table.name.format": format_} if format_ else {})
    found = changed_config(READS, config, "orders", "orders-p2")
    assert found == {"topics": "orders-p2"} | ({"table.name.format": after} if after else {})
    assert others(config) == []


def test_a_jdbc_sink_with_a_router_goes_on_writing_to_the_table_that_its_routes_name():
    config = {"connector.class": JDBC, "topics": "orders", **routing("(.*)", "shop_$1")}
    after = changed_config(READS, config, "orders", "orders-p2")
    assert after == {"topics": "orders-p2", "table.name.format": "shop_orders"}
    assert others(config) == []
    same = {"connector.class": JDBC, "topics": "orders,more", **routing("orders.*", "sales")}
    assert changed_config(READS, same, "orders", "orders-p2") == {"topics": "orders-p2,more"}
    assert others(same) == []


def test_a_table_that_is_named_for_each_topic_is_named_for_the_new_one_too():
    config = {"connector.class": JDBC, "topics": "orders,more", "topics.to.tables.mapping": "orders:sales,more:rest"}
    after = changed_config(READS, config, "orders", "orders-p2")
    assert after == {"topics": "orders-p2,more", "topics.to.tables.mapping": "orders:sales,more:rest,orders-p2:sales"}
    assert others(config) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"connector.class": JDBC, "topics": "orders,more"}, "names its table by the topic"),
        ({"connector.class": JDBC, "topics": "orders", "pk.mode": "kafka"}, "as the key of its rows (pk.mode=kafka)"),
        ({"connector.class": JDBC, "topics": "orders,more", **routing("(.*)", "x$1")}, "names its table by the topic"),
        ({"connector.class": JDBC, "topics": "orders", **routing("(.*)", "${x}")}, "names its table by the topic"),
        ({"connector.class": S3, "topics": "orders"}, "may name its output by the topic"),
        (
            {"transforms": "at", "transforms.at.type": f"{KAFKA}InsertField$Value", "transforms.at.offset.field": "o"},
            "inserts offset.field (at)",
        ),
        (
            {"transforms": "own", "transforms.own.type": "com.example.Own"},
            "a transform that may look at the topic (own)",
        ),
        (
            {"predicates": "is", "predicates.is.pattern": "orders"},
            "has a predicate that looks at the topic (is: orders)",
        ),
    ],
)
def test_what_a_sink_would_do_otherwise_is_reported(config, words):
    (said, *_) = others({"connector.class": FILE, "topics": "orders", **config})
    assert words in said


def test_a_transform_that_does_not_look_at_the_topic_is_not_reported():
    config = {"connector.class": FILE, "topics": "orders", "transforms": "a,b", "predicates": "is"}
    config |= {"transforms.a.type": f"{KAFKA}MaskField$Value", "transforms.b.type": f"{KAFKA}InsertField$Key"}
    config |= {"predicates.is.pattern": "orders.*"}
    assert others(config) == [] and routed(config, "orders") == "orders"


@pytest.mark.parametrize(
    "kind",
    [
        S3,
        "io.confluent.connect.gcs.GcsSinkConnector",
        "io.lenses.streamreactor.connect.gcp.storage.sink.GCPStorageSinkConnector",
        "io.confluent.connect.azure.blob.AzureBlobStorageSinkConnector",
        "io.confluent.connect.azure.datalake.gen2.AzureDataLakeGen2SinkConnector",
        "io.confluent.connect.hdfs3.Hdfs3SinkConnector",
    ],
)
def test_a_sink_that_names_objects_by_offsets_must_not_get_the_old_names_again(kind):
    config = {"connector.class": kind, "topics": "orders-p2", **routing("orders(-p2)?", "orders")}
    assert "may be overwritten" in str(why_overwrites(config, "orders", "orders-p2"))
    assert why_overwrites({**config, "connector.class": JDBC}, "orders", "orders-p2") is None
    assert why_overwrites({**config, **routing("x", "y")}, "orders", "orders-p2") is None


@pytest.mark.parametrize(
    "kind",
    [
        "com.mongodb.kafka.connect.MongoSinkConnector",
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "com.wepay.kafka.connect.bigquery.BigQuerySinkConnector",
        "io.confluent.connect.http.HttpSinkConnector",
    ],
)
def test_a_routed_sink_that_does_not_name_its_outputs_by_offsets_can_be_accepted(kind):
    config = {"connector.class": kind, "topics": "orders", **routing("orders(-p2)?", "orders")}
    (said,) = others(config)
    assert "routes both topics to orders" in said
    assert why_overwrites({**config, "topics": "orders-p2"}, "orders", "orders-p2") is None


ROUTED = changed_config(WRITES, {"topic.prefix": "x"}, "orders", "orders-p2") or {}
ROUTED_BACK: dict[str, str | None] = dict.fromkeys(ROUTED)


@pytest.mark.parametrize(
    ("kind", "config", "wanted", "is_used"),
    [
        ("sink", {"topics": "orders-p2, more"}, {"topics": "orders-p2"}, False),
        ("sink", {"topics": "orders-p2,orders"}, {"topics": "orders-p2"}, True),
        ("sink", {"topics.regex": "ord.*"}, {"topics": "orders-p2"}, True),
        ("source", {"topic": "elsewhere"}, {"topic": "orders-p2"}, False),
        ("source", {"topic": "orders"}, {"topic": "orders-p2"}, True),
        ("source", {"topics": "a,orders-p2"}, {"topics": "orders-p2"}, False),
        ("source", {"topics": "orders"}, {"topics": "orders-p2"}, True),
        ("source", {**ROUTED, "transforms": f"cast,{ROUTED['transforms']}"}, ROUTED, False),
        ("source", {}, ROUTED, True),
        ("source", {"transforms": "cast"}, ROUTED_BACK, False),
    ],
)
def test_a_connector_that_was_edited_after_the_switch_uses_the_old_topic_only_if_its_config_says_so(
    kind, config, wanted, is_used
):
    after = ROUTED if "transforms" in wanted else wanted
    one = MovedConnector("c", kind, "RUNNING", {}, after)
    assert still_uses(config, one, "orders", wanted) == is_used
