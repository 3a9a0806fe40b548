"""Which partition a keyed record goes to, for a whole Arrow column at once: murmur2 of the key, as Kafka's producer chooses.

Keys of one length are hashed together, word by word, as columns of numpy. librdkafka could choose too, but would not say where
a record went without a call of Python for each of them. `kafka.murmur2` does the same without numpy, several times slower.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from playhead.kafka.murmur2 import SEED, M

Numbers = npt.NDArray[np.int64]
_M = np.uint32(M)
_POSITIVE = np.uint32(0x7FFFFFFF)


def choose_partitions(keys: pa.Array, partitions: int, without_key: int) -> Numbers:
    """`keys` are strings or binaries; a record without a key goes to the partition `without_key`."""
    binary = keys.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = binary.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    hashes = np.empty(len(binary), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        # A window at every byte costs nothing; only the rows that are taken are copied.
        keys_of_length = (
            sliding_window_view(data, length)[offsets[rows]] if length else np.empty((len(rows), 0), np.uint8)
        )
        hashes[rows] = _murmur2(keys_of_length)
    chosen = (hashes & _POSITIVE).astype(np.int64) % partitions
    if binary.null_count:
        chosen[binary.is_null().to_numpy(zero_copy_only=False)] = without_key
    return chosen


def first_and_last(partitions: Numbers) -> list[int]:
    """The rows that are the first or the last of their partition, in order."""
    _, first = np.unique(partitions, return_index=True)
    _, from_end = np.unique(partitions[::-1], return_index=True)
    found: list[int] = np.unique(np.concatenate((first, len(partitions) - 1 - from_end))).tolist()
    return found


def _murmur2(keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Of a table with one key a row; sums and products wrap at 32 bits, as Java's do."""
    count, length = keys.shape
    whole = length & ~3
    words = np.ascontiguousarray(np.ascontiguousarray(keys[:, :whole]).view("<u4").T)
    h = np.full(count, SEED ^ length, np.uint32)
    for word in words:
        k = word * _M
        k ^= k >> np.uint32(24)
        h = h * _M ^ k * _M
    if length & 3:
        rest = np.zeros((count, 4), np.uint8)
        rest[:, : length & 3] = keys[:, whole:]
        h = (h ^ rest.view("<u4")[:, 0]) * _M
    h ^= h >> np.uint32(13)
    h *= _M
    return h ^ (h >> np.uint32(15))
