"""The texts that Java makes of floats and doubles, for whole columns.

`Double.toString` and `Float.toString` are those of JDK 19 and later: the fewest digits that distinguish a number from its
neighbours. Arrow's cast has the same digits in another layout: Java always has a digit after the point, and an exponent below a
thousandth and from ten million on.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.connect.javajson import java_double, java_float

_LEAST_PLAIN, _MOST_PLAIN = 1e-3, 1e7
_LEAST_USUAL = {pa.float64(): 1e-300, pa.float32(): 1e-36}  # below it a digit or two may be all that there is
_EXPONENTS = [*range(-6, -3), *range(7, 15)]  # where Arrow has none and Java has one


def float_texts(column: pa.Array) -> pa.Array:
    """Of floats or doubles; null stays null."""
    numbers = column.fill_null(0.5) if column.null_count else column
    values = numbers.to_numpy(zero_copy_only=False)
    sizes = np.abs(values)
    texts = numbers.cast(pa.string())
    with np.errstate(invalid="ignore"):  # one of the NaNs signals
        is_whole = np.trunc(values) == values
    is_plain = (sizes >= _LEAST_PLAIN) & (sizes < _MOST_PLAIN) | (sizes == 0)
    for is_other, write in ((is_plain & is_whole, _whole_texts), (~is_plain, _odd_texts)):
        if is_other.any():
            others = pa.array(is_other)
            texts = pc.replace_with_mask(texts, others, write(numbers.filter(others)))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _whole_texts(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(column.cast(pa.string()), ".0", "")


def _odd_texts(column: pa.Array) -> pa.Array:
    """Of numbers that have an exponent in Java, or are none."""
    values = column.to_numpy(zero_copy_only=False)
    sizes = np.abs(values)
    texts = pa.array(sizes).cast(pa.string())
    has_exponent = pc.match_substring(texts, "e")
    if pc.all(has_exponent).as_py():
        texts = _rewritten(texts)
    elif pc.any(has_exponent).as_py():
        texts = pc.if_else(has_exponent, _rewritten(texts), _moved(texts, sizes))
    else:
        texts = _moved(texts, sizes)
    if (values < 0).any():
        texts = pc.binary_join_element_wise(_chosen(["", "-"], values < 0), texts, "")
    is_rare = ~(np.isfinite(values) & (sizes >= _LEAST_USUAL[column.type]))
    if is_rare.any():  # one by one: no number, or one of the very smallest
        one: Callable[[Any], str] = (
            (lambda value: java_double(float(value))) if column.type == pa.float64() else java_float
        )
        texts = pc.replace_with_mask(texts, pa.array(is_rare), pa.array([one(value) for value in values[is_rare]]))
    return texts


def _rewritten(texts: pa.Array) -> pa.Array:
    """`1.5e+20` -> `1.5E20`, `1e-7` -> `1.0E-7`"""
    upper = pc.replace_substring(pc.replace_substring(texts, "e+", "E"), "e", "E")
    has_point = pc.match_substring(upper, ".")
    if pc.all(has_point).as_py():
        return upper
    return pc.if_else(has_point, upper, pc.replace_substring(upper, "E", ".0E"))


def _moved(texts: pa.Array, sizes: np.ndarray) -> pa.Array:
    """`12345678.9` -> `1.23456789E7`, `0.0001` -> `1.0E-4`"""
    digits = pc.ascii_trim(pc.replace_substring(texts, ".", ""), "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    powers = np.array([10.0**exponent for exponent in _EXPONENTS[1:]], sizes.dtype)
    exponents = _chosen([f"E{exponent}" for exponent in _EXPONENTS], np.searchsorted(powers, sizes, side="right"))
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(digits, 0, 1), ".", rest, exponents, "")


def _chosen(texts: list[str], places: np.ndarray) -> pa.Array:
    return pa.array(texts).take(pa.array(places.astype(np.int8)))
