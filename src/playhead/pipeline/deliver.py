"""One step of a sink: Spark's own Kafka reader reads what is claimed, and the sink's tasks write it, one per topic partition.

The ledger is the truth: nothing counts before its commit, and an open claim is done again, all of it, until it is committed.
Only committed records are read unless the connector says otherwise, and then a claim never goes beyond the last stable offset.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, when, xxhash64

from playhead.pipeline.delivering import CLAIM, RECEIPT_DDL, DeliverTask, closed_of
from playhead.pipeline.faults import spark_translated
from playhead.pipeline.rejects import RejectPolicy
from playhead.pipeline.sinks import HASH, KEY, OFFSET, TIMESTAMP, VALUE, Writer
from playhead.sql.range_values import ClosedRange, Done, RangeClaim

# Spark reads by its own rules and refuses these; what a group is for is done by the driver.
_NOT_FOR_SPARK = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
        "group.id",
        "group.instance.id",
        "max.poll.interval.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
    }
)
ISOLATION, READ_COMMITTED = "isolation.level", "read_committed"
_TUNED = {
    ISOLATION: READ_COMMITTED,
    "fetch.max.wait.ms": "10",  # a consumer that is closed waits for the answer that it does not need any more
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": "20000000",
    "fetch.max.bytes": "60000000",
    "receive.buffer.bytes": "1000000",
}
_NUMBERS = 100_000  # more partitions than a topic can have


@dataclass(frozen=True, slots=True)
class Reading:
    """`properties`: of the consumers, in Java's names, with their secrets. `has_keys`: somebody needs the records' keys."""

    properties: Mapping[str, str] = field(repr=False)
    has_keys: bool = True


def deliver(
    spark: SparkSession, reading: Reading, claims: Sequence[RangeClaim], writer: Writer, policy: RejectPolicy
) -> list[Done]:
    """Every claim with what it closed."""
    topics = sorted({claim.range.topic for claim in claims})
    numbers = {_NUMBERS * topics.index(claim.range.topic) + claim.range.partition: claim for claim in claims}
    task = DeliverTask(numbers, writer, policy)
    with spark_translated(f"reading {', '.join(topics[:3])}{', ...' if len(topics) > 3 else ''}"):
        rows = read_claims(spark, reading, claims, topics).mapInArrow(cast(Any, task), RECEIPT_DDL).collect()
    told = {row[CLAIM]: closed_of(row["closed"]) for row in rows}
    return [(claim, told[number] if number in told else _empty(claim)) for number, claim in numbers.items()]


def read_claims(
    spark: SparkSession, reading: Reading, claims: Sequence[RangeClaim], topics: Sequence[str]
) -> DataFrame:
    """One Spark partition per claim, its records in their order."""
    reader = spark.read.format("kafka").option("failOnDataLoss", "true")
    for name, value in ({**_TUNED, **reading.properties}).items():
        if name not in _NOT_FOR_SPARK:
            reader = reader.option(f"kafka.{name}", value)
    starts: dict[str, dict[int, int]] = defaultdict(dict)
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    for claim in claims:
        starts[claim.range.topic][claim.range.partition] = claim.range.start
        ends[claim.range.topic][claim.range.partition] = claim.range.end
    assigned = {topic: sorted(partitions) for topic, partitions in starts.items()}
    for option, told in (("assign", assigned), ("startingOffsets", starts), ("endingOffsets", ends)):
        reader = reader.option(option, json.dumps(told))
    number = col("partition")
    for at, topic in enumerate(topics[1:], 1):
        number = when(col("topic") == topic, col("partition") + _NUMBERS * at).otherwise(number)
    columns = [col(OFFSET), col(TIMESTAMP), *([col(KEY)] if reading.has_keys else []), col(VALUE)]
    return reader.load().select(*columns, xxhash64(VALUE).alias(HASH), number.alias(CLAIM))


def _empty(claim: RangeClaim) -> Sequence[ClosedRange]:
    """No task saw a record of it: markers, aborted and compacted records only, nothing to deliver and nothing in the way."""
    return [ClosedRange(claim.range, 0, 0, 0)]
