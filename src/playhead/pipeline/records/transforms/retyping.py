"""Transforms that change types, values and the schema's own name; the fields stay where they are."""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from playhead.errors import Invalid
from playhead.pipeline.records.encode.nodes import Node, Struct
from playhead.pipeline.records.transforms import Cast, MaskField, SetSchemaMetadata, TimestampConverter
from playhead.pipeline.records.transforms.casting import cast_leaf
from playhead.pipeline.records.transforms.masking import mask_leaf
from playhead.pipeline.records.transforms.moments import convert_moment
from playhead.pipeline.records.transforms.shaping import as_struct

Retyping = Cast | MaskField | SetSchemaMetadata | TimestampConverter


def retype(change: Retyping, node: Node) -> Node:
    match change:
        case SetSchemaMetadata():
            return _renamed(change, node)
        case MaskField():
            masked = change.fields
            return _each(node, lambda name, one: mask_leaf(name, one, change.replacement) if name in masked else one)
        case TimestampConverter() if not change.field:
            return convert_moment("", node, change)
        case TimestampConverter():
            return _each(node, lambda name, one: convert_moment(name, one, change) if name == change.field else one)
        case Cast() if change.whole is not None:
            return _cast_whole(change.whole, node)
        case Cast():
            types = change.fields
            return _each(node, lambda name, one: cast_leaf(name, one, types[name]) if name in types else one)
        case _:
            assert_never(change)


def _each(node: Node, change: Callable[[str, Node], Node]) -> Struct:
    row = as_struct(node)
    return replace(row, fields=tuple((name, change(name, one)) for name, one in row.fields))


def _cast_whole(target: str, node: Node) -> Node:
    if isinstance(node, Struct):
        raise Invalid("a record with fields cannot be cast to one type", "name the fields: spec=field:type")
    if node.schema.is_logical:
        raise Invalid("Connect cannot write a lone date, time or decimal that was cast", "cast it before ExtractField")
    if node.schema.optional:
        # Kafka passes a null on as it came, with the schema that it had.
        raise Invalid(
            "what is cast as a whole may be null, and a null would keep its old schema", "cast it before ExtractField"
        )
    return cast_leaf("", node, target)


def _renamed(change: SetSchemaMetadata, node: Node) -> Struct:
    if not isinstance(node, Struct):
        raise Invalid(
            "Connect sets the schema's name and version of records with fields only", "put it before ExtractField"
        )
    name = node.name if change.name is None else change.name
    return replace(node, name=name, version=node.version if change.version is None else change.version)
