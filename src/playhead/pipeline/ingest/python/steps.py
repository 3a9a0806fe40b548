"""The steps of a source in Python: its tasks, some at a time, polled in executors from the committed positions.

connect-offsets is authoritative, as for every source. A round cuts the work into tasks and runs each until it has nothing more. A
task that fails does not end the others: the round goes on, a note says so, and the end of the round reports the fault. One whose
source is away is tried again while the others go on.
"""

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from playhead import errors
from playhead.connect.keys import encode_value
from playhead.errors import Busy, Fenced, PlayheadError, Refused, Rejected
from playhead.kafka.client import revealed
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.transactions import PlainProducer
from playhead.ledger.model import ChunkRow, Claim
from playhead.ledger.runs import Ledger
from playhead.model import Deadline, Map
from playhead.pipeline.ingest.chunk_note import GAP, missing_rows
from playhead.pipeline.ingest.position_log import StoredPosition, StoredPositions
from playhead.pipeline.ingest.python.calls import CallThread
from playhead.pipeline.ingest.python.data_source import runnable
from playhead.pipeline.ingest.python.gate import PollGate
from playhead.pipeline.ingest.python.options import PythonSourceOptions
from playhead.pipeline.ingest.python.receipt import Receipt, text_of
from playhead.pipeline.ingest.python.task import Bounds, PollTask, StoredPlace
from playhead.pipeline.ingest.steps import ASK_SECONDS, STEP_SECONDS, IngestOptions, SourceConnection
from playhead.pipeline.slots import SlotUser
from playhead.pipeline.spark import barrier_of, bind_address, driver_host
from playhead.pipeline.spark_faults import spark_translated
from playhead.pipeline.step import IDLE, PlanAgain, StepReport, Underway
from playhead.sdk.life import cut_tasks
from playhead.sdk.loading import class_name

