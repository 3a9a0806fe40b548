"""Columns out of memory that is scattered."""

import ctypes

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa

from playhead.kafka.c_records import Message, Messages, gathered


def addresses_of(parts):
    kept = [None if part is None else ctypes.create_string_buffer(part, len(part) + 1) for part in parts]
    at = np.array([0 if one is None else ctypes.addressof(one) for one in kept], np.int64)
    return kept, at, np.array([len(part or b"") for part in parts], np.int64)


@pytest.mark.parametrize(
    "parts",
    [
        [b"a"],
        [None],
        [b""],
        [None, b"x", None, b"", b"yy"],
        [b"long" * 100_000, None, b"short"],
        [bytes([number % 256]) * (number % 7) for number in range(500)],
        [],
    ],
    ids=lambda parts: str(len(parts)),
)
def test_bytes_at_addresses_become_a_column(parts):
    kept, at, sizes = addresses_of(parts)
    assert gathered(at, sizes).equals(pa.array(parts, pa.binary()))
    backwards = gathered(at[::-1].copy(), sizes[::-1].copy())
    backwards.validate(full=True)
    assert backwards.to_pylist() == parts[::-1]
    assert len(kept) == len(parts)


def test_fields_of_messages_that_lie_far_apart_in_any_order():
    kept, at, sizes = addresses_of([b"one", None, b"three"])
    padding = []
    messages = []
    for number in range(3):
        one = Message()
        one.err, one.offset, one.payload, one.len = (
            -191 if number == 1 else 0,
            number,
            int(at[number]),
            int(sizes[number]),
        )
        messages.append(one)
        padding.append(ctypes.create_string_buffer(1 << 20))
    rows = Messages(np.array([ctypes.addressof(messages[number]) for number in (2, 0, 1)], np.int64))
    assert rows.errors.tolist() == [0, 0, -191]
    assert rows.offsets.tolist() == [2, 0, 1]
    assert rows.values().to_pylist() == [b"three", b"one", None]
    assert rows.only(rows.errors == 0).keys().to_pylist() == [None, None]
    assert kept
    assert padding
