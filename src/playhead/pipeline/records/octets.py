"""Base64 and the decimals inside of it, for whole columns, in both directions.

The texts of a column are decoded and encoded in one call: every group of four characters is on its own, so that texts can be laid
end to end once their padding is counted. Decimals are big-endian two's complement, written in as few bytes as possible. To be
read they are moved to the right of sixteen or thirty-two bytes and filled up with their sign; there None means that some text is
not what it should be, and the caller looks closer. To be written they are moved to the left of whole groups of three bytes.
"""

import binascii

import numpy as np
import pyarrow as pa

_PAD = ord("=")
_BLOCK = 8192  # rows whose pieces stay in the cache of a processor


def decode_base64(texts: pa.Array) -> pa.Array | None:
    """Strings without nulls -> bytes. Padding is required."""
    offsets, content = octets_of(texts)
    lengths = np.diff(offsets)
    if (lengths % 4).any():
        return None
    ends = offsets[1:][lengths > 0]
    pads = np.zeros(len(texts), np.int64)
    pads[lengths > 0] = (content[ends - 1] == _PAD).astype(np.int64) * (1 + (content[ends - 2] == _PAD))
    if np.count_nonzero(content == _PAD) != pads.sum():
        return None
    filled = np.where(content == _PAD, ord("A"), content).astype(np.uint8)
    try:
        decoded = np.frombuffer(binascii.a2b_base64(filled.tobytes(), strict_mode=True), np.uint8)
    except binascii.Error:
        return None
    sizes = lengths // 4 * 3 - pads
    if pads.any():
        keep = np.ones(len(decoded), bool)
        last = offsets[1:] // 4 * 3
        keep[last[pads > 0] - 1] = False
        keep[last[pads > 1] - 2] = False
        decoded = decoded[keep]
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(bounds), pa.py_buffer(decoded)])


