"""A schema of Connect, in the JSON form that JsonConverter writes next to every payload.

The same form serves for the schema that a user gives and for the one that was inferred: it is what the ledger keeps. Two schemas
are equal when Connect says so: type, name, version, doc, parameters, default and fields all count. Unknown types are refused;
a member that Connect does not know is refused in what a user gives, and read past, as Connect does, in what a record carries.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NoReturn

from playhead.errors import Invalid

PRIMITIVES = ("int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes")
PACKAGE = "org.apache.kafka.connect.data."
DECIMAL, DATE, TIME, TIMESTAMP = (PACKAGE + name for name in ("Decimal", "Date", "Time", "Timestamp"))
_QUOTE = json.JSONEncoder(ensure_ascii=False).encode
_LOGICAL = {DECIMAL: "bytes", DATE: "int32", TIME: "int32", TIMESTAMP: "int64"}
_INTEGER = re.compile(r"-?[0-9]{1,9}")
_MEMBERS = frozenset(
    [
        "type",
        "optional",
        "name",
        "version",
        "doc",
        "parameters",
        "default",
        "field",
        "fields",
        "items",
        "keys",
        "values",
    ]
)


class Number(str):
    """A number of JSON as it is written, so that no digit is lost."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """`default` is JSON text, None for none. `fields` is for a struct, `items` for an array and the values of a map."""

    type: str
    optional: bool = False
    name: str = ""
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: str | None = None
    fields: tuple[tuple[str, "Schema"], ...] = ()
    keys: "Schema | None" = None
    items: "Schema | None" = None

    @property
    def text(self) -> str:
        """Canonical: two schemas are equal if and only if their texts are."""
        return _text_of(self)

    @classmethod
    def from_json(cls, text: str, *, strict: bool = True) -> "Schema":
        """Raises Invalid for what is no schema of Connect."""
        try:
            schema = _read(_DECODER.decode(text), "the schema", strict=strict)
            schema.text.encode()
        except UnicodeEncodeError as error:
            raise Invalid("the schema has half a pair of surrogates, which is no text") from error
        except RecursionError as error:
            raise Invalid("the schema is nested too deeply") from error
        except ValueError as error:
            raise Invalid("a schema must be JSON", 'for example {"type":"struct","fields":[...]}') from error
        return schema

    @property
    def is_struct(self) -> bool:
        return self.type == "struct"

    @property
    def has_empty_struct(self) -> bool:
        """Itself, or one inside of it: Arrow has a type for it, but neither Parquet nor a database has columns."""
        inner = [one for _, one in self.fields] + [one for one in (self.keys, self.items) if one]
        return (self.is_struct and not self.fields) or any(one.has_empty_struct for one in inner)

    @property
    def is_decimal(self) -> bool:
        return self.name == DECIMAL

    @property
    def is_string_map(self) -> bool:
        """JsonConverter writes such a map as an object, also if its keys are optional, and any other as an array of pairs."""
        return self.type == "map" and self.keys is not None and self.keys.type == "string"

    def parameter(self, name: str, otherwise: int) -> int:
        return int(dict(self.parameters).get(name, otherwise))


@lru_cache(maxsize=256)
def _text_of(schema: Schema) -> str:
    return json_of(_told(schema))


def json_of(value: object, quote: Callable[[str], str] = _QUOTE, *, is_sorted: bool = False) -> str:
    """Without blanks; a Number stays as it is written. `quote` writes strings."""
    if isinstance(value, str):
        return str(value) if isinstance(value, Number) else quote(value)
    if isinstance(value, list):
        return "[" + ",".join([json_of(one, quote, is_sorted=is_sorted) for one in value]) + "]"
    if isinstance(value, dict):
        members = sorted(value.items()) if is_sorted else value.items()
        return (
            "{" + ",".join([f"{quote(name)}:{json_of(one, quote, is_sorted=is_sorted)}" for name, one in members]) + "}"
        )
    return json.dumps(value)


def _fraction(text: str) -> float | Number:
    """A float if that has all digits: then it has one text, however it was written."""
    made = float(text)
    with suppress(InvalidOperation):  # of an exponent that is out of all proportion
        if math.isfinite(made) and Decimal(text) == Decimal(repr(made)):
            return made
    return Number(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_float=_fraction, parse_constant=_no_constant)


def _told(schema: Schema) -> dict[str, Any]:
    """In the order in which JsonConverter writes the members."""
    told: dict[str, Any] = {"type": schema.type}
    if schema.is_struct:
        told["fields"] = [{**_told(inner), "field": name} for name, inner in schema.fields]
    if schema.keys is not None and schema.items is not None:
        told |= {"keys": _told(schema.keys), "values": _told(schema.items)}
    elif schema.items is not None:
        told["items"] = _told(schema.items)
    told["optional"] = schema.optional
    more = {"name": schema.name or None, "version": schema.version, "doc": schema.doc}
    told |= {name: value for name, value in more.items() if value is not None}
    if schema.parameters:
        told["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        told["default"] = _DECODER.decode(schema.default)
    return told


def _read(told: object, where: str, *, strict: bool) -> Schema:
    if not isinstance(told, Mapping):
        raise Invalid(f"{where} is no schema: a JSON object is expected")
    if strict and (strange := sorted(set(told) - _MEMBERS)):
        raise Invalid(f"{where} has the member {strange[0]!r}, which no schema of Connect has")
    kind = told.get("type")
    if kind not in (*PRIMITIVES, "array", "map", "struct"):
        raise Invalid(f"{where} has the type {kind!r}, which Connect does not know")
    default = told.get("default")
    schema = Schema(
        str(kind),
        _is(told, "optional", bool, where) or False,
        _is(told, "name", str, where) or "",
        _is(told, "version", int, where),
        _is(told, "doc", str, where),
        _parameters(_is(told, "parameters", dict, where) or {}, where),
        None if default is None else json_of(default, is_sorted=True),
        _fields(told, where, strict=strict) if kind == "struct" else (),
        _read(told.get("keys"), f"the keys of {where}", strict=strict) if kind == "map" else None,
        _read(told.get("values" if kind == "map" else "items"), f"the items of {where}", strict=strict)
        if kind in ("map", "array")
        else None,
    )
    _check_logical(schema, where)
    return schema


def _is(told: Mapping[str, Any], member: str, kind: type, where: str) -> Any:
    value = told.get(member)
    if value is not None and type(value) is not kind:
        raise Invalid(f"{where} has a member {member!r} of the wrong type")
    return value


def _parameters(told: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    if not all(type(value) is str for value in told.values()):
        raise Invalid(f"{where} has parameters that are no strings")
    return tuple(sorted(told.items()))


def _fields(told: Mapping[str, Any], where: str, *, strict: bool) -> tuple[tuple[str, Schema], ...]:
    listed = _is(told, "fields", list, where)
    if listed is None or not all(isinstance(inner, Mapping) and type(inner.get("field")) is str for inner in listed):
        raise Invalid(f"{where} is a struct and must list its fields with their names")
    names = [inner["field"] for inner in listed]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Invalid(f"{where} has the field {twice[0]!r} twice")
    return tuple(
        (name, _read(inner, f"field {name!r}", strict=strict)) for name, inner in zip(names, listed, strict=True)
    )


def _check_logical(schema: Schema, where: str) -> None:
    wanted = _LOGICAL.get(schema.name)
    if wanted not in (None, schema.type):
        raise Invalid(f"{where} is a {schema.name} of type {schema.type}, which should be {wanted}")
    if schema.is_decimal:
        for name in ("scale", "connect.decimal.precision"):
            text = dict(schema.parameters).get(name)
            if text is None and name == "scale":
                raise Invalid(f"{where} is a decimal without a scale")
            if text is not None and not _INTEGER.fullmatch(text):
                raise Invalid(f"{where} has the parameter {name} {text!r}, which is no number")
