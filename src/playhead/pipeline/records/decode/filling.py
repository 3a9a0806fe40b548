"""The JSON text of a value under its schema, as Connect writes it once it has read it.

A value must fit its schema, by the rules of `exact`. A member that is missing is written as its default or as null, and so is a
null that has a default; all members are then in the order of the schema. A value that has all its members stays as it stands:
order, blanks and digits are kept. Whole arrays are checked by msgspec, with types created from the schema; the rest one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from playhead.connect.javajson import encode_string
from playhead.pipeline.records.batch import Bad, Unfit
from playhead.pipeline.records.decimals import MOST_BYTES
from playhead.pipeline.records.decode.exact import Exact, check_defaults
from playhead.pipeline.records.decode.jsontext import decode, join_lines, settle
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.pipeline.records.schema import TIME, Schema, json_of

_PLAIN: Mapping[str, Any] = {
    **{f"int{bits}": Annotated[int, Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)] for bits in (8, 16, 32, 64)},
    # Beyond these a whole number may be rounded: it must be checked one by one.
    "float": Annotated[float, Meta(gt=-(2**24), lt=2**24)],
    "double": Annotated[float, Meta(gt=-(2**53), lt=2**53)],
    "boolean": bool,
    "string": str,
    "bytes": bytes,
}
_TIME = Annotated[int, Meta(ge=0, lt=DAY_MILLIS)]
_DECIMAL = Annotated[bytes, Meta(min_length=1, max_length=MOST_BYTES)]


@dataclass(frozen=True, slots=True)
class Filling:
    schema: Schema
    null_to_default: bool = True

    def fill(self, texts: pa.Array) -> tuple[dict[int, bytes | None], list[Bad]]:
        """`texts` are JSON, each on one line. Answers which rows are written otherwise, None for a bad one."""
        try:
            check_defaults(self.schema, has_columns=False)
        except Unfit as error:
            reason = f"its schema cannot be used: {error}"
            return dict.fromkeys(range(len(texts))), [Bad(row, reason) for row in range(len(texts))]
        whole = _decoder(self.schema, self.null_to_default)
        exact = Exact(self.null_to_default, has_columns=False)
        replaced: dict[int, bytes | None] = {}
        bad: list[Bad] = []

        def fast(start: int, stop: int) -> bool:
            return whole is not None and _fit(whole, texts.slice(start, stop - start))

        def slow(row: int) -> None:
            decoded = decode(texts[row].as_py())
            try:
                exact.value(decoded, self.schema, "")
            except Unfit as error:
                replaced[row] = None
                bad.append(Bad(row, str(error)))
                return
            filled = self._filled(decoded, self.schema)
            if filled != decoded:
                replaced[row] = json_of(filled, encode_string).encode()

        settle(len(texts), fast, slow)
        return replaced, bad

    def _filled(self, decoded: Any, schema: Schema) -> Any:
        """Of a value that fits."""
        if decoded is None:
            if schema.default is None or not self.null_to_default:
                return None
            return self._filled(decode(schema.default.encode()), schema)
        if schema.is_struct:
            return {name: self._filled(decoded.get(name), inner) for name, inner in schema.fields}
        if schema.items is None:
            return decoded
        if schema.keys is None:
            return [self._filled(item, schema.items) for item in decoded]
        if schema.is_string_map:
            return {key: self._filled(item, schema.items) for key, item in decoded.items()}
        return [[self._filled(key, schema.keys), self._filled(item, schema.items)] for key, item in decoded]


def _fit(whole: "msgspec.json.Decoder[Any]", texts: pa.Array) -> bool:
    """Whether each is certainly complete, and fits. False means only that it must be checked one by one."""
    try:
        return len(whole.decode_lines(join_lines(texts))) == len(texts)
    except (msgspec.DecodeError, RecursionError):
        return False


@lru_cache(maxsize=64)
def _decoder(schema: Schema, null_to_default: bool) -> "msgspec.json.Decoder[Any] | None":
    """None if msgspec cannot have such a type: it takes no control characters in names."""
    try:
        return msgspec.json.Decoder(_type_of(schema, null_to_default=null_to_default))
    except (ValueError, TypeError, RecursionError):
        return None


def _type_of(schema: Schema, *, null_to_default: bool) -> Any:
    """Of values that are written as they stand: null only where it stays null, and every member is there."""
    made = _present(schema, null_to_default=null_to_default)
    has_default = schema.default is not None and null_to_default
    return made | None if schema.optional and not has_default else made


def _present(schema: Schema, *, null_to_default: bool) -> Any:
    if schema.is_struct:
        fields = [
            (f"f{at}", _type_of(inner, null_to_default=null_to_default)) for at, (_, inner) in enumerate(schema.fields)
        ]
        names = {f"f{at}": name for at, (name, _) in enumerate(schema.fields)}
        return msgspec.defstruct("Value", fields, rename=names, forbid_unknown_fields=True, gc=False)
    if schema.items is not None:
        items: Any = _type_of(schema.items, null_to_default=null_to_default)
        if schema.keys is None:
            return list[items]
        keys: Any = _present(schema.keys, null_to_default=null_to_default)
        return dict[str, items] if schema.is_string_map else list[tuple[keys, items]]
    if schema.is_decimal:
        return _DECIMAL
    return _TIME if schema.name == TIME else _PLAIN[schema.type]
