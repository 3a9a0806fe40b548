"""The SQL dialect of a database: names, times, limits. Timestamp modes support PostgreSQL and SQLite; others are refused.

Each read adds columns of our own to those of the connector, because a column of the record may have another form (a numeric as
text) that does not sort correctly. Rows are compared and sorted by `ID` and `TIME`. `INSTANT` is the point in time of `TIME`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfoNotFoundError

from playhead.errors import Invalid
from playhead.pipeline.ingest.source import CURSOR_ID, CURSOR_TIME
from playhead.pipeline.records.encode.fields import SqlColumn
from playhead.pipeline.records.encode.zones import is_fixed, zone_of

ID, TIME, INSTANT = CURSOR_ID, "playhead_time", CURSOR_TIME
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP, _TIMESTAMP_TZ = 93, 2014  # java.sql.Types
_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$"


def quoted(name: str, mark: str) -> str:
    return f"{mark}{name.replace(mark, mark * 2)}{mark}" if mark else name


@dataclass(frozen=True, slots=True)
class Flavour:
    """Standard SQL. `mark` quotes identifiers; without it they are written unquoted."""

    mark: str
    zone: str = "UTC"

    def quote(self, name: str) -> str:
        if self.mark:
            return quoted(name, self.mark)
        if not name or set(name) - set(_PLAIN):
            raise Invalid(f"{name!r} needs quotes", "set quote.sql.identifiers=always")
        return name

    def time_of(self, columns: Sequence[SqlColumn]) -> str:
        """The expression that rows are compared and sorted by: the first of the columns that is not null."""
        for column in columns:
            if column.jdbc_type not in (_TIMESTAMP, _TIMESTAMP_TZ):
                raise Invalid(
                    f"column {column.name!r} is {column.type_name}, not a timestamp",
                    "name timestamp columns in timestamp.column.name",
                )
        names = [self.quote(column.name) for column in columns]
        return names[0] if len(names) == 1 else f"coalesce({', '.join(names)})"

    def instant_of(self, columns: Sequence[SqlColumn]) -> str:
        """The same as a point in time, which the reader converts to microseconds. Spark shifts it if the database cannot."""
        return self.time_of(columns)

    def moment(self, micros: int) -> str:
        """A point in time as a literal to compare `time_of` with."""
        raise _no_times(f"the time {micros}")

    def micros(self, instant: str) -> str:
        """The same as microseconds since the epoch."""
        raise _no_times(instant)

    def now(self) -> str:
        """A query for the database's present time in microseconds since the epoch."""
        raise _no_times("now")

    def limit(self, rows: int, skip: int = 0) -> str:
        """The clause after a query that returns `rows` of its rows."""
        return f" LIMIT {rows} OFFSET {skip}"


@dataclass(frozen=True, slots=True)
class PostgreSql(Flavour):
    def time_of(self, columns: Sequence[SqlColumn]) -> str:
        if len({column.type_name for column in columns}) > 1:
            raise Invalid(
                "timestamp.column.name mixes timestamps with and without time zone", "name columns of one type"
            )
        return Flavour.time_of(self, columns)

    def instant_of(self, columns: Sequence[SqlColumn]) -> str:
        expression = self.time_of(columns)
        if columns[0].type_name == "timestamptz":
            return expression
        # As an interval: PostgreSQL reads the sign of an offset in a name the other way round, as POSIX does.
        zone = f"INTERVAL '{self.zone.removeprefix('GMT')}'" if is_fixed(self.zone) else f"'{self.zone}'"
        return f"({expression} AT TIME ZONE {zone})"

    def moment(self, micros: int) -> str:
        """With its offset: a column without time zone compares with the wall clock, the other with the instant."""
        wall = (EPOCH + timedelta(microseconds=micros)).astimezone(zone_of(self.zone))
        return f"'{wall.isoformat(sep=' ')}'"

    def micros(self, instant: str) -> str:
        return f"round(extract(epoch FROM {instant}) * 1000000)::bigint"

    def now(self) -> str:
        return f"SELECT {self.micros('clock_timestamp()')}"


@dataclass(frozen=True, slots=True)
class Sqlite(Flavour):
    """Times are integer milliseconds, as the JDBC driver stores them, or text. Both are compared as milliseconds, UTC."""

    def time_of(self, columns: Sequence[SqlColumn]) -> str:
        if self.zone != "UTC":
            raise Invalid("db.timezone on SQLite can only be UTC here", "leave db.timezone out")
        names = [self.quote(column.name) for column in columns]
        parts = [
            f"(CASE typeof({name}) WHEN 'integer' THEN {name} "
            f"ELSE CAST(round(unixepoch({name}, 'subsec') * 1000) AS INTEGER) END)"
            for name in names
        ]
        return parts[0] if len(parts) == 1 else f"coalesce({', '.join(parts)})"

    def instant_of(self, columns: Sequence[SqlColumn]) -> str:
        return f"{self.time_of(columns)} * 1000"

    def moment(self, micros: int) -> str:
        return str(micros // 1000)

    def micros(self, instant: str) -> str:
        return instant

    def now(self) -> str:
        return "SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) * 1000"


def _no_times(what: str) -> Invalid:
    return Invalid(
        f"timestamp modes on Spark support PostgreSQL and SQLite only, so {what} cannot be compared",
        "use mode incrementing, or run the connector in Connect",
    )


def flavour_of(product: str, mark: str, zone: str) -> Flavour:
    kinds: dict[str, type[Flavour]] = {"PostgreSQL": PostgreSql, "SQLite": Sqlite}
    return kinds.get(product, Flavour)(mark, zone)


def check_zone(zone: str) -> None:
    """Timestamp modes compute bounds in Python, which needs the zone files of this machine."""
    try:
        zone_of(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise Invalid(
            f"this machine has no rules of the time zone {zone!r}, which a timestamp mode needs", "install tzdata"
        ) from None
