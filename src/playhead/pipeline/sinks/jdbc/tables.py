"""The tables of a sink, as an executor knows them: found once, made if that is wanted, checked against the schema of records."""

import re
from dataclasses import dataclass, field

from playhead.errors import Invalid, NotFound, Refused, near_names
from playhead.pipeline.sinks.jdbc.address import SQLITE, Target
from playhead.pipeline.sinks.jdbc.ddl import column_rule, column_type
from playhead.pipeline.sinks.jdbc.fitting import check_column
from playhead.pipeline.sinks.jdbc.layout import Field, Layout
from playhead.pipeline.sinks.jdbc.options import UPDATE, JdbcSinkOptions
from playhead.sql import merging
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.faults import translated
from playhead.sql.target_tables import (
    TableName,
    TargetColumn,
    TargetTable,
    column_name,
    create_table,
    find_table,
    parse_table_name,
)

_SECONDS = 30.0


def name_of(topic: str, options: JdbcSinkOptions, target: Target) -> TableName:
    text = options.table_format.replace("${topic}", topic)
    if options.normalizes:
        text = re.sub(r"[^a-zA-Z0-9_]", "_", text)
    name = parse_table_name(text, target.schema, quotes=options.quotes)
    if name.name.lower().startswith("playhead_"):
        raise Invalid(f"the table {name} would be one of Playhead's own", "set another table.name.format")
    return name


def how_of(options: JdbcSinkOptions) -> merging.How:
    return merging.How(options.insert_mode, options.deletes)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A layout and the columns of the table that its fields go to, side by side."""

    fields: tuple[Field, ...]
    columns: tuple[TargetColumn, ...]

    def layout(self, table: TableName) -> merging.Layout:
        keys = tuple(column.name for one, column in self.pairs if one.is_key)
        columns, kinds = (tuple(getattr(column, part) for column in self.columns) for part in ("name", "kind"))
        return merging.Layout(table, columns, kinds, keys)

    @property
    def pairs(self) -> list[tuple[Field, TargetColumn]]:
        return list(zip(self.fields, self.columns, strict=True))


@dataclass(slots=True)
class Tables:
    """Of one task and one topic."""

    name: TableName
    options: JdbcSinkOptions
    target: Target
    _known: dict[Layout, Fitted | None] = field(default_factory=dict)

    def fit(self, layout: Layout, *, deletes_only: bool) -> Fitted | None:
        """None: there is no table, and tombstones alone make none."""
        if layout not in self._known:
            table = self._find(layout, makes=not deletes_only)
            self._known[layout] = None if table is None else self._fitted(layout, table, deletes_only=deletes_only)
        return self._known[layout]

    def _find(self, layout: Layout, *, makes: bool) -> TargetTable | None:
        doing = f"looking at table {self.name}"
        with Database(parse_address(self.target.url), _SECONDS) as database:
            found = None
            if database.exists():
                with database.reading(doing) as connection:
                    found = find_table(connection, self.name)
            if found is not None or not makes:
                return found
            if not self.options.creates:
                hint = "create it, or set auto.create=true"
                raise NotFound("table", str(self.name), hint=hint)
            making = f"making table {self.name}"
            with database.transaction(making) as connection, translated(making):
                rules = {self._column(one): column_rule(one, self.target.product) for one in layout.created}
                create_table(connection, self.name, rules, [self._column(one) for one in layout.created if one.is_key])
                return find_table(connection, self.name)

    def _column(self, one: Field) -> str:
        return column_name(one.name, quotes=self.options.quotes)

    def _fitted(self, layout: Layout, table: TargetTable, *, deletes_only: bool) -> Fitted:
        if table.type not in self.options.table_types:
            raise Refused(f"{self.name} is a {table.type.lower()}, and table.types does not name that")
        columns = tuple(self._target_of(one, table) for one in layout.fields)
        for one, column in zip(layout.fields, columns, strict=True):
            if self.target.product == SQLITE:
                column_type(one.schema, SQLITE)
            else:
                check_column(one, column, self.name, self.options.zone)
        if not deletes_only and self.options.insert_mode != UPDATE:
            taken = {column.name for column in columns}
            for column in table.columns.values():
                if column.required and not column.filled and not column.generated and column.name not in taken:
                    raise Refused(
                        f"column {column.name} of {self.name} must have a value, and records have no such field",
                        "give the column a default, or let it be null",
                    )
        return Fitted(layout.fields, columns)

    def _target_of(self, one: Field, table: TargetTable) -> TargetColumn:
        name = self._column(one)
        known = {column.lower(): column for column in table.columns} if self.target.product == SQLITE else {}
        found = table.columns.get(name) or table.columns.get(known.get(name.lower(), ""))
        if found is None:
            near = near_names(name, list(table.columns))
            hint = f"add it, or leave the field out with fields.whitelist; {near}" if near else None
            raise Refused(f"table {self.name} has no column {name}, and auto.evolve is not honoured on Spark", hint)
        return found
