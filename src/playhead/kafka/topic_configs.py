"""The settings of a topic as the broker sees them, defaults included."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from playhead.errors import NotFound
from playhead.kafka.client import Admin
from playhead.kafka.faults import code_of, fault_of, retried
from playhead.kafka.topics import answer, seconds
from playhead.model import Deadline

_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)


def get_topic_config(admin: Admin, topic: str, deadline: Deadline) -> dict[str, str | None]:
    """Every setting by name. Needs the right to describe the topic's settings; a topic that is not there is `NotFound`."""
    return retried(lambda: _get(admin, topic, deadline), deadline)


def _get(admin: Admin, topic: str, deadline: Deadline) -> dict[str, str | None]:
    doing = f"asking for the settings of {topic}"
    resource = ConfigResource(ResourceType.TOPIC, topic)
    future = admin.raw.describe_configs([resource], request_timeout=seconds(deadline))[resource]
    try:
        found = answer(future, doing, deadline)
    except KafkaException as error:
        if code_of(error).code() in _ABSENT:
            raise NotFound("topic", topic) from None
        raise fault_of(code_of(error), doing) from None
    return {name: entry.value for name, entry in found.items()}
