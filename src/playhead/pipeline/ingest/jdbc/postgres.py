"""Rows of PostgreSQL, read in the task by ADBC: Arrow batches of a binary COPY.

A chunk is one query in one transaction, which begins as Spark's reader would begin it: application_name, level and snapshot. The
session has the JDBC driver's settings, so that a query prints times and numbers as it does there. Batches are small, and the next
one is not received before it is asked for.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from playhead.config.scrub import Scrub
from playhead.errors import AccessDenied, PlayheadError, Refused, Unreachable
from playhead.pipeline.ingest.jdbc.sql_states import fault_of_state

BATCH_BYTES = 4 * 1024 * 1024
_BATCH_OPTION = "adbc.postgresql.batch_size_hint_bytes"
_AS_THE_JDBC_DRIVER = ("SET TimeZone = 'UTC'", "SET DateStyle = 'ISO'", "SET extra_float_digits = 3")
_DENIED = ("authentication failed", "no pg_hba.conf entry", "not permitted to log in", "permission denied")


@dataclass(frozen=True, slots=True)
class PostgresChunks:
    """Sent to the executors; the password leaves the driver only here. `begin`: the first statements of each transaction."""

    conninfo: str = field(repr=False)
    password: str = field(repr=False)
    begin: tuple[str, ...]
    queries: tuple[str, ...] = field(repr=False)

    def chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those whose numbers are in the first column."""
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from self.chunk(number)

    def chunk(self, number: int) -> Iterator[pa.RecordBatch]:
        """By the driver manager's own calls: its DB-API module imports pandas, which takes longer than a small step."""
        from adbc_driver_manager import AdbcStatement, Error
        from adbc_driver_manager._reader import AdbcRecordBatchReader

        try:
            with self._connected() as connection, closing(AdbcStatement(connection)) as statement:
                for text in (*_AS_THE_JDBC_DRIVER, *self.begin):
                    self._prepare(statement, text)
                statement.set_options(**{_BATCH_OPTION: str(BATCH_BYTES)})
                statement.set_sql_query(self.queries[number])
                stream, _ = statement.execute_query()
                # pyarrow's reader would raise an OSError, without the server's SQL state.
                with AdbcRecordBatchReader._import_from_c(stream.address) as reader:
                    yield from reader
        except Error as error:
            raise self._fault(error) from None

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import adbc_driver_postgresql
        from adbc_driver_manager import AdbcConnection, Error

        with ExitStack() as parts:
            try:
                database = parts.enter_context(closing(adbc_driver_postgresql.connect(self.conninfo)))
                connection = parts.enter_context(closing(AdbcConnection(database)))
                connection.set_autocommit(False)
            except Error as error:
                message = self._sentence(error)
                if any(words in message for words in _DENIED):
                    hint = "check connection.user, connection.password and the user's permissions"
                    raise AccessDenied(message, hint) from None
                raise Unreachable(message, "check connection.url and whether the database is up") from None
            yield connection

    def _prepare(self, statement: Any, text: str) -> None:
        """A snapshot that is gone is no fault of the query: the step is planned again."""
        from adbc_driver_manager import Error

        try:
            statement.set_sql_query(text)
            statement.execute_update()
        except Error as error:
            fault = self._fault(error)
            raise fault if isinstance(fault, Unreachable) else Refused(fault.what) from None

    def _fault(self, error: Any) -> PlayheadError:
        state = getattr(error, "sqlstate", None)
        if not state:
            return Unreachable(self._sentence(error), "check connection.url and whether the database is up")
        return fault_of_state(state, self._sentence(error))

    def _sentence(self, error: Any) -> str:
        """The server's own sentence, without what libpq and ADBC write around it."""
        details = dict(getattr(error, "details", None) or ())
        text = details.get("PG_DIAG_MESSAGE_PRIMARY") or details.get(b"PG_DIAG_MESSAGE_PRIMARY")
        if text is None:
            text = str(error).strip().partition("\n")[0].rpartition("[libpq] ")[2].removeprefix("Failed to connect: ")
        elif isinstance(text, bytes):
            text = text.decode(errors="replace")
        return Scrub([self.conninfo, self.password])(" ".join(text.split()))
