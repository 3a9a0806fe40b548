"""One record -> the values of its columns, by the book: slow, and with a reason for what does not fit.

The rules are JsonConverter's, made strict: a number must be whole and in range for an integer, finite for a float and, if it is
written as a whole number, exactly one; a field that is missing or null takes its default, or must be optional; a field that the
schema does not know is bad. Of two members with one name the last counts, as for Jackson.
"""

import base64
import binascii
import json
import math
import re
from dataclasses import dataclass

import pyarrow as pa

from playhead.pipeline.records.arrowtypes import decimal_type
from playhead.pipeline.records.decode import decimals
from playhead.pipeline.records.decode.jsontext import DECODER, Number
from playhead.pipeline.records.schema import TIME, Schema

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_WHOLE = re.compile(r"-?[0-9]+")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # strings in JSON, as Jackson writes them; Connect would read a 0
DAY_MILLIS = 86_400_000


class Unfit(Exception):
    """With one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Exact:
    """What Python's Arrow builds its arrays from: ints for dates and times, Decimals, dicts for structs, pairs for maps.

    `has_columns` False: a decimal may have any number of digits, as in Connect; what is given for it is no Decimal then.
    """

    null_to_default: bool = True
    has_columns: bool = True

    def read(self, text: bytes, schema: Schema) -> object:
        return self.value(DECODER.decode(text.decode()), schema, "")

    def value(self, told: object, schema: Schema, path: str) -> object:
        if told is None:
            return self._missing(schema, path)
        if schema.is_struct:
            return self._struct(told, schema, path)
        if schema.items is not None:
            return self._items(told, schema, schema.items, path)
        if schema.is_decimal:
            return _decimal(told, schema, path) if self.has_columns else _unscaled(told, schema, path)
        if schema.type in _BITS:
            return _integer(told, schema, path)
        if schema.type in ("float", "double"):
            return _float(told, schema, path)
        if schema.type == "boolean":
            return _of(told, bool, "true or false", path)
        text = whole_text(told, path)
        return text if schema.type == "string" else _octets(text, path)

    def _missing(self, schema: Schema, path: str) -> object:
        if schema.default is not None and self.null_to_default:
            return self.value(DECODER.decode(schema.default), schema, path)
        if schema.optional:
            return None
        raise Unfit(f"{_named(path)} is missing or null, which its schema does not allow")

    def _struct(self, told: object, schema: Schema, path: str) -> object:
        if not isinstance(told, dict):
            raise Unfit(f"{_named(path)} is {_shown(told)}, not an object")
        known = dict(schema.fields)
        if strange := [name for name in told if name not in known]:
            raise Unfit(f"{_named(_join(path, strange[0]))} is not in the schema")
        return {name: self.value(told.get(name), inner, _join(path, name)) for name, inner in schema.fields}

    def _items(self, told: object, schema: Schema, items: Schema, path: str) -> object:
        if schema.keys is not None:
            return self._map(told, schema.keys, items, path)
        if not isinstance(told, list):
            raise Unfit(f"{_named(path)} is {_shown(told)}, not an array")
        return [self.value(item, items, f"{path}[{at}]") for at, item in enumerate(told)]

    def _map(self, told: object, keys: Schema, items: Schema, path: str) -> object:
        """An object where keys are strings, else an array of pairs."""
        if keys.type == "string":
            if not isinstance(told, dict):
                raise Unfit(f"{_named(path)} is {_shown(told)}, not an object")
            pairs = list(told.items())
        elif isinstance(told, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in told):
            pairs = told
        else:
            raise Unfit(f"{_named(path)} is {_shown(told)}, not an array of pairs")
        if any(key is None for key, _ in pairs):
            raise Unfit(f"{_named(path)} has a null key, which no column of a map can hold")
        return [(self.value(key, keys, path), self.value(item, items, f"{path}[{key}]")) for key, item in pairs]


def check_defaults(schema: Schema, *, has_columns: bool = True) -> None:
    """Unfit if a default is no value of its own schema."""
    if schema.default is not None:
        Exact(has_columns=has_columns).value(None, schema, "")
    for inner in [one for _, one in schema.fields] + [one for one in (schema.keys, schema.items) if one]:
        check_defaults(inner, has_columns=has_columns)


def _of(told: object, kind: type, expected: str, path: str) -> object:
    if type(told) is not kind:
        raise Unfit(f"{_named(path)} is {_shown(told)}, not {expected}")
    return told


def whole_text(told: object, path: str) -> str:
    text = str(_of(told, str, "a string", path))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"{_named(path)} has half a pair of surrogates, which is no text") from error
    return text


def _integer(told: object, schema: Schema, path: str) -> int:
    text = str(_of(told, Number, "a number", path))
    made = decimals.unscaled_of_number(text, 0)
    if made is None:
        raise Unfit(f"{_named(path)} is {_shown(told)}, not a whole number of type {schema.type}")
    bits = _BITS[schema.type]
    if not -(1 << bits - 1) <= made < 1 << bits - 1:
        raise Unfit(f"{_named(path)} is {_shown(told)}, out of the range of {schema.type}")
    if schema.name == TIME and not 0 <= made < DAY_MILLIS:
        raise Unfit(f"{_named(path)} is {made}, which is no millisecond of a day")
    return made


def _float(told: object, schema: Schema, path: str) -> float:
    if type(told) is str and told in _NOT_FINITE:
        return float(told)
    text = str(_of(told, Number, "a number", path))
    # Through Arrow: a float by way of a double would be rounded twice.
    made = float(text) if schema.type == "double" else float(pa.scalar(text).cast(pa.float32()).as_py())
    if not math.isfinite(made):
        raise Unfit(f"{_named(path)} is {_shown(told)}, out of the range of {schema.type}")
    if _WHOLE.fullmatch(text) and decimals.unscaled_of_number(text, 0) != int(made):
        raise Unfit(f"{_named(path)} is {_shown(told)}, which {schema.type} would round")
    return made


def _octets(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise Unfit(f"{_named(path)} is {_shown(text)}, not base64") from error


def _unscaled(told: object, schema: Schema, path: str) -> int:
    scale = schema.parameter("scale", 0)
    if type(told) is Number:
        unscaled = decimals.unscaled_of_number(told, scale)
    else:
        unscaled = decimals.unscaled_of_bytes(_octets(whole_text(told, path), path))
    if unscaled is None:
        raise Unfit(f"{_named(path)} is {_shown(told)}, no decimal of scale {scale}")
    return unscaled


def _decimal(told: object, schema: Schema, path: str) -> object:
    unscaled, kind = _unscaled(told, schema, path), decimal_type(schema)
    if pa.types.is_string(kind):
        return decimals.to_text(unscaled, schema)
    if abs(unscaled) >= 10**kind.precision:
        raise Unfit(f"{_named(path)} has more than the {kind.precision} digits of its schema")
    return decimals.to_decimal(unscaled, schema.parameter("scale", 0))


def _named(path: str) -> str:
    return f"field {path!r}" if path else "the value"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(told: object) -> str:
    if told is None:
        return "null"
    if isinstance(told, dict | list):
        return "an object" if isinstance(told, dict) else "an array"
    text = told if isinstance(told, Number) else json.dumps(told, ensure_ascii=True)
    return text if len(text) <= 40 else text[:37] + "..."
