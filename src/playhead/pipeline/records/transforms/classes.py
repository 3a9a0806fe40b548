"""Kafka's transform classes: the options that each of them takes, and how they are read. What is not honoured says why."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from playhead.errors import Fault
from playhead.pipeline.records.encode import schema
from playhead.pipeline.records.transforms import (
    Cast,
    Change,
    ExtractField,
    Flatten,
    HoistField,
    Inserted,
    InsertField,
    MaskField,
    RegexRouter,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
    ValueToKey,
)

PACKAGE = "org.apache.kafka.connect.transforms."
_HEADERS = "records here have no headers"
REFUSED = {
    "DropHeaders": _HEADERS,
    "InsertHeader": _HEADERS,
    "HeaderFrom": _HEADERS,
    "Filter": "every row that is read becomes a record, so that none can be missed; select rows with a query",
    "TimestampRouter": "records have no timestamp before they are produced",
}
# Of a cast, and in JsonConverter's words.
TYPES = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
}
_UNITS = ("milliseconds", "seconds", "microseconds", "nanoseconds")
_TARGETS = ("unix", "Timestamp", "Date", "Time", "string")
# What SimpleDateFormat and Spark print alike: numbers of fixed width, quoted words, and signs.
_FORMAT = re.compile(r"(?:yyyy|MM|dd|HH|mm|ss|SSS|'[^']+'|[^A-Za-z'\[\]{}#])+")


def split_list(text: str) -> list[str]:
    """As Kafka reads a list."""
    return re.split(r"\s*,\s*", text.strip()) if text.strip() else []


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one transform without their prefix; what is wrong with them is added to `faults`."""

    prefix: str
    options: Mapping[str, str]
    faults: list[Fault] = field(repr=False)

    def fault(self, option: str, what: str) -> None:
        self.faults.append(Fault(self.prefix + option, None, what))

    def text(self, option: str) -> str:
        value = self.options.get(option)
        if value is None or not value.strip():
            self.fault(option, "is missing")
        return value or ""

    def names(self, option: str, *, needed: bool = False) -> list[str]:
        found = split_list(self.options.get(option, ""))
        if needed and not found:
            self.fault(option, "is missing")
        if len(set(found)) < len(found) or "" in found:
            self.fault(option, "has an empty entry, or the same one twice")
        return found

    def flag(self, option: str, *, default: bool) -> bool:
        text = self.options.get(option, str(default)).strip().lower()
        if text not in ("true", "false"):
            self.fault(option, f"must be true or false, not {text!r}")
        return text == "true"

    def one_of(self, option: str, known: tuple[str, ...], default: str | None = None) -> str:
        value = self.options.get(option, default)
        if value not in known:
            self.fault(option, f"must be one of {', '.join(known)}" + (f", not {value!r}" if value else ""))
        return value or ""

    def pairs(self, option: str) -> list[tuple[str, str]]:
        """`a:b,c:d`; one without a colon has an empty second part."""
        parted = [name.split(":") for name in self.names(option)]
        for parts in parted:
            if len(parts) > 2 or not all(part.strip() for part in parts):
                self.fault(option, f"{':'.join(parts)!r} is no pair")
        return [(parts[0], parts[1] if len(parts) == 2 else "") for parts in parted]


@dataclass(frozen=True, slots=True)
class Class:
    """`is_sided`: there is one for keys and one for values. `gone`: options that Kafka had once."""

    parse: Callable[[Given], Change | None]
    options: tuple[str, ...]
    is_sided: bool = True
    gone: Mapping[str, str] = field(default_factory=dict)


_DEFAULT = "replace.null.with.default"  # no source here has fields with a default, so that it makes no difference


def _value_to_key(given: Given) -> Change:
    given.flag(_DEFAULT, default=True)
    return ValueToKey(tuple(given.names("fields", needed=True)))


def _extract_field(given: Given) -> Change:
    given.flag(_DEFAULT, default=True)
    name = given.text("field")
    version = given.options.get("field.syntax.version", "V1").strip().upper()
    if version not in ("V1", "V2"):
        given.fault("field.syntax.version", "must be V1 or V2")
    if version == "V2" and re.search(r"[.`]", name):
        given.fault("field.syntax.version", "V2 is honoured for plain names only: rows have no nested fields")
    return ExtractField(name)


def _hoist_field(given: Given) -> Change:
    return HoistField(given.text("field"))


def _replace_field(given: Given) -> Change:
    given.flag(_DEFAULT, default=True)
    renames = given.pairs("renames")
    if any(not new for _, new in renames):
        given.fault("renames", "must be pairs of an old and a new name, with a colon between them")
    for part in (0, 1):
        if len({pair[part] for pair in renames}) < len(renames):
            given.fault("renames", "names a field twice")
    return ReplaceField(frozenset(given.names("include")), frozenset(given.names("exclude")), dict(renames))


