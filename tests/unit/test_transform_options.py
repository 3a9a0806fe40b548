"""`transforms` and `predicates` of a connector: read as Kafka reads them, and refused by name where they are not honoured."""

import pytest

from playhead.errors import ConfigInvalid, Invalid
from playhead.pipeline.ingest.record_options import parse_source_records
from playhead.pipeline.records.encode.options import JSON, STRING, Converter, parse_record_options
from playhead.pipeline.records.transforms import (
    Cast,
    ExtractField,
    Inserted,
    InsertField,
    RegexRouter,
    ReplaceField,
    SetSchemaMetadata,
    Stage,
    TopicMatches,
    ValueToKey,
)
from playhead.pipeline.records.transforms.options import parse_stages, refused_partitioners

KAFKA = "org.apache.kafka.connect.transforms."


def one(type_: str, **options: str) -> dict[str, str]:
    """A chain of one transform; `__` stands for a dot."""
    config = {"transforms": "t", "transforms.t.type": KAFKA + type_}
    return config | {f"transforms.t.{name.replace('__', '.')}": value for name, value in options.items()}


def faults_of(config: dict[str, str]) -> dict[str, str]:
    with pytest.raises(ConfigInvalid) as caught:
        parse_source_records({"value.converter": JSON, "key.converter": JSON, **config}, {})
    return {fault.where: fault.what for fault in caught.value.faults}


def test_no_transforms_are_an_empty_chain():
    assert parse_stages({"transforms": " ", "name": "x"}) == ()


def test_a_chain_is_read_in_the_order_of_its_names():
    config = {
        "transforms": "make , take,route",
        "transforms.make.type": "ValueToKey",
        "transforms.make.fields": "a , b",
        "transforms.take.type": KAFKA + "ExtractField$Key",
        "transforms.take.field": "a",
        "transforms.take.replace.null.with.default": "false",
        "transforms.route.type": KAFKA + "RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "",
    }
    assert parse_stages(config) == (
        Stage("make", ValueToKey(("a", "b"))),
        Stage("take", ExtractField("a", nulls_take_default=False), on_key=True),
        Stage("route", RegexRouter("(.*)", "")),
    )


@pytest.mark.parametrize(
    ("config", "change"),
    [
        (
            one("ReplaceField$Value", include="a,b", renames="a:c"),
            ReplaceField(frozenset("ab"), frozenset(), {"a": "c"}),
        ),
        (one("Cast$Value", spec="a:INT8, b:float64"), Cast({"a": "int8", "b": "double"})),
        (one("Cast$Value", spec="string"), Cast(whole="string")),
        (one("ValueToKey", fields="a,a"), ValueToKey(("a",))),
        (one("SetSchemaMetadata$Value", schema__version="3"), SetSchemaMetadata(None, 3)),
        (
            one("InsertField$Value", topic__field="t!", static__field="s?", static__value=" x "),
            InsertField(topic=Inserted("t", optional=False), static=Inserted("s"), static_value="x"),
        ),
        (one("ExtractField$Value", field="a", field__syntax__version="v2"), ExtractField("a")),
    ],
)
def test_options_are_read_as_kafka_reads_them(config, change):
    (transform,) = parse_stages(config)
    assert transform.change == change


