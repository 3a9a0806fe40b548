"""Columns -> rows of PostgreSQL's binary COPY, whole batches at once.

A row is the number of its fields, then for each field its length (-1 for null) and its bytes. Adjacent fields of a fixed width
are packed together with the length of the next field, so that Arrow joins only a few pieces per row.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.deliver.jdbc.options import Zones
from playhead.pipeline.records.javacalendar import DAY_MILLIS, label_days, label_millis
from playhead.sql.target_tables import TargetColumn

_MOST_BYTES = 1 << 29  # of one array: its offsets have 31 bits


@dataclass(frozen=True, slots=True)
class Fixed:
    """Values without nulls: each is a number of a big-endian type, or a row of bytes."""

    values: np.ndarray

    @property
    def width(self) -> int:
        return int(self.values.itemsize * (self.values.shape[1] if self.values.ndim > 1 else 1))

    def slice(self, start: int, stop: int) -> "Fixed":
        return Fixed(self.values[start:stop])

    def spread(self, valid: np.ndarray) -> "Varying":
        """Assigns the values to the rows that are `valid`; the others are null."""
        places = np.concatenate([[0], np.cumsum(valid)]).astype(np.int32) * np.int32(self.width)
        data = pa.py_buffer(np.ascontiguousarray(self.values))
        made = pa.Array.from_buffers(pa.binary(), len(valid), [None, pa.py_buffer(places), data])
        return Varying(made, np.where(valid, self.width, -1))


@dataclass(frozen=True, slots=True)
class Varying:
    """`octets` has no nulls: a null is empty, with the length -1."""

    octets: pa.Array
    lengths: np.ndarray

    @classmethod
    def of(cls, column: pa.Array) -> "Varying":
        """Of binary values."""
        lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
        return cls(pc.fill_null(column, b"") if column.null_count else column, lengths)

    def slice(self, start: int, stop: int) -> "Varying":
        return Varying(self.octets.slice(start, stop - start), self.lengths[start:stop])


Encoded = Fixed | Varying


def encode_rows(columns: Sequence[Encoded], count: int) -> Iterator[memoryview]:
    """The bytes of all rows, in order, in one piece or a few."""
    if not count:
        return
    sizes = [column.octets.nbytes if isinstance(column, Varying) else column.width * count for column in columns]
    if sum(sizes) > _MOST_BYTES and count > 1:
        for start, stop in ((0, count // 2), (count // 2, count)):
            yield from encode_rows([column.slice(start, stop) for column in columns], stop - start)
        return
    yield _joined(columns, count)


def _joined(columns: Sequence[Encoded], count: int) -> memoryview:
    pieces: list[pa.Array] = []
    block: list[tuple[Any, ...]] = [("f", ">i2", np.int16(len(columns)))]
    for place, column in enumerate(columns):
        if isinstance(column, Fixed):
            shape = column.values.shape[1:]
            kind = (column.values.dtype, shape) if shape else (column.values.dtype,)
            block += [(f"l{place}", ">i4", np.int32(column.width)), (f"v{place}", *kind, column.values)]
        else:
            block.append((f"l{place}", ">i4", column.lengths))
            pieces += [_packed(block, count), column.octets]
            block = []
    if block:
        pieces.append(_packed(block, count))
    if len(pieces) == 1:
        return memoryview(pieces[0].buffers()[2])
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
    bounds = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + count + 1]
    return memoryview(joined.buffers()[2])[bounds[0] : bounds[-1]]


def _packed(block: Sequence[tuple[Any, ...]], count: int) -> pa.Array:
    """Each entry has a name, a type and, as its last item, the values."""
    made = np.empty(count, np.dtype([entry[:-1] for entry in block]))
    for entry in block:
        made[entry[0]] = entry[-1]
    width = made.dtype.itemsize
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(made)])


# numeric in its binary form: digits to the base 10,000. Each number gets as many digits as the largest of its type could
# need; the server drops leading and trailing zeros.

_BASE, _NEGATIVE = 10_000, 0x4000
_LIMB = np.uint64(0xFFFFFFFF)


def encode_decimals(column: pa.Array) -> np.ndarray:
    """One row of bytes per number, all of one length. `column` has no nulls."""
    precision, scale = column.type.precision, column.type.scale
    pad = -scale % 4
    fraction = (scale + pad) // 4
    whole = max(1, math.ceil((precision - scale) / 4))
    digits, negative = _digits(column, whole + fraction, pad)
    made = np.empty((len(column), 4 + whole + fraction), ">i2")
    made[:, 0], made[:, 1], made[:, 3] = whole + fraction, whole - 1, scale
    made[:, 2] = np.where(negative, _NEGATIVE, 0)
    made[:, 4:] = digits
    return made.view(np.uint8)


def encode_texts(column: pa.Array) -> pa.Array:
    """Numbers with more digits than a column of decimals can hold, one by one."""
    return pa.array([None if text is None else _encode(Decimal(text)) for text in column.to_pylist()], pa.binary())


def _encode(number: Decimal) -> bytes:
    sign, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** (max(0, int(exponent)) + -scale % 4)
    groups = []
    while unscaled:
        unscaled, group = divmod(unscaled, _BASE)
        groups.append(group)
    fraction = (scale + -scale % 4) // 4
    head = [len(groups), len(groups) - fraction - 1, _NEGATIVE if sign else 0, scale]
    return np.array(head + groups[::-1], ">i2").tobytes()


def _digits(column: pa.Array, groups: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    limbs, negative = _magnitudes(column)
    digits = np.empty((len(column), groups), np.int64)
    if column.type.precision + pad <= 18:
        rest = (limbs[0] | limbs[1] << np.uint64(32)).astype(np.int64) * 10**pad
        for place in range(groups - 1, -1, -1):
            rest, digits[:, place] = np.divmod(rest, _BASE)
        return digits, negative
    limbs = _times(limbs, 10**pad)
    for place in range(groups - 1, -1, -1):
        remainder = np.zeros(len(column), np.uint64)
        for limb in reversed(limbs):
            value = remainder << np.uint64(32) | limb
            limb[:], remainder = np.divmod(value, np.uint64(_BASE))
        digits[:, place] = remainder.astype(np.int64)
    return digits, negative


def _magnitudes(column: pa.Array) -> tuple[list[np.ndarray], np.ndarray]:
    """Limbs of 32 bits, the lowest first, and which numbers are negative."""
    width = column.type.byte_width // 4
    raw = np.frombuffer(column.buffers()[1], "<u4")[column.offset * width : (column.offset + len(column)) * width]
    pieces = raw.reshape(len(column), width).astype(np.uint64)
    negative = pieces[:, -1] >> np.uint64(31) == 1
    carry = negative.astype(np.uint64)
    limbs = []
    for place in range(width):
        value = np.where(negative, ~pieces[:, place] & _LIMB, pieces[:, place]) + carry
        limbs.append(value & _LIMB)
        carry = value >> np.uint64(32)
    return limbs, negative


def _times(limbs: list[np.ndarray], factor: int) -> list[np.ndarray]:
    made, carry = [], np.zeros_like(limbs[0])
    for limb in limbs:
        value = limb * np.uint64(factor) + carry
        made.append(value & _LIMB)
        carry = value >> np.uint64(32)
    return [*made, carry]


# Doubles for a numeric column. Nothing is rounded: a value that would have to be rounded does not fit. A column with a scale
# takes 15 digits of a double, as PostgreSQL does; digits beyond those are noise of the binary form, as in
# 19.990000000000002. A column without a scale keeps every digit that distinguishes the double from its neighbours.

_DIGITS, _WIDEST = 15, 38


def decimals_of(column: pa.Array, precision: int | None, scale: int | None) -> pa.Array:
    """Decimals, or texts of them if Arrow has no such type; null for values that do not fit."""
    if precision is None or scale is None:
        return pa.array([_whole_text(number) for number in column.to_pylist()], pa.string())
    if not 0 <= scale <= min(precision, _DIGITS) or precision > _WIDEST:
        return pa.array([_text(_fitted(number, precision, scale)) for number in column.to_pylist()], pa.string())
    numbers = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(numbers * 10.0**scale)
        near = (np.abs(scaled) < 10.0 ** min(_DIGITS, precision)) & (scaled / 10.0**scale == numbers)
    kind = pa.decimal128(18 if near.all() else _WIDEST, scale)
    made = _of_unscaled(np.where(near, scaled, 0).astype(np.int64), kind)
    if near.all():
        return made
    others = pa.array(~near)
    fitted = [_fitted(number, precision, scale) for number in column.filter(others).to_pylist()]
    return pc.replace_with_mask(made, others, pa.array(fitted, kind))


def _whole_text(number: float | None) -> str | None:
    return _text(Decimal(repr(number))) if number is not None and math.isfinite(number) else None


def _text(number: Decimal | None) -> str | None:
    return None if number is None else f"{number:f}"


def _fitted(number: float | None, precision: int, scale: int) -> Decimal | None:
    if number is None or not math.isfinite(number):
        return None
    made = Decimal(f"{number:.{_DIGITS}g}")
    if float(made) != number and abs(made) >= Decimal(10) ** (_DIGITS - scale):
        return None
    unscaled = made.scaleb(scale)
    return made if unscaled == unscaled.to_integral_value() and abs(unscaled) < Decimal(10) ** precision else None


def _of_unscaled(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    halves = np.stack([values, values >> 63], axis=1)  # 128 bits, the lower half first
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(halves))])


# Encodes a column of records for the table's column. `layout` has checked the pair of types and every value. Times without a
# zone are in `db.timezone`.

Numbers = Any  # a numpy array converted from Arrow, which has no type annotations
_DAYS, _MICROS = 10_957, 946_684_800_000_000  # from 1970 to 2000, PostgreSQL's epoch
_PLAIN = {
    "int2": (pa.int16(), ">i2"),
    "int4": (pa.int32(), ">i4"),
    "int8": (pa.int64(), ">i8"),
    "float4": (pa.float32(), ">f4"),
    "float8": (pa.float64(), ">f8"),
}
_ELEMENTS = {
    "_int2": 21,
    "_int4": 23,
    "_int8": 20,
    "_float4": 700,
    "_float8": 701,
    "_bool": 16,
    "_text": 25,
    "_varchar": 1043,
}


def encode_column(column: pa.Array, target: TargetColumn, zones: Zones) -> Encoded:
    if pa.types.is_list(column.type):
        return _array(column, target, zones)
    if pa.types.is_float64(column.type) and target.kind == "numeric":
        column = decimals_of(column, target.precision, target.scale)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return Varying.of(_octets(column, target.kind))
    values = _FIXED.get(target.kind, _plain)
    if not column.null_count:
        return Fixed(values(column, target.kind, zones))
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return Fixed(values(column.drop_null(), target.kind, zones)).spread(valid)


def _octets(column: pa.Array, kind: str) -> pa.Array:
    if kind == "numeric":
        return encode_texts(column)
    if kind == "uuid":
        plain = pc.ascii_lower(pc.replace_substring_regex(column, r"[{}-]", "")).to_pylist()
        return pa.array([None if text is None else bytes.fromhex(text) for text in plain], pa.binary())
    octets = column.cast(pa.binary())
    if kind == "jsonb":  # the version of the form comes first
        return pc.binary_join_element_wise(pa.scalar(b"\x01", pa.binary()), octets, pa.scalar(b"", pa.binary()))
    return octets


def _plain(column: pa.Array, kind: str, _zones: Zones) -> Numbers:
    wanted, dtype = _PLAIN[kind]
    made = column if column.type == wanted else column.cast(wanted)
    return made.to_numpy(zero_copy_only=False).astype(dtype)


def _numeric(column: pa.Array, _kind: str, _zones: Zones) -> Numbers:
    return encode_decimals(column.cast(pa.decimal128(19, 0)) if pa.types.is_integer(column.type) else column)


def _boolean(column: pa.Array, _kind: str, _zones: Zones) -> Numbers:
    return column.to_numpy(zero_copy_only=False).astype("u1")


def _date(column: pa.Array, _kind: str, zones: Zones) -> Numbers:
    days = label_days(column.cast(pa.int32()).to_numpy().astype(np.int64), zones.of_dates)
    return (days - _DAYS).astype(">i4")


def _time(column: pa.Array, _kind: str, zones: Zones) -> Numbers:
    millis = column.cast(pa.int32()).to_numpy().astype(np.int64)
    return (label_millis(millis, zones.of_times, keeps_zone=False) % DAY_MILLIS * 1000).astype(">i8")


def _timestamp(column: pa.Array, kind: str, zones: Zones) -> Numbers:
    millis = column.cast(pa.int64()).to_numpy()
    label = label_millis(millis, zones.of_times, keeps_zone=kind == "timestamptz")
    return (label * 1000 - _MICROS).astype(">i8")


def _array(column: pa.Array, target: TargetColumn, zones: Zones) -> Encoded:
    """One dimension with the lower bound 1: a head, then each element with its length. Not vectorized, because it is rare."""
    inner = TargetColumn(target.name, target.kind.removeprefix("_"))
    elements = encode_column(column.flatten(), inner, zones)
    varying = elements if isinstance(elements, Varying) else elements.spread(np.ones(len(column.flatten()), bool))
    fields = [
        (-1).to_bytes(4, "big", signed=True) if length < 0 else int(length).to_bytes(4, "big") + octets
        for length, octets in zip(varying.lengths.tolist(), varying.octets.to_pylist(), strict=True)
    ]
    made: list[bytes | None] = []
    at = 0
    for items in column.to_pylist():
        if items is None:
            made.append(None)
            continue
        count = len(items)
        has_null = any(item is None for item in items)
        head = np.array(
            [1 if count else 0, int(has_null), _ELEMENTS[target.kind]] + ([count, 1] if count else []), ">i4"
        )
        made.append(head.tobytes() + b"".join(fields[at : at + count]))
        at += count
    return Varying.of(pa.array(made, pa.binary()))


_FIXED: dict[str, Callable[[pa.Array, str, Zones], Numbers]] = {
    "numeric": _numeric,
    "bool": _boolean,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
}
