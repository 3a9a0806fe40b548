"""The settings of a topic that another one is copied to."""

import pytest

from playhead.errors import Refused
from playhead.kafka.topic_configs import TopicSetting, TopicSettings
from playhead.pipeline.copy.settings import ANY_AGE, carried_settings, notes_of, scaled, set_aside


def settings_of(**own: str) -> TopicSettings:
    """Of a topic with these settings of its own."""
    defaults = {"message.timestamp.type": "CreateTime", "retention.bytes": "-1", "local.retention.bytes": "-2"}
    defaults |= {"message.timestamp.before.max.ms": ANY_AGE, "cleanup.policy": "delete"}
    found = {name: TopicSetting(name, value, "default") for name, value in defaults.items()}
    return found | {(key := name.replace("_", ".")): TopicSetting(key, value, "topic") for name, value in own.items()}


@pytest.mark.parametrize(("before", "after", "wanted"), [(6, 2, "3000"), (2, 6, "334"), (3, 2, "1500")])
def test_limits_of_a_partition_are_scaled_so_that_the_topic_keeps_as_much(before, after, wanted):
    found = settings_of(retention_bytes="1000", local_retention_bytes="1000")
    carried = carried_settings(found, "orders2", 1, (before, after), is_other=False)
    assert carried["retention.bytes"] == carried["local.retention.bytes"] == wanted
    assert scaled(found, before, before) == {}


def test_a_limit_of_the_broker_is_scaled_and_no_limit_is_none():
    found = settings_of()
    assert scaled(found, 6, 2) == {}
    found["retention.bytes"] = TopicSetting("retention.bytes", "1000", "broker file")
    assert carried_settings(found, "orders2", 1, (6, 2), is_other=False) == {"retention.bytes": "3000"}
    assert list(notes_of(found, "orders", "orders2", (6, 2))) == [
        "retention.bytes is of one partition: 1000 with 6, 3000 with 2"
    ]


def test_what_a_broker_would_do_to_times_is_set_aside():
    found = settings_of(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="5")
    aside = {"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": ANY_AGE}
    assert set_aside(found) == aside == carried_settings(found, "orders2", 1, (2, 2), is_other=False)
    assert ["alter it when all are copied" in note for note in notes_of(found, "a", "b", (2, 2))] == [True, True]
    assert set_aside(settings_of()) == {}


def test_more_replicas_in_sync_than_replicas_are_refused():
    with pytest.raises(Refused, match="it would accept no record"):
        carried_settings(settings_of(min_insync_replicas="2"), "orders2", 1, (2, 2), is_other=False)
