r"""JSON exactly as Connect's JsonConverter writes it, byte for byte.

Connect finds an offset by the bytes of its key, so our keys must be the bytes that Jackson writes: no spaces, raw UTF-8 inside
the basic plane, everything beyond it as an escaped surrogate pair with upper-case digits, doubles as Java prints them.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from playhead.model.position import Scalar

if TYPE_CHECKING:
    import numpy as np

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile('["\\\\\x00-\x1f\U00010000-\U0010ffff]')
_FULL_BUCKET, _LEAST_TREES = 8, 64  # one key more makes the table larger, or a tree of the bucket


def encode_string(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match.group(0)
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2], 'big'):04X}" for i in range(0, len(units), 2))


def encode_scalar(value: Scalar) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return java_double(value) if isinstance(value, float) else encode_string(value)


def encode_map(fields: Mapping[str, Scalar], order: Iterable[str] | None = None) -> str:
    """An object with its fields in `order`, by default their own."""
    names = list(fields) if order is None else list(order)
    return "{" + ",".join(f"{encode_string(name)}:{encode_scalar(fields[name])}" for name in names) + "}"


def hash_map_order(names: Iterable[str], capacity: int = 16) -> list[str]:
    """The iteration order of a Java HashMap with so many buckets at first, into which these keys were put in this order."""
    return list(_order_of(tuple(names), capacity))


@lru_cache(maxsize=4096)
def _order_of(names: tuple[str, ...], capacity: int) -> tuple[str, ...]:
    keys = list(dict.fromkeys(names))
    return tuple(keys[at] for at in bucket_order([_hash_code(key) for key in keys], capacity))


def bucket_order(codes: Sequence[int], capacity: int) -> list[int]:
    """The same for hash codes, without sign: the place of each key, in the order of iteration.

    Inside a bucket it is the insertion order, also after the table grows. Of nine keys in one bucket of a table of 64 or more
    Java makes a tree, which changes their order. This is not done here: such keys have to be made on purpose.
    """
    spread = [code ^ (code >> 16) for code in codes]
    buckets = capacity
    for count, code in enumerate(spread, 1):
        mask = buckets - 1
        if count > _FULL_BUCKET and buckets < _LEAST_TREES:
            alike = sum((code ^ other) & mask == 0 for other in spread[: count - 1])
            buckets *= 2 if alike >= _FULL_BUCKET else 1
        if count > buckets * 3 // 4:
            buckets *= 2
    return sorted(range(len(spread)), key=lambda at: spread[at] & (buckets - 1))


@lru_cache(maxsize=4096)
def _hash_code(text: str) -> int:
    """`String.hashCode`, over UTF-16 units, as an unsigned number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for i in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    return code


def java_double(value: float) -> str:
    """`Double.toString`: plain between a thousandth and ten million, else with an exponent; always a digit after the point.

    Digits are the shortest that read back, as JDK 19 and later print them; older ones print a digit more in rare cases.
    """
    return _java_number(value, repr(abs(value)))


def java_float(value: "np.float32") -> str:
    """`Float.toString`: the same with the fewest digits that distinguish a float from its neighbours."""
    return _java_number(float(value), str(abs(value)))


def _java_number(value: float, shortest: str) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    digits, exponent = _digits(shortest)
    if len(digits) == 1:  # Java takes the nearest of two digits: 4.9E-324, where Python takes 5e-324
        digits, exponent = _digits(f"{abs(value):.1e}")
    if -3 <= exponent < 7:
        if exponent >= 0:
            whole = digits[: exponent + 1].ljust(exponent + 1, "0")
            return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _digits(text: str) -> tuple[str, int]:
    """Significant digits of a number that Python wrote, and the exponent of the first one."""
    mantissa, _, shift = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = len(whole) - 1 if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0")) + 1)
    return digits.rstrip("0") or "0", exponent + int(shift or 0)
