"""Single message transforms: Kafka's own, as values. What they do to a record is in `chain`, with Spark; this part needs none.

A transform here stands for one of Kafka 4.3's `org.apache.kafka.connect.transforms` with the options that it was given. Its
outcome is known when a stream is planned, apart from the values: the topic, the shape of key and value, and their schemas.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ValueToKey:
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExtractField:
    field: str


@dataclass(frozen=True, slots=True)
class HoistField:
    field: str


@dataclass(frozen=True, slots=True)
class ReplaceField:
    """`include` empty: all."""

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    renames: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inserted:
    """A field to add; `optional` unless its option ended in `!`."""

    name: str
    optional: bool = True


@dataclass(frozen=True, slots=True)
class InsertField:
    """The partition and the timestamp of a source record are not known yet: Kafka adds these fields with null."""

    topic: Inserted | None = None
    partition: Inserted | None = None
    timestamp: Inserted | None = None
    static: Inserted | None = None
    static_value: str = ""


@dataclass(frozen=True, slots=True)
class MaskField:
    fields: frozenset[str]
    replacement: str | None = None


@dataclass(frozen=True, slots=True)
class Cast:
    """`whole`: the type of the key or value itself. Types are those of JsonConverter's schemas."""

    fields: Mapping[str, str] = field(default_factory=dict)
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata:
    name: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Flatten:
    delimiter: str = "."


@dataclass(frozen=True, slots=True)
class TimestampConverter:
    """`field` empty: the whole key or value. `format` is Java's SimpleDateFormat, as far as Spark prints the same."""

    field: str
    target: str
    format: str
    unit: str


@dataclass(frozen=True, slots=True)
class RegexRouter:
    regex: str
    replacement: str


@dataclass(frozen=True, slots=True)
class TopicMatches:
    """The predicate TopicNameMatches, the only one that is known before a record is there."""

    pattern: str
    negate: bool


Change = (
    ValueToKey
    | ExtractField
    | HoistField
    | ReplaceField
    | InsertField
    | MaskField
    | Cast
    | SetSchemaMetadata
    | Flatten
    | TimestampConverter
    | RegexRouter
)


@dataclass(frozen=True, slots=True)
class Transform:
    """`alias` is its name in `transforms`; `on_key` is what the class name's `$Key` says."""

    alias: str
    change: Change
    on_key: bool = False
    only_if: TopicMatches | None = None


Chain = tuple[Transform, ...]


def makes_keys(chain: Iterable[Transform]) -> bool:
    return any(isinstance(transform.change, ValueToKey) for transform in chain)
