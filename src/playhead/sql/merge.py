"""Merges rows into the target table, with few statements for any number of rows.

Rows that are only inserted are loaded directly into the table. Others are loaded into a temporary table first, with the partition
and offset of each record: of several records with the same key the last one counts. There is no order across partitions, as in
Connect. A key with a tombstone is deleted first; then the records after its last tombstone are written.
"""

import re
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
    """`kinds`: the column types that the rows were encoded for."""

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
    """The SQL name of the table that rows of this layout are loaded into. The caller ends the transaction. `number` distinguishes
    the layouts of one transaction; `loaded_columns` are the columns of the table."""
    with refusing(layout.table):
        _check(connection, layout)
        if how.is_direct:
            return layout.table.sql
        connection.exec_driver_sql(temporary_statement(layout, connection.dialect.name, number))
    return _temporary(number)


def loaded_columns(layout: MergeLayout, how: How) -> tuple[str, ...]:
    return layout.columns if how.is_direct else (*META, *layout.columns)


def merge(connection: Connection, layout: MergeLayout, how: How, number: int) -> None:
    """Writes the loaded rows to the target table. Transactions that merge into the same table wait for each other: two of them
    with the same keys in a different order would deadlock."""
    if how.is_direct:
        return
    with refusing(layout.table):
        lock_merges(connection, layout.table)
        for statement in merge_statements(layout, how, connection.dialect.name, number):
            connection.exec_driver_sql(statement)


