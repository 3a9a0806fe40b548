"""Rows of a JDBC source are read again by their keys, and their records go into its topic once more, or into another one.

The position of the connector does not move, and its run or its tasks are not fenced: a replay has transactional ids of its own.
Chunks are read and committed as a run does it, in the order of the keys. Each transaction has its records and a marker with the
last key (`kafka/markers.py`). Killed anywhere, the same command goes on behind the marker: no row is there twice, and none is
missing. The marker says when all is done: only then does `again` begin anew, or if nothing is left although it does not say so.
Rows after the position are left out: the connector has not read them yet.

`plan_source` and `replay_source` are plain functions over key ranges; `playhead replay` is one caller.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.errors import Busy, Invalid, NotFound, PlayheadError, Refused
from playhead.kafka.bulk import BulkProducer
from playhead.kafka.client import revealed
from playhead.kafka.markers import Marker
from playhead.kafka.properties import ClientSettings
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import Topic, ensure_topic
from playhead.kafka.transactions import TransactionalProducer
from playhead.ledger.runs import open_context_ledger
from playhead.model import Deadline, Map, Result, TopicPartition
from playhead.model.outcome import result_of
from playhead.model.position import INT64_MAX
from playhead.offsets.plugins import use_plugins
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.connect_home import ConnectHome, find_home, finds_with_catalog
from playhead.pipeline.ingest.jdbc.chunks import Point, TimeCut, cut_ids, cut_times, ids_between, up_to
from playhead.pipeline.ingest.jdbc.horizon import list_writers
from playhead.pipeline.ingest.jdbc.options import BULK
from playhead.pipeline.ingest.jdbc.options import INCREMENTING as BY_ID
from playhead.pipeline.ingest.jdbc.source import open_jdbc_source
from playhead.pipeline.ingest.jdbc.stream import FETCH_ROWS, JdbcStep, JdbcStream, SharedSnapshot, StreamOptions
from playhead.pipeline.ingest.jdbc.view import SqlView
from playhead.pipeline.ingest.position_log import find_position, open_position_logs
from playhead.pipeline.ingest.steps import STEP_SECONDS, collect_receipts, plan_tasks
from playhead.pipeline.ingest.task import ChunkTask, PositionRecord, Totals
from playhead.pipeline.replay.configs import find_spec
from playhead.pipeline.replay.keys import INCREMENTING, TIMESTAMP, KeyRange, merged
from playhead.pipeline.spark import bind_address, count_slots, driver_host
from playhead.pipeline.spark_faults import spark_translated
from playhead.pipeline.spec import Ready, check_specs
from playhead.pipeline.task_link import StepTurns

MOST_CHUNKS = 8  # of a step; as many transactional ids are fenced by every step
_PIECES = 200  # ranges in one statement


@dataclass(frozen=True, slots=True)
class SourcePart:
    """What is read of one table. `ranges`: of what was `asked`, in order, up to the position. `left_out`: with the reason.
    `rows`: how many the table has there now."""

    stream: JdbcStream
    topic: str
    asked: Sequence[KeyRange]
    ranges: Sequence[KeyRange]
    left_out: Sequence[tuple[KeyRange, str]]
    rows: int
    position: Map | None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SourceOutcome:
    """`offsets`: by partition, the first and the last offset that this command has written."""

    table: str
    topic: str
    result: Result
    count: int = 0
    offsets: Mapping[int, tuple[int, int]] | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """`to_topic` None: into the topic of the source."""

    to_topic: str | None = None
    rows_per_chunk: int = 500_000
    seconds: float = 30.0
    again: bool = False  # also a part that was replayed completely


@dataclass(frozen=True, slots=True)
class SourceReplay:
    """An open source and its parts."""

    name: str
    home: ConnectHome
    spark: SparkSession
    settings: ClientSettings
    admin: ReconnectingAdmin
    parts: Sequence[SourcePart]
    options: SourceOptions


@contextmanager
def plan_source(
    context: Context,
    home: ConnectHome,
    ready: Ready,
    asked: Sequence[KeyRange],
    spark: SparkSession,
    options: SourceOptions = SourceOptions(),
) -> Iterator[SourceReplay]:
    """Asks the database and the brokers. Changes nothing."""
    seconds = options.seconds
    if ready.kind is not ConnectorKind.JDBC_SOURCE:
        raise Refused(f"{ready.name} is a {ready.kind.value}: only rows of a database can be read again by their keys")
    settings = home.producer_settings(ready.config)
    reading = StreamOptions(with_catalog=finds_with_catalog(context, ready.spec.connector_class, Deadline(seconds)))
    with ExitStack() as parts:
        source = parts.enter_context(closing(open_jdbc_source(spark, ready.config, home.worker, reading)))
        logs = parts.enter_context(open_position_logs(home.settings, ready.config, home.topic))
        admin = parts.enter_context(ReconnectingAdmin(settings))
        streams = source.streams()
        planned = []
        for stream, ranges in _by_stream(ready.name, streams, asked):
            position = find_position(*logs, ready.name, stream.partitions, Deadline(seconds)).offset
            planned.append(_part(stream, options.to_topic or stream.topic, ranges, position))
        yield SourceReplay(ready.name, home, spark, settings, admin, planned, options)


def replay_source(replay: SourceReplay) -> Iterator[SourceOutcome]:
    """An outcome for every table. A table that fails does not keep the others from being done."""
    for part in replay.parts:
        if not part.ranges:
            continue
        done = _Done(part)
        try:
            yield _replayed(replay, part, done)
        except PlayheadError as error:
            what = f"{error.what}; {error.hint}" if error.hint else error.what
            what = f"{what}; what was committed before it stays, and the same command continues after it"
            yield SourceOutcome(part.stream.name, part.topic, result_of(error), done.count, done.offsets, what)


@contextmanager
def opened_source(
    context: Context,
    name: str,
    asked: Sequence[KeyRange],
    file: str | None,
    spark: SparkSession,
    options: SourceOptions,
) -> Iterator[tuple[SourceReplay, str]]:
    """Like `plan_source`, and where the config of the connector was found. The connector may never have run on Spark."""
    use_plugins(context)
    home = find_home(context, Deadline(options.seconds))
    with open_context_ledger(context, options.seconds) as ledger:
        runs = [run for run in ledger.list_runs() if (run.cluster, run.pipeline) == (home.cluster_id, name)]
    spec, found_in = find_spec(context, name, file, runs[0] if runs else None, Deadline(options.seconds))
    (ready,) = check_specs([spec], home.worker)
    with plan_source(context, home, ready, asked, spark, options) as replay:
        yield replay, found_in


# Planning


def _by_stream(
    name: str, streams: Sequence[JdbcStream], asked: Sequence[KeyRange]
) -> Iterator[tuple[JdbcStream, list[KeyRange]]]:
    names = [stream.name for stream in streams]
    found: dict[str, list[KeyRange]] = {}
    for one in asked:
        if one.table is None and len(streams) != 1:
            raise Invalid(
                f"{name} reads {len(streams)} tables: {', '.join(names[:5])}", f"name one: --range {names[0]}:{one}"
            )
        wanted = [each for each in names if one.table in (None, each, each.rpartition(".")[2])]
        if len(wanted) != 1:
            raise NotFound("table", str(one.table), names, f"{name} does not read it")
        found.setdefault(wanted[0], []).append(one)
    for stream in streams:
        if stream.name in found:
            _check_mode(name, stream, found[stream.name])
            yield stream, merged(found[stream.name])


def _check_mode(name: str, stream: JdbcStream, asked: Sequence[KeyRange]) -> None:
    mode = stream.options.mode
    if mode == BULK:
        raise Refused(
            f"{name} reads {stream.name} in mode bulk: its rows have no key", "every run reads all of them anyway"
        )
    known = {INCREMENTING} if mode == BY_ID else {TIMESTAMP}
    for one in asked:
        if one.field not in known:
            raise Invalid(f"{name} is in mode {mode}: its rows are ordered by {known.pop()}, not by {one.field}")


def _part(stream: JdbcStream, topic: str, ranges: Sequence[KeyRange], position: Map | None) -> SourcePart:
    if position is None:
        why = "is not read yet: the connector has no position"
        return SourcePart(stream, topic, ranges, (), [(one, why) for one in ranges], 0, None)
    point = stream.point_of(position)
    end = point.id if stream.options.mode == BY_ID else (point.time or 0) + 1
    by_id = stream.options.mode == BY_ID
    shown = KeyRange(ranges[0].field, high=end or 0)
    kept, left_out = [], []
    for one in ranges:
        if one.high > (end or 0):
            beyond = replace(one, low=max(one.low, (end or 0) + by_id))
            if one.high < INT64_MAX or beyond.low == one.low:
                left_out.append((beyond, f"is not read yet: the position is {str(shown).partition('..')[2]}"))
            one = replace(one, high=end or 0)  # noqa: PLW2901
        if one.low <= one.high - (not by_id):
            kept.append(one)
    view = _view(stream)
    rows = sum(_count(stream, view, _condition(stream, view, one, point)) for one in kept)
    return SourcePart(stream, topic, ranges, kept, left_out, rows, position, _notes(stream, kept))


def _notes(stream: JdbcStream, kept: Sequence[KeyRange]) -> list[str]:
    notes = []
    if stream.options.mode != BY_ID and kept:
        notes.append(f"a row of {stream.name} that was changed after this time has a later timestamp, and is not read")
    tables = stream.protection.tables
    if tables and kept and (open_ := list_writers(stream.database, tables)):
        what = "a row that one of them commits later is not read"
        notes.append(f"{len(open_)} open transaction(s) write to {stream.name}: {what}")
    return notes


def _view(stream: JdbcStream) -> SqlView:
    """Without the suffix: a limit in it is for the steps of a run."""
    return replace(stream.view, suffix="")


def _count(stream: JdbcStream, view: SqlView, condition: str) -> int:
    return stream.database.whole(f"SELECT count(*) FROM {view.cursors} WHERE {condition}") or 0  # noqa: S608


def _condition(stream: JdbcStream, view: SqlView, one: KeyRange, position: Point) -> str:
    if stream.options.mode == BY_ID:
        return ids_between(view, one.low - 1, one.high)
    low, high = (view.flavour.moment(micros) for micros in (one.low, one.high))
    return f"{view.time} >= {low} AND {view.time} < {high} AND {up_to(view, position)}"


# Doing


@dataclass(slots=True)
class _Done:
    part: SourcePart
    count: int = 0
    offsets: dict[int, tuple[int, int]] | None = None

    def add(self, count: int, offsets: Mapping[int, tuple[int, int]]) -> None:
        self.count += count
        known = self.offsets or {}
        for partition, (first, last) in offsets.items():
            before = known.get(partition, (first, last))
            known[partition] = min(first, before[0]), max(last, before[1])
        self.offsets = known


def _replayed(replay: SourceReplay, part: SourcePart, done: _Done) -> SourceOutcome:
    def deadline() -> Deadline:
        return Deadline(replay.options.seconds)

    own = part.stream.topic  # it has records of the connector
    topic = replay.admin.ask(lambda admin, patience: ensure_topic(admin, part.topic, own, patience), deadline())
    marker = marker_of(replay, part, topic)
    text = replay.admin.ask(marker.read, deadline())
    if replay.options.again and _is_done(text):
        replay.admin.ask(marker.forget, deadline())
        text = None
    stream, view = part.stream, _view(part.stream)
    assert part.position is not None  # noqa: S101  else there are no ranges
    end = stream.point_of(part.position)
    slots = min(MOST_CHUNKS, count_slots(replay.spark))
    ids = [f"{marker.group}-{number}" for number in range(MOST_CHUNKS)]
    is_begun = text is not None
    after = None if text is None else stream.point_of(_position_in(text))
    has_read = False
    while True:
        with _chunks(replay, part, view, after, end, slots) as next_:
            if not next_.conditions:
                if has_read or not (replay.options.again and is_begun):
                    break
                replay.admin.ask(marker.forget, deadline())  # an older version did not write that all is done
                text, after, is_begun = None, None, False
                continue
            has_read = True
            step = JdbcStep(view, stream.encoder, next_.conditions, "", True, FETCH_ROWS, next_.snapshot)
            receipts = _run(replay, part, step, marker, ids, len(topic.partitions), text)
        for count, offsets, position in receipts:
            done.add(count, offsets)
            text = text if position is None else position
        after = next_.end or (None if text is None else stream.point_of(_position_in(text)))
    if text is not None and not _is_done(text):
        _finish(replay, marker, ids[0], text, deadline())
    if not done.count and is_begun:
        what = "was replayed before: nothing is left to do; --again does it once more"
        return SourceOutcome(stream.name, part.topic, Result.UNCHANGED, 0, {}, what)
    return SourceOutcome(stream.name, part.topic, Result.CHANGED, done.count, done.offsets or {})


_DONE = "done"


def _position_in(text: str) -> Map:
    found = json.loads(text)
    return Map(found.get(_DONE) or found)


def _is_done(text: str | None) -> bool:
    return text is not None and _DONE in json.loads(text)


def _finish(replay: SourceReplay, marker: Marker, transactional_id: str, text: str, deadline: Deadline) -> None:
    """The replay is complete. Another process that replays the same keys is fenced, or has written the marker since."""
    with TransactionalProducer(replay.settings, transactional_id, deadline) as producer:
        if replay.admin.ask(marker.read, deadline) != text:
            raise Busy("another process replays the same keys", hint="run the same command again")
        with producer.transaction():
            marker.write(producer, json.dumps({_DONE: json.loads(text)}))


def marker_of(replay: SourceReplay, part: SourcePart, topic: Topic) -> Marker:
    """One replay: the same keys of the same table into the same topic."""
    words = [replay.home.group_id, replay.name, part.stream.name, topic.name, topic.id, *map(str, part.asked)]
    number = sha256("\n".join(words).encode()).hexdigest()[:12]
    return Marker(f"playhead-replay-{replay.name}-{number}", TopicPartition(topic.name, 0))


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The conditions of the next chunks, in order. `end`: where the next ones begin; None: after the last row that is read."""

    conditions: list[str]
    end: Point | None = None
    snapshot: SharedSnapshot | None = None


