"""The lines that FileStreamSink writes: the text that Java's own `toString` makes of each value, see `records/javatext`.

A date is `Thu Jan 01 00:00:00 UTC 1970`: of a worker whose time zone is UTC. Bytes have no text, nor have numbers beyond 64 bits
without a schema (Connect wraps them): such records are bad.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.records.batch import VALUE_CONVERTER, Bad, Moment, Typed, Unfit, Values
from playhead.pipeline.records.decode.batches import read_values
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.decode.payloads import NONE
from playhead.pipeline.records.encode.converters import column_texts, each_written, java_text
from playhead.pipeline.records.javatext import JavaText
from playhead.pipeline.records.schema import Schema

_FIRST_GREGORIAN_SECOND = -12_219_292_800
_DATE = "%a %b %d %H:%M:%S UTC %Y"


@dataclass(frozen=True, slots=True)
class JavaLines:
    converter: Converter

    def lines(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[Bad]]:
        parts, bad = read_values(batch.column(VALUE), self.converter)
        texts, unfit = row_texts(parts, batch.num_rows)
        return texts, sorted([*bad, *unfit])


def row_texts(
    parts: Iterable[tuple[np.ndarray, Values]], count: int, stage: str = VALUE_CONVERTER
) -> tuple[pa.Array, list[Bad]]:
    """One text a row, `null` for a null value, nothing (an Arrow null) for a row that is bad or in no part."""
    texts, bad = [pa.array([], pa.string())], []
    places, at = np.full(count, NONE), 0
    for rows, values in parts:
        if isinstance(values, Typed):
            found, unfit = column_texts(values, _with_nulls, stage)
        else:
            made, unfit = each_written(values, lambda value: java_text(value, _moment_text), stage)
            found = pa.array(made, pa.string())
        bad += [one._replace(row=int(rows[one.row])) for one in unfit]
        places[rows] = np.arange(at, at + len(rows))
        at += len(rows)
        texts.append(found)
    return pa.concat_arrays(texts).take(pa.array(places, mask=places == NONE)), bad


def _with_nulls(values: pa.Array, schema: Schema) -> pa.Array:
    return pc.fill_null(_TEXT.of(values, schema), "null")


def _dates(values: pa.Array) -> pa.Array:
    """`java.util.Date`, for a Time of the first day of 1970."""
    kind = pa.timestamp("s", tz="UTC")
    if pa.types.is_time(values.type):
        values = values.cast(pa.int32()).cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    moments = pc.floor_temporal(values.cast(pa.timestamp("ms", tz="UTC")), unit="second").cast(kind)
    if pc.min(moments.cast(pa.int64())).as_py() < _FIRST_GREGORIAN_SECOND:
        raise Unfit("it has a date before 1582-10-15, for which Java has another calendar")
    return pc.strftime(moments, format=_DATE)


_TEXT = JavaText(_dates)


def _moment_text(value: Moment) -> str:
    return str(_dates(pa.array([value.millis], pa.timestamp("ms", tz="UTC")))[0].as_py())
