"""The partition of a keyed record, for a whole column at once: hashes that Kafka's own test of murmur2 names."""

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from playhead.kafka.bulk import _first_and_last
from playhead.kafka.murmur2 import partitions_of_column

KNOWN = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
def test_keys_have_the_hashes_that_kafka_says(kind):
    keys = pa.array([name.encode() for name in KNOWN], pa.binary()).cast(kind)
    chosen = partitions_of_column(keys, 2**31, 0)
    assert chosen.tolist() == [number & 0x7FFFFFFF for number in KNOWN.values()]


def test_a_part_of_a_column_is_hashed_as_the_whole():
    keys = pa.array(["x", None, "21", "", "foobar"])
    whole = partitions_of_column(keys, 2**31, 5).tolist()
    assert whole[1] == 5
    assert whole[2] == KNOWN["21"] & 0x7FFFFFFF
    assert partitions_of_column(keys[1:4], 2**31, 5).tolist() == whole[1:4]


def test_keys_without_a_byte_are_hashed_too():
    assert (
        partitions_of_column(pa.array(["", ""]), 3, 0).tolist()
        == partitions_of_column(pa.array([b""] * 2), 3, 0).tolist()
    )


def test_the_first_and_the_last_of_each_partition_are_found():
    partitions = partitions_of_column(pa.array([None, "21", None, "21", None, "abc"]), 2**31, 7)
    assert _first_and_last(partitions) == [0, 1, 3, 4, 5]
