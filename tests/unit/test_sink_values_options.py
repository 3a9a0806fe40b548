"""The converters of a sink connector: found as Connect finds them, refused by name where the Spark engine has none."""

import pickle

import pytest

pytest.importorskip("pyarrow")
from playhead.errors import Invalid
from playhead.pipeline.records.decode.columns import Columns
from playhead.pipeline.records.decode.lines import JsonLines
from playhead.pipeline.records.decode.options import BYTES, Converter, check_converters, parse_converter
from playhead.pipeline.records.encode.options import JSON, STRING
from playhead.pipeline.records.schema import Schema

WORKER = {"value.converter": JSON, "value.converter.schemas.enable": "false", "key.converter": STRING}
CONTENT = '{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false}'


def test_a_connector_without_converters_takes_the_worker_s():
    assert parse_converter({}, WORKER) == Converter(JSON, schemas_enable=False)
    assert parse_converter({}, WORKER, "key") == Converter(STRING, schemas_enable=False)
    assert check_converters({}, WORKER) == []


def test_a_connector_s_own_converter_inherits_no_setting_of_the_worker():
    assert parse_converter({"value.converter": JSON}, WORKER) == Converter(JSON, schemas_enable=True)


def test_settings_of_a_converter_that_is_not_named_do_not_count():
    assert parse_converter({"value.converter.schemas.enable": "true"}, WORKER).schemas_enable is False


def test_all_settings_of_a_json_converter_are_read():
    config = {
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "TRUE",
        "value.converter.schema.content": CONTENT,
        "value.converter.replace.null.with.default": "false",
        "value.converter.decimal.format": "NUMERIC",
        "value.converter.schemas.cache.size": "10",
    }
    assert check_converters(config, {}) == []
    assert parse_converter(config, {}) == Converter(JSON, True, False, CONTENT)


def test_a_given_schema_counts_only_with_schemas_as_in_connect():
    config = {"value.converter": JSON, "value.converter.schema.content": CONTENT}
    assert not parse_converter(config, {}).has_envelopes
    assert parse_converter(config | {"value.converter.schemas.enable": "false"}, {}).schema_text == ""


@pytest.mark.parametrize(
    ("config", "where", "named"),
    [
        ({"value.converter": "io.confluent.connect.avro.AvroConverter"}, "value.converter", "AvroConverter"),
        ({"key.converter": "io.confluent.connect.avro.AvroConverter"}, "key.converter", "AvroConverter"),
        (
            {"value.converter": JSON, "value.converter.schema.enable": "true"},
            "value.converter.schema.enable",
            "schemas.enable",
        ),
        ({"value.converter": JSON, "value.converter.schemas.enable": "yes"}, "value.converter.schemas.enable", "'yes'"),
        ({"value.converter": JSON, "value.converter.schema.content": "5"}, "value.converter.schema.content", "schema"),
        (
            {"value.converter": STRING, "value.converter.converter.encoding": "UTF-16"},
            "value.converter.converter.encoding",
            "UTF-16",
        ),
        (
            {"value.converter": BYTES, "value.converter.schema.content": CONTENT},
            "value.converter.schema.content",
            "know",
        ),
    ],
)
def test_what_the_engine_does_not_know_is_refused_by_name(config, where, named):
    (fault,) = check_converters(config, WORKER)
    assert fault.where == where
    assert named in fault.what
    with pytest.raises(Invalid, match=named):
        parse_converter(config, WORKER, where.split(".")[0])


@pytest.mark.parametrize("name", [STRING, BYTES])
@pytest.mark.parametrize("side", ["key", "value"])
def test_a_converter_without_schemas_ignores_whether_they_are_enabled_as_in_connect(name, side):
    for given in ("true", "false", ""):
        config = {f"{side}.converter": name, f"{side}.converter.schemas.enable": given}
        assert check_converters(config, WORKER) == []
        assert parse_converter(config, WORKER, side) == Converter(name, schemas_enable=False)


def test_a_value_needs_a_converter_and_a_key_does_not():
    (fault,) = check_converters({}, {})
    assert fault.where == "value.converter"


def test_readers_travel_to_executors():
    for reader in (JsonLines(Converter()), Columns(Converter(), Schema.from_json(CONTENT))):
        assert pickle.loads(pickle.dumps(reader)) == reader  # noqa: S301
