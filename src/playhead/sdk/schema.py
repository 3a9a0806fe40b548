"""A declared schema: Connect's schemas, as JsonConverter writes them next to every payload.

    ORDER = Schema.struct("Order", id=Schema.int64(), total=Schema.decimal(2), note=Schema.string(optional=True))

Values under a schema are Python's: dicts for structs and maps, lists for arrays, Decimal, date, time and datetime. Without one
it is inferred from each value by itself: int is int64, float is double, a dict is a struct whose fields are optional.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

_PACKAGE = "org.apache.kafka.connect.data."


@dataclass(frozen=True, slots=True)
class Schema:
    """Made by the functions below. `optional`: null is allowed."""

    type: str
    optional: bool = False
    name: str = ""
    version: int | None = None
    doc: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    fields: "tuple[tuple[str, Schema], ...]" = ()
    keys: "Schema | None" = None
    items: "Schema | None" = None

    @staticmethod
    def int8(*, optional: bool = False) -> "Schema":
        return Schema("int8", optional)

    @staticmethod
    def int16(*, optional: bool = False) -> "Schema":
        return Schema("int16", optional)

    @staticmethod
    def int32(*, optional: bool = False) -> "Schema":
        return Schema("int32", optional)

    @staticmethod
    def int64(*, optional: bool = False) -> "Schema":
        return Schema("int64", optional)

    @staticmethod
    def float32(*, optional: bool = False) -> "Schema":
        return Schema("float", optional)

    @staticmethod
    def float64(*, optional: bool = False) -> "Schema":
        return Schema("double", optional)

    @staticmethod
    def boolean(*, optional: bool = False) -> "Schema":
        return Schema("boolean", optional)

    @staticmethod
    def string(*, optional: bool = False) -> "Schema":
        return Schema("string", optional)

    @staticmethod
    def bytes(*, optional: bool = False) -> "Schema":
        return Schema("bytes", optional)

    @staticmethod
    def decimal(scale: int, *, optional: bool = False) -> "Schema":
        """Connect's Decimal: `scale` digits after the point."""
        return Schema("bytes", optional, f"{_PACKAGE}Decimal", 1, parameters=(("scale", str(scale)),))

    @staticmethod
    def date(*, optional: bool = False) -> "Schema":
        return Schema("int32", optional, f"{_PACKAGE}Date", 1)

    @staticmethod
    def time(*, optional: bool = False) -> "Schema":
        """A time of day, in milliseconds."""
        return Schema("int32", optional, f"{_PACKAGE}Time", 1)

    @staticmethod
    def timestamp(*, optional: bool = False) -> "Schema":
        """An instant, in milliseconds. Its values are datetimes with a time zone."""
        return Schema("int64", optional, f"{_PACKAGE}Timestamp", 1)

    @staticmethod
    def array(items: "Schema", *, optional: bool = False) -> "Schema":
        return Schema("array", optional, items=items)

    @staticmethod
    def map(keys: "Schema", values: "Schema", *, optional: bool = False) -> "Schema":
        return Schema("map", optional, keys=keys, items=values)

    @staticmethod
    def struct(name: str = "", /, *, optional: bool = False, **fields: "Schema") -> "Schema":
        """Fields whose names are no Python names are added by `with_field`."""
        return Schema("struct", optional, name, fields=tuple(fields.items()))

    def with_field(self, name: str, schema: "Schema") -> "Schema":
        return replace(self, fields=(*self.fields, (name, schema)))

    def to_json(self) -> str:
        """As JsonConverter writes it."""
        return json.dumps(self._as_json(), separators=(",", ":"), ensure_ascii=False)

    def _as_json(self) -> dict[str, Any]:
        described: dict[str, Any] = {"type": self.type}
        if self.type == "struct":
            described["fields"] = [{**inner._as_json(), "field": name} for name, inner in self.fields]
        if self.keys is not None and self.items is not None:
            described |= {"keys": self.keys._as_json(), "values": self.items._as_json()}
        elif self.items is not None:
            described["items"] = self.items._as_json()
        described["optional"] = self.optional
        more = {"name": self.name or None, "version": self.version, "doc": self.doc or None}
        described |= {key: value for key, value in more.items() if value is not None}
        if self.parameters:
            described["parameters"] = dict(self.parameters)
        return described
