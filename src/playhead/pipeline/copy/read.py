"""Ranges of a topic as a table, by Spark's Kafka reader, and what is checked in them before anything is written."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import (
    aggregate,
    broadcast,
    coalesce,
    col,
    concat,
    countDistinct,
    input_file_name,
    lit,
    octet_length,
    regexp_extract,
    when,
    xxhash64,
)

from playhead.kafka.murmur2 import partitions_of_column
from playhead.pipeline.copy.sizes import SizeLimit
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED
from playhead.pipeline.deliver.task import kafka_reader
from playhead.pipeline.spark_faults import spark_translated

PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS = "partition", "offset", "timestamp", "key", "value", "headers"
MERGED_AT = "merged_at"
CONTENT, ORIGIN = "content", "origin"
TASKS = 16  # of a shuffle
HEADER_BYTES = 10  # for the two lengths of a header
Ranges = Mapping[int, tuple[int, int]]
_CHECK = pa.schema(
    [
        (PARTITION, pa.int32()),
        ("misplaced", pa.int64()),
        ("bytes", pa.int64()),
        ("bytes_at", pa.int64()),
        ("timeless", pa.int64()),
        ("timeless_at", pa.int64()),
    ]
)
_RECORDS_DDL = (
    "partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>"
)
_CHECK_DDL = "partition int, misplaced bigint, bytes bigint, bytes_at bigint, timeless bigint, timeless_at bigint"


def read_ranges(spark: SparkSession, properties: Mapping[str, str], topic: str, ranges: Ranges) -> DataFrame:
    """One Spark partition per range, with its committed records in order."""
    if not ranges:
        return spark.createDataFrame([], _RECORDS_DDL)
    reader = kafka_reader(spark, {**properties, ISOLATION: READ_COMMITTED})
    reader = reader.option("includeHeaders", "true")
    options = {
        "assign": {topic: sorted(ranges)},
        "startingOffsets": {topic: {number: start for number, (start, _) in ranges.items()}},
        "endingOffsets": {topic: {number: end for number, (_, end) in ranges.items()}},
    }
    for name, value in options.items():
        reader = reader.option(name, json.dumps(value))
    return reader.load().select(PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS)


def read_places(spark: SparkSession, files: Sequence[Path], starts: Mapping[int, int]) -> DataFrame:
    """Partition and offset in the target of the records of these files of the offset map, from `starts` on in the source."""
    mapped = _read_map(spark, files)
    begins = spark.createDataFrame(list(starts.items()) or [(-1, 0)], f"{ORIGIN} int, begin bigint")
    kept = mapped.join(broadcast(begins), ORIGIN, "left").where(col("source_offset") >= coalesce(col("begin"), lit(0)))
    return kept.select(col("target_partition").alias(PARTITION), col("target_offset").alias(OFFSET))


def read_order(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Partition and offset in the source, and the offset in the target, where all records of a key are in one partition."""
    mapped = _read_map(spark, files)
    return mapped.select(
        col(ORIGIN).alias(PARTITION), col("source_offset").alias(OFFSET), col("target_offset").alias(MERGED_AT)
    )


