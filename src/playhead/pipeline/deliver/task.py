"""One step of a sink as a Spark job: one task per claimed range of a topic partition reads it and writes it.

The ledger decides: nothing counts before its commit, and an open claim is repeated completely until it is committed. Only
committed records are read unless the connector says otherwise, and then a claim never passes the last stable offset. A task
without records has a claim of holes only and reports nothing. Rejected records are handled before their range is reported as
closed.

The task reads by librdkafka (`reading`): Spark's Kafka reader has its records go from Java to Python, and takes the SQL engine
two seconds to start. Where librdkafka hides its interface, and for those that want a DataFrame, there is `read_claims`.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, cast

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import col, when, xxhash64

from playhead.errors import PlayheadError, Refused
from playhead.kafka.c_library import is_available
from playhead.ledger.model import ClosedRange, Done, RangeClaim
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED, ClaimReader, ReadOptions, claim_reader
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import HASH, HEADERS, KEY, OFFSET, RECORDS, TIMESTAMP, VALUE, Writer
from playhead.pipeline.spark_faults import marked, spark_translated

CLAIM = "claim"
RECEIPT = pa.schema([(CLAIM, pa.int32()), ("closed", pa.string())])
RECEIPT_DDL = f"{CLAIM} int, closed string"
_CLOSED = msgspec.json.Decoder(list[ClosedRange])


@dataclass(frozen=True, slots=True)
class DeliverTask:
    """Sent to the executors. `claims`: by the number in their records."""

    claims: Mapping[int, RangeClaim]
    writer: Writer
    policy: RejectPolicy = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of one claim, as Spark's reader has them."""
        with _in_task():
            filled = (batch for batch in batches if batch.num_rows)
            first = next(filled, None)
            if first is not None:
                number = first.column(CLAIM)[0].as_py()
                row = self._delivered(number, map(sink_records, chain([first], filled)))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([value], kind) for value, kind in zip(row, RECEIPT.types, strict=True)], schema=RECEIPT
                )

    def read(self, reader: ClaimReader, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Reads the claims of these numbers itself."""
        with _in_task():
            for number in numbers:
                with closing(reader.read(self.claims[number].range)) as batches:
                    first = next(batches, None)
                    if first is not None:
                        yield self._delivered(number, chain([first], batches))

    def _delivered(self, number: int, batches: Iterator[pa.RecordBatch]) -> tuple[int, str]:
        with self.policy.open() as reject:
            closed = []
            for one in self.writer.write(self.claims[number], batches, reject):
                reject.flush()  # before the writer continues: it may commit
                closed.append(one)
        return number, msgspec.json.encode(closed).decode()


@contextmanager
def _in_task() -> Iterator[None]:
    context = cast(TaskContext, TaskContext.get())  # there always is one in a task
    try:
        if context.attemptNumber():
            raise Refused("Spark retried a task; the step is planned again instead")
        yield
    except PlayheadError as error:
        raise marked(error) from None


def sink_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """In the schema of the writers. Keys that were not read are null; headers are there if they were read."""
    if KEY not in batch.schema.names:
        batch = batch.append_column(KEY, pa.nulls(batch.num_rows, pa.binary()))
    headers = [HEADERS] if HEADERS in batch.schema.names else []
    return batch.select([*RECORDS.names, *headers])


def closed_of(text: str) -> Sequence[ClosedRange]:
    return _CLOSED.decode(text)


# Spark refuses these. The driver does what a consumer group is for.
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
_TUNED = {
    ISOLATION: READ_COMMITTED,
    "fetch.max.wait.ms": "10",  # closing a consumer waits for its open fetch
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": "20000000",
    "fetch.max.bytes": "60000000",
    "receive.buffer.bytes": "1000000",
}
_NUMBERS = 100_000  # more partitions than a topic can have


def deliver(
    spark: SparkSession, reading: ReadOptions, claims: Sequence[RangeClaim], writer: Writer, policy: RejectPolicy
) -> list[Done]:
    """Returns every claim with the ranges that it closed."""
    numbers = number_claims(claims)
    topics = _topics(claims)
    task = DeliverTask(numbers, writer, policy)
    with spark_translated(f"reading {', '.join(topics[:3])}{', ...' if len(topics) > 3 else ''}"):
        rows: Sequence[tuple[int, str]]
        if is_available():
            each = spark.sparkContext.parallelize(list(numbers), len(numbers))
            rows = each.mapPartitions(partial(task.read, claim_reader(reading))).collect()
        else:
            rows = read_claims(spark, reading, claims).mapInArrow(cast(Any, task), RECEIPT_DDL).collect()
    closed = {number: closed_of(text) for number, text in rows}
    return [(claim, closed[number] if number in closed else _empty(claim)) for number, claim in numbers.items()]


def number_claims(claims: Sequence[RangeClaim]) -> dict[int, RangeClaim]:
    """By the number that the records of a claim have in `read_claims`."""
    topics = _topics(claims)
    return {_NUMBERS * topics.index(claim.range.topic) + claim.range.partition: claim for claim in claims}


def _topics(claims: Sequence[RangeClaim]) -> list[str]:
    return sorted({claim.range.topic for claim in claims})


def kafka_reader(spark: SparkSession, properties: Mapping[str, str]) -> DataFrameReader:
    """Reads committed records, unless `properties` say otherwise."""
    reader = spark.read.format("kafka").option("failOnDataLoss", "true")
    for name, value in ({**_TUNED, **properties}).items():
        if name not in _NOT_FOR_SPARK:
            reader = reader.option(f"kafka.{name}", value)
    return reader


def read_claims(spark: SparkSession, reading: ReadOptions, claims: Sequence[RangeClaim]) -> DataFrame:
    """One Spark partition per claim, with its records in order."""
    topics = _topics(claims)
    reader = kafka_reader(spark, reading.properties)
    starts: dict[str, dict[int, int]] = defaultdict(dict)
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    for claim in claims:
        starts[claim.range.topic][claim.range.partition] = claim.range.start
        ends[claim.range.topic][claim.range.partition] = claim.range.end
    assigned = {topic: sorted(partitions) for topic, partitions in starts.items()}
    for option, partitions in (("assign", assigned), ("startingOffsets", starts), ("endingOffsets", ends)):
        reader = reader.option(option, json.dumps(partitions))
    number = col("partition")
    for at, topic in enumerate(topics[1:], 1):
        number = when(col("topic") == topic, col("partition") + _NUMBERS * at).otherwise(number)
    columns = [col(OFFSET), col(TIMESTAMP), *([col(KEY)] if reading.has_keys else []), col(VALUE)]
    if reading.has_headers:
        reader = reader.option("includeHeaders", "true")
        columns.append(col(HEADERS))
    return reader.load().select(*columns, xxhash64(VALUE).alias(HASH), number.alias(CLAIM))


def _empty(claim: RangeClaim) -> Sequence[ClosedRange]:
    """No task saw a record of it: it has only markers and aborted or compacted records, and nothing to deliver."""
    return [ClosedRange(claim.range, 0, 0, 0)]
