"""Transforms of one key or value without a schema. Fields are members of a map; what is not there is null.

The one value may also be the tree of a `Uniform`: then what is put into it are leaves.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from playhead.pipeline.records.batch import Batch, Moment
from playhead.pipeline.records.javamaps import copied_map, sized_map
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from playhead.pipeline.records.transforms.arrow.shape import inserted
from playhead.pipeline.records.transforms.arrow.values import Failed
from playhead.pipeline.records.uniform import Leaf

Shaping = ExtractField | HoistField | ReplaceField | InsertField | Flatten | SetSchemaMetadata


def require_map(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Failed(f"it needs a record with fields, and there is {_shown(value)} without a schema")
    return value


def _shown(value: object) -> str:
    return "null" if value is None else f"a lone {type(value).__name__}"


def key_of(change: ValueToKey, value: object) -> dict[str, Any]:
    found = require_map(value)
    return sized_map({name: found.get(name) for name in change.fields}, len(change.fields))


def reshape(change: Shaping, value: object, batch: Batch, row: int | None) -> object:
    """`row` None: of all records at once."""
    match change:
        case HoistField():
            return {change.field: value}
        case ExtractField():
            return _extracted(change, value)
        case SetSchemaMetadata():
            if value is not None:
                raise Failed("it has no schema whose name or version could be set")
            return None
        case _ if value is None:
            return None
        case ReplaceField():
            found = require_map(value)
            kept = {
                change.renames.get(name, name): inner
                for name, inner in found.items()
                if name not in change.exclude and (not change.include or name in change.include)
            }
            return sized_map(kept, len(found))
        case InsertField():
            added = _inserted_columns(change, batch) if row is None else _inserted(change, batch, row)
            return copied_map(require_map(value), added)
        case Flatten():
            made: dict[str, Any] = {}
            _flatten(change.delimiter, "", require_map(value), made)
            return made


def _extracted(change: ExtractField, value: object) -> object:
    for name in change.steps or (change.field,):
        if value is None:
            return None
        value = require_map(value).get(name)
    return value


def _inserted(change: InsertField, batch: Batch, row: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if change.topic:
        made[change.topic.name] = batch.topic
    if change.partition and batch.partition is not None:
        made[change.partition.name] = np.int32(batch.partition)
    if change.offset:
        if batch.offsets is None:
            raise Failed("a record of a source has no offset")
        made[change.offset.name] = int(batch.offsets[row])
    if change.timestamp and (timestamp := batch.timestamps[row].as_py()) is not None:
        made[change.timestamp.name] = timestamp
    if change.static:
        made[change.static.name] = change.static_value
    return made


def _inserted_columns(change: InsertField, batch: Batch) -> dict[str, Leaf]:
    if change.timestamp and batch.timestamps.null_count:
        raise Failed("some have no timestamp")
    leaves = {name: Leaf(schema, column) for name, schema, column in inserted(change, batch)}
    if change.timestamp:  # Kafka puts a long here, and a date under a schema
        leaves[change.timestamp.name] = Leaf(Schema("int64", True), batch.timestamps)
    return leaves


def _flatten(delimiter: str, prefix: str, value: Mapping[str, Any], made: dict[str, Any]) -> None:
    for name, inner in value.items():
        whole = f"{prefix}{delimiter}{name}" if prefix else name
        if isinstance(inner, dict):
            _flatten(delimiter, whole, inner, made)
        elif isinstance(inner, Moment) or (isinstance(inner, Leaf) and inner.is_moment):
            raise Failed(f"it cannot flatten {whole!r}, a date without a schema")
        else:
            made[whole] = inner
