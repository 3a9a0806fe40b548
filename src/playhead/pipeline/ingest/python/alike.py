"""Values that are alike -> one Arrow column, field by field, without a look at each value by code in Python.

Quick for what most sources give: thousands of dicts with the same fields. The schema is the one that `inference` finds in each
value by itself. Values that are not alike, or that Arrow would not take as they are, give None: they are done one by one.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from playhead.errors import Rejected
from playhead.pipeline.ingest.python.inference import OPTIONAL, PLAIN, decimal_schema, kinds_of, needs_care
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Typed
from playhead.pipeline.records.schema import TIMESTAMP, Schema

_FAULTS = (Rejected, pa.ArrowException, ArithmeticError, TypeError, ValueError)


def column_of(values: Sequence[Any], *, merges_nulls: bool) -> Typed | None:
    """`merges_nulls`: what is null may be in one column with values of any type, because no schema is written. A record
    whose value is null has no bytes, so it is not like the others."""
    try:
        return _Alike(merges_nulls).column(values, optional=False)
    except _FAULTS:
        return None


class _Alike:
    def __init__(self, merges_nulls: bool) -> None:
        self._merges_nulls = merges_nulls

    def column(self, values: Sequence[Any], *, optional: bool) -> Typed | None:
        kinds = set(map(type, values))
        has_nulls = NoneType in kinds
        if has_nulls and not optional:
            return None
        if len(kinds) == has_nulls:
            return Typed(OPTIONAL[str], pa.nulls(len(values), pa.string()))
        kinds.discard(NoneType)
        if len(kinds) > 1:
            return None
        [kind] = kinds
        if has_nulls and kind is not str and not self._merges_nulls:  # a null by itself is a string
            return None
        if has_nulls:
            return self._with_nulls(kind, values)
        return self._present(kind, values, optional=optional)

    def _with_nulls(self, kind: type, values: Sequence[Any]) -> Typed | None:
        present = [one for one in values if one is not None]
        made = self._present(kind, present, optional=True)
        if made is None:
            return None
        is_null = np.fromiter((one is None for one in values), bool, len(values))
        places = np.cumsum(~is_null) - 1
        return Typed(made.schema, made.column.take(pa.array(places, mask=is_null)))

    def _present(self, kind: type, values: Sequence[Any], *, optional: bool) -> Typed | None:
        """Values of one type, none of them null."""
        if kind is dict:
            return self._structs(values, optional=optional)
        if kind is list:
            return self._lists(values, optional=optional)
        if kind is datetime:
            return _instants(values, optional=optional)
        if kind is Decimal:
            return _decimals(values, optional=optional)
        schema = (OPTIONAL if optional else PLAIN).get(kind)
        if schema is None or needs_care(schema):
            return None
        return Typed(schema, pa.array(values, arrow_type(schema)))

    def _structs(self, values: Sequence[dict[Any, Any]], *, optional: bool) -> Typed | None:
        names = tuple(values[0])
        if not names or set(map(type, names)) != {str} or len(set(map(tuple, values))) > 1:
            return None
        fields = []
        for name in names:
            made = self.column(list(map(itemgetter(name), values)), optional=True)
            if made is None:
                return None
            fields.append(made)
        schema = Schema("struct", optional, fields=tuple(zip(names, (one.schema for one in fields), strict=True)))
        kind = arrow_type(schema)
        return Typed(schema, pa.StructArray.from_arrays([one.column for one in fields], fields=list(kind)))

    def _lists(self, values: Sequence[list[Any]], *, optional: bool) -> Typed | None:
        """A list of nothing, or of nulls, has strings by itself."""
        items = list(chain.from_iterable(values))
        made = self.column(items, optional=True)
        if made is None:
            return None
        is_each_alone = self._merges_nulls or (all(values) and not made.column.null_count)
        if made.schema.type != "string" and not is_each_alone:
            return None
        ends = np.cumsum([0, *map(len, values)])
        schema = Schema("array", optional, items=made.schema)
        return Typed(schema, pa.ListArray.from_arrays(pa.array(ends, pa.int32()), made.column))


def _instants(values: Sequence[datetime], *, optional: bool) -> Typed | None:
    """Milliseconds; what is below them is cut."""
    if any(one.tzinfo is None for one in values):
        return None
    schema = Schema("int64", optional, TIMESTAMP, 1)
    micros = pa.array(values, pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    return Typed(schema, pa.array(micros // 1000).cast(arrow_type(schema)))


def _decimals(values: Sequence[Decimal], *, optional: bool) -> Typed | None:
    """Of one scale: it is part of the schema."""
    if len({one.as_tuple().exponent for one in values}) > 1:
        return None
    schema = decimal_schema(values[0], optional=optional)
    return Typed(schema, pa.array(values, arrow_type(schema)))


# Under a declared schema


def column_under(values: Sequence[Any], schema: Schema) -> Typed | None:
    """A column of values that fit the schema as they are."""
    try:
        column = _fitting(values, schema)
    except _FAULTS:
        return None
    return None if column is None else Typed(schema, column)


def _fitting(values: Sequence[Any], schema: Schema) -> pa.Array | None:
    kinds = set(map(type, values))
    if NoneType in kinds and not schema.optional:
        return None
    kinds.discard(NoneType)
    if not schema.is_struct:
        fits = schema.items is None and not needs_care(schema) and kinds <= set(kinds_of(schema))
        return pa.array(values, arrow_type(schema)) if fits else None
    if kinds != {dict} or NoneType in set(map(type, values)) or not schema.fields:
        return None
    known = {name for name, _ in schema.fields}
    if any(not known.issuperset(names) for names in set(map(tuple, values))):
        return None
    columns = [_fitting([one.get(name) for one in values], inner) for name, inner in schema.fields]
    if any(column is None for column in columns):
        return None
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(schema)))
