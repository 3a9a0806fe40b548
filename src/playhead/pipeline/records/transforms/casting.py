"""Cast: a value as another type, the way Java's `Number` and its parsers do it.

A whole number that does not fit loses its upper bits, a fraction loses what is after the point, and a floating point number
that is too large becomes the largest there is: none of it is an error to Java, so it is none here. A text that is no number is.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.errors import Invalid
from playhead.pipeline.records.encode import decimals
from playhead.pipeline.records.encode.faults import fault
from playhead.pipeline.records.encode.nodes import SPARK_TYPES, Leaf, Made, Node, Read, Struct, is_decimal
from playhead.pipeline.records.encode.schema import FLOATS, INTEGER_BITS, Schema

_MOST_DIGITS = 18  # of a decimal that surely fits 64 bits
_WHOLE = r"^[+-]?[0-9]+$"
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"  # for Java and for Python


def cast_leaf(name: str, node: Node, target: str) -> Made:
    if isinstance(node, Struct):
        raise Invalid(f"field {name!r} has fields of its own, which Connect cannot cast", "cast them before HoistField")
    column = _to_string(name, node) if target == "string" else _to_value(name, node, target)
    return Made(Schema(target, node.schema.optional), column, is_ascii=target == "string" and node.string is None)


def _to_string(name: str, leaf: Leaf) -> Column:
    if leaf.schema.type == "bytes" and not is_decimal(leaf):
        return F.base64(leaf.json())
    if leaf.schema.is_logical and not is_decimal(leaf):
        raise Invalid(
            f"the text of {name!r}, a date or time, would depend on the worker's zone",
            "use TimestampConverter with target.type=string and a format",
        )
    return leaf.text().cast("string")


def _to_value(name: str, leaf: Leaf, target: str) -> Column:
    kind = leaf.schema.type
    if is_decimal(leaf) and isinstance(leaf, Read):
        return _of_decimal(name, leaf, target)
    if kind == "bytes":
        raise Invalid(f"Connect casts bytes to string only, and {name!r} is bytes", "cast it to string")
    if kind == "string":
        return _of_text(name, leaf.json(), target)
    value = leaf.json()
    if kind == "boolean":
        return value if target == "boolean" else value.cast("int").cast(SPARK_TYPES[target])
    if target in FLOATS:
        return value.cast(SPARK_TYPES[target])
    if kind in FLOATS:
        bits = 64 if target in ("int64", "boolean") else 32
        value = _truncated(value.cast("double"), bits)
    return _wrapped(value.cast("bigint"), target)


def _wrapped(whole: Column, target: str) -> Column:
    """The lower bits of a bigint."""
    if target == "boolean":
        return whole != 0
    bits = INTEGER_BITS[target]
    if bits == 64:
        return whole
    sign = F.lit(1 << (bits - 1)).cast("bigint")
    lower = whole.bitwiseAND(F.lit((1 << bits) - 1).cast("bigint"))
    return (lower.bitwiseXOR(sign) - sign).cast(SPARK_TYPES[target])


def _truncated(number: Column, bits: int) -> Column:
    """A double as Java's `(int)` or `(long)` takes it, as bigint."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return (
        F.when(F.isnan(number), F.lit(0).cast("bigint"))
        .when(number >= float(high), F.lit(high).cast("bigint"))
        .when(number <= float(low), F.lit(low).cast("bigint"))
        .otherwise(number.cast("bigint"))
    )


def _of_decimal(name: str, leaf: Read, target: str) -> Column:
    field = leaf.field
    text = decimals.finite(leaf.column, field)
    if target in FLOATS:
        return text.cast(SPARK_TYPES[target])
    digits = field.column.precision - field.scale
    if not decimals.fits_spark(field) or field.scale < 0 or digits > _MOST_DIGITS:
        raise Invalid(
            f"{name!r} may have more than {_MOST_DIGITS} digits before the point, which a cast would cut",
            "cast it to string or float64",
        )
    return _wrapped(decimals.to_decimal(leaf.column, field).cast("bigint"), target)


def _of_text(name: str, text: Column, target: str) -> Column:
    if target == "boolean":
        return F.lower(text) == "true"
    form = f"^{NUMBER}$" if target in FLOATS else _WHOLE
    wrong = fault(name, f"holds a text that is no {target}, which Connect cannot cast")
    number = F.when(text.rlike(form), text.try_cast(SPARK_TYPES[target]))
    return F.when(text.isNull(), F.lit(None)).otherwise(F.coalesce(number, wrong)).cast(SPARK_TYPES[target])
