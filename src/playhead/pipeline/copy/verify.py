"""A topic and its copy compared, by Spark: count, xor and sum of the hashes of the records per key bucket, on both sides.

The hash of a record covers its key, value, headers and time, and the hash of the record of the same key before it: so a record
that is missing, doubled, changed or out of order makes its bucket differ. Only the keys of buckets that differ are compared one
by one. Keys are compared by their hashes, records without a key without order. Of a compacted topic only the last record of each
key is compared, and one that is a tombstone counts as none: the cleaner may have removed it on one side only. A key with newer
records than those that are compared counts on neither side.

If keys span partitions of the source, the order of their records is the one in which they were copied, by the offset map.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql.functions import (
    bit_xor,
    col,
    collect_list,
    count,
    flatten,
    lag,
    lit,
    pmod,
    row_number,
    shiftright,
    size,
    sort_array,
    struct,
    when,
    xxhash64,
)
from pyspark.sql.functions import slice as slice_of
from pyspark.sql.functions import sum as sum_of

from playhead.pipeline.copy.read import (
    HEADERS,
    KEY,
    MERGED_AT,
    OFFSET,
    PARTITION,
    TASKS,
    TIMESTAMP,
    VALUE,
    Ranges,
    read_ranges,
)
from playhead.pipeline.spark_faults import spark_translated

BUCKETS = 1024
MOST_SHOWN = 20
_LOW = 0xFFFFFFFF
_DIGEST = ("count", "xor", "high", "low")


@dataclass(frozen=True, slots=True)
class VerifySide:
    """One of the two topics, and what of it is compared. `properties`: of clients, under Java's names, with their secrets.
    `places`: partition and offset of the records that count. `has_others`: the rest is of other producers. `order`: partition,
    offset and rank of records whose keys span partitions. `newer`: of a compacted topic, ranges behind the compared ones."""

    properties: Mapping[str, str] = field(repr=False)
    topic: str
    ranges: Ranges
    places: DataFrame | None = None
    has_others: bool = False
    order: DataFrame | None = None
    newer: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose records differ. The places are `partition:offset` of the records that the other side does not have at this
    point of the key's order."""

    key: bytes | None
    source: tuple[str, ...]
    target: tuple[str, ...]

    def __str__(self) -> str:
        name = "records without a key" if self.key is None else f"key {self.key!r}"
        sides = [
            f"{words} {', '.join(places)}"
            for words, places in (("source", self.source), ("copy", self.target))
            if places
        ]
        return f"{name}: {'; '.join(sides)}"


@dataclass(frozen=True, slots=True)
class Verified:
    """The records that were compared on each side. `buckets`: how many differ. `differences`: of the first keys that differ."""

    source_records: int
    target_records: int
    buckets: int
    differences: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.buckets


def verify_copy(spark: SparkSession, source: VerifySide, target: VerifySide, *, is_compacted: bool = False) -> Verified:
    with spark_translated(f"comparing {source.topic} and {target.topic}"):
        left_out = _superseded(spark, source, target) if is_compacted else None
        here, there = (_hashed(spark, side, left_out, is_compacted=is_compacted) for side in (source, target))
        digests = [
            {row["bucket"]: tuple(row[name] for name in _DIGEST) for row in _digests(one).collect()}
            for one in (here, there)
        ]
        suspect = [
            bucket
            for bucket in digests[0].keys() | digests[1].keys()
            if digests[0].get(bucket) != digests[1].get(bucket)
        ]
        counts = [sum(one[0] for one in side.values()) for side in digests]
        found = _differences(here, there, suspect) if suspect else ()
    return Verified(counts[0], counts[1], len(suspect), found)


def _superseded(spark: SparkSession, source: VerifySide, target: VerifySide) -> DataFrame | None:
    """The hashes of keys with other records than those that are compared, newer ones in the source or those of others in the
    target: because of them the cleaner may remove what is compared. None: there are none."""
    found = [_keys(spark, source, source.newer).select("id")] if source.newer else []
    if target.places is not None and target.has_others:
        keys = _keys(spark, target, target.ranges)
        found.append(keys.join(target.places, [PARTITION, OFFSET], "left_anti").select("id"))
    return reduce(DataFrame.unionByName, found).distinct() if found else None


