"""Rows -> the target table, by few statements for any number of rows.

Rows that are only added go straight into the table. Others go into a temporary table first, with the partition and the offset of
each record: of several records with one key the last counts. Over partitions there is no order, in Connect neither. A key with a
tombstone is deleted first, and what came after its last tombstone is written.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from playhead.errors import Busy, PlayheadError, Rejected, RowsRefused
from playhead.sql.faults import fault_of
from playhead.sql.target_tables import TargetTableName, find_table, quoted

PARTITION, OFFSET, DELETED = "__playhead_partition", "__playhead_offset", "__playhead_deleted"
META = (PARTITION, OFFSET, DELETED)
_OF_ROWS = ("22", "23", "P0")  # SQLSTATE: the data, a constraint, a trigger of the table
_OF_TABLE = ("42",)
_OF_SQLITE = {
    "SQLITE_CONSTRAINT": RowsRefused,
    "SQLITE_MISMATCH": RowsRefused,
    "SQLITE_ERROR": Rejected,
}


@dataclass(frozen=True, slots=True)
class MergeLayout:
    """`kinds` are the types that the rows were made for, column by column."""

    table: TargetTableName
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class How:
    """`mode` is insert, upsert or update."""

    mode: str
    deletes: bool = False

    @property
    def is_direct(self) -> bool:
        return self.mode == "insert" and not self.deletes


def prepare(connection: Connection, layout: MergeLayout, how: How, number: int) -> str:
    """The table that rows of this layout are loaded into, as SQL names it, in a transaction that somebody else ends. `number`
    tells the layouts of one transaction apart; `loaded_columns` are what it takes."""
    with refusing(layout.table):
        _check(connection, layout)
        if how.is_direct:
            return layout.table.sql
        connection.exec_driver_sql(temporary_statement(layout, connection.dialect.name, number))
    return _temporary(number)


def loaded_columns(layout: MergeLayout, how: How) -> tuple[str, ...]:
    return layout.columns if how.is_direct else (*META, *layout.columns)


def merge(connection: Connection, layout: MergeLayout, how: How, number: int) -> None:
    """What was loaded counts from here on. Transactions that do this to one table wait for each other: two of them with the same
    keys in another order would block each other for ever."""
    if how.is_direct:
        return
    with refusing(layout.table):
        if connection.dialect.name == "postgresql":
            key = zlib.crc32(f"playhead merges into {layout.table.sql}".encode())
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
        for statement in merge_statements(layout, how, connection.dialect.name, number):
            connection.exec_driver_sql(statement)


def empty(connection: Connection, number: int) -> None:
    """The temporary table of a layout whose rows are merged, for more of them."""
    connection.exec_driver_sql(f"TRUNCATE {_temporary(number)}")


def drop(connection: Connection, how: How, number: int) -> None:
    """For SQLite, which keeps such tables until the connection ends."""
    if not how.is_direct:
        connection.exec_driver_sql(f"DROP TABLE {_temporary(number)}")


def temporary_statement(layout: MergeLayout, dialect: str, number: int = 0) -> str:
    columns = _list(layout.columns)
    ending = "ON COMMIT DROP AS" if dialect == "postgresql" else "AS"
    meta = f"CAST(0 AS int) AS {PARTITION}, CAST(0 AS bigint) AS {OFFSET}, CAST(NULL AS boolean) AS {DELETED}"
    nothing = f"SELECT {meta}, {columns} FROM {layout.table.sql} WHERE 1 = 0"  # noqa: S608
    return _escaped(f"CREATE TEMPORARY TABLE {_temporary(number)} {ending} {nothing}", dialect)


def merge_statements(layout: MergeLayout, how: How, dialect: str, number: int = 0) -> list[str]:
    """From the temporary table into the target."""
    made, source = [], _temporary(number)
    if how.deletes:
        keys = _list(layout.keys)
        gone = f"SELECT {keys} FROM {source} WHERE {DELETED}"  # noqa: S608
        made.append(f"DELETE FROM {layout.table.sql} WHERE ({keys}) IN ({gone})")  # noqa: S608
    others = [column for column in layout.columns if column not in layout.keys]
    if how.mode == "update":
        made += [_update(layout, others, source)] if others else []
    else:
        made.append(_insert(layout, how, others, dialect, source))
    return [_escaped(statement, dialect) for statement in made]


def _temporary(number: int) -> str:
    return f"playhead_merge_{number}"


def _insert(layout: MergeLayout, how: How, others: Sequence[str], dialect: str, source: str) -> str:
    columns = _list(layout.columns)
    chosen = (_last if how.mode == "upsert" else _after_deletion)(layout, source)
    replaces = how.mode == "upsert" and dialect == "sqlite"  # as the connector does
    statement = (
        f"INSERT {'OR REPLACE ' if replaces else ''}INTO {layout.table.sql} ({columns}) SELECT {columns} FROM {chosen}"  # noqa: S608
    )
    if replaces:  # to SQLite keys may be one that are two in the temporary table, which has no collations
        statement += f" ORDER BY {PARTITION}, {OFFSET}"
    if how.mode != "upsert" or replaces:
        return statement
    sets = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in others)
    return f"{statement} ON CONFLICT ({_list(layout.keys)}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")


def _update(layout: MergeLayout, others: Sequence[str], source: str) -> str:
    sets = ", ".join(f"{quoted(name)} = last.{quoted(name)}" for name in others)
    found = " AND ".join(f"target.{quoted(name)} = last.{quoted(name)}" for name in layout.keys)
    return f"UPDATE {layout.table.sql} AS target SET {sets} FROM {_last(layout, source)} WHERE {found}"  # noqa: S608


def _last(layout: MergeLayout, source: str) -> str:
    """The last record of each key, unless that is a tombstone."""
    keys, columns = _list(layout.keys), _list(layout.columns)
    window = f"row_number() OVER (PARTITION BY {keys} ORDER BY {PARTITION} DESC, {OFFSET} DESC) AS __playhead_place"
    told = f"{columns}, {PARTITION}, {OFFSET}"
    numbered = f"SELECT {told}, {DELETED}, {window} FROM {source}"  # noqa: S608
    return f"(SELECT {told} FROM ({numbered}) AS numbered WHERE __playhead_place = 1 AND NOT {DELETED}) AS last"  # noqa: S608


def _after_deletion(layout: MergeLayout, source: str) -> str:
    """All records that came after the last tombstone of their key."""
    keys, columns = _list(layout.keys), _list(layout.columns)
    place = f"row_number() OVER (PARTITION BY {keys} ORDER BY {PARTITION}, {OFFSET}) AS __playhead_place"
    numbered = f"SELECT {columns}, {DELETED}, {place} FROM {source}"  # noqa: S608
    gone = f"max(CASE WHEN {DELETED} THEN __playhead_place ELSE 0 END) OVER (PARTITION BY {keys}) AS __playhead_gone"
    told = f"SELECT {columns}, __playhead_place, {gone} FROM ({numbered}) AS numbered"  # noqa: S608
    return f"(SELECT {columns} FROM ({told}) AS told WHERE __playhead_place > __playhead_gone) AS last"  # noqa: S608


def _list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _escaped(statement: str, dialect: str) -> str:
    return statement.replace("%", "%%") if dialect == "postgresql" else statement


def _check(connection: Connection, layout: MergeLayout) -> None:
    """The bytes of a row mean something only for the types that they were made for."""
    if connection.dialect.name == "postgresql":
        lock = f"LOCK TABLE {layout.table.sql} IN ROW EXCLUSIVE MODE"
        connection.exec_driver_sql(_escaped(lock, "postgresql"))
    found = find_table(connection, layout.table)
    columns = found.columns if found else {}
    kinds = tuple(columns[name].kind if name in columns else "" for name in layout.columns)
    if kinds != layout.kinds:
        what = f"table {layout.table} was changed while rows were on their way into it"
        raise Busy(what, hint="nothing was committed: the rows are made anew")


@contextmanager
def refusing(table: TargetTableName) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise refusal(error, table) from None


def refusal(error: DBAPIError, table: TargetTableName) -> PlayheadError:
    """The database did not take the rows: its own first line, and the names of the constraint and of the column."""
    state = str(getattr(error.orig, "sqlstate", "") or "")
    name = str(getattr(error.orig, "sqlite_errorname", "") or "")
    doing = f"merging rows into {table}"
    kind = _kind(state, name)
    if kind is None:
        return fault_of(error, doing)
    said = str(error.orig).splitlines()[0]
    diagnosis = getattr(error.orig, "diag", None)
    named = [
        f"{word} {found}"
        for word, found in (
            ("constraint", getattr(diagnosis, "constraint_name", None)),
            ("column", getattr(diagnosis, "column_name", None)),
        )
        if found and found not in said
    ]
    told = f"{said} ({', '.join([*named, state or name])})"
    hint = "nothing of its partition was committed; mend the records or the table, then run again"
    return kind(f"{doing}: {told}", message=told, hint=hint)


def _kind(state: str, name: str) -> type[Rejected] | None:
    """None: it was no refusal."""
    if state.startswith(_OF_ROWS):
        return RowsRefused
    if state.startswith(_OF_TABLE):
        return Rejected
    return next((kind for beginning, kind in _OF_SQLITE.items() if name.startswith(beginning)), None)
