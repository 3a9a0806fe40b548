"""Rows of a database -> the struct that Connect's JDBC source makes of them, by columns of Arrow.

The columns are those of the select list of `encode/reads`: from PostgreSQL numerics and times of day as text, dates as days,
timestamps with microseconds. Drivers of other databases give numerics as decimals or numbers, and times as times.

A value that Connect would cut or fail at ends the read with one sentence that names its column. Dates and timestamps are counted
as Java's calendar counts them: see `javacalendar`. Whether a null is allowed is left to the converter, as in Connect.

StringConverter writes what the connector's own objects print, `java.sql.Date`, `Time` and `Timestamp`, which have microseconds
and a form of their own. With `printed` such columns are those texts, of a worker whose zone is UTC.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Rejected
from playhead.pipeline.records.arrowtypes import arrow_type, decimal_form
from playhead.pipeline.records.batch import Typed
from playhead.pipeline.records.encode.fields import POSTGRES, SQLITE, SqlField, SqlKind, Types
from playhead.pipeline.records.encode.options import RecordOptions
from playhead.pipeline.records.encode.reads import INFINITE_DAY, INFINITE_MICROS
from playhead.pipeline.records.encode.zones import UTC
from playhead.pipeline.records.javacalendar import (
    DAY_MICROS,
    DAY_MILLIS,
    GREGORIAN_DAY,
    GREGORIAN_MICROS,
    counted_days,
    counted_micros,
    instants_of,
    label_years,
    shown_micros,
)
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

_GAP_DAYS = (
    10  # 1582-10-05 to 14 are no labels of Java's calendar, which reads them as Julian and prints them as Gregorian
)
_MOST_MICROS_AS_NANOS = (2**63 - 1) // 1000
_CONNECT_LOGICAL = "connect_logical"
_NAMES = {SqlKind.DECIMAL: DECIMAL, SqlKind.DATE: DATE, SqlKind.TIME: TIME, SqlKind.TIMESTAMP: TIMESTAMP}
_NO_NUMBER = r"^-?(NaN|Infinity)$"
_TIME = r"^(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d+))?(?: (?P<o>-?\d+))?$"
_HINT = "use timestamp.granularity=connect_logical"
_WIDE = {128: pa.decimal128, 256: pa.decimal256}
_MOST_DIGITS = {128: 38, 256: 76}


@dataclass(frozen=True, slots=True)
class SqlRows:
    """`schema_name` is the bare table name, or empty for a query; `product` is JDBC's `getDatabaseProductName`."""

    fields: tuple[SqlField, ...]
    options: RecordOptions
    schema_name: str
    product: str = POSTGRES
    printed: bool = False

    @property
    def schema(self) -> Schema:
        return Schema(
            "struct", name=self.schema_name, fields=tuple((one.name, self._schema(one)) for one in self.fields)
        )

    @property
    def names(self) -> Sequence[str]:
        return [field.name for field in self.fields]

    def as_texts(self) -> "SqlRows":
        """The same rows with dates and times as their texts."""
        return replace(self, printed=True)

    def texts(self, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """The texts of the columns that are dates and times."""
        printed = self.as_texts()
        return {
            field.name: printed._column(columns[field.name], field)
            for field in self.fields
            if printed._is_printed(field)
        }

    def sample(self, given: Mapping[str, int]) -> pa.RecordBatch:
        """One row as it could have been read: `given` are whole numbers or milliseconds, all others zeros."""
        made = [_sample(field, given.get(field.name, 0)) for field in self.fields]
        return pa.RecordBatch.from_arrays(made, names=list(self.names))

    def read(self, columns: Mapping[str, pa.Array] | pa.RecordBatch) -> Typed:
        """Raises Rejected for a value that must not be written."""
        made = [self._column(columns[field.name], field) for field in self.fields]
        names = [field.name for field in self.fields]
        return Typed(self.schema, pa.StructArray.from_arrays(made, names=names))

    def _schema(self, field: SqlField) -> Schema:
        if self._is_printed(field):
            return Schema("string", field.column.nullable)
        return schema_of(field, self.options.timestamp_granularity)

    def _is_printed(self, field: SqlField) -> bool:
        is_time = field.kind in (SqlKind.DATE, SqlKind.TIME) or (
            field.kind is SqlKind.TIMESTAMP and self.options.timestamp_granularity == _CONNECT_LOGICAL
        )
        return self.printed and is_time

    def _column(self, column: pa.Array, field: SqlField) -> pa.Array:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        kind = arrow_type(self._schema(field))
        if column.null_count == len(column):
            return pa.nulls(len(column), kind)
        zone = "" if field.is_zoned or self.options.db_timezone == UTC else self.options.db_timezone
        match field.kind:
            case SqlKind.DATE:
                return _spread(column, lambda present: _dates(_days(present), field.name, printed=self.printed), kind)
            case SqlKind.TIME:
                return _spread(column, lambda present: _times(present, zone, field.name, printed=self.printed), kind)
            case SqlKind.TIMESTAMP:
                return _spread(column, lambda present: self._timestamps(_micros(present), zone, field), kind)
            case _ if field.is_numeric:
                return _numeric(column, field, kind, self.product)
            case _:
                return self._plain(column, field, kind)

    def _timestamps(self, labels: np.ndarray, zone: str, field: SqlField) -> pa.Array:
        if labels.max() >= INFINITE_MICROS:
            raise fault(
                field.name, "holds a timestamp that is infinite or cannot be read: none after the year 289999 can"
            )
        granularity = self.options.timestamp_granularity
        if granularity == _CONNECT_LOGICAL:
            if self.printed:
                return _printed_timestamps(labels, zone, field.name)
            return pa.array(counted_micros(labels, zone) // 1000)
        if "iso" in granularity:
            own = self.options.db_timezone
            return _iso(labels, zone, "" if own == UTC else own, field.name, nanos=granularity.startswith("nanos"))
        counts = _exact_counts(counted_micros(labels, zone), field.name, nanos=granularity.startswith("nanos"))
        return pa.array(counts).cast(pa.string()) if granularity.endswith("string") else pa.array(counts)

    def _plain(self, column: pa.Array, field: SqlField, kind: pa.DataType) -> pa.Array:
        if field.kind is SqlKind.BOOLEAN and pa.types.is_string(column.type):  # a bit(1) may be read as its digit
            return pc.equal(column, "1")
        try:
            return column if column.type == kind else column.cast(kind)
        except pa.ArrowInvalid:
            if self.product == SQLITE and field.column.jdbc_type == Types.INTEGER:
                raise fault(field.name, "holds an integer of more than 32 bits, which Connect would cut") from None
            raise fault(field.name, f"holds a value that is no {field.type}, which Connect would cut") from None


def schema_of(field: SqlField, granularity: str) -> Schema:
    """What the JDBC source says about a column."""
    optional = field.column.nullable
    if field.kind not in _NAMES or (field.kind is SqlKind.TIMESTAMP and granularity != _CONNECT_LOGICAL):
        return Schema(field.type, optional)
    parameters: tuple[tuple[str, str], ...] = ()
    if field.kind is SqlKind.DECIMAL:
        parameters = (("scale", str(field.scale)), ("connect.decimal.precision", str(field.column.precision)))
    return Schema(field.type, optional, _NAMES[field.kind], 1, parameters=parameters)


def _sample(field: SqlField, number: int) -> pa.Array:
    match field.kind:
        case SqlKind.TIMESTAMP:
            return pa.array([number * 1000], pa.timestamp("us"))
        case SqlKind.TIME:
            return pa.array(["00:00:00"])
        case SqlKind.DATE | SqlKind.INTEGER if not field.is_numeric:
            return pa.array([number])
        case SqlKind.BYTES:
            return pa.array([b""])
        case SqlKind.STRING:
            return pa.array([str(number)])
        case SqlKind.BOOLEAN:
            return pa.array([False])
        case _ if field.is_numeric:
            return pa.array([str(number)])
        case _:
            return pa.array([float(number)])


def fault(column: str, what: str) -> Rejected:
    return Rejected(f"column {column!r} {what}")


def _spread(column: pa.Array, read: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> pa.Array:
    """`read` for those that are there; the others stay null."""
    if not column.null_count:
        return read(column).cast(kind)
    made = read(column.drop_null()).cast(kind)
    return pc.replace_with_mask(pa.nulls(len(column), kind), column.is_valid(), made)


# Numbers


def _numeric(column: pa.Array, field: SqlField, kind: pa.DataType, product: str) -> pa.Array:
    if not pa.types.is_string(column.type):
        column = _number_texts(column, field)
    elif pc.any(pc.match_substring_regex(column, _NO_NUMBER)).as_py():
        raise fault(field.name, "holds a numeric that is no number, which Connect cannot write")
    if not pa.types.is_string(kind):
        return _to_decimals(column, field, kind, product) if pa.types.is_decimal(kind) else column.cast(kind)
    if not field.column.precision and _most_decimals(column) > field.scale:
        raise fault(field.name, f"holds a numeric with more than {field.scale} decimals, which Connect cannot write")
    return column


def _to_decimals(column: pa.Array, field: SqlField, kind: pa.DataType, product: str) -> pa.Array:
    """Of SQLite's numbers any may have more digits than its column says, and Connect writes them: as many as Arrow holds."""
    bits = kind.bit_width
    wide = kind
    if product != POSTGRES:
        wide, column = _WIDE[bits](_MOST_DIGITS[bits], kind.scale), _trimmed(column)
        if not pc.all(pc.match_substring_regex(column, decimal_form(wide)), min_count=0).as_py():
            what = f"holds a number with more than {field.scale} decimals or {wide.precision} digits"
            raise fault(field.name, f"{what}, which cannot be written")
    try:
        made = column.cast(wide)
    except pa.ArrowInvalid:
        raise fault(
            field.name, f"holds a number with more than {field.scale} decimals, which Connect cannot write"
        ) from None
    return pa.Array.from_buffers(kind, len(made), made.buffers(), offset=made.offset)


def _number_texts(column: pa.Array, field: SqlField) -> pa.Array:
    """Of decimals or numbers: with the field's own scale, whatever that of the column is."""
    scale = None if field.kind is SqlKind.DOUBLE else max(field.scale, 0)
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    texts = [
        None if value is None else f"{Decimal(str(value)):f}" for value in column.to_pylist()
    ]  # without an exponent
    trimmed = _trimmed(pa.array(texts, pa.string()))
    if scale is not None and _most_decimals(trimmed) > scale:
        raise fault(field.name, f"holds a number with more than {scale} decimals, which Connect cannot write")
    return trimmed


def _trimmed(texts: pa.Array) -> pa.Array:
    """Without zeros at the end of the decimals."""
    return pc.replace_substring_regex(pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1"), r"\.$", "")


def _most_decimals(texts: pa.Array) -> int:
    """Without the zeros at the end."""
    trimmed = pc.if_else(pc.match_substring(texts, "."), pc.ascii_rtrim(texts, "0"), texts)
    points = pc.find_substring(trimmed, ".")
    digits = pc.if_else(pc.equal(points, -1), 0, pc.subtract(pc.subtract(pc.binary_length(trimmed), points), 1))
    most: int | None = pc.max(digits).as_py()
    return most or 0


# Dates and times. Columns have no nulls here


def _days(column: pa.Array) -> np.ndarray:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.date32()).cast(pa.int32())
    found: np.ndarray = column.cast(pa.int64()).to_numpy()
    return found


def _micros(column: pa.Array) -> np.ndarray:
    """Numbers are milliseconds, as SQLite's driver has them."""
    if not pa.types.is_temporal(column.type):
        millis = column.cast(pa.int64()).to_numpy()
        far = INFINITE_MICROS // 1000
        return np.where(np.abs(millis) >= far, far, millis) * 1000
    kind = pa.timestamp("us", column.type.tz)
    found: np.ndarray = column.cast(kind).cast(pa.int64()).to_numpy()
    return found


def _dates(labels: np.ndarray, name: str, *, printed: bool) -> pa.Array:
    if labels.max() >= INFINITE_DAY:
        raise fault(name, "holds a date that is infinite or cannot be read")
    if not printed:
        return pa.array(counted_days(labels).astype(np.int32))
    is_gap = (labels < GREGORIAN_DAY) & (labels >= GREGORIAN_DAY - _GAP_DAYS)
    shown = np.where(is_gap, labels + _GAP_DAYS, labels)
    _check_years(shown, name)
    return pa.array(shown.astype(np.int32)).cast(pa.date32()).cast(pa.string())


def _check_years(days: np.ndarray, name: str) -> None:
    years = label_years(days)
    if years.min() < 1 or years.max() > 9999:
        # Java prints other years without a sign, so that they cannot be distinguished.
        raise fault(name, "holds a year before 1 or after 9999, which has no clear text: use JsonConverter")


def _times(column: pa.Array, zone: str, name: str, *, printed: bool) -> pa.Array:
    """Only the time of day is printed, whatever the day."""
    millis = instants_of(_millis_of_day(column, name) * 1000, zone) // 1000
    if printed:
        return pa.array((millis % DAY_MILLIS // 1000).astype(np.int32)).cast(pa.time32("s")).cast(pa.string())
    if millis.min() < 0 or millis.max() > DAY_MILLIS:
        raise fault(name, "holds a time that is on another day in UTC, which Connect cannot write")
    return pa.array(millis.astype(np.int32))


def _millis_of_day(column: pa.Array, name: str) -> np.ndarray:
    """`HH:MM:SS.ffffff`, with the seconds of its own offset after a blank if it has one; less that offset."""
    if pa.types.is_time(column.type):
        return column.cast(pa.time64("us")).cast(pa.int64()).to_numpy() // 1000  # type: ignore[no-any-return]
    if pa.types.is_temporal(column.type):
        return _micros(column) % DAY_MICROS // 1000
    parts = pc.extract_regex(column, pattern=_TIME)
    if parts.null_count:
        raise fault(name, "holds a time that cannot be read")
    hours, minutes, seconds = (pc.struct_field(parts, one).cast(pa.int64()).to_numpy() for one in "hms")
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(parts, "f"), 3, "0"), 0, 3)
    offset = pc.struct_field(parts, "o")
    made: np.ndarray = ((hours * 60 + minutes) * 60 + seconds - _numbers(offset)) * 1000 + _numbers(fraction)
    return made


def _numbers(texts: pa.Array) -> np.ndarray:
    """What is empty is 0."""
    found: np.ndarray = pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.int64()).to_numpy()
    return found


# `timestamp.granularity`: the finer forms of the connector are wrong for some old values, which are refused; connect_logical has
# room for all of them.


def _exact_counts(micros: np.ndarray, name: str, *, nanos: bool) -> np.ndarray:
    if ((micros < 0) & (micros // 1000 % 1000 != 0)).any():
        raise fault(name, f"holds a timestamp before 1970 that Connect would write one second too late: {_HINT}")
    if not nanos:
        return micros
    if np.abs(micros).max() > _MOST_MICROS_AS_NANOS:
        raise fault(name, f"holds a timestamp whose nanoseconds do not fit 64 bits: {_HINT}")
    return micros * 1000


def _iso(labels: np.ndarray, zone: str, shown_in: str, name: str, *, nanos: bool) -> pa.Array:
    if labels.min() < GREGORIAN_MICROS:
        raise fault(name, f"holds a timestamp before 1582-10-15, whose label Connect would shift: {_HINT}")
    texts = pc.replace_substring(_label_texts(shown_micros(instants_of(labels, zone), shown_in)), " ", "T")
    return pc.binary_join_element_wise(texts, "000" if nanos else "", "")


def _label_texts(labels: np.ndarray) -> pa.Array:
    """`2024-01-02 03:04:05.123456`; years of more than four digits have a sign."""
    years = label_years(labels // DAY_MICROS)
    far = years > 9999
    if not far.any():
        return pa.array(labels, pa.timestamp("us")).cast(pa.string())
    cycles = np.where(far, (years - 2000) // 400, 0)  # into years that Arrow can print
    texts = pa.array(labels - cycles * 146_097 * DAY_MICROS, pa.timestamp("us")).cast(pa.string())
    signed = pc.binary_join_element_wise("+", pa.array(years).cast(pa.string()), pc.utf8_slice_codeunits(texts, 4), "")
    return pc.if_else(pa.array(far), signed, texts)


def _printed_timestamps(labels: np.ndarray, zone: str, name: str) -> pa.Array:
    """As `java.sql.Timestamp` prints itself in UTC. The zone may move it over the end of the Julian calendar, or to a 29 February
    that only the Julian calendar has and no label here can express."""
    moved = instants_of(labels, zone)
    shift, shift_after = _shift_days(labels), _shift_days(moved)
    is_old = labels < GREGORIAN_MICROS
    instants = np.where(is_old, moved + shift * DAY_MICROS, moved)
    is_modern = instants >= GREGORIAN_MICROS
    if (~is_modern & is_old & (shift != shift_after)).any():
        raise fault(
            name, "holds a timestamp that db.timezone moves over 29 February of a Julian year: use JsonConverter"
        )
    shown = np.where(is_modern, instants, np.where(is_old, moved, instants - _GAP_DAYS * DAY_MICROS))
    _check_years(shown // DAY_MICROS, name)
    texts = pa.array(shown, pa.timestamp("us")).cast(pa.string())
    return pc.replace_substring_regex(texts, r"(\.[0-9]+?)0+$", r"\1")


def _shift_days(labels: np.ndarray) -> np.ndarray:
    days = labels // DAY_MICROS
    made: np.ndarray = counted_days(np.minimum(days, GREGORIAN_DAY - 1)) - np.minimum(days, GREGORIAN_DAY - 1)
    return made
