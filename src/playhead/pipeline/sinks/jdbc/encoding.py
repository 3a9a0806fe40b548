"""A column of records -> the bytes that PostgreSQL expects for the type of the table's column.

What each pair of types needs was settled before (`fitting`), and every value fits. Times without a zone are of `db.timezone`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.sinks.jdbc.copy_rows import Encoded, Fixed, Varying
from playhead.pipeline.sinks.jdbc.doubles import decimals_of
from playhead.pipeline.sinks.jdbc.numerics import encode_decimals, encode_texts
from playhead.sql.target_tables import TargetColumn

Numbers = Any  # an array of numpy, made from one of Arrow, which has no types
_DAYS, _MICROS = 10_957, 946_684_800_000_000  # from 1970 to 2000, where PostgreSQL begins to count
_DAY_MICROS = 86_400_000_000
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


def encode_column(column: pa.Array, target: TargetColumn, zone: str) -> Encoded:
    if pa.types.is_list(column.type):
        return _array(column, target, zone)
    if pa.types.is_float64(column.type) and target.kind == "numeric":
        column = decimals_of(column, target.precision, target.scale)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return Varying.of(_octets(column, target.kind))
    values = _FIXED.get(target.kind, _plain)
    if not column.null_count:
        return Fixed(values(column, target.kind, zone))
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return Fixed(values(column.drop_null(), target.kind, zone)).spread(valid)


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


def _plain(column: pa.Array, kind: str, _zone: str) -> Numbers:
    wanted, dtype = _PLAIN[kind]
    made = column if column.type == wanted else column.cast(wanted)
    return made.to_numpy(zero_copy_only=False).astype(dtype)


def _numeric(column: pa.Array, _kind: str, _zone: str) -> Numbers:
    return encode_decimals(column.cast(pa.decimal128(19, 0)) if pa.types.is_integer(column.type) else column)


def _boolean(column: pa.Array, _kind: str, _zone: str) -> Numbers:
    return column.to_numpy(zero_copy_only=False).astype("u1")


def _date(column: pa.Array, _kind: str, _zone: str) -> Numbers:
    return (column.cast(pa.int32()).to_numpy() - _DAYS).astype(">i4")


def _time(column: pa.Array, _kind: str, zone: str) -> Numbers:
    micros = column.cast(pa.int32()).to_numpy().astype(np.int64) * 1000
    if zone:
        moments = pa.array(micros // 1000, pa.timestamp("ms", "UTC"))
        micros = _local(moments, zone) % _DAY_MICROS
    return micros.astype(">i8")


def _timestamp(column: pa.Array, kind: str, zone: str) -> Numbers:
    if zone and kind == "timestamp":
        return (_local(column, zone) - _MICROS).astype(">i8")
    return (column.cast(pa.int64()).to_numpy() * 1000 - _MICROS).astype(">i8")


def _local(moments: pa.Array, zone: str) -> Numbers:
    """Microseconds of the wall clock in that zone."""
    return pc.local_timestamp(moments.cast(pa.timestamp("ms", zone))).cast(pa.int64()).to_numpy() * 1000


def _array(column: pa.Array, target: TargetColumn, zone: str) -> Encoded:
    """One dimension from 1 on: a head, then each element with its length. Few tables have such columns: one by one."""
    inner = TargetColumn(target.name, target.kind.removeprefix("_"))
    elements = encode_column(column.flatten(), inner, zone)
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


_FIXED: dict[str, Callable[[pa.Array, str, str], Numbers]] = {
    "numeric": _numeric,
    "bool": _boolean,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
}
