"""A row of a table -> its fields in Connect's records, and how they are read.

What Connect would cut, misread or fail at is refused: by the column's type here, before anything is read, or by a value in a task
(`from_sql`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from playhead.errors import Invalid
from playhead.pipeline.records.encode.converters import check_schema
from playhead.pipeline.records.encode.fields import SqlColumn, SqlField, find_field
from playhead.pipeline.records.encode.options import RecordOptions
from playhead.pipeline.records.encode.reads import Quote, read_text
from playhead.pipeline.records.from_sql import SqlRows


@dataclass(frozen=True, slots=True)
class RowRecord:
    """`left_out` names the columns that Connect has no mapping for; `rows` makes the values of records, before any transform."""

    rows: SqlRows
    left_out: tuple[str, ...]

    @property
    def fields(self) -> tuple[SqlField, ...]:
        return self.rows.fields

    def reads(self, quote: Quote) -> tuple[str, ...]:
        """The select list, one entry a field; `quote` is the database's own quoting of an identifier."""
        return tuple(read_text(field, quote, self.rows.product) for field in self.fields)


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
    rows = SqlRows(fields, options, schema_name, product)
    if not options.transforms:
        check_schema(rows.as_texts().schema, options.value)
    return RowRecord(rows, left_out)


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
