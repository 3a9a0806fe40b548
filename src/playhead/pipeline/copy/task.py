"""A task of a copy, run in the executor: the records of its ranges, their offset map and the position after them.

Exactly once depends on this order. The transactional id is initialised, which ends every earlier producer of these ranges and
decides its open transaction. Only then is the committed position compared with the start of the ranges. Then the records are
produced, the files of the offset map are written, and the position is committed in the transaction of the records.
Spark retries nothing: a second attempt fails at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from playhead.errors import PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.copying import CopiedHeaders, CopyProducer
from playhead.kafka.groups import Committed
from playhead.kafka.murmur2 import partitions_of_column
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline
from playhead.pipeline.copy.offset_map import MapFile, Offsets, write_file
from playhead.pipeline.copy.positions import Mark, Position, PositionPlaces
from playhead.pipeline.copy.read import HEADERS, KEY, OFFSET, PARTITION, VALUE, milliseconds
from playhead.pipeline.spark_faults import marked
from playhead.pipeline.task_link import ROWS, DriverAddress, TaskConnection, connect_task

RECEIPT = pa.schema([("partition", pa.int32()), ("count", pa.int64())])
RECEIPT_DDL = "partition int, count bigint"
MOVED = "the position of the copy moved after the step was planned: another copy of the same topics has committed"
ONE_COPY = "one of the two is enough; `playhead runs list` shows both"


@dataclass(frozen=True, slots=True)
class CopyRange:
    """What a step copies of one source partition. `position`: where it starts, as committed."""

    partition: int
    position: Position
    end: int
    token: str

    @property
    def file(self) -> MapFile:
        return MapFile(self.partition, self.position.offset, self.end, self.position.token, self.token)


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """`plain`: client settings with their secrets; they leave the driver only here. `mark`: with any token."""

    plain: Mapping[str, Mapping[str, str]] = field(repr=False)
    topic: str
    partitions: int
    places: PositionPlaces
    mark: Mark
    folder: Path
    largest_batch: int

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings(dict(self.plain["common"]), producer=dict(self.plain["producer"]))

    def metadata(self, token: str) -> str:
        return self.mark.with_token(token).text

    def committed(self, offset: int, token: str) -> Committed:
        return Committed(offset, self.metadata(token))

    def check(self, ranges: Sequence[CopyRange], deadline: Deadline) -> None:
        """Raises if a position is not what the ranges start from."""
        now = self._decided([one.partition for one in ranges], deadline)
        for one in ranges:
            found = now.get(one.partition)
            wanted = (one.position.offset, self.metadata(one.position.token))
            if found is None or (found.offset, found.metadata) != wanted:
                raise Refused(MOVED, ONE_COPY)

    def check_absent(self, partition: int, deadline: Deadline) -> None:
        """Raises if the source partition has a position already."""
        if self._decided([partition], deadline):
            raise Refused(MOVED, ONE_COPY)

    def _decided(self, partitions: Sequence[int], deadline: Deadline) -> dict[int, Committed]:
        with Admin(self.settings, deadline) as admin:
            return self.places.find_decided(admin, partitions, deadline)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Sent to the executors. `ranges`: by source partition. `is_merged`: one task gets the records of all of them."""

    target: CopyTarget
    ranges: Mapping[int, CopyRange]
    transactional_ids: Mapping[int, str]
    seconds: float
    address: DriverAddress
    is_merged: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = cast(TaskContext, TaskContext.get())  # a task always has one
        try:
            if context.attemptNumber():
                raise Refused("Spark retried a task; the step is planned again instead")
            with connect_task(self.address, context.partitionId(), self.seconds) as driver:
                driver.wait("begin", "the driver did not answer in time")
                filled = (batch for batch in batches if batch.num_rows)
                first = next(filled, None)
                if first is None:
                    return  # only holes: the driver commits the position
                number = first.column(PARTITION)[0].as_py()
                own = list(self.ranges.values()) if self.is_merged else [self.ranges[number]]
                counts = self._copied(own, chain([first], filled), driver)
            yield pa.RecordBatch.from_pylist(
                [{PARTITION: number, "count": count} for number, count in counts.items()], schema=RECEIPT
            )
        except PlayheadError as error:
            raise marked(error) from None

    def _copied(
        self, ranges: Sequence[CopyRange], batches: Iterator[pa.RecordBatch], driver: TaskConnection
    ) -> dict[int, int]:
        """How many records each range had."""
        deadline, target = Deadline(self.seconds), self.target
        first = int(ranges[0].token, 16) + ranges[0].partition
        with self._producer(ranges[0].partition, deadline) as producer:
            target.check(ranges, deadline)
            producer.begin(deadline)
            sent = _Sent()
            for at, batch in enumerate(batches):
                partitions = self._send(producer, (first + at) % target.partitions, batch)
                sent.add(batch, partitions)
                driver.tell(f"{ROWS} {sent.count}")
            producer.flush()
            counts = sent.write(target.folder, ranges, producer.placed)
            positions = {
                one.partition: target.committed(one.end, one.token if counts[one.partition] else one.position.token)
                for one in ranges
            }
            producer.commit_with(target.places.by_group(positions))
        return counts

    def _producer(self, partition: int, deadline: Deadline) -> CopyProducer:
        target = self.target
        return CopyProducer(target.settings, self.transactional_ids[partition], deadline, target.largest_batch)

    def _send(self, producer: CopyProducer, keyless: int, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Returns the partitions. Records without a key go to one partition per batch."""
        keys = batch.column(KEY)
        partitions = partitions_of_column(keys, self.target.partitions, keyless)
        times = milliseconds(batch).tolist()
        columns = (batch.column(VALUE).to_pylist(), keys.to_pylist(), partitions.tolist(), times)
        producer.send_copies(self.target.topic, columns, headers_of(batch.column(HEADERS)))
        return partitions


def headers_of(column: pa.Array) -> list[CopiedHeaders | None] | None:
    """None if no record has headers, which is the common case and costs nothing."""
    if column.null_count == len(column):
        return None
    offsets = column.offsets.to_pylist()
    names, values = (part.to_pylist() for part in column.values.flatten())
    pairs = list(zip(names, values, strict=True))
    present = column.is_valid().to_pylist()
    return [
        pairs[start:end] if is_present and end > start else None
        for start, end, is_present in zip(offsets, offsets[1:], present, strict=False)
    ]


class _Sent:
    """Which record went to which target partition, in the order in which they were produced."""

    def __init__(self) -> None:
        self.count = 0
        self._source: list[npt.NDArray[Any]] = []
        self._offsets: list[npt.NDArray[Any]] = []
        self._target: list[npt.NDArray[Any]] = []

    def add(self, batch: pa.RecordBatch, partitions: npt.NDArray[np.int64]) -> None:
        self.count += batch.num_rows
        self._source.append(batch.column(PARTITION).to_numpy())
        self._offsets.append(batch.column(OFFSET).to_numpy())
        self._target.append(partitions.astype(np.int32))

    def write(self, folder: Path, ranges: Sequence[CopyRange], placed: Mapping[int, Sequence[int]]) -> dict[int, int]:
        """Writes the files of the offset map. Returns how many records each source partition had."""
        source, offsets, target = (np.concatenate(parts) for parts in (self._source, self._offsets, self._target))
        landed = np.empty(len(target), np.int64)
        for number, found in placed.items():
            mine = target == number
            if int(mine.sum()) != len(found):
                raise PlayheadError(f"{len(found)} of {int(mine.sum())} record(s) were confirmed in partition {number}")
            column: Offsets = np.frombuffer(cast(Any, found), np.int64)
            if np.any(np.diff(column) <= 0):
                raise PlayheadError(f"the records in partition {number} were not confirmed in order")
            landed[mine] = column
        counts: dict[int, int] = {}
        for one in ranges:
            mine = source == one.partition
            counts[one.partition] = int(mine.sum())
            if counts[one.partition]:
                write_file(folder, one.file, offsets[mine], target[mine], landed[mine])
        return counts
