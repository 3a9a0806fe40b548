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
from functools import lru_cache
from typing import Any

import pyarrow as pa

from playhead.pipeline.records import decimals
from playhead.pipeline.records.arrowtypes import arrow_type, decimal_type
from playhead.pipeline.records.batch import Unfit
from playhead.pipeline.records.decode.jsontext import decode
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.pipeline.records.javamaps import hash_map, map_pairs
from playhead.pipeline.records.javanumbers import BITS, LONG
from playhead.pipeline.records.schema import TIME, Number, Schema

_WHOLE = re.compile(r"-?[0-9]+")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # strings in JSON, as Jackson writes them; Connect would read a 0
_LONGEST = 20  # digits of a long, with its sign


@dataclass(frozen=True, slots=True)
class Exact:
    """What Python's Arrow builds its arrays from: ints for dates and times, Decimals, dicts for structs, pairs for maps.

    `has_columns` False: a decimal may have any number of digits, as in Connect; what is given for it is no Decimal then.
    """

    null_to_default: bool = True
    has_columns: bool = True

    def read(self, text: bytes, schema: Schema) -> object:
        return self.value(decode(text), schema, "")

    def value(self, decoded: object, schema: Schema, path: str) -> object:
        if decoded is None:
            return self._missing(schema, path)
        if schema.is_struct:
            return self._struct(decoded, schema, path)
        if schema.items is not None:
            return self._items(decoded, schema, schema.items, path)
        if schema.is_decimal:
            return _decimal(decoded, schema, path) if self.has_columns else _unscaled(decoded, schema, path)
        if schema.type in BITS:
            return _integer(decoded, schema, path)
        if schema.type in ("float", "double"):
            return _float(decoded, schema, path)
        if schema.type == "boolean":
            return _of(decoded, bool, "true or false", path)
        text = whole_text(decoded, path)
        return text if schema.type == "string" else _octets(text, path)

    def _missing(self, schema: Schema, path: str) -> object:
        if schema.default is not None and self.null_to_default:
            return self.value(decode(schema.default.encode()), schema, path)
        if schema.optional:
            return None
        raise Unfit(f"{_named(path)} is missing or null, which its schema does not allow")

    def _struct(self, decoded: object, schema: Schema, path: str) -> object:
        if not isinstance(decoded, dict):
            raise Unfit(f"{_named(path)} is {_shown(decoded)}, not an object")
        known = dict(schema.fields)
        if strange := [name for name in decoded if name not in known]:
            raise Unfit(f"{_named(_join(path, strange[0]))} is not in the schema")
        return {name: self.value(decoded.get(name), inner, _join(path, name)) for name, inner in schema.fields}

    def _items(self, decoded: object, schema: Schema, items: Schema, path: str) -> object:
        if schema.keys is not None:
            return self._map(decoded, schema.keys, items, path)
        if not isinstance(decoded, list):
            raise Unfit(f"{_named(path)} is {_shown(decoded)}, not an array")
        return [self.value(item, items, f"{path}[{at}]") for at, item in enumerate(decoded)]

    def _map(self, decoded: object, keys: Schema, items: Schema, path: str) -> object:
        """An object where keys are strings, else an array of pairs."""
        if keys.type == "string":
            if not isinstance(decoded, dict):
                raise Unfit(f"{_named(path)} is {_shown(decoded)}, not an object")
            pairs = list(decoded.items())
        elif isinstance(decoded, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in decoded):
            pairs = decoded
        else:
            raise Unfit(f"{_named(path)} is {_shown(decoded)}, not an array of pairs")
        if any(key is None for key, _ in pairs):
            raise Unfit(f"{_named(path)} has a null key, which no column of a map can hold")
        made = [(self.value(key, keys, path), self.value(item, items, f"{path}[{key}]")) for key, item in pairs]
        return map_pairs(made, keys)


def read_plain(text: bytes) -> object:
    """As JsonConverter has it without a schema: whole numbers are longs, others doubles, objects HashMaps. Raises Unfit for what
    it would wrap or round to infinity."""
    return _plain(decode_whole(text))


def decode_whole(text: bytes) -> object:
    """Unfit if a text in it, or the name of a member, is none: it has half a pair of surrogates."""
    decoded = decode(text)
    if b"\\u" in text:  # else there are no halves
        _check_texts(decoded)
    return decoded


def _plain(decoded: object) -> object:
    kind = type(decoded)
    if kind is Number:
        text: Any = decoded
        return _long(text) if text.isdigit() or text[1:].isdigit() else _double(text)
    if kind is dict:
        members: Any = decoded
        return hash_map({name: _plain(item) for name, item in members.items()})
    if kind is list:
        items: Any = decoded
        return [_plain(item) for item in items]
    return decoded


