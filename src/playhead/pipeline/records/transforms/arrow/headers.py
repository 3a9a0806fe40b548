"""InsertHeader, DropHeaders, HeaderFrom."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Batch, Header, Headers, Typed, Unfit, Untyped, Values
from playhead.pipeline.records.javamaps import copied_map
from playhead.pipeline.records.literals import parse_literal
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms import DropHeaders, HeaderFrom, InsertHeader
from playhead.pipeline.records.transforms.arrow.untyped import require_map
from playhead.pipeline.records.transforms.arrow.values import (
    BadRows,
    Failed,
    columns_of,
    copied,
    get_field,
    require_struct,
    struct_schema,
)


class Taken(NamedTuple):
    values: Values
    headers: Sequence[Headers]
    bad: BadRows


def changed(change: InsertHeader | DropHeaders, batch: Batch) -> Sequence[Headers] | None:
    listed = batch.headers
    if isinstance(change, InsertHeader):
        try:
            added = (Header(change.name, *parse_literal(change.literal)),)
        except Unfit as error:
            raise Failed(f"its value.literal is not used: {error}") from error
        return [added] * len(batch) if listed is None else [(*one, *added) for one in listed]
    if listed is None:
        return None
    return [tuple(header for header in one if header.name not in change.names) for one in listed]


def taken(change: HeaderFrom, values: Values, batch: Batch) -> Taken:
    made = _of_typed(change, values) if isinstance(values, Typed) else _of_untyped(change, values)
    listed = batch.headers or [()] * len(batch)
    return made._replace(headers=[(*before, *added) for before, added in zip(listed, made.headers, strict=True)])


def _of_typed(change: HeaderFrom, values: Typed) -> Taken:
    require_struct(values.schema)
    columns = columns_of(values, nulls_take_default=change.nulls_take_default)
    bad: dict[int, str] = {}
    if change.moves:
        kept = [column for column in columns if column.name not in change.fields]
        schema = struct_schema(values.schema, [(column.name, column.schema) for column in kept])
        after, wrong = copied(schema, kept, values.column)
        bad.update(wrong)
    else:
        after = values
    lists = []
    for name, header in zip(change.fields, change.headers, strict=True):
        column = get_field(columns, name)
        if not column.schema.optional:
            nulls = np.flatnonzero(column.values.is_null().to_numpy(zero_copy_only=False))
            bad.update(
                {int(row): f"field {name!r} is null, which its schema does not allow in a header" for row in nulls}
            )
        lists.append([Header(header, column.schema, value) for value in plain_values(column.values, column.schema)])
    for row in np.flatnonzero(values.column.is_null().to_numpy(zero_copy_only=False)):
        bad[int(row)] = "it is null, and has no fields"
    return Taken(after, list(zip(*lists, strict=True)), bad)


def _of_untyped(change: HeaderFrom, values: Untyped) -> Taken:
    made: list[object] = []
    listed: list[Headers] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values.values):
        try:
            found = require_map(value)
        except Failed as error:
            bad[row] = str(error)
            made.append(None)
            listed.append(())
            continue
        pairs = zip(change.fields, change.headers, strict=True)
        listed.append(tuple(Header(header, None, found.get(name)) for name, header in pairs))
        moved = change.fields if change.moves else ()
        made.append({name: inner for name, inner in copied_map(found).items() if name not in moved})
    return Taken(Untyped(made), listed, bad)


def plain_values(values: pa.Array, schema: Schema) -> list[Any]:
    """As a header has them. Dates and times are counts, for which Python's own have no room."""
    counted: list[Any] = values.cast(_counts(arrow_type(schema))).to_pylist()
    if schema.is_decimal and pa.types.is_string(values.type):
        return [None if text is None else Decimal(text) for text in counted]
    return counted


def _counts(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _counts(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_counts(kind.key_type), _counts(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_counts(kind.value_type))
    if pa.types.is_temporal(kind):
        return pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
    return kind
