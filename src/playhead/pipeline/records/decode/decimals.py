"""One decimal of Connect: from its unscaled bytes or from a JSON number, exactly."""

import re
from decimal import Decimal

from playhead.pipeline.records.schema import Schema

MOST_BYTES = 512
_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?0*[0-9]{1,6}))?")


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
