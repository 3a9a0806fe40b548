"""A schema for values that carry none, from the first records of a topic.

It is created once and kept, so that all files of a topic have the same columns. Every field is optional; whole numbers are int64,
with any fraction among them double; a field that was always null, and an array that was always empty, counts as strings. A
field keeps the type that it had first: a record that disagrees does not fit, it never changes the schema. A field that was always
an empty object has no columns. It is not left out: no record that has it would fit then, and with `errors.tolerance: all` few
would notice. Its name is reported to the caller instead.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa

from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.records.batch import Moment, Unfit
from playhead.pipeline.records.decode.exact import decode_whole
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.decode.payloads import read_payloads
from playhead.pipeline.records.schema import Number, Schema

_MOST_RECORDS = 10_000
_NULL = Schema("null", optional=True)  # no type of Connect: it is gone before anybody sees it
_EMPTY = Schema("struct", optional=True)


def infer_schema(batch: pa.RecordBatch, converter: Converter, column: str = VALUE) -> Schema | None:
    """None if no value is an object with members. Call it once, keep its `text` in the ledger, give it to `Columns`; but check
    with `find_empty` first."""
    texts = read_payloads(batch.column(column), converter).texts.drop_null().slice(0, _MOST_RECORDS)
    return infer_from(_readable(texts.to_pylist()))


def _readable(texts: Iterable[bytes]) -> Iterator[object]:
    """A record with half a pair of surrogates fits no schema: its names must not be in this one."""
    for text in texts:
        with suppress(Unfit):
            yield decode_whole(text)


def infer_from(values: Iterable[object]) -> Schema | None:
    """The same of values that are read already."""
    found = _NULL
    for decoded in values:
        if isinstance(decoded, dict):
            found = _wider(found, _schema_of(decoded))
    if not found.fields:
        return None
    known = _known(found)
    return Schema(known.type, fields=known.fields)


def find_empty(schema: Schema, path: str = "") -> str | None:
    """The first field of which only empty objects were seen."""
    if schema.is_struct and not schema.fields:
        return path
    inner = [(f"{path}.{name}" if path else name, one) for name, one in schema.fields]
    if schema.items is not None:
        inner.append((f"{path}[]", schema.items))
    return next((found for name, one in inner if (found := find_empty(one, name)) is not None), None)


def _schema_of(decoded: object) -> Schema:
    if decoded is None:
        return _NULL
    if isinstance(decoded, dict):
        return Schema(
            "struct", optional=True, fields=tuple((name, _schema_of(value)) for name, value in decoded.items())
        )
    if isinstance(decoded, list):
        items = _NULL
        for item in decoded:
            items = _wider(items, _schema_of(item))
        return Schema("array", optional=True, items=items)
    if isinstance(decoded, bool):
        return Schema("boolean", optional=True)
    if isinstance(decoded, Number):
        return Schema("int64" if decoded.removeprefix("-").isdecimal() else "double", optional=True)
    if isinstance(decoded, int | np.integer | Moment):
        return Schema("int64", optional=True)
    return Schema("double" if isinstance(decoded, float | np.floating) else "string", optional=True)


def _wider(one: Schema, other: Schema) -> Schema:
    """Of both; where they disagree the first is kept, unless it says nothing."""
    if one.type == "null" or (one == _EMPTY and other.type != "null"):
        return other
    if {one.type, other.type} == {"int64", "double"}:
        return one if one.type == "double" else other
    if one.is_struct and other.is_struct:
        fields = dict(one.fields)
        for name, schema in other.fields:
            fields[name] = _wider(fields.get(name, _NULL), schema)
        return Schema("struct", optional=True, fields=tuple(fields.items()))
    if one.items is not None and other.items is not None:
        return Schema("array", optional=True, items=_wider(one.items, other.items))
    return one


def _known(schema: Schema) -> Schema:
    if schema.type == "null":
        return Schema("string", optional=True)
    fields = tuple((name, _known(inner)) for name, inner in schema.fields)
    return Schema(schema.type, optional=True, fields=fields, items=_known(schema.items) if schema.items else None)
