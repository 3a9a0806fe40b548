"""Rows on their way into PostgreSQL: already as bytes of a binary COPY, in pieces, in an unlogged table of their own.

An executor loads the pieces of one attempt in one transaction, so that an attempt is seen whole or not at all. Whoever merges
reads them back over a second connection and passes them on to COPY. The pieces are as large as a page holds: storing them costs
a fraction of storing rows. There is one such table a step, and the next step of the same sink drops all that earlier ones left.
"""

import re
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from playhead.errors import Busy, Invalid, MissingExtra
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.faults import fault_of, translated
from playhead.sql.target_tables import quoted

try:
    import psycopg
    from psycopg import Copy
    from psycopg import Error as DriverError
except ImportError:
    raise MissingExtra("sql", "psycopg") from None

PREFIX = "playhead_staging_"
COPY_HEAD, COPY_TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_NAME = re.compile(PREFIX + r"[0-9a-f]{16}_[0-9a-f]{8}")
_PIECE = 8000  # bytes: with its row's head just below a page
_ROW = struct.Struct(">hiii16siii")
_HEADER = -1  # the segment that tells what the others are
_SECONDS, _SWEEP_SECONDS, _LONGEST_SECONDS = 30.0, 0.5, 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TableStaging:
    """One step's table. Picklable; `url` may hold a password."""

    url: str = field(repr=False)
    table: str = ""

    @classmethod
    def named(cls, url: str, sink: str) -> "TableStaging":
        """A new one. `sink` is 16 hexadecimal digits that no other sink of this database has."""
        return cls(url, f"{PREFIX}{sink}_{uuid.uuid4().hex[:8]}")

    @contextmanager
    def loading(self) -> Iterator["Loader"]:
        """For one attempt: durable and seen when the block ends, gone if it raises."""
        doing = "loading rows into the staging table"
        with (
            _opened(self.url) as database,
            database.transaction(doing, idle_limit_seconds=_LONGEST_SECONDS) as connection,
        ):
            statement = f"COPY {self._sql} (segment, attempt, seq, octets) FROM STDIN (FORMAT binary)"
            with told(doing), driver_of(connection).cursor().copy(statement) as copy:
                loader = Loader(copy)
                copy.write(COPY_HEAD)
                yield loader
                loader.flush()
                copy.write(COPY_TAIL)

    @contextmanager
    def reading(self) -> Iterator["Staged"]:
        doing = "reading the staging table"
        with (
            _opened(self.url) as database,
            database.transaction(doing, idle_limit_seconds=_LONGEST_SECONDS) as connection,
        ):
            with translated(doing):  # a table that was filled a moment ago has no statistics yet
                connection.execute(text("SET LOCAL enable_seqscan = off"))
                connection.execute(text("SET LOCAL enable_bitmapscan = off"))
            yield Staged(connection, self._sql)

    def make(self) -> None:
        """Drops what earlier steps of the same sink left, dead ones and their late writers included."""
        with _opened(self.url) as database:
            self._sweep(database, self.table)
            with database.transaction("making the staging table") as connection, translated("making the staging table"):
                connection.execute(
                    text(
                        f"CREATE UNLOGGED TABLE {self._sql} (segment int NOT NULL, attempt uuid NOT NULL, seq int NOT NULL,"
                        " octets bytea STORAGE PLAIN NOT NULL, PRIMARY KEY (segment, attempt, seq))"
                        " WITH (autovacuum_enabled = false)"
                    )
                )

    def drop(self) -> None:
        with _opened(self.url) as database:
            self._sweep(database, "")

    def _sweep(self, database: Database, kept: str) -> None:
        doing = "dropping old staging tables"
        sink = self.table.rpartition("_")[0] + "_"
        wanted = text(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind = 'r' AND starts_with(c.relname, :sink) AND pg_table_is_visible(c.oid)"
        )
        with database.reading(doing) as connection:
            found = [tuple(row) for row in connection.execute(wanted, {"sink": sink})]
        for schema, name in found:
            if name == kept or not _NAME.fullmatch(name):
                continue
            # A late writer of a dead step may still hold it: then it is dropped another time, and is in nobody's way.
            with (
                suppress(Busy),
                database.transaction(doing, lock_seconds=_SWEEP_SECONDS) as connection,
                translated(doing),
            ):
                connection.execute(text(f"DROP TABLE IF EXISTS {quoted(schema)}.{quoted(name)}"))

    @property
    def _sql(self) -> str:
        return quoted(self.table)


class Loader:
    """Bytes of segments, cut into pieces that a page holds. One segment after the other; what tells them apart comes last."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._attempt = uuid.uuid4().bytes
        self._segment = 0
        self._seq = 0
        self._rest = b""
        self.size = 0

    def write(self, segment: int, octets: memoryview | bytes) -> None:
        if segment != self._segment:
            self.flush()
            self._segment, self._seq = segment, 0
        self.size += len(octets)
        whole = self._rest + bytes(octets) if self._rest else octets
        end = len(whole) - len(whole) % _PIECE
        if end:
            self._copy.write(
                b"".join(part for at in range(0, end, _PIECE) for part in self._row(whole[at : at + _PIECE]))
            )
        self._rest = bytes(whole[end:])

    def finish(self, header: bytes) -> None:
        size = self.size
        self.write(_HEADER, header)
        self.size = size

    def flush(self) -> None:
        if self._rest:
            self._copy.write(b"".join(self._row(self._rest)))
            self._rest = b""

    def _row(self, piece: memoryview | bytes) -> tuple[bytes, memoryview | bytes]:
        head = _ROW.pack(4, 4, self._segment, 16, self._attempt, 4, self._seq, len(piece))
        self._seq += 1
        return head, piece


@dataclass(frozen=True, slots=True)
class Staged:
    """What lies in a staging table."""

    connection: Connection
    table: str

    def headers(self) -> dict[str, bytes]:
        """Of each attempt that was finished."""
        wanted = text(f"SELECT attempt::text, octets FROM {self.table} WHERE segment = :header ORDER BY attempt, seq")  # noqa: S608
        found: dict[str, bytes] = {}
        with translated("reading the staging table"):
            for attempt, octets in self.connection.execute(wanted, {"header": _HEADER}):
                found[attempt] = found.get(attempt, b"") + bytes(octets)
        return found

    def pieces(self, attempt: str, segment: int) -> Iterator[memoryview]:
        """The bytes of a segment, in order."""
        where = f"segment = {int(segment)} AND attempt = '{uuid.UUID(attempt)}'"
        statement = f"COPY (SELECT octets FROM {self.table} WHERE {where} ORDER BY seq) TO STDOUT (FORMAT binary)"  # noqa: S608
        with told("reading the staging table"), driver_of(self.connection).cursor().copy(statement) as copy:
            skip = len(COPY_HEAD)  # before the first row; each has a head of its own
            for message in copy:
                row = memoryview(message)[skip:]
                skip = 0
                if row[:2] != COPY_TAIL:
                    yield row[6:]


def driver_of(connection: Connection) -> "psycopg.Connection[Any]":
    """psycopg's own connection, for COPY."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise Invalid("only PostgreSQL knows COPY")
    return driver


@contextmanager
def told(doing: str) -> Iterator[None]:
    """What psycopg raises inside leaves as one of ours."""
    try:
        yield
    except DriverError as error:
        raise fault_of(DBAPIError(None, None, error), doing) from None


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    with Database(parse_address(url), _SECONDS) as database:
        yield database


__all__ = ["COPY_HEAD", "COPY_TAIL", "PREFIX", "DriverError", "Loader", "Staged", "TableStaging", "driver_of", "told"]
