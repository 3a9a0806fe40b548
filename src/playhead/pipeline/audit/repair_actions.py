"""What a repair does, one function per action, each by the means of replay or of the target itself.

Nothing is done by what an audit saw alone: records are produced only if they are still not there, rows deleted only in a
transaction that finds them as they were, files only if they hold as many rows as then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.errors import Invalid, NotFound, PlayheadError, Refused
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.transactions import TransactionalProducer
from playhead.model import Deadline, Result
from playhead.model.outcome import result_of
from playhead.model.ranges import OffsetRange
from playhead.pipeline.audit.contents import Key, key_of_fields
from playhead.pipeline.audit.folder import count_rows, list_files
from playhead.pipeline.audit.model import Audit, Pair, Verdict
from playhead.pipeline.audit.of_files import place_of
from playhead.pipeline.audit.repair_plan import Action, Does
from playhead.pipeline.audit.run import find_specs
from playhead.pipeline.audit.scene import reading_properties, settled_ends
from playhead.pipeline.audit.topic import Spans
from playhead.pipeline.connect_home import ConnectHome, find_home
from playhead.pipeline.deliver.files.sink import FilesSink, storage_of
from playhead.pipeline.deliver.jdbc.options import find_target
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.ingest.encoding import Encoded
from playhead.pipeline.ingest.jdbc.source import open_jdbc_source
from playhead.pipeline.ingest.jdbc.stream import JdbcStep
from playhead.pipeline.replay.asked import Asked, parse_range
from playhead.pipeline.replay.run import ReplayOptions, planned_replay, replay_on
from playhead.pipeline.spark import SparkOptions
from playhead.pipeline.spark_faults import spark_translated
from playhead.pipeline.spec import Ready, check_specs
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.target_tables import TargetTableName, delete_copies, delete_keys

_KEYS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """`file`: the connector file, if the audit does not name one."""

    file: str | None = None
    deletes_extra: bool = False
    spark: SparkOptions = field(default_factory=SparkOptions)
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Mended:
    action: Action
    result: Result
    detail: str = ""


def ready_of(context: Context, pair: Pair, options: RepairOptions) -> Ready:
    found = find_specs(context, [pair.pipeline], file_of(pair, options), options.seconds)
    (ready,) = check_specs(found, find_home(context, Deadline(options.seconds)).worker)
    return ready


def file_of(pair: Pair, options: RepairOptions) -> str | None:
    named = pair.facts.get("file")
    return options.file or (str(named) if named else None)


def mend(
    context: Context, now: Audit, actions: Sequence[Action], options: RepairOptions, spark: SparkSession
) -> list[Mended]:
    """In their order. After a delivery that failed, nothing of that topic is deleted: it may hold the only copy."""
    done: list[Mended] = []
    failed: set[tuple[str, str]] = set()
    for action in actions:
        place = (action.pipeline, action.topic)
        if place in failed and action.does in (Does.DELETE_FILE, Does.DELETE_ROWS):
            done.append(Mended(action, Result.REFUSED, "its rows were not delivered again"))
            continue
        done.append(_mended(context, now, action, options, spark))
        failed |= {place} if done[-1].result not in (Result.CHANGED, Result.UNCHANGED) else set()
    return done


def _mended(context: Context, now: Audit, action: Action, options: RepairOptions, spark: SparkSession) -> Mended:
    pair = next(
        pair for pair in now.pairs if pair.pipeline == action.pipeline and pair.facts.get("topic") == action.topic
    )
    acts = {
        Does.DELIVER: _deliver,
        Does.PRODUCE: _produce,
        Does.DELETE_FILE: _delete_file,
        Does.DELETE_ROWS: _delete_rows,
    }
    try:
        return acts[action.does](context, pair, action, options, spark)
    except PlayheadError as error:
        return Mended(action, result_of(error), f"{error.what}; {error.hint}" if error.hint else error.what)


def _deliver(context: Context, pair: Pair, action: Action, options: RepairOptions, spark: SparkSession) -> Mended:
    asked = Asked(tuple(map(parse_range, action.ranges)))
    how = ReplayOptions(file_of(pair, options), spark=options.spark, seconds=options.seconds)
    with planned_replay(context, pair.pipeline, asked, how) as planned:
        if planned.impossible:
            return Mended(action, Result.REFUSED, "; ".join(str(one["why"]) for one in planned.impossible))
        done = list(replay_on(context, planned, spark))
    worst = next((one for one in done if one.result not in (Result.CHANGED, Result.UNCHANGED)), None)
    if worst is not None:
        return Mended(action, worst.result, worst.detail)
    return Mended(action, Result.CHANGED, f"{len(done)} range(s), {sum(one.count for one in done)} record(s)")


def _produce(context: Context, pair: Pair, action: Action, options: RepairOptions, spark: SparkSession) -> Mended:
    """One transaction: all of them, or none. The rows lie below the position, so a live source does not read them. The producer
    fences another repair of this source; what that one has produced before is found in the topic, and left out."""
    ready = ready_of(context, pair, options)
    home = find_home(context, Deadline(options.seconds))
    source = open_jdbc_source(spark, ready.config, home.worker)
    try:
        stream = next(one for one in source.streams() if one.name == pair.facts["stream"])
        view, count = stream.view, 0
        settings, patience = home.producer_settings(ready.config), Deadline(options.seconds)
        with TransactionalProducer(settings, f"playhead-repair-{ready.name}", patience) as producer:
            there = _produced_since(context, home, pair, spark, options.seconds)
            keys = [key for key in action.keys if key not in there]
            with producer.transaction():
                for at in range(0, len(keys), _KEYS_AT_ONCE):
                    some = ", ".join(str(int(key)) for key in keys[at : at + _KEYS_AT_ONCE])
                    step = JdbcStep(view, stream.encoder, [f"{view.id} IN ({some})"], "", True)
                    count += sum(_send(producer, stream.topic, made) for made in _encoded_rows(step, spark))
    finally:
        source.close()
    words = [f"{count} record(s) produced"]
    words += [f"{len(action.keys) - len(keys)} are there by now"] if len(keys) < len(action.keys) else []
    words += [f"{len(keys) - count} row(s) are gone or dropped by a transform"] if count < len(keys) else []
    return Mended(action, Result.CHANGED, "; ".join(words))


def _produced_since(context: Context, home: ConnectHome, pair: Pair, spark: SparkSession, seconds: float) -> set[Key]:
    """The keys of records above the line of the audit."""
    lines = pair.facts.get("lines")
    known = lines if isinstance(lines, dict) else {}
    with ReconnectingAdmin(home.settings) as admin:
        ends = settled_ends(TopicLogs(admin), str(pair.facts["topic"]), Deadline(seconds))
    spans = [
        OffsetRange(*log, start, at.stable)
        for log, at in sorted(ends.items())
        if (start := max(at.start, int(known.get(str(log.place), 0)))) < at.stable
    ]
    if not spans:
        return set()
    key_of = _KeysOf(key_of_fields([str(name) for name in _list(pair.facts.get("key_fields"))]))
    frame = Spans(spans).read(spark, ReadOptions(reading_properties(context))).select(VALUE)
    with spark_translated(f"reading the end of {pair.target}"):
        return set(frame.mapInArrow(cast(Any, key_of), "key string").distinct().toArrow().column("key").to_pylist())


@dataclass(frozen=True, slots=True)
class _KeysOf:
    """Picklable."""

    key_of: Callable[[bytes | None], Key | None]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = [self.key_of(value) for value in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"key": pa.array([key for key in keys if key is not None], pa.string())})


def _encoded_rows(step: JdbcStep, spark: SparkSession) -> Iterator[Encoded]:
    records = step.records
    if records.read is not None:  # the rows are read here, by the number of the chunk
        yield from records(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
    else:
        yield from records(iter(step.read(spark).toArrow().to_batches()))


def _send(producer: TransactionalProducer, topic: str, made: Encoded) -> int:
    keys = [None] * len(made.values) if made.keys is None else made.keys.to_pylist()
    for at, (key, value) in enumerate(zip(keys, made.values.to_pylist(), strict=True)):
        headers = None if made.headers is None else [(name, one or b"") for name, one in made.headers[at]]
        producer.produce(topic, key, value, headers=headers)
    return len(made.values)


def _delete_file(context: Context, pair: Pair, action: Action, options: RepairOptions, _spark: SparkSession) -> Mended:
    ready, (name,) = ready_of(context, pair, options), action.names
    sink = FilesSink(ready.config, find_home(context, Deadline(options.seconds)).worker)
    place = place_of(sink)
    try:
        if (rows := rows_in_file(sink, name)) != action.rows:
            raise Refused(f"{name} holds {rows} rows now, and held {action.rows}", "audit again")
    except NotFound:
        return Mended(action, Result.UNCHANGED, "it is gone already")
    storage_of(sink.options).connect().remove(name)
    if any(file.name == name for file in list_files(place)):
        return Mended(action, Result.FAILED, "it is still there")
    return Mended(action, Result.CHANGED)


def rows_in_file(sink: FilesSink, name: str) -> int:
    return count_rows(place_of(sink), name, sink.options.format.separator.encode() or b"\n")


def _delete_rows(context: Context, pair: Pair, action: Action, options: RepairOptions, _spark: SparkSession) -> Mended:
    """A doubled row goes only if a row with the same content stays, an extra one only if it still has its key."""
    ready = ready_of(context, pair, options)
    table, keys = _table(pair), [str(key) for key in _list(pair.facts.get("keys"))]
    extra = {place: item.key or "" for item in pair.items if item.verdict is Verdict.EXTRA for place in item.target}
    copies = [place for place in action.names if place not in extra]
    rows = {place: key for place, key in extra.items() if place in action.names}
    if rows and not keys:
        raise Refused(f"{table} has no key by which extra rows could be deleted safely", "delete them by hand")
    doing = f"deleting rows of {table}"
    with (
        Database(parse_address(find_target(ready.config).url), options.seconds) as database,
        database.transaction(doing) as connection,
    ):
        count = delete_copies(connection, table, copies) if copies else 0
        count += delete_keys(connection, table, keys, rows) if rows else 0
        if count != len(action.names):
            raise Refused(
                f"{count} of {len(action.names)} rows are still as they were found: nothing is deleted", "audit again"
            )
    return Mended(action, Result.CHANGED, f"{count} row(s) deleted")


def _table(pair: Pair) -> TargetTableName:
    parts = _list(pair.facts.get("table"))
    if len(parts) != 2:
        raise Invalid("the audit does not name the table", "audit again")
    return TargetTableName(None if parts[0] is None else str(parts[0]), str(parts[1]))


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
