"""The options of a JDBC source connector, with the same names and meanings as in Connect.

Every option is honoured, known to have no effect on Spark, or refused by name; all faults are reported together. An unknown
option is refused as well: Connect would ignore a typo, and the user would notice late. References like `${env:X}` are resolved
before.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from playhead.errors import ConfigInvalid, Fault, Invalid
from playhead.model.secret import Secret
from playhead.pipeline.jdbc_url import refused_properties, refused_url
from playhead.pipeline.options import OF_EVERY, KnownOptions, OptionReading
from playhead.pipeline.records.encode.options import RecordOptions, parse_record_options
from playhead.pipeline.records.transforms import makes_keys
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS, parse_transforms, refused_partitioners

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
        "query.suffix",
        "incrementing.column.name",
        "timestamp.column.name",
        "topic.prefix",
        "timestamp.initial",
        "timestamp.delay.interval.ms",
        "batch.max.rows",
        "poll.interval.ms",
        "table.poll.interval.ms",
        "validate.non.null",
        "quote.sql.identifiers",
        "dialect.name",
        "connection.url",
        "connection.user",
        "connection.password",
        "connection.driver",
    ]
)
# `parse_record_options` reads these.
OF_RECORDS = frozenset(["numeric.mapping", "numeric.precision.mapping", "timestamp.granularity", "db.timezone"])
HARMLESS = OF_EVERY | frozenset(
    [
        "poll.linger.ms",
        "connection.attempts",
        "connection.backoff.ms",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
        "max.retries",
        "table.monitoring.startup.polling.limit.ms",
        "query.retry.attempts",
        "value.converter",
        "key.converter",
    ]
)
HARMLESS_PREFIXES = ("key.converter.", "value.converter.", "topic.creation.", "header.converter.")
PRODUCER = "producer.override."
DRIVER = "connection."  # an option with this prefix that the connector does not know is a property of the JDBC driver
# Options that are accepted only with the value that means "off" or "default".
ONLY = {
    "header.converter": ("org.apache.kafka.connect.storage.SimpleHeaderConverter",),
    "errors.tolerance": ("none",),
    "errors.retry.timeout": ("0",),
    "errors.retry.delay.max.ms": ("60000",),
    "errors.log.enable": ("false", "true"),
    "errors.log.include.messages": ("false", "true"),
    "query.masked": ("",),
    "timestamp.columns.mapping": ("",),
    "incrementing.column.mapping": ("",),
}
REASONS = {
    "header.converter": "records here have no headers",
    "errors.tolerance": "a row that cannot be converted stops the run; it is never skipped",
    "errors.retry.timeout": "a failed step is planned again; a single record is not retried",
    "errors.retry.delay.max.ms": "a failed step is planned again; a single record is not retried",
}
KNOWN = KnownOptions(
    HONOURED | OF_RECORDS | HARMLESS | frozenset(OF_TRANSFORMS),
    (*HARMLESS_PREFIXES, PRODUCER, DRIVER, *(f"{name}." for name in OF_TRANSFORMS)),
    ONLY,
    REASONS,
    "it would change what is read",
)


T = TypeVar("T")
BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
MODES = (BULK, INCREMENTING, TIMESTAMP, BOTH)
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
    query: str | None = None
    query_suffix: str = ""
    incrementing_column: str = ""
    timestamp_columns: tuple[str, ...] = ()
    timestamp_initial_ms: int | None = None
    timestamp_delay_ms: int = 0
    batch_max_rows: int = 100
    poll_interval_ms: int = 5000
    table_poll_interval_ms: int = 60000
    validate_non_null: bool = True
    quote_identifiers: bool = True
    producer: Mapping[str, str] = field(default_factory=dict)

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


class _Reading(OptionReading[JdbcOptions]):
    def read(self) -> tuple[JdbcOptions | None, list[Fault]]:
        self.check_names(KNOWN)
        mode = self.one_of("mode", "", MODES)
        record = self._record()
        connection = self._connection()
        prefix = self.config.get("topic.prefix", "")
        tables = self._tables()
        initial = self._initial()
        self._cursor_columns(mode)
        query, suffix = self._query(mode)
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
            timestamp_initial_ms=initial,
            timestamp_delay_ms=self.number("timestamp.delay.interval.ms", 0),
            batch_max_rows=self.number("batch.max.rows", 100, low=1),
            poll_interval_ms=self.number("poll.interval.ms", 5000),
            table_poll_interval_ms=self.number("table.poll.interval.ms", 60000),
            validate_non_null=self.flag("validate.non.null", "true", ("true", "false")),
            quote_identifiers=self.flag("quote.sql.identifiers", "always", ("always", "never")),
            producer=self._below(PRODUCER),
        )
        return (None if self.faults else options), self.faults

    def _tried(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigInvalid as error:
            self.faults += error.faults
        except Invalid as error:
            self.fault(name, f"{error.what}; {error.hint}" if error.hint else error.what)
        return None

    def _record(self) -> RecordOptions | None:
        transforms = self._tried("transforms", lambda: parse_transforms(self.config)) or ()
        if makes_keys(transforms):
            self.faults += refused_partitioners(self.config, self.worker)
        return self._tried("value.converter", lambda: parse_record_options(self.config, self.worker, transforms))

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
        if mode in (TIMESTAMP, BOTH) and not self.names("timestamp.column.name"):
            self.fault("timestamp.column.name", f"is needed by mode {mode}")
        if mode in (BULK, INCREMENTING) and self.names("timestamp.column.name"):
            self.fault("timestamp.column.name", f"has no effect in mode {mode}")
        if mode in (BULK, TIMESTAMP) and self.config.get("incrementing.column.name", "").strip():
            self.fault("incrementing.column.name", f"has no effect in mode {mode}")

    def _query(self, mode: str) -> tuple[str | None, str]:
        query = self.config.get("query", "").strip().rstrip(";").strip()
        suffix = self.config.get("query.suffix", "").strip()
        if mode == TIMESTAMP and _LIMIT.search(suffix):
            self.fault("query.suffix", "would separate rows with the same timestamp; use mode timestamp+incrementing")
        if not query and not self.config.get("topic.prefix", "").strip() and "topic.prefix" not in self.config:
            self.fault("topic.prefix", "is missing")
        if query and not self.config.get("topic.prefix", "").strip():
            self.fault("topic.prefix", "is the topic of a query and must not be empty")
        if query and mode in (INCREMENTING, BOTH) and not self.config.get("incrementing.column.name", "").strip():
            self.fault("incrementing.column.name", "is needed with a query")
        return query or None, suffix

    def _tables(self) -> TableFilter:
        pairs = (("table.whitelist", "table.include.list"), ("table.blacklist", "table.exclude.list"))
        for old, new in pairs:
            if self.names(old) and self.names(new):
                self.fault(new, f"means the same as {old}; set only one of them")
        include, exclude = (self.names(old) or self.names(new) for old, new in pairs)
        if include and exclude:
            self.fault("table.blacklist", "cannot be used together with a list of tables to include")
        if self.config.get("query", "").strip() and (include or exclude):
            self.fault("query", "cannot be used together with lists of tables")
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
        known = HONOURED | HARMLESS
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
