"""A record's key or value between its source and its converter: a tree of structs whose leaves are expressions of Spark.

A leaf knows its schema and how each converter writes it. `Read` is a column of a table as the JDBC source gives it, `Made` is
what a transform or another source created. Nothing is built in the JVM before one of the forms of a leaf is requested.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column

from playhead.pipeline.records.encode import decimals, structtext, times
from playhead.pipeline.records.encode.fields import SqlField, SqlKind
from playhead.pipeline.records.encode.granularity import write_timestamp
from playhead.pipeline.records.encode.options import RecordOptions
from playhead.pipeline.records.encode.reads import read_column
from playhead.pipeline.records.encode.schema import DECIMAL, STRUCT, TIMESTAMP, Schema

SPARK_TYPES = {
    "boolean": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
}


@dataclass(frozen=True, slots=True)
class Read:
    """`options`: only what shapes values counts here; which converter writes them does not."""

    field: SqlField
    schema: Schema
    options: RecordOptions
    product: str

    @property
    def column(self) -> Column:
        """As it was read: numerics and times of day are texts, dates are days."""
        return read_column(self.field, self.product)

    @property
    def string(self) -> Column | None:
        """The text that may hold any character, if it is one."""
        return self.column if self.field.kind is SqlKind.STRING else None

    def json(self) -> Column:
        """The value that Jackson is given."""
        field, column = self.field, self.column
        match field.kind:
            case SqlKind.DECIMAL:
                return decimals.unscaled_bytes(column, field)
            case SqlKind.DATE:
                return times.hybrid_days(column, field.name)
            case SqlKind.TIME:
                return times.millis_of_day(column, self._zoned, field.name)
            case SqlKind.TIMESTAMP:
                return self._timestamp()
            case SqlKind.STRING | SqlKind.BYTES:
                return column
            case _:
                return self._number()

    def number(self) -> tuple[Column, bool]:
        """Of a decimal with `decimal.format=NUMERIC`: the value, and whether it is JSON text already."""
        if decimals.fits_spark(self.field):
            return decimals.to_decimal(self.column, self.field), False
        return decimals.java_text(self.column, self.field), True

    def text(self) -> Column:
        """What the Java object prints."""
        field, column = self.field, self.column
        match field.kind:
            case SqlKind.DECIMAL:
                return decimals.java_text(column, field)
            case SqlKind.DATE:
                return structtext.java_date(times.printed_days(column, field.name), field.name)
            case SqlKind.TIME:
                return structtext.java_time(times.millis_of_time(column, self._zoned))
            case SqlKind.TIMESTAMP if self.schema.name == TIMESTAMP:
                return structtext.java_timestamp(times.printed_time(column, self._zoned, field.name), field.name)
            case SqlKind.TIMESTAMP:
                return self._timestamp()
            case SqlKind.STRING:
                return column
            case _:
                return self._number()

    @property
    def _zoned(self) -> times.Zoned:
        return times.no_zone if self.field.is_zoned else times.in_zone(self.options.db_timezone)

    def _number(self) -> Column:
        column = decimals.finite(self.column, self.field) if self.field.is_numeric else self.column
        return column.cast(SPARK_TYPES[self.field.type])

    def _timestamp(self) -> Column:
        field, options = self.field, self.options
        granularity, zone = options.timestamp_granularity, options.db_timezone
        return write_timestamp(self.column, granularity, zone, is_zoned=field.is_zoned, name=field.name)


@dataclass(frozen=True, slots=True)
class Made:
    """`column` is of the Spark type that its schema's type names. `is_ascii`: its text is known to be plain."""

    schema: Schema
    column: Column
    is_ascii: bool = False

    @property
    def string(self) -> Column | None:
        return self.column if self.schema.type == "string" and not self.is_ascii else None

    def json(self) -> Column:
        return self.column

    def text(self) -> Column:
        return self.column.cast("string")


Leaf = Read | Made


@dataclass(frozen=True, slots=True)
class Struct:
    """Never null, and never optional: rows are, and so is what transforms make of them."""

    fields: tuple[tuple[str, "Node"], ...]
    name: str | None = None
    version: int | None = None

    @property
    def schema(self) -> Schema:
        fields = tuple((name, node.schema) for name, node in self.fields)
        return Schema(STRUCT, name=self.name, version=self.version, fields=fields)

    def find(self, name: str) -> "Node | None":
        return next((node for known, node in self.fields if known == name), None)


Node = Leaf | Struct


def leaves(node: Node, name: str = "") -> Iterator[tuple[str, Leaf]]:
    """With the names of their fields; empty for a leaf that is the whole."""
    if isinstance(node, Struct):
        for inner, child in node.fields:
            yield from leaves(child, inner)
    else:
        yield name, node


def is_decimal(leaf: Leaf) -> bool:
    return leaf.schema.name == DECIMAL