def _read_map(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The rows of these files, each with its source partition, which only the name of the file has."""
    if not files:
        return spark.createDataFrame(
            [], f"{ORIGIN} int, source_offset bigint, target_partition int, target_offset bigint"
        )
    mapped = spark.read.parquet(*map(_spark_path, files))
    return mapped.withColumn(ORIGIN, regexp_extract(input_file_name(), r"/p(\d+)-[^/]*$", 1).cast("int"))


def _spark_path(path: Path) -> str:
    """Spark reads a path as it is, and not as a URL; only its patterns have to be escaped."""
    return "file://" + re.sub(r"([*?\[\]{}\\])", r"\\\1", str(path))


def merged_by_time(records: DataFrame) -> DataFrame:
    """All partitions as one, by time. A partition is not sorted in itself: a record counts as not older than those before it."""
    merged = records.mapInArrow(cast(Any, _timed), f"{_RECORDS_DDL}, {MERGED_AT} bigint").repartition(1)
    return merged.sortWithinPartitions(MERGED_AT, PARTITION, OFFSET).drop(MERGED_AT)


def _timed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Adds the largest time so far. A task gets one partition, in order."""
    newest = np.iinfo(np.int64).min
    for batch in batches:
        if batch.num_rows:
            times = np.maximum.accumulate(np.maximum(milliseconds(batch), newest))
            newest = times[-1]
            yield batch.append_column(MERGED_AT, pa.array(times))


@dataclass(frozen=True, slots=True)
class Checked:
    """`misplaced`: records whose key belongs to another partition by murmur2. `spanning`: keys in several partitions. `largest`:
    bytes as sent, partition and offset of the largest record. `timeless`: records without a time, and where the first is."""

    misplaced: int = 0
    spanning: int = 0
    largest: tuple[int, int, int] = (0, 0, 0)
    timeless: int = 0
    timeless_at: tuple[int, int] = (0, 0)


def check_ranges(
    spark: SparkSession, properties: Mapping[str, str], topic: str, ranges: Ranges, partitions: int, limit: SizeLimit
) -> Checked:
    """Reads the ranges once; a second time only if keys are not where Java's partitioner puts them. Only the content of records
    that do not fit as they are leaves the JVM."""
    records = read_ranges(spark, properties, topic, ranges)
    size = _bytes_of(col(KEY)) + _bytes_of(col(VALUE)) + coalesce(aggregate(HEADERS, lit(0), _with_header), lit(0))
    content = when(size > limit.room, concat(_filled(col(KEY)), _filled(col(VALUE)), _header_content()))
    looked = records.select(PARTITION, OFFSET, TIMESTAMP, KEY, size.alias("bytes"), content.alias(CONTENT))
    with spark_translated(f"checking {topic}"):
        rows = looked.mapInArrow(cast(Any, _Check(partitions, limit)), _CHECK_DDL).collect()
        misplaced = sum(row["misplaced"] for row in rows)
        spanning = 0
        if misplaced:
            # Hashes of keys, not the keys: two keys that share one would at most cause a merge that was not needed.
            keys = records.where(col(KEY).isNotNull()).select(PARTITION, xxhash64(KEY).alias("hash"))
            found = keys.repartition(TASKS, "hash").groupBy("hash").agg(countDistinct(PARTITION).alias("count"))
            spanning = found.where(col("count") > 1).count()
    most = max(((row["bytes"], row[PARTITION], row["bytes_at"]) for row in rows), default=(0, 0, 0))
    without = [row for row in rows if row["timeless"]]
    return Checked(
        misplaced,
        spanning,
        most,
        sum(row["timeless"] for row in without),
        min(((row[PARTITION], row["timeless_at"]) for row in without), default=(0, 0)),
    )


def _bytes_of(column: Column) -> Column:
    return coalesce(octet_length(column), lit(0))


def _with_header(total: Column, header: Column) -> Column:
    return total + octet_length(header["key"]) + _bytes_of(header["value"]) + lit(HEADER_BYTES)


def _filled(column: Column) -> Column:
    return coalesce(column, lit(b""))


def _header_content() -> Column:
    def added(before: Column, header: Column) -> Column:
        return concat(before, header["key"].cast("binary"), _filled(header["value"]))

    return coalesce(aggregate(HEADERS, lit(b""), added), lit(b""))


@dataclass(frozen=True, slots=True)
class _Check:
    partitions: int
    limit: SizeLimit

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self._checked(batch)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = batch.column(KEY)
        here = batch.column(PARTITION).to_numpy()
        chosen = partitions_of_column(keys, self.partitions, -1)
        misplaced = int(np.count_nonzero((chosen >= 0) & (chosen != here)))
        sizes, offsets = self._sizes(batch), batch.column(OFFSET).to_numpy()
        at = int(sizes.argmax())
        timeless = np.flatnonzero(milliseconds(batch) <= 0)
        row = [int(here[0]), misplaced, int(sizes[at]), int(offsets[at])]
        row += [len(timeless), int(offsets[timeless[0]]) if len(timeless) else 0]
        columns = [pa.array([value], kind) for value, kind in zip(row, _CHECK.types, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=_CHECK)

    def _sizes(self, batch: pa.RecordBatch) -> "np.ndarray[Any, np.dtype[np.int64]]":
        sizes = batch.column("bytes").cast(pa.int64()).to_numpy(zero_copy_only=False).copy()
        content = batch.column(CONTENT)
        for at in np.flatnonzero(content.is_valid().to_numpy(zero_copy_only=False)).tolist():
            sizes[at] = self.limit.size_of(content[at].as_py())
        return cast("np.ndarray[Any, np.dtype[np.int64]]", sizes)


def milliseconds(batch: pa.RecordBatch) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Kafka's own -1 for a record without a time."""
    micros = pc.fill_null(batch.column(TIMESTAMP).cast(pa.int64()), -1000)
    return cast("np.ndarray[Any, np.dtype[np.int64]]", micros.to_numpy(zero_copy_only=False) // 1000)
