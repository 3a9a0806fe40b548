"""One transaction of a replay in the target database of a JDBC sink, in a task: rows are loaded, then merged and committed
with what the ledger records of them.

PostgreSQL gets the rows while they are made. SQLite has one writer: rows wait in memory until the transaction begins.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from playhead.pipeline.deliver.jdbc.options import SQLITE, JdbcSinkOptions, TargetDatabase
from playhead.pipeline.deliver.jdbc.postgres import CarefulLoad, CopyLoad
from playhead.pipeline.deliver.jdbc.rows import Coordinates, Load, RefusedRows, find_refused
from playhead.pipeline.deliver.jdbc.sqlite import plain_batch, rows_of
from playhead.pipeline.deliver.jdbc.tables import Fitted, how_of
from playhead.sql.address import parse_address
from playhead.sql.bulk_load import Copying, Trying, copying, insert
from playhead.sql.database import Database
from playhead.sql.merge import MergeLayout, lock_merges
from playhead.sql.target_tables import TargetTableName
from playhead.sql.transaction import Connection

_SECONDS = 300.0
Clear = Callable[[Connection, TargetTableName], None]


class TableRows(Load, Protocol):
    """`Load` of one transaction. `clear` is called once per table, before the first row of this transaction is in it."""

    def lock(self, tables: Sequence[TargetTableName]) -> Connection:
        """From now on no other process merges into these tables. Rows may still be added."""
        ...

    def finish(self, also: Sequence[TargetTableName] = ()) -> Connection:
        """All rows are in their tables; those of `also` are cleared even if they got none. The block's end commits."""
        ...


def _keep(_connection: Connection, _table: TargetTableName) -> None:
    """Nothing of the table is cleared."""


@contextmanager
def table_rows(
    target: TargetDatabase, options: JdbcSinkOptions, *, is_careful: bool = False, clear: Clear = _keep
) -> Iterator[TableRows]:
    """Commits when the block ends, rolls back when it raises."""
    if target.product == SQLITE:
        with Database(parse_address(target.url), _SECONDS) as database, ExitStack() as open_:
            yield _SqliteRows(database, options, clear, open_, is_careful)
        return
    with copying(target.url, how_of(options)) as rows:
        yield _PostgresRows(rows, CarefulLoad(rows, options) if is_careful else CopyLoad(rows, options), clear)


@dataclass(slots=True)
class _PostgresRows:
    rows: Copying
    load: CopyLoad
    clear: Clear
    _cleared: set[TargetTableName] = field(default_factory=set)

    @property
    def size(self) -> int:
        return self.load.size

    def begin(self, layout: MergeLayout) -> None:
        self._clear(layout.table)
        self.load.begin(layout)

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        return self.load.add(fitted, columns, places)

    def lock(self, tables: Sequence[TargetTableName]) -> Connection:
        self.rows.pause()
        for table in sorted(tables, key=str):
            lock_merges(self.rows.connection, table)
        return self.rows.connection

    def finish(self, also: Sequence[TargetTableName] = ()) -> Connection:
        self.rows.merge()
        for table in also:
            self._clear(table)
        return self.rows.connection

    def _clear(self, table: TargetTableName) -> None:
        if table not in self._cleared:
            self._cleared.add(table)
            self.rows.merge()  # ends an open COPY
            self.clear(self.rows.connection, table)


@dataclass(slots=True)
class _SqliteRows:
    database: Database
    options: JdbcSinkOptions
    clear: Clear
    open_: ExitStack
    is_careful: bool
    size: int = 0
    _loaded: list[tuple[MergeLayout, list[pa.RecordBatch]]] = field(default_factory=list)
    _connection: Connection | None = None
    _cleared: set[TargetTableName] = field(default_factory=set)
    _merged: int = 0

    def begin(self, layout: MergeLayout) -> None:
        self._loaded.append((layout, []))

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:  # noqa: ARG002  SQLite has no types
        layout, batches = self._loaded[-1]
        batch = plain_batch(columns, places, is_direct=self.options.is_direct)
        if not self.is_careful:
            batches.append(batch)
            return ()
        connection = self.lock(())
        self._clear(connection, layout.table)
        trying = Trying(connection, how_of(self.options))

        def attempt(start: int, stop: int) -> None:
            trying.attempt(layout, rows_of(batch.slice(start, stop - start)))

        return find_refused(batch.num_rows, attempt, layout.table)

    def lock(self, tables: Sequence[TargetTableName]) -> Connection:  # noqa: ARG002  the whole database is locked
        if self._connection is None:
            self._connection = self.open_.enter_context(self.database.transaction("loading rows"))
        return self._connection

    def finish(self, also: Sequence[TargetTableName] = ()) -> Connection:
        connection = self.lock(())
        for table in (*also, *(layout.table for layout, _ in self._loaded)):
            self._clear(connection, table)
        for layout, batches in self._loaded:
            rows = (row for batch in batches for row in rows_of(batch))
            insert(connection, layout, how_of(self.options), self._merged, rows)
            self._merged += 1
        self._loaded.clear()
        return connection

    def _clear(self, connection: Connection, table: TargetTableName) -> None:
        if table not in self._cleared:
            self._cleared.add(table)
            self.clear(connection, table)