def _check_texts(decoded: object) -> None:
    if type(decoded) is str:
        whole_text(decoded, "")
    elif isinstance(decoded, dict | list):
        for inner in [*decoded, *decoded.values()] if isinstance(decoded, dict) else decoded:
            _check_texts(inner)


def _long(given: str) -> int:
    if len(given) > _LONGEST or (whole := int(given)) not in LONG:
        raise Unfit(f"{given[:40]} is beyond the 64 bits of a number without a schema")
    return whole


def _double(given: str) -> float:
    made = float(given)
    if not math.isfinite(made):
        raise Unfit(f"{given[:40]} is beyond the range of a double")
    return made + 0.0  # Connect reads floats as BigDecimal, which has no -0.0


def check_defaults(schema: Schema, *, has_columns: bool = True) -> None:
    """Unfit if a default is no value of its own schema."""
    if schema.default is not None:
        Exact(has_columns=has_columns).value(None, schema, "")
    for inner in [one for _, one in schema.fields] + [one for one in (schema.keys, schema.items) if one]:
        check_defaults(inner, has_columns=has_columns)


@lru_cache(maxsize=256)
def default_array(schema: Schema) -> pa.Array:
    """The default of a schema, as an array of one."""
    return pa.array([Exact().value(None, schema, "")], arrow_type(schema))


def _of(decoded: object, kind: type, expected: str, path: str) -> object:
    if type(decoded) is not kind:
        raise Unfit(f"{_named(path)} is {_shown(decoded)}, not {expected}")
    return decoded


def whole_text(decoded: object, path: str) -> str:
    text = str(_of(decoded, str, "a string", path))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"{_named(path)} has half a pair of surrogates, which is no text") from error
    return text


def _integer(decoded: object, schema: Schema, path: str) -> int:
    text = str(_of(decoded, Number, "a number", path))
    made = decimals.unscaled_of_number(text, 0)
    if made is None:
        raise Unfit(f"{_named(path)} is {_shown(decoded)}, not a whole number of type {schema.type}")
    bits = BITS[schema.type]
    if not -(1 << bits - 1) <= made < 1 << bits - 1:
        raise Unfit(f"{_named(path)} is {_shown(decoded)}, out of the range of {schema.type}")
    if schema.name == TIME and not 0 <= made < DAY_MILLIS:
        raise Unfit(f"{_named(path)} is {made}, which is no millisecond of a day")
    return made


def _float(decoded: object, schema: Schema, path: str) -> float:
    if type(decoded) is str and decoded in _NOT_FINITE:
        return float(decoded)
    text = str(_of(decoded, Number, "a number", path))
    # Through Arrow: a float by way of a double would be rounded twice.
    made = float(text) if schema.type == "double" else float(pa.scalar(text).cast(pa.float32()).as_py())
    if not math.isfinite(made):
        raise Unfit(f"{_named(path)} is {_shown(decoded)}, out of the range of {schema.type}")
    if _WHOLE.fullmatch(text) and decimals.unscaled_of_number(text, 0) != int(made):
        raise Unfit(f"{_named(path)} is {_shown(decoded)}, which {schema.type} would round")
    return made + 0.0  # as in `_double`


def _octets(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise Unfit(f"{_named(path)} is {_shown(text)}, not base64") from error


def _unscaled(decoded: object, schema: Schema, path: str) -> int:
    scale = schema.parameter("scale", 0)
    if type(decoded) is Number:
        unscaled = decimals.unscaled_of_number(decoded, scale)
    else:
        unscaled = decimals.unscaled_of_bytes(_octets(whole_text(decoded, path), path))
    if unscaled is None:
        raise Unfit(f"{_named(path)} is {_shown(decoded)}, no decimal of scale {scale}")
    return unscaled


def _decimal(decoded: object, schema: Schema, path: str) -> object:
    unscaled, kind = _unscaled(decoded, schema, path), decimal_type(schema)
    if pa.types.is_string(kind):
        return decimals.to_text(unscaled, schema)
    if abs(unscaled) >= 10**kind.precision:
        raise Unfit(f"{_named(path)} has more than the {kind.precision} digits of its schema")
    return decimals.to_decimal(unscaled, schema.parameter("scale", 0))


def _named(path: str) -> str:
    return f"field {path!r}" if path else "the value"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(decoded: object) -> str:
    if decoded is None:
        return "null"
    if isinstance(decoded, dict | list):
        return "an object" if isinstance(decoded, dict) else "an array"
    text = decoded if isinstance(decoded, Number) else json.dumps(decoded, ensure_ascii=True)
    return text if len(text) <= 40 else text[:37] + "..."
