"""A JDBC URL -> the URL under which our own client finds the same database.

Properties are those of pgjdbc and sqlite-jdbc. One that only makes Java's driver quicker is left aside; one that our client
knows under another name is renamed; any other is refused by its name. As in pgjdbc, what the URL says counts more than a
property beside it. Texts of errors never repeat the URL, which may hold a password.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode

from playhead.errors import Invalid

POSTGRESQL, SQLITE = "postgresql", "sqlite"
DIALECTS = {"PostgreSqlDatabaseDialect": POSTGRESQL, "SqliteDatabaseDialect": SQLITE}
_OWN = ("url", "user", "password", "attempts", "backoff.ms")  # of the connector, not of the driver
_RENAMED = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "applicationname": "application_name",
    "connecttimeout": "connect_timeout",
    "channelbinding": "channel_binding",
    "gssencmode": "gssencmode",
    "kerberosservername": "krbsrvname",
}
_PACE = frozenset(
    name.lower()
    for name in [
        "reWriteBatchedInserts",
        "prepareThreshold",
        "preparedStatementCacheQueries",
        "preparedStatementCacheSizeMiB",
        "defaultRowFetchSize",
        "binaryTransfer",
        "tcpNoDelay",
        "tcpKeepAlive",
        "socketTimeout",
        "loginTimeout",
        "receiveBufferSize",
        "sendBufferSize",
        "logUnclosedConnections",
        "logServerErrorDetail",
        "busy_timeout",
        "cache_size",
        "synchronous",
        "transaction_mode",
        "stringtype",
    ]
)
_PLACE = re.compile(r"//(?:(\[[^\]]+\]|[^:/,]*)(?::([0-9]+))?)?(?:/(.*))?")


@dataclass(frozen=True, slots=True)
class Target:
    """`url` is what `open_ledger` takes and may hold a password. `schema`: where tables without one are, if the URL tells."""

    product: str
    url: str = field(repr=False)
    schema: str | None = None


def ledger_url(config: Mapping[str, str]) -> str:
    """The ledger of a JDBC sink is in the database that it writes to."""
    return find_target(config).url


def find_target(config: Mapping[str, str]) -> Target:
    """Raises Invalid for what cannot be reached by our own client."""
    url = config.get("connection.url", "").strip()
    product = next((name for name in (POSTGRESQL, SQLITE) if url.lower().startswith(f"jdbc:{name}:")), None)
    if product is None:
        raise Invalid("connection.url must be that of PostgreSQL or SQLite", "write it like jdbc:postgresql://host/db")
    place, _, query = url[len(f"jdbc:{product}:") :].partition("?")
    properties = _beside(config) | _properties(query)
    return _sqlite(place, properties) if product == SQLITE else _postgresql(place, properties, config)


def _beside(config: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in config if name.startswith("connection."))
    found = {name.removeprefix("connection."): config[name] for name in names}
    return {name.lower(): value for name, value in found.items() if name not in _OWN}


def _properties(query: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in query.split("&") if part)
    return {unquote(name).strip().lower(): unquote(value) for name, _, value in pairs}


def _sqlite(place: str, properties: Mapping[str, str]) -> Target:
    if strange := sorted(name for name in properties if name not in _PACE):
        raise Invalid(f"the property {strange[0]} of connection.url is not honoured on Spark")
    # Only SQLite's own URIs have escapes; a plain path is taken as it is written.
    path = place.removeprefix("file:") if place.startswith("file:") else place.replace("%", "%25")
    if not path or path.startswith(":"):
        raise Invalid("connection.url must name the file of an SQLite database")
    return Target(SQLITE, f"sqlite:///{path}")


def _postgresql(place: str, properties: Mapping[str, str], config: Mapping[str, str]) -> Target:
    found = _PLACE.fullmatch(place if place.startswith("//") else f"///{place.lstrip('/')}")
    if not found:
        raise Invalid("connection.url must name one host: jdbc:postgresql://host:port/database")
    given = dict(properties)
    user = given.pop("user", config.get("connection.user", ""))
    password = given.pop("password", config.get("connection.password", ""))
    schema = given.pop("currentschema", "").partition(",")[0].strip() or None
    if not user:
        raise Invalid(
            "connection.user is missing", "name the user of the database there, or as user= in connection.url"
        )
    host, port, database = found[1] or "localhost", found[2] or "5432", unquote(found[3] or "") or user
    userinfo = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    options = _libpq(given)
    tail = f"?{urlencode(options)}" if options else ""
    return Target(POSTGRESQL, f"postgresql://{userinfo}@{host}:{port}/{quote(database, safe='')}{tail}", schema)


def _libpq(properties: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in properties.items():
        if name == "ssl":
            options.setdefault("sslmode", "verify-full" if value.lower() in ("", "true") else "prefer")
        elif name in _RENAMED:
            options[_RENAMED[name]] = value
        elif name not in _PACE:
            raise Invalid(f"the property {name} of the connection is not honoured on Spark")
    return options
