"""Doubles -> decimals for a numeric column, with the 15 digits that PostgreSQL itself takes of them.

What lies behind those digits is noise of the binary form, as in 19.990000000000002, not part of the number. What is left is
kept: a number that has more decimals than its column, or a whole number of more digits, is not rounded, it does not fit.
"""

from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS, _WIDEST = 15, 38


def decimals_of(column: pa.Array, scale: int | None) -> pa.Array:
    """With `scale` decimals, or as texts for a column without limits; null what does not fit."""
    if scale is None:
        return pa.array(_texts(column), pa.string())
    numbers = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(numbers * 10.0**scale)
        near = (np.abs(scaled) < 10.0**_DIGITS) & (scaled / 10.0**scale == numbers)
    kind = pa.decimal128(18 if near.all() else _WIDEST, scale)
    made = _of_unscaled(np.where(near, scaled, 0).astype(np.int64), kind)
    if near.all():
        return made
    others = pa.array(~near)
    fitted = [_fitted(text, scale) for text in _texts(column.filter(others))]
    return pc.replace_with_mask(made, others, pa.array(fitted, kind))


def _texts(column: pa.Array) -> list[str | None]:
    return [None if number is None else _text(number) for number in column.to_pylist()]


def _text(number: float) -> str | None:
    text = f"{number:.{_DIGITS}g}"
    if not np.isfinite(number) or (number.is_integer() and float(text) != number):
        return None
    return text


def _of_unscaled(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    halves = np.stack([values, values >> 63], axis=1)  # 128 bits, the lower half first
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(halves))])


def _fitted(text: str | None, scale: int) -> Decimal | None:
    if text is None:
        return None
    with localcontext(prec=400):
        number = Decimal(text)
        exact = number.quantize(Decimal(1).scaleb(-scale))
        return exact if exact == number and abs(exact) < Decimal(10) ** (_WIDEST - scale) else None
