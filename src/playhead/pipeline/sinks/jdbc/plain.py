"""A column of records -> the values that the connector's driver stores in SQLite.

Dates, times and timestamps are milliseconds since the epoch, which is what sqlite-jdbc writes by default; a decimal is its
digits, of which SQLite makes a number if the column is one; a boolean is 0 or 1.
"""

import pyarrow as pa
import pyarrow.compute as pc

_DAY_MILLIS = 86_400_000


def to_plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_date(kind):
        return pc.multiply(column.cast(pa.int32()).cast(pa.int64()), _DAY_MILLIS)
    if pa.types.is_time(kind):
        return column.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column.cast(pa.float64()) if pa.types.is_float32(kind) else column
