"""A task of an ingest step, run in the executor. It writes chunks of rows, each in a transaction of its own.

The chunks of a step are dealt out to its tasks: task t of n does the chunks t, t + n, t + 2n and so on. Tasks read and encode
side by side. They produce in turn: chunk k begins when the records of chunk k-1 are in the topic, so every partition gets the
records in the order of the source, as from Connect. What is encoded before its turn waits in memory, and from `HELD_BYTES` on in
a temporary file. With `--unordered` tasks do not wait for each other.

Exactly once depends on this order. First all transactional ids of the connector are initialised, which fences every earlier
producer. Only then does the driver compare the position with the one the step was planned from. Nothing is committed before that.
The position after chunk k is written after chunk k-1 has been committed, as the last record of its transaction. Whatever fails,
a prefix of the chunks is committed, together with the position after it. Spark retries nothing: a second attempt of a task fails
at once, and a second attempt of the stage finds that the position moved.
"""

import json
import pickle
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, cast

import pyarrow as pa
from pyspark import TaskContext

from playhead.connect.keys import encode_value
from playhead.errors import PlayheadError, Refused
from playhead.kafka.bulk import BulkProducer, Ranges, open_bulk
from playhead.kafka.murmur2 import partitions_of_column
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import fence
from playhead.ledger.model import CHUNK_HEADER
from playhead.model import Deadline, Map
from playhead.pipeline.digest import Digest
from playhead.pipeline.ingest.chunk_note import encode_note
from playhead.pipeline.ingest.encoding import Encoded, Records
from playhead.pipeline.ingest.source import Last
from playhead.pipeline.spark_faults import marked
from playhead.pipeline.task_link import (
    COMMITTED,
    LATE,
    PRODUCED,
    READY,
    ROWS,
    TURN,
    DriverAddress,
    TaskConnection,
    chunks_of,
    connect_task,
)

HELD_BYTES = 64 * 1024 * 1024
RECEIPT = pa.schema(
    [
        ("number", pa.int32()),
        ("count", pa.int64()),
        ("hash_xor", pa.int64()),
        ("hash_sum", pa.int64()),
        ("offsets", pa.string()),
        ("position", pa.string()),
        ("produce_seconds", pa.float64()),
        ("wait_seconds", pa.float64()),
    ]
)
RECEIPT_DDL = (
    "number int, count bigint, hash_xor bigint, hash_sum bigint, offsets string, position string,"
    " produce_seconds double, wait_seconds double"
)