@contextmanager
def _chunks(
    replay: SourceReplay, part: SourcePart, view: SqlView, after: Point | None, end: Point, slots: int
) -> Iterator[_Chunks]:
    stream, ranges = part.stream, part.ranges
    if stream.options.mode == BY_ID:
        yield _id_chunks(view, ranges, -1 if after is None else after.id or 0, slots, replay.options.rows_per_chunk)
        return
    snapshot = SharedSnapshot.take(stream.database) if stream.database.product == "PostgreSQL" else None
    try:
        ask = snapshot.holder if snapshot else stream.database
        conditions: list[str] = []
        for one in ranges:
            low = Point(one.low - 1, INT64_MAX)
            if after is not None and (after.time or 0) >= one.low:
                low = after
            if len(conditions) < slots and (low.time or 0) < one.high:
                cut = TimeCut(slots - len(conditions) if snapshot else 1, replay.options.rows_per_chunk)
                some, _ = cut_times(ask, view, low, one.high, cut)
                bounded = [f"{condition} AND {up_to(view, end)}" for condition in some]
                conditions += [each for each in bounded if ask.has_rows(f"SELECT 1 FROM {view.cursors} WHERE {each}")]  # noqa: S608
        yield _Chunks(conditions[: slots if snapshot else 1], None, snapshot)
    finally:
        if snapshot is not None:
            snapshot.holder.close()


