"""What an application does inside the transaction that also moves its offsets."""

from collections.abc import Mapping
from typing import Any, overload

from sqlalchemy import Connection, CursorResult, Executable, text

One = Mapping[str, Any] | tuple[Any, ...]
Many = list[dict[str, Any]] | list[tuple[Any, ...]]


class Transaction:
    """Open until its block ends. `connection` is SQLAlchemy's own, for everything `execute` does not do."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @overload
    def execute(self, statement: str | Executable, parameters: One | None = None) -> CursorResult[Any]: ...
    @overload
    def execute(self, statement: str | Executable, parameters: Many) -> CursorResult[Any] | None: ...
    def execute(self, statement: str | Executable, parameters: One | Many | None = None) -> CursorResult[Any] | None:
        """Runs one statement, or once for each element of a list; with an empty list not at all, and the answer is None.

        Text takes named parameters (`:id`) from dicts, or the driver's own marks (`%s` for PostgreSQL, `?` for SQLite) from
        tuples. Errors of the statement are SQLAlchemy's, as its author expects them.
        """
        if isinstance(parameters, list) and not parameters:
            return None
        first = parameters[0] if isinstance(parameters, list) else parameters
        if isinstance(statement, str) and isinstance(first, tuple):
            return self.connection.exec_driver_sql(statement, parameters)
        wanted = text(statement) if isinstance(statement, str) else statement
        return self.connection.execute(wanted, parameters)  # type: ignore[arg-type]


__all__ = ["Connection", "Transaction"]
