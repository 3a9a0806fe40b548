"""The options of a JDBC sink connector, under their own names, with its defaults and meanings.

Every option is honoured, known to have no effect on Spark, or refused by name; all faults are reported together. An option
that is on none of the lists is refused as well: Connect would ignore a typo. `batch.size` has no effect: each partition of a
step is one transaction. `max.retries` and `retry.backoff.ms` have none either: a failed step is planned again. References
like `${env:X}` are resolved before.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from urllib.parse import quote, unquote, urlencode

from playhead.errors import Fault, Invalid
from playhead.pipeline.deliver.chain import PREFIXES, check_chain
from playhead.pipeline.jdbc_url import refused_url
from playhead.pipeline.options import OF_EVERY, KnownOptions, OptionReading
from playhead.pipeline.records.decode.options import Converter, check_converters, parse_converter
from playhead.pipeline.records.encode.options import JSON
from playhead.pipeline.records.encode.zones import UTC, parse_zone
from playhead.pipeline.records.transforms import HoistField, ValueToKey
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS, parse_stages

HONOURED = frozenset(
    [
        "connection.url",
        "connection.user",
        "connection.password",
        "dialect.name",
        "insert.mode",
        "delete.enabled",
        "pk.mode",
        "pk.fields",
        "fields.whitelist",
        "table.name.format",
        "table.types",
        "auto.create",
        "quote.sql.identifiers",
        "sql.quote.identifiers",  # Aiven's name for it
        "db.timezone",
        "date.timezone",
        "table.name.normalize",
        "batch.size",
        "max.retries",
        "retry.backoff.ms",
    ]
)
# The run reads these: topics, converters, handling of bad records.
OF_RUN = frozenset(
    [
        "topics",
        "topics.regex",
        "key.converter",
        "value.converter",
        "errors.tolerance",
        "errors.deadletterqueue.topic.name",
        "errors.deadletterqueue.topic.replication.factor",
        "errors.deadletterqueue.context.headers.enable",
        "errors.log.enable",
        "errors.log.include.messages",
        "errors.retry.timeout",
        "errors.retry.delay.max.ms",
        *OF_TRANSFORMS,
    ]
)
OF_RUN_PREFIXES = ("key.converter.", "value.converter.", "consumer.override.", "producer.override.", *PREFIXES)
# Each partition of a step is one transaction, whatever the size of a batch, and a failed step is planned again.
HARMLESS = OF_EVERY | frozenset(
    [
        "connection.attempts",
        "connection.backoff.ms",
        "header.converter",
        "mssql.use.merge.holdlock",
        "trim.sensitive.log",
    ]
)
HARMLESS_PREFIXES = ("header.converter.",)
# Options that are allowed only with the value that means "off" or the default.
ONLY = {
    "auto.evolve": ("false",),
    "timestamp.fields.list": ("",),
    "topics.to.tables.mapping": ("",),
    "handle.tombstone": ("false",),
    "date.calendar.system": ("LEGACY",),
}
REASONS = {
    "auto.evolve": "a missing column stops the run; add it yourself, then run again",
}
KNOWN = KnownOptions(HONOURED | OF_RUN | HARMLESS, (*OF_RUN_PREFIXES, *HARMLESS_PREFIXES, "connection."), ONLY, REASONS)


# A JDBC URL -> the URL of the same database for our own client. Properties are those of pgjdbc and sqlite-jdbc. One that only
# tunes the Java driver is ignored; one that our client knows under another name is renamed; any other is refused by name. As in
# pgjdbc, a property in the URL overrides a `connection.` option. Error messages never repeat the URL: it may hold a password.

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
_TUNING = frozenset(
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
class TargetDatabase:
    """`url` is for `open_ledger` and may hold a password. `schema`: the schema of tables without one, if the URL names it."""

    product: str
    url: str = field(repr=False)
    schema: str | None = None


def ledger_url(config: Mapping[str, str]) -> str:
    """The ledger of a JDBC sink is in its target database."""
    return find_target(config).url


def find_target(config: Mapping[str, str]) -> TargetDatabase:
    """Raises Invalid for a URL that our own client does not support."""
    url = config.get("connection.url", "").strip()
    product = next((name for name in (POSTGRESQL, SQLITE) if url.lower().startswith(f"jdbc:{name}:")), None)
    if product is None:
        raise Invalid("connection.url must be a URL of PostgreSQL or SQLite", "for example jdbc:postgresql://host/db")
    place, _, query = url[len(f"jdbc:{product}:") :].partition("?")
    properties = _connection_options(config) | _properties(query)
    return _sqlite(place, properties) if product == SQLITE else _postgresql(place, properties, config)


def _connection_options(config: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in config if name.startswith("connection."))
    found = {name.removeprefix("connection."): config[name] for name in names}
    return {name.lower(): value for name, value in found.items() if name not in _OWN}


def _properties(query: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in query.split("&") if part)
    return {unquote(name).strip().lower(): unquote(value) for name, _, value in pairs}


def _sqlite(place: str, properties: Mapping[str, str]) -> TargetDatabase:
    if unknown := sorted(name for name in properties if name not in _TUNING):
        raise Invalid(f"the property {unknown[0]} of connection.url is not honoured on Spark")
    # Only SQLite's own URIs have escapes; a plain path is used as it is.
    path = place.removeprefix("file:") if place.startswith("file:") else place.replace("%", "%25")
    if not path or path.startswith(":"):
        raise Invalid("connection.url must name the file of an SQLite database")
    return TargetDatabase(SQLITE, f"sqlite:///{path}")


def _postgresql(place: str, properties: Mapping[str, str], config: Mapping[str, str]) -> TargetDatabase:
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
    return TargetDatabase(POSTGRESQL, f"postgresql://{userinfo}@{host}:{port}/{quote(database, safe='')}{tail}", schema)


def _libpq(properties: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in properties.items():
        if name == "ssl":
            options.setdefault("sslmode", "verify-full" if value.lower() in ("", "true") else "prefer")
        elif name in _RENAMED:
            options[_RENAMED[name]] = value
        elif name not in _TUNING:
            raise Invalid(f"the property {name} of the connection is not honoured on Spark")
    return options


INSERT, UPSERT, UPDATE = "insert", "upsert", "update"
NONE, KAFKA, RECORD_KEY, RECORD_VALUE = "none", "kafka", "record_key", "record_value"
COORDINATES = ("__connect_topic", "__connect_partition", "__connect_offset")
_UTC_NAMES = (UTC, "Etc/UTC", "Etc/GMT", "Zulu", "Etc/Zulu", "Universal", "UCT")
_TYPES = ("TABLE", "PARTITIONED TABLE", "VIEW")
_PRODUCTS = {POSTGRESQL: "PostgreSQL", SQLITE: "SQLite"}


@dataclass(frozen=True, slots=True)
class Zones:
    """Of dates, and of times and timestamps. An empty zone is UTC."""

    of_dates: str = ""
    of_times: str = ""


@dataclass(frozen=True, slots=True)
class JdbcSinkOptions:
    """`insert_mode` of Aiven's `multi` is insert. `zone` is empty for UTC; dates have it, too, unless `plain_dates`."""

    insert_mode: str = INSERT
    pk_mode: str = NONE
    pk_fields: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    table_format: str = "${topic}"
    table_types: tuple[str, ...] = ("TABLE",)
    normalizes: bool = False
    deletes: bool = False
    creates: bool = False
    quotes: bool = True
    zone: str = ""
    plain_dates: bool = False

    @property
    def zones(self) -> Zones:
        return Zones("" if self.plain_dates else self.zone, self.zone)

    @property
    def is_direct(self) -> bool:
        """Rows are only inserted, so they need not be merged first."""
        return self.insert_mode == INSERT and not self.deletes

    @property
    def finds_by_key(self) -> bool:
        """Rows of the same key are the same row."""
        return self.insert_mode in (UPSERT, UPDATE)

    def shape(self, *converters: Converter, chain: str = "") -> str:
        """A digest of all options that shape rows: two runs with the same shape write the same rows. `chain`: the digest of the
        transforms, if there are any."""
        shaped = {"version": 1, **asdict(self), "converters": [asdict(one) for one in converters]}
        if not self.plain_dates:
            del shaped["plain_dates"]  # digests from before this option stay valid
        if chain:
            shaped["chain"] = chain
        return hashlib.sha256(json.dumps(shaped, sort_keys=True).encode()).hexdigest()


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with a connector's config, as far as the config alone shows."""
    return _Reading(config, worker).read()[1]


