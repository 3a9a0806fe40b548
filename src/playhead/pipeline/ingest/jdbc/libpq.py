"""The connection of a JDBC URL for libpq, with which tasks read PostgreSQL.

Every setting that decides where and as whom we connect, and what names mean there, is translated. Settings of the JDBC driver
itself, such as its buffers and caches, have no counterpart and change nothing that is read. What else cannot be translated (keys
in Java's format, Kerberos, timeouts of a socket) makes Spark's JDBC reader read the rows instead.

libpq would take what is left open from the environment or from a socket; the JDBC driver does not, so defaults are written out.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from playhead.pipeline.ingest.jdbc.options import Connection
from playhead.pipeline.jdbc_url import url_properties

_PREFIX = "jdbc:postgresql:"
_CONNECT_SECONDS = "10"  # the JDBC driver's own default
_SAME = {
    "user": "user",
    "password": "password",
    "connecttimeout": "connect_timeout",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "channelbinding": "channel_binding",
    "requireauth": "require_auth",
    "sslnegotiation": "sslnegotiation",
    "applicationname": "application_name",
}
_SERVERS = {
    "any": "any",
    "primary": "read-write",
    "master": "read-write",
    "secondary": "read-only",
    "slave": "read-only",
    "prefersecondary": "prefer-standby",
    "preferslave": "prefer-standby",
}
# Settings of the JDBC driver that do not change what a query returns.
_OWN = frozenset(
    name.lower()
    for name in [
        "loginTimeout",
        "cancelSignalTimeout",
        "sslResponseTimeout",
        "gssResponseTimeout",
        "tcpNoDelay",
        "hostRecheckSeconds",
        "prepareThreshold",
        "preparedStatementCacheQueries",
        "preparedStatementCacheSizeMiB",
        "databaseMetadataCacheFields",
        "databaseMetadataCacheFieldsMiB",
        "binaryTransfer",
        "binaryTransferEnable",
        "binaryTransferDisable",
        "reWriteBatchedInserts",
        "defaultRowFetchSize",
        "assumeMinServerVersion",
        "receiveBufferSize",
        "sendBufferSize",
        "maxSendBufferSize",
        "adaptiveFetch",
        "adaptiveFetchMinimum",
        "adaptiveFetchMaximum",
        "maxResultBuffer",
        "hideUnprivilegedObjects",
        "logUnclosedConnections",
        "logServerErrorDetail",
        "allowEncodingChanges",
        "unknownLength",
        "stringtype",
    ]
)


def find_conninfo(connection: Connection) -> str | None:
    """libpq's `name='value'` pairs, with the password. None: a setting cannot be translated."""
    if not connection.url.lower().startswith(_PREFIX):
        return None
    place = _place(connection.url[len(_PREFIX) :].partition("?")[0])
    if place is None:
        return None
    settings = {name.lower(): value for name, value in connection.properties.items()}
    if connection.user is not None:
        settings["user"] = connection.user
    if connection.password is not None:
        settings["password"] = connection.password.reveal()
    settings |= {
        name.lower(): value for name, value in url_properties(connection.url).items()
    }  # what the URL sets wins
    made = _translated(settings)
    return None if made is None else _written({**place, **made})


def _place(text: str) -> dict[str, str] | None:
    """Of `//host:port,host:port/database`, `/` and `database`."""
    if not text.startswith("//"):
        return {"host": "localhost", "port": "5432", **_database(text.removeprefix("/"))}
    hosts, _, database = text[2:].partition("/")
    names, ports = [], []
    for part in hosts.split(","):
        name, colon, port = part.rpartition(":") if ":" in part.rpartition("]")[2] else (part, "", "")
        if colon and not port.isdigit():
            return None
        names.append(name.strip("[]") or "localhost")
        ports.append(port or "5432")
    return {"host": ",".join(names), "port": ",".join(ports), **_database(database)}


def _database(text: str) -> dict[str, str]:
    return {"dbname": unquote(text)} if text else {}


def _translated(settings: Mapping[str, str]) -> dict[str, str] | None:
    made = {"sslmode": "prefer", "connect_timeout": _CONNECT_SECONDS, "client_encoding": "UTF8"}
    for name, value in settings.items():
        found = _setting(name, value)
        if found is None:
            return None
        if name != "ssl" or "sslmode" not in settings:
            made |= found
    options = [settings.get("options", "")]
    if "currentschema" in settings:
        options.append("-c search_path=" + settings["currentschema"].replace("\\", "\\\\").replace(" ", "\\ "))
    return {**made, "options": " ".join(filter(None, options))}


def _setting(name: str, value: str) -> dict[str, str] | None:
    """None: it cannot be translated."""
    is_on = value.lower() == "true"
    if name in _SAME:
        return {_SAME[name]: value}
    match name:
        case "ssl" if value.lower() in ("true", "false", ""):
            return {} if value.lower() == "false" else {"sslmode": "verify-full"}
        case "tcpkeepalive":
            return {"keepalives": "1" if is_on else "0"}
        case "loadbalancehosts":
            return {"load_balance_hosts": "random" if is_on else "disable"}
        case "targetservertype" if value.lower() in _SERVERS:
            return {"target_session_attrs": _SERVERS[value.lower()]}
        case "options" | "currentschema":
            return {}
        case _:
            return {} if name in _OWN else None


def _written(settings: Mapping[str, str]) -> str:
    return " ".join(
        "{}='{}'".format(name, value.replace("\\", "\\\\").replace("'", "\\'")) for name, value in settings.items()
    )
