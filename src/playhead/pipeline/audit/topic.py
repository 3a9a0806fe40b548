"""The records of a topic as a side: their bytes as they are, hashed by Spark's reader in the JVM.

The hash of a record is made of Spark's xxhash64 of its key and of its value. The rows of a table, put through the connector's
converters in a task, have the same one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from playhead.ledger.model import RangeClaim
from playhead.model.ranges import OffsetRange
from playhead.pipeline.audit.sides import FrameSide
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.sink import HASH, KEY, OFFSET, VALUE
from playhead.pipeline.deliver.task import CLAIM, number_claims, read_claims
from playhead.pipeline.spark_faults import spark_translated

_TURN = 17  # bits by which the hash of a key is rotated, so that an equal value does not cancel it


def record_hashes(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of the hashes of keys and of values, as Spark's xxhash64 has them."""
    turned = keys.view(np.uint64)
    turned = (turned << np.uint64(_TURN)) | (turned >> np.uint64(64 - _TURN))
    return (values.view(np.uint64) ^ turned).view(np.int64)


def hash_column() -> Column:
    """The same, of the columns that Spark reads."""
    key = f.xxhash64(KEY)
    return f.col(HASH).bitwiseXOR(f.shiftleft(key, _TURN).bitwiseOR(f.shiftrightunsigned(key, 64 - _TURN)))


@dataclass(frozen=True, slots=True)
class Spans:
    """What is read of some topics, at most one span per partition."""

    spans: Sequence[OffsetRange]

    @property
    def topics(self) -> list[str]:
        return sorted({span.topic for span in self.spans})

    @property
    def name(self) -> str:
        return f"topic{'s' if len(self.topics) > 1 else ''} {', '.join(self.topics)}"

    @property
    def claims(self) -> Mapping[int, RangeClaim]:
        """By the number in the column `CLAIM` of their records. That of the first topic is the partition."""
        return number_claims([RangeClaim(span, True, "", 0) for span in self.spans])

    def read(self, spark: SparkSession, reading: ReadOptions) -> DataFrame:
        """One Spark partition per span."""
        return read_claims(spark, reading, list(self.claims.values()))


def find_keys(spark: SparkSession, spans: Spans, reading: ReadOptions, keys: Sequence[int]) -> set[int]:
    """Which of these hashes of keys the records have."""
    wanted = spark.createDataFrame(pa.table({"k": pa.array(sorted(keys), pa.int64())}))
    found = spans.read(spark, reading).where(f.col(KEY).isNotNull()).select(f.xxhash64(KEY).alias("k"))
    with spark_translated(f"looking for keys in {spans.name}"):
        return set(found.join(f.broadcast(wanted), "k", "left_semi").distinct().toArrow().column("k").to_pylist())


def record_side(spans: Spans, reading: ReadOptions) -> FrameSide:
    """Of one topic. `k` is the hash of the record's key, which compaction goes by."""
    (topic,) = spans.topics

    def frame(spark: SparkSession) -> DataFrame:
        place = f.concat_ws("", f.lit(f"{topic}-"), f.col(CLAIM), f.lit("@"), f.col(OFFSET))
        return spans.read(spark, reading).select(
            hash_column().alias("h"),
            place.alias("at"),
            f.col(VALUE).alias("row"),
            f.when(f.col(KEY).isNotNull(), f.xxhash64(KEY)).alias("k"),
        )

    return FrameSide(spans.name, frame, len(spans.spans))
