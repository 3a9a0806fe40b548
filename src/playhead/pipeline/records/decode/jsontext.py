"""Whether bytes are one JSON value, and its text on one line.

The rules are those of RFC 8259 and of Python's json module without its NaN: UTF-8, no control characters inside of strings, no
second value after the first. A byte order mark in front is dropped, as Jackson does. Nothing may be nested deeper than DEEPEST.
Blanks stay as they are; only a text with line ends or tabs in it is written again without blanks.

Whole arrays are checked by one call into msgspec, which is as strict. It reads a stream of values, so each must begin and end
in the same bracket: then a line end between two values can only stand where a value is complete, and equal counts mean one each.
"""

import json
import re
from collections.abc import Callable
from typing import NoReturn

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.octets import octets_of
from playhead.pipeline.records.schema import Number

DEEPEST = (
    100  # everything that goes down a value calls itself, some of it five times a level, and Python allows 1000 calls
)
_BLOCK = 64  # rows; smaller ranges are looked at one by one
_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)
_BLANK = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_QUOTE, _ESCAPE, _OPEN, _CLOSE = b'"\\{}'
_CURLY = 0x20  # a square bracket with this bit is the curly one
_CONTROL = re.compile(rb"[\x00-\x1f]")


class _Object(msgspec.Struct, gc=False):
    """Any object: its members are read past and dropped."""


_OBJECTS = msgspec.json.Decoder(_Object)
_VALUES = msgspec.json.Decoder(tuple[msgspec.Raw])


class NotJson(Exception):
    """With one sentence that says why."""


def _no_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no JSON")


DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_no_constant)


def join_lines(array: pa.Array) -> pa.Buffer:
    """The lines of an array (or of a slice or a selection of it), each with its newline; nulls are left out."""
    lines = array.drop_null()
    if not len(lines):
        return pa.py_buffer(b"")
    ends = pa.concat_arrays(
        [lines, pa.array([b""], pa.binary())]
    )  # an empty one behind the last gives the last newline
    whole = pa.ListArray.from_arrays(pa.array([0, len(ends)], pa.int32()), ends)
    return pc.binary_join(whole, b"\n")[0].as_buffer()


def are_objects(texts: pa.Array) -> bool:
    return bool(
        pc.all(pc.and_(pc.starts_with(texts, pattern="{"), pc.ends_with(texts, pattern="}")), min_count=0).as_py()
    )


def are_plain(texts: pa.Array) -> bool:
    """Whether each is certainly one JSON value on one line. False means only that it must be checked one by one."""
    if not len(texts):
        return True
    _, content = octets_of(texts)
    if not len(content) or content.min() < 0x20 or _are_deep(texts):
        return False
    try:
        if content.max() >= 0x80:
            texts.cast(pa.string())
        if are_objects(texts):
            return len(_OBJECTS.decode_lines(join_lines(texts))) == len(texts)
        wrapped = pc.binary_join_element_wise(_bytes(b"["), texts, _bytes(b"]"), _bytes(b""))
        return len(_VALUES.decode_lines(join_lines(wrapped))) == len(texts)
    except (pa.ArrowInvalid, msgspec.DecodeError, RecursionError):
        return False


def one_line(value: bytes) -> bytes:
    """The text to write for one value; NotJson if it is none. Nothing at all is null, as for JsonConverter."""
    text = value.removeprefix(_BOM)
    if not text.strip(b" \t\r\n"):
        return b"null"
    check_depth(text)
    decode(text)
    return _BLANK.sub(rb"\1", text) if _CONTROL.search(text) else text


def decode(text: bytes) -> object:
    """Numbers stay text."""
    try:
        return DECODER.decode(text.decode())
    except UnicodeDecodeError as error:
        raise NotJson("it is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise NotJson(f"it is no JSON: {error.msg} at character {error.pos}") from error


def check_depth(text: bytes, allowed: int = DEEPEST) -> None:
    if text.count(b"{") + text.count(b"[") <= allowed:
        return
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
        if depth > allowed:
            raise NotJson(f"it is nested deeper than {DEEPEST} levels")


def settle(count: int, fast: Callable[[int, int], bool], slow: Callable[[int], None]) -> None:
    """Rows 0 to `count`: whole ranges where `fast` says yes, halved until it does, and single rows where it does not."""
    ranges = [(0, count)] if count else []
    while ranges:
        start, stop = ranges.pop()
        if fast(start, stop):
            continue
        if stop - start <= _BLOCK:
            for row in range(start, stop):
                slow(row)
        else:
            middle = (start + stop) // 2
            ranges += [(middle, stop), (start, middle)]


def _are_deep(texts: pa.Array) -> bool:
    """Exact where all of them are JSON: then brackets and quotes are in pairs."""
    lengths = pc.binary_length(texts)
    if pc.max(lengths).as_py() <= 2 * DEEPEST:
        return False
    longer = texts.filter(pc.greater(lengths, 2 * DEEPEST))
    openings = pc.add(pc.count_substring(longer, pattern="{"), pc.count_substring(longer, pattern="["))
    _, octets = octets_of(longer.filter(pc.greater(openings, DEEPEST)))
    is_quote = octets == _QUOTE
    is_quote[escaped_places(octets)] = False
    brackets = np.flatnonzero(((octets | _CURLY) == _OPEN) | ((octets | _CURLY) == _CLOSE))
    is_text = np.bitwise_xor.accumulate(is_quote.view(np.uint8))
    brackets = brackets[is_text[brackets] == 0]
    steps = np.where((octets[brackets] | _CURLY) == _OPEN, 1, -1)
    return bool(np.cumsum(steps).max(initial=0) > DEEPEST)


def escaped_places(octets: np.ndarray) -> np.ndarray:
    """Those of the bytes behind a backslash, unless that is escaped itself."""
    found = np.flatnonzero(octets == _ESCAPE)
    numbers = np.arange(len(found))
    is_first = np.diff(found, prepend=-2) != 1
    first = np.maximum.accumulate(np.where(is_first, numbers, 0))
    places: np.ndarray = found[(numbers - first) % 2 == 0] + 1
    return places[places < len(octets)]


def _bytes(text: bytes) -> pa.Scalar:
    return pa.scalar(text, pa.binary())
