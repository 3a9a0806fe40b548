"""Columns of decimals -> Connect's bytes of them in base64, and the text of Java's BigDecimal; one decimal by itself.

A column is of Arrow's decimals, or of texts with the exact digits where none of these holds them (`arrowtypes`). A numeric
without a precision is such a text, with scale 127 in Connect, so that even 12.12 fills 54 bytes: of texts with up to 18 digits
whole columns are multiplied by their powers of ten, in limbs of 32 bits. A text that is no number, or too fine for its scale, is
Unfit.
"""

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.batch import Unfit
from playhead.pipeline.records.octets import encode_base64, encode_decimals, encode_unscaled
from playhead.pipeline.records.schema import Schema

MOST_BYTES = 512
_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?0*[0-9]{1,6}))?")
_SHORT = r"^-?[0-9]{1,18}$"  # without its point
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?$"
_PLAIN = r"^-?(?:[1-9][0-9]*(?:\.[0-9]+)?|0\.0{0,5}[1-9][0-9]*)$"  # BigDecimal prints no exponent
_LIMB = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BLOCK = 8192  # rows whose limbs stay in the cache of a processor


def decimal_octets(column: pa.Array, scale: int) -> pa.Array:
    """The base64 of the unscaled values. `column` has no nulls."""
    if pa.types.is_decimal(column.type):
        return encode_decimals(column)
    digits = pc.replace_substring(column, ".", "")
    shifts = scale - _decimals(column)
    is_short = pc.and_(pc.match_substring_regex(digits, _SHORT), pc.match_substring_regex(column, _NUMBER))
    short = is_short.to_numpy(zero_copy_only=False) & (shifts >= 0)
    if short.all():
        return _multiplied(digits.cast(pa.int64()).to_numpy(), shifts)
    mask = pa.array(~short)  # one by one: very long, or with an exponent, or none at all
    others = encode_base64(pa.array([_unscaled_octets(text, scale) for text in column.filter(mask).to_pylist()]))
    if not short.any():
        return others
    made = _multiplied(pc.if_else(mask, "0", digits).cast(pa.int64()).to_numpy(), np.where(short, shifts, 0))
    return pc.replace_with_mask(made, mask, others)


def decimal_texts(column: pa.Array, scale: int) -> pa.Array:
    """`BigDecimal.toString`; null stays null."""
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    missing = scale - _decimals(column)
    is_plain = pc.match_substring_regex(column, _PLAIN).fill_null(False).to_numpy(zero_copy_only=False)
    plain = is_plain & (missing >= 0) & (scale > 0) | column.is_null().to_numpy(zero_copy_only=False)
    filled = np.where(plain, np.maximum(missing, 0), 0)
    zeros = pa.array(["0" * count for count in range(int(filled.max(initial=0)) + 1)]).take(pa.array(filled))
    point = pc.if_else(pc.match_substring(column, "."), "", ".")
    texts = pc.binary_join_element_wise(column, point, zeros, "")
    if plain.all():
        return texts
    mask = pa.array(~plain)
    others = [str(to_decimal(_unscaled(text, scale), scale)) for text in column.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(others, pa.string()))


def _decimals(column: pa.Array) -> np.ndarray:
    """How many digits are behind the point of each."""
    points = pc.find_substring(column, ".").fill_null(-1).to_numpy()
    found: np.ndarray = np.where(points < 0, 0, pc.binary_length(column).fill_null(0).to_numpy() - points - 1)
    return found


def _unscaled(text: str, scale: int) -> int:
    made = unscaled_of_number(text, scale)
    if made is None:
        raise Unfit(f"it has the decimal {text[:40]}, which is none of scale {scale}")
    return made


def _unscaled_octets(text: str, scale: int) -> bytes:
    value = _unscaled(text, scale)
    return value.to_bytes((~value if value < 0 else value).bit_length() // 8 + 1, "big", signed=True)


def _multiplied(values: np.ndarray, shifts: np.ndarray) -> pa.Array:
    """The base64 of values * 10**shifts."""
    most = 10 ** int(shifts.max(initial=0))
    count = (most.bit_length() + 64) // 32 + 1
    parts = [
        _limbs(values[start : start + _BLOCK], shifts[start : start + _BLOCK], count)
        for start in range(0, len(values), _BLOCK)
    ]
    return encode_unscaled(np.hstack(parts)) if parts else pa.array([], pa.string())


def _limbs(values: np.ndarray, shifts: np.ndarray, count: int) -> np.ndarray:
    limbs = np.zeros((count, len(values)), np.uint64)
    magnitudes = np.abs(values).astype(np.uint64)
    kinds = np.unique(shifts)
    for shift in kinds.tolist():
        rows = slice(None) if len(kinds) == 1 else np.flatnonzero(shifts == shift)
        limbs[:, rows] = _product(magnitudes[rows], 10**shift, count)
    negative = values < 0
    if negative.any():
        limbs[:, negative] = _negated(limbs[:, negative])
    return limbs.astype(np.uint32)


def _product(values: np.ndarray, factor: int, count: int) -> np.ndarray:
    """`count` limbs of values * factor, the lowest first."""
    parts = [np.uint64(factor >> 32 * at & 0xFFFFFFFF) for at in range((factor.bit_length() + 31) // 32)]
    made = np.zeros((count, len(values)), np.uint64)
    for begin, half in enumerate((values & _LIMB, values >> _HALF)):
        if not half.any():
            continue
        carry = np.zeros(len(values), np.uint64)
        for at, part in enumerate(parts, begin):
            value = half * part + made[at] + carry
            made[at] = value & _LIMB
            carry = value >> _HALF
        made[begin + len(parts)] = carry
    return made


def _negated(limbs: np.ndarray) -> np.ndarray:
    made = np.empty_like(limbs)
    carry = np.ones(limbs.shape[1], np.uint64)
    for at, limb in enumerate(limbs):
        value = (~limb & _LIMB) + carry
        made[at] = value & _LIMB
        carry = value >> _HALF
    return made


# One of them, exactly


def unscaled_of_bytes(raw: bytes) -> int | None:
    """None for no bytes, and for more than any number of this world needs."""
    return int.from_bytes(raw, "big", signed=True) if 0 < len(raw) <= MOST_BYTES else None


def unscaled_of_number(text: str, scale: int) -> int | None:
    """None if it has more decimals than the scale, or is out of all proportion."""
    found = _PARTS.fullmatch(text)
    if not found or len(text) > MOST_BYTES:
        return None
    sign, whole, fraction, exponent = found[1], found[2], found[3] or "", int(found[4] or 0)
    digits = int(whole + fraction)
    shift = scale - len(fraction) + exponent
    if digits == 0:
        return 0
    if not -2 * MOST_BYTES < shift < 2 * MOST_BYTES:
        return None
    made, rest = (digits * int(10**shift), 0) if shift >= 0 else divmod(digits, int(10**-shift))
    if rest:
        return None
    return -made if sign else made


def to_decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def to_text(unscaled: int, schema: Schema) -> str:
    """Plain digits. Zeros at the end of the fraction are left out: the scale of such a decimal was not chosen by a user."""
    scale = schema.parameter("scale", 0)
    sign, digits = ("-" if unscaled < 0 else ""), str(abs(unscaled))
    if scale <= 0:
        return sign + (digits + "0" * -scale if unscaled else "0")
    digits = digits.rjust(scale + 1, "0")
    fraction = digits[-scale:].rstrip("0")
    return f"{sign}{digits[:-scale]}" + (f".{fraction}" if fraction else "")
