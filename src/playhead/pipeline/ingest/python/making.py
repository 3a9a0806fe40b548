"""Records of a task -> keys, values and headers as Connect's converters write them, by topic, in the order of the records.

Records of one topic whose keys and whose values have one schema are one batch: Arrow columns, transforms and converters work on
it as on the rows of every other source. A record that cannot be written is named by its number in the poll.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from playhead.errors import Invalid, Rejected
from playhead.pipeline.digest import hashes_of
from playhead.pipeline.ingest.encoding import RecordHeaders
from playhead.pipeline.ingest.python.inference import header_of
from playhead.pipeline.ingest.python.shapes import Shape, Shapes
from playhead.pipeline.records.batch import KEY_CONVERTER, VALUE_CONVERTER, Bad, Batch, Headers, Untyped, Values
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.header_text import header_octets
from playhead.pipeline.records.encode.options import JSON, Converter
from playhead.pipeline.records.transforms import Stages
from playhead.pipeline.records.transforms.apply import apply_chain
from playhead.sdk.records import Headers as GivenHeaders
from playhead.sdk.records import RecordColumns, timestamp_ms


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records of one topic, in order. `rows`: which records of the poll they are. `keys` None: none has a key; `headers` None:
    none has any. `timestamps` None: that of the moment, which is also what 0 stands for; `partitions` None: by the keys, which is
    also what -1 stands for."""

    topic: str
    rows: np.ndarray
    values: pa.Array = field(repr=False)
    keys: pa.Array | None = field(default=None, repr=False)
    headers: Sequence[RecordHeaders] | None = field(default=None, repr=False)
    timestamps: np.ndarray | None = None
    partitions: np.ndarray | None = None

    def hashes(self) -> np.ndarray:
        return hashes_of(self.values.to_pylist())


@dataclass(frozen=True, slots=True)
class _Written:
    batch: Batch
    keys: pa.Array | None
    values: pa.Array
    headers: list[RecordHeaders] | None


class RecordMaker:
    """In the executor, for one task."""

    def __init__(self, key: Converter, value: Converter, transforms: Stages) -> None:
        self._key, self._value, self._transforms = key, value, transforms
        self._keys, self._values = (_shapes(one, transforms) for one in (key, value))

    def __call__(self, records: RecordColumns, first: int = 1) -> list[Outgoing]:
        """`first`: the number of the first of them in the poll."""
        try:
            return self._made(records)
        except _WrongRecord as error:
            raise Rejected(
                f"record {first + error.row} of the poll, for {records.topics[error.row]}, {error.what}"
            ) from None

    def _made(self, records: RecordColumns) -> list[Outgoing]:
        bad: list[Bad] = []
        batches = list(self._batches(records))
        if self._transforms:
            done = [apply_chain(self._transforms, batch) for batch in batches]
            batches = [batch for one in done for batch in one.batches]
            bad += [fault for one in done for fault in one.bad]
        written = [self._written(batch, bad) for batch in batches]
        if bad:
            first = min(bad)
            raise _WrongRecord(first.row, first.reason)
        topics: dict[str, list[_Written]] = {}
        for one in written:
            topics.setdefault(one.batch.topic, []).append(one)
        return [_outgoing(topic, parts, records.kafka_partitions) for topic, parts in topics.items()]

    # Batches

    def _batches(self, records: RecordColumns) -> Iterator[Batch]:
        topics = records.topics
        if not topics:
            return
        if topics.count(topics[0]) == len(topics):
            yield from self._of_topic(range(len(topics)), records)
            return
        by_topic: dict[str, list[int]] = {}
        for row, topic in enumerate(topics):
            by_topic.setdefault(topic, []).append(row)
        for rows in by_topic.values():
            yield from self._of_topic(rows, records.take(rows))

    def _of_topic(self, rows: Sequence[int], records: RecordColumns) -> Iterator[Batch]:
        """`rows`: where these records are in the poll."""
        keys = self._keys.column_alike(records.keys, records.key_schemas)
        values = None if keys is None else self._values.column_alike(records.values, records.value_schemas)
        if keys is not None and values is not None:
            yield _batch(rows, records, keys, values)
            return
        groups: dict[tuple[Shape, Shape], list[int]] = {}
        at, of_key, of_value = 0, self._keys.shape, self._values.shape
        columns = (records.keys, records.key_schemas, records.values, records.value_schemas)
        try:
            for at, (key, key_schema, value, value_schema) in enumerate(zip(*columns, strict=True)):
                groups.setdefault((of_key(key, key_schema), of_value(value, value_schema)), []).append(at)
        except Rejected as error:
            raise _WrongRecord(rows[at], error.what) from None
        for (key_shape, value_shape), some in groups.items():
            one = records if len(some) == len(rows) else records.take(some)
            where = [rows[at] for at in some]
            keys = self._column(self._keys, key_shape, one.keys, where)
            values = self._column(self._values, value_shape, one.values, where)
            yield _batch(where, one, keys, values)

    def _column(self, shapes: Shapes, shape: Shape, values: Sequence[Any], rows: Sequence[int]) -> Values:
        try:
            return shapes.column(shape, values)
        except Rejected as error:
            if len(values) == 1:
                raise _WrongRecord(rows[0], error.what) from None
        half = len(values) // 2  # one of the halves fails, and at last one record
        self._column(shapes, shape, values[:half], rows[:half])
        return self._column(shapes, shape, values[half:], rows[half:])

    # Bytes

    def _written(self, batch: Batch, bad: list[Bad]) -> _Written:
        def octets(values: Values, converter: Converter, stage: str) -> pa.Array:
            try:
                made, wrong = encode(values, converter, stage)
            except Invalid as error:
                raise _WrongRecord(int(batch.rows[0]), f"cannot be written: {error.what}") from None
            bad.extend(one._replace(row=int(batch.rows[one.row])) for one in wrong)
            return made

        has_keys = not isinstance(batch.key, Untyped) or any(one is not None for one in batch.key.values)
        keys = octets(batch.key, self._key, KEY_CONVERTER) if has_keys else None
        return _Written(batch, keys, octets(batch.value, self._value, VALUE_CONVERTER), _header_bytes(batch, bad))


