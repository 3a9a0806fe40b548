"""Transforms that choose, name and nest fields; the values stay as they are."""

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from pyspark.sql import functions as F  # noqa: N812

from playhead.errors import Invalid
from playhead.pipeline.records.encode.nodes import Made, Node, Struct
from playhead.pipeline.records.encode.schema import TIMESTAMP, Schema
from playhead.pipeline.records.transforms import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    ReplaceField,
    ValueToKey,
)

Shaping = ExtractField | HoistField | ReplaceField | InsertField | Flatten


def reshape(change: Shaping, node: Node, topic: str) -> Node:
    """`topic` is the one that the record has at this point of the chain."""
    match change:
        case HoistField():
            return Struct(((change.field, node),))
        case ExtractField():
            return _field(as_struct(node), change.field)
        case ReplaceField():
            return _replaced(change, as_struct(node))
        case InsertField():
            return _inserted(change, as_struct(node), topic)
        case Flatten():
            row = as_struct(node)
            return replace(row, fields=_unique(_flat(row, "", change.delimiter)))
        case _:
            assert_never(change)


def key_of(change: ValueToKey, value: Node) -> Struct:
    row = as_struct(value)
    return Struct(tuple((name, _field(row, name)) for name in change.fields))


def as_struct(node: Node) -> Struct:
    if not isinstance(node, Struct):
        raise Invalid(
            f"it needs a record with fields, and there is a lone {node.schema.type}", "put HoistField before it"
        )
    return node


def _field(row: Struct, name: str) -> Node:
    found = row.find(name)
    if found is None:
        raise Invalid(f"there is no field {name!r}", f"there are {', '.join(known for known, _ in row.fields)}")
    return found


def _unique(fields: Iterator[tuple[str, Node]]) -> tuple[tuple[str, Node], ...]:
    found = tuple(fields)
    if not found:
        raise Invalid("it leaves no field", "keep at least one")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"it would make two fields {name!r}", "give one of them another name")
    return found


def _replaced(change: ReplaceField, row: Struct) -> Struct:
    kept = [
        (name, node)
        for name, node in row.fields
        if name not in change.exclude and (not change.include or name in change.include)
    ]
    fields = _unique((change.renames.get(name, name), node) for name, node in kept)
    old_names = {new: old for old, new in change.renames.items()}
    for (name, _), (new, _) in zip(kept, fields, strict=True):
        if old_names.get(new, new) != name:
            # Kafka looks the value up by the old name, although that field itself was left out.
            raise Invalid(
                f"Connect would write {old_names[new]!r} into {new!r}, which has a field of its own",
                "rename it to a name that is free",
            )
    return replace(row, fields=fields)


def _inserted(change: InsertField, row: Struct, topic: str) -> Struct:
    def fields() -> Iterator[tuple[str, Node]]:
        yield from row.fields
        if change.topic:
            yield change.topic.name, Made(Schema("string", change.topic.optional), F.lit(topic), topic.isascii())
        if change.partition:
            yield change.partition.name, Made(Schema("int32", True), F.lit(None).cast("int"))
        if change.timestamp:
            yield change.timestamp.name, Made(Schema("int64", True, TIMESTAMP, 1), F.lit(None).cast("bigint"))
        if change.static:
            value = change.static_value
            yield change.static.name, Made(Schema("string", change.static.optional), F.lit(value), value.isascii())

    return replace(row, fields=_unique(fields()))


def _flat(row: Struct, prefix: str, delimiter: str) -> Iterator[tuple[str, Node]]:
    for name, node in row.fields:
        whole = f"{prefix}{delimiter}{name}" if prefix else name
        if isinstance(node, Struct):
            yield from _flat(node, whole, delimiter)
        else:
            yield whole, node