def lock_merges(connection: Connection, table: TargetTableName) -> None:
    """Until the transaction ends, no other one merges into the table. SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        key = zlib.crc32(f"playhead merges into {table.sql}".encode())
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def empty(connection: Connection, number: int) -> None:
    """Truncates the temporary table of a layout whose rows are merged, so that it can be loaded again."""
    connection.exec_driver_sql(f"TRUNCATE {_temporary(number)}")


def drop(connection: Connection, how: How, number: int) -> None:
    """For SQLite, which keeps temporary tables until the connection is closed."""
    if not how.is_direct:
        connection.exec_driver_sql(f"DROP TABLE {_temporary(number)}")


def temporary_statement(layout: MergeLayout, dialect: str, number: int = 0) -> str:
    columns = _list(layout.columns)
    ending = "ON COMMIT DROP AS" if dialect == "postgresql" else "AS"
    meta = f"CAST(0 AS int) AS {PARTITION}, CAST(0 AS bigint) AS {OFFSET}, CAST(NULL AS boolean) AS {DELETED}"
    nothing = f"SELECT {meta}, {columns} FROM {layout.table.sql} WHERE 1 = 0"  # noqa: S608
    return _escaped(f"CREATE TEMPORARY TABLE {_temporary(number)} {ending} {nothing}", dialect)


def merge_statements(layout: MergeLayout, how: How, dialect: str, number: int = 0) -> list[str]:
    """The statements that merge the temporary table into the target."""
    statements, source = [], _temporary(number)
    if how.deletes:
        keys = _list(layout.keys)
        gone = f"SELECT {keys} FROM {source} WHERE {DELETED}"  # noqa: S608
        statements.append(f"DELETE FROM {layout.table.sql} WHERE ({keys}) IN ({gone})")  # noqa: S608
    others = [column for column in layout.columns if column not in layout.keys]
    if how.mode == "update":
        statements += [_update(layout, others, source)] if others else []
    else:
        statements.append(_insert(layout, how, others, dialect, source))
    return [_escaped(statement, dialect) for statement in statements]


def _temporary(number: int) -> str:
    return f"playhead_merge_{number}"


def _insert(layout: MergeLayout, how: How, others: Sequence[str], dialect: str, source: str) -> str:
    columns = _list(layout.columns)
    chosen = (_last if how.mode == "upsert" else _after_deletion)(layout, source)
    replaces = how.mode == "upsert" and dialect == "sqlite"  # as the connector does
    statement = (
        f"INSERT {'OR REPLACE ' if replaces else ''}INTO {layout.table.sql} ({columns}) SELECT {columns} FROM {chosen}"  # noqa: S608
    )
    if replaces:  # SQLite may treat keys as equal that differ in the temporary table, which has no collations
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
    wanted = f"{columns}, {PARTITION}, {OFFSET}"
    numbered = f"SELECT {wanted}, {DELETED}, {window} FROM {source}"  # noqa: S608
    return f"(SELECT {wanted} FROM ({numbered}) AS numbered WHERE __playhead_place = 1 AND NOT {DELETED}) AS last"  # noqa: S608


def _after_deletion(layout: MergeLayout, source: str) -> str:
    """All records that came after the last tombstone of their key."""
    keys, columns = _list(layout.keys), _list(layout.columns)
    place = f"row_number() OVER (PARTITION BY {keys} ORDER BY {PARTITION}, {OFFSET}) AS __playhead_place"
    numbered = f"SELECT {columns}, {DELETED}, {place} FROM {source}"  # noqa: S608
    gone = f"max(CASE WHEN {DELETED} THEN __playhead_place ELSE 0 END) OVER (PARTITION BY {keys}) AS __playhead_gone"
    marked = f"SELECT {columns}, __playhead_place, {gone} FROM ({numbered}) AS numbered"  # noqa: S608
    return f"(SELECT {columns} FROM ({marked}) AS marked WHERE __playhead_place > __playhead_gone) AS last"  # noqa: S608


def _list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _escaped(statement: str, dialect: str) -> str:
    return statement.replace("%", "%%") if dialect == "postgresql" else statement


def _check(connection: Connection, layout: MergeLayout) -> None:
    """The bytes of a row are valid only for the types that they were encoded for."""
    if connection.dialect.name == "postgresql":
        lock = f"LOCK TABLE {layout.table.sql} IN ROW EXCLUSIVE MODE"
        connection.exec_driver_sql(_escaped(lock, "postgresql"))
    found = find_table(connection, layout.table)
    columns = found.columns if found else {}
    kinds = tuple(columns[name].kind if name in columns else "" for name in layout.columns)
    if kinds != layout.kinds:
        what = f"table {layout.table} was changed while rows were being loaded into it"
        raise Busy(what, hint="nothing was committed; the rows are encoded again")


@contextmanager
def refusing(table: TargetTableName) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise refusal(error, table) from None


def refusal(error: DBAPIError, table: TargetTableName) -> PlayheadError:
    """The error of a database that refused rows: the first line of its message, and the names of constraint and column.
    The column of a value that cannot be read is only in the context of COPY."""
    state = str(getattr(error.orig, "sqlstate", "") or "")
    name = str(getattr(error.orig, "sqlite_errorname", "") or "")
    doing = f"merging rows into {table}"
    kind = _kind(state, name)
    if kind is None:
        return fault_of(error, doing)
    message = str(error.orig).splitlines()[0]
    diagnosis = getattr(error.orig, "diag", None)
    named = [
        f"{word} {found}"
        for word, found in (
            ("constraint", getattr(diagnosis, "constraint_name", None)),
            ("column", getattr(diagnosis, "column_name", None) or _copied_column(diagnosis)),
        )
        if found and found not in message
    ]
    detail = f"{message} ({', '.join(named)})" if named else message
    hint = "nothing of its partition was committed; fix the records or the table, then run again"
    return kind(f"{doing}: {detail}", message=detail, hint=hint)


def _copied_column(diagnosis: object) -> str | None:
    """`COPY orders, line 1, column amount: "x"`."""
    found = re.search(r"^COPY .*, column ([^:]+)", str(getattr(diagnosis, "context", None) or ""), re.MULTILINE)
    return found[1] if found else None


def _kind(state: str, name: str) -> type[Rejected] | None:
    """None: not a refusal."""
    if state.startswith(_OF_ROWS):
        return RowsRefused
    if state.startswith(_OF_TABLE):
        return Rejected
    return next((kind for beginning, kind in _OF_SQLITE.items() if name.startswith(beginning)), None)
