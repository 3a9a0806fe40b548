"""The target tables of a sink, in an executor: each is read once, created if requested, and checked against the records' schema.

CREATE TABLE is that of the connector: the schema of a field gives the type, default and nullability of its column. A field with a
default gets DEFAULT and no NOT NULL. The connector declares the columns of a primary key NOT NULL.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from playhead.errors import Invalid, NotFound, Refused, near_names
from playhead.pipeline.deliver.jdbc.layout import Layout, RowField, UnfitRecord, check_column
from playhead.pipeline.deliver.jdbc.options import SQLITE, UPDATE, JdbcSinkOptions, TargetDatabase
from playhead.pipeline.records.decimals import to_decimal, unscaled_of_bytes, unscaled_of_number
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema
from playhead.sql import merge as merging
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.faults import translated
from playhead.sql.target_tables import (
    TargetColumn,
    TargetTable,
    TargetTableName,
    column_name,
    create_table,
    find_table,
    parse_table_name,
)

_POSTGRESQL = {
    DECIMAL: "DECIMAL",
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    "int8": "SMALLINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE PRECISION",
    "boolean": "BOOLEAN",
    "string": "TEXT",
    "bytes": "BYTEA",
}
_SQLITE = {
    DECIMAL: "NUMERIC",
    DATE: "NUMERIC",
    TIME: "NUMERIC",
    TIMESTAMP: "NUMERIC",
    "boolean": "INTEGER",
    "int8": "INTEGER",
    "int16": "INTEGER",
    "int32": "INTEGER",
    "int64": "INTEGER",
    "float": "REAL",
    "double": "REAL",
    "string": "TEXT",
    "bytes": "BLOB",
}
_DAY = timedelta(days=1)


def column_type(schema: Schema, product: str) -> str:
    if schema.items is not None:
        if product == SQLITE:
            raise UnfitRecord("SQLite has no column for an array")
        return f"{column_type(schema.items, product)}[]"
    known = _SQLITE if product == SQLITE else _POSTGRESQL
    return known.get(schema.name) or known[schema.type]


def column_rule(field: RowField, product: str) -> str:
    """What follows the name of a column in CREATE TABLE."""
    kind = column_type(field.schema, product)
    if field.schema.default is not None:
        return f"{kind} DEFAULT {default_literal(field.schema, product)}"
    return f"{kind} NULL" if field.schema.optional and not field.is_key else f"{kind} NOT NULL"


def default_literal(schema: Schema, product: str) -> str:
    value = json.loads(schema.default or "null")
    if schema.name in (DATE, TIME, TIMESTAMP):
        return _moment_literal(int(value), schema.name, product)
    if schema.name == DECIMAL:
        scale = schema.parameter("scale", 0)
        is_text = isinstance(value, str)
        number = unscaled_of_bytes(base64.b64decode(value)) if is_text else unscaled_of_number(str(value), scale)
        return f"{to_decimal(number or 0, scale):f}"
    if schema.type == "boolean":
        return str(int(value)) if product == SQLITE else str(value).upper()
    if schema.type == "bytes":
        octets = base64.b64decode(value).hex().upper()
        return f"x'{octets}'" if product == SQLITE else f"'\\x{octets}'::bytea"
    if schema.type == "string":
        return "'" + str(value).replace("'", "''") + "'"
    if schema.items is not None:
        raise UnfitRecord("a default of an array is not supported")
    return repr(value)


def _moment_literal(count: int, name: str, product: str) -> str:
    """SQLite's driver stores milliseconds since the epoch for every type."""
    if product == SQLITE:
        return str(count * 86_400_000 if name == DATE else count)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + (_DAY * count if name == DATE else timedelta(milliseconds=count))
    text = moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    return "'" + (text[:10] if name == DATE else text[11:] if name == TIME else text) + "'"


_SECONDS = 30.0


def name_of(topic: str, options: JdbcSinkOptions, target: TargetDatabase) -> TargetTableName:
    text = options.table_format.replace("${topic}", topic)
    if options.normalizes:
        text = re.sub(r"[^a-zA-Z0-9_]", "_", text)
    name = parse_table_name(text, target.schema, quotes=options.quotes)
    if name.name.lower().startswith("playhead_"):
        raise Invalid(
            f"the name of table {name} is reserved for Playhead's own tables", "set another table.name.format"
        )
    return name


