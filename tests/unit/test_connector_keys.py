"""Unused keys are found, with the right spelling; keys that may be in use are left alone."""

import pytest

from playhead.connectors.plan.check import Severity, lint_keys

TYPES = {
    "name": "STRING",
    "connector.class": "STRING",
    "tasks.max": "INT",
    "transforms": "LIST",
    "predicates": "LIST",
    "topic.creation.groups": "LIST",
    "errors.tolerance": "STRING",
    "connection.url": "STRING",
    "value.converter": "CLASS",
    "value.converter.plugin.version": "STRING",
    "value.converter.schemas.enable": "BOOLEAN",
    "transforms.route.type": "CLASS",
    "transforms.route.predicate": "STRING",
    "transforms.route.regex": "STRING",
    "transforms.route.replacement": "STRING",
    "transforms.bare.type": "CLASS",
    "producer.override.acks": "STRING",
}
DECLARED = {"transforms": "route,bare", "topic.creation.groups": "small", "value.converter": "JsonConverter"}


def found(config, undefined=()):
    return [(f.key, f.level, f.what) for f in lint_keys(DECLARED | config, TYPES, undefined)]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("task.max", "tasks.max"),
        ("connection.ulr", "connection.url"),
        ("errors.tolerence", "errors.tolerance"),
        ("tranforms", "transforms"),
        ("transforms.route.rexeg", "transforms.route.regex"),
        ("value.converter.schemas.enabled", "value.converter.schemas.enable"),
        ("topic.creation.default.partition", "topic.creation.default.partitions"),
    ],
)
def test_a_typo_is_answered_with_the_right_spelling(key, meant):
    assert found({key: "1"}) == [(key, Severity.WARNING, f"unknown key; did you mean {meant}?")]


@pytest.mark.parametrize(
    "key",
    [
        "name",
        "tasks.max",
        "transforms.route.regex",
        "transforms.bare.whatever",  # the worker does not list its keys
        "topic.creation.default.cleanup.policy",
        "topic.creation.small.include",
        "producer.override.acks",
        "consumer.override.max.poll.records",
    ],
)
def test_what_is_known_or_open_is_left_in_peace(key):
    assert found({key: "1"}) == []


def test_an_unknown_key_like_no_other_is_only_noted():
    [(key, level, what)] = found({"driver.fetchDirection": "1"})
    assert (key, level) == ("driver.fetchDirection", Severity.NOTE)
    assert "as it is" in what


def test_a_transform_that_is_not_declared_has_no_effect():
    [(_, level, what)] = found({"transforms.ruote.regex": "x"})
    assert level is Severity.WARNING
    assert what == "has no effect: 'transforms' does not name it; did you mean route?"
    [(_, _, what)] = found({"predicates.p.type": "x"})
    assert "'predicates' does not name it" in what


def test_settings_of_a_converter_that_is_not_named_have_no_effect():
    [(_, level, what)] = found({"key.converter.schemas.enable": "false"})
    assert level is Severity.WARNING
    assert "key.converter is not set here" in what


def test_a_topic_group_that_is_not_declared_has_no_effect():
    [(_, level, what)] = found({"topic.creation.big.partitions": "9"})
    assert level is Severity.WARNING
    assert "names only default, small" in what


def test_an_override_is_judged_by_the_workers_own_word():
    [(_, level, what)] = found({"producer.override.akcs": "all"}, undefined={"producer.override.akcs"})
    assert level is Severity.WARNING
    assert what.endswith("did you mean producer.override.acks?")


def test_providers_inside_of_a_connector_have_no_effect():
    [(_, _, what)] = found({"config.providers": "file"})
    assert "worker's own file" in what


def test_without_definitions_nothing_is_said():
    assert lint_keys({"whatever": "1"}, {}) == []
