"""Doubles -> what a numeric column keeps of them. Nothing is rounded: what would have to be does not fit.

A column with a scale takes 15 digits of a double, as PostgreSQL itself does; what lies behind them and behind its decimals is
noise of the binary form, as in 19.990000000000002. A column without one keeps every digit that tells the double from its
neighbours.
"""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS, _WIDEST = 15, 38


def decimals_of(column: pa.Array, precision: int | None, scale: int | None) -> pa.Array:
    """Decimals, or texts of them where Arrow has no such type; null what does not fit."""
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
