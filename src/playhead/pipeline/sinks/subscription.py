"""Which topics a sink reads: `topics`, or all that `topics.regex` matches, as Connect's consumers subscribe to them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from playhead.errors import Fault
from playhead.kafka.client import Admin
from playhead.kafka.topics import list_topics
from playhead.model import Deadline

TOPICS, REGEX = "topics", "topics.regex"
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class Subscription:
    names: Sequence[str]
    pattern: str = ""

    def find(self, admin: Admin, deadline: Deadline) -> list[str]:
        """The names as they are given; of a pattern those that are there now, without Kafka's own."""
        if not self.pattern:
            return list(self.names)
        wanted = re.compile(self.pattern)
        return [name for name in list_topics(admin, deadline) if wanted.fullmatch(name) and name not in _INTERNAL]


def subscription_of(config: Mapping[str, str]) -> Subscription:
    names = [name.strip() for name in config.get(TOPICS, "").split(",")]
    return Subscription(list(dict.fromkeys(filter(None, names))), config.get(REGEX, "").strip())


def check_subscription(config: Mapping[str, str]) -> list[Fault]:
    wanted = subscription_of(config)
    if bool(wanted.names) == bool(wanted.pattern):
        said = "topics and topics.regex exclude each other" if wanted.names else "names no topic; topics.regex neither"
        return [Fault(TOPICS, None, said)]
    try:
        re.compile(wanted.pattern)
    except re.error as error:
        return [Fault(REGEX, None, f"is not a pattern that Java and Python both understand: {error}")]
    return []