def how_of(options: JdbcSinkOptions) -> merging.How:
    return merging.How(options.insert_mode, options.deletes)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The fields of a layout and, in the same order, their columns in the table."""

    fields: tuple[RowField, ...]
    columns: tuple[TargetColumn, ...]

    def layout(self, table: TargetTableName) -> merging.MergeLayout:
        keys = tuple(column.name for one, column in self.pairs if one.is_key)
        columns, kinds = (tuple(getattr(column, part) for column in self.columns) for part in ("name", "kind"))
        return merging.MergeLayout(table, columns, kinds, keys)

    @property
    def pairs(self) -> list[tuple[RowField, TargetColumn]]:
        return list(zip(self.fields, self.columns, strict=True))


@dataclass(slots=True)
class TargetTables:
    """Of one task and one topic."""

    name: TargetTableName
    options: JdbcSinkOptions
    target: TargetDatabase
    _known: dict[Layout, Fitted | UnfitRecord | None] = field(default_factory=dict)

    def fit(self, layout: Layout, *, deletes_only: bool) -> Fitted | None:
        """None: there is no table, and tombstones alone do not create it. Raises UnfitRecord if the table cannot hold such
        records: the connector reports each of them, too."""
        if layout not in self._known:
            self._known[layout] = self._tried(layout, deletes_only=deletes_only)
        found = self._known[layout]
        if isinstance(found, UnfitRecord):
            raise found
        return found

    def _tried(self, layout: Layout, *, deletes_only: bool) -> Fitted | UnfitRecord | None:
        table = self._find(layout, creates=not deletes_only)
        try:
            return None if table is None else self._fitted(layout, table, deletes_only=deletes_only)
        except UnfitRecord as error:
            return error

    def _find(self, layout: Layout, *, creates: bool) -> TargetTable | None:
        doing = f"reading the columns of table {self.name}"
        with Database(parse_address(self.target.url), _SECONDS) as database:
            found = None
            if database.exists():
                with database.reading(doing) as connection:
                    found = find_table(connection, self.name)
            if found is not None or not creates:
                return found
            if not self.options.creates:
                hint = "create it, or set auto.create=true"
                raise NotFound("table", str(self.name), hint=hint)
            doing = f"creating table {self.name}"
            with database.transaction(doing) as connection, translated(doing):
                rules = {self._column(one): column_rule(one, self.target.product) for one in layout.created}
                create_table(connection, self.name, rules, [self._column(one) for one in layout.created if one.is_key])
                return find_table(connection, self.name)

    def _column(self, one: RowField) -> str:
        return column_name(one.name, quotes=self.options.quotes)

    def _fitted(self, layout: Layout, table: TargetTable, *, deletes_only: bool) -> Fitted:
        if table.type not in self.options.table_types:
            raise Refused(f"{self.name} is a {table.type.lower()}, and table.types does not include that")
        columns = tuple(self._target_of(one, table) for one in layout.fields)
        for one, column in zip(layout.fields, columns, strict=True):
            if self.target.product == SQLITE:
                column_type(one.schema, SQLITE)
            else:
                check_column(one, column, self.name)
        if not deletes_only and self.options.insert_mode != UPDATE:
            taken = {column.name for column in columns}
            for column in table.columns.values():
                if column.required and not column.filled and not column.generated and column.name not in taken:
                    raise UnfitRecord(
                        f"column {column.name} of {self.name} is NOT NULL, and the record has no such field; give the column a"
                        " default, or drop its NOT NULL"
                    )
        return Fitted(layout.fields, columns)

    def _target_of(self, one: RowField, table: TargetTable) -> TargetColumn:
        name = self._column(one)
        known = {column.lower(): column for column in table.columns} if self.target.product == SQLITE else {}
        found = table.columns.get(name) or table.columns.get(known.get(name.lower(), ""))
        if found is None:
            what = f"table {self.name} has no column {name}, and auto.evolve is not honoured on Spark"
            near = near_names(name, list(table.columns))
            raise UnfitRecord(
                f"{what}; add it, or leave the field out with fields.whitelist{f'; {near}' if near else ''}"
            )
        return found