@dataclass(frozen=True, slots=True)
class PositionRecord:
    """Where the position is written. `position_of` None: bulk mode has no position and writes a tombstone."""

    topic: str
    key: bytes
    kafka_partition: int
    position_of: Callable[[Last], Map] | None


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Sent to the executors. `plain`: the client settings with their secrets. They leave the driver only here. `tasks`: how many
    there are. `wheres`: of all chunks. `in_turn`: False lets the tasks of a step produce side by side. `doing` begins what is
    said about rows."""

    plain: Mapping[str, Mapping[str, str]] = field(repr=False)
    transactional_ids: Sequence[str]
    tasks: int
    wheres: Sequence[str]
    address: DriverAddress
    topic: str
    topic_partitions: int
    first_partition: int
    commit: PositionRecord
    seconds: float
    records: Records
    doing: str
    in_turn: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = cast(TaskContext, TaskContext.get())  # a task always has one
        try:
            if context.attemptNumber():
                raise Refused("Spark retried a task; the step is planned again instead")
            number = context.partitionId()
            # Each chunk before one of this task may take `seconds` for its transaction.
            with connect_task(self.address, number, self.seconds * self.tasks) as driver:
                yield from self._done(number, driver, batches)
        except PlayheadError as error:
            raise marked(error) from None

    def _done(self, number: int, driver: TaskConnection, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadline = Deadline(self.seconds)
        settings = ClientSettings(dict(self.plain["common"]), producer=dict(self.plain["producer"]))
        with open_bulk(settings, self.transactional_ids[number], deadline) as producer:
            for other in self.transactional_ids[number + self.tasks :: self.tasks]:
                fence(settings, other, deadline)
            driver.tell(READY)
            before = 0
            for chunk in chunks_of(number, self.tasks, len(self.wheres)):
                started = time.perf_counter()
                totals = self._produced(producer, chunk, driver, self._encoded(chunk, batches), before)
                produced = time.perf_counter()
                driver.wait(f"{PRODUCED} {chunk}", LATE)
                position = self._committed(producer, totals, self.wheres[chunk])
                driver.tell(f"{COMMITTED} {chunk}")
                before += totals.count
                ranges = producer.ranges(self.topic) if totals.has_rows else {}
                yield totals.receipt(chunk, ranges, position, produced - started, time.perf_counter() - produced)

    def _produced(
        self, producer: BulkProducer, chunk: int, driver: TaskConnection, encoded: Iterator[Encoded], before: int
    ) -> "Totals":
        """Begins the transaction with the first row: a chunk without rows writes nothing. Rows that a transform dropped are rows:
        the position moves past them. `before`: records of the task's earlier chunks."""
        totals = Totals()
        for at, batch in enumerate(in_turn(encoded, driver, chunk) if self.in_turn else encoded):
            if not totals.has_rows:
                producer.begin(Deadline(self.seconds))
            if len(batch.values):
                self._send(producer, (self.first_partition + chunk + at) % self.topic_partitions, batch)
            totals.add(batch)
            driver.tell(f"{ROWS} {before + totals.count}")
        if totals.count:
            producer.flush()
        return totals

    def _encoded(self, chunk: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Encoded]:
        try:
            yield from self.records.of_chunk(chunk, batches)
        except PlayheadError as error:
            error.what = f"{self.doing}: {error.what}"
            raise

    def _send(self, producer: BulkProducer, partition: int, batch: Encoded) -> None:
        """Records with a key go to the partition that Connect's producer would choose, the others of a batch to one partition."""
        keys = batch.keys
        has_keys = keys is not None and keys.null_count < len(keys)
        chosen = partitions_of_column(keys, self.topic_partitions, partition) if has_keys else partition
        producer.send(self.topic, batch.values, keys, chosen, batch.headers)

    def _committed(self, producer: BulkProducer, totals: "Totals", where: str) -> Map | None:
        if totals.last is None:
            return None
        position = self.commit.position_of(totals.last) if self.commit.position_of else None
        value = None if position is None else encode_value(position)
        note = encode_note(where, totals.count, (totals.hash_xor, totals.hash_sum), producer.ranges(self.topic))
        producer.produce(
            self.commit.topic,
            self.commit.key,
            value,
            partition=self.commit.kafka_partition,
            headers=[(CHUNK_HEADER, note)],
        )
        producer.commit()
        return position


def in_turn(batches: Iterator[Encoded], driver: TaskConnection, chunk: int) -> Iterator[Encoded]:
    """The same batches, from the moment on at which the chunk may be produced. Until then they are read and held."""
    driver.tell(f"{TURN} {chunk}")
    with closing(HeldBatches()) as held:
        for batch in batches:
            if driver.has_reply():
                driver.take_reply(LATE)
                yield from held.taken()
                yield batch
                yield from batches
                return
            held.add(batch)
        driver.take_reply(LATE)
        yield from held.taken()


class HeldBatches:
    """Batches in order: the first `HELD_BYTES` in memory, the rest in a temporary file that has no name."""

    def __init__(self, most_bytes: int = HELD_BYTES) -> None:
        self._left = most_bytes
        self._held: deque[Encoded] = deque()
        self._file: IO[bytes] | None = None
        self._in_file = 0

    def add(self, batch: Encoded) -> None:
        if self._left > 0:
            self._left -= batch.nbytes
            self._held.append(batch)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="playhead-held-")  # noqa: SIM115  (closed by close)
        pickle.dump(batch, self._file, pickle.HIGHEST_PROTOCOL)
        self._in_file += 1

    def taken(self) -> Iterator[Encoded]:
        while self._held:
            yield self._held.popleft()
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self._in_file):
                yield pickle.load(self._file)  # noqa: S301  (written by this object)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(slots=True)
class Totals(Digest):
    """`last`: of the rows that were read. None: there were none."""

    last: Last | None = None

    @property
    def has_rows(self) -> bool:
        return self.last is not None

    def add(self, batch: Encoded) -> None:
        self.add_digest(batch.digest)
        self.last = batch.last

    def receipt(
        self, number: int, ranges: Ranges, position: Map | None, produced: float, waited: float
    ) -> pa.RecordBatch:
        offsets = _as_json(ranges)
        position_text = None if position is None else position.to_json()
        row = (number, self.count, self.hash_xor, self.hash_sum, offsets, position_text, produced, waited)
        return pa.RecordBatch.from_arrays(
            [pa.array([value], kind) for value, kind in zip(row, RECEIPT.types, strict=True)], schema=RECEIPT
        )


def _as_json(ranges: Ranges) -> str:
    return json.dumps({str(partition): list(span) for partition, span in sorted(ranges.items())})
