"""Python's values -> Connect's schemas, and values as Arrow takes them.

A schema is inferred from each value by itself, so what becomes of a record never depends on its neighbours: int is int64, float
is double, a dict is a struct whose fields are optional, a null in a dict is an optional string. The items of a list must have one
schema. What has none (a list of texts and numbers) is a value without a schema, which is written with schemas.enable=false only.

A value does not fit its declared schema: one sentence says so. Nothing is cut, except that instants have milliseconds.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from playhead.errors import Rejected
from playhead.pipeline.records.batch import Header, Moment
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

PLAIN = {
    str: Schema("string"),
    int: Schema("int64"),
    float: Schema("double"),
    bool: Schema("boolean"),
    bytes: Schema("bytes"),
    date: Schema("int32", name=DATE, version=1),
    time: Schema("int32", name=TIME, version=1),
}
OPTIONAL = {kind: Schema(one.type, True, one.name, one.version) for kind, one in PLAIN.items()}
_EPOCH = date(1970, 1, 1).toordinal()


class NoSchema(Exception):
    """A value without one schema: a list of several, a dict whose keys are no text, a class that Connect does not have."""


def infer(value: Any, *, optional: bool = False) -> Schema:
    kind = type(value)
    if kind in PLAIN:
        return (OPTIONAL if optional else PLAIN)[kind]
    if value is None:
        return OPTIONAL[str]
    if kind is dict:
        for name in value:
            if type(name) is not str:
                raise NoSchema(f"a dict has the key {name!r}, which is no text")
        return Schema(
            "struct", optional, fields=tuple((name, infer(one, optional=True)) for name, one in value.items())
        )
    if isinstance(value, datetime):
        _check_zone(value)
        return Schema("int64", optional, TIMESTAMP, 1)
    if isinstance(value, Decimal):
        return decimal_schema(value, optional=optional)
    if isinstance(value, list | tuple):
        kinds = {infer(one, optional=True) for one in value if one is not None} or {OPTIONAL[str]}
        if len(kinds) > 1:
            raise NoSchema("a list has items of several types")
        return Schema("array", optional, items=kinds.pop())
    raise Rejected(f"has a value of type {kind.__name__}, which Connect does not have")


def decimal_schema(value: Decimal, *, optional: bool) -> Schema:
    if not value.is_finite():
        raise Rejected(f"has the decimal {value}, which Connect does not have")
    scale = max(0, -int(value.as_tuple().exponent))
    return Schema("bytes", optional, DECIMAL, 1, parameters=(("scale", str(scale)),))


def _check_zone(value: datetime) -> None:
    if value.tzinfo is None:
        raise Rejected(f"has the datetime {value.isoformat()}, which has no time zone")


# Values that Arrow would take too easily, or not as they are


@lru_cache(maxsize=1024)
def needs_care(schema: Schema) -> bool:
    inner = [one for _, one in schema.fields] + [one for one in (schema.keys, schema.items) if one]
    return schema.name in (TIMESTAMP, TIME) or any(map(needs_care, inner))


_KINDS: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes,),
    "double": (float, int),
    "float": (float, int),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), (int,)),
}
_LOGICAL: Mapping[str, tuple[type, ...]] = {
    DATE: (date,),
    TIME: (time,),
    TIMESTAMP: (datetime,),
    DECIMAL: (Decimal, int),
}


def kinds_of(schema: Schema) -> tuple[type, ...]:
    """The classes of Python whose values a schema without parts takes."""
    return _LOGICAL.get(schema.name) or _KINDS[schema.type]


def prepared(value: Any, schema: Schema, name: str) -> Any:
    if value is None:
        return None
    make: Callable[[Any, Schema, str], Any] | None = _MAKERS.get(schema.type)
    if make is not None:
        return make(value, schema, name)
    kinds = kinds_of(schema)
    given: Any = value
    if not isinstance(value, kinds) or (type(value) is bool and bool not in kinds):
        raise Rejected(f"does not fit its schema: {name} is a {type(value).__name__}, not {_words(schema)}")
    if schema.name == TIMESTAMP:
        _check_zone(given)
    if schema.name in (TIMESTAMP, TIME):
        return given.replace(microsecond=given.microsecond // 1000 * 1000)
    return Decimal(given) if schema.name == DECIMAL else given


def _struct(value: Any, schema: Schema, name: str) -> Any:
    if not isinstance(value, dict):
        raise Rejected(f"does not fit its schema: {name} is a {type(value).__name__}, not a dict")
    fields = dict(schema.fields)
    if strange := [one for one in value if one not in fields]:
        raise Rejected(f"does not fit its schema: {name} has the field {strange[0]!r}, which is not in the schema")
    for one, inner in fields.items():
        if value.get(one) is None and not inner.optional:
            raise Rejected(f"does not fit its schema: the field {one!r} is missing, and it is not optional")
    return {one: prepared(value.get(one), inner, f"the field {one!r}") for one, inner in fields.items()}


def _array(value: Any, schema: Schema, name: str) -> Any:
    if not isinstance(value, list | tuple):
        raise Rejected(f"does not fit its schema: {name} is a {type(value).__name__}, not a list")
    return [prepared(one, schema.items, f"an item of {name}") for one in value]  # type: ignore[arg-type]


def _map(value: Any, schema: Schema, name: str) -> Any:
    if not isinstance(value, dict):
        raise Rejected(f"does not fit its schema: {name} is a {type(value).__name__}, not a dict")
    keys, items = schema.keys, schema.items
    pairs = value.items()
    return [(prepared(k, keys, f"a key of {name}"), prepared(v, items, f"an item of {name}")) for k, v in pairs]  # type: ignore[arg-type]


_MAKERS = {"struct": _struct, "array": _array, "map": _map}


def _words(schema: Schema) -> str:
    return schema.name.rpartition(".")[2] or schema.type


def header_of(name: str, value: Any) -> Header:
    """A header's value with the schema that its text depends on."""
    if not isinstance(name, str):
        raise Rejected(f"has a header whose name is a {type(name).__name__}")
    if isinstance(value, datetime):
        _check_zone(value)
        return Header(name, None, Moment(int(value.timestamp() * 1000)))
    if type(value) is date:
        return Header(name, PLAIN[date], value.toordinal() - _EPOCH)
    if isinstance(value, Decimal):
        return Header(name, decimal_schema(value, optional=False), value)
    if isinstance(value, time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return Header(name, PLAIN[time], seconds * 1000 + value.microsecond // 1000)
    return Header(name, None, value)
