"""Which converter reads the keys and the values of a sink connector, and its settings.

Names, defaults and inheritance are Connect's: a connector that names a converter of its own gets none of the worker's settings
for it. JsonConverter, StringConverter and ByteArrayConverter are known; any other is refused by name, and so is every setting
of theirs that is not known here. Keys are read by some sinks only, so a converter of keys may be missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from playhead.errors import Fault, Invalid, near_names
from playhead.pipeline.records.encode.options import JSON, STRING
from playhead.pipeline.records.schema import Schema

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
SIDES = ("key", "value")
_SHORT = {
    "JsonConverter": JSON,
    "Json": JSON,
    "StringConverter": STRING,
    "String": STRING,
    "ByteArrayConverter": BYTES,
    "ByteArray": BYTES,
}
_WITHOUT_EFFECT = ("schemas.enable",)  # of JsonConverter alone, and beside any other in most files
_SETTINGS = {
    JSON: (
        "schemas.enable",
        "schema.content",
        "replace.null.with.default",
        "schemas.cache.size",
        "decimal.format",
        "converter.type",
    ),
    STRING: ("converter.encoding", "converter.encoding.deserializer", *_WITHOUT_EFFECT, "converter.type"),
    BYTES: (*_WITHOUT_EFFECT, "converter.type"),
}


@dataclass(frozen=True, slots=True)
class Converter:
    """`schema_text`: the schema that JsonConverter was given (`schema.content`); values are then payloads without envelopes.
    As in Connect it counts only with `schemas.enable=true`.
    """

    name: str = JSON
    schemas_enable: bool = True
    null_to_default: bool = True
    schema_text: str = ""

    @property
    def has_envelopes(self) -> bool:
        return self.name == JSON and self.schemas_enable and not self.schema_text


def check_converters(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with the converters of keys and values."""
    return [fault for side in SIDES for fault in _read(config, worker, side)[1]]


def parse_converter(config: Mapping[str, str], worker: Mapping[str, str], side: str = "value") -> Converter:
    """`side` is key or value."""
    converter, faults = _read(config, worker, side)
    if faults:
        raise Invalid(faults[0].what, f"check {faults[0].where}")
    return converter


def _read(config: Mapping[str, str], worker: Mapping[str, str], side: str) -> tuple[Converter, list[Fault]]:
    option = f"{side}.converter"
    source = config if config.get(option) else worker
    given = source.get(option, "").strip()
    name = _SHORT.get(given, given)
    if not name and side == "key":
        return Converter(BYTES), []
    if not name:
        return Converter(), [Fault(option, None, f"neither the connector nor its worker names a {option}")]
    if name not in _SETTINGS:
        known = f"it knows {JSON}, {STRING} and {BYTES}"
        return Converter(), [Fault(option, None, f"the Spark engine has no {option} {name}; {known}")]
    faults = _unknown(config, option, name) if source is config else []
    settings = {key.removeprefix(f"{option}."): value for key, value in source.items() if key.startswith(f"{option}.")}
    return _settings(settings, option, name, faults), faults


def _unknown(config: Mapping[str, str], option: str, name: str) -> list[Fault]:
    known = [f"{option}.{setting}" for setting in _SETTINGS[name]]
    strange = [key for key in config if key.startswith(f"{option}.") and key not in known]
    return [
        Fault(key, None, f"the Spark engine does not know the option {key}; {near_names(key, known)}")
        for key in strange
    ]


def _settings(settings: Mapping[str, str], option: str, name: str, faults: list[Fault]) -> Converter:
    if name == STRING:
        for setting in ("converter.encoding", "converter.encoding.deserializer"):
            encoding = settings.get(setting, "UTF8").strip().upper()
            if encoding not in ("UTF8", "UTF-8"):
                what = f"the Spark engine reads strings as UTF-8, not as {encoding}"
                faults.append(Fault(f"{option}.{setting}", None, what))
    if name != JSON:
        return Converter(name, schemas_enable=False)
    is_enabled = _boolean(settings, "schemas.enable", option, faults)
    content = settings.get("schema.content", "").strip()
    if content:
        try:
            content = Schema.from_json(content).text
        except Invalid as error:
            said = f"{error.what}; {error.hint}" if error.hint else error.what
            faults.append(Fault(f"{option}.schema.content", None, said))
    return Converter(
        name,
        is_enabled,
        _boolean(settings, "replace.null.with.default", option, faults),
        content if is_enabled else "",
    )


def _boolean(settings: Mapping[str, str], setting: str, option: str, faults: list[Fault]) -> bool:
    given = settings.get(setting, "true").strip().lower()
    if given not in ("true", "false"):
        faults.append(Fault(f"{option}.{setting}", None, f"cannot be {given!r}: it is true or false"))
    return given != "false"
