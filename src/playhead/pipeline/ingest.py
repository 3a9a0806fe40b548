"""One exactly-once step of a source: planned from the committed position, produced in parallel, committed in turn.

connect-offsets is the truth: the rows of a chunk and the position behind them are one Kafka transaction. The ledger follows and
may be rebuilt. Anything unequal or failed is aborted, and the loop plans anew from what is committed.
"""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from playhead.connect.keys import encode_value
from playhead.errors import AlreadyExists
from playhead.kafka.bulk import TRANSACTION_SECONDS
from playhead.kafka.client import Admin, revealed
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, describe_topics
from playhead.kafka.transactions import PlainProducer, fence
from playhead.kafka.transactions_seen import list_transactional_ids
from playhead.model import Deadline, Map
from playhead.pipeline.faults import spark_translated
from playhead.pipeline.home import Home
from playhead.pipeline.positions import Place, PositionLog
from playhead.pipeline.producing import RECEIPT_DDL, ChunkTask, Commit
from playhead.pipeline.session import bind_address, driver_host
from playhead.pipeline.sources import Chunk, Step, Stream
from playhead.pipeline.turns import Turns

STEP_SECONDS = TRANSACTION_SECONDS - 20.0  # a step that takes too long says so before the broker aborts it


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a committed chunk has done."""

    chunk: Chunk
    count: int
    hash_xor: int
    hash_sum: int
    offsets: dict[int, tuple[int, int]]
    position: Map | None
    produce_seconds: float
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Ingested:
    receipts: Sequence[Receipt]
    start: Map | None
    seconds: float
    horizon: str
    reaches_end: bool

    @property
    def rows(self) -> int:
        return sum(receipt.count for receipt in self.receipts)


@dataclass(slots=True)
class Connector:
    """A source connector as it runs here. `log` is that of its own offsets topic, if it has one. `ids`: how many transactional
    ids may have been used for it, by anybody."""

    name: str
    home: Home
    settings: ClientSettings
    log: PositionLog
    workers_log: PositionLog
    ids: int = 1
    _topics: dict[str, int] = field(default_factory=dict)

    def transactional_ids(self, chunks: int) -> list[str]:
        return [self.home.transactional_id(self.name, number) for number in range(max(self.ids, chunks))]

    def place(self, stream: Stream, deadline: Deadline) -> Place:
        """Where the stream is. An own offsets topic that does not know it yet is passed over, as Connect does it."""
        place = self.log.place(self.name, stream.partitions, deadline)
        if place.offset is None and self.log is not self.workers_log:
            return replace(place, offset=self.workers_log.place(self.name, stream.partitions, deadline).offset)
        return place

    def fence(self, slots: int, deadline: Deadline) -> None:
        """Whoever wrote for this connector, a worker's task or another run, cannot commit any more."""
        self.ids = max(self.ids, slots, self._ids_seen(deadline))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: fence(self.settings, one, deadline), self.transactional_ids(slots)))

    def _ids_seen(self, deadline: Deadline) -> int:
        """By the brokers, as far as they tell: another run may have had more slots, and a ledger of its own."""
        start = self.home.transactional_id(self.name, 0).removesuffix("0")
        with Admin(self.settings, deadline) as admin:
            known = list_transactional_ids(admin, deadline) or set()
        numbers = [one.removeprefix(start) for one in known if one.startswith(start)]
        return max((int(number) + 1 for number in numbers if number.isdigit()), default=0)

    def count_partitions(self, topic: str, deadline: Deadline) -> int:
        """Of a topic, which is created as the broker likes if it is not there."""
        if topic not in self._topics:
            with Admin(self.settings, deadline) as admin:
                found = describe_topics(admin, [topic], deadline)[topic]
                if found is None:
                    with suppress(AlreadyExists):  # another connector with the same topic was faster
                        create_topic(admin, topic, -1, deadline)
                    found = deadline.wait_for(
                        lambda: describe_topics(admin, [topic], deadline)[topic], f"creating {topic}"
                    )
            self._topics[topic] = len(found.partitions)
        return self._topics[topic]


class IngestStep:
    """What was planned from `place`. All that needs no slot is done when it is made: the plan of Spark's job, too."""

    def __init__(self, spark: SparkSession, connector: Connector, stream: Stream, place: Place, step: Step) -> None:
        self._connector = connector
        self._place = place
        self._step = step
        self._doing = f"{connector.name}, {stream.name}"
        partitions = connector.count_partitions(stream.topic, Deadline(STEP_SECONDS))
        self._turns = Turns(len(step.chunks), self._moved, driver_host(spark), bind_address(spark))
        try:
            with spark_translated(self._doing):
                frame = step.read(spark).mapInArrow(
                    cast(Any, self._task(stream, partitions)), RECEIPT_DDL, barrier=True
                )
                frame._jdf.queryExecution().executedPlan()
        except BaseException:
            self._turns.close()
            raise
        self._frame = frame

    def run(self) -> Ingested:
        """Returns when all chunks are committed."""
        started = time.perf_counter()
        with spark_translated(self._doing):
            try:
                rows = self._frame.collect()
            except (PySparkException, Py4JError):
                if self._turns.error is not None:
                    raise self._turns.error from None
                raise
        step, place = self._step, self._place
        receipts = [
            _receipt(step.chunks[row["number"]], row.asDict()) for row in sorted(rows, key=lambda row: row["number"])
        ]
        if self._connector.log is not self._connector.workers_log:
            _copy_to_worker(self._connector, place, receipts, Deadline(STEP_SECONDS))
        return Ingested(receipts, place.offset, time.perf_counter() - started, step.horizon, step.reaches_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turns.close()

    def _task(self, stream: Stream, partitions: int) -> ChunkTask:
        connector, wheres = self._connector, [chunk.where for chunk in self._step.chunks]
        position_of = stream.position_of if stream.has_position else None
        return ChunkTask(
            {"common": revealed(connector.settings.common), "producer": revealed(connector.settings.producer)},
            connector.transactional_ids(len(wheres)),
            wheres,
            self._turns.address,
            stream.topic,
            partitions,
            time.monotonic_ns() % partitions,
            Commit(connector.log.topic, self._place.key, self._place.kafka_partition, position_of),
            STEP_SECONDS,
        )

    def _moved(self) -> str | None:
        if self._connector.log.has_moved(self._place, Deadline(STEP_SECONDS)):
            return "the position moved after the step was planned: another run or a worker has committed"
        return None


def _receipt(chunk: Chunk, row: dict[str, object]) -> Receipt:
    offsets = {int(partition): (first, last) for partition, (first, last) in json.loads(str(row["offsets"])).items()}
    position = row["position"]
    return Receipt(
        chunk,
        int(str(row["count"])),
        int(str(row["hash_xor"])),
        int(str(row["hash_sum"])),
        offsets,
        None if position is None else Map(json.loads(str(position))),
        float(str(row["produce_seconds"])),
        float(str(row["wait_seconds"])),
    )


def _copy_to_worker(connector: Connector, place: Place, receipts: Sequence[Receipt], deadline: Deadline) -> None:
    """A connector with an offsets topic of its own: the workers' topic gets a plain copy, as Connect does it."""
    positions = [receipt.position for receipt in receipts if receipt.position is not None]
    if positions:
        with PlainProducer(connector.home.settings, deadline) as producer:
            producer.produce(connector.home.topic, place.key, encode_value(positions[-1]))
