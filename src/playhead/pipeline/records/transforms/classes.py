"""Kafka's transform classes: the options that each of them takes, and how they are read. What is not honoured says why."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from playhead.connect import javaregex
from playhead.errors import Fault, Invalid
from playhead.pipeline.records import javaformat, javanumbers, schema
from playhead.pipeline.records.javanumbers import BLANKS
from playhead.pipeline.records.transforms import (
    Cast,
    Change,
    DropHeaders,
    ExtractField,
    Filter,
    Flatten,
    HeaderFrom,
    HoistField,
    Inserted,
    InsertField,
    InsertHeader,
    MaskField,
    RegexRouter,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
    TimestampRouter,
    ValueToKey,
)

PACKAGE = "org.apache.kafka.connect.transforms."
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
# A name in backticks ends where a dot or nothing follows its backtick, unless a backslash is before it.
_QUOTED = re.compile(r"`(?P<name>(?:[^`\\]|\\(?!`(?:\.|\Z))|\\`\.|`(?!\.|\Z))*)`(?:\.|\Z)", re.DOTALL)
_UNITS = ("milliseconds", "seconds", "microseconds", "nanoseconds")
_TARGETS = ("unix", "Timestamp", "Date", "Time", "string")


_COMMA = re.compile(r"\s*,\s*", re.ASCII)


def split_list(text: str) -> list[str]:
    """As Kafka reads a list: the blanks around each entry are no part of it."""
    trimmed = text.strip(BLANKS)
    return _COMMA.split(trimmed) if trimmed else []


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one transform without their prefix, and without blanks around them, as Kafka reads every type of option.
    What is wrong with them is added to `faults`."""

    prefix: str
    options: Mapping[str, str]
    faults: list[Fault] = field(repr=False)

    def fault(self, option: str, what: str) -> None:
        self.faults.append(Fault(self.prefix + option, None, what))

    def text(self, option: str) -> str:
        value = self.options.get(option)
        if not value:
            self.fault(option, "is missing")
        return value or ""

    def names(self, option: str, *, needed: bool = False) -> list[str]:
        """An entry that is there twice counts once, as for Kafka."""
        found = split_list(self.options.get(option, ""))
        if needed and not found:
            self.fault(option, "is missing")
        if "" in found:
            self.fault(option, "has an empty entry")
        return list(dict.fromkeys(found))

    def flag(self, option: str, *, default: bool) -> bool:
        text = self.options.get(option, str(default)).lower()
        if text not in ("true", "false"):
            self.fault(option, f"must be true or false, not {text!r}")
        return text == "true"

    def nulls_take_default(self) -> bool:
        return self.flag(_DEFAULT, default=True)

    def pattern(self, option: str) -> str:
        """A regular expression of Java."""
        text = self.text(option)
        if text:
            self.check(option, lambda: javaregex.compile_pattern(text))
        return text

    def date_format(self, option: str, default: str) -> str:
        text = self.options.get(option, default)
        if text:
            self.check(option, lambda: javaformat.DateFormat.of(text))
        return text

    def check(self, option: str, compile_it: Callable[[], object]) -> None:
        try:
            compile_it()
        except Invalid as error:
            self.fault(option, error.what)

    def one_of(self, option: str, known: tuple[str, ...], default: str | None = None) -> str:
        value = self.options.get(option, default)
        if value not in known:
            self.fault(option, f"must be one of {', '.join(known)}" + (f", not {value!r}" if value else ""))
        return value or ""

    def pairs(self, option: str) -> list[tuple[str, str]]:
        """`a:b,c:d`; one without a colon has an empty second part."""
        parted = [name.split(":") for name in self.names(option)]
        for parts in parted:
            if len(parts) > 2 or not all(part.strip(BLANKS) for part in parts):
                self.fault(option, f"{':'.join(parts)!r} is no pair")
        return [(parts[0], parts[1] if len(parts) == 2 else "") for parts in parted]


@dataclass(frozen=True, slots=True)
class Class:
    """`is_sided`: there is one for keys and one for values. `gone`: options that Kafka had once."""

    parse: Callable[[Given], Change | None]
    options: tuple[str, ...]
    is_sided: bool = True
    gone: Mapping[str, str] = field(default_factory=dict)


_DEFAULT = "replace.null.with.default"


def _value_to_key(given: Given) -> Change:
    return ValueToKey(tuple(given.names("fields", needed=True)), given.nulls_take_default())


def _extract_field(given: Given) -> Change | None:
    name, nulls_take_default = given.text("field"), given.nulls_take_default()
    version = given.options.get("field.syntax.version", "V1").upper()
    if version not in ("V1", "V2"):
        given.fault("field.syntax.version", "must be V1 or V2")
    if version != "V2" or not re.search(r"[.`]", name):
        return ExtractField(name, nulls_take_default=nulls_take_default)
    steps = _steps_of(name)
    if steps is None:
        given.fault("field", "has a backtick without its pair; a backslash before a backtick escapes it")
        return None
    return ExtractField(name, steps, nulls_take_default)


def _steps_of(path: str) -> tuple[str, ...] | None:
    """A path to a nested field, by `field.syntax.version` V2: `a.b`, or `` `a.b`.c ``. None: a backtick has no pair."""
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] != "`":
            name, dot, _ = path[at:].partition(".")
            steps.append(name)
            at += len(name) + len(dot)
            continue
        found = _QUOTED.match(path, at)
        if found is None:
            return None
        steps.append(found["name"].replace("\\`.", "`."))
        at = found.end()
    return (*steps, "") if path.endswith(".") else tuple(steps)


