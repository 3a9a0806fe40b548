"""Times in a database: timezone-aware UTC in Python, and the current time by the clock of the database."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, DateTime, Dialect, func, select
from sqlalchemy.types import TypeDecorator


class Utc(TypeDecorator[datetime]):
    """SQLite stores no time zone; it gets UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def moment(connection: Connection) -> Any:
    """The current time, to be written. PostgreSQL fills it in, so no extra query is needed."""
    return func.clock_timestamp() if connection.dialect.name == "postgresql" else datetime.now(UTC)


def now(connection: Connection) -> datetime:
    """The current time, to be compared with stored times."""
    if connection.dialect.name != "postgresql":
        return datetime.now(UTC)
    return connection.execute(select(func.clock_timestamp())).scalar_one().astimezone(UTC)  # type: ignore[no-any-return]
