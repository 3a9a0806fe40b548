"""How a source's missing topics are created, by the rules of Connect."""

import pytest

from playhead.pipeline.ingest.topic_creation import NewTopics, check_topic_creation, parse_topic_creation

DEFAULT = {"topic.creation.default.partitions": "6", "topic.creation.default.replication.factor": "3"}
GROUPS = {
    **DEFAULT,
    "topic.creation.default.compression.type": "zstd",
    "topic.creation.groups": "codes, logs",
    "topic.creation.codes.include": "t_code_.*,t_units",
    "topic.creation.codes.exclude": "t_code_old.*",
    "topic.creation.codes.partitions": "1",
    "topic.creation.codes.cleanup.policy": "compact",
    "topic.creation.logs.include": "t_.*",
    "topic.creation.logs.replication.factor": "-1",
}


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [
        ("t_code_countries", NewTopics(1, 3, {"cleanup.policy": "compact"})),
        ("t_units", NewTopics(1, 3, {"cleanup.policy": "compact"})),
        ("t_code_old_1", NewTopics(6, -1)),  # the next group that matches
        ("t_login", NewTopics(6, -1)),
        ("my_t_units", NewTopics(6, 3, {"compression.type": "zstd"})),  # a pattern matches the whole name
    ],
)
def test_the_first_group_that_matches_has_the_topic(topic: str, wanted: NewTopics):
    assert check_topic_creation(GROUPS) == []
    assert parse_topic_creation(GROUPS, {}).find(topic) == wanted


def test_without_options_or_with_a_worker_that_creates_none_it_is_left_to_the_brokers():
    assert parse_topic_creation({"topic.prefix": "t_"}, {}).find("t_x") is None
    assert parse_topic_creation(GROUPS, {"topic.creation.enable": "false"}).find("t_x") is None
    assert parse_topic_creation(GROUPS, {"topic.creation.enable": "true"}).find("t_x") is not None


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"topic.creation.default.partitions": "0"}, "topic.creation.default.partitions"),
        ({"topic.creation.default.replication.factor": "40000"}, "topic.creation.default.replication.factor"),
        ({"topic.creation.codes.include": "t_("}, "topic.creation.codes.include"),
        ({"topic.creation.more.partitions": "1"}, "topic.creation.more.partitions"),
        ({"topic.creation.groups": "codes,logs,codes"}, "topic.creation.groups"),
    ],
)
def test_faults_are_named(more: dict[str, str], named: str):
    assert [fault.where for fault in check_topic_creation({**GROUPS, **more})] == [named]


def test_the_default_group_needs_both_numbers_as_in_connect():
    (fault,) = check_topic_creation({"topic.creation.default.partitions": "1"})
    assert fault.where == "topic.creation.default.replication.factor"
