"""How a column is queried, so that it arrives as a column of Arrow in the form that `from_sql` starts from.

PostgreSQL gives numerics as text (Arrow's decimals end at 76 digits, Spark's at 38), dates as a number of days, infinite dates
and timestamps as values of their own, and as text what neither ADBC nor Spark's reader has a type for. SQLite has values of any
type in any column, and its driver cuts integers and dates: they are read as expressions, which Spark reads as numerics.
"""

from collections.abc import Callable

from playhead.pipeline.records.encode.fields import POSTGRES, SQLITE, SqlField, SqlKind, Types

Quote = Callable[[str], str]
INFINITE_DAY = 2**31 - 1  # what a read gives in place of an infinite date
INFINITE_TIME = "290000-01-01 00:00:00"  # ... and of an infinite timestamp: no clock gets there
INFINITE_MICROS = 9_089_348_860_800_000_000  # the same instant
# The strings of PostgreSQL that are texts as they are; ::text would cut the blanks of bpchar.
_PLAIN_TEXTS = ("text", "varchar", "bpchar", "name", "")


def read_text(field: SqlField, quote: Quote, product: str) -> str:
    """The entry of a select list for this field."""
    name = quote(field.name)
    forms = {POSTGRES: _postgres, SQLITE: _sqlite}
    expression = forms[product](field, name) if product in forms else name
    return name if expression == name else f"{expression} AS {name}"


def _postgres(field: SqlField, name: str) -> str:
    type_name = field.column.type_name.lower()
    is_odd_text = field.kind is SqlKind.STRING and type_name not in _PLAIN_TEXTS  # enums, "char", json, uuid, xml
    if field.is_numeric or is_odd_text or type_name == "bit":
        return f"{name}::text"
    if type_name == "oid":
        return f"{name}::bigint"
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
        return _sqlite_time(name, name, millis, INFINITE_MICROS // 1000)
    return name


def _sqlite_time(name: str, of_integer: str, of_text: str, unreadable: int) -> str:
    other = f"WHEN 'null' THEN NULL ELSE coalesce({of_text}, {unreadable}) END"
    return f"CASE typeof({name}) WHEN 'integer' THEN {of_integer} {other}"


def is_sqlite_datetime(field: SqlField) -> bool:
    return field.kind is SqlKind.TIMESTAMP and field.column.type_name.upper() == "DATETIME"
