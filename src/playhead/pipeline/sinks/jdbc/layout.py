"""Which columns a record has, by the schemas of its key and of its value: the connector's own rules.

Columns of the primary key come from the coordinates, the key or the value, whatever `pk.mode` says; the other fields of the value
follow, or those of them that `fields.whitelist` names. Only primitive fields become columns, in PostgreSQL also arrays of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from playhead.pipeline.sinks.jdbc.options import COORDINATES, KAFKA, RECORD_KEY, RECORD_VALUE, JdbcSinkOptions
from playhead.pipeline.sinks.values.schema import Schema

OF_KAFKA, OF_KEY, OF_VALUE = "kafka", "key", "value"
_COORDINATES = (Schema("string"), Schema("int32"), Schema("int64"))


class Unfit(Exception):
    """Records of these schemas cannot be written. One sentence says why."""


@dataclass(frozen=True, slots=True)
class Field:
    """`source` tells where its values are: the coordinates, the key or the value of a record."""

    name: str
    schema: Schema
    source: str
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """`fields` in the order of INSERT: the primary key, then the others. `created` is the order of CREATE TABLE."""

    fields: tuple[Field, ...]
    created: tuple[Field, ...]

    @property
    def keys(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.is_key)


@lru_cache(maxsize=256)
def find_layout(options: JdbcSinkOptions, key: Schema | None, value: Schema | None) -> Layout:
    """`value` is None for tombstones: then only the key is known. Raises Unfit."""
    keys = _keys(options, key, value)
    taken = {field.name for field in keys}
    members: Mapping[str, Schema] = dict(value.fields) if value else {}
    others = tuple(
        Field(name, schema, OF_VALUE)
        for name, schema in members.items()
        if name not in taken and (not options.fields or name in options.fields)
    )
    fields = keys + others
    if not fields:
        raise Unfit("its schema has no field that would become a column")
    for field in fields:
        _check(field)
    return Layout(fields, _created(fields, list(members)))


def _keys(options: JdbcSinkOptions, key: Schema | None, value: Schema | None) -> tuple[Field, ...]:
    if options.pk_mode == KAFKA:
        names = options.pk_fields or COORDINATES
        return tuple(
            Field(name, schema, OF_KAFKA, is_key=True) for name, schema in zip(names, _COORDINATES, strict=True)
        )
    if options.pk_mode == RECORD_KEY and key is not None:
        return _key_fields(options, key)
    if options.pk_mode == RECORD_VALUE and value is not None:
        return _struct_fields(options, value, OF_VALUE)
    return ()


def _key_fields(options: JdbcSinkOptions, key: Schema) -> tuple[Field, ...]:
    if key.is_struct:
        return _struct_fields(options, key, OF_KEY)
    if key.items is not None:
        raise Unfit(f"its key is of type {key.type}: a primary key is a primitive or a struct of primitives")
    if len(options.pk_fields) != 1:
        raise Unfit("its key is a primitive, for which pk.fields must name exactly one column")
    return (Field(options.pk_fields[0], key, OF_KEY, is_key=True),)


def _struct_fields(options: JdbcSinkOptions, schema: Schema, source: str) -> tuple[Field, ...]:
    members = dict(schema.fields)
    if missing := [name for name in options.pk_fields if name not in members]:
        raise Unfit(f"its {source} has no field {missing[0]!r}, which pk.fields names")
    return tuple(Field(name, members[name], source, is_key=True) for name in options.pk_fields or members)


def _check(field: Field) -> None:
    schema = field.schema
    if schema.is_struct or schema.keys is not None:
        raise Unfit(f"field {field.name!r} is a {schema.type}, which no column holds")
    if schema.items is not None:
        items = schema.items
        if items.is_struct or items.items is not None or items.name or items.type == "bytes":
            raise Unfit(f"field {field.name!r} is an array of other things than plain numbers, booleans and strings")


def _created(fields: tuple[Field, ...], members: list[str]) -> tuple[Field, ...]:
    """The coordinates first, then in the order of the value's fields, then what is left, by name."""
    known = [name for name in (*COORDINATES, *members) if name in {field.name for field in fields}]
    order = {name: place for place, name in enumerate(dict.fromkeys(known))}
    return tuple(sorted(fields, key=lambda field: (order.get(field.name, len(order)), field.name)))
