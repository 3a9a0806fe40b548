"""A text read as Connect's `Values.parseString` reads it: the value of a header for which no schema is given.

`true` is a boolean, `12` an int8, `1.5` a float, `2024-01-31` a Date, `[1, 2]` an array, `{"a": 1}` a map; all else is a string.
An array or map without one type of items has a schema without `items`. Raises Unfit for brackets in more than DEEPEST levels.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from playhead.pipeline.records.batch import Moment, Unfit
from playhead.pipeline.records.decode.jsontext import DEEPEST
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.javanumbers import (
    BITS,
    BLANKS,
    LONG,
    nearest_double,
    nearest_float,
    parse_decimal,
    wrapped,
)
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

_STRING, _BOOLEAN = Schema("string"), Schema("boolean")
_TIMES = {
    13: (Schema("int32", False, TIME, 1), DateFormat.of("HH:mm:ss.SSS'Z'")),
    24: (Schema("int64", False, TIMESTAMP, 1), DateFormat.of("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")),
    10: (Schema("int32", False, DATE, 1), DateFormat.of("yyyy-MM-dd")),
}
_WIDTHS = ("int8", "int16", "int32", "int64", "float", "double")  # of two of them the wider one holds both
_CLASSES = {"int8": np.int8, "int16": np.int16, "int32": np.int32}  # Java's classes of values without a schema
_MOST_DIGITS, _MOST_EXPONENT = 20, 10_000
Parsed = tuple[Schema | None, object]


class _Unlike(Exception):
    """It is no array or map after all."""


def parse_literal(text: str) -> Parsed:
    """The schema (None for null) and the value, as `Header` has them."""
    if not text:
        return _STRING, text
    schema, value = _Literal(text).parse(0)
    return schema, _plain(schema, value)


class _Pairs(dict[Any, tuple[Any, Any]]):
    """A map: class and key -> key and item. To Python alone, `true` and 1 would be one key."""

    def add(self, key: Any, item: Any) -> None:
        self[type(key), key] = (key, item)


def _plain(schema: Schema | None, value: Any) -> object:
    """What has no schema is as Untyped has it."""
    if isinstance(value, list):
        return [_plain(schema.items if schema else None, item) for item in value]
    if isinstance(value, _Pairs):
        if schema is None:
            return {key: _plain(None, item) for key, item in value.values()}
        return [(_plain(schema.keys, key), _plain(schema.items, item)) for key, item in value.values()]
    if schema is None:
        return value
    if isinstance(value, Moment):
        return value.millis // DAY_MILLIS if schema.name == DATE else value.millis
    return value.item() if isinstance(value, np.generic) else value


@dataclass(slots=True)
class _Tokens:
    """Signs of structure stand alone; all between two of them is one token. `ahead` was read, and not yet used."""

    text: str
    at: int = 0
    ahead: str | None = None
    before: str | None = None

    def mark(self) -> int:
        return self.at - len(self.ahead or "")

    def rewind(self, at: int) -> None:
        self.at, self.ahead, self.before = at, None, None

    def has_next(self) -> bool:
        return self.ahead is not None or self.at < len(self.text)

    def next(self) -> str:
        self.before = self.ahead if self.ahead is not None else self._read()
        self.ahead = None
        return self.before

    def next_of(self, count: int) -> str | None:
        start = self.mark()
        for _ in range(count):
            if not self.has_next():
                self.rewind(start)
                return None
            self.next()
        return self.text[start : self.at]

    def consumes(self, expected: str) -> bool:
        if self.ahead is None:
            if not self.has_next():
                return False
            self.ahead = self._read()
        while not self.ahead.strip() and self.at < len(self.text):
            self.ahead = self._read()
        if self.ahead.strip(BLANKS) != expected:
            return False
        self.ahead = None
        return True

    def _read(self) -> str:
        start, is_escaped = self.at, False
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "\\":
                is_escaped = not is_escaped
            elif character in ':,{}[]"' and not is_escaped:
                if start == self.at:
                    self.at += 1
                return self.text[start : self.at]
            else:
                is_escaped = False
            self.at += 1
        return self.text[start:]


@dataclass(slots=True)
class _Common:
    """The schema that all items have."""

    schema: Schema | None = None
    fits: bool = True

    def add(self, schema: Schema | None) -> None:
        if schema is None or not self.fits:
            return
        self.schema = schema if self.schema is None else _wider(self.schema, schema)
        self.fits = self.schema is not None


def _wider(one: Schema, other: Schema) -> Schema | None:
    if one.type == other.type:
        return other
    if one.type not in _WIDTHS or other.type not in _WIDTHS:
        return None
    return one if _WIDTHS.index(one.type) > _WIDTHS.index(other.type) else other


@dataclass(slots=True)
class _Literal:
    text: str
    tokens: _Tokens = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = _Tokens(self.text)

    def parse(self, depth: int) -> Parsed:
        if depth > DEEPEST:
            raise Unfit(f"it is nested deeper than {DEEPEST} levels")
        tokens, is_embedded = self.tokens, depth > 0
        if not tokens.has_next():
            return None, None
        if is_embedded and tokens.consumes('"'):
            return self._quoted()
        for literal, parsed in (("null", (None, None)), ("true", (_BOOLEAN, True)), ("false", (_BOOLEAN, False))):
            if self._is_single(literal, is_embedded=is_embedded):
                return parsed
        start = tokens.mark()
        try:
            if tokens.consumes("["):
                return self._array(depth + 1)
            if tokens.consumes("{"):
                return self._map(depth + 1)
        except _Unlike:
            tokens.rewind(start)
        token = tokens.next()
        return self._token(token.strip(BLANKS), is_embedded=is_embedded) if token.strip() else (_STRING, token)

    def _is_single(self, literal: str, *, is_embedded: bool) -> bool:
        start = self.tokens.mark()
        if self.tokens.consumes(literal) and (is_embedded or not self.tokens.has_next()):
            return True
        self.tokens.rewind(start)
        return False

    def _quoted(self) -> Parsed:
        content = ""
        while self.tokens.has_next() and not self.tokens.consumes('"'):
            content += self.tokens.next()
        return _temporal(content) or (_STRING, content)

    def _token(self, token: str, *, is_embedded: bool) -> Parsed:
        if token[0].isdecimal():
            start = self.tokens.mark()
            rest = self.tokens.next_of(4)
            parsed = _temporal(token + rest) if rest is not None else None
            if parsed is not None:
                return parsed
            self.tokens.rewind(start)
            if (parsed := _temporal(token)) is not None:
                return parsed
        if (token[0].isdecimal() or token[0] in "+-") and (number := parse_decimal(token)) is not None:
            return _number(number)
        if is_embedded:
            raise _Unlike
        return _STRING, self.text

    def _array(self, depth: int) -> Parsed:
        tokens, found, common = self.tokens, list[Any](), _Common()
        while tokens.has_next():
            if tokens.consumes("]"):
                if common.schema is None:
                    return Schema("array"), found
                return Schema("array", items=common.schema), [_converted(common.schema, item) for item in found]
            if tokens.consumes(","):
                raise _Unlike
            schema, value = self.parse(depth)
            common.add(schema)
            found.append(value)
            here = tokens.mark()
            if tokens.consumes("]"):
                tokens.rewind(here)
            elif not tokens.consumes(","):
                raise _Unlike
        raise _Unlike

    def _map(self, depth: int) -> Parsed:
        tokens, found, keys, items = self.tokens, _Pairs(), _Common(), _Common()
        while tokens.has_next():
            if tokens.consumes("}"):
                return self._mapped(found, keys.schema, items.schema)
            if tokens.consumes(","):
                raise _Unlike
            key_schema, key = self.parse(depth)
            if key is None or not tokens.consumes(":"):
                raise _Unlike
            schema, value = self.parse(depth)
            found.add(_hashable(key), value)
            tokens.consumes(",")
            keys.add(key_schema)
            items.add(schema)
        raise _Unlike

    @staticmethod
    def _mapped(found: _Pairs, keys: Schema | None, items: Schema | None) -> Parsed:
        if keys is None:
            return Schema("map"), found
        made = _Pairs()
        for key, item in found.values():
            made.add(_converted(keys, key), item if items is None else _converted(items, item))
        return Schema("map", keys=keys, items=items), made


def _hashable(key: object) -> object:
    if isinstance(key, list | _Pairs):
        raise _Unlike
    return key


def _temporal(token: str) -> Parsed | None:
    token = token.replace("\\:", ":")
    schema, form = _TIMES.get(len(token), (None, None))
    millis = form.parse_one(token) if form is not None else None
    return None if millis is None else (schema, Moment(millis))


def _number(number: Decimal) -> Parsed:
    exponent = int(number.as_tuple().exponent)
    if (
        number.adjusted() < _MOST_DIGITS
        and exponent > -_MOST_EXPONENT
        and number == number.to_integral_value()
        and int(number) in LONG
    ):
        kind = next(name for name, bits in BITS.items() if wrapped(int(number), bits) == int(number))
        return Schema(kind), _CLASSES[kind](int(number)) if kind in _CLASSES else int(number)
    as_float = nearest_float(number)
    if exponent and np.isfinite(as_float):
        return Schema("float"), as_float
    as_double = nearest_double(number)
    if exponent and np.isfinite(as_double):
        return Schema("double"), as_double
    return Schema("bytes", False, DECIMAL, 1, parameters=(("scale", str(-exponent)),)), number


def _converted(schema: Schema, value: Any) -> Any:
    """A value as the schema that all items have; raises _Unlike if it cannot be."""
    if value is None:
        raise _Unlike
    if schema.name in (DATE, TIME, TIMESTAMP):
        return value if isinstance(value, Moment) else _counted(schema, value)
    if isinstance(value, Moment) and schema.type in _WIDTHS:
        raise _Unlike
    if schema.type == "float":
        return np.float32(value)
    return float(value) if schema.type == "double" else value


def _counted(schema: Schema, value: Any) -> Moment:
    if schema.name == TIME and not 0 <= value <= DAY_MILLIS:
        raise _Unlike
    return Moment(int(value) * (DAY_MILLIS if schema.name == DATE else 1))
