"""What is wrong between connectors that are each right: one name, one consumer group or one topic for two of them.

A topic is known only where the config says it: a file source, a JDBC source with its tables or its query, a data generator. A
transform that may change the topic, or a list of tables that is a pattern, leaves it unknown, and then nothing is said.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from playhead.errors import Fault
from playhead.model import ConnectorSpec, Origin

GROUP = "consumer.override.group.id"
_KAFKA_TRANSFORMS = "org.apache.kafka.connect.transforms."
_TABLE = re.compile(r"[\w$ -]+(?:\.[\w$ -]+)*")
_TABLE_LISTS = ("table.whitelist", "table.include.list")


def cross_faults(specs: Sequence[ConnectorSpec], *, shared_topics: bool = False) -> list[Fault]:
    faults = [*_names(specs), *_groups(specs)]
    return faults if shared_topics else [*faults, *_topics(specs)]


def _names(specs: Sequence[ConnectorSpec]) -> Iterator[Fault]:
    seen: dict[str, ConnectorSpec] = {}
    for spec in specs:
        first = seen.setdefault(spec.name, spec)
        if first is spec:
            continue
        if first.origin == spec.origin and spec.origin.part.startswith("template "):
            what = (
                f"the template makes the connector {spec.name!r} more than once; put every field of 'for' into its name"
            )
        else:
            what = f"the connector {spec.name!r} is given twice, here and at {_place(first.origin)}"
        yield _fault(spec.origin, what)


def _groups(specs: Sequence[ConnectorSpec]) -> Iterator[Fault]:
    seen: dict[str, ConnectorSpec] = {}
    for spec in specs:
        if not spec.is_sink:
            continue
        group = spec.config.get(GROUP) or f"connect-{spec.name}"
        first = seen.setdefault(group, spec)
        if first.name != spec.name:
            what = f"the sinks {first.name!r} and {spec.name!r} share the consumer group {group!r}"
            yield _fault(spec.origins.get(GROUP, spec.origin), f"{what}; give one of them another {GROUP}")


def _topics(specs: Sequence[ConnectorSpec]) -> Iterator[Fault]:
    seen: dict[str, ConnectorSpec] = {}
    for spec in specs:
        key, topics = topics_of(spec.config)
        for topic in dict.fromkeys(topics):
            first = seen.setdefault(topic, spec)
            if first.name != spec.name:
                what = f"the sources {first.name!r} and {spec.name!r} write to the same topic {topic!r}"
                yield _fault(spec.origins.get(key, spec.origin), what)


def topics_of(config: Mapping[str, str]) -> tuple[str, list[str]]:
    """The key that decides, and the topics a source writes to as far as they can be known."""
    name = config.get("connector.class", "").rpartition(".")[2].removesuffix("Connector")
    known = _KNOWN.get(name)
    if known is None or not _keeps_topic(config):
        return "", []
    key, topics = known
    return key, [topic for topic in topics(config) if topic]


def _keeps_topic(config: Mapping[str, str]) -> bool:
    """Kafka's own transforms leave the topic alone, but for its routers; nobody knows about others."""
    aliases = [alias.strip() for alias in config.get("transforms", "").split(",") if alias.strip()]
    kinds = [config.get(f"transforms.{alias}.type", "") for alias in aliases]
    return all(kind.startswith(_KAFKA_TRANSFORMS) and not kind.endswith("Router") for kind in kinds)


def _one(key: str) -> Callable[[Mapping[str, str]], list[str]]:
    return lambda config: [config.get(key, "").strip()]


def _jdbc(config: Mapping[str, str]) -> list[str]:
    """`topic.prefix` and the bare name of the table; of a query the prefix alone."""
    prefix = config.get("topic.prefix", "")
    if config.get("query", "").strip():
        return [prefix]
    tables = next((config[key] for key in _TABLE_LISTS if config.get(key)), "").split(",")
    return [prefix + table.strip().rpartition(".")[2] for table in tables if _TABLE.fullmatch(table.strip())]


_KNOWN: dict[str, tuple[str, Callable[[Mapping[str, str]], Iterable[str]]]] = {
    "FileStreamSource": ("topic", _one("topic")),
    "JdbcSource": ("topic.prefix", _jdbc),
    "Datagen": ("kafka.topic", _one("kafka.topic")),
}


def _fault(origin: Origin, what: str) -> Fault:
    return Fault(origin.where, origin.line, what)


def _place(origin: Origin) -> str:
    return f"{origin.where}:{origin.line}" if origin.line else origin.where
