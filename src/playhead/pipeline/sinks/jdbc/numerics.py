"""Decimals -> PostgreSQL's numeric in its binary form: digits to the base 10,000, whole columns at once.

Each number gets as many digits as the largest of its type could need; the server drops the zeros in front and behind.
"""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa

_BASE, _NEGATIVE = 10_000, 0x4000
_LIMB = np.uint64(0xFFFFFFFF)


def encode_decimals(column: pa.Array) -> np.ndarray:
    """One row of bytes a number, all of one length. `column` has no nulls."""
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
    """Pieces of 32 bits, the lowest first, and which numbers are below zero."""
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
