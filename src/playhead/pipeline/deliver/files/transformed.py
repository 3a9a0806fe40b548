"""What the files of a connector with transforms get: the values that the chain leaves, as lines, columns or bytes.

Lines are what JsonFormat writes of a value: JsonConverter's text of a struct, and of other values that of Java's plain classes.
Records keep their order, also where the chain makes several topics or schemas of them.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from playhead.connect.javajson import java_float
from playhead.model import TopicPartition
from playhead.pipeline.deliver.chain import SinkChain
from playhead.pipeline.deliver.files.format import Content, Contents, Piece, field_of
from playhead.pipeline.deliver.files.options import BYTES, PARQUET
from playhead.pipeline.deliver.files.partition import is_safe
from playhead.pipeline.deliver.files.routed import unsafe
from playhead.pipeline.records.arrowtypes import arrow_schema
from playhead.pipeline.records.batch import TASK_PUT, Bad, Batch, Moment, Typed, Unfit, Untyped, Values
from playhead.pipeline.records.decode.columns import Columns, runs_of
from playhead.pipeline.records.decode.fields import read_field
from playhead.pipeline.records.encode.converters import encode, json_text
from playhead.pipeline.records.encode.options import Converter
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms.apply import Transformed
from playhead.pipeline.records.transforms.arrow.values import null_rows
from playhead.pipeline.records.uniform import Uniform

_LINES = Converter(schemas_enable=False)


class _Written(NamedTuple):
    """The content of values of one schema. `kept`: the places of those that have one."""

    kept: np.ndarray
    content: Content
    schema: str
    bad: list[Bad]


@dataclass(slots=True)
class _Group:
    """Of one schema, from all batches."""

    rows: list[np.ndarray] = field(default_factory=list)
    topics: list[np.ndarray] = field(default_factory=list)
    contents: list[Content] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chained:
    """Picklable. `given`: the schema of Parquet files for values that have none."""

    chain: SinkChain
    kind: str
    given: Schema | None = None

    def convert(self, records: pa.RecordBatch, place: TopicPartition) -> Contents:
        return self.contents(self.chain.apply(records, place), records.num_rows)

    def contents(self, made: Transformed, count: int) -> Contents:
        bad, tombstones = list(made.bad), np.zeros(count, bool)
        groups: dict[str, _Group] = {}
        targets: dict[str, int] = {}
        for whole in made.batches:
            batch = _present(whole, tombstones)
            if not len(batch):
                continue
            if not is_safe(batch.topic):
                bad += unsafe(batch.topic, batch.rows)
                continue
            written = self._written(batch.value)
            bad += [Bad(int(batch.rows[one.row]), one.reason, TASK_PUT) for one in written.bad]
            if len(written.kept):
                group = groups.setdefault(written.schema, _Group())
                group.rows.append(batch.rows[written.kept])
                group.contents.append(written.content)
                topic = targets.setdefault(batch.topic, len(targets))
                group.topics.append(np.full(len(written.kept), topic, np.int32))
        return Contents(list(self._pieces(groups)), tombstones, sorted(bad), made.filtered, list(targets))

    def _pieces(self, groups: dict[str, _Group]) -> Iterator[Piece]:
        """In the order of rows, cut where the schema changes."""
        wholes = [_together(schema, group) for schema, group in groups.items()]
        for at, start, stop in runs_of([whole.rows for whole in wholes]):
            whole = wholes[at]
            content = whole.content.slice(start, stop - start)
            assert whole.topics is not None  # noqa: S101  all of them have one
            yield Piece(whole.rows[start:stop], content, whole.schema, self._field(content), whole.topics[start:stop])

    def _field(self, content: Content) -> Callable[[str], pa.Array | None]:
        return partial(field_of, content) if self.kind == PARQUET else partial(read_field, content)

    def _written(self, values: Values) -> _Written:
        if self.kind == BYTES:
            return _octets(values)
        if self.kind != PARQUET:
            return _lines(values)
        return self._columns(values.schema, values.column) if isinstance(values, Typed) else self._read(values)

    def _columns(self, schema: Schema, column: pa.Array) -> _Written:
        if reason := Columns(self.chain.decoding.value).refusal(schema):
            return _none(column, reason)
        nulls = null_rows(column, schema)
        kept = np.delete(np.arange(len(column)), nulls)
        made = column if not nulls else column.take(pa.array(kept))
        columns = pa.RecordBatch.from_arrays(made.flatten(), schema=arrow_schema(schema))
        bad = [Bad(row, "it has a null that its schema does not allow") for row in nulls]
        return _Written(kept, columns, schema.text, bad)

    def _read(self, values: Untyped) -> _Written:
        """By the schema that was inferred, as values of the topic would be."""
        if self.given is None:
            return _none(range(len(values)), "it has no schema, and none is given")
        kept, texts, _, bad = _lines(values)
        columns, unfit = Columns(self.chain.decoding.value, self.given).read(texts, self.given)
        bad += [Bad(int(kept[one.row]), one.reason) for one in unfit]
        return _Written(np.delete(kept, [one.row for one in unfit]), columns, self.given.text, bad)


def _present(batch: Batch, tombstones: np.ndarray) -> Batch:
    """Those that have a value; the others are marked."""
    is_null = batch.value.nulls()
    tombstones[batch.rows[is_null]] = True
    return batch.take(np.flatnonzero(~is_null))


def _together(schema: str, group: _Group) -> Piece:
    rows, topics = np.concatenate(group.rows), np.concatenate(group.topics)
    content = group.contents[0]
    if len(group.contents) > 1:
        order = np.argsort(rows, kind="stable")
        if isinstance(content, pa.RecordBatch):
            content = pa.Table.from_batches(group.contents).combine_chunks().to_batches()[0]
        else:
            content = pa.concat_arrays(group.contents)
        rows, topics, content = rows[order], topics[order], content.take(pa.array(order))
    return Piece(rows, content, schema, lambda _: None, topics)


def _none(values: Sequence[object], reason: str) -> _Written:
    return _Written(np.empty(0, np.int64), None, "", [Bad(row, reason) for row in range(len(values))])


def _octets(values: Values) -> _Written:
    if isinstance(values, Typed) and values.schema.type == "bytes" and not values.schema.is_decimal:
        return _Written(np.arange(len(values)), values.column, "", [])
    return _none(range(len(values)), "it is not bytes, and ByteArrayFormat writes nothing else")


def _lines(values: Values) -> _Written:
    if isinstance(values, Typed | Uniform):
        typed = values if isinstance(values, Typed) else values.typed()
        texts, bad = encode(typed, _LINES)
        kept = np.delete(np.arange(len(values)), [one.row for one in bad])
        schema = values.schema.text if isinstance(values, Typed) else ""
        return _Written(kept, texts if not bad else texts.take(pa.array(kept)), schema, bad)
    made: list[bytes] = []
    bad = []
    for row, value in enumerate(values.values):
        try:
            made.append(plain_json(value).encode())
        except Unfit as error:
            bad.append(Bad(row, str(error)))
    kept = np.delete(np.arange(len(values)), [one.row for one in bad])
    return _Written(kept, pa.array(made, pa.binary()), "", bad)


def _number(value: np.generic) -> str:
    if not isinstance(value, np.float32):
        return str(value)
    return java_float(value) if np.isfinite(value) else json.dumps(java_float(value))


def plain_json(value: object) -> str:
    """The text that Jackson's own mapper writes of Java's plain classes: a date is its milliseconds."""
    match value:
        case Moment():
            return str(value.millis)
        case np.generic():
            return _number(value)
        case list():
            return "[" + ",".join(map(plain_json, value)) + "]"
        case dict():
            return "{" + ",".join(f"{json_text(name)}:{plain_json(one)}" for name, one in value.items()) + "}"
        case _:
            return json_text(value)