def _id_chunks(view: SqlView, ranges: Sequence[KeyRange], after: int, slots: int, rows: int) -> _Chunks:
    """Narrow ranges share a chunk. A wide one is cut where ids exist."""
    chunks: list[list[tuple[int, int]]] = []
    room = 0
    for one in ranges:
        low = max(one.low - 1, after)
        if low >= one.high:
            continue
        if one.high - low > rows:
            wide = cut_ids(view, low, one.high, slots - len(chunks) + 1, rows)
            chunks += [[(a, b)] for a, b, _ in wide]
            room = 0
        elif one.high - low > room or len(chunks[-1]) >= _PIECES:
            chunks.append([(low, one.high)])
            room = rows - (one.high - low)
        else:
            chunks[-1].append((low, one.high))
            room -= one.high - low
        if len(chunks) > slots:
            break
    chosen = chunks[:slots]
    conditions = [" OR ".join(f"({ids_between(view, a, b)})" for a, b in pieces) for pieces in chosen]
    return _Chunks(conditions, Point(None, chosen[-1][-1][1]) if chosen else None)


@dataclass(frozen=True, slots=True)
class _ReplayTask(ChunkTask):
    """Writes the marker where a run writes the position of the connector."""

    marker: Marker | None = None

    def _committed(self, producer: BulkProducer, totals: Totals, where: str) -> Map | None:  # noqa: ARG002  not recorded
        if totals.last is None or self.commit.position_of is None or self.marker is None:
            return None
        position = self.commit.position_of(totals.last)
        self.marker.write(producer, position.to_json())
        producer.commit()
        return position


