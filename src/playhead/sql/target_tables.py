"""Finds, describes and creates the tables that a sink writes to. Names are always quoted.

A name with a dot is a schema and a table, as in the connector. With `quote.sql.identifiers=never` the database folds a name to
lower case as usual. A name that PostgreSQL would truncate is refused: two topics could be written to the same table.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    Connection,
    Row,
    TableClause,
    and_,
    case,
    column,
    delete,
    func,
    literal_column,
    quoted_name,
    select,
    table,
    text,
)

from playhead.errors import Invalid

_LONGEST_BYTES = 63
_PART = re.compile(r'"((?:[^"]|"")+)"|`([^`]+)`|([^."`]+)')
_CREATION_LOCK = 0x706C6179_7461626C  # "playtabl"
_FIND = text(
    """
    SELECT c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = :name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND (n.nspname = CAST(:schema AS text) OR (CAST(:schema AS text) IS NULL AND pg_table_is_visible(c.oid)))
    """
)
_SPELL = text(
    """
    SELECT n.nspname AS schema, pg_table_is_visible(c.oid) AS visible
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = :name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND (n.nspname = CAST(:schema AS text) OR (CAST(:schema AS text) IS NULL AND pg_table_is_visible(c.oid)))
    """
)
_COLUMNS = text(
    """
    SELECT a.attname, COALESCE(b.typname, t.typname) AS kind, COALESCE(b.typtype, t.typtype) AS sort,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
           a.attnotnull OR t.typnotnull AS required, a.atthasdef OR a.attidentity <> '' AS filled,
           a.attgenerated <> '' AS generated
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
    WHERE a.attrelid = :oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    """
)


@dataclass(frozen=True, slots=True)
class TargetTableName:
    schema: str | None
    name: str

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else quoted(self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """`kind`: the database's name of the type (`int4`); on SQLite the declared type. `filled`: the column has a default.

    `length` of a text, `precision` and `scale` of a numeric; None if there is no limit.
    """

    name: str
    kind: str
    required: bool = False
    filled: bool = False
    generated: bool = False
    is_enum: bool = False
    length: int | None = None
    precision: int | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class TargetTable:
    name: TargetTableName
    columns: Mapping[str, TargetColumn]
    type: str = "TABLE"


def quoted(name: str) -> str:
    if "\x00" in name:
        raise Invalid("a name in a database cannot contain the character U+0000")
    return '"' + name.replace('"', '""') + '"'


def column_name(name: str, *, quotes: bool) -> str:
    """The name as the database stores it."""
    if len(name.encode()) > _LONGEST_BYTES:
        raise Invalid(f"the name {name!r} is longer than {_LONGEST_BYTES} bytes, and PostgreSQL would truncate it")
    return name if quotes else name.lower()


def parse_table_name(text_: str, schema: str | None, *, quotes: bool) -> TargetTableName:
    """`schema`: used for a name without a schema; None: the database's search path."""
    parts, at = [], 0
    while found := _PART.match(text_, at):
        parts.append((found[1] or "").replace('""', '"') or found[2] or found[3])
        at = found.end() + 1
        if at > len(text_) or text_[at - 1] != ".":
            break
    if at != len(text_) + 1 or len(parts) > 2:
        raise Invalid(
            f"{text_!r} is not the name of a table", "name it like orders or sales.orders in table.name.format"
        )
    names = [column_name(part.strip(), quotes=quotes) for part in parts]
    return TargetTableName(names[0] if len(names) > 1 else schema, names[-1])


def find_table(connection: Connection, name: TargetTableName) -> TargetTable | None:
    if connection.dialect.name == "sqlite":
        return _find_sqlite(connection, name)
    found = connection.execute(_FIND, {"name": name.name, "schema": name.schema}).first()
    if found is None:
        return None
    rows = connection.execute(_COLUMNS, {"oid": found.oid}).all()
    columns = {row.attname: _column(row) for row in rows}
    kind = {"r": "TABLE", "p": "PARTITIONED TABLE"}.get(found.relkind, "VIEW")
    return TargetTable(name, columns, kind)


def has_rows(connection: Connection, name: TargetTableName) -> bool:
    if find_table(connection, name) is None:
        return False
    return connection.exec_driver_sql(f"SELECT 1 FROM {name.sql} LIMIT 1".replace("%", "%%")).first() is not None  # noqa: S608


def spellings(connection: Connection, name: TargetTableName) -> set[str]:
    """Every name under which this table may be recorded: with its schema, and without it if that finds the same table. Of two
    names of one table the results have a name in common. SQLite ignores the case of names."""
    if connection.dialect.name == "sqlite":
        return {name.name.lower()}
    found = connection.execute(_SPELL, {"name": name.name, "schema": name.schema}).first()
    if found is None:  # it would be created in the first schema of the search path
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar() if name.schema is None else None
        return {str(name), *([f"{schema}.{name.name}"] if schema else [])}
    return {f"{found.schema}.{name.name}", *([name.name] if found.visible else [])}


def create_table(connection: Connection, name: TargetTableName, rules: Mapping[str, str], keys: Sequence[str]) -> None:
    """`rules`: the definition of each column, after its name. Of two concurrent calls, one creates it and the other waits."""
    statement = create_statement(name, rules, keys)
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
        statement = statement.replace("%", "%%")
    connection.exec_driver_sql(statement)


