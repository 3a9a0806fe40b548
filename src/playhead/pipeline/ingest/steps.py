"""The steps of a source: each planned from the committed position, read and encoded in parallel, produced and committed in turn.

connect-offsets is authoritative: the rows of a chunk and the position after them are one Kafka transaction. The ledger is
written afterwards and can be rebuilt. If anything differs or fails, the step is aborted, and the next plan starts from the
committed position.
"""

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Self, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from playhead.connect.keys import encode_value
from playhead.errors import (
    AccessDenied,
    AlreadyExists,
    Busy,
    Fenced,
    Invalid,
    NotFound,
    PlayheadError,
    Refused,
    Rejected,
)
from playhead.kafka.bulk import TRANSACTION_SECONDS
from playhead.kafka.client import Admin, revealed
from playhead.kafka.log import capture, read_records
from playhead.kafka.properties import ClientSettings
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topic_configs import creates_topics
from playhead.kafka.topics import Topic, create_topic, describe_topics
from playhead.kafka.transactions import PlainProducer, fence
from playhead.kafka.transactions_seen import check_may_see, list_transactional_ids
from playhead.ledger.model import ChunkRow, Claim
from playhead.ledger.runs import Ledger
from playhead.model import Deadline, Map
from playhead.pipeline.connect_home import ConnectHome
from playhead.pipeline.ingest.chunk_note import missing_rows
from playhead.pipeline.ingest.position_log import PositionLog, StoredPosition, find_position
from playhead.pipeline.ingest.source import Chunk, PlannedStep, Source, Stream
from playhead.pipeline.ingest.task import RECEIPT_DDL, ChunkTask, PositionRecord
from playhead.pipeline.ingest.topic_creation import NewTopics, TopicCreation
from playhead.pipeline.slots import SlotUser
from playhead.pipeline.spark import barrier_of, bind_address, driver_host
from playhead.pipeline.spark_faults import spark_translated
from playhead.pipeline.step import IDLE, LeftUnit, PlanAgain, StepReport, Underway
from playhead.pipeline.task_link import StepTurns

STEP_SECONDS = TRANSACTION_SECONDS - 20.0  # a step that takes too long fails before the broker aborts it
ASK_SECONDS = 30.0  # for one question to the cluster; the supervisor reports an outage and retries
CHUNKS_PER_TASK = 4  # in one step: its fixed cost is that of several hundred thousand rows
NOWHERE = Map({"incrementing": -1, "timestamp": 0})  # before every row
TAIL = 500


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a committed chunk."""

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
class SourceConnection:
    """The Kafka side of a source connector. `log`: its own offsets topic, if it has one, else that of the workers. `ids`: how
    many transactional ids any process may have used for it."""

    name: str
    home: ConnectHome
    settings: ClientSettings
    log: PositionLog
    workers_log: PositionLog
    ids: int = 1
    creation: TopicCreation = field(default_factory=TopicCreation)
    _admin: ReconnectingAdmin = field(init=False)

    def __post_init__(self) -> None:
        self._admin = ReconnectingAdmin(self.settings)

    def close(self) -> None:
        self._admin.close()

    def transactional_ids(self, tasks: int) -> list[str]:
        return [self.home.transactional_id(self.name, number) for number in range(max(self.ids, tasks))]

    def position(self, stream: Stream, deadline: Deadline) -> StoredPosition:
        """The position of the stream. If the connector's own offsets topic has none, the workers' topic counts, as in Connect."""
        return find_position(self.log, self.workers_log, self.name, stream.partitions, deadline)

    def fence(self, slots: int, deadline: Deadline) -> None:
        """Fences every earlier writer of this connector: no worker's task and no other run can commit any more."""
        self.ids = max(self.ids, slots, self._ids_seen(max(self.ids, slots), deadline))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: fence(self.settings, one, deadline), self.transactional_ids(slots)))

    def count_partitions(self, topic: str, deadline: Deadline) -> int:
        """Not cached: partitions may be added during a run, and the partition of a key depends on their number."""
        found = self._admin.ask(lambda admin, patience: _ensure_topic(admin, topic, self.creation, patience), deadline)
        return len(found.partitions)

    def refuse_repeats(self, stream: Stream, position: Map, deadline: Deadline) -> None:
        """Refuses a topic that holds rows after the stored position: a worker without exactly-once support sent them and
        stopped before it saved its position. A run from this position would send them a second time.

        Only the tail of each partition is read. A record counts only if it contains its position; a line of a file does not.
        """
        ahead = self._admin.ask(lambda admin, patience: _find_ahead(admin, stream, position, patience), deadline)
        if ahead:
            raise Refused(
                f"{stream.topic} already holds rows after the position {position} of {self.name}, such as {ahead[-1]}: a worker"
                " without exactly-once support sent them and did not save its position",
                "--accept-repeats sends them again; playhead offsets set moves the position past them",
            )

    def _ids_seen(self, at_least: int, deadline: Deadline) -> int:
        """How many ids the brokers know: another run may have had more slots and its own ledger.

        Brokers leave out the ids that the user may not see. So the first id that nobody is known to have used must be one that
        they would report.
        """
        start = self.home.transactional_id(self.name, 0).removesuffix("0")
        try:
            known = self._admin.ask(list_transactional_ids, deadline)
            numbers = [one.removeprefix(start) for one in known if one.startswith(start)]
            seen = max((int(number) + 1 for number in numbers if number.isdigit()), default=0)
            next_id = self.home.transactional_id(self.name, max(seen, at_least))
            self._admin.ask(lambda admin, patience: check_may_see(admin, next_id, patience), deadline)
        except (AccessDenied, Invalid, Rejected) as error:
            if isinstance(error, Busy):
                raise
            raise Refused(
                f"which transactional ids of {self.name} exist is unknown ({error.what}): a run that fences too few of them could"
                " commit rows that another run commits too",
                f"allow the user to Describe and Write the transactional ids that begin with {start}"
                if isinstance(error, AccessDenied)
                else error.hint,
            ) from None
        return seen


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """`rows_per_chunk`: approximate number of rows in one transaction. `unordered`: tasks produce side by side."""

    rows_per_chunk: int = 500_000
    accept_repeats: bool = False
    unordered: bool = False