def _insert_field(given: Given) -> Change:
    given.flag(_DEFAULT, default=True)
    topic, partition, timestamp, static = (
        _inserted(given, option) for option in ("topic.field", "partition.field", "timestamp.field", "static.field")
    )
    if not any((topic, partition, timestamp, static)):
        given.fault("type", "adds no field: name one in topic.field or static.field")
    for option, asked in (("partition.field", partition), ("timestamp.field", timestamp)):
        if asked and not asked.optional:
            given.fault(option, "cannot be a required field: a source record has neither before it is produced")
    if "offset.field" in given.options:
        given.fault("offset.field", "is for sink connectors: a source record has no offset yet")
    value = given.options.get("static.value")
    if static and value is None:
        given.fault("static.value", "is missing")
    return InsertField(topic, partition, timestamp, static, value or "")


def _inserted(given: Given, option: str) -> Inserted | None:
    text = given.options.get(option)
    if text is None:
        return None
    name = text[:-1] if text.endswith(("?", "!")) else text
    if not name:
        given.fault(option, "names no field")
    return Inserted(name, not text.endswith("!"))


def _mask_field(given: Given) -> Change:
    given.flag(_DEFAULT, default=True)
    replacement = given.options.get("replacement")
    if replacement == "":
        given.fault("replacement", "must not be empty")
    return MaskField(frozenset(given.names("fields", needed=True)), replacement)


def _cast(given: Given) -> Change:
    given.flag(_DEFAULT, default=True)
    pairs = given.pairs("spec")
    if not pairs:
        given.fault("spec", "is missing")
    whole = [name for name, kind in pairs if not kind]
    if whole and len(pairs) > 1:
        given.fault("spec", "casts the whole and parts of it at once")
    for name, kind in pairs:
        if (kind or name).strip().lower() not in TYPES:
            given.fault("spec", f"cannot cast to {(kind or name).strip()!r}; the types are {', '.join(TYPES)}")
            return Cast()
    if whole:
        return Cast(whole=TYPES[whole[0].strip().lower()])
    return Cast({name.strip(): TYPES[kind.strip().lower()] for name, kind in pairs})


def _set_schema_metadata(given: Given) -> Change | None:
    given.flag(_DEFAULT, default=True)
    name, version = given.options.get("schema.name"), given.options.get("schema.version")
    if name is None and version is None:
        given.fault("type", "sets nothing: name schema.name or schema.version")
    if name is not None and name.startswith(schema.PACKAGE):
        given.fault("schema.name", "cannot be a name of Connect's own, which the converter would write in another way")
    if version is not None and not re.fullmatch(r"[+-]?[0-9]{1,9}", version.strip()):
        given.fault("schema.version", f"must be a whole number, not {version!r}")
        return None
    return SetSchemaMetadata(name, None if version is None else int(version))


def _flatten(given: Given) -> Change:
    return Flatten(given.options.get("delimiter", "."))


def _timestamp_converter(given: Given) -> Change:
    given.flag(_DEFAULT, default=True)
    target = given.one_of("target.type", _TARGETS)
    pattern = given.options.get("format", "")
    if target == "string" and not _FORMAT.fullmatch(pattern):
        given.fault("format", "may have yyyy, MM, dd, HH, mm, ss, SSS, quoted words and signs; nothing else on Spark")
    unit = given.one_of("unix.precision", _UNITS, "milliseconds")
    return TimestampConverter(given.options.get("field", ""), target, pattern, unit)


def _regex_router(given: Given) -> Change:
    if "replacement" not in given.options:
        given.fault("replacement", "is missing")
    return RegexRouter(given.text("regex"), given.options.get("replacement", ""))


_GONE = "was left out of Kafka 4, whose workers ignore it; use {}"
CLASSES = {
    "ValueToKey": Class(_value_to_key, ("fields", _DEFAULT), is_sided=False),
    "ExtractField": Class(_extract_field, ("field", "field.syntax.version", _DEFAULT)),
    "HoistField": Class(_hoist_field, ("field",)),
    "ReplaceField": Class(
        _replace_field,
        ("include", "exclude", "renames", _DEFAULT),
        gone={"whitelist": _GONE.format("include"), "blacklist": _GONE.format("exclude")},
    ),
    "InsertField": Class(
        _insert_field,
        (
            "topic.field",
            "partition.field",
            "offset.field",
            "timestamp.field",
            "static.field",
            "static.value",
            _DEFAULT,
        ),
    ),
    "MaskField": Class(_mask_field, ("fields", "replacement", _DEFAULT)),
    "Cast": Class(_cast, ("spec", _DEFAULT)),
    "SetSchemaMetadata": Class(_set_schema_metadata, ("schema.name", "schema.version", _DEFAULT)),
    "Flatten": Class(_flatten, ("delimiter",)),
    "TimestampConverter": Class(_timestamp_converter, ("field", "target.type", "format", "unix.precision", _DEFAULT)),
    "RegexRouter": Class(_regex_router, ("regex", "replacement"), is_sided=False),
}