def to_decimals(octets: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Bytes without nulls -> decimals of `kind`; None if one is empty or too long, or has too many digits."""
    width = kind.bit_width // 8
    offsets, content = octets_of(octets)
    sizes = np.diff(offsets)
    if not len(octets):
        return pa.array([], kind)
    if sizes.min() < 1 or sizes.max() > width:
        return None
    signs = np.where(content[offsets[:-1]] & 0x80, 0xFF, 0).astype(np.uint8)
    cells = np.repeat(signs[:, None], width, axis=1)
    rows = np.repeat(np.arange(len(octets)), sizes)
    within = np.arange(len(content)) - np.repeat(offsets[:-1], sizes)
    cells[rows, width - np.repeat(sizes, sizes) + within] = content
    little = np.ascontiguousarray(cells[:, ::-1])
    most = 38 if width == 16 else 76
    wide = pa.decimal128(most, kind.scale) if width == 16 else pa.decimal256(most, kind.scale)
    made = pa.Array.from_buffers(wide, len(octets), [None, pa.py_buffer(little)])
    return _fitting(made, kind)


def _fitting(made: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        made.validate(full=True)  # 16 bytes hold more than 38 digits
        return made.cast(kind)
    except pa.ArrowInvalid:
        return None


# Bytes -> base64


def encode_base64(octets: pa.Array) -> pa.Array:
    """Bytes without nulls -> strings, with padding."""
    offsets, content = octets_of(octets)
    sizes = np.diff(offsets)
    groups = (sizes + 2) // 3
    if (sizes % 3).any():
        ends, missing = np.cumsum(groups * 3), groups * 3 - sizes
        is_content = np.ones(int(ends[-1]), bool)
        is_content[ends[missing > 0] - 1] = False
        is_content[ends[missing > 1] - 2] = False
        padded = np.zeros(len(is_content), np.uint8)
        padded[is_content] = content
        content = padded
    return _texts(_characters(content), groups, sizes)


def encode_decimals(column: pa.Array) -> pa.Array:
    """The base64 of the fewest bytes that hold the unscaled values. `column` has no nulls and is of Arrow's decimals."""
    width = column.type.bit_width // 64
    raw = np.frombuffer(column.buffers()[1], "<i8")[column.offset * width : (column.offset + len(column)) * width]
    words = raw.reshape(len(column), width)
    if all(np.array_equal(words[:, at], words[:, 0] >> 63) for at in range(1, width)):
        return _encode_longs(np.ascontiguousarray(words[:, 0]))
    return encode_unscaled(np.ascontiguousarray(np.ascontiguousarray(words).view("<u4").T))


def _encode_longs(values: np.ndarray) -> pa.Array:
    magnitudes = values ^ (values >> 63)
    most = int(magnitudes.max()) if len(values) else 0
    sizes = np.ones(len(values), np.int64)
    for size in range(1, 8):
        if most >> 8 * size - 1:
            sizes += magnitudes >= 1 << 8 * size - 1
    left = (values.view(np.uint64) << (64 - 8 * sizes).astype(np.uint64)).astype(">u8")
    return _of_cells(left.view(np.uint8).reshape(len(values), 8), sizes)


def encode_unscaled(limbs: np.ndarray) -> pa.Array:
    """`limbs`: numbers in pieces of 32 bits, one number a column, the lowest pieces in the first row; the top bit is the sign."""
    parts = []
    for start in range(0, limbs.shape[1], _BLOCK):
        block = limbs[:, start : start + _BLOCK]
        sizes = _sizes(block)
        cells = np.ascontiguousarray(block[::-1].T.astype(">u4")).view(np.uint8)
        left = np.zeros((len(cells), int(sizes.max())), np.uint8)
        for size in np.unique(sizes).tolist():
            rows = sizes == size
            left[rows, :size] = cells[rows, cells.shape[1] - size :]
        parts.append(_of_cells(left, sizes))
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def _sizes(limbs: np.ndarray) -> np.ndarray:
    """How many bytes each number needs, with its sign."""
    signs = np.where(limbs[-1] >> 31, 0xFFFFFFFF, 0).astype(np.uint32)
    tops, places = np.zeros(limbs.shape[1], np.uint32), np.zeros(limbs.shape[1], np.int64)
    for at, limb in enumerate(limbs):
        magnitudes = limb ^ signs
        is_higher = magnitudes != 0
        np.copyto(tops, magnitudes, where=is_higher)
        np.copyto(places, at, where=is_higher)
    made: np.ndarray = 4 * places + 1
    for size in range(1, 5):
        made += tops >= 1 << 8 * size - 1
    return made


def _of_cells(cells: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """The first `sizes` bytes of each row of `cells`; behind them are zeros."""
    count, width = cells.shape
    most = int(sizes.max()) if count else 0
    groups = (sizes + 2) // 3
    wide = (most + 2) // 3
    padded = np.zeros((count, wide * 3), np.uint8)
    kept = min(width, wide * 3)
    padded[:, :kept] = cells[:, :kept]
    characters = _characters(padded)
    if (groups != wide).any():
        used = np.arange(wide)[None, :] < groups[:, None]
        characters = characters.view(np.uint32).reshape(count, wide)[used].view(np.uint8)
    return _texts(characters, groups, sizes)


def _characters(octets: np.ndarray) -> np.ndarray:
    """In memory that can be written to: the padding is set in later."""
    return np.frombuffer(bytearray(binascii.b2a_base64(np.ascontiguousarray(octets).data, newline=False)), np.uint8)


def _texts(characters: np.ndarray, groups: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """`characters` of whole groups; those that stand for no byte become padding."""
    bounds = np.concatenate([[0], np.cumsum(groups * 4)]).astype(np.int32)
    missing = groups * 3 - sizes
    ends = bounds[1:]
    characters[ends[missing > 0] - 1] = _PAD
    characters[ends[missing > 1] - 2] = _PAD
    return pa.Array.from_buffers(pa.string(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(characters)])


def octets_of(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Of strings or bytes: where each begins, from 0, where the last one ends, and all bytes without a copy."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return bounds - bounds[0], content[bounds[0] : bounds[-1]]
