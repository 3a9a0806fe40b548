"""Reads the settings of topics from the broker, including defaults, and changes them.

Changes use IncrementalAlterConfigs: settings that are not named do not change. The broker can check a change without applying it.
"""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from playhead.errors import NotFound
from playhead.kafka.client import Admin
from playhead.kafka.faults import code_of, fault_of, retried, translated
from playhead.kafka.topics import answer, seconds
from playhead.model import Deadline

_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker (dynamic)",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "all brokers (dynamic)",
    ConfigSource.STATIC_BROKER_CONFIG.value: "broker file",
    ConfigSource.DEFAULT_CONFIG.value: "default",
}


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """`source`: topic, broker (dynamic), all brokers (dynamic), broker file or default. A sensitive setting has no value."""

    name: str
    value: str | None
    source: str

    @property
    def is_of_topic(self) -> bool:
        return self.source == "topic"

    @property
    def is_default(self) -> bool:
        return self.source == "default"


TopicSettings = dict[str, TopicSetting]


def get_topic_config(admin: Admin, topic: str, deadline: Deadline) -> dict[str, str | None]:
    """Every setting by name. Needs DescribeConfigs on the topic. Raises `NotFound` if the topic does not exist."""
    return {name: setting.value for name, setting in get_topic_settings(admin, topic, deadline).items()}


def get_topic_settings(admin: Admin, topic: str, deadline: Deadline) -> TopicSettings:
    """Every setting with its source."""
    found = list_topic_settings(admin, [topic], deadline)[topic]
    if found is None:
        raise NotFound("topic", topic)
    return found


def list_topic_settings(admin: Admin, topics: Iterable[str], deadline: Deadline) -> dict[str, TopicSettings | None]:
    """The settings of several topics, in one request. None for a topic that does not exist."""
    names = list(dict.fromkeys(topics))
    return retried(lambda: _list(admin, names, deadline), deadline) if names else {}


def _list(admin: Admin, topics: Iterable[str], deadline: Deadline) -> dict[str, TopicSettings | None]:
    wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    futures = admin.raw.describe_configs(wanted, request_timeout=seconds(deadline))
    return {resource.name: _settings(resource.name, future, deadline) for resource, future in futures.items()}


def _settings(topic: str, future: "Future[Any]", deadline: Deadline) -> TopicSettings | None:
    doing = f"reading the settings of {topic}"
    try:
        found = answer(future, doing, deadline)
    except KafkaException as error:
        if code_of(error).code() in _ABSENT:
            return None
        raise fault_of(code_of(error), doing) from None
    return {name: TopicSetting(name, entry.value, _source(entry.source)) for name, entry in found.items()}


def _source(code: int) -> str:
    return _SOURCES.get(code, "unknown")


def creates_topics(admin: Admin, deadline: Deadline) -> bool:
    """Whether the brokers create a topic when a client asks for it (auto.create.topics.enable)."""
    doing, option = "reading auto.create.topics.enable", "auto.create.topics.enable"
    broker = ConfigResource(ResourceType.BROKER, str(admin.cluster.brokers[0].id))
    with translated(doing):
        futures = admin.raw.describe_configs([broker], request_timeout=seconds(deadline))
        found = answer(futures[broker], doing, deadline)
    return option in found and found[option].value == "true"


def alter_topic_config(
    admin: Admin,
    topic: str,
    wanted: Mapping[str, str],
    unset: Collection[str],
    deadline: Deadline,
    *,
    validate_only: bool = False,
) -> None:
    """Sets some settings and removes others, so that the broker's default applies. The broker applies all or nothing."""
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in wanted.items()]
    entries += [ConfigEntry(n, None, incremental_operation=AlterConfigOpType.DELETE) for n in unset]
    if not entries:
        return
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    doing = f"changing the settings of {topic}"
    with translated(doing):
        futures = admin.raw.incremental_alter_configs(
            [resource], request_timeout=seconds(deadline), validate_only=validate_only
        )
        answer(futures[resource], doing, deadline)
