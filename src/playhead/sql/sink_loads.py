"""Many rows at once into one table, inside a transaction that is open already."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from playhead.sql.staging import COPY_HEAD, COPY_TAIL, DriverError, driver_of
from playhead.sql.target_tables import quoted


def copy_into(connection: Connection, table: str, columns: Sequence[str], pieces: Iterable[memoryview]) -> None:
    """`pieces`: rows of a binary COPY without its head and tail. What PostgreSQL refuses is raised as SQLAlchemy would."""
    statement = f"COPY {table} ({', '.join(quoted(name) for name in columns)}) FROM STDIN (FORMAT binary)"
    connection.execute(text("SET LOCAL client_encoding = 'UTF8'"))  # in which the texts are, whatever the database's is
    try:
        with driver_of(connection).cursor().copy(statement) as copy:
            copy.write(COPY_HEAD)
            for piece in pieces:
                copy.write(piece)
            copy.write(COPY_TAIL)
    except DriverError as error:
        raise DBAPIError(None, None, error) from None


def insert_into(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    """Into SQLite."""
    marks = ", ".join("?" for _ in columns)
    statement = f"INSERT INTO {table} ({', '.join(quoted(name) for name in columns)}) VALUES ({marks})"  # noqa: S608
    driver = connection.connection.driver_connection
    try:
        driver.executemany(statement, rows)  # type: ignore[union-attr]
    except connection.dialect.loaded_dbapi.Error as error:
        raise DBAPIError(None, None, error) from None