class Ingest:
    """The `Work` of an open source connector. `ledger` and `claim` are those of the run."""

    def __init__(
        self,
        spark: SparkSession,
        slots: SlotUser,
        connection: SourceConnection,
        source: Source,
        ledger: Ledger,
        claim: Claim,
        options: IngestOptions = IngestOptions(),
    ) -> None:
        self._spark = spark
        self._slots = slots
        self._connection = connection
        self._source = source
        self._ledger = ledger
        self._claim = claim
        self._options = options
        self._is_fenced = False
        self._joined: set[str] = set()
        self._now = IDLE
        self._open: IngestStep | None = None

    def close(self) -> None:
        with closing(self._connection):
            self._source.close()

    @property
    def underway(self) -> Underway:
        now, step = self._now, self._open
        if step is None:
            return now
        rows, left = step.rows, now.left
        if left is not None and left.unit is LeftUnit.IDS:
            left = replace(left, count=max(0, left.count - rows))
        return replace(now, rows=rows, left=left)

    def keep_alive(self) -> None:
        """Nothing to do: a source holds nothing between two rounds."""

    def steps(self) -> Generator[StepReport, None, None]:
        self._now = Underway("planning")
        streams = self._fenced_streams()
        for number, stream in enumerate(streams, 1):
            which = stream.name + (f" ({number} of {len(streams)})" if len(streams) > 1 else "")
            is_done = False
            while not is_done:
                self._now = Underway(f"planning {which}", left=self._now.left)
                report, is_done = self._step(stream, which, is_last=number == len(streams))
                yield report
            self._now = IDLE

    def _fenced_streams(self) -> Sequence[Stream]:
        """Fences before the first position is read, which aborts transactions that a dead writer left open. Later the tasks of
        each step fence again."""
        if self._is_fenced:
            return self._source.streams()
        with ThreadPoolExecutor(1) as pool:
            fencing = pool.submit(self._connection.fence, self._slots.total, Deadline(ASK_SECONDS))
            streams = self._source.streams()
            fencing.result()
        self._is_fenced = True
        return streams

    def _step(self, stream: Stream, which: str, *, is_last: bool) -> tuple[StepReport, bool]:
        """The flag is True when the stream is done up to the end that was seen when the step was planned."""
        position = self._connection.position(stream, Deadline(ASK_SECONDS))
        self._check_key(stream, position)
        self._check_repeats(stream, position.offset)
        self._close_gap(stream, position)  # now the ledger ends at this position, whatever process moved it
        step = stream.plan(position.offset, self._most_chunks(stream), self._options.rows_per_chunk)
        if step is None:
            return StepReport(stream.name, position.offset), True
        with closing(step):
            if not step.chunks:
                return StepReport(stream.name, position.offset, note=step.horizon, held=step.horizon), True
            left = None if step.left is None else replace(step.left, is_all=is_last)
            self._now = Underway(f"reading {which}", left=left)
            done = self._run(stream, position, step)
        return self._record(stream, done), done.reaches_end or not stream.has_position

    def _most_chunks(self, stream: Stream) -> int:
        return self._slots.share * (CHUNKS_PER_TASK if stream.is_read_by_tasks else 1)

    def _run(self, stream: Stream, position: StoredPosition, step: PlannedStep) -> Ingested:
        tasks = min(len(step.chunks), self._slots.share) if stream.is_read_by_tasks else len(step.chunks)
        try:
            in_turn = not self._options.unordered
            with (
                IngestStep(self._spark, self._connection, stream, position, step, tasks, in_turn=in_turn) as prepared,
                self._slots.request(tasks) as ticket,
            ):
                ticket.wait()
                self._open = prepared
                return prepared.run()
        except Refused as error:
            if isinstance(error, Fenced):
                raise
            raise PlanAgain(error.what, error.hint) from None
        finally:
            self._open = None

    def _record(self, stream: Stream, done: Ingested) -> StepReport:
        chunks, start = [], done.start
        for receipt in done.receipts:
            if receipt.count or receipt.position is not None:  # a chunk whose rows were all dropped moves the position
                chunks.append(_row(stream, receipt, start))
                start = receipt.position
        problem = None
        try:
            if chunks:
                self._ledger.record(self._claim, chunks)
        except PlayheadError as error:  # the rows are committed; their ledger rows are rebuilt from the log
            problem = error
        return StepReport(stream.name, start, done.rows, done.horizon, problem)

    def _close_gap(self, stream: Stream, position: StoredPosition) -> None:
        """Once per stream: extends the chain of the ledger to the committed position, wherever the last chunk ended. Chunks that
        a killed run committed but did not record are recorded now."""
        if stream.name in self._joined or not stream.has_position:
            return
        recorded = self._ledger.last_chunk(self._connection.home.cluster_id, self._connection.name, stream.name)
        last = None if recorded is None else recorded.chunk
        if position.offset != (None if last is None else last.end_position):
            past = self._connection.log.history(position, Deadline(ASK_SECONDS))
            if rows := missing_rows(stream.name, stream.topic, last, past, position.offset):
                self._ledger.record(self._claim, rows)
        self._joined.add(stream.name)

    def _check_key(self, stream: Stream, position: StoredPosition) -> None:
        if position.rivals and not stream.is_key_known:
            raise Refused(
                f"{self._connection.name} has two positions for {stream.name}, {position.offset} and {position.rivals[0]}, under"
                " two forms of its name, and no worker reports which one the connector reads",
                "name a worker with --connect, or delete the stale one: playhead offsets delete --partition",
            )

    def _check_repeats(self, stream: Stream, position: Map | None) -> None:
        """Only for workers without exactly-once support, and only if the position was not committed by this ledger's runs."""
        home = self._connection.home
        if home.exactly_once or self._options.accept_repeats or not stream.has_position:
            return
        position = NOWHERE if position is None else position
        last = self._ledger.last_chunk(home.cluster_id, self._connection.name, stream.name)
        if last is None or last.chunk.end_position != position:
            self._connection.refuse_repeats(stream, position, Deadline(ASK_SECONDS))


