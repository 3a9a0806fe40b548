"""The SQL that a stream reads: the table or the query, with the cursor's columns under names of our own.

The bounds of a chunk are appended as a condition and an order. Databases optimize the inner SELECT away, so an index on the
cursor's column serves both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from playhead.errors import Invalid, NotFound
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.flavour import ID, INSTANT, TIME, Flavour
from playhead.pipeline.records.encode.fields import SqlColumn
from playhead.pipeline.records.encode.record import RowRecord

_NUMERIC, _DECIMAL = 2, 3  # java.sql.Types
_WHOLE = frozenset((-6, 5, 4, -5))  # TINYINT, SMALLINT, INTEGER, BIGINT


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, view or query. `source` is the text after FROM; `name` is None for a query."""

    catalog: str | None
    schema: str | None
    name: str | None
    source: str

    @property
    def shown(self) -> str:
        return ".".join(part for part in (self.schema, self.name) if part) if self.name is not None else "query"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The columns that define the position of a row, if the mode has them."""

    id: SqlColumn | None
    times: tuple[SqlColumn, ...]

    @property
    def time_name(self) -> str | None:
        return ", ".join(column.name for column in self.times) or None


@dataclass(frozen=True)
class SqlView:
    database: JdbcDatabase
    flavour: Flavour
    relation: Relation
    cursor: Cursor
    record: RowRecord
    suffix: str = ""

    @cached_property
    def id(self) -> str:
        return self.flavour.quote(ID)

    @cached_property
    def time(self) -> str:
        return self.flavour.quote(TIME)

    @cached_property
    def instant(self) -> str:
        return self.flavour.quote(INSTANT)

    @cached_property
    def order(self) -> str:
        """The columns that rows are sorted by; empty without a cursor."""
        names = [self.time] * bool(self.cursor.times) + [self.id] * (self.cursor.id is not None)
        return ", ".join(names)

    @cached_property
    def cursors(self) -> str:
        """Only the cursor of each row, for planning."""
        return self._from(self._cursor_columns())

    @cached_property
    def rows(self) -> str:
        """What is read: the record's columns and the cursor."""
        return self._from([*self.record.reads(self.flavour.quote), *self._cursor_columns()])

    def query(self, condition: str) -> str:
        """PostgreSQL: all that a task reads of a chunk. The cursor is outside, where its form does not matter to an index."""
        columns = [self.flavour.quote(field.name) for field in self.record.fields]
        columns += [f"{self.id}::bigint AS {self.id}"] * (self.cursor.id is not None)
        columns += [self.instant] * bool(self.cursor.times)
        return f"SELECT {', '.join(columns)} FROM {self.rows} WHERE {self.ending(condition)}"  # noqa: S608

    def shown(self, condition: str) -> str:
        """A chunk's condition with the column names of the user."""
        if self.cursor.id is not None:
            condition = condition.replace(self.id, self.flavour.quote(self.cursor.id.name))
        return condition.replace(self.time, ", ".join(self.flavour.quote(column.name) for column in self.cursor.times))

    def ending(self, condition: str) -> str:
        """A chunk's condition, followed by the order and the suffix."""
        return " ".join(
            part for part in (condition, f"ORDER BY {self.order}" if self.order else "", self.suffix) if part
        )

    def _cursor_columns(self) -> list[str]:
        columns = []
        if self.cursor.id is not None:
            columns.append(f"{self.flavour.quote(self.cursor.id.name)} AS {self.id}")
        if self.cursor.times:
            columns.append(f"{self.flavour.time_of(self.cursor.times)} AS {self.time}")
            columns.append(f"{self.flavour.instant_of(self.cursor.times)} AS {self.instant}")
        return columns

    def _from(self, columns: Sequence[str]) -> str:
        return f"(SELECT {', '.join(columns)} FROM {self.relation.source}) playhead_rows"  # noqa: S608


def find_cursor(
    columns: Sequence[tuple[SqlColumn, bool]], incrementing: str | None, times: Sequence[str], shown: str
) -> Cursor:
    """`incrementing`: None = not in this mode; empty = the auto-increment column, as Connect finds it."""
    known = {column.name: column for column, _ in columns}
    if incrementing == "":
        counted = [column for column, counts in columns if counts]
        if len(counted) != 1:
            raise Invalid(
                f"{shown} has {len(counted)} auto-increment columns",
                "name one in incrementing.column.name",
            )
        found: SqlColumn | None = counted[0]
    else:
        found = None if incrementing is None else _get(known, incrementing, shown)
    if found is not None and not _is_whole(found):
        raise Invalid(
            f"column {found.name!r} of {shown} is {found.type_name}, not a whole number",
            "incrementing.column.name accepts smallint, int, bigint and numeric(p,0)",
        )
    return Cursor(found, tuple(_get(known, name, shown) for name in times))


def refuse_nulls(cursor: Cursor, shown: str) -> None:
    """As the connector does for tables with validate.non.null: a row whose cursor is null would never be read."""
    way_out = "make it NOT NULL, or set validate.non.null=false and lose such rows"
    if cursor.id is not None and cursor.id.nullable:
        raise Invalid(f"column {cursor.id.name!r} of {shown} can be null", way_out)
    if cursor.times and all(column.nullable for column in cursor.times):
        names = ", ".join(repr(column.name) for column in cursor.times)
        raise Invalid(f"column {names} of {shown} can be null", way_out)


def _get(known: dict[str, SqlColumn], name: str, shown: str) -> SqlColumn:
    """Connect ignores the case of names, unless two columns differ only by case."""
    if name in known:
        return known[name]
    alike = [column for label, column in known.items() if label.lower() == name.lower()]
    if len(alike) != 1:
        raise NotFound(f"column of {shown}", name, list(known))
    return alike[0]


def _is_whole(column: SqlColumn) -> bool:
    if column.jdbc_type in (_NUMERIC, _DECIMAL):
        return column.precision > 0 and column.scale == 0
    return column.jdbc_type in _WHOLE