def _keys(spark: SparkSession, side: VerifySide, ranges: Ranges) -> DataFrame:
    records = read_ranges(spark, side.properties, side.topic, ranges).where(col(KEY).isNotNull())
    return records.select(PARTITION, OFFSET, xxhash64(KEY).alias("id"))


def _hashed(spark: SparkSession, side: VerifySide, left_out: DataFrame | None, *, is_compacted: bool) -> DataFrame:
    """Bucket, hash of the key, hash of the record with the one before it, place. Only hashes are shuffled, and the key."""
    records = read_ranges(spark, side.properties, side.topic, side.ranges)
    is_tombstone = col(VALUE).isNull().alias("is_tombstone")
    record = xxhash64(KEY, VALUE, TIMESTAMP, HEADERS, col(KEY).isNull(), col(VALUE).isNull())
    hashed = records.select(PARTITION, OFFSET, KEY, xxhash64(KEY).alias("id"), record.alias("record"), is_tombstone)
    if side.places is not None:
        hashed = hashed.join(side.places, [PARTITION, OFFSET], "left_semi")
    if side.order is not None:
        hashed = hashed.join(side.order, [PARTITION, OFFSET], "left")
    if left_out is not None:
        hashed = hashed.join(left_out, "id", "left_anti")
    order = [PARTITION, OFFSET] if side.order is None else [MERGED_AT, PARTITION, OFFSET]
    keyed = hashed.where(col(KEY).isNotNull()).repartition(TASKS, "id")
    if is_compacted:
        last = Window.partitionBy("id").orderBy(*(col(name).desc() for name in order))
        keyed = keyed.withColumn("row", row_number().over(last)).where((col("row") == 1) & ~col("is_tombstone"))
        linked = keyed.withColumn("hash", col("record"))
    else:
        linked = keyed.withColumn(
            "hash", xxhash64("record", lag("record", 1, 0).over(Window.partitionBy("id").orderBy(*order)))
        )
    linked = linked.withColumn("bucket", pmod(col("id"), lit(BUCKETS)))
    names = ["bucket", "id", KEY, "hash", PARTITION, OFFSET]
    keyless = (
        hashed.where(col(KEY).isNull()).withColumn("hash", col("record")).withColumn("bucket", lit(-1).cast("bigint"))
    )
    return linked.select(*names).unionByName(keyless.select(*names))


def _digests(hashed: DataFrame) -> DataFrame:
    """The sum in two halves: the sum of 64-bit hashes would overflow."""
    return hashed.groupBy("bucket").agg(
        count(lit(1)).alias("count"),
        bit_xor("hash").alias("xor"),
        sum_of(shiftright("hash", 32)).alias("high"),
        sum_of(col("hash").bitwiseAND(lit(_LOW))).alias("low"),
    )


def _differences(here: DataFrame, there: DataFrame, suspect: list[int]) -> tuple[Difference, ...]:
    """The first keys with a record that one side has more often than the other, at the same point of the key's order."""
    both = (
        here.withColumn("side", lit(0)).unionByName(there.withColumn("side", lit(1))).where(col("bucket").isin(suspect))
    )
    alike = both.groupBy("id", KEY, "hash").agg(*(_of_side(side) for side in (0, 1)))
    unlike = alike.where(size(col("at0")) != size(col("at1")))
    by_key = (
        unlike.groupBy("id", KEY).agg(*(_all_of_side(side) for side in (0, 1))).orderBy("id", KEY).limit(MOST_SHOWN)
    )
    return tuple(Difference(_bytes(row[KEY]), _places(row["at0"]), _places(row["at1"])) for row in by_key.collect())


def _of_side(side: int) -> Column:
    return collect_list(when(col("side") == side, struct(PARTITION, OFFSET))).alias(f"at{side}")


def _all_of_side(side: int) -> Column:
    places = sort_array(flatten(collect_list(col(f"at{side}"))))
    return slice_of(places, 1, MOST_SHOWN).alias(f"at{side}")


def _bytes(key: bytearray | None) -> bytes | None:
    return None if key is None else bytes(key)


def _places(found: list[Row]) -> tuple[str, ...]:
    return tuple(f"{row[PARTITION]}:{row[OFFSET]}" for row in found)
