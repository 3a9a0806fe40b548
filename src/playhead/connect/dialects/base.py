"""A dialect: the offset maps of one connector, as a table of fields and a few rules.

Most connectors accept any flat map through Connect's REST interface and fail later, in the task, with a ClassCastException: they
cast strictly, so `5.0` or `"5"` in place of a Long is fatal. A dialect reports that before the write. An unknown field is a
warning, because the next version of the connector may know it.

A new connector needs one small file with one `Dialect`, and one line in the registry of this package.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from playhead.connect.dialects.notation import WHOLE, Notation, as_int
from playhead.connect.javajson import hash_map_order
from playhead.errors import Invalid, near_names
from playhead.model import Map
from playhead.model.position import INT64_MAX, INT64_MIN, Scalar


class ValueKind(StrEnum):
    """What Java casts the value to."""

    LONG = "a whole number"
    TEXT = "a text"
    FLAG = "true or false"
    ANY = "anything"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a map. `only`: the only allowed value. `prefix`: a family of names. `lenient`: the connector converts."""

    name: str
    kind: ValueKind = ValueKind.TEXT
    required: bool = False
    low: int = INT64_MIN
    high: int = INT64_MAX
    notation: Notation | None = None
    lenient: bool = False
    prefix: bool = False
    only: str | None = None


class Problem(NamedTuple):
    """`path`: the place in the pair of maps, e.g. `$.offset.position`. Fatal: the connector would fail, or never find it."""

    path: str
    what: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class Completed(NamedTuple):
    """An offset to write, and notes on changes to other fields than the requested ones."""

    offset: Map
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dialect:
    """`shapes` are the forms of a partition, each with its fields in the order in which the connector writes them.

    `marks` are fields of the offset that no other connector has: one of them with a known form of partition identifies it.
    """

    name: str
    classes: tuple[str, ...]
    shapes: tuple[tuple[Field, ...], ...]
    fields: tuple[Field, ...]
    start_over: str
    skip_one: str
    marks: tuple[str, ...] = ()

    def matches(self, partition: Map, offset: Map | None) -> bool:
        """True when only this connector writes such maps. Used when its class is unknown."""
        return self.field_order(partition) is not None and any(name in (offset or ()) for name in self.marks)

    def field_order(self, partition_fields: Iterable[str]) -> tuple[str, ...] | None:
        """The names in the order of the connector's own key bytes; None if this is not a partition of this connector."""
        given_names = set(partition_fields)
        for shape in self.shapes:
            order = tuple(field.name for field in shape)
            if given_names == set(order):
                return order
        return None

    def check(self, partition: Map, offset: Map | None) -> list[Problem]:
        """The problems of this pair. Connect accepts a tombstone for anything, and so does Playhead."""
        if offset is None or not self.fields:
            return []
        shape = self.shape_of(partition)
        wrong = [self._shapeless(partition)] if shape is None else _fields(partition, shape, "$.partition")
        return [*wrong, *_fields(offset, self.fields, "$.offset"), *self.rules(offset)]

    def rules(self, offset: Map) -> list[Problem]:
        """Checks beyond the table of fields."""
        if any(field.required for field in self.fields) or any(value is not None for value in offset.values()):
            return []
        return [Problem("$.offset", "is empty: the connector starts over", False)]

    def shape_of(self, partition: Map) -> tuple[Field, ...] | None:
        """The largest form whose fields are all in this partition."""
        fitting = [shape for shape in self.shapes if all(field.name in partition for field in shape)]
        return max(fitting, key=len, default=None)

    def _shapeless(self, partition: Map) -> Problem:
        forms = " or ".join("{" + ", ".join(field.name for field in shape) + "}" for shape in self.shapes)
        names = sorted({field.name for shape in self.shapes for field in shape})
        hints = [near_names(name, names) for name in partition if name not in names]
        near = next((f"; {hint}" for hint in hints if hint and hint.startswith("did you mean")), "")
        return Problem(
            "$.partition", f"{self.name} keeps its positions under {forms}, not under {_names(partition)}{near}", True
        )

    def parse_field(self, name: str, text: str) -> Scalar:
        """The value of a `name=text` argument."""
        field = find_field(self.fields, name)
        if text == "null":
            return None
        if field is None or field.kind in (ValueKind.ANY, ValueKind.FLAG):
            return parse_literal(text)
        if field.kind is ValueKind.TEXT:
            return _unquoted(text)
        if WHOLE.fullmatch(text):
            return int(text)
        if field.notation is not None:
            return field.notation.read(text)
        raise Invalid(f"{name}: {text!r} is not a whole number")

    def parse_fields(self, texts: Mapping[str, str], current: Map | None) -> Completed:
        """For `offsets set`: parses the texts and merges them into the stored offset."""
        return self.completed(current, {name: self.parse_field(name, text) for name, text in texts.items()})

    def completed(self, current: Map | None, fields: Mapping[str, Scalar]) -> Completed:
        """`fields` merged into `current`. Dependent fields are kept consistent."""
        return Completed(merged(current, fields))

    def readable(self, partition: Map, offset: Map | None) -> str:
        """One line for display."""
        what = "nothing stored, starts over" if offset is None else self.offset_in_words(offset) or "an empty position"
        return _one_line(f"{self.title(partition)}: {what}")

    def title(self, partition: Map) -> str:
        return ", ".join(_plain(value) for value in partition.values()) or "the only partition"

    def offset_in_words(self, offset: Map) -> str:
        return ", ".join(f"{name} {self.in_words(name, value)}" for name, value in offset.items())

    def in_words(self, name: str, value: Scalar) -> str:
        field, number = find_field(self.fields, name), as_int(value)
        if field is None or field.notation is None or number is None:
            return _plain(value)
        return field.notation.show(number)

    def compare(self, a: Map, b: Map) -> int | None:
        """-1, 0 or 1 if `a` is before, at or after `b`; None if that is unknown."""
        return 0 if a == b else None

    def direction(self, before: Map, after: Map) -> str:  # noqa: ARG002
        """What an edit from one offset to the other means, as a note. Empty: unknown."""
        return ""

    def also_forget(self, partition: Map, others: Iterable[Map]) -> list[Map]:  # noqa: ARG002
        """The other stored partitions that would restore the position if only this one were deleted."""
        return []

    def renamed(self, partition: Map, mapping: Mapping[str, str]) -> Map:
        """The partition under other names, e.g. of another server: whole values are replaced."""
        return Map(
            {name: mapping.get(value, value) if isinstance(value, str) else value for name, value in partition.items()}
        )


