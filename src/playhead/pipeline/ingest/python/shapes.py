"""Values of records -> columns, each of values that have one schema.

Most polls give values that are alike: see `alike`. Others are grouped by their shapes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, cast

import pyarrow as pa

from playhead.errors import Rejected
from playhead.pipeline.ingest.python.alike import column_of, column_under
from playhead.pipeline.ingest.python.inference import OPTIONAL, PLAIN, NoSchema, infer, needs_care, prepared
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Typed, Untyped, Values
from playhead.pipeline.records.schema import Schema
from playhead.sdk import Schema as DeclaredSchema

_SIMPLE = frozenset(PLAIN) | {NoneType}
Shape = object
"""What two values have in common that become one column. None: a null without a schema."""


class Shapes:
    """Shapes of values, and the columns of values of one shape. `must_have_schema`: a value without one is refused, because its
    converter writes schemas. `merges_nulls`: see `alike`."""

    def __init__(self, *, must_have_schema: bool, merges_nulls: bool = False) -> None:
        self._must_have_schema = must_have_schema
        self._merges_nulls = merges_nulls
        self._declared: dict[int, tuple[DeclaredSchema, _Declared]] = {}

    def column_alike(self, values: Sequence[Any], declared: Sequence[DeclaredSchema | None]) -> Values | None:
        """One column, if the values are alike. None: they are not, or one of them is wrong."""
        if declared.count(None) == len(declared):
            if set(map(type, values)) == {NoneType}:
                return Untyped(values)
            return column_of(values, merges_nulls=self._merges_nulls)
        if len(set(map(id, declared))) > 1:
            return None
        try:
            shape = self._read(cast(DeclaredSchema, declared[0]))
            return column_under(values, shape.schema) or self.column(shape, values)
        except Rejected:
            return None

    def shape(self, value: Any, declared: DeclaredSchema | None) -> Shape:
        if declared is not None:
            return self._read(declared)
        kind = type(value)
        if kind is dict:
            kinds = tuple(map(type, value.values()))
            if _SIMPLE.issuperset(kinds):
                return (*value, *kinds)
        elif kind in PLAIN:
            return kind
        elif value is None:
            return None
        try:
            return infer(value)
        except NoSchema as error:
            if self._must_have_schema:
                raise Rejected(f"has no schema: {error}; declare one, or set schemas.enable=false") from None
            return NoSchema

    def column(self, shape: Shape, values: Sequence[Any]) -> Values:
        """Raises Rejected if one of the values does not fit."""
        if shape is None or shape is NoSchema:
            return Untyped(values)
        schema = _schema_of(shape)
        is_careful = isinstance(shape, _Declared) or needs_care(schema)
        taken = [prepared(value, schema, "it") for value in values] if is_careful else values
        try:
            return Typed(schema, pa.array(taken, arrow_type(schema)))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise Rejected(f"does not fit its schema: {' '.join(str(error).split())}") from None

    def _read(self, declared: DeclaredSchema) -> "_Declared":
        """By identity first: schemas are constants, and their hash takes a while."""
        found = self._declared.get(id(declared))
        if found is None:
            if not isinstance(declared, DeclaredSchema):
                raise Rejected(f"has a schema of type {type(declared).__name__}: it must be a playhead.sdk.Schema")
            found = self._declared[id(declared)] = (declared, _Declared(Schema.from_json(declared.to_json())))
        return found[1]


@dataclass(frozen=True, slots=True)
class _Declared:
    """The shape of what the author gave a schema: values are compared with it."""

    schema: Schema


@lru_cache(maxsize=1024)
def _schema_of(shape: Any) -> Schema:
    if isinstance(shape, Schema):
        return shape
    if isinstance(shape, _Declared):
        return shape.schema
    if isinstance(shape, type):
        return PLAIN[shape]
    half = len(shape) // 2
    for name in shape[:half]:
        if type(name) is not str:
            raise Rejected(f"has a dict with the key {name!r}, which is no text")
    kinds = [OPTIONAL[str if kind is NoneType else kind] for kind in shape[half:]]
    return Schema("struct", fields=tuple(zip(shape[:half], kinds, strict=True)))
