"""The transaction that writes an application's rows together with its offsets."""

from collections.abc import Mapping
from typing import Any, overload

from sqlalchemy import Connection, CursorResult, Executable, text

One = Mapping[str, Any] | tuple[Any, ...]
Many = list[dict[str, Any]] | list[tuple[Any, ...]]


class Transaction:
    """Open until its block ends. `connection` is SQLAlchemy's, for everything that `execute` does not support."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @overload
    def execute(self, statement: str | Executable, parameters: One | None = None) -> CursorResult[Any]: ...
    @overload
    def execute(self, statement: str | Executable, parameters: Many) -> CursorResult[Any] | None: ...
    def execute(self, statement: str | Executable, parameters: One | Many | None = None) -> CursorResult[Any] | None:
        """Runs one statement, or once for each element of a list. With an empty list it does nothing and returns None.

        Text uses named parameters (`:id`) with dicts, or the driver's placeholders (`%s` for PostgreSQL, `?` for SQLite) with
        tuples. Errors of the statement are raised as SQLAlchemy's exceptions.
        """
        if isinstance(parameters, list) and not parameters:
            return None
        first = parameters[0] if isinstance(parameters, list) else parameters
        if isinstance(statement, str) and isinstance(first, tuple):
            return self.connection.exec_driver_sql(statement, parameters)
        wanted = text(statement) if isinstance(statement, str) else statement
        return self.connection.execute(wanted, parameters)  # type: ignore[arg-type]


__all__ = ["Connection", "Transaction"]
