"""The options of a JDBC source connector, with the same names and meanings as in Connect.

Every option is honoured, named as being without effect on Spark, or refused by name; all faults are reported together. An unknown
option is refused as well: Connect would ignore a typo, and the user would notice late. References like `${env:X}` are resolved
before.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from playhead.errors import ConfigInvalid, Fault, Invalid
from playhead.model.position import INT64_MAX
from playhead.model.secret import Secret
from playhead.pipeline.ingest.jdbc.mappings import ColumnMapping, parse_mappings
from playhead.pipeline.ingest.producer_options import NO_EFFECT, OVERRIDE, check_producer, unused_overrides
from playhead.pipeline.ingest.record_options import parse_source_records
from playhead.pipeline.ingest.topic_creation import PREFIX as TOPIC_CREATION
from playhead.pipeline.ingest.topic_creation import check_topic_creation
from playhead.pipeline.jdbc_url import refused_properties, refused_url
from playhead.pipeline.options import OF_EVERY, KnownOptions, OptionReading
from playhead.pipeline.records.encode.options import SIMPLE, RecordOptions
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS

HONOURED = frozenset(
    [
        "mode",
        "table.whitelist",
        "table.include.list",
        "table.blacklist",
        "table.exclude.list",
        "table.types",
        "schema.pattern",
        "catalog.pattern",
        "query",
        "query.masked",
        "query.suffix",
        "incrementing.column.name",
        "incrementing.column.mapping",
        "timestamp.column.name",
        "timestamp.columns.mapping",
        "topic.prefix",
        "timestamp.initial",
        "timestamp.delay.interval.ms",
        "transaction.isolation.mode",
        "batch.max.rows",
        "validate.non.null",
        "quote.sql.identifiers",
        "dialect.name",
        "date.calendar.system",
        "connection.url",
        "connection.user",
        "connection.password",
        "connection.driver",
        "exactly.once.support",
        "offsets.storage.topic",
        "value.converter",
        "key.converter",
    ]
)
# `parse_record_options` reads these.
OF_RECORDS = frozenset(["numeric.mapping", "numeric.precision.mapping", "timestamp.granularity", "db.timezone"])
_RETRIES = "a run retries by itself, see --give-up-after"
_ROUNDS = "--interval is the pause between two rounds, and each lists the tables"
_SIZES = "--chunk-rows limits a transaction"
_REPORTS = "a row that cannot be converted ends the run and is always reported"
# Options that are checked, and whose effect a run has in another way. A run that finds one says so.
WITHOUT_EFFECT = {
    "connection.attempts": _RETRIES,
    "connection.backoff.ms": _RETRIES,
    "query.retry.attempts": _RETRIES,
    "poll.interval.ms": _ROUNDS,
    "poll.linger.ms": _ROUNDS,
    "table.poll.interval.ms": _ROUNDS,
    "table.monitoring.startup.polling.limit.ms": _ROUNDS,
    "max.buffer.size": _SIZES,
    "transaction.boundary": _SIZES,
    "transaction.boundary.interval.ms": _SIZES,
    "errors.log.enable": _REPORTS,
    "errors.log.include.messages": _REPORTS,
}
_INT32_MAX = 2**31 - 1
_NUMBERS = {
    "connection.attempts": (1, _INT32_MAX),
    "connection.backoff.ms": (0, INT64_MAX),
    "query.retry.attempts": (-1, _INT32_MAX),
    "poll.interval.ms": (0, _INT32_MAX),
    "poll.linger.ms": (0, INT64_MAX),
    "table.poll.interval.ms": (0, INT64_MAX),
    "table.monitoring.startup.polling.limit.ms": (0, INT64_MAX),
    "max.buffer.size": (0, _INT32_MAX),
    "transaction.boundary.interval.ms": (1, INT64_MAX),
}
PREFIXES = ("key.converter.", "value.converter.", "header.converter.", TOPIC_CREATION)
DRIVER = "connection."  # an option with this prefix that the connector does not know is a property of the JDBC driver
# Options that are accepted only with the value that means "off" or "default".
ONLY = {
    "header.converter": (SIMPLE,),
    "errors.tolerance": ("none",),
    "errors.retry.timeout": ("0",),
    "errors.retry.delay.max.ms": ("60000",),
    "jdbc.credentials.provider.class": ("io.confluent.connect.jdbc.util.DefaultJdbcCredentialsProvider",),
}
REASONS = {
    "header.converter": "headers are written as SimpleHeaderConverter writes them",
    "errors.tolerance": "a row that cannot be converted stops the run; it is never skipped",
    "errors.retry.timeout": "a failed step is planned again; a single record is not retried",
    "errors.retry.delay.max.ms": "a failed step is planned again; a single record is not retried",
    "jdbc.credentials.provider.class": "the Java class is not loaded; set connection.user and connection.password",
}
KNOWN = KnownOptions(
    HONOURED | OF_RECORDS | OF_EVERY | frozenset(WITHOUT_EFFECT) | frozenset(OF_TRANSFORMS),
    (*PREFIXES, OVERRIDE, DRIVER, *(f"{name}." for name in OF_TRANSFORMS)),
    ONLY,
    REASONS,
    "it would change what is read",
)


T = TypeVar("T")
BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
MODES = (BULK, INCREMENTING, TIMESTAMP, BOTH)
_TIME_NAME, TIME_MAPPING = "timestamp.column.name", "timestamp.columns.mapping"
_ID_NAME, ID_MAPPING = "incrementing.column.name", "incrementing.column.mapping"
_CURSORS = (((TIMESTAMP, BOTH), _TIME_NAME, TIME_MAPPING), ((INCREMENTING, BOTH), _ID_NAME, ID_MAPPING))
DEFAULT_ISOLATION = "DEFAULT"
ISOLATIONS = (DEFAULT_ISOLATION, "READ_UNCOMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE")
_SNAPSHOT_ISOLATION = "SQL_SERVER_SNAPSHOT"
# Which databases have the levels; the others would need statements of their own.
_WITH_ISOLATION = {"jdbc:postgresql:": ISOLATIONS, "jdbc:sqlite:": (DEFAULT_ISOLATION, "SERIALIZABLE")}
# The dialects of the connector by the subprotocols that it chooses them for.
_DIALECTS = {
    "PostgreSqlDatabaseDialect": ("postgresql",),
    "SqliteDatabaseDialect": ("sqlite",),
    "MySqlDatabaseDialect": ("mysql", "mariadb"),
    "OracleDatabaseDialect": ("oracle",),
    "SqlServerDatabaseDialect": ("sqlserver", "microsoft:sqlserver", "jtds:sqlserver"),
    "Db2DatabaseDialect": ("db2", "db2j", "ibmdb"),
    "DerbyDatabaseDialect": ("derby",),
    "SapHanaDatabaseDialect": ("sap",),
    "SybaseDatabaseDialect": ("jtds:sybase",),
    "VerticaDatabaseDialect": ("vertica",),
}
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{0,249}")
_LIMIT = re.compile(r"\b(LIMIT|FETCH|TOP|ROWNUM|OFFSET)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the database. `properties` go to the driver with user and password."""

    url: str = field(repr=False)
    user: str | None = None
    password: Secret | None = None
    driver: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Which tables are read; `include` None: all. Names are bare, `schema.table` or `db.schema.table`, case as stored.

    `patterns`: entries of `table.include.list` and `table.exclude.list` may also be regular expressions for qualified names.
    `option`: the name of the list that is set.
    """

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    types: tuple[str, ...] = ("TABLE",)
    schema_pattern: str | None = None
    catalog_pattern: str | None = None
    patterns: bool = False
    option: str = ""


@dataclass(frozen=True, slots=True)
class JdbcOptions:
    """`timestamp_initial_ms`: None = from the beginning, -1 = the database's present time."""

    connection: Connection
    mode: str
    topic_prefix: str
    tables: TableFilter
    record: RecordOptions
    query: str | None = field(default=None, repr=False)
    query_suffix: str = ""
    incrementing_column: str = ""
    timestamp_columns: tuple[str, ...] = ()
    id_mappings: tuple[ColumnMapping, ...] = ()
    time_mappings: tuple[ColumnMapping, ...] = ()
    timestamp_initial_ms: int | None = None
    timestamp_delay_ms: int = 0
    batch_max_rows: int = 1000
    validate_non_null: bool = True
    quote_identifiers: bool = True
    isolation: str = DEFAULT_ISOLATION

    @property
    def has_id(self) -> bool:
        return self.mode in (INCREMENTING, BOTH)

    @property
    def has_time(self) -> bool:
        return self.mode in (TIMESTAMP, BOTH)


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """All faults of a connector's config that can be found without the database."""
    return _Reading(config, worker).read()[1]


