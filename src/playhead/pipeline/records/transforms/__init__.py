"""Single message transforms: Kafka's own, as values. What they do to a batch of records is in `apply`, over Arrow columns.

A transform here stands for one of Kafka 4.3's `org.apache.kafka.connect.transforms` with the options that it was given.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ValueToKey:
    fields: tuple[str, ...]
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class ExtractField:
    """`steps`: the names on the way to a nested field (`field.syntax.version` V2); empty: `field` is one name."""

    field: str
    steps: tuple[str, ...] = ()
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class HoistField:
    field: str


@dataclass(frozen=True, slots=True)
class ReplaceField:
    """`include` empty: all."""

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    renames: Mapping[str, str] = field(default_factory=dict)
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class Inserted:
    """A field to add; `optional` unless its option ended in `!`."""

    name: str
    optional: bool = True


@dataclass(frozen=True, slots=True)
class InsertField:
    """The partition and the timestamp of a source record are not known yet: Kafka adds these fields with null.
    It has no offset."""

    topic: Inserted | None = None
    partition: Inserted | None = None
    timestamp: Inserted | None = None
    static: Inserted | None = None
    static_value: str = ""
    offset: Inserted | None = None
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class MaskField:
    """`of_jdbc`: those of `fields` whose values are the JDBC source's own: times are objects of java.sql, which Kafka's mask does
    not know, and decimals keep the scale of their column."""

    fields: tuple[str, ...]
    replacement: str | None = None
    nulls_take_default: bool = True
    of_jdbc: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cast:
    """`whole`: the type of the key or value itself. Types are those of JsonConverter's schemas."""

    fields: Mapping[str, str] = field(default_factory=dict)
    whole: str | None = None
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata:
    name: str | None = None
    version: int | None = None
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class Flatten:
    delimiter: str = "."


@dataclass(frozen=True, slots=True)
class TimestampConverter:
    """`field` empty: the whole key or value. `format` is Java's SimpleDateFormat."""

    field: str
    target: str
    format: str
    unit: str
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class RegexRouter:
    regex: str
    replacement: str


@dataclass(frozen=True, slots=True)
class TimestampRouter:
    topic_format: str = "${topic}-${timestamp}"
    timestamp_format: str = "yyyyMMdd"


@dataclass(frozen=True, slots=True)
class Filter:
    """Drops what its predicate chooses."""


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """`literal` is read as Connect reads a header without a schema: `12` is an int8, `[1, 2]` an array."""

    name: str
    literal: str


@dataclass(frozen=True, slots=True)
class DropHeaders:
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class HeaderFrom:
    """`moves`: the fields are taken out of the key or value; else they are copied."""

    fields: tuple[str, ...]
    headers: tuple[str, ...]
    moves: bool
    nulls_take_default: bool = True


@dataclass(frozen=True, slots=True)
class TopicMatches:
    """The predicate TopicNameMatches, the only one that is known before a record is there."""

    pattern: str
    negate: bool = False


@dataclass(frozen=True, slots=True)
class HasHeader:
    """The predicate HasHeaderKey."""

    name: str
    negate: bool = False


@dataclass(frozen=True, slots=True)
class IsTombstone:
    """The predicate RecordIsTombstone."""

    negate: bool = False


Predicate = TopicMatches | HasHeader | IsTombstone


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
    | TimestampRouter
    | Filter
    | InsertHeader
    | DropHeaders
    | HeaderFrom
)


@dataclass(frozen=True, slots=True)
class Stage:
    """`alias` is its name in `transforms`; `on_key` is what the class name's `$Key` says."""

    alias: str
    change: Change
    on_key: bool = False
    only_if: Predicate | None = None


Stages = tuple[Stage, ...]


def makes_keys(stages: Iterable[Stage]) -> bool:
    """Of records that have none."""
    return any(
        isinstance(stage.change, ValueToKey) or (stage.on_key and isinstance(stage.change, HoistField))
        for stage in stages
    )


def makes_headers(stages: Iterable[Stage]) -> bool:
    return any(isinstance(stage.change, (InsertHeader, HeaderFrom)) for stage in stages)
