"""Records as they were consumed -> batches over which transforms run: what Connect's converters give to a sink.

Records of one schema are one batch, wherever they stand; `Batch.rows` says where. JsonConverter without schemas, and an envelope
whose schema is null, give values without a schema: whole numbers are Java's long, others its double. A null is one without a
schema, except that of StringConverter, of ByteArrayConverter, and of a payload under a schema.

A record is converted as Connect does it: first its key, then its value, then its headers; the first that fails is the reason why
it is bad. Keys are read only if they are asked for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.sink import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from playhead.pipeline.records.batch import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    Bad,
    Batch,
    Header,
    Headers,
    Unfit,
    Untyped,
    Values,
    at_rows,
)
from playhead.pipeline.records.decode.columns import OPTIONAL_BYTES, OPTIONAL_STRING, Columns, Part, Parts
from playhead.pipeline.records.decode.options import BYTES, Converter
from playhead.pipeline.records.decode.payloads import NONE
from playhead.pipeline.records.encode.options import STRING
from playhead.pipeline.records.literals import Parsed, parse_literal

_SINGLE = "value"


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
        keys = read_values(records.column(KEY), self.key) if self.key else no_keys(records.num_rows)
        return self.batches(records, topic, partition, keys, read_values(records.column(VALUE), self.value))

    def batches(self, records: pa.RecordBatch, topic: str, partition: int, keys: Parts, values: Parts) -> Decoded:
        """`keys` and `values`: those of the records."""
        count = records.num_rows
        failed = {one.row: Bad(one.row, f"its key does not fit: {one.reason}", KEY_CONVERTER) for one in keys.bad}
        for one in values.bad:
            failed.setdefault(one.row, one)
        headers, unread = read_headers(records.column(HEADERS), self.header) if self.header else (None, [])
        for one in unread:
            failed.setdefault(one.row, one)
        offsets = records.column(OFFSET).to_numpy()
        timestamps = _timestamps(records.column(TIMESTAMP))
        made = [
            Batch(
                rows,
                topic,
                key,
                value,
                at_rows(timestamps, rows),
                partition,
                offsets[rows],
                None if headers is None else [headers[row] for row in rows],
            )
            for rows, key, value in _crossed(keys.parts, values.parts, count, list(failed))
        ]
        return Decoded(made, sorted(failed.values()))


def no_keys(count: int) -> Parts:
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


def read_values(column: pa.Array, converter: Converter) -> Parts:
    """Keys or values; `column` is binary."""
    return Columns(converter, single=_SINGLE, takes_empty=True, takes_bare=True).read_parts(column)


# Headers


def read_headers(column: pa.Array, converter: str) -> tuple[list[Headers], list[Bad]]:
    """As Spark's Kafka reader gives them: for each record a list of names and bytes, or null."""
    flat = column.flatten()
    pairs = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)).tolist()
    made: list[Headers] = []
    bad = []
    for row, (start, end) in enumerate(pairwise([0, *ends])):
        try:
            made.append(tuple([Header(name, *_header_value(value, converter)) for name, value in pairs[start:end]]))
        except Unfit as error:
            made.append(())
            bad.append(Bad(row, f"one of its headers does not fit: {error}", HEADER_CONVERTER))
    return made, bad


def _header_value(value: object, converter: str) -> Parsed:
    if converter == BYTES:
        return OPTIONAL_BYTES, value
    if converter == STRING:
        return OPTIONAL_STRING, value.decode(errors="replace") if isinstance(value, bytes) else None
    return _parsed(value) if isinstance(value, bytes) else (None, None)


@lru_cache(maxsize=1024)
def _parsed(value: bytes) -> Parsed:
    """SimpleHeaderConverter: bytes that are no UTF-8 get Java's replacement characters."""
    return parse_literal(value.decode(errors="replace"))
