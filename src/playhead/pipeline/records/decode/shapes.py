"""Texts of JSON without a schema that have one shape -> columns (`Uniform`), where that is exact.

The shape of some texts is that of the first: its members in their order, each with its type, and whether a number has a point.
Those that are written alike, with all of these members, are read by their pieces. So whole numbers stay longs and others doubles,
and the members have the order of one HashMap. What has another shape is left to be read one by one.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Untyped, at_rows
from playhead.pipeline.records.decode.jsontext import decode
from playhead.pipeline.records.decode.pieces import FEWEST, is_plain_name, read_pieces
from playhead.pipeline.records.javamaps import hash_map
from playhead.pipeline.records.schema import Number, Schema
from playhead.pipeline.records.uniform import Leaf, Tree, Uniform

_SHAPES, _SAMPLE = 4, 24
_STRING = Schema("string", True)


class _Odd(Exception):
    """There are no columns for such values."""


def read_shapes(texts: pa.Array) -> Iterator[tuple[np.ndarray, Untyped]]:
    """The places of texts of one shape, ascending, and their values. Those that are in none are left."""
    is_left = np.ones(len(texts), bool)
    with suppress(_Odd):
        for _ in range(_SHAPES):
            left = np.flatnonzero(is_left)
            if len(left) < FEWEST:
                return
            its = at_rows(texts, left)
            places, made = _read(its, _shape(its))
            is_left[left[places]] = False
            if made is not None:
                yield left[places], made


def _shape(texts: pa.Array) -> Schema:
    """Of those that have the members of the first. Its fields are in the order of the text."""
    sample: list[Any] = [decode(text) for text in texts.slice(0, _SAMPLE).to_pylist()]
    names = _names(sample[0])
    schema = _schema([one for one in sample if _names(one) == names])
    if not schema.fields:
        raise _Odd
    return schema


def _names(value: Any) -> Any:
    return [(name, _names(inner)) for name, inner in value.items()] if isinstance(value, dict) else None


def _schema(values: Sequence[Any]) -> Schema:
    """What is null in all of them is taken for a text: one that is none is in another shape."""
    present = [one for one in values if one is not None]
    kinds = {type(one) for one in present}
    if not present:
        return _STRING
    if kinds == {dict} and len(present) == len(values):
        if not all(map(is_plain_name, present[0])):
            raise _Odd
        fields = ((name, _schema([one[name] for one in present])) for name in present[0])
        return Schema("struct", True, fields=tuple(fields))
    if kinds == {list}:
        values = [item for one in present for item in one]
        if any(isinstance(item, dict | list) for item in values):
            raise _Odd
        items = _schema(values)
        if items.type == "double":
            raise _Odd
        return Schema("array", True, items=items)
    if kinds == {Number}:
        return Schema("int64" if _is_whole(present[0]) else "double", True)
    if kinds in ({str}, {bool}):
        return Schema("string" if kinds == {str} else "boolean", True)
    raise _Odd


def _is_whole(number: str) -> bool:
    return number.removeprefix("-").isdigit()


def _read(texts: pa.Array, schema: Schema) -> tuple[np.ndarray, Uniform | None]:
    alike = read_pieces(texts, arrow_type(schema), is_shape=True)
    if alike is None:
        raise _Odd
    try:
        return alike.rows, Uniform(_tree(schema, alike.columns.columns), len(alike.rows))
    except _Odd:
        return alike.rows, None


def _tree(schema: Schema, columns: Sequence[pa.Array]) -> dict[str, Tree]:
    return hash_map({name: _leaf(inner, column) for (name, inner), column in zip(schema.fields, columns, strict=True)})


def _leaf(schema: Schema, column: pa.Array) -> Tree:
    if schema.is_struct:
        if column.null_count:
            raise _Odd
        return _tree(schema, column.flatten()) if schema.fields else {}
    if schema.type == "double":
        column = pc.add(column, 0.0)  # Connect reads floats as BigDecimal, which has no -0.0
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise _Odd
    return Leaf(schema, column)