def _run(
    replay: SourceReplay,
    part: SourcePart,
    step: JdbcStep,
    marker: Marker,
    ids: Sequence[str],
    partitions: int,
    text: str | None,
) -> list[tuple[int, Mapping[int, tuple[int, int]], str | None]]:
    """Count, offsets and last position of each chunk."""

    def moved() -> str | None:
        found = replay.admin.ask(marker.read, Deadline(replay.options.seconds))
        return None if found == text else "another process replays the same keys"

    doing = f"{replay.name}, {part.stream.name}"
    spark = replay.spark
    tasks = len(step.chunks)
    with StepTurns(tasks, tasks, moved, driver_host(spark), bind_address(spark)) as turns, spark_translated(doing):
        task = _ReplayTask(
            {"common": revealed(replay.settings.common), "producer": revealed(replay.settings.producer)},
            ids,
            tasks,
            [chunk.where for chunk in step.chunks],
            turns.address,
            part.topic,
            partitions,
            time.monotonic_ns() % partitions,
            PositionRecord("", b"", 0, part.stream.position_of),
            STEP_SECONDS,
            step.records,
            doing,
            True,
            marker,
        )
        rows = collect_receipts(plan_tasks(spark, part.stream, step, task), turns)
    return [
        (
            int(row["count"]),
            {int(partition): (first, last) for partition, (first, last) in json.loads(row["offsets"]).items()},
            row["position"],
        )
        for row in rows
    ]
