"""Objects of JSON that are written alike -> columns, by the places of their quotes.

The records of a topic come from one program, mostly: they have their members in one order, with the same blanks. So the names
are constants, and all values of a member are found in one pass over the batch: a text ends at the next quote, and whatever is
no text ends before the quote of the next name. The order and the blanks are those of the first record. Members may be missing.
What is written otherwise is left to another reader: such a record does not end where its last member does.

The texts must be JSON, each on one line. Then a piece without quotes that begins and ends with a digit is one number, because
an object has a quote behind every comma.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj

from playhead.pipeline.records.arrowtypes import decimal_form
from playhead.pipeline.records.decode.jsontext import decode, escaped_places, join_lines
from playhead.pipeline.records.octets import octets_of

FEWEST = 16  # written alike: fewer are not worth a pass

_QUOTE, _OPEN, _CLOSE, _LIST, _LIST_END, _MINUS, _ZERO, _T = b'"{}[]-0t'
_DIGITS_THAT_FIT = 18  # of a long, with its sign
_LIST_NAME = "l"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # of a pair of surrogates
_NOT_PLAIN = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')
_COLON = re.compile(rb'^\{"[^"\\]*":( *)')

Places = Any  # np.ndarray of int64, one a record: of bytes, or the number of a quote
Flags = Any  # np.ndarray of bool, one a record


class Alike(NamedTuple):
    """`rows`: the places of the texts that were read, ascending; `columns` has as many."""

    rows: np.ndarray
    columns: pa.RecordBatch


def read_pieces(texts: pa.Array, kind: pa.StructType, *, is_shape: bool = False) -> Alike | None:
    """The texts that are written like the first, and fit; None: there are none. `is_shape`: every member must be there, and a
    double must have a point or an exponent."""
    first: bytes = texts[0].as_py()
    sample = decode(first)
    members = _ordered(kind, sample)
    seen = list(sample) if isinstance(sample, dict) else []
    if not all(map(is_plain_name, [*seen, *(one.name for one in _all(members))])):
        return None
    reading = _Reading(texts, members, _blanks(first, sample), is_shape=is_shape)
    if not len(reading.rows):
        return None
    columns = {one.name: reading.column(one) for one in members}
    made = pa.RecordBatch.from_arrays([columns[one.name] for one in kind], schema=pa.schema(list(kind)))
    if reading.fits.all():
        return Alike(reading.rows, made)
    rows = reading.rows[reading.fits]
    return Alike(rows, made.filter(pa.array(reading.fits))) if len(rows) else None


@dataclass(slots=True)
class _Member:
    """`start` and `end`: where its values are. `is_null` None: none is. `inner`: the members of an object."""

    name: str
    kind: pa.DataType
    inner: "Sequence[_Member]" = ()
    start: Places = None
    end: Places = None
    is_null: Flags | None = None


class _Blanks(NamedTuple):
    """How many there are behind a comma and behind a colon."""

    comma: int
    colon: int


class _After(NamedTuple):
    """`at`: the byte behind a value. `quote`: the next one. `fits`: which of the values are of their kind."""

    at: Places
    quote: Places
    fits: Flags


def is_plain_name(name: str) -> bool:
    """Whether it is compared as it stands: others are written with escapes, and half a pair of surrogates is no text."""
    return _NOT_PLAIN.search(name) is None


def _ordered(kind: pa.StructType, sample: object) -> list[_Member]:
    """In the order of the sample, if that is another one."""
    names = [one.name for one in kind]
    given = sample if isinstance(sample, dict) else {}
    seen = [name for name in given if name in names]
    if seen != [name for name in names if name in given]:
        names = [*seen, *(name for name in names if name not in given)]
    kinds = [kind.field(name).type for name in names]
    return [
        _Member(name, inner, _ordered(inner, given.get(name)) if pa.types.is_struct(inner) else ())
        for name, inner in zip(names, kinds, strict=True)
    ]


def _blanks(text: bytes, sample: object) -> _Blanks:
    colon = _COLON.match(text)
    second = list(sample)[1:2] if isinstance(sample, dict) else []
    comma = re.search(rb',( *)"%s":' % re.escape(second[0].encode()), text) if second else None
    return _Blanks(len(comma[1]) if comma else 0, len(colon[1]) if colon else 0)


class _Reading:
    """`rows`: the texts that are written alike. `fits`: which of these have values that their columns can hold."""

    def __init__(self, texts: pa.Array, members: Sequence[_Member], blanks: _Blanks, *, is_shape: bool) -> None:
        self._blanks, self._is_shape = blanks, is_shape
        bounds, content = octets_of(texts)
        size = len(content)
        # Records that are not alike are read along, wherever that leads: behind the last byte there are quotes, and room.
        room = sum(len(one.name.encode()) + sum(blanks) + 16 for one in _all(members))
        self._octets = np.full(size + room, _QUOTE, np.uint8)
        self._octets[:size] = content
        self._words = np.ndarray(len(self._octets) - 7, "<u8", self._octets, 0, (1,))
        self._size = size
        self._starts, self._ends = bounds[:-1], bounds[1:]
        is_quote = self._octets == _QUOTE
        escaped = escaped_places(self._octets)
        is_quote[escaped] = False
        self._has_escapes = len(escaped) > 0
        self._quotes = np.flatnonzero(is_quote)
        begins = self._octets[self._starts] == _OPEN
        close, _, fits = self._object(members, self._starts, self._first_quotes(len(self._quotes) - room), 1)
        is_alike = begins & fits & (close == self._ends - 1)
        if self._has_escapes:  # a half without the other is no text: such records are read one by one
            halves = [found.start() for found in _HALF.finditer(self._octets.data)]
            is_alike[np.searchsorted(self._starts, halves, side="right") - 1] = False
        self.rows = np.flatnonzero(is_alike)
        self.fits = np.ones(len(self.rows), bool)

    # Places

    def _first_quotes(self, count: int) -> Places:
        """The number of each record's first; most often all have as many. `count`: of all quotes."""
        starts, numbers = self._starts, np.arange(len(self._starts)) * (count // len(self._starts))
        if (self._quotes[numbers] >= starts).all() and (self._quotes[numbers[1:] - 1] < starts[1:]).all():
            return numbers
        return np.searchsorted(self._quotes, starts)

    def _object(self, members: Sequence[_Member], begin: Places, quote: Places, depth: int) -> _After:
        """`at` is that of its end."""
        at, fits, has_some = begin, np.ones(len(begin), bool), False
        for member in members:
            blanks = b" " * self._blanks.comma if has_some else b""
            name = b'%s"%s":%s' % (blanks, member.name.encode(), b" " * self._blanks.colon)
            is_there = self._matches(at + 1, name)
            if self._is_shape:
                fits &= is_there
            after = self._value(member, at + 1 + len(name), quote + 2, depth)
            if is_there.all():
                at, quote = after.at, after.quote
                fits &= after.fits
            else:
                member.is_null = ~is_there if member.is_null is None else member.is_null | ~is_there
                at, quote = np.where(is_there, after.at, at), np.where(is_there, after.quote, quote)
                fits &= after.fits | ~is_there
            has_some = has_some or bool(is_there.any())
        close = np.where(at == begin, at + 1, at)
        return _After(close, quote, fits & (self._octets[close] == _CLOSE))

    def _value(self, member: _Member, at: Places, quote: Places, depth: int) -> _After:
        if pa.types.is_struct(member.kind):
            close, next_quote, fits = self._object(member.inner, at, quote, depth + 1)
            found, after = self._octets[at] == _OPEN, _After(close + 1, next_quote, fits)
        elif pa.types.is_string(member.kind):
            end = self._quotes[quote + 1]
            found, after = self._octets[at] == _QUOTE, _After(end + 1, quote + 2, self._quotes[quote] == at)
        elif pa.types.is_list(member.kind):
            found, after = self._lists(at)
        else:
            end = self._end_of_plain(quote, depth)
            found, after = self._are_plain(member.kind, at, end), _After(end, quote, end > at)
        skipped = int(pa.types.is_string(member.kind))  # its quotes
        member.start, member.end = at + skipped, after.at - skipped
        if found.all():
            return after
        is_null = self._matches(at, b"null") & ~found
        member.is_null = is_null
        fits = is_null | (found & after.fits)
        return _After(np.where(is_null, at + 4, after.at), np.where(is_null, quote, after.quote), fits)

    def _end_of_plain(self, quote: Places, depth: int) -> Places:
        """Behind a value without quotes comes the quote of the next name, or the end of the record; and before that, the ends of
        the objects that the value is in."""
        found, rows = self._quotes[quote], self._ends
        end = np.where(found < rows, found - 1 - self._blanks.comma, rows - 1)
        for _ in range(depth - 1):
            is_close = self._octets[end - 1] == _CLOSE
            if not is_close.any():
                break
            end = end - is_close
        return end

    def _are_plain(self, kind: pa.DataType, at: Places, end: Places) -> Flags:
        if pa.types.is_boolean(kind):
            is_true = self._matches(at, b"true") & (end == at + 4)
            return is_true | (self._matches(at, b"false") & (end == at + 5))
        first, last = self._octets[at], self._octets[end - 1]
        return (((first - _ZERO) < 10) | (first == _MINUS)) & ((last - _ZERO) < 10)

    def _lists(self, at: Places) -> tuple[Flags, _After]:
        """A list has no list in it: then it ends at the next bracket that is in no text."""
        brackets = np.flatnonzero((self._octets == _LIST) | (self._octets == _LIST_END))
        brackets = brackets[np.searchsorted(self._quotes, brackets) % 2 == 0]
        ends = np.append(brackets, np.full(2, self._size))
        end = ends[np.searchsorted(brackets, at) + 1]
        fits = self._octets[end] == _LIST_END
        return self._octets[at] == _LIST, _After(end + 1, np.searchsorted(self._quotes, end), fits)

    def _matches(self, at: Places, constant: bytes) -> Flags:
        found = None
        for start in range(0, len(constant), 8):
            part = constant[start : start + 8]
            words = self._words[at + start] if start else self._words[at]
            if len(part) < 8:
                words = words & np.uint64((1 << 8 * len(part)) - 1)
            same = words == np.uint64(int.from_bytes(part, "little"))
            found = same if found is None else found & same
        return found

    # Columns

    def column(self, member: _Member, outer: Flags | None = None) -> pa.Array:
        """`outer`: which of the objects that it is in are null."""
        is_null = None if member.is_null is None else self._of_rows(member.is_null)
        if outer is not None:
            is_null = outer if is_null is None else is_null | outer
        if is_null is not None and not is_null.any():
            is_null = None
        if pa.types.is_struct(member.kind):
            columns = {one.name: self.column(one, is_null) for one in member.inner}
            valid = None if is_null is None else pa.array(~is_null).buffers()[1]
            children = [columns[one.name] for one in member.kind]
            return pa.Array.from_buffers(member.kind, len(self.rows), [valid], children=children)
        start, end = self._of_rows(member.start), self._of_rows(member.end)
        if pa.types.is_boolean(member.kind):
            return pa.array(self._octets[start] == _T, mask=is_null)
        texts = self._texts(start, end, is_null)
        if pa.types.is_string(member.kind):
            return _unescaped(texts) if self._has_escapes else texts
        if pa.types.is_list(member.kind):
            return self._list_column(texts, member.kind)
        if pa.types.is_integer(member.kind):
            return self._integers(texts, member.kind)
        return self._fractions(texts, member.kind)

    def _of_rows(self, values: Places) -> Places:
        return values if len(self.rows) == len(values) else values[self.rows]

    def _texts(self, start: Places, end: Places, is_null: Flags | None) -> pa.Array:
        """The bytes between two of them are taken for texts as well, and left out."""
        count = len(start)
        if is_null is not None:
            start, end = start[~is_null], end[~is_null]
        bounds = np.empty(2 * len(start) + 1, np.int32)
        bounds[:-1:2], bounds[1::2] = start, end
        bounds[-1] = bounds[-2] if len(start) else 0
        both = pa.Array.from_buffers(
            pa.string(), 2 * len(start), [None, pa.py_buffer(bounds), pa.py_buffer(self._octets)]
        )
        places = np.arange(0, 2 * len(start), 2)
        if is_null is None:
            return both.take(pa.array(places))
        spread = np.zeros(count, np.int64)
        spread[~is_null] = places
        return both.take(pa.array(spread, mask=is_null))

    def _integers(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            is_whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
            is_short = pc.less_equal(pc.binary_length(texts), _DIGITS_THAT_FIT)
            numbers = self._only(texts, pc.and_(is_whole, is_short)).cast(pa.int64())
            if kind != pa.int64():
                most = 1 << kind.bit_width - 1
                fits = pc.and_(pc.greater_equal(numbers, -most), pc.less(numbers, most))
                numbers = self._only(numbers, fits)
            return numbers.cast(kind)

    def _fractions(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        if self._is_shape and not pc.all(pc.match_substring(texts, "."), min_count=0).as_py():
            texts = self._only(texts, pc.match_substring_regex(texts, "[.eE]"))
        if pa.types.is_decimal(kind):
            texts = self._only(texts, pc.match_substring_regex(texts, decimal_form(kind)))
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            return self._none(len(texts), kind)

    def _list_column(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        whole = pc.binary_join_element_wise(f'{{"{_LIST_NAME}":', pc.fill_null(texts, "null"), "}", "")
        read = read_json(whole.cast(pa.binary()), pa.struct([(_LIST_NAME, kind)]))
        return self._none(len(texts), kind) if read is None else read.column(0)

    def _only(self, values: pa.Array, fit: pa.Array) -> pa.Array:
        """The others become null, and their records do not fit."""
        fits = pc.fill_null(fit, True)
        self.fits &= fits.to_numpy(zero_copy_only=False)
        return pc.if_else(fits, values, pa.scalar(None, values.type))

    def _none(self, count: int, kind: pa.DataType) -> pa.Array:
        self.fits[:] = False
        return pa.nulls(count, kind)


def _all(members: Sequence[_Member]) -> list[_Member]:
    return [one for member in members for one in [member, *_all(member.inner)]]


def _unescaped(texts: pa.Array) -> pa.Array:
    has_some = pc.fill_null(pc.match_substring(texts, "\\"), False)
    if not pc.any(has_some).as_py():
        return texts
    made = [json.loads(f'"{text}"') for text in texts.filter(has_some).to_pylist()]
    return pc.replace_with_mask(texts, has_some, pa.array(made, pa.string()))


def read_json(texts: pa.Array, kind: pa.StructType, unexpected: str = "error") -> pa.RecordBatch | None:
    """By Arrow's reader. `texts` are objects of JSON, one a row. None if one is not of that kind."""
    content = join_lines(texts)
    options = paj.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior=unexpected)
    try:
        table = paj.read_json(
            pa.BufferReader(content),
            read_options=paj.ReadOptions(use_threads=False, block_size=content.size + 1),
            parse_options=options,
        )
    except pa.ArrowInvalid:
        return None
    return table.combine_chunks().to_batches()[0] if len(texts) and table.num_rows == len(texts) else None