Collect = Callable[[], Sequence[Any]]  # rows of `RECEIPT`


def plan_tasks(spark: SparkSession, stream: Stream, step: PlannedStep, task: ChunkTask) -> Collect:
    """Starts nothing: the tasks run when the result is called."""
    if stream.is_read_by_tasks:
        return barrier_of(spark, task.tasks, task).collect
    frame = step.read(spark).mapInArrow(cast(Any, task), RECEIPT_DDL, barrier=True)
    frame._jdf.queryExecution().executedPlan()
    return frame.collect


def collect_receipts(collect: Collect, turns: StepTurns) -> list[Any]:
    """Runs the tasks. In the order of the chunks. What the check of `turns` raised is raised here as it was."""
    try:
        return sorted(collect(), key=itemgetter("number"))
    except (PySparkException, Py4JError):
        if turns.error is not None:
            raise turns.error from None
        raise


class IngestStep:
    """A step planned from `position`. The constructor does everything that needs no slot, including Spark's plan."""

    def __init__(
        self,
        spark: SparkSession,
        connection: SourceConnection,
        stream: Stream,
        position: StoredPosition,
        step: PlannedStep,
        tasks: int,
        *,
        in_turn: bool,
    ) -> None:
        self._connection = connection
        self._position = position
        self._step = step
        self._in_turn = in_turn
        self._doing = f"{connection.name}, {stream.name}"
        partitions = connection.count_partitions(stream.topic, Deadline(ASK_SECONDS))
        self._turns = StepTurns(tasks, len(step.chunks), self._moved, driver_host(spark), bind_address(spark))
        try:
            with spark_translated(self._doing):
                self._collect = plan_tasks(spark, stream, step, self._task(stream, partitions, tasks))
        except BaseException:
            self._turns.close()
            raise

    def run(self) -> Ingested:
        """Returns when all chunks are committed."""
        started = time.perf_counter()
        with spark_translated(self._doing):
            rows = collect_receipts(self._collect, self._turns)
        step, position = self._step, self._position
        receipts = [_receipt(step.chunks[row["number"]], row) for row in rows]
        if self._connection.log is not self._connection.workers_log:
            _copy_to_worker(self._connection, position, receipts, Deadline(ASK_SECONDS))
        return Ingested(receipts, position.offset, time.perf_counter() - started, step.horizon, step.reaches_end)

    @property
    def rows(self) -> int:
        """Produced so far by all tasks, committed or not."""
        return self._turns.rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turns.close()

    def _task(self, stream: Stream, partitions: int, tasks: int) -> ChunkTask:
        connection, wheres = self._connection, [chunk.where for chunk in self._step.chunks]
        position_of = stream.position_of if stream.has_position else None
        return ChunkTask(
            {"common": revealed(connection.settings.common), "producer": revealed(connection.settings.producer)},
            connection.transactional_ids(tasks),
            tasks,
            wheres,
            self._turns.address,
            stream.topic,
            partitions,
            time.monotonic_ns() % partitions,
            PositionRecord(connection.log.topic, self._position.key, self._position.kafka_partition, position_of),
            STEP_SECONDS,
            self._step.records,
            self._doing,
            self._in_turn,
        )

    def _moved(self) -> str | None:
        if self._connection.log.has_moved(self._position, Deadline(ASK_SECONDS)):
            return "the position moved after the step was planned: another run or a worker has committed"
        return None


