"""Readers of the forms in `formats`: text to positions. Every fault is reported with its line or JSON path.

All faults of a file are collected before they are reported. JSON is read strictly: a duplicate name in one object, NaN, and
numbers that do not fit into 64 bits are faults, never silently another value.
"""

import csv
import json
import re
from collections.abc import Iterable, Sequence

from playhead.errors import ConfigInvalid, Fault, Invalid
from playhead.model import Map, Position
from playhead.model.position import INT64_MAX

KAFKA_PARTITION, KAFKA_OFFSET = frozenset({"kafka_topic", "kafka_partition"}), frozenset({"kafka_offset"})
INT32_MAX = 2**31 - 1
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_SEPARATOR = re.compile(r"[^\w\"\[\]{}]+")
_MOST_FAULTS = 20
_HEADER = {"topic", "group", "partition", "offset", "current-offset", "new-offset"}


class Faults:
    """The faults of one file. Empty if all of it is valid."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._faults: list[Fault] = []
        self._more = 0

    def add(self, what: str, line: int | None = None) -> None:
        if len(self._faults) < _MOST_FAULTS:
            self._faults.append(Fault(self.where, line, what))
        else:
            self._more += 1

    def speak(self) -> None:
        if self._more:
            self._faults.append(Fault(self.where, None, f"... and {self._more} more"))
        if self._faults:
            raise ConfigInvalid(self._faults, "nothing was read from this file")

    def map(self, fields: dict[str, object], path: str, line: int | None = None) -> Map | None:
        try:
            return Map(fields, path)
        except Invalid as error:
            self.add(error.what, line)
            return None


class _Repeated(dict[str, object]):
    """An object with a duplicate name."""

    name = ""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    names = [name for name, _ in pairs]
    repeated = _Repeated(fields)
    repeated.name = next(name for name in names if names.count(name) > 1)
    return repeated


def _constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def parse_json(text: str, where: str) -> object:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ConfigInvalid([Fault(where, error.lineno, f"{error.msg} (column {error.colno})")]) from None
    except (ValueError, RecursionError) as error:  # NaN, a number of thousands of digits, thousands of brackets
        raise ConfigInvalid([Fault(where, None, f"this is not usable JSON: {error}")]) from None


def kind_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names: list[tuple[type, str]] = [(dict, "an object"), (list, "a list"), (str, "text"), (int, "a number")]
    return next((name for kind, name in names if isinstance(value, kind)), "a number")


def read_object(value: object, path: str, faults: Faults, line: int | None = None) -> dict[str, object] | None:
    if isinstance(value, _Repeated):
        faults.add(f"{path}.{value.name}: is given twice", line)
        return None
    if not isinstance(value, dict):
        faults.add(f"{path}: must be an object, not {kind_of(value)}", line)
        return None
    return value


def read_fields(value: object, path: str, names: Sequence[str], faults: Faults) -> dict[str, object] | None:
    """An object of exactly these fields."""
    fields = read_object(value, path, faults)
    if fields is None:
        return None
    for name in fields:
        if name not in names:
            faults.add(f"{path}.{name}: is unknown; allowed: {' and '.join(names)}")
    missing = [name for name in names if name not in fields]
    for name in missing:
        faults.add(f"{path}.{name}: is missing" + ("; write null to delete a position" if name == "offset" else ""))
    return None if missing else fields


def read_pairs(value: object, path: str, owner: str, faults: Faults, is_log: bool = False) -> list[Position]:
    """The list of partition and offset that Connect, Strimzi and KIP-199 share. In a log the last pair counts."""
    if not isinstance(value, list):
        faults.add(f"{path}: must be a list, not {kind_of(value)}")
        return []
    if not value and not is_log:
        faults.add(f"{path}: the list is empty")
    if not is_owner(owner):
        faults.add(f"{path}: {owner!r} is not a name")
    found: dict[Map, str] = {}
    positions: dict[Map, Position] = {}
    for i, item in enumerate(value):
        here = f"{path}[{i}]"
        fields = read_fields(item, here, ("partition", "offset"), faults)
        position = None if fields is None else _position(owner, fields["partition"], fields["offset"], here, faults)
        if position is None:
            continue
        if position.partition in found and not is_log:
            faults.add(f"{here}.partition: is given twice, here and at {found[position.partition]}")
        found[position.partition] = f"{here}.partition"
        positions[position.partition] = position
    return list(positions.values())


def _position(owner: str, partition: object, offset: object, path: str, faults: Faults) -> Position | None:
    place = read_object(partition, f"{path}.partition", faults)
    value = None if offset is None else read_object(offset, f"{path}.offset", faults)
    where = None if place is None else faults.map(place, f"{path}.partition")
    at = None if value is None else faults.map(value, f"{path}.offset")
    if where is None or (at is None and offset is not None):
        return None
    check_kafka(where, at, path, faults)
    return Position(owner, where, at)


def check_kafka(partition: Map, offset: Map | None, path: str, faults: Faults, line: int | None = None) -> None:
    """The position of a sink has Kafka's fixed fields. The maps of a source are not checked."""
    if not (set(partition) >= KAFKA_PARTITION or set(offset or ()) >= KAFKA_OFFSET):
        return
    for name in sorted(KAFKA_PARTITION - set(partition)):
        faults.add(f"{path}.partition.{name}: is missing", line)
    for name in sorted(set(partition) - KAFKA_PARTITION):
        faults.add(f"{path}.partition.{name}: does not belong to the partition of a Kafka topic", line)
    for what in _kafka_values(partition, offset):
        faults.add(f"{path}.{what}", line)
    for name in sorted(set(offset or ()) - KAFKA_OFFSET):
        faults.add(f"{path}.offset.{name}: does not belong to a Kafka offset", line)


