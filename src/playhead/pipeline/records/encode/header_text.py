"""The bytes of a header, as Connect's SimpleHeaderConverter writes them: the text of `Values.convertToString` in UTF-8.

A string is written as it is, inside of a list, map or struct in quotes. Bytes are base64. A date is written by its value,
whatever its schema: before the second day of 1970 as a time, at midnight as a date, else as a timestamp.
"""

import base64
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from playhead.connect.javajson import java_double
from playhead.errors import Invalid
from playhead.pipeline.records.batch import Header, Moment
from playhead.pipeline.records.decimals import decimal_texts
from playhead.pipeline.records.floattext import float_texts
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.schema import DATE, TIME, TIMESTAMP, Schema

_TIME, _DATE, _MOMENT = (
    DateFormat.of(form) for form in ("HH:mm:ss.SSS'Z'", "yyyy-MM-dd", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
)


def header_octets(header: Header) -> bytes | None:
    """None: a null is written as no bytes. Raises Invalid for what has no text."""
    return None if header.value is None else _text(header.value, header.schema, inside=False).encode()


def _text(value: Any, schema: Schema | None, *, inside: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, Moment):
        return _moment_text(value.millis)
    if schema is not None and schema.name in (DATE, TIME, TIMESTAMP):
        return _moment_text(int(value) * (DAY_MILLIS if schema.name == DATE else 1))
    if schema is not None and schema.is_decimal:
        return str(decimal_texts(pa.array([f"{Decimal(value):f}"]), schema.parameter("scale", 0))[0].as_py())
    if isinstance(value, str):
        return _quoted(value) if inside else value
    if isinstance(value, bytes):
        text = base64.b64encode(value).decode()
        return f'"{text}"' if inside else text
    if isinstance(value, (list, tuple, dict)):
        return _many(value, schema)
    return _number(value, schema)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _many(value: Any, schema: Schema | None) -> str:
    if schema is not None and schema.is_struct:
        fields = dict(schema.fields)
        members = (f"{_quoted(name)}:{_text(one, fields[name], inside=True)}" for name, one in value.items())
        return "{" + ",".join(members) + "}"
    items = None if schema is None else schema.items
    if isinstance(value, dict) or (schema is not None and schema.keys is not None):
        keys = None if schema is None else schema.keys
        pairs = value.items() if isinstance(value, dict) else value
        members = (f"{_text(key, keys, inside=True)}:{_text(one, items, inside=True)}" for key, one in pairs)
        return "{" + ",".join(members) + "}"
    return "[" + ",".join(_text(one, items, inside=True) for one in value) + "]"


def _number(value: Any, schema: Schema | None) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, np.float32) or (schema is not None and schema.type == "float"):
        return str(float_texts(pa.array([value], pa.float32()))[0].as_py())
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    raise Invalid(f"a header has a value of type {type(value).__name__}, which SimpleHeaderConverter cannot write")


def _moment_text(millis: int) -> str:
    form = _TIME if millis < DAY_MILLIS else _DATE if millis % DAY_MILLIS == 0 else _MOMENT
    return str(form.format(np.array([millis], np.int64))[0].as_py())
