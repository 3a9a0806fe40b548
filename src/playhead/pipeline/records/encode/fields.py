"""What Connect's JDBC source makes of a column: a field of its schema, or nothing.

The rules are those of the Confluent connector's generic and PostgreSQL dialects. A column without a mapping (interval, array,
inet, ...) is left out of the record, as the connector does. A column type whose values the connector would cut or misread is
refused here, before anything is read.
"""

from dataclasses import dataclass
from enum import Enum

from playhead.errors import Invalid
from playhead.pipeline.records.encode.options import RecordOptions

POSTGRES, SQLITE = "PostgreSQL", "SQLite"
UNBOUNDED_SCALE = 127  # what the connector takes when a numeric names no scale
_LOWEST_SCALE = -84
_MAX_INTEGER_PRECISION = 18


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """One column of a result, as `java.sql.ResultSetMetaData` reports it: `jdbc_type` is the number of `java.sql.Types`;
    `type_name`, `precision` and `scale` are the driver's own."""

    name: str
    jdbc_type: int
    type_name: str
    precision: int
    scale: int
    signed: bool
    nullable: bool


class Types:
    """The numbers of `java.sql.Types` that have a mapping."""

    BIT, TINYINT, SMALLINT, INTEGER, BIGINT = -7, -6, 5, 4, -5
    REAL, FLOAT, DOUBLE, NUMERIC, DECIMAL = 7, 6, 8, 2, 3
    DATE, TIME, TIMESTAMP, BOOLEAN, OTHER, SQLXML = 91, 92, 93, 16, 1111, 2009
    # CHAR VARCHAR LONGVARCHAR NCHAR NVARCHAR LONGNVARCHAR CLOB NCLOB DATALINK SQLXML
    TEXTS = frozenset({1, 12, -1, -15, -9, -16, 2005, 2011, 70, 2009})
    BYTES = frozenset({-2, -3, -4, 2004})  # BINARY VARBINARY LONGVARBINARY BLOB


class SqlKind(Enum):
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    STRING = "string"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class SqlField:
    """`type` is the name of Connect's schema type; `scale` counts for decimals only."""

    column: SqlColumn
    kind: SqlKind
    type: str
    scale: int = 0

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def is_zoned(self) -> bool:
        return self.column.type_name.lower() in ("timestamptz", "timetz")

    @property
    def is_numeric(self) -> bool:
        return self.column.jdbc_type in (Types.NUMERIC, Types.DECIMAL)


_PLAIN = {
    Types.BOOLEAN: (SqlKind.BOOLEAN, "boolean"),
    Types.BIGINT: (SqlKind.INTEGER, "int64"),
    Types.REAL: (SqlKind.FLOAT, "float"),
    Types.FLOAT: (SqlKind.DOUBLE, "double"),
    Types.DOUBLE: (SqlKind.DOUBLE, "double"),
    Types.DATE: (SqlKind.DATE, "int32"),
    Types.TIME: (SqlKind.TIME, "int32"),
    **dict.fromkeys(Types.TEXTS, (SqlKind.STRING, "string")),
    **dict.fromkeys(Types.BYTES, (SqlKind.BYTES, "bytes")),
}
# The schema type of a signed and of an unsigned integer.
_INTEGERS = {
    Types.TINYINT: ("int8", "int16"),
    Types.SMALLINT: ("int16", "int32"),
    Types.INTEGER: ("int32", "int64"),
}
_POSTGRES_TEXTS = ("uuid", "json", "jsonb")


def find_field(column: SqlColumn, options: RecordOptions, product: str) -> SqlField | None:
    """None: the connector leaves such a column out of its records."""
    jdbc_type = column.jdbc_type
    if product == SQLITE and jdbc_type in (Types.DATE, Types.NUMERIC):
        jdbc_type = _sqlite_type(column)
    if jdbc_type in _PLAIN:
        return SqlField(column, *_PLAIN[jdbc_type])
    if jdbc_type in _INTEGERS:
        return SqlField(column, SqlKind.INTEGER, _INTEGERS[jdbc_type][0 if column.signed else 1])
    if jdbc_type in (Types.NUMERIC, Types.DECIMAL):
        return _numeric(column, options, product)
    if jdbc_type == Types.TIMESTAMP:
        return SqlField(column, SqlKind.TIMESTAMP, "string" if "string" in options.timestamp_granularity else "int64")
    if jdbc_type == Types.BIT:
        return _bit(column, product)
    if jdbc_type == Types.OTHER and product == POSTGRES and column.type_name.lower() in _POSTGRES_TEXTS:
        return SqlField(column, SqlKind.STRING, "string")
    return None


def _sqlite_type(column: SqlColumn) -> int:
    """The driver calls DATETIME a date, which would lose the time, and a type it does not know whatever the first row holds."""
    declared = column.type_name.upper()
    if column.jdbc_type == Types.NUMERIC and declared not in ("NUMERIC", "DECIMAL"):
        raise Invalid(
            f"column {column.name!r} has the declared type {declared or 'none'}, which SQLite's driver does not know",
            "leave it out or declare it as INTEGER, TEXT, REAL, NUMERIC, DATE or TIMESTAMP",
        )
    return Types.TIMESTAMP if declared == "DATETIME" else column.jdbc_type


def _bit(column: SqlColumn, product: str) -> SqlField:
    if product != POSTGRES:
        return SqlField(column, SqlKind.INTEGER, "int8")
    if column.precision != 1:
        raise Invalid(
            f"column {column.name!r} is bit({column.precision}), which Connect misreads as a decimal number",
            f'leave it out or cast it in a query, for example "{column.name}"::text',
        )
    return SqlField(column, SqlKind.BOOLEAN, "boolean")


def _numeric(column: SqlColumn, options: RecordOptions, product: str) -> SqlField:
    mapping, precision, scale = options.numeric_mapping, column.precision, column.scale
    # Only NUMERIC follows numeric.mapping: the connector always makes a Decimal of the JDBC type DECIMAL.
    if column.jdbc_type == Types.NUMERIC and mapping != "none":
        is_whole = scale == 0 if mapping == "precision_only" else _LOWEST_SCALE <= scale < 1
        if is_whole and precision <= _MAX_INTEGER_PRECISION:
            return SqlField(column, SqlKind.INTEGER, _integer_type(column, mapping))
        has_fraction = scale > 0 and mapping != "precision_only"
        if has_fraction and (precision <= _MAX_INTEGER_PRECISION or mapping == "best_fit_eager_double"):
            return SqlField(column, SqlKind.DOUBLE, "double")
    is_unbounded = product == POSTGRES and precision == 0 and scale == 0
    return SqlField(column, SqlKind.DECIMAL, "bytes", UNBOUNDED_SCALE if is_unbounded or scale == -127 else scale)


def _integer_type(column: SqlColumn, mapping: str) -> str:
    precision = column.precision
    if precision == 0:
        raise Invalid(
            f"column {column.name!r} is numeric without a precision, which numeric.mapping={mapping} cuts to one byte",
            "use numeric.mapping=none, or give the column a precision",
        )
    return next(name for most, name in ((2, "int8"), (4, "int16"), (9, "int32"), (18, "int64")) if precision <= most)
