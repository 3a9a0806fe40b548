"""The options of a JDBC sink connector, under their own names, with its defaults and meanings.

Nothing is silently ignored: every option is honoured, known to make no difference on Spark, or refused by its name; all faults
are told at once. `batch.size` makes no difference: each partition of a step is one transaction. `max.retries` and
`retry.backoff.ms` make none either: a step that fails is planned anew. References like `${env:X}` are resolved before.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from zoneinfo import available_timezones

from playhead.errors import Fault, Invalid
from playhead.pipeline.option_reading import OptionReading
from playhead.pipeline.records.options import JSON
from playhead.pipeline.sinks.jdbc import keys
from playhead.pipeline.sinks.jdbc.address import DIALECTS, POSTGRESQL, SQLITE, Target, find_target
from playhead.pipeline.sinks.values.options import Converter, check_converters, parse_converter
from playhead.pipeline.sources.jdbc.url import refused_url

INSERT, UPSERT, UPDATE = "insert", "upsert", "update"
NONE, KAFKA, RECORD_KEY, RECORD_VALUE = "none", "kafka", "record_key", "record_value"
COORDINATES = ("__connect_topic", "__connect_partition", "__connect_offset")
UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "Zulu", "Universal", "UCT")
_TYPES = ("TABLE", "PARTITIONED TABLE", "VIEW")
_PRODUCTS = {POSTGRESQL: "PostgreSQL", SQLITE: "SQLite"}


@dataclass(frozen=True, slots=True)
class JdbcSinkOptions:
    """`insert_mode` of Aiven's `multi` is insert. `zone` is empty for UTC."""

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

    @property
    def is_direct(self) -> bool:
        """Rows are only added, so that they need not be looked at together first."""
        return self.insert_mode == INSERT and not self.deletes

    def shape(self, *converters: Converter) -> str:
        """A digest of all that shapes rows: two runs with the same one write the same."""
        shaped = {"version": 1, **asdict(self), "converters": [asdict(one) for one in converters]}
        return hashlib.sha256(json.dumps(shaped, sort_keys=True).encode()).hexdigest()


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with a connector's config, as far as the config alone can tell."""
    return _Reading(config, worker).read()[1]


def parse_options(config: Mapping[str, str], worker: Mapping[str, str]) -> JdbcSinkOptions:
    return _Reading(config, worker).parsed()


class _Reading(OptionReading[JdbcSinkOptions]):
    def read(self) -> tuple[JdbcSinkOptions | None, list[Fault]]:
        self.check_names(keys.KNOWN)
        target = self._target()
        mode = self.one_of("insert.mode", INSERT, (INSERT, UPSERT, UPDATE, "multi"))
        for name, default in (("batch.size", 3000), ("max.retries", 10), ("retry.backoff.ms", 3000)):
            self.number(name, default, high=999_999_999)
        options = JdbcSinkOptions(
            insert_mode=INSERT if mode == "multi" else mode,
            pk_mode=self.one_of("pk.mode", NONE, (NONE, KAFKA, RECORD_KEY, RECORD_VALUE)),
            pk_fields=self.names("pk.fields"),
            fields=self.names("fields.whitelist"),
            table_format=self._format(),
            table_types=self._types(),
            normalizes=self.flag("table.name.normalize", "false"),
            deletes=self.flag("delete.enabled", "false"),
            creates=self.flag("auto.create", "false"),
            quotes=self._quotes(),
            zone=self._zone(),
        )
        self._agree(options)
        self._converters(options)
        self._dialect(target)
        return (None if self.faults else options), self.faults

    def _target(self) -> Target | None:
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

    def _dialect(self, target: Target | None) -> None:
        name = self.text("dialect.name")
        if name and target and DIALECTS.get(name) != target.product:
            self.fault("dialect.name", f"is {name}, but connection.url is that of {_PRODUCTS[target.product]}")

    def _format(self) -> str:
        text = self.config.get("table.name.format", "${topic}").strip()
        if not text:
            self.fault("table.name.format", "must not be empty: it names the table")
        if strange := re.findall(r"\$\{[^}]*\}", text.replace("${topic}", "")):
            self.fault("table.name.format", f"has {strange[0]}, and only ${{topic}} is known")
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
        zone = self.text("db.timezone", "UTC")
        if zone in UTC_NAMES:
            return ""
        if zone not in available_timezones():
            self.fault("db.timezone", f"{zone!r} is not a time zone that this machine knows")
        return zone

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
        faults = check_converters(self.config, self.worker)
        self.faults += faults
        if faults:
            return
        sides = ("value", "key") if options.pk_mode == RECORD_KEY else ("value",)
        for side in sides:
            converter = parse_converter(self.config, self.worker, side)
            what = _schemaless(converter, side)
            if what:
                self.fault(f"{side}.converter", what)


def _schemaless(converter: Converter, side: str) -> str:
    """Columns come from a schema. Keys may also be plain strings or bytes, which Connect gives one."""
    if converter.name != JSON:
        return "" if side == "key" else "must give structs: a JDBC sink makes columns of their fields"
    if not converter.schemas_enable and not converter.schema_text:
        return f"{side}.converter.schemas.enable=false gives no schema, and a JDBC sink makes columns of the schema's fields"
    return ""
