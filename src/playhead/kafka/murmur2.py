"""Java's partitioner for keyed records: murmur2 of the key bytes, sign dropped, modulo the number of partitions.

`partitions_of` computes it for many keys at once, several times faster than key by key: the words of keys of one length lie side
by side in one large integer, 64 bits apart, so that one multiplication multiplies them all and none runs into its neighbour.
"""

import struct
from collections import defaultdict
from collections.abc import Sequence

M = 0x5BD1E995
SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as the signed 32-bit integer Java computes."""
    length = len(data)
    h = (SEED ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * M) & _MASK
        k ^= k >> 24
        k = (k * M) & _MASK
        h = ((h * M) & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * M) & _MASK
    h ^= h >> 13
    h = (h * M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_of(key: bytes, partitions: int) -> int:
    """Where a Java producer puts this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Where a Java producer puts each of these keys."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        by_length[len(key)].append(index)
    found = [0] * len(keys)
    for length, indexes in by_length.items():
        for start in range(0, len(indexes), _LANES):
            some = indexes[start : start + _LANES]
            for index, value in zip(some, _hashes([keys[i] for i in some], length), strict=True):
                found[index] = (value & 0x7FFFFFFF) % partitions
    return found


_LANES = 2_000


def _hashes(keys: Sequence[bytes], length: int) -> Sequence[int]:
    """The unsigned hashes of keys of one length."""
    lanes = struct.Struct(f"<{len(keys)}Q")
    ones = int.from_bytes(lanes.pack(*[1] * len(keys)), "little")
    low = ones * _MASK
    count = length // 4
    words = struct.unpack(f"<{count * len(keys)}I", b"".join([key[: count * 4] for key in keys]))
    h = ones * ((SEED ^ length) & _MASK)
    for j in range(count):
        k = (int.from_bytes(lanes.pack(*words[j::count]), "little") * M) & low
        k ^= (k >> 24) & (ones * 0xFF)
        h = (((h * M) & low) ^ (k * M)) & low
    if length & 3:
        rest = [int.from_bytes(key[count * 4 :], "little") for key in keys]
        h = ((h ^ int.from_bytes(lanes.pack(*rest), "little")) * M) & low
    h ^= (h >> 13) & (ones * 0x7FFFF)
    h = (h * M) & low
    h ^= (h >> 15) & (ones * 0x1FFFF)
    return lanes.unpack(h.to_bytes(8 * len(keys), "little"))
