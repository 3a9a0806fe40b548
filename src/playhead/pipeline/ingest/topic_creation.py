"""How a source's missing topics are created: `topic.creation.*` of the connector, as a Connect worker reads it.

The first group whose patterns match the name of a topic has its settings; the group `default` has all other topics. A group
inherits partitions and replication factor from `default`, and nothing else. Without any of these options, or with
`topic.creation.enable=false` in the worker file, Connect leaves it to the brokers to create topics.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from playhead.errors import Fault

PREFIX = "topic.creation."
GROUPS = f"{PREFIX}groups"
DEFAULT = "default"
_ENABLE = f"{PREFIX}enable"  # of the worker file
_INCLUDE, _EXCLUDE, _PARTITIONS, _COPIES = "include", "exclude", "partitions", "replication.factor"
_OWN = (_INCLUDE, _EXCLUDE, _PARTITIONS, _COPIES)
_MOST = {_PARTITIONS: 2**31 - 1, _COPIES: 2**15 - 1}


@dataclass(frozen=True, slots=True)
class NewTopics:
    """The settings of new topics. -1: the broker's default."""

    partitions: int = -1
    copies: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    topics: NewTopics

    def matches(self, topic: str) -> bool:
        return _any(self.include, topic) and not _any(self.exclude, topic)


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """`default` None: missing topics are left to the brokers."""

    default: NewTopics | None = None
    groups: Sequence[Group] = ()

    def find(self, topic: str) -> NewTopics | None:
        return next((group.topics for group in self.groups if group.matches(topic)), self.default)


def check_topic_creation(config: Mapping[str, str]) -> list[Fault]:
    return _Reading(config).read()[1]


def parse_topic_creation(config: Mapping[str, str], worker: Mapping[str, str]) -> TopicCreation:
    """Of a config without faults."""
    if worker.get(_ENABLE, "true").strip().lower() == "false":
        return TopicCreation()
    return _Reading(config).read()[0]


class _Reading:
    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = {name: value for name, value in config.items() if name.startswith(PREFIX)}
        self._faults: list[Fault] = []

    def read(self) -> tuple[TopicCreation, list[Fault]]:
        if not self._config:
            return TopicCreation(), []
        names = [name.strip() for name in self._config.get(GROUPS, "").split(",") if name.strip()]
        if len(set(names)) < len(names):
            self._fault(GROUPS, "names a group twice")
        self._check_names([DEFAULT, *names])
        default = self._topics(DEFAULT, None)
        groups = [
            Group(self._patterns(name, _INCLUDE), self._patterns(name, _EXCLUDE), self._topics(name, default))
            for name in names
            if name != DEFAULT
        ]
        return TopicCreation(default, groups), self._faults

    def _fault(self, name: str, what: str) -> None:
        self._faults.append(Fault(name, None, what))

    def _check_names(self, groups: Sequence[str]) -> None:
        known = tuple(f"{PREFIX}{group}." for group in groups)
        for name in self._config:
            if name != GROUPS and not name.startswith(known):
                self._fault(name, f"belongs to no group: {GROUPS} names only {', '.join(groups)}")

    def _topics(self, group: str, default: NewTopics | None) -> NewTopics:
        prefix = f"{PREFIX}{group}."
        own = {name.removeprefix(prefix): value for name, value in self._config.items() if name.startswith(prefix)}
        return NewTopics(
            self._count(prefix, _PARTITIONS, None if default is None else default.partitions),
            self._count(prefix, _COPIES, None if default is None else default.copies),
            {name: value for name, value in own.items() if name not in _OWN},
        )

    def _count(self, prefix: str, name: str, inherited: int | None) -> int:
        text = self._config.get(prefix + name, "").strip()
        if not text and inherited is not None:
            return inherited
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,10}", text) else 0
        if number != -1 and not 1 <= number <= _MOST[name]:
            given = f", not {text!r}" if text else ""
            self._fault(prefix + name, f"must be a whole number from 1 on, or -1 for the broker's default{given}")
        return number

    def _patterns(self, group: str, which: str) -> tuple[str, ...]:
        option = f"{PREFIX}{group}.{which}"
        patterns = tuple(part.strip() for part in self._config.get(option, "").split(",") if part.strip())
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                self._fault(option, f"{pattern!r} is not a valid regular expression: {error}")
        return patterns


def _any(patterns: Sequence[str], topic: str) -> bool:
    return any(re.fullmatch(pattern, topic) for pattern in patterns)
