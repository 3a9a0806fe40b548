"""How a column is queried, so that it arrives in Spark as the form our expressions start from, and what it is there.

PostgreSQL gives numerics as text (Spark's decimals end at 38 digits), dates as a number of days, and infinite dates and
timestamps, which Spark's reader would turn into the years 1 and 9999, as values of their own. SQLite has values of any type in
any column, and its driver cuts integers and dates: they are read as expressions, which Spark reads as numerics.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.pipeline.records.encode.faults import fault
from playhead.pipeline.records.encode.fields import POSTGRES, SQLITE, SqlField, SqlKind, Types
from playhead.pipeline.records.encode.times import INFINITE_DAY, INFINITE_MILLIS, INFINITE_TIME

Quote = Callable[[str], str]


def read_text(field: SqlField, quote: Quote, product: str) -> str:
    """The entry of a select list for this field."""
    name = quote(field.name)
    forms = {POSTGRES: _postgres, SQLITE: _sqlite}
    expression = forms[product](field, name) if product in forms else name
    return name if expression == name else f"{expression} AS {name}"


def _postgres(field: SqlField, name: str) -> str:
    type_name = field.column.type_name.lower()
    if field.is_numeric or field.column.jdbc_type in (Types.OTHER, Types.SQLXML):
        return f"{name}::text"
    if type_name == "money":
        return f"{name}::numeric::float8"
    if field.kind is SqlKind.DATE:
        return f"CASE WHEN NOT isfinite({name}) THEN {INFINITE_DAY} ELSE {name} - DATE '1970-01-01' END"
    if field.kind is SqlKind.TIME:
        return f"{name}::time::text || ' ' || extract(timezone FROM {name})::int" if field.is_zoned else f"{name}::text"
    if field.kind is SqlKind.TIMESTAMP:
        infinite = f"TIMESTAMPTZ '{INFINITE_TIME}+00'" if field.is_zoned else f"TIMESTAMP '{INFINITE_TIME}'"
        # Later ones do not fit Spark's 64 bits of microseconds; its reader would fail without the column's name.
        return f"CASE WHEN NOT isfinite({name}) OR {name} >= {infinite} THEN {infinite} ELSE {name} END"
    return name


def _sqlite(field: SqlField, name: str) -> str:
    """Times are texts or milliseconds, as the driver writes them."""
    if field.is_numeric or field.column.jdbc_type == Types.INTEGER:
        return f"+{name}"
    if field.kind is SqlKind.DATE:
        days = f"CAST(round(julianday(date({name})) - 2440587.5) AS INTEGER)"
        return _sqlite_time(name, f"CAST(floor({name} / 86400000.0) AS INTEGER)", days, INFINITE_DAY)
    if is_sqlite_datetime(field):
        millis = f"CAST(strftime('%s', {name}) AS INTEGER) * 1000 + CAST(substr(strftime('%f', {name}), 4) AS INTEGER)"
        return _sqlite_time(name, name, millis, INFINITE_MILLIS)
    return name


def _sqlite_time(name: str, of_integer: str, of_text: str, unreadable: int) -> str:
    other = f"WHEN 'null' THEN NULL ELSE coalesce({of_text}, {unreadable}) END"
    return f"CASE typeof({name}) WHEN 'integer' THEN {of_integer} {other}"


def is_sqlite_datetime(field: SqlField) -> bool:
    return field.kind is SqlKind.TIMESTAMP and field.column.type_name.upper() == "DATETIME"


def read_column(field: SqlField, product: str) -> Column:
    """The column of the frame: numerics and times of day as text, dates as days since the epoch, the rest as its own type."""
    column = F.col("`" + field.name.replace("`", "``") + "`")
    if product == POSTGRES:
        return column
    if field.is_numeric:
        return _exact_text(column, field)
    if product == SQLITE and field.column.jdbc_type == Types.INTEGER:
        return _in_range(column, field)
    if product == SQLITE and is_sqlite_datetime(field):
        return F.timestamp_millis(column.cast("bigint"))
    if field.kind is SqlKind.DATE:
        return column.cast("int") if product == SQLITE else F.unix_date(column.cast("date"))
    if field.kind is SqlKind.TIME:
        return F.date_format(column, "HH:mm:ss.SSSSSS")
    return column


def _exact_text(column: Column, field: SqlField) -> Column:
    """With the field's own scale; Spark's reader may have given the column a finer one.

    Decimals are checked as text: to compare two of them Spark rounds the finer one first.
    """
    text = column.cast("string")
    decimals = F.length(F.rtrim(text, F.lit("0"))) - F.instr(text, ".")
    too_fine = fault(field.name, f"holds a number with more than {field.scale} decimals, which Connect cannot write")
    scaled = column.cast(f"decimal(38,{field.scale})").cast("string")
    return F.when((F.instr(text, ".") > 0) & (decimals > field.scale), too_fine).otherwise(scaled)


def _in_range(column: Column, field: SqlField) -> Column:
    """SQLite's integers have 64 bits whatever their column says; the driver would cut them to the field's 32."""
    if field.type != "int32":
        return column
    too_large = fault(field.name, "holds an integer of more than 32 bits, which Connect would cut")
    return F.when((column < -(2**31)) | (column >= 2**31), too_large).otherwise(column)
