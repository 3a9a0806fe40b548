"""The options of a JDBC sink connector, under their own names, with its defaults and meanings.

Nothing is silently ignored: every option is honoured, known to make no difference on Spark, or refused by its name; all faults
are told at once. `batch.size` makes no difference: a step is one transaction. `max.retries` and `retry.backoff.ms` make none
either: a step that fails is planned anew. References like `${env:X}` are resolved before.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from zoneinfo import available_timezones

from playhead.errors import ConfigInvalid, Fault, Invalid, near_names
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
    options, faults = _Reading(config, worker).read()
    if options is None or faults:
        raise ConfigInvalid(faults)
    return options


class _Reading:
    """One pass over a config that keeps going after a fault."""

    def __init__(self, config: Mapping[str, str], worker: Mapping[str, str]) -> None:
        self.config = config
        self.worker = worker
        self.faults: list[Fault] = []

    def read(self) -> tuple[JdbcSinkOptions | None, list[Fault]]:
        for name in self.config:
            self._know(name)
        target = self._target()
        mode = self._one_of("insert.mode", INSERT, (INSERT, UPSERT, UPDATE, "multi"))
        for name, default in (("batch.size", "3000"), ("max.retries", "10"), ("retry.backoff.ms", "3000")):
            self._number(name, default)
        options = JdbcSinkOptions(
            insert_mode=INSERT if mode == "multi" else mode,
            pk_mode=self._one_of("pk.mode", NONE, (NONE, KAFKA, RECORD_KEY, RECORD_VALUE)),
            pk_fields=self._names("pk.fields"),
            fields=self._names("fields.whitelist"),
            table_format=self._format(),
            table_types=self._types(),
            normalizes=self._flag("table.name.normalize", "false"),
            deletes=self._flag("delete.enabled", "false"),
            creates=self._flag("auto.create", "false"),
            quotes=self._quotes(),
            zone=self._zone(),
        )
        self._agree(options)
        self._converters(options)
        self._dialect(target)
        return (None if self.faults else options), self.faults

    def _fault(self, name: str, what: str) -> None:
        self.faults.append(Fault(name, None, what))

    def _know(self, name: str) -> None:
        value = self.config[name].strip()
        if name in keys.HONOURED or name in keys.OF_RUN or name in keys.HARMLESS:
            return
        if name in keys.ONLY:
            if value.lower() not in keys.ONLY[name]:
                self._fault(
                    name, f"is not honoured on Spark: {keys.REASONS.get(name, 'it would change what is written')}"
                )
        elif not name.startswith((*keys.OF_RUN_PREFIXES, *keys.HARMLESS_PREFIXES, "connection.")):
            near = near_names(name, keys.KNOWN)
            guess = f"; {near}" if near and near.startswith("did you") else ""
            self._fault(name, f"is not an option of this connector that the Spark engine knows{guess}")

    def _text(self, name: str, default: str = "") -> str:
        return self.config.get(name, "").strip() or default

    def _names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self._text(name).split(",") if part.strip())

    def _one_of(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self._text(name, default).lower()
        if value not in allowed:
            self._fault(name, f"must be one of {', '.join(allowed)}, not {value!r}")
        return value

    def _flag(self, name: str, default: str) -> bool:
        return self._one_of(name, default, ("true", "false")) == "true"

    def _number(self, name: str, default: str) -> None:
        text = self._text(name, default)
        if not re.fullmatch(r"\+?[0-9]{1,9}", text):
            self._fault(name, f"must be a whole number from 0 on, not {text!r}")

    def _target(self) -> Target | None:
        url = self._text("connection.url")
        if not url:
            self._fault("connection.url", "is missing")
            return None
        for what in refused_url(url):
            self._fault("connection.url", what)
        try:
            return find_target(self.config)
        except Invalid as error:
            self._fault("connection.url", f"{error.what}; {error.hint}" if error.hint else error.what)
            return None

    def _dialect(self, target: Target | None) -> None:
        name = self._text("dialect.name")
        if name and target and DIALECTS.get(name) != target.product:
            self._fault("dialect.name", f"is {name}, but connection.url is that of {_PRODUCTS[target.product]}")

    def _format(self) -> str:
        text = self._text("table.name.format", "${topic}")
        if strange := re.findall(r"\$\{[^}]*\}", text.replace("${topic}", "")):
            self._fault("table.name.format", f"has {strange[0]}, and only ${{topic}} is known")
        return text

    def _types(self) -> tuple[str, ...]:
        types = tuple(part.upper().replace("_", " ") for part in self._names("table.types")) or ("TABLE",)
        for one in types:
            if one not in _TYPES:
                self._fault("table.types", f"has {one!r}; known are {', '.join(_TYPES)}")
            elif one == "VIEW":
                self._fault("table.types", "VIEW is not honoured on Spark: rows go into tables only")
        return types

    def _quotes(self) -> bool:
        if "sql.quote.identifiers" in self.config:
            return self._flag("sql.quote.identifiers", "true")
        return self._one_of("quote.sql.identifiers", "always", ("always", "never")) == "always"

    def _zone(self) -> str:
        zone = self._text("db.timezone", "UTC")
        if zone in UTC_NAMES:
            return ""
        if zone not in available_timezones():
            self._fault("db.timezone", f"{zone!r} is not a time zone that this machine knows")
        return zone

    def _agree(self, options: JdbcSinkOptions) -> None:
        if options.deletes and options.pk_mode != RECORD_KEY:
            self._fault("delete.enabled", f"needs pk.mode={RECORD_KEY}: a row is deleted by the key of a record")
        if options.insert_mode in (UPSERT, UPDATE) and options.pk_mode == NONE:
            self._fault(
                "pk.mode", f"must not be none with insert.mode={options.insert_mode}: rows are found by their key"
            )
        if options.pk_mode == KAFKA and len(options.pk_fields) not in (0, 3):
            self._fault("pk.fields", "must be empty or name three columns for topic, partition and offset")
        if len(set(options.pk_fields)) < len(options.pk_fields):
            self._fault("pk.fields", "names a field twice")

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
                self._fault(f"{side}.converter", what)


def _schemaless(converter: Converter, side: str) -> str:
    """Columns come from a schema. Keys may also be plain strings or bytes, which Connect gives one."""
    if converter.name != JSON:
        return "" if side == "key" else "must give structs: a JDBC sink makes columns of their fields"
    if not converter.schemas_enable and not converter.schema_text:
        return f"{side}.converter.schemas.enable=false gives no schema, and a JDBC sink makes columns of the schema's fields"
    return ""
