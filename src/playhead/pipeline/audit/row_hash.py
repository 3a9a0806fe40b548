"""The canonical hash of a row, over Arrow columns: two rows have the same hash if they hold the same data, in whatever types.

The rules are a version of their own; a digest is compared only with digests of the same version.

    null           contributes nothing, so a column that is absent is a column of nulls
    numbers        whole numbers and decimals by value: 5, 5.0 and 5.00 are one number, in any width and scale
    floats         as float64; -0.0 is 0.0, and there is one NaN. A float is never equal to a decimal
    texts          by their bytes, without a change of the unicode form; binary and text of the same bytes are equal
    booleans       of their own kind, as dates (days), times of day and durations
    timestamps     an instant in UTC, to the nanosecond, in whatever unit; one without a zone is read as UTC
    structs        by the names of their fields, in any order; maps in any order of their keys; lists in their order

Columns count by their names, in any order. Every step is a bijection of 64 bits, given the rest of the row: a change inside one
value, such as one character, always changes the hash. Anything more than that collides once in 2**64.
"""

import math
from collections.abc import Collection, Mapping
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from playhead.errors import Invalid

VERSION = 1
Words = npt.NDArray[np.uint64]
Hashes = npt.NDArray[np.int64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# What a value is, added before it is mixed: values of two kinds are never equal.
_NUMBER, _FLOAT, _OCTETS, _BOOL, _DATE, _TIME, _STAMP, _SPAN, _STRUCT, _LIST, _MAP, _HUGE, _REST = (
    np.uint64(xxhash.xxh64_intdigest(name.encode(), 1))
    for name in (
        "number",
        "float",
        "octets",
        "bool",
        "date",
        "time",
        "stamp",
        "span",
        "struct",
        "list",
        "map",
        "huge",
        "rest",
    )
)
_LONG = 512  # texts above this many bytes are hashed one by one
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_NAN = np.float64("nan").view(np.uint64)
_TEN = np.int64(10)


def row_hashes(batch: pa.RecordBatch | pa.Table, names: Collection[str] | None = None) -> Hashes:
    """One hash per row, of the columns with these names, or of all."""
    wanted = [name for name in batch.schema.names if names is None or name in names]
    return hashes_of_words({name: column_words(_whole(batch.column(name))) for name in wanted}, batch.num_rows)


def hashes_of_words(columns: Mapping[str, Words], count: int) -> Hashes:
    """One hash per row, of the words of its columns by their names."""
    total = np.zeros(count, np.uint64)
    for name, words in columns.items():
        total += _named(name, words)
    return _mixed(total).view(np.int64)


def octet_hashes(values: pa.Array) -> Hashes:
    """One hash per value, for rows that are one text each. A null is not the empty text."""
    return _mixed(column_words(values)).view(np.int64)


def column_words(values: pa.Array) -> Words:
    """One word per value; 0 for a null."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return column_words(values.storage)
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.uint64)
    if pa.types.is_dictionary(kind):
        return _of_dictionary(values)
    for fits, make in _KINDS:
        if fits(kind):
            words = make(values)
            return _without_nulls(words, values)
    raise Invalid(f"a column of the type {kind} cannot be compared", "leave it out with --columns")


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return (
            column.chunk(0)
            if column.num_chunks == 1
            else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
        )
    return column


def _mixed(words: Words) -> Words:
    """A bijection, in place: the finalizer of splitmix64."""
    words += _STEP
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words


def _named(name: str, words: Words) -> Words:
    """Nulls stay 0: an absent column is a column of nulls."""
    nulls = words == 0
    made = _mixed(words + np.uint64(xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"), 2)))
    made[nulls] = 0
    return made


def _without_nulls(words: Words, values: pa.Array) -> Words:
    words[words == 0] = _STEP  # 0 is for nulls alone
    if values.null_count:
        words[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return words


def _numpy(values: pa.Array, kind: pa.DataType) -> np.ndarray:
    """The values under nulls are 0: they must not matter, and what lies under a null may be anything."""
    made = values.cast(kind, safe=False)
    filled = pc.fill_null(made, pa.scalar(0, kind)) if made.null_count else made
    return np.asarray(filled.to_numpy(zero_copy_only=False))


# Numbers


def _integers(values: pa.Array) -> Words:
    if pa.types.is_uint64(values.type):
        found = _numpy(values, pa.uint64())
        words = _mixed(found + _NUMBER)
        huge = found >= np.uint64(2**63)
        if huge.any():
            words[huge] = [_big(int(number), 0) for number in found[huge]]
        return words
    return _number_words(_numpy(values, pa.int64()), np.int64(0))


def _number_words(unscaled: np.ndarray, scale: "np.int64 | np.ndarray") -> Words:
    """`unscaled` has no trailing zero if its scale is above 0."""
    words: Words = unscaled.astype(np.int64).view(np.uint64) + _NUMBER
    if np.any(scale):
        words += _mixed(np.asarray(scale, np.int64).view(np.uint64) + _REST) * (np.asarray(scale) != 0).astype(
            np.uint64
        )
    return _mixed(words)


def _big(unscaled: int, scale: int) -> np.uint64:
    text = f"{unscaled}/{scale}"
    return np.uint64(xxhash.xxh64_intdigest(text.encode(), int(_HUGE)))


def _decimals(values: pa.Array) -> Words:
    scale = values.type.scale
    if values.type.bit_width < 128:
        values = values.cast(pa.decimal128(values.type.precision, scale))
    width = values.type.bit_width // 64
    if width == 2:
        raw = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
        low, high = raw[::2].copy(), raw[1::2]
        small = high == low >> np.int64(63)
        if values.null_count:
            nulls = values.is_null().to_numpy(zero_copy_only=False)
            low[nulls], small = 0, small | nulls
    else:
        low, small = np.zeros(len(values), np.int64), np.zeros(len(values), bool)
        if values.null_count:
            small = values.is_null().to_numpy(zero_copy_only=False)
    words = _number_words(*_stripped(low, scale))
    if not small.all():
        for place in np.flatnonzero(~small):
            words[place] = _decimal_word(values[int(place)].as_py())
    return words


def _stripped(unscaled: np.ndarray, scale: int) -> tuple[np.ndarray, np.ndarray]:
    """Without trailing zeros behind the point; a negative scale is multiplied out where 64 bits are enough."""
    found, scales = unscaled.copy(), np.full(len(unscaled), scale, np.int64)
    for _ in range(max(0, -scale)):
        fits = (scales < 0) & (np.abs(found) < np.int64(2**63 // 10))
        found[fits] *= _TEN
        scales[fits] += 1
    while True:
        quotient, rest = np.divmod(found, _TEN)
        more = (scales > 0) & (rest == 0)
        if not more.any():
            return found, scales
        found[more] = quotient[more]
        scales[more] -= 1


def _decimal_word(value: Decimal) -> np.uint64:
    """One number: as 64 bits where its significant digits fit, as all others are."""
    sign, digits, exponent = value.as_tuple()
    number, scale = int("".join(map(str, digits))), -int(exponent)
    while scale > 0 and number % 10 == 0:
        number, scale = number // 10, scale - 1
    if scale < 0:
        number, scale = number * 10**-scale, 0
    number = -number if sign else number
    if -(2**63) <= number < 2**63:
        return np.uint64(_number_words(np.array([number], np.int64), np.array([scale], np.int64))[0])
    return _big(number, scale)


def number_text_words(texts: pa.Array) -> Words:
    """Decimal numbers written as text, as databases send them: by value. `NaN` and infinities are floats."""
    words = np.zeros(len(texts), np.uint64)
    for place, text in enumerate(texts.to_pylist()):
        if text is None:
            continue
        value = Decimal(text)
        words[place] = _decimal_word(value) if value.is_finite() else _floats(pa.array([float(value)], pa.float64()))[0]
    return _without_nulls(words, texts)


def _floats(values: pa.Array) -> Words:
    found = _numpy(values, pa.float64()).astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    words: Words = found.view(np.uint64)
    words[np.isnan(found)] = _NAN
    return _mixed(words + _FLOAT)


def _booleans(values: pa.Array) -> Words:
    return _mixed(_numpy(values, pa.int64()).view(np.uint64) + _BOOL)


# Times


def _dates(values: pa.Array) -> Words:
    days = _numpy(values, pa.date32()).astype("datetime64[D]").astype(np.int64)
    return _mixed(days.view(np.uint64) + _DATE)


def _instants(values: pa.Array) -> Words:
    return _counted(values, _STAMP)


def _times(values: pa.Array) -> Words:
    return _counted(values, _TIME)


def _spans(values: pa.Array) -> Words:
    return _counted(values, _SPAN)


def _counted(values: pa.Array, seed: np.uint64) -> Words:
    """Seconds and nanoseconds, so that no unit overflows."""
    per_second = np.int64(1_000_000_000 // _NANOS[values.type.unit])
    size = np.int32 if values.type.bit_width == 32 else np.int64
    raw = np.frombuffer(values.buffers()[1], size)[values.offset : values.offset + len(values)].astype(np.int64)
    if values.null_count:
        raw[values.is_null().to_numpy(zero_copy_only=False)] = 0
    seconds, rest = np.divmod(raw, per_second)
    words = _mixed(seconds.view(np.uint64) + seed)
    words += (rest * np.int64(_NANOS[values.type.unit])).view(np.uint64)
    return _mixed(words)


# Texts


def _octets(values: pa.Array) -> Words:
    """Eight bytes at a time, all values side by side; the last word is padded with zeros, and the length counts."""
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    if pa.types.is_binary_view(values.type) or pa.types.is_string_view(values.type):
        values = values.cast(pa.large_binary())
    size = np.int64 if pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type) else np.int32
    count = len(values)
    if not count:
        return np.empty(0, np.uint64)
    _, places, data = values.buffers()
    bounds = np.frombuffer(places, size)[values.offset : values.offset + count + 1].astype(np.int64)
    starts, lengths = bounds[:-1], np.diff(bounds)
    if values.null_count:
        lengths = np.where(values.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    first, last = int(bounds[0]), int(bounds[-1])
    buffer = np.empty(last - first + 8, np.uint8)
    if last > first:
        buffer[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    buffer[last - first :] = 0
    starts = starts - first
    return _chained(buffer, starts, lengths)


def _chained(buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Words:
    # A word at every byte: overlapping views of eight bytes. The buffer has eight bytes more than the values.
    words_at = np.lib.stride_tricks.as_strided(buffer[:8].view(np.uint64), (len(buffer) - 7,), (1,))
    made = _mixed(lengths.astype(np.uint64) + _OCTETS)
    long = lengths > _LONG
    left = np.flatnonzero((lengths > 0) & ~long)
    every = len(left) == len(lengths)
    at = 0
    while len(left):
        begin, rest = (starts, lengths) if every else (starts[left], lengths[left])
        words = words_at[begin + at]
        rest = rest - at
        short = rest < 8
        if short.any():
            words[short] &= _MASKS[rest[short]]
        if every:
            made ^= words
            _mixed(made)
        else:
            part = made[left] ^ words
            made[left] = _mixed(part)
        more = rest > 8
        at += 8
        if not more.all():
            left = left[more]
            every = False
    for place in np.flatnonzero(long).tolist():
        text = buffer[starts[place] : starts[place] + lengths[place]].tobytes()
        made[place] ^= np.uint64(xxhash.xxh64_intdigest(text, 3))
    return made


_MASKS = np.array([2 ** (8 * count) - 1 for count in range(8)], np.uint64)


# Nested


def _of_dictionary(values: pa.DictionaryArray) -> Words:
    words = column_words(values.dictionary)
    places = values.indices
    found = _numpy(places, pa.int64())
    made = words[found] if len(words) else np.zeros(len(found), np.uint64)
    if places.null_count:
        made[places.is_null().to_numpy(zero_copy_only=False)] = 0
    return made


def _structs(values: pa.StructArray) -> Words:
    total = np.full(len(values), _STRUCT, np.uint64)
    for number in range(values.type.num_fields):
        total += _named(values.type.field(number).name, column_words(values.field(number)))
    return _mixed(total)


def _lists(values: pa.Array) -> Words:
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    starts, lengths, inner = _spread(values)
    words = column_words(inner)
    places = np.arange(len(words), dtype=np.int64) - np.repeat(starts, lengths)
    words = _mixed(words + _mixed(places.view(np.uint64) + _REST))
    return _mixed(_summed(words, lengths) + _mixed(lengths.astype(np.uint64) + _LIST))


def _maps(values: pa.MapArray) -> Words:
    _, lengths, inner = _spread(values)
    keys, items = column_words(inner.field(0)), column_words(inner.field(1))
    words = _mixed(_mixed(keys + _REST) + items)
    return _mixed(_summed(words, lengths) + _mixed(lengths.astype(np.uint64) + _MAP))


def _spread(values: pa.Array) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """The first place, the length of each list, and the items of all; a null has none."""
    size = np.int64 if pa.types.is_large_list(values.type) else np.int32
    bounds = np.frombuffer(values.buffers()[1], size)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    children = values.values if not pa.types.is_map(values.type) else _entries(values)
    return bounds[:-1] - first, np.diff(bounds), children.slice(first, last - first)


def _entries(values: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])


def _summed(words: Words, lengths: np.ndarray) -> Words:
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])
    ends = np.cumsum(lengths)
    made: Words = totals[ends] - totals[ends - lengths]
    return made


def _is_octets(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_binary,
        pa.types.is_string,
        pa.types.is_large_binary,
        pa.types.is_large_string,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
        pa.types.is_string_view,
    )
    return any(check(kind) for check in checks)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


_KINDS = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_floating, _floats),
    (_is_octets, _octets),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _instants),
    (pa.types.is_time, _times),
    (pa.types.is_duration, _spans),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
    (_is_list, _lists),
)


def canonical_json(value: object) -> object:
    """A decoded JSON value in a form in which equal data are equal: keys in any order, 5 and 5.0 one number."""
    if isinstance(value, Mapping):
        return tuple((str(name), canonical_json(value[name])) for name in sorted(value))
    if isinstance(value, list):
        return ("[", *(canonical_json(one) for one in value))
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value).__name__, value)
    return ("number", str(value) if isinstance(value, float) and math.isnan(value) else Decimal(str(value)).normalize())
