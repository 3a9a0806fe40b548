"""The lines that FileStreamSink writes: the text that Java's own `toString` makes of each value, see `records/javatext`.

A date is `Thu Jan 01 00:00:00 UTC 1970`: of a worker whose time zone is UTC. Bytes have no text, nor have numbers beyond 64 bits
without a schema (Connect wraps them): such records are bad.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.connect.javajson import java_double, java_float
from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.records.batch import Bad, Moment, Typed, Values
from playhead.pipeline.records.decode.columns import ColumnPart, Columns, Converted
from playhead.pipeline.records.decode.exact import Unfit, whole_text
from playhead.pipeline.records.decode.jsontext import Number, decode, settle
from playhead.pipeline.records.decode.options import Converter
from playhead.pipeline.records.decode.payloads import NONE, Payloads, read_payloads
from playhead.pipeline.records.encode.converters import java_text
from playhead.pipeline.records.encode.options import JSON
from playhead.pipeline.records.javatext import JavaText, map_text
from playhead.pipeline.records.schema import Schema

_SINGLE = "value"
_LONG = range(-(1 << 63), 1 << 63)
_FIRST_GREGORIAN_SECOND = -12_219_292_800
_DATE = "%a %b %d %H:%M:%S UTC %Y"


@dataclass(frozen=True, slots=True)
class JavaLines:
    """`lines`: one text a row, `null` for a null value, nothing (an Arrow null) for a bad row."""

    converter: Converter

    def lines(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[Bad]]:
        if self.converter.name == JSON and not self.converter.schemas_enable:
            return _without_schema(read_payloads(batch.column(VALUE), self.converter))
        columns = Columns(self.converter, single=_SINGLE, takes_empty=True)
        if not self.converter.has_envelopes:
            return _with_schemas(columns.convert(batch))
        payloads = read_payloads(batch.column(VALUE), self.converter)
        if None not in payloads.schemas:
            return _with_schemas(columns.convert_payloads(payloads))
        is_bare = payloads.which == payloads.schemas.index(None)
        bare, bad_ones = _without_schema(replace(payloads, which=np.where(is_bare, payloads.which, NONE), bad=[]))
        texts, bad = _with_schemas(
            columns.convert_payloads(replace(payloads, which=np.where(is_bare, NONE, payloads.which)))
        )
        return pc.if_else(pa.array(is_bare), bare, texts), sorted(bad + bad_ones)


def value_texts(values: Values) -> tuple[np.ndarray, pa.Array, list[Bad]]:
    """Of values that transforms have left: the places of those that have a text, and their texts."""
    if isinstance(values, Typed):
        pieces, bad = _column_texts(values.column, values.schema)
        texts = pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())
    else:
        made: list[str | None] = []
        bad = []
        for row, value in enumerate(values.values):
            try:
                made.append(_value_text(value))
            except Unfit as error:
                bad.append(Bad(row, str(error)))
        texts = pa.array(made, pa.string())
    return np.delete(np.arange(len(values)), [one.row for one in bad]), texts, bad


# Under a schema, by columns


def _with_schemas(found: Converted) -> tuple[pa.Array, list[Bad]]:
    texts, bad = [pa.array(["null"], pa.string())], list(found.bad)
    places = np.full(len(found.tombstones), NONE)
    places[found.tombstones] = 0
    made = 1
    for part in found.parts:
        more, unfit = _texts(part)
        bad += [Bad(int(part.rows[one.row]), one.reason) for one in unfit]
        rows = np.delete(part.rows, [one.row for one in unfit])
        places[rows] = np.arange(made, made + len(rows))
        texts += more
        made += len(rows)
    return pa.concat_arrays(texts).take(pa.array(places, mask=places == NONE)), sorted(bad)


def _texts(part: ColumnPart) -> tuple[list[pa.Array], list[Bad]]:
    columns, schema = part.columns, part.schema
    return _column_texts(columns.to_struct_array() if schema.fields else columns.column(0), schema)


def _column_texts(values: pa.Array, schema: Schema) -> tuple[list[pa.Array], list[Bad]]:
    """Those of the rows that have one, in pieces, and why the others have none."""
    texts: list[pa.Array] = []
    bad: list[Bad] = []

    def fast(start: int, stop: int) -> bool:
        try:
            texts.append(pc.fill_null(_TEXT.of(values.slice(start, stop - start), schema), "null"))
        except Unfit:
            return False
        return True

    def slow(row: int) -> None:
        try:
            texts.append(pc.fill_null(_TEXT.of(values.slice(row, 1), schema), "null"))
        except Unfit as error:
            bad.append(Bad(row, str(error)))

    settle(len(values), fast, slow)
    return texts, bad


def _dates(values: pa.Array) -> pa.Array:
    """`java.util.Date`, for a Time of the first day of 1970."""
    kind = pa.timestamp("s", tz="UTC")
    if pa.types.is_time(values.type):
        values = values.cast(pa.int32()).cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    moments = pc.floor_temporal(values.cast(pa.timestamp("ms", tz="UTC")), unit="second").cast(kind)
    if pc.min(moments.cast(pa.int64())).as_py() < _FIRST_GREGORIAN_SECOND:
        raise Unfit("it has a date before 1582-10-15, for which Java has another calendar")
    return pc.strftime(moments, format=_DATE)


_TEXT = JavaText(_dates, signed_zeros=False)


# Without one, record by record: the order of a map depends on its keys


def _without_schema(payloads: Payloads) -> tuple[pa.Array, list[Bad]]:
    bad = list(payloads.bad)
    texts: list[str | None] = ["null"] * len(payloads.texts)
    for row in [one.row for one in bad]:
        texts[row] = None
    for row in np.flatnonzero(payloads.which != NONE).tolist():
        try:
            texts[row] = _json_text(decode(payloads.texts[row].as_py()))
        except Unfit as error:
            texts[row] = None
            bad.append(Bad(row, str(error)))
    return pa.array(texts, pa.string()), sorted(bad)


def _json_text(given: object) -> str:
    if given is None:
        return "null"
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, Number):
        return _number_text(given)
    if isinstance(given, list):
        return "[" + ", ".join(map(_json_text, given)) + "]"
    if isinstance(given, dict):
        return map_text((whole_text(name, ""), _json_text(value)) for name, value in given.items())
    return whole_text(given, "")


def _value_text(value: object) -> str:
    """Of a value without a schema, whose Java class a transform may have changed."""
    match value:
        case dict():
            return map_text((name, _value_text(one)) for name, one in value.items())
        case list():
            return "[" + ", ".join(map(_value_text, value)) + "]"
        case Moment():
            return str(_dates(pa.array([value.millis], pa.timestamp("ms", tz="UTC")))[0].as_py())
        case np.generic():
            return java_float(value) if isinstance(value, np.float32) else str(value)
        case _:
            return java_text(value)


def _number_text(given: Number) -> str:
    if given.lstrip("-").isdigit():
        if (whole := int(given)) not in _LONG:
            raise Unfit(f"{given[:40]} is beyond the 64 bits of a number without a schema")
        return str(whole)
    made = float(given)
    if made in (float("inf"), float("-inf")):
        raise Unfit(f"{given[:40]} is beyond the range of a double")
    return java_double(made + 0.0)  # Connect reads floats as BigDecimal, which has no -0.0