class _WrongRecord(Exception):
    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row, self.what = row, what


def _shapes(converter: Converter, transforms: Stages) -> Shapes:
    """Without schemas and transforms a null is a null, whatever its type."""
    has_schemas = converter.name == JSON and converter.schemas_enable
    merges_nulls = converter.name == JSON and not has_schemas and not transforms
    return Shapes(must_have_schema=has_schemas, merges_nulls=merges_nulls)


def _batch(rows: Sequence[int], records: RecordColumns, keys: Values, values: Values) -> Batch:
    return Batch(
        np.asarray(rows, np.int64),
        records.topics[0],
        keys,
        values,
        _timestamps(records.timestamps),
        headers=_headers(records.headers, rows),
    )


def _timestamps(given: Sequence[datetime | int | None]) -> pa.Array:
    if given.count(None) == len(given):
        return pa.nulls(len(given), pa.int64())
    return pa.array([None if one is None else timestamp_ms(one) for one in given], pa.int64())


def _headers(given: Sequence[GivenHeaders | None], rows: Sequence[int]) -> list[Headers] | None:
    if not any(given):
        return None
    made: list[Headers] = []
    for row, one in zip(rows, given, strict=True):
        its = one or ()
        try:
            pairs = its.items() if isinstance(its, Mapping) else list(its)
            made.append(tuple(header_of(*pair) for pair in pairs))
        except (Rejected, TypeError, ValueError) as error:
            what = error.what if isinstance(error, Rejected) else f"has headers that are no pairs: {its!r}"
            raise _WrongRecord(row, what) from None
    return made


def _header_bytes(batch: Batch, bad: list[Bad]) -> list[RecordHeaders] | None:
    if batch.headers is None or not any(batch.headers):
        return None
    made: list[RecordHeaders] = []
    for row, headers in zip(batch.rows.tolist(), batch.headers, strict=True):
        try:
            made.append([(one.name, header_octets(one)) for one in headers])
        except Invalid as error:
            bad.append(Bad(row, error.what))
    return made


def _outgoing(topic: str, parts: Sequence[_Written], kafka_partitions: Sequence[int | None]) -> Outgoing:
    rows = np.concatenate([one.batch.rows for one in parts])
    order = None if len(parts) == 1 else np.argsort(rows, kind="stable")
    rows = rows if order is None else rows[order]
    values = _joined([one.values for one in parts], order)
    keys = None
    if any(one.keys is not None for one in parts):
        some = [pa.nulls(len(one.batch), pa.binary()) if one.keys is None else one.keys for one in parts]
        keys = _joined(some, order)
    headers = None
    if any(one.headers is not None for one in parts):
        listed = [header for one in parts for header in (one.headers or [[]] * len(one.batch))]
        headers = listed if order is None else [listed[at] for at in order]
    times = _joined([one.batch.timestamps for one in parts], order)
    has_partitions = kafka_partitions.count(None) < len(kafka_partitions)
    return Outgoing(
        topic,
        rows,
        values,
        keys,
        headers,
        None if times.null_count == len(times) else times.fill_null(0).to_numpy(zero_copy_only=False),
        np.array([_or_none(kafka_partitions[row]) for row in rows.tolist()]) if has_partitions else None,
    )


def _or_none(partition: int | None) -> int:
    return -1 if partition is None else partition


def _joined(parts: Sequence[pa.Array], order: np.ndarray | None) -> pa.Array:
    joined = parts[0] if len(parts) == 1 else pa.concat_arrays(list(parts))
    return joined if order is None else joined.take(pa.array(order))
