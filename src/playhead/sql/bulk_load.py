"""Loads many rows into the tables of a sink, inside an open transaction.

PostgreSQL gets rows as bytes of a binary COPY, SQLite as values.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from playhead.errors import Invalid, MissingExtra, PlayheadError, Rejected, RowsRefused
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.merge import How, MergeLayout, drop, empty, loaded_columns, merge, prepare, refusing
from playhead.sql.target_tables import quoted

COPY_HEAD, COPY_TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_SECONDS, _LOCK_SECONDS, _LONGEST_SECONDS = 30.0, 300.0, 24 * 3600.0


@contextmanager
def copying(url: str, how: How) -> Iterator["Copying"]:
    """One transaction, committed when the block ends. It stays open until all rows have arrived."""
    doing = "loading rows"
    with (
        Database(parse_address(url), _SECONDS) as database,
        database.transaction(doing, idle_limit_seconds=_LONGEST_SECONDS, lock_seconds=_LOCK_SECONDS) as connection,
        Copying(connection, how) as rows,
    ):
        yield rows


class Copying:
    """Loads rows of one layout after another, in the order of their records. `merge` writes them to the target table."""

    def __init__(self, connection: Connection, how: How) -> None:
        self.connection = connection
        self.size = 0
        self._how = how
        self._tables: dict[MergeLayout, str] = {}
        self._waiting: list[MergeLayout] = []
        self._copy: Any = None
        self._open = ExitStack()
        # The texts are UTF-8, whatever the database's encoding is.
        connection.execute(text("SET LOCAL client_encoding = 'UTF8'"))

    def begin(self, layout: MergeLayout) -> None:
        """The following rows have this layout. If it is used again after others, everything so far is merged first: the order
        matters, and a new temporary table for every change would be too many."""
        self._end()
        if layout in self._waiting:
            self.merge()
        table, is_known = self._prepared(layout), layout in self._tables
        self._tables[layout] = table
        if is_known and not self._how.is_direct:
            empty(self.connection, self._number(layout))
        self._waiting.append(layout)
        columns = ", ".join(quoted(name) for name in loaded_columns(layout, self._how))
        with self._refusing():
            cursor = _driver_of(self.connection).cursor()
            self._copy = self._open.enter_context(cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT binary)"))
            self._copy.write(COPY_HEAD)

    def write(self, octets: memoryview | bytes) -> None:
        """Writes rows of a binary COPY, without its header and trailer."""
        with self._refusing():
            self._copy.write(octets)
        self.size += len(octets)

    def pause(self) -> None:
        """Ends the COPY, so that other statements may follow. More rows need `begin`."""
        self._end()

    def merge(self) -> None:
        self._end()
        for layout in self._waiting:
            merge(self.connection, layout, self._how, self._number(layout))
        self._waiting.clear()

    def attempt(self, layout: MergeLayout, rows: Iterable[memoryview]) -> None:
        """Loads and merges rows at once. If they are refused, the attempt is rolled back."""
        self._tables[layout] = self._prepared(layout)  # created outside the savepoint: it is kept after the attempt
        with self.connection.begin_nested():
            try:
                self.begin(layout)
                for octets in rows:
                    self.write(octets)
                self.merge()
            except PlayheadError:
                self._abandon()
                raise

    def _prepared(self, layout: MergeLayout) -> str:
        known = self._tables.get(layout)
        return known or prepare(self.connection, layout, self._how, len(self._tables))

    def _number(self, layout: MergeLayout) -> int:
        return list(self._tables).index(layout)

    def _abandon(self) -> None:
        self._copy = None
        self._waiting.clear()
        with suppress(self._refusals):  # already reported
            self._open.close()

    def _end(self) -> None:
        if self._copy is not None:
            with self._refusing():
                self._copy.write(COPY_TAIL)
                self._open.close()
            self._copy = None

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Translates errors of psycopg like those of SQLAlchemy."""
        with refusing(self._waiting[-1].table), _wrapped(self.connection):
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(self._refusals):  # by a COPY that failed already; its first error is reported
            self._open.__exit__(kind, error, trace)

    @property
    def _refusals(self) -> type[Exception]:
        found: type[Exception] = self.connection.dialect.loaded_dbapi.Error
        return found


@contextmanager
def trying(url: str, how: How) -> Iterator["Trying"]:
    """A transaction of SQLite that is always rolled back. Until it ends, others can read but not write."""
    with (
        suppress(_Undone),
        Database(parse_address(url), _LOCK_SECONDS, in_memory=True) as database,
        database.transaction("trying rows") as connection,
    ):
        yield Trying(connection, how)
        raise _Undone


class _Undone(Exception):
    """Rolls back a trial transaction."""


class Trying:
    """Checks whether a table accepts rows, after those that it accepted in this trial."""

    def __init__(self, connection: Connection, how: How) -> None:
        self._connection = connection
        self._how = how

    def attempt(self, layout: MergeLayout, rows: Iterable[tuple[object, ...]]) -> None:
        """If they are refused, the attempt is rolled back."""
        trial = self._connection.begin_nested()
        try:
            insert(self._connection, layout, self._how, 0, rows)
        except RowsRefused as refused:
            try:
                trial.rollback()
            except DBAPIError:  # the table ended the transaction by itself (ON CONFLICT ROLLBACK): no more trials
                raise Rejected(refused.what, message=refused.message, hint=refused.hint) from None
            raise
        trial.commit()


def insert(
    connection: Connection, layout: MergeLayout, how: How, number: int, rows: Iterable[tuple[object, ...]]
) -> None:
    """SQLite: prepares, loads and merges rows."""
    table, columns = prepare(connection, layout, how, number), loaded_columns(layout, how)
    marks = ", ".join("?" for _ in columns)
    statement = f"INSERT INTO {table} ({', '.join(quoted(name) for name in columns)}) VALUES ({marks})"  # noqa: S608
    driver = connection.connection.driver_connection
    with refusing(layout.table), _wrapped(connection):
        driver.executemany(statement, rows)  # type: ignore[union-attr]
    merge(connection, layout, how, number)
    drop(connection, how, number)


@contextmanager
def _wrapped(connection: Connection) -> Iterator[None]:
    try:
        yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise DBAPIError(None, None, error) from None


def _driver_of(connection: Connection) -> Any:
    """psycopg's own connection, for COPY."""
    try:
        import psycopg
    except ImportError:
        raise MissingExtra("sql", "psycopg") from None
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise Invalid("only PostgreSQL supports COPY")
    return driver