def _hoist_field(given: Given) -> Change:
    return HoistField(given.text("field"))


def _replace_field(given: Given) -> Change:
    renames = given.pairs("renames")
    if any(not new for _, new in renames):
        given.fault("renames", "must be pairs of an old and a new name, with a colon between them")
    for part in (0, 1):
        if len({pair[part] for pair in renames}) < len(renames):
            given.fault("renames", "names a field twice")
    include, exclude = frozenset(given.names("include")), frozenset(given.names("exclude"))
    return ReplaceField(include, exclude, dict(renames), given.nulls_take_default())


def _insert_field(given: Given) -> Change:
    topic, partition, timestamp, static, offset = (
        _inserted(given, f"{option}.field") for option in ("topic", "partition", "timestamp", "static", "offset")
    )
    if not any((topic, partition, timestamp, static, offset)):
        given.fault("type", "adds no field: name one in topic.field or static.field")
    value = given.options.get("static.value")
    if static and value is None:
        given.fault("static.value", "is missing")
    return InsertField(topic, partition, timestamp, static, value or "", offset, given.nulls_take_default())


def _inserted(given: Given, option: str) -> Inserted | None:
    text = given.options.get(option)
    if text is None:
        return None
    name = text[:-1] if text.endswith(("?", "!")) else text
    if not name:
        given.fault(option, "names no field")
    return Inserted(name, not text.endswith("!"))


def _mask_field(given: Given) -> Change:
    replacement = given.options.get("replacement")
    if replacement == "":
        given.fault("replacement", "must not be empty")
    return MaskField(tuple(given.names("fields", needed=True)), replacement, given.nulls_take_default())


def _cast(given: Given) -> Change:
    nulls_take_default, pairs = given.nulls_take_default(), given.pairs("spec")
    if not pairs:
        given.fault("spec", "is missing")
    whole = [name for name, kind in pairs if not kind]
    if whole and len(split_list(given.options["spec"])) > 1:
        given.fault("spec", "casts the whole and parts of it at once")
    for name, kind in pairs:
        if _type(kind or name) is None:
            given.fault("spec", f"cannot cast to {(kind or name).strip()!r}; the types are {', '.join(TYPES)}")
            return Cast()
    if whole:
        return Cast(whole=_type(whole[0]))
    return Cast({name.strip(BLANKS): str(_type(kind)) for name, kind in pairs}, None, nulls_take_default)


def _type(text: str) -> str | None:
    return TYPES.get(text.strip(BLANKS).lower())


def _set_schema_metadata(given: Given) -> Change | None:
    nulls_take_default = given.nulls_take_default()
    name, version = given.options.get("schema.name"), given.options.get("schema.version")
    if name is None and version is None:
        given.fault("type", "sets nothing: name schema.name or schema.version")
    if name is not None and name.startswith(schema.PACKAGE):
        given.fault("schema.name", "cannot be a name of Connect's own, which the converter would write in another way")
    number = None if version is None else javanumbers.parse_whole(version, 32)
    if version is not None and number is None:
        given.fault("schema.version", f"must be a whole number of 32 bits, not {version!r}")
        return None
    if name == "":
        given.fault("schema.name", "must not be empty")
    return SetSchemaMetadata(name, number, nulls_take_default)


def _flatten(given: Given) -> Change:
    return Flatten(given.options.get("delimiter", "."))


def _timestamp_converter(given: Given) -> Change:
    target = given.one_of("target.type", _TARGETS)
    pattern = given.date_format("format", "")
    if target == "string" and not pattern:
        given.fault("format", "is missing")
    unit = given.one_of("unix.precision", _UNITS, "milliseconds")
    return TimestampConverter(given.options.get("field", ""), target, pattern, unit, given.nulls_take_default())


def _regex_router(given: Given) -> Change:
    if "replacement" not in given.options:
        given.fault("replacement", "is missing")
    return RegexRouter(given.pattern("regex"), given.options.get("replacement", ""))


def _timestamp_router(given: Given) -> Change:
    default = TimestampRouter()
    timestamps = given.date_format("timestamp.format", default.timestamp_format)
    return TimestampRouter(given.options.get("topic.format", default.topic_format), timestamps)


def _filter(given: Given) -> Change:  # noqa: ARG001 (it has no options)
    return Filter()


def _insert_header(given: Given) -> Change:
    for option in ("header", "value.literal"):
        if option not in given.options:
            given.fault(option, "is missing")
    return InsertHeader(given.options.get("header", ""), given.options.get("value.literal", ""))


def _drop_headers(given: Given) -> Change:
    return DropHeaders(frozenset(given.names("headers", needed=True)))


def _header_from(given: Given) -> Change:
    fields, headers = (tuple(split_list(given.text(option))) for option in ("fields", "headers"))
    if len(fields) != len(headers):
        given.fault("headers", "must be as many as fields")
    moves = given.one_of("operation", ("move", "copy")) == "move"
    return HeaderFrom(fields, headers, moves, given.nulls_take_default())


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
    "TimestampRouter": Class(_timestamp_router, ("topic.format", "timestamp.format"), is_sided=False),
    "Filter": Class(_filter, (), is_sided=False),
    "InsertHeader": Class(_insert_header, ("header", "value.literal"), is_sided=False),
    "DropHeaders": Class(_drop_headers, ("headers",), is_sided=False),
    "HeaderFrom": Class(_header_from, ("fields", "headers", "operation", _DEFAULT)),
}