def parse_options(config: Mapping[str, str], worker: Mapping[str, str]) -> JdbcOptions:
    return _Reading(config, worker).parsed()


def notes_of(config: Mapping[str, str]) -> list[str]:
    """One sentence for each reason why options of this config have no effect here."""
    found: dict[str, list[str]] = {}
    for name, reason in WITHOUT_EFFECT.items():
        if name in config:
            found.setdefault(reason, []).append(name)
    if unused := unused_overrides(config):
        found[NO_EFFECT] = unused
    return [f"without effect on Spark: {', '.join(names)} ({reason})" for reason, names in found.items()]


def _query_text(config: Mapping[str, str], name: str) -> str:
    return config.get(name, "").strip().rstrip(";").strip()


class _Reading(OptionReading[JdbcOptions]):
    def read(self) -> tuple[JdbcOptions | None, list[Fault]]:
        self.check_names(KNOWN)
        mode = self.one_of("mode", "", MODES, any_case=False)
        record = self._record()
        connection = self._connection()
        prefix = self.config.get("topic.prefix", "").strip()
        tables = self._tables()
        initial = self._initial()
        self._cursor_columns(mode)
        query, suffix = self._query(mode)
        isolation = self._isolation(connection.url)
        self._unused()
        self.faults += check_topic_creation(self.config)
        self.faults += check_producer(self.config, self.worker)
        record = record or RecordOptions()  # the fault is recorded already; the other options are still checked
        options = JdbcOptions(
            connection=connection,
            mode=mode,
            topic_prefix=prefix,
            tables=tables,
            record=record,
            query=query,
            query_suffix=suffix,
            incrementing_column=self.config.get("incrementing.column.name", "").strip(),
            timestamp_columns=self.names("timestamp.column.name"),
            id_mappings=self._mappings(ID_MAPPING, one=True),
            time_mappings=self._mappings(TIME_MAPPING, one=False),
            timestamp_initial_ms=initial,
            timestamp_delay_ms=self.number("timestamp.delay.interval.ms", 0),
            batch_max_rows=self.number("batch.max.rows", 1000, low=1),
            validate_non_null=self.flag("validate.non.null", "true", ("true", "false")),
            quote_identifiers=self.flag("quote.sql.identifiers", "always", ("always", "never")),
            isolation=isolation,
        )
        return (None if self.faults else options), self.faults

    def _unused(self) -> None:
        """Options that are not used further. A value that Connect would refuse is refused here too."""
        for name, (low, high) in _NUMBERS.items():
            self.number(name, low, low, high)
        self.one_of("exactly.once.support", "requested", ("requested", "required"))
        self.one_of("transaction.boundary", "poll", ("poll", "interval"))
        self.one_of("errors.tolerance", "none", ("none", "all"), any_case=False)
        self.one_of("config.action.reload", "restart", ("restart", "none"), any_case=False)
        for name in ("errors.log.enable", "errors.log.include.messages"):
            self.flag(name, "false")
        if self.one_of("date.calendar.system", "LEGACY", ("LEGACY", "PROLEPTIC_GREGORIAN"), any_case=False) != "LEGACY":
            self.fault("date.calendar.system", "is honoured on Spark only with LEGACY, the default")
        if "offsets.storage.topic" in self.config and not self.text("offsets.storage.topic"):
            self.fault("offsets.storage.topic", "must not be empty")

    def _isolation(self, url: str) -> str:
        level = self.one_of(
            "transaction.isolation.mode", DEFAULT_ISOLATION, (*ISOLATIONS, _SNAPSHOT_ISOLATION), any_case=False
        )
        possible = next((levels for start, levels in _WITH_ISOLATION.items() if url.lower().startswith(start)), ())
        if level in (*ISOLATIONS, _SNAPSHOT_ISOLATION) and level not in (*possible, DEFAULT_ISOLATION):
            self.fault(
                "transaction.isolation.mode", f"is not honoured on Spark with the value {level} for this database"
            )
        return level

    def _mappings(self, option: str, *, one: bool) -> tuple[ColumnMapping, ...]:
        return self._tried(option, lambda: parse_mappings(self.names(option), one=one)) or ()

    def _tried(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigInvalid as error:
            self.faults += error.faults
        except Invalid as error:
            self.fault(name, f"{error.what}; {error.hint}" if error.hint else error.what)
        return None

    def _record(self) -> RecordOptions | None:
        return self._tried("", lambda: parse_source_records(self.config, self.worker, is_jdbc=True))

    def _below(self, prefix: str) -> dict[str, str]:
        return {name[len(prefix) :]: value for name, value in self.config.items() if name.startswith(prefix)}

    def _initial(self) -> int | None:
        text = self.config.get("timestamp.initial", "").strip()
        if text in ("", "null"):
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            self.fault("timestamp.initial", f"must be milliseconds since the epoch, or -1 for now, not {text!r}")
            return None
        return int(text)

    def _cursor_columns(self, mode: str) -> None:
        for modes, by_name, by_table in _CURSORS:
            given = [name for name in (by_name, by_table) if self.names(name)]
            if mode in modes and not given and by_name == _TIME_NAME:
                self.fault(by_name, f"is needed by mode {mode}")
            if mode in MODES and mode not in modes:
                for name in given:
                    self.fault(name, f"has no effect in mode {mode}")
            if by_table in given:
                self._check_mapping(by_table)

    def _check_mapping(self, option: str) -> None:
        """As the connector: the newer options are not mixed with the older ones."""
        older = ("table.whitelist", "table.blacklist", _TIME_NAME, _ID_NAME)
        mixed = [name for name in older if self.names(name)]
        if self._has_query:
            self.fault(option, "cannot be used with a query, which has no table name to match")
        elif mixed:
            self.fault(option, f"cannot be used together with {', '.join(mixed)}")
        elif not self.names("table.include.list"):
            self.fault(option, "needs table.include.list; without it the connector ignores the mapping")

    @property
    def _has_query(self) -> bool:
        return bool(_query_text(self.config, "query") or _query_text(self.config, "query.masked"))

    def _query(self, mode: str) -> tuple[str | None, str]:
        plain, masked = _query_text(self.config, "query"), _query_text(self.config, "query.masked")
        if plain and masked:
            self.fault("query.masked", "means the same as query; set only one of them")
        query = masked or plain
        suffix = self.config.get("query.suffix", "").strip()
        prefix = self.config.get("topic.prefix", "").strip()
        if mode == TIMESTAMP and _LIMIT.search(suffix):
            self.fault("query.suffix", "would separate rows with the same timestamp; use mode timestamp+incrementing")
        if not query and "topic.prefix" not in self.config:
            self.fault("topic.prefix", "is missing")
        if query and not prefix:
            self.fault("topic.prefix", "is the topic of a query and must not be empty")
        if not _PREFIX.fullmatch(prefix):
            self.fault("topic.prefix", "may have letters, digits, '.', '_' and '-' only, 249 at most")
        if query and mode in (INCREMENTING, BOTH) and not self.config.get("incrementing.column.name", "").strip():
            self.fault("incrementing.column.name", "is needed with a query")
        return query or None, suffix

    def _tables(self) -> TableFilter:
        pairs = (("table.whitelist", "table.include.list"), ("table.blacklist", "table.exclude.list"))
        for old, new in pairs:
            if self.names(old) and self.names(new):
                self.fault(new, f"means the same as {old}; set only one of them")
        include, exclude = (self.names(old) or self.names(new) for old, new in pairs)
        if include and exclude and not (self.names("table.include.list") and self.names("table.exclude.list")):
            name = "table.blacklist" if self.names("table.blacklist") else "table.exclude.list"
            self.fault(name, "cannot be used together with this list of tables to include")
        if self._has_query and (include or exclude):
            option = "query.masked" if _query_text(self.config, "query.masked") else "query"
            self.fault(option, "cannot be used together with lists of tables")
        types = tuple(part.upper() for part in self.names("table.types")) or ("TABLE",)
        schema, catalog = (self.config.get(name, "").strip() or None for name in ("schema.pattern", "catalog.pattern"))
        newer = [name for _, name in pairs if self.names(name)]
        for name in newer:
            self._check_patterns(name)
        option = next((name for pair in pairs for name in pair if self.names(name)), "")
        return TableFilter(include or None, exclude, types, schema, catalog, bool(newer), option)

    def _check_patterns(self, name: str) -> None:
        for entry in self.names(name):
            try:
                re.compile(entry)
            except re.error as error:
                self.fault(name, f"{entry!r} is not a valid regular expression: {error}")

    def _connection(self) -> Connection:
        url = self.config.get("connection.url", "").strip()
        if not url:
            self.fault("connection.url", "is missing")
        self._dialect(url)
        known = {*HONOURED, *WITHOUT_EFFECT}
        properties = {name: value for name, value in self._below(DRIVER).items() if DRIVER + name not in known}
        for what in refused_url(url) if url else ():
            self.fault("connection.url", what)
        for name, what in refused_properties(url, properties).items():
            self.fault(DRIVER + name, what)
        password = self.config.get("connection.password")
        return Connection(
            url=url,
            user=self.config.get("connection.user"),
            password=None if password is None else Secret(password),
            driver=self.config.get("connection.driver", "").strip() or None,
            properties=properties,
        )

    def _dialect(self, url: str) -> None:
        """The dialect follows from the URL. The name of another one would change types and SQL."""
        wanted = self.text("dialect.name")
        own = [
            name
            for name, protocols in _DIALECTS.items()
            if url.lower().startswith(tuple(f"jdbc:{protocol}:" for protocol in protocols))
        ] or ["GenericDatabaseDialect"]
        if wanted and wanted not in own:
            self.fault("dialect.name", f"is not honoured on Spark: connection.url is one of {own[0]}")
