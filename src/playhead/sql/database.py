"""One database: transactions that end as committed, rolled back or unknown.

SQLite transactions that write begin IMMEDIATE, so that two writers wait for each other instead of failing half-way. A reader
opens the file read-only and never creates it. On PostgreSQL the server terminates a writer that is idle in a transaction for
`idle_limit_seconds`: it would otherwise hold its locks all that time.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import Connection, Engine, RootTransaction, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from playhead.config.scrub import Scrub
from playhead.errors import MissingExtra, OutcomeUnknown, Refused
from playhead.sql.address import Address
from playhead.sql.faults import fault_of, first_line, translated

LOCK_SECONDS = 10.0
_LONGEST_IDLE_SECONDS = 24 * 3600.0


class Database:
    """`keep`: keep the connection open for the next transaction (a consumer) instead of closing it (a command). `in_memory`:
    SQLite keeps uncommitted data in memory, however much it is; otherwise it is written to the file, and readers have to wait."""

    def __init__(self, address: Address, seconds: float, *, keep: bool = False, in_memory: bool = False) -> None:
        self.address = address
        self.seconds = max(1.0, seconds)
        self._keep = keep
        self._in_memory = in_memory
        password = address.url.password
        self._scrub = Scrub([str(password)] if password else [])
        self._writer: Engine | None = None
        self._reader: Engine | None = None

    def exists(self) -> bool:
        """False for an SQLite file that does not exist. A server is not queried: the first statement will show it."""
        return not self.address.is_sqlite or self.address.path.exists()

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """A read-only transaction that sees one snapshot of the database."""
        if self._reader is None:
            self._reader = self._engine(writable=False)
        with translated(doing, self._scrub), self._reader.connect() as connection:
            if not self.address.is_sqlite:
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
                _limit(connection, statement_timeout=self.seconds)
            yield connection

    @contextmanager
    def transaction(
        self, doing: str, *, idle_limit_seconds: float = LOCK_SECONDS, lock_seconds: float | None = LOCK_SECONDS
    ) -> Iterator[Connection]:
        """Commits when the block ends, rolls back when it raises. `OutcomeUnknown`: the connection was lost during commit."""
        if self._writer is None:
            self._writer = self._engine(writable=True)
        with translated(doing, self._scrub):
            connection = self._writer.connect()
        try:
            with translated(doing, self._scrub):
                begun = connection.begin()
                if not self.address.is_sqlite:
                    idle = min(idle_limit_seconds, _LONGEST_IDLE_SECONDS)
                    locks = {} if lock_seconds is None else {"lock_timeout": lock_seconds}
                    _limit(connection, idle_in_transaction_session_timeout=idle, **locks)
            yield connection
            _commit(begun, doing)
        except BaseException:
            with suppress(DBAPIError):  # a lost connection has nothing left to roll back
                connection.rollback()
            raise
        finally:
            with suppress(DBAPIError):
                connection.close()

    def close(self) -> None:
        for engine in (self._writer, self._reader):
            if engine is not None:
                engine.dispose()
        self._writer = self._reader = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _engine(self, *, writable: bool) -> Engine:
        pool: dict[str, Any] = {"poolclass": NullPool}
        if self._keep:
            pool = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 1, "pool_pre_ping": True}
        if self.address.is_sqlite:
            return self._sqlite_engine(pool, writable=writable)
        limit = {} if "connect_timeout" in self.address.url.query else {"connect_timeout": max(2, int(self.seconds))}
        try:
            return create_engine(self.address.url, hide_parameters=True, connect_args=limit, **pool)
        except ImportError:
            raise MissingExtra("sql", "psycopg") from None

    def _sqlite_engine(self, pool: dict[str, Any], *, writable: bool) -> Engine:
        name = f"file:{quote(str(self.address.path))}?mode={'rwc' if writable else 'ro'}"

        def connect() -> sqlite3.Connection:
            # Without an isolation level the module does not send BEGIN itself.
            opened = sqlite3.connect(
                name, uri=True, timeout=self.seconds, isolation_level=None, check_same_thread=False
            )
            if self._in_memory:
                opened.execute("PRAGMA cache_spill = OFF")
            return opened

        engine = create_engine(self.address.url, creator=connect, hide_parameters=True, **pool)
        begin = "BEGIN IMMEDIATE" if writable else "BEGIN"
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine


def export_snapshot(connection: Connection) -> str:
    """PostgreSQL: a name by which other connections see what this transaction sees, for as long as it is open."""
    return str(connection.execute(text("SELECT pg_export_snapshot()")).scalar_one())


def _limit(connection: Connection, **seconds: float) -> None:
    """For this transaction only, so that a connection pooler between us and the server does not keep our limits."""
    calls = ", ".join(f"set_config('{name}', :{name}, true)" for name in seconds)
    limits = {name: str(max(1, int(value * 1000))) for name, value in seconds.items()}  # 0 would mean no limit
    connection.execute(text(f"SELECT {calls}"), limits)


def _commit(begun: RootTransaction, doing: str) -> None:
    if not begun.is_active:
        raise Refused(
            f"{doing}: the transaction was already ended inside its block",
            "leave commit and rollback to the block; rows that were committed by hand were committed without their offsets",
        )
    try:
        begun.commit()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise OutcomeUnknown(
                f"{doing}: the connection broke while committing: {first_line(error)}",
                "read the offsets again: they moved together with the rows, or neither did",
            ) from None
        raise fault_of(error, doing) from None
