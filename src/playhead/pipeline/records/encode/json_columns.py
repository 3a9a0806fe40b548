r"""Columns under a schema of Connect -> the JSON that JsonConverter writes, byte for byte, column by column.

Jackson writes no blanks, UTF-8 as it is inside the basic plane, what is beyond it as an escaped pair of surrogates, and NaN and
Infinity as strings. A value becomes a few parts, constants and columns of text, and all parts of a record are joined at the end:
the names, quotes and commas between two columns are one constant. Where some values are null, only the others are written.

A null takes the default of its schema (`replace.null.with.default`), or must be allowed: if not, JsonConverter fails, and the
record is Unfit. A map has its entries in the order of the column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.connect.javajson import encode_string
from playhead.pipeline.records.batch import Unfit
from playhead.pipeline.records.decimals import decimal_octets, decimal_texts
from playhead.pipeline.records.decode.exact import default_array
from playhead.pipeline.records.floattext import float_texts
from playhead.pipeline.records.octets import encode_base64, octets_of
from playhead.pipeline.records.schema import Schema

Part = Any  # a constant (str), or a pa.Array of strings without nulls
_NULL = "null"
_SHORT = {'"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ASTRAL = 0xF0  # the first byte of every character beyond the basic plane, and no other byte, is as large


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """`numeric_decimals`: `decimal.format=NUMERIC`."""

    numeric_decimals: bool = False
    null_to_default: bool = True

    def payloads(self, values: pa.Array, schema: Schema) -> pa.Array:
        """Strings without nulls."""
        return _joined(self._parts(values, schema, ""), len(values))

    def envelopes(self, values: pa.Array, schema: Schema) -> pa.Array:
        begin = f'{{"schema":{self.schema_text(schema)},"payload":'
        return _joined([begin, *self._parts(values, schema, ""), "}"], len(values))

    def bare_envelopes(self, values: pa.Array, schema: Schema) -> pa.Array:
        return _joined(['{"schema":null,"payload":', *self._parts(values, schema, ""), "}"], len(values))

    def schema_text(self, schema: Schema, field: str | None = None) -> str:
        """In the order in which JsonConverter writes the members."""
        return "{" + ",".join(self._schema_members(schema, field)) + "}"

    def _schema_members(self, schema: Schema, field: str | None) -> Iterator[str]:
        yield f'"type":"{schema.type}"'
        if schema.is_struct:
            yield f'"fields":[{",".join(self.schema_text(inner, name) for name, inner in schema.fields)}]'
        if schema.keys is not None and schema.items is not None:
            yield f'"keys":{self.schema_text(schema.keys)},"values":{self.schema_text(schema.items)}'
        elif schema.items is not None:
            yield f'"items":{self.schema_text(schema.items)}'
        yield f'"optional":{"true" if schema.optional else "false"}'
        if schema.name:
            yield f'"name":{encode_string(schema.name)}'
        if schema.version is not None:
            yield f'"version":{schema.version}'
        if schema.doc is not None:
            yield f'"doc":{encode_string(schema.doc)}'
        if schema.parameters:
            inner = ",".join(f"{encode_string(name)}:{encode_string(value)}" for name, value in schema.parameters)
            yield f'"parameters":{{{inner}}}'
        if schema.default is not None:
            yield f'"default":{self._default(schema)}'
        if field is not None:
            yield f'"field":{encode_string(field)}'

    def _default(self, schema: Schema) -> str:
        return str(self.payloads(default_array(schema), schema)[0].as_py())

    # Values

    def _parts(self, values: pa.Array, schema: Schema, path: str) -> list[Part]:
        if not len(values):
            return [pa.array([], pa.string())]
        if not values.null_count:
            return self._present(values, schema, path)
        null = self._null(schema, path)
        if values.null_count == len(values):
            return [null]
        present = values.drop_null()
        texts = _joined(self._present(present, schema, path), len(present))
        return [pc.replace_with_mask(pa.repeat(null, len(values)), values.is_valid(), texts)]

    def _null(self, schema: Schema, path: str) -> str:
        if schema.default is not None and self.null_to_default:
            return self._default(schema)
        if not schema.optional:
            raise Unfit(f"{f'field {path!r}' if path else 'the value'} is null, which its schema does not allow")
        return _NULL

    def _present(self, values: pa.Array, schema: Schema, path: str) -> list[Part]:
        """`values` has no nulls."""
        if schema.is_struct:
            return self._struct(values, schema, path)
        if schema.keys is not None and schema.items is not None:
            return self._map(values, schema.keys, schema.items, path)
        if schema.items is not None:
            return self._list(values, schema.items, path)
        return self._decimal(values, schema) if schema.is_decimal else _leaf(values, schema)

    def _struct(self, values: pa.Array, schema: Schema, path: str) -> list[Part]:
        parts: list[Part] = ["{"]
        for at, ((name, inner), column) in enumerate(zip(schema.fields, values.flatten(), strict=True)):
            own = f"{path}.{name}" if path else name
            parts += [f"{',' if at else ''}{encode_string(name)}:", *self._parts(column, inner, own)]
        return [*parts, "}"]

    def _decimal(self, values: pa.Array, schema: Schema) -> list[Part]:
        scale = schema.parameter("scale", 0)
        if self.numeric_decimals:
            return [decimal_texts(values, scale)]
        return ['"', decimal_octets(values, scale), '"']

    def _list(self, values: pa.Array, items: Schema, path: str) -> list[Part]:
        ends = values.offsets.to_numpy()
        inner = values.values[int(ends[0]) : int(ends[-1])]
        return _bracketed("[", _joined(self._parts(inner, items, f"{path}[]"), len(inner)), ends, "]")

    def _map(self, values: pa.Array, keys: Schema, items: Schema, path: str) -> list[Part]:
        """An object where the keys are strings, else an array of pairs."""
        ends = values.offsets.to_numpy()
        first, last = int(ends[0]), int(ends[-1])
        names, inner = values.keys[first:last], values.items[first:last]
        key_parts, item_parts = self._parts(names, keys, f"{path}[]"), self._parts(inner, items, f"{path}[]")
        if keys.type == "string":
            return _bracketed("{", _joined([*key_parts, ":", *item_parts], len(names)), ends, "}")
        return _bracketed("[", _joined(["[", *key_parts, ",", *item_parts, "]"], len(names)), ends, "]")


def _leaf(values: pa.Array, schema: Schema) -> list[Part]:
    if pa.types.is_temporal(values.type):
        return [values.cast(pa.int64() if schema.type == "int64" else pa.int32()).cast(pa.string())]
    if schema.type == "string":
        return ['"', escaped(values), '"']
    if schema.type == "bytes":
        return ['"', encode_base64(values), '"']
    if schema.type in ("float", "double"):
        return [_float_json(values)]
    return [values.cast(pa.string())]


def _bracketed(opening: str, texts: pa.Array, ends: np.ndarray, closing: str) -> list[Part]:
    lists = pa.ListArray.from_arrays(pa.array(ends - ends[0], pa.int32()), texts)
    return [opening, pc.binary_join(lists, ","), closing]


def _float_json(values: pa.Array) -> pa.Array:
    texts = float_texts(values)
    is_number = pc.is_finite(values)
    if pc.all(is_number).as_py():
        return texts
    return pc.if_else(is_number, texts, pc.binary_join_element_wise('"', texts, '"', ""))


def _joined(parts: Sequence[Part], count: int) -> pa.Array:
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    if len(merged) > 1:
        return pc.binary_join_element_wise(*merged, "")
    return pa.repeat(merged[0], count) if isinstance(merged[0], str) else merged[0]


def escaped(texts: pa.Array) -> pa.Array:
    """The insides of JSON strings. `texts` are strings without nulls; most need nothing."""
    _, content = octets_of(texts)
    made = texts
    if (content == ord("\\")).any():
        made = pc.replace_substring(made, "\\", "\\\\")
    found = [34] if (content == 34).any() else []
    if (content < 0x20).any():
        found += np.flatnonzero(np.bincount(content[content < 0x20])).tolist()
    for code in found:
        made = pc.replace_substring(made, chr(code), _SHORT.get(chr(code), f"\\u{code:04X}"))
    if (content >= _ASTRAL).any():
        # Row by row, but only those that have such a character.
        rows = pc.match_substring_regex(texts, "[\U00010000-\U0010ffff]")
        made = pc.replace_with_mask(
            made, rows, pa.array([encode_string(one)[1:-1] for one in texts.filter(rows).to_pylist()])
        )
    return made