def hashed(*fields: Field) -> tuple[Field, ...]:
    """A partition that the connector keeps in a Java HashMap: its fields in the iteration order of that map."""
    by_name = {field.name: field for field in fields}
    return tuple(by_name[name] for name in hash_map_order(by_name))


def merged(current: Map | None, fields: Mapping[str, Scalar], drop: Iterable[str] = ()) -> Map:
    left_out = set(drop)
    kept = {} if current is None else {name: value for name, value in current.items() if name not in left_out}
    return Map({**kept, **fields})


def stored(current: Map | None, name: str) -> Scalar:
    return None if current is None else current.get(name)


def find_field(fields: Sequence[Field], name: str) -> Field | None:
    for field in fields:
        if field.name == name or (field.prefix and name.startswith(field.name)):
            return field
    return None


def parse_literal(text: str) -> Scalar:
    """A JSON scalar, else the text itself. A nested value is refused, as in Connect."""
    value: Scalar | list[object] | dict[str, object] = _parsed(text)
    if isinstance(value, list | dict):
        raise Invalid(f"{text}: a nested value is not allowed; Connect accepts only flat ones", "put text in quotes")
    return value


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) and not text.lstrip().startswith('"') else value


def compare_keys(a: tuple[int | str, ...], b: tuple[int | str, ...]) -> int:
    return (a > b) - (a < b)


def _unquoted(text: str) -> str:
    value = _parsed(text)
    return value if isinstance(value, str) else text


def _plain(value: Scalar) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _names(fields: Iterable[str]) -> str:
    return "{" + ", ".join(fields) + "}"


def _fields(given: Map, fields: Sequence[Field], path: str) -> list[Problem]:
    problems = [
        Problem(f"{path}.{needed.name}", "is required, but missing", True)
        for needed in fields
        if needed.required and given.get(needed.name) is None
    ]
    for name, value in given.items():
        field = find_field(fields, name)
        if field is None:
            known = [each.name for each in fields]
            near = near_names(name, known)
            problems.append(
                Problem(
                    f"{path}.{name}",
                    "is not a known field of this connector" + (f"; {near}" if near else ""),
                    False,
                )
            )
        elif value is not None:
            problems += _value(field, value, f"{path}.{name}")
    return problems


def _converts(kind: ValueKind, value: Scalar) -> bool:
    if kind is ValueKind.FLAG:
        return value in ("true", "false")
    return as_int(value) is not None or (kind is ValueKind.LONG and isinstance(value, float))


def _value(field: Field, value: Scalar, path: str) -> list[Problem]:
    if field.kind is ValueKind.ANY:
        return []
    fits = {
        ValueKind.LONG: isinstance(value, int) and not isinstance(value, bool),
        ValueKind.TEXT: isinstance(value, str),
        ValueKind.FLAG: isinstance(value, bool),
    }[field.kind]
    if not fits:
        shown = json.dumps(value)
        if field.lenient and _converts(field.kind, value):
            return [Problem(path, f"is {shown}; the connector writes {field.kind} itself", False)]
        return [Problem(path, f"must be {field.kind}, not {shown}: the task would fail on it", True)]
    if field.only is not None and value != field.only:
        return [Problem(path, f'must be "{field.only}", the only allowed value, not {json.dumps(value)}', True)]
    if isinstance(value, int) and not field.low <= value <= field.high:
        bound = f"below {field.low}" if value < field.low else f"above {field.high}"
        return [Problem(path, f"{value} is {bound}", True)]
    return []
