"""Java's numbers: the texts that its parsers read, and what becomes of a number in a smaller type."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LONG = range(-(1 << 63), 1 << 63)
BLANKS = "".join(map(chr, range(33)))  # what `String.trim` takes away

_WHOLE = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<name>NaN|Infinity)"
    r"|(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?[fFdD]?"
    r"|0[xX](?P<whole>[0-9a-fA-F]*)(?:\.(?P<part>[0-9a-fA-F]*))?[pP](?P<power>[+-]?[0-9]+)[fFdD]?)"
)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?")
_MOST_POWER = 20_000  # far beyond a double
_BMP = 0xFFFF
_LARGEST = np.finfo(np.float32).max
_BEYOND = Fraction(2**128 - 2**103)  # the middle between the largest float and infinity


def wrapped(number: int, bits: int) -> int:
    """The lower bits, with their sign."""
    return ((number + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1)


def whole_of(number: float, bits: int) -> int:
    """`(int)` and `(long)` of a double: what is too large becomes the largest there is."""
    if math.isnan(number):
        return 0
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return high if number >= high else low if number <= low else int(number)


def whole_up_to(most: int, text: str) -> int:
    """A number of any length, digit by digit: Python's own reader refuses thousands of them. What is larger becomes `most`."""
    made = 0
    for character in text.lstrip("+-"):
        made = min(made * 10 + int(character), most)
    return -made if text.startswith("-") else made


def parse_whole(text: str, bits: int) -> int | None:
    """`Long.parseLong` and its brothers: digits of any script, but of one UTF-16 unit each."""
    if not _WHOLE.fullmatch(text) or any(ord(character) > _BMP for character in text):
        return None
    made = whole_up_to(1 << bits, text)
    return made if -(1 << bits - 1) <= made < 1 << bits - 1 else None


def parse_double(text: str) -> float | None:
    exact = _parsed(text)
    return exact if exact is None or isinstance(exact, float) else nearest_double(exact)


def parse_float(text: str) -> np.float32 | None:
    exact = _parsed(text)
    if exact is None or isinstance(exact, float):
        return None if exact is None else np.float32(exact)
    return nearest_float(exact)


def _parsed(text: str) -> "float | Fraction | None":
    """A float where that is exact: not a number, infinite, or a zero with its sign."""
    found = _FLOAT.fullmatch(text.strip(BLANKS))
    if found is None:
        return None
    sign = -1 if found["sign"] == "-" else 1
    if found["name"]:
        return sign * float("nan" if found["name"] == "NaN" else "inf")
    if found["number"] is not None:
        number = Decimal(f"{found['number']}e{whole_up_to(_MOST_POWER + len(text), found['exponent'] or '0')}")
        if abs(number.adjusted()) > _MOST_POWER and number:
            return sign * (math.inf if number.adjusted() > 0 else 0.0)
        exact = Fraction(number)
    else:
        whole, part = found["whole"], found["part"] or ""
        if not whole + part:
            return None
        power = whole_up_to(_MOST_POWER + 4 * len(text), found["power"])
        exact = Fraction(int(whole + part, 16)) * Fraction(2) ** (power - 4 * len(part))
    return sign * exact if exact else sign * 0.0


def low_bits(number: Decimal) -> int:
    """The 64 lower bits of its whole part: `BigDecimal.longValue`. Those of a large power of ten are 0."""
    exponent = int(number.as_tuple().exponent)
    return 0 if exponent >= 64 or number.adjusted() < 0 else wrapped(int(number), 64)


def nearest_double(exact: "Fraction | Decimal") -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def nearest_float(exact: "Fraction | Decimal") -> np.float32:
    """Rounded once: by way of a double, what is just beside the middle of two floats would be rounded twice."""
    if isinstance(exact, Decimal) and abs(exact.adjusted()) > _MOST_POWER:  # a fraction of it would fill the memory
        return np.float32(float(exact))
    exact = Fraction(exact)
    if exact < 0:
        return -nearest_float(-exact)
    double = nearest_double(exact)
    with np.errstate(over="ignore", under="ignore"):
        made = np.float32(double)
        if math.isinf(double) or Fraction(double) == exact:
            return made
        if np.isinf(made):
            return _LARGEST if exact < _BEYOND else made
        other = np.nextafter(made, np.float32(np.inf if exact > Fraction(double) else -np.inf))
        is_middle = not np.isinf(other) and 2 * Fraction(double) == Fraction(float(made)) + Fraction(float(other))
        return other if is_middle else made


def parse_decimal(text: str) -> Decimal | None:
    """`new BigDecimal(text)`."""
    return Decimal(text) if _DECIMAL.fullmatch(text) else None
