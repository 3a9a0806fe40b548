"""The options of a connector and its worker that shape the bytes of a record's key and value.

Names, defaults and inheritance are Connect's: a connector that names a converter of its own gets none of the worker's settings
for it. JsonConverter and StringConverter are known; any other converter is refused by name, since its bytes would be a guess.
Without a transform that makes keys they are null, so that the converter of keys never writes and may be any. The zone of
`db.timezone` must be known to this machine, or be one of Java's own forms.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import available_timezones

from playhead.errors import Invalid, near_names
from playhead.pipeline.records.transforms import Chain, makes_keys

JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
NUMERIC_MAPPINGS = ("none", "precision_only", "best_fit", "best_fit_eager_double")
GRANULARITIES = (
    "connect_logical",
    "micros_long",
    "nanos_long",
    "micros_string",
    "nanos_string",
    "micros_iso_datetime_string",
    "nanos_iso_datetime_string",
)
DECIMAL_FORMATS = ("BASE64", "NUMERIC")
_SETTINGS = {
    JSON: ("schemas.enable", "decimal.format", "schemas.cache.size", "replace.null.with.default", "converter.type"),
    STRING: ("converter.encoding", "schemas.enable", "converter.type"),  # no schema is in a string: without effect
}
# Short names that java.util.TimeZone and Spark know and the zone files of a system do not.
_JAVA_ZONES = frozenset(
    [
        "ACT",
        "AET",
        "AGT",
        "ART",
        "AST",
        "BET",
        "BST",
        "CAT",
        "CNT",
        "CST",
        "CTT",
        "EAT",
        "ECT",
        "IET",
        "IST",
        "JST",
        "MIT",
        "NET",
        "NST",
        "PLT",
        "PNT",
        "PRT",
        "PST",
        "SST",
        "VST",
    ]
)
_JAVA_OFFSET = re.compile(r"(UTC|GMT|UT)?[+-]\d{1,2}(:?\d{2})?|Z")


@dataclass(frozen=True, slots=True)
class Converter:
    name: str = JSON
    schemas_enable: bool = True
    decimal_format: str = "BASE64"


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """`key` is None where no transform makes keys."""

    numeric_mapping: str = "none"
    timestamp_granularity: str = "connect_logical"
    db_timezone: str = "UTC"
    value: Converter = Converter()
    key: Converter | None = None
    transforms: Chain = ()


def parse_record_options(config: Mapping[str, str], worker: Mapping[str, str], transforms: Chain = ()) -> RecordOptions:
    """The options of a connector's config, with what it leaves to its worker's properties."""
    value = _converter("value.converter", config, worker)
    return RecordOptions(
        numeric_mapping=_numeric_mapping(config),
        timestamp_granularity=_one_of(config, "timestamp.granularity", GRANULARITIES),
        db_timezone=_zone(config.get("db.timezone", "UTC").strip()),
        value=value,
        key=_converter("key.converter", config, worker) if makes_keys(transforms) else None,
        transforms=transforms,
    )


def _converter(option: str, config: Mapping[str, str], worker: Mapping[str, str]) -> Converter:
    """`option` is `key.converter` or `value.converter`."""
    source = config if config.get(option) else worker
    converter = source.get(option, "").strip()
    if not converter:
        raise Invalid(f"neither the connector nor its worker names a {option}", f"set {option}, for example to {JSON}")
    converter = {"JsonConverter": JSON, "Json": JSON, "StringConverter": STRING, "String": STRING}.get(
        converter, converter
    )
    if converter not in _SETTINGS:
        raise Invalid(f"the Spark engine has no {option} {converter}", f"it knows {JSON} and {STRING}")
    encoding = source.get(f"{option}.converter.encoding", "UTF8").strip().upper()
    if converter == STRING and encoding not in ("UTF8", "UTF-8"):
        raise Invalid(f"the Spark engine writes strings as UTF-8, not as {encoding}", "leave the encoding out")
    known = {f"{option}.{name}" for name in _SETTINGS[converter]}
    for name in config:
        if name.startswith(f"{option}.") and source is config and name not in known:
            raise Invalid(f"the Spark engine does not know the option {name}", near_names(name, sorted(known)))
    if converter != JSON:
        return Converter(converter)
    return Converter(
        converter,
        _boolean(source, f"{option}.schemas.enable", default=True),
        _one_of(source, f"{option}.decimal.format", DECIMAL_FORMATS),
    )


def _numeric_mapping(config: Mapping[str, str]) -> str:
    if "numeric.mapping" not in config and _boolean(config, "numeric.precision.mapping", default=False):
        return "precision_only"
    return _one_of(config, "numeric.mapping", NUMERIC_MAPPINGS)


def _one_of(settings: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """The first of `known` is the default; case does not matter."""
    given = settings.get(name, known[0]).strip()
    for value in known:
        if value.lower() == given.lower():
            return value
    raise Invalid(f"{name} cannot be {given!r}", f"it is one of {', '.join(known)}")


def _boolean(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(settings, name, ("true", "false") if default else ("false", "true")) == "true"


def _zone(name: str) -> str:
    known = available_timezones()
    # Unknown on a machine without zone files; Spark, which has Java's, refuses an unknown one before it reads.
    if not known or name in known or name in _JAVA_ZONES or _JAVA_OFFSET.fullmatch(name):
        return name
    raise Invalid(f"there is no time zone {name!r}", near_names(name, sorted(known)))
