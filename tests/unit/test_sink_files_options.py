"""Every option of the S3 sink connector is honoured with its own default, without effect, or refused by its name."""

import pytest

from playhead.errors import ConfigInvalid
from playhead.pipeline.deliver.files.options import check_options, parse_options
from playhead.pipeline.deliver.files.sink import open_files_sink
from unit.sink_files import AS_BYTES, BASE, FORMATS, HOURLY, JSON, PARTITIONERS, options

WORKER = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
S3 = {"format.class": JSON, "flush.size": "1000", "s3.bucket.name": "lake"}
TIMED = HOURLY | {"partitioner.class": f"{PARTITIONERS}TimeBasedPartitioner"}


def _faults(config: dict[str, str]) -> dict[str, str]:
    return {fault.where: fault.what for fault in check_options(config, WORKER)}


def test_defaults_are_the_connectors():
    made = parse_options(S3, WORKER)
    assert (made.names.topics_dir, made.names.folder_delim, made.names.file_delim, made.names.pad) == (
        "topics",
        "/",
        "+",
        10,
    )
    assert (made.store.bucket, made.store.region, made.store.endpoint) == ("lake", "us-west-2", "")
    assert (made.cut.rotate_ms, made.cut.schedule_ms, made.nulls) == (0, 0, "fail")
    assert (made.format.extension, made.partitioner.kind) == (".json", "DefaultPartitioner")
    parquet = parse_options(S3 | {"format.class": f"{FORMATS}parquet.ParquetFormat"}, WORKER)
    assert parquet.format.extension == ".snappy.parquet"


def test_a_config_as_people_have_it_is_taken():
    config = S3 | {
        "name": "orders-s3",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "tasks.max": "4",
        "topics": "orders",
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "schema.compatibility": "NONE",
        "store.url": "http://localhost:9000",
        "s3.region": "eu-central-1",
        "s3.part.size": "5242880",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dlq",
        "behavior.on.null.values": "IGNORE",
        "locale": "en-US",
        "timezone": "UTC",
        "consumer.override.max.poll.records": "5000",
    }
    made = parse_options(config, {})
    assert (made.store.endpoint, made.store.scheme, made.nulls) == ("localhost:9000", "http", "ignore")


def test_all_faults_are_reported_at_once_and_by_name():
    faults = _faults(
        {
            "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
            "flush.sise": "3",
            "store.url": "ftp://x",
            "transforms": "route",
            "aws.secret.access.key": "hunter2",
            "parquet.codec": "brotli",
            "s3.part.size": "1",
            "rotate.schedule.interval.ms": "60000",
            "behavior.on.null.values": "write",
        }
    )
    assert set(faults) == {
        "format.class", "flush.sise", "flush.size", "store.url", "s3.bucket.name", "transforms", "aws.secret.access.key",
        "parquet.codec", "s3.part.size", "timezone", "behavior.on.null.values",
    }  # fmt: skip
    assert (
        faults["flush.sise"].endswith("did you mean flush.size or file.delim?") or "flush.size" in faults["flush.sise"]
    )
    assert "hunter2" not in str(faults)
    with pytest.raises(ConfigInvalid):
        parse_options({}, {})


@pytest.mark.parametrize(("config", "name"), [
    (TIMED | {"partition.duration.ms": "1"}, "path.format"),
    (TIMED | {"path.format": "yyyy"}, "partition.duration.ms"),
    (TIMED | {"path.format": "yyyy/T", "partition.duration.ms": "1"}, "path.format"),
    (TIMED | {"path.format": "MMMM", "partition.duration.ms": "1", "locale": "en-US"}, "path.format"),
    (TIMED | {"path.format": "EEE", "partition.duration.ms": "1", "locale": "de"}, "path.format"),
    (HOURLY | {"timezone": "Europe/Berln"}, "timezone"),
    (HOURLY | {"locale": ""}, "locale"),
    (HOURLY | {"timestamp.extractor": "record"}, "timestamp.extractor"),
    ({"partitioner.class": f"{PARTITIONERS}FieldPartitioner"}, "partition.field.name"),
    ({"partitioner.class": "FieldPartitioner"}, "partitioner.class"),
    ({"topics.dir": "../up"}, "topics.dir"),
    ({"flush.size": "0"}, "flush.size"),
    ({"store.url": "file://host/x", "s3.bucket.name": ""}, "store.url"),
    ({"store.url": "file:///x"}, "s3.bucket.name"),
])  # fmt: skip
def test_what_cannot_be_is_refused(config, name):
    assert list(_faults(S3 | config)) == [name]


def test_a_partitioner_that_reads_fields_does_not_go_with_bytes():
    config = AS_BYTES | {"partitioner.class": f"{PARTITIONERS}FieldPartitioner"}
    assert _faults(S3 | config | {"partition.field.name": "a"}) == {
        "partitioner.class": "cannot read fields: with ByteArrayFormat a value is only bytes"
    }


SCHEMA = '{"type":"struct","fields":[{"type":"int32","field":"id"}]}'
BUCKET = {"store.url": "", "s3.bucket.name": "lake"}


def _shape(config: dict[str, str]) -> str:
    return open_files_sink(BASE | config, {}).shape


def test_the_shape_changes_with_what_changes_the_files():
    others = [
        {},
        {"flush.size": "4"},
        {"topics.dir": "x"},
        {"s3.compression.type": "gzip"},
        HOURLY,
        {"behavior.on.null.values": "ignore"},
    ]
    assert len({_shape(other) for other in others}) == len(others)


def test_the_shape_changes_with_the_converter():
    others = [
        {},
        {"value.converter": "org.apache.kafka.connect.storage.StringConverter"},
        {"value.converter.schemas.enable": "false"},
        {"value.converter.schema.content": SCHEMA},
        {"value.converter.schema.content": SCHEMA.replace("int32", "int64")},
        {"value.converter.replace.null.with.default": "false"},
    ]
    assert len({_shape(other) for other in others}) == len(others)


def test_the_shape_changes_with_the_place():
    others = [
        {},
        {"store.url": "file:///elsewhere"},
        BUCKET,
        BUCKET | {"s3.bucket.name": "pond"},
        BUCKET | {"store.url": "http://localhost:9000"},
    ]
    assert len({_shape(other) for other in others}) == len(others)


def test_the_shape_does_not_change_with_what_leaves_the_files_alone():
    same = {"rotate.schedule.interval.ms": "60000", "timezone": "UTC", "s3.part.retries": "7", "tasks.max": "2"}
    assert _shape({}) == _shape(same)
    assert _shape({}) == _shape({"store.url": "file:///data/"})
    assert _shape({}) == _shape({"key.converter": "org.apache.kafka.connect.storage.StringConverter"})


def test_a_path_format_may_end_in_the_delimiter():
    config = TIMED | {"path.format": "'dt'=yyyyMMdd/", "partition.duration.ms": "86400000"}
    assert options(config).partitioner.path_format == "'dt'=yyyyMMdd"
