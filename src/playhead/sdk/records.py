"""Records of sources and sinks, and what is checked of a source's records wherever it runs.

A source partition names a part of the source (`{"region": "eu"}`), an offset a place in it (`{"page": 7}`): flat maps of text,
numbers, true, false and null, as in Connect. The offset of a record is where a restart goes on: after this record.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from playhead.errors import Invalid, Rejected
from playhead.model.position import INT64_MAX, INT64_MIN, Map
from playhead.sdk.schema import Schema

Value = None | bool | int | float | str | bytes | Decimal | datetime | date | time | list[Any] | dict[str, Any]
Fields = Mapping[str, bool | int | float | str | None]
_SIMPLE = (bool, int, float, str, bytes, date, time)
Headers = Mapping[str, Any] | Sequence[tuple[str, Any]]


class SourceRecord(msgspec.Struct, frozen=True):
    """One record for a topic. `partition` and `offset`: the source partition, and the offset after this record. `timestamp`: a
    datetime with a time zone, or milliseconds since 1970. `kafka_partition` None: by the key, as Kafka's producer chooses."""

    topic: str
    value: Any = None
    key: Any = None
    partition: dict[str, Any] = {}
    offset: dict[str, Any] = {}
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    headers: Headers | None = None
    timestamp: datetime | int | None = None
    kafka_partition: int | None = None


class RecordColumns(NamedTuple):
    """Records of a poll, field by field: thousands of them are checked and written as columns."""

    topics: Sequence[str]
    values: Sequence[Any]
    keys: Sequence[Any]
    partitions: Sequence[dict[str, Any]]
    offsets: Sequence[dict[str, Any]]
    value_schemas: Sequence[Schema | None]
    key_schemas: Sequence[Schema | None]
    headers: Sequence[Headers | None]
    timestamps: Sequence[datetime | int | None]
    kafka_partitions: Sequence[int | None]

    @classmethod
    def of(cls, records: Sequence[SourceRecord]) -> "RecordColumns":
        if set(map(type, records)) == {SourceRecord}:  # one tuple at a time: thousands would wake the garbage collector
            flat = list(chain.from_iterable(map(msgspec.structs.astuple, records)))
            return cls._make(flat[at :: len(cls._fields)] for at in range(len(cls._fields)))
        return cls._make([getattr(one, name) for one in records] for name in SourceRecord.__struct_fields__)

    def take(self, rows: Sequence[int]) -> "RecordColumns":
        if len(rows) == 1:
            return RecordColumns._make((column[rows[0]],) for column in self)
        return RecordColumns._make(map(itemgetter(*rows), self))


class SinkRecord(msgspec.Struct, frozen=True):
    """One record of a topic. `kafka_offset` is its offset there; `timestamp` is in milliseconds."""

    topic: str
    kafka_partition: int
    kafka_offset: int
    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, Any]] = ()
    timestamp: int | None = None


def check_record(record: object) -> SourceRecord:
    """Raises Rejected if it is no record that can be sent. The sentence goes after the number of the record."""
    if not isinstance(record, SourceRecord):
        raise Rejected(f"is a {type(record).__name__}: poll gives records of type SourceRecord")
    if not isinstance(record.topic, str) or not record.topic:
        raise Rejected(f"has the topic {record.topic!r}, which is no name")
    for name, fields in (("partition", record.partition), ("offset", record.offset)):
        if not isinstance(fields, dict) or not fields:
            raise Rejected(f"has the {name} {fields!r}: it must be a dict with at least one field")
    if record.timestamp is not None and timestamp_ms(record.timestamp) <= 0:  # 0 is "none given" for a Kafka client
        raise Rejected(f"has the timestamp {record.timestamp}, which is not after 1970-01-01")
    wanted = record.kafka_partition
    if wanted is not None and (type(wanted) is not int or wanted < 0):
        raise Rejected(f"has the kafka_partition {wanted!r}, which is no number of a partition")
    return record


def check_value(value: Any) -> None:
    """Raises Rejected for what no record can have as key or value, where no schema is declared."""
    if type(value) is dict:
        for name in value:
            if type(name) is not str:
                raise Rejected(f"has a dict with the key {name!r}, which is no text")
    if isinstance(value, list | tuple) or type(value) is dict:
        for one in value.values() if type(value) is dict else value:
            check_value(one)
    elif (wrong := _wrong_of(value)) is not None:
        raise Rejected(wrong)


def _wrong_of(value: Any) -> str | None:
    kind = type(value)
    if isinstance(value, datetime):
        return None if value.tzinfo else f"has the datetime {value.isoformat()}, which has no time zone"
    if isinstance(value, Decimal):
        return None if value.is_finite() else f"has the decimal {value}, which Connect does not have"
    if kind is int and not INT64_MIN <= value <= INT64_MAX:
        return f"has the number {value}, which does not fit into 64 bits"
    is_known = value is None or kind in _SIMPLE
    return None if is_known else f"has a value of type {kind.__name__}, which Connect does not have"


def timestamp_ms(given: datetime | int) -> int:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise Rejected(f"has the timestamp {given.isoformat()}, which has no time zone")
        return int(given.timestamp() * 1000)
    if type(given) is not int:
        raise Rejected(f"has a timestamp of type {type(given).__name__}: a datetime or milliseconds")
    return given


def position_map(fields: Mapping[str, Any], kind: str) -> Map:
    """Raises Rejected for what Connect could not store."""
    try:
        return Map(fields)
    except Invalid as error:
        raise Rejected(
            f"has {'an' if kind == 'offset' else 'a'} {kind} that Connect cannot store: {error.what.removeprefix('$.')}"
        ) from None


def is_plain(fields: Mapping[str, Any]) -> bool:
    """Whether `position_map` has nothing to say about it. Quick: it is asked for every record."""
    for name, value in fields.items():
        kind = type(value)
        if type(name) is not str or not name.isascii():
            return False
        if kind is int:
            if not INT64_MIN <= value <= INT64_MAX:
                return False
        elif not (kind is bool or value is None or (kind is str and value.isascii())):
            return False
    return True


def goes_back(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether an offset is certainly before another one of the same source partition: the same fields, all of them numbers, none
    greater and one smaller. Of offsets with texts in them the order is not known."""
    if before.keys() != after.keys():
        return False
    is_smaller = False
    for name, old in before.items():
        new = after[name]
        if type(old) not in (int, float) or type(new) not in (int, float) or new > old:
            return False
        is_smaller = is_smaller or new < old
    return is_smaller
