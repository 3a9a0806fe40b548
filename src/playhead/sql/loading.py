"""Many rows at once into tables of a sink, inside of a transaction that is open already.

PostgreSQL takes rows as bytes of a binary COPY; SQLite takes them as values.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from playhead.errors import Invalid, MissingExtra
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.merging import How, Layout, loaded_columns, merge, prepare, refusing
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
        self._layouts: list[Layout] = []
        self._copy: Any = None
        self._open = ExitStack()

    def begin(self, layout: Layout) -> None:
        """What is written from here on is of this layout."""
        self._end()
        table = prepare(self.connection, layout, self._how, len(self._layouts))
        self._layouts.append(layout)
        columns = ", ".join(quoted(name) for name in loaded_columns(layout, self._how))
        # In which the texts are, whatever the database's is.
        self.connection.execute(text("SET LOCAL client_encoding = 'UTF8'"))
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
        for number, layout in enumerate(self._layouts):
            merge(self.connection, layout, self._how, number)

    def _end(self) -> None:
        if self._copy is not None:
            with self._refusing():
                self._copy.write(COPY_TAIL)
                self._open.close()
            self._copy = None

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """What PostgreSQL does not take is told as what SQLAlchemy would make of it."""
        with refusing(self._layouts[-1].table), _wrapped(self.connection):
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        refused = self.connection.dialect.loaded_dbapi.Error
        with suppress(refused):  # by a COPY that failed already; its first error is told
            self._open.__exit__(kind, error, trace)


def insert(connection: Connection, layout: Layout, how: How, number: int, rows: Iterable[tuple[object, ...]]) -> None:
    """Into SQLite: prepared, loaded and merged."""
    table, columns = prepare(connection, layout, how, number), loaded_columns(layout, how)
    marks = ", ".join("?" for _ in columns)
    statement = f"INSERT INTO {table} ({', '.join(quoted(name) for name in columns)}) VALUES ({marks})"  # noqa: S608
    driver = connection.connection.driver_connection
    with refusing(layout.table), _wrapped(connection):
        driver.executemany(statement, rows)  # type: ignore[union-attr]
    merge(connection, layout, how, number)


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