def _kafka_values(partition: Map, offset: Map | None) -> Iterable[str]:
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    if "kafka_topic" in partition and not is_topic(topic):
        yield f"partition.kafka_topic: {json.dumps(topic)} is not the name of a topic"
    if "kafka_partition" in partition and not is_whole(number, INT32_MAX):
        yield f"partition.kafka_partition: {_whole_fault(number)}"
    if offset is None:
        return
    if "kafka_offset" not in offset:
        yield "offset.kafka_offset: is missing"
    elif not is_whole(offset["kafka_offset"], INT64_MAX):
        yield f"offset.kafka_offset: {_whole_fault(offset['kafka_offset'])}"


def _whole_fault(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value} is below 0" if value < 0 else f"{value} is too large"
    return f"must be a whole number, not {json.dumps(value)}"


def is_owner(name: str) -> bool:
    return bool(name) and not any("\ud800" <= character <= "\udfff" for character in name)


def is_topic(name: object) -> bool:
    return isinstance(name, str) and bool(_TOPIC.fullmatch(name)) and name not in (".", "..")


def is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def read_kafka_tree(value: object, path: str, owner: str, faults: Faults) -> list[Position]:
    """`{"topic": {"0": 23}}`, as Spark and Yelp's tools write it."""
    topics = read_object(value, path, faults)
    if topics is not None and not topics:
        faults.add(f"{path}: names no topic")
    positions = []
    for topic, partitions in (topics or {}).items():
        if not is_topic(topic):
            faults.add(f"{path}.{topic}: this is not the name of a topic")
        numbers = read_object(partitions, f"{path}.{topic}", faults)
        if numbers is not None and not numbers:
            faults.add(f"{path}.{topic}: names no partition")
        for number, offset in (numbers or {}).items():
            here = f"{path}.{topic}.{number}"
            partition = int(number) if _WHOLE.fullmatch(number) and len(number) < 12 else None
            if not is_whole(partition, INT32_MAX):
                faults.add(f"{here}: {number!r} is not the number of a partition")
            elif not is_whole(offset, INT64_MAX):
                faults.add(f"{here}: {_not_an_offset(offset)}")
            elif isinstance(partition, int) and isinstance(offset, int) and is_topic(topic):
                positions.append(Position.of_kafka(owner, topic, partition, offset))
    return positions


