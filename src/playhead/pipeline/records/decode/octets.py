"""Base64 and the decimals inside of it, for whole columns.

The texts of a column are decoded in one call: every group of four characters is on its own, so that texts can be laid end to end
once their padding is counted. Decimals are big-endian two's complement of any length; they are moved to the right of sixteen or
thirty-two bytes and filled up with their sign. None means that some text is not what it should be; the caller looks closer.
"""

import binascii

import numpy as np
import pyarrow as pa

_PAD = ord("=")


def decode_base64(texts: pa.Array) -> pa.Array | None:
    """Strings without nulls -> bytes. Padding is required."""
    offsets, content = _parts(texts)
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
    offsets, content = _parts(octets)
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


def _parts(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets from 0, and the bytes."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return bounds - bounds[0], content[bounds[0] : bounds[-1]]
