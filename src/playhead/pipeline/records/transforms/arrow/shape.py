"""Transforms that choose, name, nest and add fields, of keys and values under a schema; the values stay as they are."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Batch, Typed
from playhead.pipeline.records.schema import TIMESTAMP, Schema
from playhead.pipeline.records.transforms import (
    ExtractField,
    Flatten,
    HoistField,
    Inserted,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from playhead.pipeline.records.transforms.arrow.values import (
    Column,
    Failed,
    Made,
    columns_of,
    copied,
    get_field,
    null_rows,
    put_together,
    require_struct,
    struct_schema,
    with_default,
)

_STRING, _INT32, _INT64, _TIMESTAMP = (
    Schema("string"),
    Schema("int32"),
    Schema("int64"),
    Schema("int64", False, TIMESTAMP, 1),
)


def value_to_key(change: ValueToKey, values: Typed) -> Made:
    """The key."""
    require_struct(values.schema)
    columns = columns_of(values, nulls_take_default=change.nulls_take_default)
    chosen = [get_field(columns, name) for name in change.fields]
    schema = struct_schema(Schema("struct"), [(column.name, column.schema) for column in chosen])
    made = copied(schema, chosen, values.column)
    absent = values.column.is_null().to_numpy(zero_copy_only=False)
    nulls = {int(row): "it is null, and has no fields" for row in np.flatnonzero(absent)}
    return Made(made.values, {**made.bad, **nulls})


def extract_field(change: ExtractField, values: Typed) -> Made:
    *path, last = change.steps or (change.field,)
    require_struct(values.schema)
    for name in path:
        values = _field(values, name, takes_default=True)
        require_struct(values.schema)
    return Made(_field(values, last, takes_default=change.nulls_take_default))


def _field(values: Typed, name: str, *, takes_default: bool) -> Typed:
    _, schema, column = get_field(columns_of(values, nulls_take_default=False), name)
    return Typed(schema, with_default(column, schema, values.column) if takes_default else column)


def hoist_field(change: HoistField, values: Typed) -> Made:
    schema = struct_schema(Schema("struct"), [(change.field, values.schema)])
    reason = f"it is null, which its schema does not allow in {change.field!r}"
    bad = dict.fromkeys(null_rows(values.column, values.schema), reason)
    return Made(Typed(schema, pa.StructArray.from_arrays([values.column], fields=list(arrow_type(schema)))), bad)


def replace_field(change: ReplaceField, values: Typed) -> Made:
    require_struct(values.schema)
    columns = columns_of(values, nulls_take_default=change.nulls_take_default)
    kept = [
        (change.renames.get(column.name, column.name), column)
        for column in columns
        if column.name not in change.exclude and (not change.include or column.name in change.include)
    ]
    schema = struct_schema(values.schema, [(name, column.schema) for name, column in kept])
    # Kafka looks the value up by the old name, also of a field that has that name by itself.
    old_names = {new: old for old, new in change.renames.items()}
    bad: dict[int, str] = {}
    sources = [_fitting(get_field(columns, old_names.get(name, name)), column, bad) for name, column in kept]
    made = copied(schema, sources, values.column)
    return Made(made.values, {**made.bad, **bad})


def _fitting(source: Column, column: Column, bad: dict[int, str]) -> Column:
    """The values of `source`, under the schema of `column`; bad where they are of another Java class."""
    if source is column or _is_same_class(source.schema, column.schema):
        return source
    for row in np.flatnonzero(source.values.is_valid().to_numpy(zero_copy_only=False)):
        bad[int(row)] = f"it would put {source.name!r} into {column.name!r}, whose schema is another"
    return Column(column.name, column.schema, pa.nulls(len(source.values), arrow_type(column.schema)))


def _is_same_class(one: Schema, other: Schema) -> bool:
    if one.is_struct or other.is_struct:
        return one == other
    if one.type != other.type or arrow_type(one) != arrow_type(other):
        return False
    inner = [(one.keys, other.keys), (one.items, other.items)]
    return all(mine is None or theirs is None or _is_same_class(mine, theirs) for mine, theirs in inner)


def insert_field(change: InsertField, values: Typed, batch: Batch) -> Made:
    require_struct(values.schema)
    columns = columns_of(values, nulls_take_default=change.nulls_take_default)
    added = list(inserted(change, batch))
    schema = struct_schema(values.schema, [(one.name, one.schema) for one in [*columns, *added]])
    before = replace(schema, fields=schema.fields[: len(columns)])
    bad = copied(before, columns, values.column).bad
    # What is added is not checked: a timestamp that is missing leaves a null even in a required field.
    whole = put_together(schema, [one.values for one in [*columns, *added]], values.column)
    return Made(whole, bad)


def inserted(change: InsertField, batch: Batch) -> Iterator[Column]:
    def column(asked: Inserted, schema: Schema, values: pa.Array) -> Column:
        return Column(asked.name, replace(schema, optional=asked.optional), values)

    if change.topic:
        yield column(change.topic, _STRING, pa.repeat(pa.scalar(batch.topic, pa.string()), len(batch)))
    if change.partition:
        yield column(change.partition, _INT32, pa.repeat(pa.scalar(batch.partition, pa.int32()), len(batch)))
    if change.offset:
        if batch.offsets is None:
            raise Failed("a record of a source has no offset")
        yield column(change.offset, _INT64, pa.array(batch.offsets, pa.int64()))
    if change.timestamp:
        yield column(change.timestamp, _TIMESTAMP, batch.timestamps.cast(arrow_type(_TIMESTAMP)))
    if change.static:
        yield column(change.static, _STRING, pa.repeat(pa.scalar(change.static_value, pa.string()), len(batch)))


def flatten(change: Flatten, values: Typed) -> Made:
    columns = list(_flat(change.delimiter, "", values, is_optional=values.schema.optional))
    return copied(struct_schema(values.schema, [(one.name, one.schema) for one in columns]), columns, values.column)


def _flat(delimiter: str, prefix: str, values: Typed, *, is_optional: bool) -> Iterator[Column]:
    """A field inside of what is optional is optional."""
    require_struct(values.schema)
    for name, schema, column in columns_of(values, nulls_take_default=True):
        whole = f"{prefix}{delimiter}{name}" if prefix else name
        optional = is_optional or schema.optional
        if schema.is_struct:
            yield from _flat(delimiter, whole, Typed(schema, column), is_optional=optional)
        elif schema.type == "map":
            raise Failed(f"it cannot flatten the map {whole!r}")
        else:
            yield Column(whole, replace(schema, optional=optional), column)


def set_schema_metadata(change: SetSchemaMetadata, values: Typed) -> Made:
    if not values.schema.is_struct:  # Connect's own limit
        raise Failed("Connect sets the name and version of schemas with fields only")
    schema = replace(
        values.schema,
        name=values.schema.name if change.name is None else change.name,
        version=values.schema.version if change.version is None else change.version,
    )
    columns = columns_of(values, nulls_take_default=change.nulls_take_default)
    return copied(schema, columns, values.column)