def parse_options(config: Mapping[str, str], worker: Mapping[str, str]) -> JdbcSinkOptions:
    return _Reading(config, worker).parsed()


class _Reading(OptionReading[JdbcSinkOptions]):
    def read(self) -> tuple[JdbcSinkOptions | None, list[Fault]]:
        self.check_names(KNOWN)
        target = self._target()
        mode = self.one_of("insert.mode", INSERT, (INSERT, UPSERT, UPDATE, "multi"), one_case=True)
        for name, default in (("batch.size", 3000), ("max.retries", 10), ("retry.backoff.ms", 3000)):
            self.number(name, default, high=999_999_999)
        options = JdbcSinkOptions(
            insert_mode=INSERT if mode == "multi" else mode,
            pk_mode=self.one_of("pk.mode", NONE, (NONE, KAFKA, RECORD_KEY, RECORD_VALUE), one_case=True),
            pk_fields=self.names("pk.fields"),
            fields=self.names("fields.whitelist"),
            table_format=self._format(),
            table_types=self._types(),
            normalizes=self.flag("table.name.normalize", "false"),
            deletes=self.flag("delete.enabled", "false"),
            creates=self.flag("auto.create", "false"),
            quotes=self._quotes(),
            zone=self._zone(),
            plain_dates=self.one_of("date.timezone", "DB_TIMEZONE", ("DB_TIMEZONE", UTC)) == UTC,
        )
        self._agree(options)
        self._converters(options)
        self._dialect(target)
        return (None if self.faults else options), self.faults

    def _target(self) -> TargetDatabase | None:
        url = self.text("connection.url")
        if not url:
            self.fault("connection.url", "is missing")
            return None
        for what in refused_url(url):
            self.fault("connection.url", what)
        try:
            return find_target(self.config)
        except Invalid as error:
            self.fault("connection.url", f"{error.what}; {error.hint}" if error.hint else error.what)
            return None

    def _dialect(self, target: TargetDatabase | None) -> None:
        name = self.text("dialect.name")
        if name and target and DIALECTS.get(name) != target.product:
            self.fault("dialect.name", f"is {name}, but connection.url is a URL of {_PRODUCTS[target.product]}")

    def _format(self) -> str:
        text = self.config.get("table.name.format", "${topic}").strip()
        if not text:
            self.fault("table.name.format", "must not be empty: it names the table")
        if unknown := re.findall(r"\$\{[^}]*\}", text.replace("${topic}", "")):
            self.fault("table.name.format", f"has {unknown[0]}, and only ${{topic}} is known")
        return text

    def _types(self) -> tuple[str, ...]:
        types = tuple(part.upper().replace("_", " ") for part in self.names("table.types")) or ("TABLE",)
        for one in types:
            if one not in _TYPES:
                self.fault("table.types", f"has {one!r}; known are {', '.join(_TYPES)}")
            elif one == "VIEW":
                self.fault("table.types", "VIEW is not honoured on Spark: rows go into tables only")
        return types

    def _quotes(self) -> bool:
        if "sql.quote.identifiers" in self.config:
            return self.flag("sql.quote.identifiers", "true")
        return self.one_of("quote.sql.identifiers", "always", ("always", "never")) == "always"

    def _zone(self) -> str:
        try:
            zone = parse_zone(self.text("db.timezone", UTC))
        except Invalid as error:
            self.fault("db.timezone", f"{error.what}; {error.hint}" if error.hint else error.what)
            return ""
        return "" if zone in _UTC_NAMES else zone

    def _agree(self, options: JdbcSinkOptions) -> None:
        if options.deletes and options.pk_mode != RECORD_KEY:
            self.fault("delete.enabled", f"needs pk.mode={RECORD_KEY}: a row is deleted by the key of a record")
        if options.insert_mode in (UPSERT, UPDATE) and options.pk_mode == NONE:
            self.fault(
                "pk.mode", f"must not be none with insert.mode={options.insert_mode}: rows are found by their key"
            )
        if options.pk_mode == KAFKA and len(options.pk_fields) not in (0, 3):
            self.fault("pk.fields", "must be empty or name three columns for topic, partition and offset")
        if len(set(options.pk_fields)) < len(options.pk_fields):
            self.fault("pk.fields", "names a field twice")

    def _converters(self, options: JdbcSinkOptions) -> None:
        faults = [*check_converters(self.config, self.worker), *check_chain(self.config, self.worker)]
        self.faults += faults
        if faults:
            return
        changes = {type(stage.change) for stage in parse_stages(self.config)}
        sides = ("value", "key") if options.pk_mode == RECORD_KEY and ValueToKey not in changes else ("value",)
        for side in sides:
            converter = parse_converter(self.config, self.worker, side)
            what = _schemaless(converter, side)
            if what and not (converter.name != JSON and HoistField in changes):  # it makes a struct of a string
                self.fault(f"{side}.converter", what)


def _schemaless(converter: Converter, side: str) -> str:
    """Columns come from a schema. Keys may also be plain strings or bytes, for which Connect has a schema."""
    if converter.name != JSON:
        return "" if side == "key" else "must give structs: their fields are the columns of a JDBC sink"
    if not converter.schemas_enable and not converter.schema_text:
        return f"{side}.converter.schemas.enable=false gives no schema, and the columns of a JDBC sink are the schema's fields"
    return ""