BOUND_SECONDS = 10.0  # of polling in one step: between steps a run can be stopped
AWAY_SECONDS = 5.0  # until a task whose source does not answer is tried again, while others go on
TaskConfig = tuple[int, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Code:
    """Where executors find the connector: by its name, in `roots` or in what is installed."""

    class_name: str
    roots: Sequence[str] = ()


class PythonIngest:
    """The `Work` of an open source connector in Python."""

    def __init__(
        self,
        spark: SparkSession,
        slots: SlotUser,
        connection: SourceConnection,
        source: PythonSourceOptions,
        ledger: Ledger,
        claim: Claim,
        options: IngestOptions = IngestOptions(),
    ) -> None:
        self._spark = spark
        self._slots = slots
        self._connection = connection
        self._source = source
        self._code = Code(class_name(source.connector), source.roots)
        self._ledger = ledger
        self._claim = claim
        self._options = options
        self._is_fenced = False
        self._joined: set[str] = set()
        self._now = IDLE
        self._open: PollStep | None = None
        self._notes: list[str] = []

    def close(self) -> None:
        self._connection.close()

    @property
    def underway(self) -> Underway:
        step = self._open
        return self._now if step is None else replace(self._now, rows=step.rows)

    def keep_alive(self) -> None:
        """Nothing to do: a source holds nothing between two rounds."""

    def steps(self) -> Generator[StepReport, None, None]:
        name = self._connection.name
        self._now = Underway("planning")
        if not self._is_fenced:
            self._connection.fence(self._slots.total, Deadline(ASK_SECONDS))
            self._is_fenced = True
        waiting = Waiting(self._tasks())
        total = waiting.count
        while wave := waiting.take(self._slots.share):
            self._now = Underway(f"polling {len(wave)} of {total} task(s)")
            receipts = self._run(wave)
            waiting.put_back(wave, receipts)
            yield from self._reports(receipts, [one.what for one in waiting.new_faults] if waiting.count else ())
        if not total:
            yield StepReport(name, None, note="task_configs gives no task: there is nothing to do")
        self._now = IDLE
        if faults := waiting.faults:
            raise _joined(faults)

    def _tasks(self) -> list[TaskConfig]:
        """In a thread of its own, because it may hang."""
        source, seconds = self._source, self._source.polls.poll_seconds
        thread = CallThread(self._connection.name)
        with closing(thread):
            try:
                connector = runnable(source.connector, source.config)
                cut = lambda: cut_tasks(connector, source.config, source.max_tasks)  # noqa: E731
                return list(enumerate(thread.call(cut, seconds, "task_configs")))
            except PlayheadError as error:
                error.what = f"{self._connection.name}: {error.what}"
                raise

    def _run(self, wave: Sequence[TaskConfig]) -> list[Receipt]:
        stored = self._positions()
        self._close_gaps(stored)
        try:
            with (
                PollStep(self._spark, self._connection, self._source, self._code, wave, stored, self._options) as step,
                self._slots.request(len(wave)) as ticket,
            ):
                ticket.wait()
                self._open = step
                receipts = step.run()
        except Refused as error:
            if isinstance(error, Fenced):
                raise
            raise PlanAgain(error.what, error.hint) from None
        finally:
            self._open = None
        return receipts

    def _positions(self) -> StoredPositions:
        """Of the connector's own offsets topic, if it has one; what is missing there counts as the workers' topic has it."""
        connection, deadline = self._connection, Deadline(ASK_SECONDS)
        found = connection.log.find_all(connection.name, deadline)
        if connection.log is connection.workers_log:
            return found
        others = connection.workers_log.find_all(connection.name, deadline).by_partition
        moved = {
            at: replace(one, kafka_partition=partition_of(one.key, len(found.since))) for at, one in others.items()
        }
        return replace(found, by_partition={**moved, **found.by_partition})

    # The ledger

    def _reports(self, receipts: Sequence[Receipt], more_notes: Sequence[str] = ()) -> list[StepReport]:
        """One for each source partition of which something was committed."""
        reports: list[StepReport] = []
        for one in receipts:
            problem = self._record(one)
            for text, end in one.ends.items():
                rows = sum(moved.count for (at, _), moved in one.moves.items() if at == text)
                reports.append(StepReport(text, Map(json.loads(end)), rows))
            if problem is not None and reports:
                reports[-1] = replace(reports[-1], problem=problem)
        notes = [*(note for one in receipts for note in one.notes), *more_notes]
        if not reports:
            reports = [StepReport("", None)]
        return [replace(report, note="; ".join(notes) if at == 0 else "") for at, report in enumerate(reports)]

    def _record(self, receipt: Receipt) -> PlayheadError | None:
        rows = [
            ChunkRow(text, "polled", _map(receipt.starts.get(text)), _map(receipt.ends.get(text)), topic, moved.ranges,
                     moved.count, moved.hash_xor, moved.hash_sum)
            for (text, topic), moved in receipt.moves.items()
        ]  # fmt: skip
        try:
            if rows:
                self._ledger.record(self._claim, rows)
        except PlayheadError as error:  # the records are committed; their ledger rows are rebuilt from the log
            return error
        return None

    def _close_gaps(self, stored: StoredPositions) -> None:
        """Once for each source partition: extends the chain of the ledger to the committed position."""
        connection = self._connection
        for partition, position in stored.by_partition.items():
            stream = text_of(partition)
            if stream in self._joined:
                continue
            self._joined.add(stream)
            recorded = self._ledger.last_chunk(connection.home.cluster_id, connection.name, stream)
            last = None if recorded is None else recorded.chunk
            if position.offset == (None if last is None else last.end_position):
                continue
            past = connection.log.history(position, Deadline(ASK_SECONDS))
            rows = [_with_topic(row) for row in missing_rows(stream, "", last, past, position.offset)]
            if rows:
                self._ledger.record(self._claim, rows)


class Waiting:
    """The tasks of a round that have something to do, in the order in which they get their turns."""

    def __init__(self, tasks: Sequence[TaskConfig], clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = list(tasks)
        self._clock = clock
        self._away: dict[int, tuple[float, TaskConfig, PlayheadError]] = {}
        self._failed: list[PlayheadError] = []
        self.new_faults: list[PlayheadError] = []

    @property
    def count(self) -> int:
        return len(self._tasks)

    @property
    def faults(self) -> list[PlayheadError]:
        return [*self._failed, *(error for _, _, error in self._away.values())]

    def take(self, count: int) -> list[TaskConfig]:
        """The next ones. If only tasks are left whose source is away there is none: the run pauses before it tries again."""
        wave, self._tasks = self._tasks[:count], self._tasks[count:]
        return wave

    def put_back(self, wave: Sequence[TaskConfig], receipts: Sequence[Receipt]) -> None:
        self.new_faults = []
        for task, one in zip(wave, receipts, strict=True):
            self._away.pop(task[0], None)
            if one.fault is None:
                self._tasks += [] if one.is_done else [task]
                continue
            error = _fault(one.fault)
            self.new_faults.append(error)
            if isinstance(error, Busy):
                self._away[task[0]] = (self._clock() + AWAY_SECONDS, task, error)
            else:
                self._failed.append(error)
        if self._tasks:
            self._tasks += [
                task for due, task, _ in self._away.values() if self._clock() >= due and task not in self._tasks
            ]


class PollStep:
    """Some tasks of a connector, polled from the positions that are `stored`."""

    def __init__(
        self,
        spark: SparkSession,
        connection: SourceConnection,
        source: PythonSourceOptions,
        code: Code,
        wave: Sequence[TaskConfig],
        stored: StoredPositions,
        options: IngestOptions,
    ) -> None:
        self._connection = connection
        self._stored = stored
        self._doing = f"{connection.name}, {len(wave)} task(s)"
        self._gate = PollGate(len(wave), self._moved, self._count, driver_host(spark), bind_address(spark))
        task = PollTask(
            {"common": revealed(connection.settings.common), "producer": revealed(connection.settings.producer)},
            connection.transactional_ids(len(wave)),
            self._gate.address,
            connection.name,
            code.class_name,
            code.roots,
            dict(source.config),
            [(number, dict(config)) for number, config in wave],
            {text_of(at): _place(one) for at, one in stored.by_partition.items() if one.offset is not None},
            connection.log.topic,
            len(stored.since),
            source.polls,
            Bounds(options.rows_per_chunk, BOUND_SECONDS),
            STEP_SECONDS,
        )
        try:
            with spark_translated(self._doing):
                self._tasks = barrier_of(spark, len(wave), task)
        except BaseException:
            self._gate.close()
            raise

    @property
    def rows(self) -> int:
        return self._gate.rows

    def run(self) -> list[Receipt]:
        """Of all tasks, in their order."""
        with spark_translated(self._doing):
            try:
                rows = self._tasks.collect()
            except (PySparkException, Py4JError):
                if self._gate.error is not None:
                    raise self._gate.error from None
                raise
        receipts = [Receipt.from_json(row["receipt"]) for row in sorted(rows, key=lambda row: row["number"])]
        if self._connection.log is not self._connection.workers_log:
            self._copy_to_workers(receipts)
        return receipts

    def __enter__(self) -> "PollStep":
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.close()

    def _moved(self) -> str | None:
        if self._connection.log.has_any_moved(self._stored, Deadline(ASK_SECONDS)):
            return "a position moved after the step was planned: another run has committed"
        return None

    def _count(self, topic: str) -> int:
        return self._connection.count_partitions(topic, Deadline(ASK_SECONDS))

    def _copy_to_workers(self, receipts: Sequence[Receipt]) -> None:
        """For a connector with its own offsets topic: writes a plain copy to the workers' topic, as Connect does."""
        from playhead.connect.keys import OffsetKey, encode_new_key

        ends = {text: end for one in receipts for text, end in one.ends.items()}
        if not ends:
            return
        with PlainProducer(self._connection.home.settings, Deadline(ASK_SECONDS)) as producer:
            for text, end in ends.items():
                partition = Map(json.loads(text))
                known = self._stored.by_partition.get(partition)
                key = encode_new_key(OffsetKey(self._connection.name, partition)) if known is None else known.key
                producer.produce(self._connection.home.topic, key, encode_value(Map(json.loads(end))))


def _place(stored: StoredPosition) -> StoredPlace:
    assert stored.offset is not None  # noqa: S101  chosen by the caller
    return StoredPlace(stored.key, stored.kafka_partition, json.dumps(stored.offset.to_dict()))


def _map(text: str | None) -> Map | None:
    return None if text is None else Map(json.loads(text))


def _with_topic(row: ChunkRow) -> ChunkRow:
    """The note of a commit names the topic, or several."""
    where, _, topic = row.source_range.partition(" -> ")
    return row if row.source_range == GAP or not topic else replace(row, source_range=where, topic=topic)


def _fault(fault: tuple[str, str, str | None]) -> PlayheadError:
    kind, what, hint = fault
    found = getattr(errors, kind, Rejected)
    return Busy(what, hint=hint) if found is Busy else Rejected(what, hint=hint)


def _joined(faults: Sequence[PlayheadError]) -> PlayheadError:
    """One error of all tasks that failed. It is temporary only if all of them are."""
    lasting = [one for one in faults if not isinstance(one, Busy)] or list(faults)
    error = lasting[0]
    if len(lasting) > 1:
        error.what = "; ".join(one.what for one in lasting)
    return error
