"""The text that Java's own `toString` makes of a value: what StringConverter and FileStreamSink write.

A struct is `Struct{a=1,b=x}` without its nulls, an array `[1, 2]`, a map `{b=2, a=1}` in its order, see `javamaps`. Bytes have no
text: Java writes an address. The text of a date depends on its class and on the zone of the worker: the caller decides.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.batch import Unfit
from playhead.pipeline.records.decimals import decimal_texts
from playhead.pipeline.records.floattext import float_texts
from playhead.pipeline.records.schema import Schema


@dataclass(frozen=True, slots=True)
class JavaText:
    """`of_times`: the texts of a column of dates, times or timestamps without nulls."""

    of_times: Callable[[pa.Array], pa.Array]

    def of(self, values: pa.Array, schema: Schema) -> pa.Array:
        """Strings; null stays null. Raises Unfit if one of them has no text."""
        if values.null_count == len(values):
            return pa.nulls(len(values), pa.string())
        if schema.is_struct:
            return self._structs(values, schema)
        if schema.keys is not None and schema.items is not None:
            return self._maps(values, schema.keys, schema.items)
        if schema.items is not None:
            return self._lists(values, schema.items)
        if schema.is_decimal:
            return decimal_texts(values, schema.parameter("scale", 0))
        if pa.types.is_temporal(values.type):
            return self.of_times(values)
        if schema.type == "bytes":
            raise Unfit("it has bytes, of which Java's text is an address in memory")
        if schema.type in ("float", "double"):
            return float_texts(values)
        return values.cast(pa.string())

    def _structs(self, values: pa.Array, schema: Schema) -> pa.Array:
        if not schema.fields:
            return unless_null(values, pa.scalar("Struct{}"))
        fields = [
            pc.binary_join_element_wise(f"{name}=", self.of(pc.struct_field(values, [at]), inner), "")
            for at, (name, inner) in enumerate(schema.fields)
        ]
        begun = pc.binary_join_element_wise("Struct{", *fields, ",", null_handling="skip")
        inside = pc.replace_substring(begun, "Struct{,", "Struct{", max_replacements=1)
        return unless_null(values, pc.binary_join_element_wise(inside, "}", ""))

    def _lists(self, values: pa.Array, items: Schema) -> pa.Array:
        ends = values.offsets.to_numpy()
        texts = pc.fill_null(self.of(values.values[int(ends[0]) : int(ends[-1])], items), "null")
        inner = pa.ListArray.from_arrays(pa.array(ends - ends[0]), texts)
        return unless_null(values, pc.binary_join_element_wise("[", pc.binary_join(inner, ", "), "]", ""))

    def _maps(self, values: pa.Array, keys: Schema, items: Schema) -> pa.Array:
        if keys.type != "string":
            raise Unfit(f"it has a map with keys of type {keys.type}, whose order is not known")
        ends = values.offsets.to_numpy()
        first, last = int(ends[0]), int(ends[-1])
        names = values.keys[first:last].to_pylist()
        texts = pc.fill_null(self.of(values.items[first:last], items), "null").to_pylist()
        pairs = ((zip(names[start:end], texts[start:end], strict=True)) for start, end in pairwise(ends - first))
        return unless_null(values, pa.array(map(map_text, pairs), pa.string()))


def map_text(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name}={text}" for name, text in members) + "}"


def unless_null(values: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))
