"""Which converter a connector writes with, and the options that shape its records."""

from datetime import datetime, timedelta

import pytest

from playhead.errors import ConfigInvalid, Invalid
from playhead.pipeline.records.encode.options import JSON, STRING, Converter, RecordOptions, parse_record_options
from playhead.pipeline.records.encode.zones import zone_of

WORKER = {"value.converter": JSON, "value.converter.schemas.enable": "false"}


def test_a_connector_without_a_converter_takes_the_worker_s():
    assert parse_record_options({}, WORKER) == RecordOptions(value=Converter(schemas_enable=False))


def test_a_connector_s_own_converter_inherits_no_setting_of_the_worker():
    assert parse_record_options({"value.converter": JSON}, WORKER).value.schemas_enable is True


def test_settings_of_a_converter_that_is_not_named_do_not_count():
    options = parse_record_options({"value.converter.schemas.enable": "true"}, WORKER)
    assert options.value.schemas_enable is False


def test_all_options_of_the_connector_are_read():
    config = {
        "value.converter": JSON,
        "value.converter.schemas.enable": "FALSE",
        "value.converter.decimal.format": "numeric",
        "value.converter.schemas.cache.size": "10",
        "value.converter.replace.null.with.default": "true",
        "key.converter": "com.example.Any",
        "numeric.mapping": "BEST_FIT",
        "timestamp.granularity": "nanos_long",
        "db.timezone": "Europe/Berlin",
    }
    assert parse_record_options(config, {}) == RecordOptions(
        "best_fit", "nanos_long", "Europe/Berlin", Converter(JSON, schemas_enable=False, decimal_format="NUMERIC")
    )


def test_the_older_option_for_numerics_means_precision_only():
    assert parse_record_options({"numeric.precision.mapping": "true"}, WORKER).numeric_mapping == "precision_only"
    both = {"numeric.precision.mapping": "true", "numeric.mapping": "none"}
    assert parse_record_options(both, WORKER).numeric_mapping == "none"


def test_the_string_converter_is_known():
    assert parse_record_options({"value.converter": STRING}, WORKER).value.name == STRING


@pytest.mark.parametrize("given", ["true", "false", ""])
def test_the_string_converter_ignores_whether_schemas_are_enabled_as_in_connect(given):
    config = {"value.converter": STRING, "value.converter.schemas.enable": given}
    assert parse_record_options(config, WORKER).value == Converter(STRING)
    assert parse_record_options({}, config).value == Converter(STRING)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"value.converter": "io.confluent.connect.avro.AvroConverter"}, "io.confluent.connect.avro.AvroConverter"),
        ({"value.converter": JSON, "value.converter.schema.enable": "true"}, "value.converter.schema.enable"),
        ({"value.converter": STRING, "value.converter.converter.encoding": "UTF-16"}, "UTF-16"),
        ({"numeric.mapping": "fit"}, "numeric.mapping"),
        ({"timestamp.granularity": "seconds"}, "timestamp.granularity"),
        ({"db.timezone": "Europe/Berlinn"}, "Europe/Berlinn"),
        ({"value.converter": JSON, "value.converter.schemas.enable": "yes"}, "value.converter.schemas.enable"),
    ],
)
def test_what_is_not_known_is_refused_by_name(config, named):
    with pytest.raises(Invalid, match=named):
        parse_record_options(config, WORKER)


def test_no_converter_at_all_is_refused():
    with pytest.raises(Invalid, match=r"names a value\.converter"):
        parse_record_options({}, {})


@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("UTC", "UTC"),
        ("Z", "UTC"),
        ("GMT+0", "UTC"),
        ("GMT-08:00", "GMT-08:00"),
        ("GMT+8", "GMT+08:00"),
        ("UTC+0530", "GMT+05:30"),
        ("+02:00", "GMT+02:00"),
        ("-18:00", "GMT-18:00"),
        ("PST", "America/Los_Angeles"),
        ("EST", "GMT-05:00"),
        ("Etc/GMT+8", "Etc/GMT+8"),
        ("Asia/Kolkata", "Asia/Kolkata"),
    ],
)
def test_zones_that_java_takes_are_taken(zone, meant):
    assert parse_record_options({"db.timezone": zone}, WORKER).db_timezone == meant


@pytest.mark.parametrize(
    "zone", ["", "GMT+19", "GMT+08:60", "gmt+8", "Berlin", "europe/berlin", "localtime", "+8:0", "EDT"]
)
def test_zones_that_java_does_not_know_are_refused(zone):
    with pytest.raises(ConfigInvalid, match=r"db\.timezone: there is no time zone"):
        parse_record_options({"db.timezone": zone}, WORKER)


@pytest.mark.parametrize(
    ("zone", "hours"), [("UTC", 0), ("GMT-08:00", -8), ("GMT+05:30", 5.5), ("Etc/GMT+8", -8), ("Asia/Tokyo", 9)]
)
def test_offsets_count_eastward(zone, hours):
    assert zone_of(zone).utcoffset(datetime(2024, 1, 2)) == timedelta(hours=hours)  # noqa: DTZ001  a wall time
