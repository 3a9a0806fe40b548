"""Decimals as columns of Spark, from their text: the bytes of Connect's Decimal, and the text of Java's BigDecimal.

Connect writes the unscaled value as big-endian two's complement in as few bytes as possible. A numeric without a precision has
scale 127 there, so that even 12.12 fills 54 bytes. What is no number, or has more decimals than the scale, ends the task.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.pipeline.records.encode import javacalls
from playhead.pipeline.records.encode.faults import fault
from playhead.pipeline.records.encode.fields import SqlField

_SPARK_DIGITS = 38


def fits_spark(field: SqlField) -> bool:
    """Spark's own decimal can hold every value of the field."""
    return 0 < max(field.column.precision, field.scale) <= _SPARK_DIGITS and field.column.precision > 0


def unscaled_bytes(text: Column, field: SqlField) -> Column:
    return javacalls.unscaled_bytes(_exact(text, field), field.scale)


def to_decimal(text: Column, field: SqlField) -> Column:
    """A decimal of Spark, which JSON writes as BigDecimal prints it; for fields that `fits_spark`."""
    return finite(text, field).cast(f"decimal({_SPARK_DIGITS},{field.scale})")


def java_text(text: Column, field: SqlField) -> Column:
    """What `BigDecimal.toString` gives: an exponent once there are more than six zeros after the point."""
    if fits_spark(field) and field.scale <= 6:
        return finite(text, field)
    return javacalls.decimal_text(_exact(text, field), field.scale)


def finite(text: Column, field: SqlField) -> Column:
    no_number = fault(field.name, "holds a numeric that is no number, which Connect cannot write")
    return F.when(text.isin("NaN", "Infinity", "-Infinity"), no_number).otherwise(text)


def _exact(text: Column, field: SqlField) -> Column:
    """Only a column without a precision of its own can hold more decimals than its scale."""
    number = finite(text, field)
    if field.column.precision:
        return number
    decimals = F.length(F.rtrim(text, F.lit("0"))) - F.instr(text, ".")
    too_fine = fault(field.name, f"holds a numeric with more than {field.scale} decimals, which Connect cannot write")
    return F.when((F.instr(text, ".") > 0) & (decimals > field.scale), too_fine).otherwise(number)
