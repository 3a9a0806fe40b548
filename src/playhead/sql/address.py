"""The URL of a database: `sqlite:///path` and `postgresql://user@host/db`, with or without the prefix `sql+`.

`?table=` names the table of offsets. Other options go to libpq and must be on the list below, because some libpq options could
connect to another server or contain a password. A password is used but never shown: the shown URL has none, or the
`${env:NAME}` reference that was given instead. Table names are checked here and always quoted.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from playhead.config.contexts import masked
from playhead.config.references import resolve
from playhead.errors import Invalid, near_names

DEFAULT_TABLE = "playhead_offsets"
LIBPQ = (
    "application_name",
    "channel_binding",
    "connect_timeout",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
)
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql", "postgresql+psycopg": "postgresql"}
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_FROM_ENVIRONMENT = re.compile(r"\$\{env:[^}]+\}")
_LONGEST_IDENTIFIER_BYTES = 63  # PostgreSQL silently truncates longer names, and two names may become one
_EXAMPLE = "write it like sqlite:///offsets.db or postgresql://user@host/database"


class TableName(NamedTuple):
    schema: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Address:
    """`url` contains the password, if there is one, and is only for the engine. `shown` is the same URL without it."""

    url: URL
    table: TableName
    shown: str

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return Path(self.url.database or "")

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def parse_address(text: str) -> Address:
    plain = text.removeprefix("sql+")
    scheme, separator, _ = plain.partition("://")
    if not separator or scheme not in _DRIVERS:
        raise Invalid(f"{masked(text)!r} is not the URL of a database", near_names(scheme, list(_DRIVERS)) or _EXAMPLE)
    try:
        url = make_url(plain)
    except (ArgumentError, ValueError):
        raise Invalid(f"{masked(text)!r} is not the URL of a database", _EXAMPLE) from None
    options = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    table = parse_table(options.pop("table", DEFAULT_TABLE))
    return _sqlite(url, table, options) if _DRIVERS[scheme] == "sqlite" else _postgresql(url, table, options)


def parse_table(text: str) -> TableName:
    schema, dot, name = text.rpartition(".")
    for part in (schema, name) if dot else (name,):
        if not _IDENTIFIER.fullmatch(part):
            raise Invalid(f"{text!r} is not the name of a table", "use letters, digits and _, like billing_offsets")
        if len(part.encode()) > _LONGEST_IDENTIFIER_BYTES:
            raise Invalid(f"the table name {text!r} is longer than {_LONGEST_IDENTIFIER_BYTES} bytes")
    return TableName(schema if dot else None, name)


def _sqlite(url: URL, table: TableName, options: dict[str, str]) -> Address:
    if url.host or url.username or not url.database or url.database == ":memory:":
        raise Invalid(
            "an SQLite database of offsets must be a file: in memory they would be lost when the process ends",
            "write it like sqlite:///relative/path.db or sqlite:////absolute/path.db",
        )
    if options:
        raise Invalid(f"SQLite has no option {min(options)!r} here", "only table= may follow the question mark")
    if table.schema or table.name.lower().startswith("sqlite_"):
        raise Invalid(
            f"{str(table)!r} cannot be a table of an SQLite database",
            "use a name without a dot and without the prefix sqlite_",
        )
    path = Path(url.database).absolute()
    escaped = str(path).replace("%", "%25").replace("?", "%3F")
    shown = f"sql+sqlite:///{escaped}" + _query(table, {})
    return Address(URL.create("sqlite", database=str(path)), table, shown)


def _postgresql(url: URL, table: TableName, options: dict[str, str]) -> Address:
    for name in options:
        if name not in LIBPQ:
            raise Invalid(f"the option {name!r} of a PostgreSQL URL is not allowed here", near_names(name, LIBPQ))
    password = url.password if url.password is None else str(url.password)
    reference = password if password and _FROM_ENVIRONMENT.fullmatch(password) else None
    if reference:
        # Only from the environment: this text may come from a plan file and must not be able to read our files.
        password = resolve(reference, {"env": "env"})
    full = URL.create("postgresql+psycopg", url.username, password, url.host, url.port, url.database, {**options})
    user = quote(url.username or "", safe="")
    userinfo = f"{user}:{reference}@" if reference else f"{user}@" if user else ""
    host = f"[{url.host}]" if url.host and ":" in url.host else url.host or ""
    place = f"{host}:{url.port}" if url.port else host
    shown = f"sql+postgresql://{userinfo}{place}/{url.database or ''}" + _query(table, options)
    return Address(full, table, shown)


def _query(table: TableName, options: dict[str, str]) -> str:
    named = {**options, **({"table": str(table)} if str(table) != DEFAULT_TABLE else {})}
    return f"?{urlencode(named)}" if named else ""