@pytest.mark.parametrize(
    ("config", "where", "what"),
    [
        ({"transforms": "t"}, "transforms", "has no transforms.t.type"),
        ({"transforms": "t,t", "transforms.t.type": "Flatten$Value"}, "transforms", "twice"),
        ({"transforms.x.type": "Flatten$Value"}, "transforms.x.type", "belongs to nothing"),
        (one("InsertHeader", header="h"), "transforms.t.value.literal", "is missing"),
        (
            {**one("InsertHeader", header="h", value__literal="1"), "header.converter": JSON},
            "header.converter",
            "SimpleHeaderConverter",
        ),
        (one("TimestampRouter"), "transforms.t.type", "no timestamp"),
        (one("Cast", spec="int8"), "transforms.t.type", "Cast$Key or Cast$Value"),
        (one("ValueToKey$Key", fields="a"), "transforms.t.type", "ValueToKey"),
        (one("../io.debezium.Unwrap"), "transforms.t.type", "has no transform"),
        (one("ValueToKey"), "transforms.t.fields", "is missing"),
        (one("ValueToKey", fields="a", field="b"), "transforms.t.field", "did you mean fields"),
        (one("ValueToKey", fields="a,,b"), "transforms.t.fields", "empty entry"),
        (
            one("ExtractField$Value", field="`a.b", field__syntax__version="V2"),
            "transforms.t.field",
            "backtick",
        ),
        (one("ReplaceField$Value", whitelist="a"), "transforms.t.whitelist", "use include"),
        (one("ReplaceField$Value", blacklist="a"), "transforms.t.blacklist", "use exclude"),
        (one("ReplaceField$Value", renames="a"), "transforms.t.renames", "colon"),
        (one("ReplaceField$Value", renames="a:c,b:c"), "transforms.t.renames", "twice"),
        (one("InsertField$Value"), "transforms.t.type", "adds no field"),
        (one("InsertField$Value", offset__field="o"), "transforms.t.offset.field", "sink connectors"),
        (one("InsertField$Value", timestamp__field="t!"), "transforms.t.timestamp.field", "required"),
        (one("InsertField$Value", static__field="t"), "transforms.t.static.value", "is missing"),
        (one("MaskField$Value", fields="a", replacement=""), "transforms.t.replacement", "empty"),
        (one("Cast$Value", spec="a:bytes"), "transforms.t.spec", "cannot cast to 'bytes'"),
        (one("Cast$Value", spec="int8,a:int8"), "transforms.t.spec", "at once"),
        (
            one("Cast$Value", spec="a:int8", replace__null__with__default="x"),
            "transforms.t.replace.null.with.default",
            "",
        ),
        (one("SetSchemaMetadata$Value"), "transforms.t.type", "sets nothing"),
        (one("SetSchemaMetadata$Value", schema__version="x"), "transforms.t.schema.version", "whole number"),
        (
            one("SetSchemaMetadata$Value", schema__name="org.apache.kafka.connect.data.Date"),
            "transforms.t.schema.name",
            "Connect's own",
        ),
        (one("RegexRouter", regex="x"), "transforms.t.replacement", "is missing"),
        (one("TimestampConverter$Value", target__type="text"), "transforms.t.target.type", "must be one of"),
        (one("TimestampConverter$Value", target__type="string"), "transforms.t.format", "is missing"),
        (one("Flatten$Value", predicate="p"), "transforms.t.predicate", "'predicates' does not"),
        (one("Flatten$Value", negate="true"), "transforms.t.negate", "without a predicate"),
        ({"predicates": "p"}, "predicates", "has no predicates.p.type"),
        (
            {"predicates": "p", "predicates.p.type": KAFKA + "predicates.Odd"},
            "predicates.p.type",
            "knows TopicNameMatches",
        ),
        (
            {
                **one("RegexRouter", regex="x", replacement="y", predicate="p"),
                "predicates": "p",
                "predicates.p.type": KAFKA + "predicates.RecordIsTombstone",
            },
            "transforms.t.predicate",
            "the topic must be known before",
        ),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(config, where, what):
    assert what in faults_of(config)[where]


def test_all_faults_are_reported_at_once():
    config = {
        "transforms": "a,b",
        "transforms.a.type": KAFKA + "ValueToKey",
        "transforms.b.type": KAFKA + "TimestampRouters",
        "transforms.c.type": "x",
    }
    assert set(faults_of(config)) == {"transforms.a.fields", "transforms.b.type", "transforms.c.type"}


def test_a_predicate_on_the_topic_is_known():
    config = one("Flatten$Value", predicate="p", negate="true") | {
        "predicates": "p",
        "predicates.p.type": KAFKA + "predicates.TopicNameMatches",
        "predicates.p.pattern": "a.*",
    }
    (transform,) = parse_stages(config)
    assert transform.only_if == TopicMatches("a.*", negate=True)


def test_the_converter_of_keys_counts_once_a_transform_makes_keys():
    chain = parse_stages(one("ValueToKey", fields="a"))
    worker = {"value.converter": JSON, "key.converter": JSON, "key.converter.schemas.enable": "false"}
    assert parse_record_options({}, worker).key is None
    assert parse_record_options({}, worker, chain).key == Converter(JSON, schemas_enable=False)
    assert parse_record_options({"key.converter": STRING}, worker, chain).key == Converter(STRING)
    with pytest.raises(Invalid, match=r"key\.converter x\.Avro"):
        parse_record_options({"key.converter": "x.Avro"}, worker, chain)


def test_another_partitioner_is_refused_for_keys():
    config = {"producer.override.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    worker = {"producer.partitioner.ignore.keys": "true"}
    found = {fault.where for fault in refused_partitioners(config, worker)}
    assert found == {"producer.override.partitioner.class", "producer.partitioner.ignore.keys"}
    assert refused_partitioners({}, {"producer.partitioner.ignore.keys": "false"}) == []
