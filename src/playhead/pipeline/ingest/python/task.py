"""A task of a connector in Python, run in the executor: polled until it has nothing more, or the bound of the step is reached.

Exactly once depends on this order. The task's transactional id is initialised, which fences every earlier producer of it; the ids
that no task of the step uses are fenced as well. Only when all tasks have done so, the driver compares the positions with those
the step was planned from. Then the task is started with these positions. Records are produced into a transaction; the positions
of their source partitions are the last records of the same transaction. Transactions end after a poll, never inside of one. Those
that the connector itself ends may go beyond the bound of the step, but no transaction may last longer than the broker keeps it.

What the connector does wrong ends this task only: its open transaction is aborted, what was committed before stays, and the fault
is in its receipt. The other tasks of the step go on.
"""

import gc
import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from playhead.connect.keys import OffsetKey, encode_new_key, encode_value
from playhead.errors import Busy, Invalid, PlayheadError, Refused, Rejected
from playhead.kafka.bulk import BulkProducer, open_bulk
from playhead.kafka.murmur2 import partition_of, partitions_of_column
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import fence
from playhead.ledger.model import CHUNK_HEADER
from playhead.model import Deadline, Map
from playhead.pipeline.digest import Digest
from playhead.pipeline.ingest.chunk_note import encode_note
from playhead.pipeline.ingest.python.calls import CallThread, Hung, SocketWatch
from playhead.pipeline.ingest.python.data_source import runnable
from playhead.pipeline.ingest.python.gate import OWN, TOPIC
from playhead.pipeline.ingest.python.making import Outgoing, RecordMaker
from playhead.pipeline.ingest.python.options import CONNECTOR, MOST_MS, POLL, PollOptions
from playhead.pipeline.ingest.python.receipt import Moved, Receipt, note_where, text_of
from playhead.pipeline.spark_faults import marked
from playhead.pipeline.task_link import LATE, READY, ROWS, DriverAddress, TaskConnection, connect_task
from playhead.sdk import SourceTask
from playhead.sdk.life import Tracker, new_task
from playhead.sdk.loading import add_roots, find_class
from playhead.sdk.records import position_map

RECEIPT = pa.schema([("number", pa.int32()), ("receipt", pa.string())])
STOP_SECONDS = 10.0
NEW_OBJECTS = 50_000  # from one garbage collection to the next


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """Where a position is stored, and the offset, as JSON."""

    key: bytes
    kafka_partition: int
    offset: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a step: when it has so many records, or takes so long, it ends after the poll. `transaction_seconds`: of one
    transaction, so of one poll as well."""

    records: int
    seconds: float
    transaction_seconds: float = MOST_MS / 1000


@dataclass(frozen=True, slots=True)
class PollTask:
    """Sent to the executors. `plain`: client settings with their secrets, as `config` has its own. `tasks`: number and config of
    the tasks of this step. `stored`: by partition, as JSON. `roots`: where the connector's code is, besides what is installed."""

    plain: Mapping[str, Mapping[str, str]] = field(repr=False)
    transactional_ids: Sequence[str]
    address: DriverAddress
    connector: str
    class_name: str
    roots: Sequence[str]
    config: Mapping[str, str] = field(repr=False)
    tasks: Sequence[tuple[int, Mapping[str, Any]]] = field(repr=False)
    stored: Mapping[str, StoredPlace]
    offsets_topic: str
    offsets_partitions: int
    options: PollOptions
    bounds: Bounds
    seconds: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = cast(TaskContext, TaskContext.get())  # a task always has one
        try:
            if context.attemptNumber():
                raise Refused("Spark retried a task; the step is planned again instead")
            place = context.partitionId()
            for _ in batches:
                pass
            with connect_task(self.address, place, self.seconds) as driver:
                receipt = self._done(place, driver)
            yield pa.RecordBatch.from_arrays(
                [pa.array([place], pa.int32()), pa.array([receipt.to_json()])], schema=RECEIPT
            )
        except PlayheadError as error:
            raise marked(error) from None

    def _done(self, place: int, driver: TaskConnection) -> Receipt:
        settings = ClientSettings(dict(self.plain["common"]), producer=dict(self.plain["producer"]))
        deadline = Deadline(self.seconds)
        sockets = SocketWatch()
        with open_bulk(settings, self.transactional_ids[place], deadline) as producer:
            tasks = len(self.tasks)
            for other in self.transactional_ids[place + tasks :: tasks]:
                fence(settings, other, deadline)
            driver.wait(READY, LATE)
            receipt = Polling(self, place, driver, producer).run()
        if left := sockets.count_new():
            receipt.notes.append(f"task {self.tasks[place][0]} leaves {left} connection(s) open after stop")
        return receipt