def _ensure_topic(admin: Admin, topic: str, creation: TopicCreation, deadline: Deadline) -> Topic:
    """The topic. A missing one is created as `topic.creation` says, or with the broker's defaults if brokers create topics."""
    found = describe_topics(admin, [topic], deadline)[topic]
    if found is not None:
        return found
    wanted = creation.find(topic)
    if wanted is None:
        _check_brokers_create(admin, topic, deadline)
        wanted = NewTopics()
    with suppress(AlreadyExists):  # another connector with the same topic created it first
        create_topic(admin, topic, wanted.partitions, deadline, copies=wanted.copies, config=wanted.config)
    return deadline.wait_for(lambda: describe_topics(admin, [topic], deadline)[topic], f"creating {topic}")


def _check_brokers_create(admin: Admin, topic: str, deadline: Deadline) -> None:
    """Without `topic.creation` Connect's producer depends on the brokers for missing topics."""
    hint = (
        f"playhead topics create {topic} --execute, or set topic.creation.default.partitions and"
        " topic.creation.default.replication.factor (-1: the broker's default)"
    )
    try:
        creates = creates_topics(admin, deadline)
    except AccessDenied as error:
        raise Invalid(
            f"topic {topic!r} does not exist, and whether the brokers create it is unknown: {error.what}", hint
        ) from None
    if not creates:
        what = f"topic {topic!r} does not exist, and the brokers create none (auto.create.topics.enable=false)"
        raise Invalid(what, hint)


def _find_ahead(admin: Admin, stream: Stream, position: Map, deadline: Deadline) -> list[str]:
    try:
        captured = capture(admin, stream.topic, deadline)
    except NotFound:
        return []
    ends = {partition: captured.end_of(partition) for partition in captured.ends}
    tail = captured.narrowed({partition: (end - TAIL, end) for partition, end in ends.items()})
    return [
        found
        for record in read_records(admin, tail, deadline)
        if record.value is not None and (found := stream.find_ahead(record.value, position)) is not None
    ]


def _receipt(chunk: Chunk, row: Mapping[str, object]) -> Receipt:
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


def _copy_to_worker(
    connection: SourceConnection, position: StoredPosition, receipts: Sequence[Receipt], deadline: Deadline
) -> None:
    """For a connector with its own offsets topic: writes a plain copy to the workers' topic, as Connect does."""
    positions = [receipt.position for receipt in receipts if receipt.position is not None]
    if positions:
        with PlainProducer(connection.home.settings, deadline) as producer:
            producer.produce(connection.home.topic, position.key, encode_value(positions[-1]))


def _row(stream: Stream, receipt: Receipt, start: Map | None) -> ChunkRow:
    return ChunkRow(
        stream.name,
        receipt.chunk.where,
        start,
        receipt.position,
        stream.topic,
        receipt.offsets,
        receipt.count,
        receipt.hash_xor,
        receipt.hash_sum,
    )
