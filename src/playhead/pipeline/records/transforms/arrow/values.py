"""Keys and values under a schema, taken apart and put together as Connect's `Struct` does it.

`Struct.put` checks what it is given: a null must be allowed by the field. So a transform that copies a record fails at a null
that one before it left in a required field, and leaves the other records alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Typed, Unfit
from playhead.pipeline.records.decode import exact
from playhead.pipeline.records.schema import Schema, json_of

BadRows = Mapping[int, str]


class Failed(Exception):
    """With one sentence that says why: of every record under this schema, or of the one record without a schema."""


class Made(NamedTuple):
    """As many as there were; what `bad` names is not to be used."""

    values: Typed
    bad: BadRows = MappingProxyType({})


class Column(NamedTuple):
    """A field of a struct."""

    name: str
    schema: Schema
    values: pa.Array


def columns_of(values: Typed, *, nulls_take_default: bool) -> list[Column]:
    """Of a struct. A field is null where the whole is null, also one with a default: Kafka does not look into a null."""
    fields = zip(values.schema.fields, values.column.flatten(), strict=True)
    return [
        Column(name, inner, with_default(column, inner, values.column) if nulls_take_default else column)
        for (name, inner), column in fields
    ]


def require_struct(schema: Schema) -> None:
    if schema.is_struct and schema.default is not None:
        raise Failed("its schema has a default for a whole struct, which no converter of Kafka reads")
    if not schema.is_struct:
        raise Failed(f"it needs a record with fields, and there is a lone {schema.name or schema.type}")


def get_field(columns: Iterable[Column], name: str) -> Column:
    for column in columns:
        if column.name == name:
            return column
    raise Failed(f"there is no field {name!r}")


def struct_schema(like: Schema, fields: Iterable[tuple[str, Schema]]) -> Schema:
    """The name, version, doc and parameters of another; neither optional nor with a default. Raises Failed for a name twice."""
    made = tuple(fields)
    names = [name for name, _ in made]
    for name in names:
        if not name or names.count(name) > 1:
            raise Failed(f"it would make two fields {name!r}" if name else "it would make a field without a name")
    return Schema("struct", False, like.name, like.version, like.doc, like.parameters, fields=made)


def put_together(schema: Schema, columns: Sequence[pa.Array], whole: pa.Array) -> Typed:
    """A struct of these columns, null where `whole` is."""
    if not columns:
        empty: list[Any] = [None if is_null else {} for is_null in whole.is_null().to_pylist()]
        return Typed(schema, pa.array(empty, arrow_type(schema)))
    mask = whole.is_null() if whole.null_count else None
    return Typed(schema, pa.StructArray.from_arrays(columns, fields=list(arrow_type(schema)), mask=mask))


def copied(schema: Schema, columns: Sequence[Column], whole: pa.Array) -> Made:
    """Columns put into a new struct of this schema, one for each field of it, in its order."""
    bad: dict[int, str] = {}
    for (name, inner), column in zip(schema.fields, columns, strict=True):
        for row in null_rows(column.values, inner, whole):
            bad.setdefault(row, f"field {name!r} is null, which its schema does not allow")
    return Made(put_together(schema, [column.values for column in columns], whole), bad)


def null_rows(values: pa.Array, schema: Schema, whole: pa.Array | None = None) -> list[int]:
    """Where `Struct.put` would object: a null that the schema does not allow, or one in a struct inside. Not where `whole` is
    null."""
    wrong = _misplaced(values, schema, takes_default=False)
    if wrong is None:
        return []
    if whole is not None and whole.null_count:
        wrong &= whole.is_valid().to_numpy(zero_copy_only=False)
    return [int(row) for row in np.flatnonzero(wrong)]


def _misplaced(values: pa.Array, schema: Schema, *, takes_default: bool) -> np.ndarray | None:
    """`takes_default`: inside of a struct a null is allowed where there is a default."""
    found = None
    if values.null_count and not schema.optional and not (takes_default and schema.default is not None):
        found = values.is_null().to_numpy(zero_copy_only=False)
    if not schema.is_struct or values.null_count == len(values):
        return found
    for (_, inner), column in zip(schema.fields, values.flatten(), strict=True):
        wrong = _misplaced(column, inner, takes_default=True)
        if wrong is not None:
            wrong = wrong & values.is_valid().to_numpy(zero_copy_only=False)
            found = wrong if found is None else found | wrong
    return found


def with_default(values: pa.Array, schema: Schema, whole: pa.Array) -> pa.Array:
    """A field of `whole`, with its default where it is null itself, not where the whole is."""
    if schema.default is None or values.null_count == whole.null_count:
        return values
    return filled(values, pc.and_(values.is_null(), whole.is_valid()), default_array(schema))


def filled(values: pa.Array, where: pa.Array, one: pa.Array) -> pa.Array:
    """`one` is an array of one value. By `take`, which knows all types."""
    places = np.where(where.to_numpy(zero_copy_only=False), len(values), np.arange(len(values)))
    return pa.concat_arrays([values, one]).take(pa.array(places))


def default_array(schema: Schema) -> pa.Array:
    try:
        return exact.default_array(schema)
    except Unfit as error:
        raise Failed(f"a default of its schema cannot be used: {error}") from error


def has_default(schema: Schema, default: object) -> Schema:
    """The schema with this default, as JSON has it; None for none."""
    text = None if default is None else json_of(default, is_sorted=True)
    return replace(schema, default=text)
