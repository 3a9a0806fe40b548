"""MaskField: an empty value of the same type in place of the real one, or the replacement; null stays null."""

import re
import struct

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.errors import Invalid
from playhead.pipeline.records.encode.nodes import SPARK_TYPES, Leaf, Made, Node, Struct
from playhead.pipeline.records.encode.schema import FLOATS, INTEGER_BITS
from playhead.pipeline.records.transforms.casting import NUMBER

_EMPTY: dict[str, bool | int | float | str] = {
    "boolean": False,
    **dict.fromkeys(INTEGER_BITS, 0),
    **dict.fromkeys(FLOATS, 0.0),
    "string": "",
}


def mask_leaf(name: str, node: Node, replacement: str | None) -> Made:
    if isinstance(node, Struct):
        raise Invalid(f"Connect cannot mask {name!r}, which has fields of its own", "mask them before HoistField")
    kind = node.schema.type
    if node.schema.is_logical or kind not in _EMPTY:
        raise Invalid(
            f"Connect cannot mask {name!r}: its empty value does not fit a {node.schema.name or kind} of this source",
            "leave the field out with ReplaceField",
        )
    value = _EMPTY[kind] if replacement is None else _value(name, kind, replacement)
    mask = F.lit(value).cast(SPARK_TYPES[kind])
    is_plain = not isinstance(value, str) or value.isascii()
    return Made(node.schema, _where_given(node, mask), is_plain)


def _where_given(leaf: Leaf, mask: Column) -> Column:
    return F.when(leaf.json().isNull(), F.lit(None)).otherwise(mask) if leaf.schema.optional else mask


def _value(name: str, kind: str, replacement: str) -> int | float | str:
    if kind == "string":
        return replacement
    if kind in INTEGER_BITS and re.fullmatch(r"[+-]?[0-9]{1,19}", replacement, re.ASCII):
        number = int(replacement)
        if -(1 << (INTEGER_BITS[kind] - 1)) <= number < 1 << (INTEGER_BITS[kind] - 1):
            return number
    elif kind in FLOATS and re.fullmatch(NUMBER, replacement):
        number_ = float(replacement)
        return number_ if kind == "double" else float(struct.unpack(">f", struct.pack(">f", number_))[0])
    raise Invalid(f"the replacement {replacement!r} does not fit {name!r}, which is {kind}", "mask it by itself")