class Polling:
    """One task of a step, while it is polled."""

    def __init__(self, step: PollTask, place: int, driver: TaskConnection, producer: BulkProducer) -> None:
        self._step, self._place, self._driver, self._producer = step, place, driver, producer
        self._number, self._config = step.tasks[place]
        self._options = step.options
        self._name = f"{step.connector}, task {self._number}"
        self._receipt = Receipt()
        self._maker = RecordMaker(self._options.key, self._options.value, self._options.transforms)
        self._partitions: dict[str, int] = {}
        self._owned: set[str] = set()
        self._open: dict[tuple[int, str], Moved] = {}
        self._is_open = False
        self._opened = 0.0
        self._count = 0
        self._chunks = place

    def run(self) -> Receipt:
        thread = CallThread(self._name)
        try:
            with _rare_collections():
                self._poll_all(thread)
        except _Wrong as wrong:
            error = wrong.error
            self._receipt.fault = (type(error).__name__, f"{self._name}: {error.what}", error.hint)
            self._abort()
        finally:
            thread.close()
        return self._receipt

    def _poll_all(self, thread: CallThread) -> None:
        options, step = self._options, self._step
        with _connector_code():
            add_roots([Path(root) for root in step.roots])
            found = find_class(step.class_name)
            if found is None:
                raise Invalid(f"the class {step.class_name} is not on this executor")
            connector = runnable(found, step.config)
            stored = {Map(json.loads(at)): json.loads(one.offset) for at, one in step.stored.items()}
            begin = lambda: new_task(connector, step.config, self._config, stored)  # noqa: E731
            task = thread.call(begin, options.poll_seconds, "start")
        self._tracker = Tracker(stored, connector.compare_offsets)
        is_hung = False
        try:
            self._poll_task(thread, task)
        except _Wrong as wrong:
            is_hung = isinstance(wrong.error, Hung)
            raise
        finally:
            if not is_hung:
                self._stop(thread, task)

    def _stop(self, thread: CallThread, task: SourceTask) -> None:
        """What `stop` does wrong loses nothing, so it is a note."""
        try:
            thread.call(task.stop, STOP_SECONDS, "stop")
        except PlayheadError as error:
            self._receipt.notes.append(f"task {self._number}: {error.what}")

    def _poll_task(self, thread: CallThread, task: SourceTask) -> None:
        started = time.monotonic()
        while not self._receipt.is_done and self._goes_on(started):
            polled = 0
            with closing(_of_connector(thread.poll(task, self._options.poll_seconds))) as parts:
                for part in parts:
                    self._send(part, polled + 1)
                    polled += len(part)
            asked = task.transaction.taken()
            self._receipt.is_done = not polled
            if self._is_open and self._is_due(is_last=not polled, asked=asked):
                self._end_transaction(thread, task)
        if self._is_open and self._options.boundary != CONNECTOR:
            self._end_transaction(thread, task)
        else:
            self._abort()  # what the connector did not commit when it has nothing more is polled again

    def _goes_on(self, started: float) -> bool:
        """Until the bound of the step. An open transaction of the connector goes on until the connector ends it."""
        if self._is_open and self._options.boundary == CONNECTOR:
            return True
        bounds = self._step.bounds
        return self._count < bounds.records and time.monotonic() - started < bounds.seconds

    def _end_transaction(self, thread: CallThread, task: SourceTask) -> None:
        self._commit()
        if type(task).commit is not SourceTask.commit:
            with _connector_code():
                thread.call(task.commit, self._options.poll_seconds, "commit")

    def _is_due(self, *, is_last: bool, asked: bool) -> bool:
        if self._options.boundary == CONNECTOR:
            return asked
        if self._options.boundary == POLL or is_last:
            return True
        return time.monotonic() - self._opened >= self._options.interval_seconds

    # Records

    def _send(self, part: Sequence[Any], first: int) -> None:
        self._check_age(first)
        with _connector_code():
            columns, owners = self._tracker.read(part, first)
            made = self._maker(columns, first)
            self._own_all()
        if not self._is_open:
            self._producer.begin(Deadline(self._step.seconds))
            self._is_open, self._opened = True, time.monotonic()
        of_record = np.asarray(owners)
        for one in made:
            self._produce(one, of_record[one.rows])
        self._count += len(part)
        self._chunks += 1
        self._driver.tell(f"{ROWS} {self._count}")

    def _check_age(self, record: int) -> None:
        age, most = time.monotonic() - self._opened, self._step.bounds.transaction_seconds
        if not self._is_open or age < most:
            return
        hint = "return from poll sooner: its records are one transaction"
        if self._options.boundary == CONNECTOR:
            hint = "call self.transaction.commit() more often, or set transaction.boundary=poll"
        what = f"its transaction has no end after {age:.0f} s, at record {record} of the poll; it may last {most:g} s"
        raise _Wrong(Rejected(what, hint=hint))

    def _own_all(self) -> None:
        for seen in self._tracker.seen[len(self._owned) :]:
            text = text_of(seen.partition)
            owner = int(self._driver.ask(f"{OWN} {text}", LATE))
            if owner != self._place:
                other = self._step.tasks[owner][0]
                raise Rejected(f"the source partition {text} is read by task {other} as well: give it to one of them")
            self._owned.add(text)

    def _produce(self, one: Outgoing, owners: np.ndarray) -> None:
        total, count = self._count_partitions(one.topic), len(one.values)
        partitions: np.ndarray | int = self._chunks % total
        if one.keys is not None and one.keys.null_count < count:
            partitions = partitions_of_column(one.keys, total, self._chunks % total)
        if one.partitions is not None:
            partitions = np.where(one.partitions >= 0, one.partitions, partitions)
            if partitions.max() >= total:
                what = f"kafka_partition {int(partitions.max())} does not exist: {one.topic} has {total} partition(s)"
                raise _Wrong(Rejected(what))
        self._count_moved(one, owners, np.full(count, partitions) if isinstance(partitions, int) else partitions)
        self._producer.send(one.topic, one.values, one.keys, partitions, one.headers, one.timestamps)

    def _count_moved(self, one: Outgoing, owners: np.ndarray, partitions: np.ndarray) -> None:
        hashes = one.hashes()
        for owner in np.unique(owners).tolist():
            moved = self._open.setdefault((owner, one.topic), Moved())
            at = owners == owner
            moved.add_hashes(hashes[at])
            moved.partitions.update(np.unique(partitions[at]).tolist())

    def _count_partitions(self, topic: str) -> int:
        if topic not in self._partitions:
            try:
                self._partitions[topic] = int(self._driver.ask(f"{TOPIC} {topic}", LATE))
            except Refused as error:
                raise _Wrong(Rejected(error.what)) from None
        return self._partitions[topic]

    # Transactions

    def _commit(self) -> None:
        if any(moved.count for moved in self._open.values()):
            self._producer.flush()
        for (_, topic), moved in self._open.items():
            found = self._producer.ranges(topic)
            moved.ranges = {partition: found[partition] for partition in moved.partitions & found.keys()}
        ends = {text_of(seen.partition): seen for seen in self._tracker.seen}
        committed: dict[str, str] = {}
        for text, seen in ends.items():
            offset = json.dumps(dict(seen.last or {}))
            if seen.last is None or self._receipt.ends.get(text) == offset:
                continue
            with _connector_code():
                position = position_map(seen.last, "offset")
            self._write_position(text, seen.partition, position, seen.number)
            committed[text] = offset
        self._producer.commit()
        self._is_open = False
        self._record(committed)

    def _write_position(self, text: str, partition: Map, position: Map, owner: int) -> None:
        stored = self._step.stored.get(text)
        key = encode_new_key(OffsetKey(self._step.connector, partition)) if stored is None else stored.key
        kafka_partition = partition_of(key, self._step.offsets_partitions) if stored is None else stored.kafka_partition
        mine = {topic: one for (of, topic), one in self._open.items() if of == owner}
        total = Digest()
        for one in mine.values():
            total.add_digest(one)
        ranges = next(iter(mine.values())).ranges if len(mine) == 1 else {}
        where = note_where(self._number, mine)
        note = encode_note(where, total.count, (total.hash_xor, total.hash_sum), ranges)
        self._producer.produce(
            self._step.offsets_topic,
            key,
            encode_value(position),
            partition=kafka_partition,
            headers=[(CHUNK_HEADER, note)],
        )

    def _record(self, committed: Mapping[str, str]) -> None:
        """Adds the transaction to what the step has committed before."""
        receipt = self._receipt
        for seen in self._tracker.seen:
            if (text := text_of(seen.partition)) in committed:
                receipt.starts.setdefault(text, None if seen.start is None else json.dumps(dict(seen.start)))
        receipt.ends.update(committed)
        for (owner, topic), moved in self._open.items():
            total = receipt.moves.setdefault((text_of(self._tracker.seen[owner].partition), topic), Moved())
            total.add_digest(moved)
            for partition, (first, last) in moved.ranges.items():
                before = total.ranges.get(partition, (first, last))
                total.ranges[partition] = (min(before[0], first), max(before[1], last))
        self._open.clear()

    def _abort(self) -> None:
        if self._is_open:
            self._is_open = False
            self._open.clear()
            with suppress(PlayheadError):
                self._producer.abort()


class _Wrong(Exception):
    """A fault of the connector, which ends its task. Any other error ends the step."""

    def __init__(self, error: PlayheadError) -> None:
        super().__init__(error.what)
        self.error = error


_FAULTS = (Rejected, Invalid, Busy)


@contextmanager
def _connector_code() -> Iterator[None]:
    """What the connector raises, or what its records are refused for."""
    try:
        yield
    except _FAULTS as error:
        raise _Wrong(error) from None


def _of_connector(parts: Iterator[list[Any]]) -> Generator[list[Any], None, None]:
    try:
        yield from parts
    except _FAULTS as error:
        raise _Wrong(error) from None


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A poll keeps thousands of records for a moment. Python's garbage collector would look at all of them again and again,
    which takes as long as everything else. A Python worker collects after each task anyway."""
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, NEW_OBJECTS) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
