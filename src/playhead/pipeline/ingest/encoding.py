"""Rows as they were read -> the keys, values and headers that Connect would write, by batches, in the task.

A batch of rows becomes the records of Connect's source (`rows`), goes through the connector's transforms, and is written by its
converters. Records keep the order of their rows. A row that has no record ends the task with one sentence, which names the
column or the transform, and the row by its cursor. It never names what would have been written instead.

StringConverter writes what the connector's own objects print. Where a time column goes through transforms that could change it,
its schema is marked: what still has the mark after the chain is the column, whose text is known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Invalid, Rejected
from playhead.pipeline.digest import Digest, hashes_of
from playhead.pipeline.ingest.source import CURSOR_ID, CURSOR_TIME, Last
from playhead.pipeline.records.batch import KEY_CONVERTER, VALUE_CONVERTER, Bad, Batch, Headers, Typed, Untyped, Values
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.header_text import header_octets
from playhead.pipeline.records.encode.options import STRING, Converter, RecordOptions
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms import Cast, HeaderFrom, MaskField, TimestampConverter
from playhead.pipeline.records.transforms.apply import apply_chain

_MARK = "playhead.column"
_RETYPING = (Cast, MaskField, TimestampConverter, HeaderFrom)

RecordHeaders = list[tuple[str, bytes | None]]


class RowReader(Protocol):
    """Rows of one source. Sent to the executors."""

    def read(self, columns: Mapping[str, pa.Array]) -> Typed:
        """Raises Rejected for a value that must not be written."""
        ...

    def texts(self, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """What objects of the source print, of the columns whose values do not say it: times."""
        ...

    def as_texts(self) -> "RowReader":
        """The same rows with these texts in place of their columns."""
        ...

    @property
    def names(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """The records of a batch of rows, as binary columns. `keys` None: none has a key; `headers` None: none has any. `hashes`: of
    the values. `last`: the cursor of the last row that was read, whether or not it became a record."""

    values: pa.Array = field(repr=False)
    keys: pa.Array | None = field(repr=False)
    headers: Sequence[RecordHeaders] | None = field(repr=False)
    hashes: np.ndarray = field(repr=False, compare=False)
    digest: Digest
    last: Last

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + (0 if self.keys is None else int(self.keys.nbytes))


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """`topic`: before any transform. `id_name` and `time_name` are the columns of the cursor in the user's words, if the mode has
    them."""

    rows: RowReader
    options: RecordOptions
    topic: str
    id_name: str | None = None
    time_name: str | None = None

    def __call__(self, raw: pa.RecordBatch) -> Encoded:
        columns = dict(zip(self.rows.names, raw.columns, strict=False))
        batch, texts = self._read(raw, columns)
        parts, bad = [batch], list[Bad]()
        if self.options.transforms:
            done = apply_chain(self.options.transforms, batch)
            parts, bad = done.batches, done.bad
        written = [self._written(part, texts, bad) for part in parts]
        if bad:
            first = min(bad)
            raise self._rejected(raw, first.row, first.reason)
        return _joined(written, self.last(raw, raw.num_rows - 1))

    def last(self, raw: pa.RecordBatch, row: int) -> Last:
        ids, times = (cursor_column(raw, name) for name in (CURSOR_ID, CURSOR_TIME))
        return Last(None if ids is None else ids[row].as_py(), None if times is None else times[row].as_py())

    # Rows

    def _read(self, raw: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> tuple[Batch, Mapping[str, pa.Array]]:
        texts: Mapping[str, pa.Array] = {}
        reader = self.rows.as_texts() if self._is_all_text else self.rows
        try:
            value = reader.read(columns)
            if self._has_text and not self._is_all_text:
                texts = self.rows.texts(columns)
                value = Typed(_marked(value.schema, texts), value.column)
        except Rejected as error:
            row = self._first_bad(columns, raw.num_rows)
            raise self._rejected(raw, row, error.what) from None
        count = len(value)
        nothing = Untyped([None] * count)
        return Batch(np.arange(count), self.topic, nothing, value, pa.nulls(count, pa.int64())), texts

    def _first_bad(self, columns: Mapping[str, pa.Array], count: int) -> int:
        """The first row that has no record, by halves."""
        reader = self.rows.as_texts() if self._is_all_text else self.rows
        start, stop = 0, count
        while stop - start > 1:
            middle = (start + stop) // 2
            part = {name: column.slice(start, middle - start) for name, column in columns.items()}
            try:
                reader.read(part)
                if self._has_text and not self._is_all_text:
                    self.rows.texts(part)
            except Rejected:
                stop = middle
            else:
                start = middle
        return start

    def _rejected(self, raw: pa.RecordBatch, row: int, what: str) -> Rejected:
        last = self.last(raw, row)
        words = [f"{self.id_name}={last.id}"] if self.id_name is not None and last.id is not None else []
        if self.time_name is not None and last.time_micros is not None:
            words.append(f"{self.time_name}={_moment_text(last.time_micros)}")
        return Rejected(f"{what}; the row is {', '.join(words)}" if words else what)

    # Records

    @property
    def _converters(self) -> list[Converter]:
        return [self.options.value, *([self.options.key] if self.options.key else [])]

    @property
    def _has_text(self) -> bool:
        return any(one.name == STRING for one in self._converters)

    @property
    def _is_all_text(self) -> bool:
        """All is written as text, and no transform looks at a time."""
        return all(one.name == STRING for one in self._converters) and not any(
            isinstance(stage.change, _RETYPING) for stage in self.options.transforms
        )

    def _written(self, batch: Batch, texts: Mapping[str, pa.Array], bad: list[Bad]) -> "_Written":
        def octets(values: Values, converter: Converter, stage: str) -> pa.Array:
            if texts and isinstance(values, Typed):
                is_text = converter.name == STRING
                values = _with_texts(values, texts, batch.rows) if is_text else _unmarked(values)
            made, wrong = encode(values, converter, stage)
            bad.extend(one._replace(row=int(batch.rows[one.row])) for one in wrong)
            return made

        keys = None
        if isinstance(batch.key, Typed) or batch.key.values.count(None) < len(batch.key.values):
            if self.options.key is None:
                raise Invalid("a transform creates keys, and no key.converter is known", "set key.converter")
            keys = octets(batch.key, self.options.key, KEY_CONVERTER)
        values = octets(batch.value, self.options.value, VALUE_CONVERTER)
        return _Written(batch.rows, values, keys, _header_lists(batch, bad))


@dataclass(frozen=True, slots=True)
class _Written:
    rows: np.ndarray
    values: pa.Array
    keys: pa.Array | None
    headers: list[RecordHeaders] | None


def cursor_column(raw: pa.RecordBatch, name: str) -> pa.Array | None:
    """Whole numbers: ids, or microseconds. After the columns of the record, one of which may have the same name."""
    found = raw.schema.get_all_field_indices(name)
    if not found:
        return None
    column = raw.column(found[-1])
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64())


def _joined(parts: Sequence[_Written], last: Last) -> Encoded:
    """In the order of the rows, whatever batches the transforms made of them."""
    if not parts:
        return Encoded(pa.array([], pa.binary()), None, None, np.empty(0, np.int64), Digest(), last)
    values, keys, headers = parts[0].values, parts[0].keys, parts[0].headers
    if len(parts) > 1:
        order = np.argsort(np.concatenate([part.rows for part in parts]), kind="stable")
        values = pa.concat_arrays([part.values for part in parts]).take(pa.array(order))
        if any(part.keys is not None for part in parts):
            all_keys = [pa.nulls(len(part.rows), pa.binary()) if part.keys is None else part.keys for part in parts]
            keys = pa.concat_arrays(all_keys).take(pa.array(order))
        if any(part.headers is not None for part in parts):
            listed = [one for part in parts for one in part.headers or [[]] * len(part.rows)]
            headers = [listed[row] for row in order]
    digest = Digest()
    hashes = hashes_of(values.to_pylist())
    if len(values):
        digest.add_hashes(hashes)
    return Encoded(values, keys, headers, hashes, digest, last)


def _header_lists(batch: Batch, bad: list[Bad]) -> list[RecordHeaders] | None:
    if batch.headers is None or not any(batch.headers):
        return None
    known: dict[int, RecordHeaders] = {}  # InsertHeader gives all records the same ones

    def octets(headers: Headers, row: int) -> RecordHeaders:
        found = known.get(id(headers))
        if found is None:
            try:
                found = [(one.name, header_octets(one)) for one in headers]
            except Invalid as error:
                bad.append(Bad(int(batch.rows[row]), error.what))
                found = []
            known[id(headers)] = found
        return found

    return [octets(headers, row) for row, headers in enumerate(batch.headers)]


def _moment_text(micros: int) -> str:
    text = str(pa.array([micros], pa.timestamp("us")).cast(pa.string())[0].as_py())
    return text.rstrip("0").rstrip(".")


# The texts of times


def _marked(schema: Schema, texts: Mapping[str, pa.Array]) -> Schema:
    def mark(name: str, inner: Schema) -> Schema:
        return replace(inner, parameters=(*inner.parameters, (_MARK, name))) if name in texts else inner

    return replace(schema, fields=tuple((name, mark(name, inner)) for name, inner in schema.fields))


def _unmarked(values: Typed) -> Typed:
    return Typed(_without_marks(values.schema), values.column)


def _without_marks(schema: Schema) -> Schema:
    return replace(
        schema,
        parameters=tuple(one for one in schema.parameters if one[0] != _MARK),
        fields=tuple((name, _without_marks(inner)) for name, inner in schema.fields),
    )


def _with_texts(values: Typed, texts: Mapping[str, pa.Array], rows: np.ndarray) -> Typed:
    column = dict(values.schema.parameters).get(_MARK)
    if column is not None:
        made = texts[column].take(pa.array(rows))
        return Typed(Schema("string", values.schema.optional), pc.if_else(values.column.is_null(), None, made))
    if not values.schema.is_struct:
        return values
    inner = [
        _with_texts(Typed(schema, child), texts, rows)
        for (_, schema), child in zip(values.schema.fields, values.column.flatten(), strict=True)
    ]
    names = [name for name, _ in values.schema.fields]
    schema = replace(values.schema, fields=tuple((name, one.schema) for name, one in zip(names, inner, strict=True)))
    if not names:
        return values
    mask = values.column.is_null() if values.column.null_count else None
    return Typed(schema, pa.StructArray.from_arrays([one.column for one in inner], names=names, mask=mask))


@dataclass(frozen=True, slots=True)
class Records:
    """What a task makes of its part of a step's frame. Sent to the executors. `read`: None if the frame has the rows."""

    encode: RecordEncoder
    read: "RowSource | None" = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Encoded]:
        """Of a frame of the step, which has one partition per chunk."""
        if self.read is None:
            yield from self._encoded(batches)
        else:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                yield from self._encoded(self.read.chunk(number))

    def of_chunk(self, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Encoded]:
        """`batches`: the rows, if the frame has them. Then it has those of one chunk. They are taken to their end in any case:
        Spark ends a Python worker that left input unread, and the next step waits for another one."""
        if self.read is None:
            return self._encoded(batches)
        for _ in batches:
            pass
        return self._encoded(self.read.chunk(number))

    def _encoded(self, rows: Iterator[pa.RecordBatch]) -> Iterator[Encoded]:
        for raw in rows:
            if raw.num_rows:
                yield self.encode(raw)


class RowSource(Protocol):
    def chunk(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of the chunk with this number, in order."""
        ...
