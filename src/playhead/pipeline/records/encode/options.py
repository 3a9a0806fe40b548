"""The options of a connector and its worker that shape the bytes of a record's key and value.

Names, defaults and inheritance are Connect's: a connector that names a converter of its own gets none of the worker's settings
for it. JsonConverter and StringConverter are known; any other converter is refused by name, since its bytes would be a guess.
Without a transform that makes keys they are null, so that the converter of keys never writes and may be any. The zone of
`db.timezone` may have any name that Java knows: see `zones`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from playhead.errors import ConfigInvalid, Fault, Invalid, near_names
from playhead.pipeline.records.encode.zones import UTC, parse_zone
from playhead.pipeline.records.transforms import Stages, makes_keys

T = TypeVar("T")

JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
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


@dataclass(frozen=True, slots=True)
class Converter:
    name: str = JSON
    schemas_enable: bool = True
    decimal_format: str = "BASE64"
    null_to_default: bool = True


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """`key` is None where no transform makes keys."""

    numeric_mapping: str = "none"
    timestamp_granularity: str = "connect_logical"
    db_timezone: str = "UTC"
    value: Converter = Converter()
    key: Converter | None = None
    transforms: Stages = ()


def parse_record_options(
    config: Mapping[str, str], worker: Mapping[str, str], transforms: Stages = ()
) -> RecordOptions:
    """The options of a connector's config, with what it leaves to its worker's properties. Raises ConfigInvalid with a fault for
    every option that is wrong."""
    reading = _Reading()
    options = RecordOptions(
        numeric_mapping=_numeric_mapping(config, reading),
        timestamp_granularity=reading.of(
            "timestamp.granularity",
            lambda: _one_of(config, "timestamp.granularity", GRANULARITIES, one_case=True),
            GRANULARITIES[0],
        ),
        db_timezone=reading.of("db.timezone", lambda: parse_zone(config.get("db.timezone", UTC).strip()), UTC),
        value=reading.of("value.converter", lambda: _converter("value.converter", config, worker), Converter()),
        key=reading.of("key.converter", lambda: _converter("key.converter", config, worker), None)
        if makes_keys(transforms)
        else None,
        transforms=transforms,
    )
    if reading.faults:
        raise ConfigInvalid(reading.faults)
    return options


class _Reading:
    """Continues after a fault, so that all are reported."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def of(self, option: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Invalid as error:
            self.faults.append(Fault(option, None, f"{error.what}; {error.hint}" if error.hint else error.what))
            return otherwise


def parse_converter(option: str, config: Mapping[str, str], worker: Mapping[str, str]) -> Converter:
    """That of keys or of values, for a source whose records have keys by themselves. Raises Invalid."""
    return _converter(option, config, worker)


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
        _boolean(source, f"{option}.replace.null.with.default", default=True),
    )


def _numeric_mapping(config: Mapping[str, str], reading: _Reading) -> str:
    old, new = "numeric.precision.mapping", "numeric.mapping"
    if reading.of(old, lambda: _boolean(config, old, default=False), False) and new not in config:
        return "precision_only"
    return reading.of(new, lambda: _one_of(config, new, NUMERIC_MAPPINGS, one_case=True), NUMERIC_MAPPINGS[0])


def _one_of(settings: Mapping[str, str], name: str, known: tuple[str, ...], *, one_case: bool = False) -> str:
    """The first of `known` is the default; case does not matter. `one_case`: all letters in upper or all in lower case, as the
    JDBC connector requires it."""
    given = settings.get(name, known[0]).strip()
    for value in known:
        if given in (value.lower(), value.upper()) or (not one_case and value.lower() == given.lower()):
            return value
    raise Invalid(f"{name} cannot be {given!r}", f"it is one of {', '.join(known)}")


def _boolean(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(settings, name, ("true", "false") if default else ("false", "true")) == "true"
