"""A row of a table -> the value of its record, byte for byte what Connect's JDBC source and its converter write.

Everything is an expression of Spark over the columns that `reads` asks for: rows never pass through Python. What Connect would
cut, misread or fail at is refused: by the column's type here, before anything is read, or by a value in a task (`faults`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812

from playhead.errors import Invalid
from playhead.pipeline.records.encode.columns import SqlColumn
from playhead.pipeline.records.encode.fields import SqlField, find_field
from playhead.pipeline.records.encode.nodes import Read, Struct
from playhead.pipeline.records.encode.options import JSON, RecordOptions
from playhead.pipeline.records.encode.reads import Quote, read_text
from playhead.pipeline.records.encode.schema import schema_of
from playhead.pipeline.records.encode.writing import check_text


@dataclass(frozen=True, slots=True)
class RowRecord:
    """`left_out` names the columns that Connect has no mapping for; `value` is the row before any transform."""

    fields: tuple[SqlField, ...]
    left_out: tuple[str, ...]
    value: Struct
    options: RecordOptions
    product: str

    def reads(self, quote: Quote) -> tuple[str, ...]:
        """The select list, one entry a field; `quote` is the database's own quoting of an identifier."""
        return tuple(read_text(field, quote, self.product) for field in self.fields)


def make_record(columns: Sequence[SqlColumn], options: RecordOptions, schema_name: str, product: str) -> RowRecord:
    """`schema_name` is the bare table name, or empty for a query; `product` is JDBC's `getDatabaseProductName`."""
    _check_names(columns)
    found = [(column, find_field(column, options, product)) for column in columns]
    fields = tuple(field for _, field in found if field)
    left_out = tuple(column.name for column, field in found if field is None)
    if not fields:
        raise Invalid(
            "none of the columns has a form that Connect can write", "select at least one column of a plain type"
        )
    granularity = options.timestamp_granularity
    row = ((field.name, Read(field, schema_of(field, granularity), options, product)) for field in fields)
    value = Struct(tuple(row), schema_name or None)
    if options.value.name != JSON and not options.transforms:
        check_text(value)
    return RowRecord(fields, left_out, value, options, product)


def record_hash(value: SparkColumn) -> SparkColumn:
    """xxhash64 of the value's UTF-8 bytes, the hash of the ledger and the audit."""
    return F.xxhash64(value)


def _check_names(columns: Sequence[SqlColumn]) -> None:
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.get(column.name.lower())
        if other is not None:
            raise Invalid(
                f"the columns {other!r} and {column.name!r} have the same name for Spark",
                "give one of them another name in a query",
            )
        seen[column.name.lower()] = column.name
