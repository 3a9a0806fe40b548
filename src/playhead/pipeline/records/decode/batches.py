"""Records as they were consumed -> batches over which transforms run: what Connect's converters give to a sink.

Records of one schema are one batch, wherever they stand; `Batch.rows` says where. JsonConverter without schemas, and an envelope
whose schema is null, give values without a schema: whole numbers are Java's long, others its double. A null is one without a
schema, except that of StringConverter, of ByteArrayConverter, and of a payload under a schema.

A record is converted as Connect does it: first its key, then its value, then its headers; the first that fails is the reason why
it is bad. Keys are read only if they are asked for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.sink import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import (
    KEY_CONVERTER,
    Bad,
    Batch,
    Header,
    Headers,
    Typed,
    Untyped,
    Values,
)
from playhead.pipeline.records.decode.columns import Columns
from playhead.pipeline.records.decode.exact import Unfit, whole_text
from playhead.pipeline.records.decode.jsontext import Number, decode
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.decode.payloads import NONE, Payloads, read_payloads, read_utf8
from playhead.pipeline.records.encode.options import STRING
from playhead.pipeline.records.literals import Parsed, parse_literal
from playhead.pipeline.records.schema import Schema

_SINGLE = "value"
_OPTIONAL_STRING, _OPTIONAL_BYTES = Schema("string", optional=True), Schema("bytes", optional=True)
_LONG = range(-(1 << 63), 1 << 63)


class Part(NamedTuple):
    """Keys or values of one schema, or without one. `rows`: where each stands, ascending."""

    rows: np.ndarray
    values: Values


class Parts(NamedTuple):
    parts: list[Part]
    bad: list[Bad]


class Decoded(NamedTuple):
    batches: list[Batch]
    bad: list[Bad]


@dataclass(frozen=True, slots=True)
class Decoding:
    """`key` None: keys are not needed, and are null. `header`: the converter of headers, empty if they are not needed."""

    value: Converter
    key: Converter | None = None
    header: str = ""

    def decode(self, records: pa.RecordBatch, topic: str, partition: int) -> Decoded:
        """Records of one topic partition, in order."""
        count = records.num_rows
        keys = read_values(records.column(KEY), self.key) if self.key else _no_keys(count)
        values = read_values(records.column(VALUE), self.value)
        failed = {one.row: Bad(one.row, f"its key does not fit: {one.reason}", KEY_CONVERTER) for one in keys.bad}
        for one in values.bad:
            failed.setdefault(one.row, one)
        bad = sorted(failed.values())
        headers = read_headers(records.column(HEADERS), self.header) if self.header else None
        offsets = records.column(OFFSET).to_numpy()
        timestamps = _timestamps(records.column(TIMESTAMP))
        batches = []
        for rows, key, value in _crossed(keys.parts, values.parts, count, list(failed)):
            batches.append(
                Batch(
                    rows,
                    topic,
                    key,
                    value,
                    timestamps if len(rows) == count else timestamps.take(pa.array(rows)),
                    partition,
                    offsets[rows],
                    None if headers is None else [headers[row] for row in rows],
                )
            )
        return Decoded(batches, bad)


def _no_keys(count: int) -> Parts:
    return Parts([Part(np.arange(count), Untyped([None] * count))], [])


def _timestamps(column: pa.Array) -> pa.Array:
    """Milliseconds; null for a record without a timestamp, which Kafka has as -1."""
    micros = pc.fill_null(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), -1000)
    millis = micros.to_numpy(zero_copy_only=False) // 1000
    return pa.array(millis, pa.int64(), mask=millis == -1)


def _crossed(
    keys: Sequence[Part], values: Sequence[Part], count: int, failed: Sequence[int]
) -> Iterable[tuple[np.ndarray, Values, Values]]:
    """One batch for each pair of a key's and a value's schema."""
    which, places = np.full(count, NONE), np.full(count, NONE)
    for at, part in enumerate(keys):
        which[part.rows], places[part.rows] = at, np.arange(len(part.rows))
    is_good = np.ones(count, bool)
    is_good[list(failed)] = False
    for part in values:
        good = is_good[part.rows]
        for at, key in enumerate(keys):
            chosen = np.flatnonzero(good & (which[part.rows] == at))
            if len(chosen):
                rows = part.rows[chosen]
                yield rows, _taken(key.values, places[rows]), _taken(part.values, chosen)


def _taken(values: Values, places: np.ndarray) -> Values:
    return values if len(places) == len(values) else values.take(places)


# Keys and values


def read_values(column: pa.Array, converter: Converter) -> Parts:
    """`column` is binary. No row is in two parts, and the rows of `bad` are in none."""
    if converter.name == BYTES:
        return Parts([Part(np.arange(len(column)), Typed(_OPTIONAL_BYTES, column.cast(pa.binary())))], [])
    if converter.name == STRING:
        return _read_strings(column)
    payloads = read_payloads(column, converter)
    bad = list(payloads.bad)
    columns = Columns(converter, single=_SINGLE, takes_empty=True)
    typed: dict[Schema, list[Part]] = {}
    untyped: dict[int, object] = dict.fromkeys(np.flatnonzero(payloads.tombstones).tolist())
    for row, at in payloads.nulls.items():
        untyped.pop(row)
        schema = payloads.schemas[at]
        assert schema is not None  # noqa: S101  of a null under a schema
        typed.setdefault(schema, []).append(Part(np.array([row]), Typed(schema, pa.nulls(1, arrow_type(schema)))))
    for at, own in enumerate(payloads.schemas):
        rows = np.flatnonzero(payloads.which == at)
        schema = own or columns.stated()
        if schema is None:
            bad += _read_untyped(payloads, rows, untyped)
        elif len(rows):
            part, unfit = _read_typed(payloads, rows, schema, columns)
            bad += unfit
            typed.setdefault(schema, []).append(part)
    parts = [_together(schema, found) for schema, found in typed.items()]
    if untyped:
        parts.append(Part(np.array(sorted(untyped)), Untyped([untyped[row] for row in sorted(untyped)])))
    return Parts([part for part in parts if len(part.rows)], sorted(bad))


def _read_strings(column: pa.Array) -> Parts:
    strings, bad = read_utf8(column.cast(pa.binary())) if not column.null_count else _read_some(column)
    rows = np.delete(np.arange(len(column)), [one.row for one in bad])
    kept = strings if not bad else strings.take(pa.array(rows))
    return Parts([Part(rows, Typed(_OPTIONAL_STRING, kept))] if len(rows) else [], bad)


def _read_some(column: pa.Array) -> tuple[pa.Array, list[Bad]]:
    """Nulls among them."""
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    strings, bad = read_utf8(column.drop_null())
    places = np.full(len(column), NONE)
    places[present] = np.arange(len(present))
    spread = strings.take(pa.array(places, mask=places == NONE))
    return spread, [Bad(int(present[one.row]), one.reason) for one in bad]


def _read_typed(payloads: Payloads, rows: np.ndarray, schema: Schema, columns: Columns) -> tuple[Part, list[Bad]]:
    if reason := columns.refusal(schema):
        return Part(rows[:0], Untyped([])), [Bad(int(row), reason) for row in rows]
    texts = payloads.texts if len(rows) == len(payloads.texts) else payloads.texts.take(pa.array(rows))
    found, unfit = columns.read(texts, schema)
    kind = arrow_type(schema)
    values = pa.StructArray.from_arrays(found.columns, fields=list(kind)) if schema.fields else found.column(0)
    kept = np.delete(rows, [one.row for one in unfit])
    return Part(kept, Typed(schema, values)), [Bad(int(rows[one.row]), one.reason) for one in unfit]


def _together(schema: Schema, parts: Sequence[Part]) -> Part:
    filled = [part for part in parts if len(part.rows)]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    rows = np.concatenate([part.rows for part in filled])
    order = np.argsort(rows, kind="stable")
    columns = [part.values.column for part in filled if isinstance(part.values, Typed)]
    return Part(rows[order], Typed(schema, pa.concat_arrays(columns).take(pa.array(order))))


# Without a schema


def _read_untyped(payloads: Payloads, rows: np.ndarray, found: dict[int, object]) -> list[Bad]:
    bad = []
    for row in rows.tolist():
        try:
            found[row] = plain_value(decode(payloads.texts[row].as_py()))
        except Unfit as error:
            bad.append(Bad(row, str(error)))
    return bad


def plain_value(given: object) -> object:
    """As JsonConverter has it without a schema. Raises Unfit for what it would wrap or round to infinity."""
    if isinstance(given, Number):
        return _number(given)
    if isinstance(given, str):
        return whole_text(given, "")
    if isinstance(given, list):
        return [plain_value(item) for item in given]
    if isinstance(given, dict):
        return {whole_text(name, ""): plain_value(item) for name, item in given.items()}
    return given


def _number(given: Number) -> float:
    if given.lstrip("-").isdigit():
        if len(given) > 20 or (whole := int(given)) not in _LONG:
            raise Unfit(f"{given[:40]} is beyond the 64 bits of a number without a schema")
        return whole
    made = float(given)
    if made in (float("inf"), float("-inf")):
        raise Unfit(f"{given[:40]} is beyond the range of a double")
    return made + 0.0  # Connect reads floats as BigDecimal, which has no -0.0


# Headers


def read_headers(column: pa.Array, converter: str) -> list[Headers]:
    """As Spark's Kafka reader gives them: for each record a list of names and bytes, or null."""
    return [_headers(listed, converter) for listed in column.to_pylist()]


def _headers(listed: Sequence[Mapping[str, bytes | str | None]] | None, converter: str) -> Headers:
    return tuple(Header(str(one["key"]), *_header_value(one["value"], converter)) for one in listed or ())


def _header_value(value: object, converter: str) -> Parsed:
    if converter == BYTES:
        return _OPTIONAL_BYTES, value
    if converter == STRING:
        return _OPTIONAL_STRING, value.decode(errors="replace") if isinstance(value, bytes) else None
    return _parsed(value) if isinstance(value, bytes) else (None, None)


@lru_cache(maxsize=1024)
def _parsed(value: bytes) -> Parsed:
    """SimpleHeaderConverter: bytes that are no UTF-8 get Java's replacement characters."""
    return parse_literal(value.decode(errors="replace"))
