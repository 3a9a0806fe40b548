"""`{"schema":...,"payload":...}`: what JsonConverter writes with `schemas.enable=true`, taken apart.

All records of a table begin with the same bytes up to their payload. Such a beginning is found in one record and compared with
all others at once; what it leaves is cut out as the payload. A record that is written otherwise (other order, blanks, a beginning
that few share) is read by itself. As in Connect the envelope must be an object of exactly these two members.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from re import compile as pattern

from playhead.errors import Invalid
from playhead.pipeline.records.decode.jsontext import DECODER, DEEPEST, NotJson, check_depth, decode, one_line
from playhead.pipeline.records.schema import Schema

_BLANKS = pattern(r"[ \t\r\n]*")
_LIKENESS = 'the envelope must be an object with the members "schema" and "payload" and no other'


@dataclass(frozen=True, slots=True)
class Envelope:
    """`payload` is text on one line. `beginning`: the bytes before the payload, empty if JsonConverter would write others."""

    schema: Schema | None
    payload: bytes
    beginning: bytes


def read_envelope(value: bytes) -> Envelope:
    """NotJson if it is none, with the reason."""
    check_depth(value, DEEPEST + 1)
    members = read_members(value)
    if set(members) != {"schema", "payload"}:
        raise NotJson(_LIKENESS)
    schema, payload = members["schema"].encode(), one_line(members["payload"].encode())
    beginning = b'{"schema":%s,"payload":' % schema
    is_usual = value.startswith(beginning)
    return Envelope(find_schema(members["schema"]), payload, beginning if is_usual else b"")


def read_members(value: bytes) -> Mapping[str, str]:
    """The members of an object with their text; of two with one name the last counts, as for Jackson."""
    value = value.removeprefix(b"\xef\xbb\xbf")
    if not isinstance(decode(value), dict):
        raise NotJson(_LIKENESS)
    text, members = value.decode(), {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)  # behind the colon
        _, at = DECODER.raw_decode(text, start)
        members[name] = text[start:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return members


@lru_cache(maxsize=64)
def find_schema(text: str) -> Schema | None:
    """None for null, which is how JsonConverter writes a value without a schema."""
    if text == "null":
        return None
    try:
        return Schema.from_json(text, strict=False)
    except Invalid as error:
        raise NotJson(f"its schema is none of Connect's: {error.what}") from error


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at
