"""Many rows at once into tables of a sink, inside of a transaction that is open already.

PostgreSQL takes rows as bytes of a binary COPY; SQLite takes them as values.
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
    """One transaction, committed when the block ends. It lasts for as long as its rows take to come."""
    doing = "loading rows"
    with (
        Database(parse_address(url), _SECONDS) as database,
        database.transaction(doing, idle_limit_seconds=_LONGEST_SECONDS, lock_seconds=_LOCK_SECONDS) as connection,
        Copying(connection, how) as rows,
    ):
        yield rows


class Copying:
    """Rows of one layout after the other, in the order of their records. `merge` makes them count."""

    def __init__(self, connection: Connection, how: How) -> None:
        self.connection = connection
        self.size = 0
        self._how = how
        self._tables: dict[MergeLayout, str] = {}
        self._waiting: list[MergeLayout] = []
        self._copy: Any = None
        self._open = ExitStack()
        # In which the texts are, whatever the database's is.
        connection.execute(text("SET LOCAL client_encoding = 'UTF8'"))

    def begin(self, layout: MergeLayout) -> None:
        """What is written from here on is of this layout. Where it comes back after others, all so far is merged first: the order
        counts, and a table for every change would not end well."""
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
        """Rows of a binary COPY, without its head and tail."""
        with self._refusing():
            self._copy.write(octets)
        self.size += len(octets)

    def merge(self) -> None:
        self._end()
        for layout in self._waiting:
            merge(self.connection, layout, self._how, self._number(layout))
        self._waiting.clear()

    def attempt(self, layout: MergeLayout, rows: Iterable[memoryview]) -> None:
        """Loaded and merged at once. Where they are refused, all is as it was before."""
        self._tables[layout] = self._prepared(layout)  # outlives the attempt
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
        with suppress(self._refusals):  # told already
            self._open.close()

    def _end(self) -> None:
        if self._copy is not None:
            with self._refusing():
                self._copy.write(COPY_TAIL)
                self._open.close()
            self._copy = None

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """What PostgreSQL does not take is told as what SQLAlchemy would make of it."""
        with refusing(self._waiting[-1].table), _wrapped(self.connection):
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(self._refusals):  # by a COPY that failed already; its first error is told
            self._open.__exit__(kind, error, trace)

    @property
    def _refusals(self) -> type[Exception]:
        found: type[Exception] = self.connection.dialect.loaded_dbapi.Error
        return found


@contextmanager
def trying(url: str, how: How) -> Iterator["Trying"]:
    """A transaction of SQLite that is never committed. Nobody else writes until it ends; all can read."""
    with (
        suppress(_Undone),
        Database(parse_address(url), _LOCK_SECONDS, in_memory=True) as database,
        database.transaction("trying rows") as connection,
    ):
        yield Trying(connection, how)
        raise _Undone


class _Undone(Exception):
    """Ends a transaction that was a trial."""


class Trying:
    """Finds out whether a table takes rows, after those that it has taken in this trial."""

    def __init__(self, connection: Connection, how: How) -> None:
        self._connection = connection
        self._how = how

    def attempt(self, layout: MergeLayout, rows: Iterable[tuple[object, ...]]) -> None:
        """Where they are refused, all is as it was before."""
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
    """Into SQLite: prepared, loaded and merged."""
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
        raise Invalid("only PostgreSQL knows COPY")
    return driver
