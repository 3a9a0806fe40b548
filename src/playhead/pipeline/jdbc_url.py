"""Which properties of a JDBC URL are allowed.

The URL can make a driver load classes, write files or run scripts. For PostgreSQL and SQLite only properties that cannot do that
are allowed. For other drivers the well-known dangerous ones are refused. Messages contain names, never values.
"""

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlencode

_POSTGRES = frozenset(
    name.lower()
    for name in [
        "user",
        "password",
        "PGDBNAME",
        "PGHOST",
        "PGPORT",
        "ssl",
        "sslmode",
        "sslcert",
        "sslkey",
        "sslrootcert",
        "sslpassword",
        "sslnegotiation",
        "sslResponseTimeout",
        "ApplicationName",
        "connectTimeout",
        "socketTimeout",
        "loginTimeout",
        "cancelSignalTimeout",
        "tcpKeepAlive",
        "tcpNoDelay",
        "currentSchema",
        "options",
        "targetServerType",
        "loadBalanceHosts",
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
        "stringtype",
        "assumeMinServerVersion",
        "receiveBufferSize",
        "sendBufferSize",
        "maxSendBufferSize",
        "channelBinding",
        "requireAuth",
        "adaptiveFetch",
        "adaptiveFetchMinimum",
        "adaptiveFetchMaximum",
        "maxResultBuffer",
        "gssEncMode",
        "gssResponseTimeout",
        "kerberosServerName",
        "jaasApplicationName",
        "jaasLogin",
        "gsslib",
        "useSpnego",
        "hideUnprivilegedObjects",
        "logUnclosedConnections",
        "logServerErrorDetail",
        "allowEncodingChanges",
        "unknownLength",
    ]
)
_SQLITE = frozenset(
    [
        "mode",
        "cache",
        "busy_timeout",
        "date_class",
        "date_precision",
        "date_string_format",
        "foreign_keys",
        "journal_mode",
        "synchronous",
        "transaction_mode",
        "cache_size",
        "page_size",
        "open_mode",
        "encoding",
        "case_sensitive_like",
        "read_uncommitted",
    ]
)
_DANGEROUS = frozenset(
    name.lower()
    for name in [
        "autoDeserialize",
        "queryInterceptors",
        "statementInterceptors",
        "connectionLifecycleInterceptors",
        "exceptionInterceptors",
        "allowLoadLocalInfile",
        "allowUrlInLocalInfile",
        "allowLoadLocalInfileInPath",
        "allowLocalInfile",
        "detectCustomCollations",
        "propertiesTransform",
        "socketFactory",
        "socketFactoryClass",
        "clientInfoProvider",
        "authenticationPlugins",
        "defaultAuthenticationPlugin",
        "credentialType",
        "serverRSAPublicKeyFile",
        "profileSQL",
        "logger",
        "loadBalanceStrategy",
        "INIT",
        "TRACE_LEVEL_FILE",
        "TRACE_LEVEL_SYSTEM_OUT",
        "trustStoreManager",
        "trustManagerClass",
        "socketFactoryConstructorArg",
        "clientRerouteServerListJNDIName",
        "traceFile",
        "traceDirectory",
        "enable_load_extension",
    ]
)


def refused_url(url: str) -> list[str]:
    """What is wrong with the URL. The messages do not repeat it."""
    if not url.lower().startswith("jdbc:"):
        return ["must start with jdbc:"]
    faults = []
    if _product(url) == "sqlite":
        path = url[len("jdbc:sqlite:") :]
        if path.startswith(":resource:"):
            faults.append("must name a file: SQLite's :resource: would fetch it from elsewhere")
        if not path.partition("?")[0] or ":memory:" in path or "mode=memory" in path:
            faults.append("must name a file: every reader would have its own database in memory")
    return faults + [f"property {name}: {what}" for name, what in refused_properties(url, url_properties(url)).items()]


def refused_properties(url: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Property -> why it is refused."""
    allowed = {"postgresql": _POSTGRES, "sqlite": _SQLITE}.get(_product(url))
    if allowed is None:
        return {name: "can run code or access files here" for name in properties if name.lower() in _DANGEROUS} | {
            name: "must be in connection.url: Spark would pass it on in lower case"
            for name in properties
            if not takes_url_properties(url) and name != name.lower() and name not in url_properties(url)
        }
    return {name: "is not an allowed property" for name in properties if name.lower() not in allowed}


_IN_URL = frozenset(["postgresql", "mysql", "mariadb", "sqlite"])


def takes_url_properties(url: str) -> bool:
    """Whether the driver takes every property in the URL as well, after `?`."""
    return _product(url) in _IN_URL


def with_properties(url: str, properties: Mapping[str, str]) -> str:
    """The URL with these properties, except those that it sets itself."""
    own = url_properties(url)
    missing = {name: value for name, value in properties.items() if name not in own}
    return url + ("&" if "?" in url else "?") + urlencode(missing, quote_via=quote) if missing else url


def _product(url: str) -> str:
    parts = url.split(":", 2)
    return parts[1].lower() if len(parts) > 1 else ""


def url_properties(url: str) -> dict[str, str]:
    """Properties in the URL: after `?`, separated by `&`; other drivers separate them by `;` too."""
    head, _, tail = url.partition("?")
    parts = tail.split("&")
    if _product(url) not in ("postgresql", "sqlite"):
        parts = [part for piece in (*parts, *head.split(";")[1:]) for part in piece.split(";")]
    pairs = (part.partition("=") for part in parts if part)
    return {unquote(name).strip(): unquote(value) for name, _, value in pairs}
