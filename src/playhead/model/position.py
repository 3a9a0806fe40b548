"""The position of a pipeline: `(owner, partition, offset)`, as Kafka Connect defines them.

Partition and offset are flat JSON maps. Connect allows null, booleans, 64-bit integers, floats and strings as values and
refuses nesting; so do we, before anything is sent. Two maps are equal when their JSON is equal field by field: `1`, `1.0`
and `true` are three different values to the connector that reads them, although Python calls them equal.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

from playhead.errors import Invalid

if TYPE_CHECKING:
    from playhead.model.plan import Change

Scalar = None | bool | int | float | str
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UNREADABLE = "(unreadable)"  # the only field of the placeholder for a stored value that Connect would reject
# The same rules as `Map`'s own, for a msgspec decoder.
FIELDS = dict[str, bool | Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)] | float | str | None]


class Map(Mapping[str, Scalar]):
    """An immutable flat JSON object. Keeps its field order, compares without it."""

    __slots__ = ("_canonical", "_fields")

    def __init__(self, fields: Mapping[str, object], path: str = "$") -> None:
        self._fields: dict[str, Scalar] = {name: _checked(name, value, path) for name, value in fields.items()}
        self._canonical: bytes | None = None

    @classmethod
    def decoded(cls, fields: dict[str, Scalar]) -> "Map":
        """From fields that a decoder with the type `FIELDS` has already checked. The dict is not copied."""
        created = cls.__new__(cls)
        created._fields = fields
        created._canonical = None
        return created

    @property
    def fields(self) -> Mapping[str, Scalar]:
        """The fields without a copy, for encoding; `to_dict` returns a copy."""
        return self._fields

    def __getitem__(self, name: str) -> Scalar:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Map) and self._form() == other._form()

    def __hash__(self) -> int:
        return hash(self._form())

    def __lt__(self, other: "Map") -> bool:
        return self._form() < other._form()

    def _form(self) -> bytes:
        """Canonical JSON, equal for equal maps. Computed on first use."""
        if self._canonical is None:
            self._canonical = msgspec.json.encode(self._fields, order="sorted")
        return self._canonical

    def __repr__(self) -> str:
        return self.to_json()

    def to_json(self) -> str:
        """Compact JSON with the fields in their own order."""
        return msgspec.json.encode(self._fields).decode()

    def to_dict(self) -> dict[str, Scalar]:
        return dict(self._fields)

    def merged(self, fields: Mapping[str, object]) -> "Map":
        return Map({**self._fields, **fields})


def _checked(name: object, value: object, path: str) -> Scalar:
    if not isinstance(name, str):
        raise Invalid(f"{path}: field name {name!r} is not a string")
    if not _is_unicode(name):
        raise Invalid(f"{path}: field name {name!r} is not Unicode text")
    if isinstance(value, str) and not _is_unicode(value):
        raise Invalid(f"{path}.{name}: {value!r} is not Unicode text")
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        if INT64_MIN <= value <= INT64_MAX:
            return value
        raise Invalid(f"{path}.{name}: {value} does not fit into 64 bits; Connect would silently store another number")
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise Invalid(f"{path}.{name}: {value} cannot be written as JSON")
    raise Invalid(f"{path}.{name}: a {type(value).__name__} is not allowed; Connect takes only flat values here")


def _is_unicode(text: str) -> bool:
    """Half of a surrogate pair, as a malformed argument or file name contains it, cannot be encoded in UTF-8."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True)
class Position:
    """`offset` None means: delete it. A Kafka offset is always the *next* record to read."""

    owner: str
    partition: Map
    offset: Map | None

    @classmethod
    def of_kafka(cls, owner: str, topic: str, partition: int, next_offset: int | None) -> "Position":
        return cls(
            owner,
            Map({"kafka_topic": topic, "kafka_partition": partition}),
            None if next_offset is None else Map({"kafka_offset": next_offset}),
        )


class Positions:
    """Positions in a stable order, at most one per owner and partition."""

    __slots__ = ("_by_key",)

    def __init__(self, positions: Iterable[Position] = ()) -> None:
        self._by_key: dict[tuple[str, Map], Position] = {}
        for position in sorted(positions, key=lambda p: (p.owner, p.partition)):
            key = (position.owner, position.partition)
            if key in self._by_key:
                raise Invalid(f"{position.owner} has two positions for the partition {position.partition}")
            self._by_key[key] = position

    def __iter__(self) -> Iterator[Position]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions) and self._by_key == other._by_key

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Positions({list(self)!r})"

    @property
    def owners(self) -> list[str]:
        return list(dict.fromkeys(position.owner for position in self))

    def lookup(self, owner: str, partition: Map) -> Position | None:
        return self._by_key.get((owner, partition))

    def for_owner(self, owner: str) -> "Positions":
        return Positions(position for position in self if position.owner == owner)

    def diff(self, wanted: "Positions") -> "list[Change]":
        """The changes that lead from here to `wanted`. Partitions missing from `wanted` are not changed."""
        from playhead.model.plan import Change

        changes = []
        for target in wanted:
            current = self.lookup(target.owner, target.partition)
            before = current.offset if current else None
            if before != target.offset:
                changes.append(Change(target.owner, target.partition, before, target.offset))
        return changes