def create_statement(name: TargetTableName, rules: Mapping[str, str], keys: Sequence[str]) -> str:
    lines = [f"{quoted(column)} {rule}" for column, rule in rules.items()]
    if keys:
        lines.append(f"PRIMARY KEY({','.join(quoted(key) for key in keys)})")
    return f"CREATE TABLE IF NOT EXISTS {name.sql} (\n" + ",\n".join(lines) + ")"


@dataclass(frozen=True, slots=True)
class Between:
    """Rows whose `equal` columns have one of these values, and whose whole number `column` is in [start, end)."""

    equal: Mapping[str, Sequence[object]]
    column: str
    start: int
    end: int


def delete_between(connection: Connection, name: TargetTableName, rows: Between) -> int:
    """0 if there is no such table."""
    if find_table(connection, name) is None:
        return 0
    target, wanted = _selected(name, rows)
    return connection.execute(delete(target).where(wanted)).rowcount


def count_between(
    connection: Connection, name: TargetTableName, rows: Between, edges: Sequence[int]
) -> Mapping[int, int]:
    """How many of these rows there are from each edge to the next one, in one pass over the table. `edges`: in order, from the
    start of `rows` to their end. Empty if there is no such table, or if it does not have these columns."""
    found = find_table(connection, name)
    if found is None or not {*rows.equal, rows.column} <= set(found.columns):
        return {}
    target, wanted = _selected(name, rows)
    edge = _edge_before(target.c[rows.column], edges[:-1]).label("edge")
    counted = connection.execute(select(edge, func.count()).select_from(target).where(wanted).group_by(text("1")))
    return {int(row[0]): row[1] for row in counted}


def _edge_before(number: ColumnElement[Any], edges: Sequence[int]) -> ColumnElement[Any]:
    """The last of these edges that is not after the number, found by halves."""
    if len(edges) == 1:
        return literal_column(str(edges[0]))
    middle = len(edges) // 2
    first, second = (_edge_before(number, some) for some in (edges[:middle], edges[middle:]))
    return case((number < edges[middle], first), else_=second)


def _selected(name: TargetTableName, rows: Between) -> tuple[TableClause, ColumnElement[bool]]:
    names = [*rows.equal, rows.column]
    columns: dict[str, ColumnClause[Any]] = {one: column(quoted_name(one, quote=True)) for one in names}
    schema = None if name.schema is None else quoted_name(name.schema, quote=True)
    target = table(quoted_name(name.name, quote=True), *columns.values(), schema=schema)
    wanted = [columns[one].in_(values) for one, values in rows.equal.items()]
    number = columns[rows.column]
    return target, and_(*wanted, number >= rows.start, number < rows.end)


def _column(row: Row[Any]) -> TargetColumn:
    kind, modifier = row.kind, row.modifier
    length = precision = scale = None
    if kind in ("varchar", "bpchar") and modifier >= 4:
        length = modifier - 4
    if kind == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    return TargetColumn(
        row.attname,
        kind,
        required=row.required,
        filled=row.filled,
        generated=row.generated,
        is_enum=row.sort == "e",
        length=length,
        precision=precision,
        scale=scale,
    )


def _find_sqlite(connection: Connection, name: TargetTableName) -> TargetTable | None:
    where = "main" if name.schema is None else name.schema
    if where != "main":
        raise Invalid(f"SQLite has no schema {where!r}", "name the table without a dot in table.name.format")
    found = connection.execute(
        text(
            "SELECT name, type FROM main.sqlite_master WHERE type IN ('table', 'view') AND lower(name) = lower(:name)"
        ),
        {"name": name.name},
    ).first()
    if found is None:
        return None
    rows = connection.exec_driver_sql(f"PRAGMA main.table_xinfo({quoted(name.name)})").all()
    columns = {
        row.name: TargetColumn(
            row.name,
            row.type.upper(),
            required=bool(row.notnull),
            filled=row.dflt_value is not None or (row.pk == 1 and row.type.upper() == "INTEGER"),
            generated=row.hidden > 0,
        )
        for row in rows
    }
    return TargetTable(name, columns, found.type.upper())


def count_blocks(connection: Connection, name: TargetTableName) -> int:
    """PostgreSQL: of 8 KiB each. A partitioned table has none of its own."""
    size = text("SELECT pg_relation_size(to_regclass(:name)) / 8192")
    return int(connection.execute(size, {"name": name.sql}).scalar() or 0)


def delete_copies(connection: Connection, name: TargetTableName, places: Sequence[str]) -> int:
    """PostgreSQL: deletes the rows at these places (ctid) of which another row with the same content stays. Returns how many."""
    statement = f"""DELETE FROM {name.sql} a WHERE a.ctid = ANY(CAST(:places AS tid[])) AND EXISTS (
        SELECT 1 FROM {name.sql} b WHERE b.ctid <> ALL(CAST(:places AS tid[])) AND b.* IS NOT DISTINCT FROM a.*)"""  # noqa: S608
    return connection.execute(text(statement), {"places": list(places)}).rowcount


def delete_keys(connection: Connection, name: TargetTableName, keys: Sequence[str], rows: Mapping[str, str]) -> int:
    """PostgreSQL: deletes rows by their place (ctid) if they still have that key. `rows`: place -> the values of `keys`, with /
    between them. Returns how many."""
    found = " || '/' || ".join(f"{quoted(key)}::text" for key in keys)
    statement = text(f"DELETE FROM {name.sql} WHERE ctid = CAST(:place AS tid) AND {found} = :key")  # noqa: S608
    return sum(connection.execute(statement, {"place": place, "key": key}).rowcount for place, key in rows.items())