def _not_an_offset(value: object) -> str:
    if value in (-1, -2) and isinstance(value, int):
        word = "earliest" if value == -2 else "latest"
        return f"{value} stands for the {word} record at the time of reading; it is not a position"
    return (
        _whole_fault(value) if not isinstance(value, dict | list) else f"must be a whole number, not {kind_of(value)}"
    )


def lines_of(text: str) -> list[str]:
    """Only a line feed ends a line: other separators may be part of a name."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def split_csv(line: str) -> list[str] | None:
    """The columns of one line, None if its quotes are invalid. Kafka's tool reads line by line, so no name spans two."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return None


def read_kafka_line(owner: str, columns: Sequence[str], faults: Faults, line: int) -> Position | None:
    """The three columns topic, partition, offset."""
    topic, *numbers = columns
    if line == 1 and {column.strip().lower() for column in columns} <= _HEADER:
        faults.add("this is a header; remove it, because Kafka's own tool does not accept one", line)
        return None
    wrong = [] if is_topic(topic) else [f"{topic!r} is not the name of a topic"]
    values = []
    for name, text, most in zip(("partition", "offset"), numbers, (INT32_MAX, INT64_MAX), strict=True):
        value = int(text) if _WHOLE.fullmatch(text.strip()) and len(text) < 40 else None
        values.append(value)
        if value is None:
            wrong.append(f"the {name} {text!r} is not a whole number")
        elif not is_whole(value, most):
            wrong.append(f"the {name} {_whole_fault(value)}")
    for what in wrong:
        faults.add(what, line)
    if wrong or values[0] is None:
        return None
    return Position.of_kafka(owner, topic, values[0], values[1])


class RecordReader:
    """Lines as `kcat -K` prints the records of the offsets topic: key, separator, value.

    It is a log: a later record of the same key replaces the earlier one, as in the topic. Two keys that are equal as JSON but not
    as bytes are two keys to the worker. Which of them counts is unknown from these lines.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._separator: str | None = None
        self._records: dict[str, Position] = {}
        self._keys: dict[tuple[str, Map], tuple[str, int]] = {}

    def positions(self) -> list[Position]:
        return list(self._records.values())

    def read(self, line: str, number: int) -> None:
        try:
            key, end = _DECODER.raw_decode(line)
        except (ValueError, RecursionError) as error:
            self._faults.add(f"the key is not JSON: {error}", number)
            return
        place = self._place(key, number)
        known, value = self._value(line[end:], number)
        if place is None or not known:
            return
        owner, partition = place
        check_kafka(partition, value, "$", self._faults, number)
        former, at = self._keys.setdefault(place, (line[:end], number))
        if former != line[:end]:
            self._faults.add(
                f"the key equals that of line {at}, but its bytes differ: to a worker these are two keys", number
            )
        self._records[line[:end]] = Position(owner, partition, value)

    def _place(self, key: object, number: int) -> tuple[str, Map] | None:
        if not isinstance(key, list) or len(key) != 2 or not isinstance(key[0], str) or not is_owner(key[0]):
            self._faults.add("the key must be a list of the connector's name and its partition", number)
            return None
        fields = read_object(key[1], "key[1]", self._faults, number)
        partition = None if fields is None else self._faults.map(fields, "key[1]", number)
        return None if partition is None else (key[0], partition)

    def _value(self, rest: str, number: int) -> tuple[bool, Map | None]:
        """Whether the value is valid, and the value; None is a tombstone."""
        at = rest.find("{")
        separator, text = (rest[:at], rest[at:]) if at >= 0 else (rest.removesuffix("NULL"), "")
        if self._separator is None and _SEPARATOR.fullmatch(separator):
            self._separator = separator
        if separator != self._separator:
            what = f"after the key comes {rest[:20]!r}, not one separator for all lines and an object, NULL or nothing"
            self._faults.add(what, number)
            return False, None
        if not text:
            return True, None
        try:
            fields = read_object(_DECODER.decode(text), "value", self._faults, number)
        except (ValueError, RecursionError) as error:
            self._faults.add(f"the value is not JSON: {error}", number)
            return False, None
        value = None if fields is None else self._faults.map(fields, "value", number)
        return value is not None, value
