"""What tells of many records whether they are all there: their number, and the xor and the sum of their hashes.

Together they tell apart what each of them alone would not: a record lost and another doubled, a record three times.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Digest:
    count: int = 0
    hash_xor: int = 0
    hash_sum: int = 0

    def add_hashes(self, hashes: Numbers) -> None:
        self.count += len(hashes)
        self.hash_xor ^= int(np.bitwise_xor.reduce(hashes))
        self.hash_sum = _wrapped(self.hash_sum + int(hashes.sum(dtype=np.int64)))


def _wrapped(number: int) -> int:
    """As 64 bits with a sign, the way Java and SQL count."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
