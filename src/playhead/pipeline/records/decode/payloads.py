"""The keys or values of a batch -> the JSON text of each payload on one line, and the schema that came with it."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.connect.javajson import encode_string
from playhead.pipeline.records.batch import Bad, at_rows
from playhead.pipeline.records.decode import Segment
from playhead.pipeline.records.decode.envelopes import Envelope, read_envelope
from playhead.pipeline.records.decode.jsontext import NotJson, are_objects, are_plain, one_line, settle
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.encode.options import STRING
from playhead.pipeline.records.schema import Schema

_MOST_BEGINNINGS = 16  # in one batch; each costs a pass over it
_NEEDS_ESCAPE = '["\\\\\x00-\x1f\U00010000-\U0010ffff]'
NONE = -1


@dataclass(slots=True)
class Payloads:
    """`texts`: one a row, null for a tombstone or a bad row. `which`: for each row its index in `schemas`, or NONE. `nulls`: the
    same for rows that are null under a schema, which have no text."""

    texts: pa.Array
    which: np.ndarray
    schemas: list[Schema | None]
    bad: list[Bad] = field(default_factory=list)
    nulls: dict[int, int] = field(default_factory=dict)

    @property
    def tombstones(self) -> np.ndarray:
        missing: np.ndarray = self.texts.is_null().to_numpy(zero_copy_only=False)
        missing[[bad.row for bad in self.bad]] = False
        return missing

    def replace(self, replaced: Mapping[int, bytes | None]) -> None:
        self.texts = _replace(self.texts, replaced)

    def reject(self, bad: Sequence[Bad]) -> None:
        """Rows whose text is gone already."""
        self.which[[one.row for one in bad]] = NONE
        self.bad = sorted([*self.bad, *bad])

    def segments(self) -> list[Segment]:
        """Rows without a schema of their own belong to the segment before them, at the start to the first."""
        count = len(self.texts)
        known = np.flatnonzero(self.which != NONE)
        if not len(known):
            return [Segment(0, count, "")] if count else []
        changes = known[1:][self.which[known[1:]] != self.which[known[:-1]]]
        starts = [0, *changes.tolist()]
        first = [int(known[0]), *changes.tolist()]
        stops = [*starts[1:], count]
        return [
            Segment(start, stop, _text(self.schemas[self.which[at]]))
            for start, stop, at in zip(starts, stops, first, strict=True)
        ]


def read_payloads(values: pa.Array, converter: Converter) -> Payloads:
    """`values` is the column of keys or values of a batch, of type binary."""
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    given = values if len(present) == len(values) else values.drop_null()
    made = _read_present(given, converter)
    if converter.name not in (STRING, BYTES):
        _settle_nulls(made, null_to_default=converter.null_to_default)
    if len(present) == len(values):
        return made
    places = np.full(len(values), NONE)
    places[present] = np.arange(len(present))
    which = np.full(len(values), NONE)
    which[present] = made.which
    texts = made.texts.take(pa.array(places, mask=places == NONE))
    bad = [Bad(int(present[one.row]), one.reason) for one in made.bad]
    return Payloads(texts, which, made.schemas, bad, {int(present[row]): at for row, at in made.nulls.items()})


def _read_present(values: pa.Array, converter: Converter) -> Payloads:
    if converter.name == BYTES:
        return _schemaless(pa.array([b'"%s"' % base64.b64encode(value.as_py()) for value in values], pa.binary()))
    if converter.name == STRING:
        return _read_strings(values)
    if converter.has_envelopes:
        return _read_envelopes(values)
    return _schemaless(*_checked(values, lambda row: one_line(values[row].as_py())))


def _schemaless(texts: pa.Array, bad: Sequence[Bad] = ()) -> Payloads:
    which = np.zeros(len(texts), np.int64)
    which[[one.row for one in bad]] = NONE
    return Payloads(texts, which, [None], list(bad))


def _checked(texts: pa.Array, read: Callable[[int], bytes]) -> tuple[pa.Array, list[Bad]]:
    """`texts` where they are plain JSON; else what `read` gives for that row, or why it is bad."""
    replaced: dict[int, bytes | None] = {}
    bad = []

    def slow(row: int) -> None:
        try:
            replaced[row] = read(row)
        except NotJson as error:
            replaced[row] = None
            bad.append(Bad(row, str(error)))

    settle(len(texts), lambda start, stop: are_plain(texts.slice(start, stop - start)), slow)
    return _replace(texts, replaced), sorted(bad)


def _replace(texts: pa.Array, replaced: Mapping[int, bytes | None]) -> pa.Array:
    if not replaced:
        return texts
    mask = np.zeros(len(texts), bool)
    rows = sorted(replaced)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array([replaced[row] for row in rows], pa.binary()))


def _settle_nulls(made: Payloads, *, null_to_default: bool) -> None:
    """The JSON text null is a null value: a tombstone, the default of its schema, or bad if the schema wants a value."""
    if are_objects(made.texts):
        return
    is_null = pc.fill_null(pc.match_substring_regex(made.texts, pattern=r"^ *null *$"), False)
    replaced: dict[int, bytes | None] = {}
    for row in np.flatnonzero(is_null.to_numpy(zero_copy_only=False)).tolist():
        schema = made.schemas[made.which[row]]
        replaced[row] = None
        if schema is not None and schema.default is not None and null_to_default:
            replaced[row] = schema.default.encode()
            continue
        if schema is not None and schema.optional:
            made.nulls[row] = int(made.which[row])
        elif schema is not None:
            made.bad.append(Bad(row, "its payload is null, which its schema does not allow"))
        made.which[row] = NONE
    made.texts = _replace(made.texts, replaced)
    made.bad.sort()


def _read_strings(values: pa.Array) -> Payloads:
    """A string of JSON; where nothing is to be escaped it is only put in quotes."""
    strings, bad = read_utf8(values)
    quote = pa.scalar('"')
    quoted = pc.binary_join_element_wise(quote, strings, quote, "").cast(pa.binary())
    odd = pc.fill_null(pc.match_substring_regex(strings, pattern=_NEEDS_ESCAPE), False)
    rows = np.flatnonzero(odd.to_numpy(zero_copy_only=False)).tolist()
    return _schemaless(_replace(quoted, {row: encode_string(strings[row].as_py()).encode() for row in rows}), bad)


def read_utf8(values: pa.Array) -> tuple[pa.Array, list[Bad]]:
    """Strings, null where a value is none."""
    try:
        return values.cast(pa.string()), []
    except pa.ArrowInvalid:
        strings = [_utf8(value) for value in values.to_pylist()]
        return pa.array(strings, pa.string()), [
            Bad(row, "it is not UTF-8") for row, text in enumerate(strings) if text is None
        ]


def _utf8(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _text(schema: Schema | None) -> str:
    return schema.text if schema else ""


class _Sorting:
    """Rows of envelopes, sorted by how they begin."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self.open = np.ones(len(values), bool)
        self.which = np.full(len(values), NONE)
        self.schemas: dict[Schema | None, int] = {}
        self.pieces: list[tuple[np.ndarray, pa.Array]] = []
        self.bad: list[Bad] = []

    def read(self, row: int) -> Envelope:
        envelope = read_envelope(self.values[row].as_py())
        self.which[row] = self.schemas.setdefault(envelope.schema, len(self.schemas))
        return envelope

    def take(self, row: int) -> bool:
        """The row, with all that begin alike if that is a usual beginning; then the answer is True."""
        envelope = self.find(row)
        if envelope and envelope.beginning:
            self.take_alike(envelope.beginning, int(self.which[row]))
        if envelope and self.open[row]:
            self.take_alone(row, envelope.payload)
        return envelope is not None and envelope.beginning != b""

    def find(self, row: int) -> Envelope | None:
        """None: the row is bad, which is noted."""
        try:
            return self.read(row)
        except NotJson as error:
            self.open[row] = False
            self.bad.append(Bad(row, str(error)))
            return None

    def take_alone(self, row: int, payload: bytes) -> None:
        self.open[row] = False
        self.pieces.append((np.array([row]), pa.array([payload], pa.binary())))

    def take_alike(self, beginning: bytes, schema: int) -> None:
        """A blank around the payload is no part of it: such a row is left to be read by itself."""
        alike = pc.and_(pc.starts_with(self.values, pattern=beginning), pc.ends_with(self.values, pattern="}"))
        blank = pc.or_(pc.starts_with(self.values, pattern=beginning + b" "), pc.ends_with(self.values, pattern=" }"))
        rows = np.flatnonzero(pc.and_not(alike, blank).to_numpy(zero_copy_only=False) & self.open)
        if not len(rows):
            return
        self.open[rows] = False
        self.which[rows] = schema
        values = at_rows(self.values, rows)
        cut = pc.binary_slice(values, len(beginning), -1)
        texts, bad = _checked(cut, lambda at: self.read(int(rows[at])).payload)
        self.pieces.append((rows, texts))
        self.bad += [Bad(int(rows[one.row]), one.reason) for one in bad]

    def made(self) -> Payloads:
        if len(self.pieces) == 1 and len(self.pieces[0][0]) == len(self.values):
            texts = self.pieces[0][1]
        else:
            rows = np.concatenate([rows for rows, _ in self.pieces] or [np.empty(0, np.int64)])
            places = np.full(len(self.values), NONE)
            places[rows] = np.arange(len(rows))
            whole = pa.concat_arrays([texts for _, texts in self.pieces] or [pa.array([], pa.binary())])
            texts = whole.take(pa.array(places, mask=places == NONE))
        self.which[[bad.row for bad in self.bad]] = NONE
        return Payloads(texts, self.which, list(self.schemas), sorted(self.bad))


def _read_envelopes(values: pa.Array) -> Payloads:
    sorting = _Sorting(values)
    beginnings = 0
    while beginnings < _MOST_BEGINNINGS and sorting.open.any():
        beginnings += sorting.take(int(sorting.open.argmax()))
    for row in np.flatnonzero(sorting.open).tolist():
        if envelope := sorting.find(row):
            sorting.take_alone(row, envelope.payload)
    return sorting.made()
