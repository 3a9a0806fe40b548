"""One table or the query of a JDBC source connector: its topic, its position, and the next step from a position.

Without a stored position the rules of Connect apply: incrementing reads ids above -1 (negative ids are never read), timestamp
reads times strictly after the epoch, timestamp+incrementing reads from the epoch on, with ids above -1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
from pyspark.sql import DataFrame, SparkSession

from playhead.errors import Invalid, PlayheadError, Refused, Rejected
from playhead.model import Map
from playhead.pipeline.ingest.encoding import RecordEncoder, Records
from playhead.pipeline.ingest.jdbc.chunks import (
    MOST_ROWS,
    ChunkPace,
    Point,
    TimeCut,
    cut_ids,
    cut_times,
    even_ranges,
    has_rows,
    ids_between,
)
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.flavour import ID, INSTANT, Flavour, Sqlite
from playhead.pipeline.ingest.jdbc.horizon import (
    Ceiling,
    Protection,
    await_writers,
    find_protection,
    list_transactions,
    list_writers,
    lower,
    now_shown,
    waiting_words,
)
from playhead.pipeline.ingest.jdbc.options import BULK, INCREMENTING, JdbcOptions
from playhead.pipeline.ingest.jdbc.postgres import PostgresChunks
from playhead.pipeline.ingest.jdbc.view import Cursor, Relation, SqlView, find_cursor, refuse_nulls
from playhead.pipeline.ingest.source import Chunk, Last
from playhead.pipeline.records.encode.record import make_record
from playhead.pipeline.records.from_sql import SqlRows
from playhead.pipeline.records.transforms.on_sources import route
from playhead.pipeline.step import Left, LeftUnit

MICROS_PER_MS, MICROS_PER_SECOND, NANOS_PER_MICRO = 1000, 1_000_000, 1000
FETCH_ROWS = 10_000
_FIRST_ID = -1


@dataclass(frozen=True, slots=True)
class ToJdbcPosition:
    """Fields in the connector's order. `timestamp_nanos` counts from the start of the second."""

    has_id: bool
    has_time: bool

    def __call__(self, last: Last) -> Map:
        fields: dict[str, int] = {}
        if self.has_time:
            if last.time_micros is None:
                raise ValueError("a position of a timestamp mode needs a time")
            fields["timestamp_nanos"] = last.time_micros % MICROS_PER_SECOND * NANOS_PER_MICRO
        if self.has_id:
            if last.id is None:
                raise ValueError("a position of an incrementing mode needs an id")
            fields["incrementing"] = last.id
        if self.has_time and last.time_micros is not None:
            fields["timestamp"] = last.time_micros // MICROS_PER_MS
        return Map(fields)


def find_ahead(value: bytes, position: Map, columns: Mapping[str, str]) -> str | None:
    """`columns`: field of the position -> column of the record. Only for JSON values with times in the unit of the position."""
    try:
        record = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    row = record.get("payload", record) if isinstance(record, dict) else {}
    for name in ("timestamp", "incrementing"):
        stored, seen = position.get(name), row.get(columns.get(name, "")) if isinstance(row, dict) else None
        if type(stored) is int and type(seen) is int and seen != stored:
            return f"{columns[name]}={seen}" if seen > stored else None
    return None


@dataclass(frozen=True, slots=True)
class SharedSnapshot:
    """A snapshot of the database that all readers of a step share. Its own connection holds it open."""

    name: str
    holder: JdbcDatabase

    @classmethod
    def take(cls, database: JdbcDatabase) -> "SharedSnapshot":
        holder = database.another()
        try:
            return cls(holder.hold_snapshot(), holder)
        except BaseException:
            holder.close()
            raise


@dataclass(frozen=True, slots=True)
class JdbcStep:
    """No chunks: open transactions block all rows; `horizon` names them."""

    view: SqlView
    encoder: RecordEncoder
    conditions: Sequence[str]
    horizon: str
    reaches_end: bool
    fetch_rows: int = FETCH_ROWS
    snapshot: SharedSnapshot | None = None
    left: Left | None = None

    @property
    def chunks(self) -> Sequence[Chunk]:
        return [Chunk(number, self.view.shown(condition)) for number, condition in enumerate(self.conditions)]

    def read(self, spark: SparkSession) -> DataFrame:
        """The order of a chunk is part of its SQL: Spark copies a predicate after WHERE unchanged and must not add its own."""
        if self.records.read is not None:
            return spark.range(0, len(self.conditions), 1, len(self.conditions))
        database = self.view.database
        with database.told(f"reading {self.view.relation.shown}"):
            return spark.read.jdbc(
                database.reader_url,
                self.view.rows,
                predicates=[self.view.ending(condition) for condition in self.conditions],
                properties={**self._reading(), **database.reader_properties()},
            )

    @property
    def records(self) -> Records:
        database = self.view.database
        conninfo = database.find_conninfo()
        if conninfo is None:
            return Records(self.encoder)
        queries = tuple(self.view.query(condition) for condition in self.conditions)
        return Records(self.encoder, PostgresChunks(conninfo, database.password, self._begin, queries))

    def close(self) -> None:
        if self.snapshot is not None:
            self.snapshot.holder.close()

    def _reading(self) -> dict[str, str]:
        # Without a custom type the reader would read an INTEGER of SQLite as 32 bits, and a numeric id as a decimal.
        own = [f"{ID} BIGINT"] * (self.view.cursor.id is not None)
        own += [f"{INSTANT} BIGINT"] * (bool(self.view.cursor.times) and isinstance(self.view.flavour, Sqlite))
        properties = {"fetchsize": str(self.fetch_rows), "pushDownPredicate": "false"}
        if own:
            properties["customSchema"] = ", ".join(own)
        if self._begin:
            properties["sessionInitStatement"] = "; ".join(self._begin)
        return properties

    @property
    def _begin(self) -> tuple[str, ...]:
        return self.view.database.reader_begin(self.snapshot.name if self.snapshot is not None else None)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of the run, not of the connector. `with_catalog`: a new position is stored under `db.schema.table`; None: the form
    that the installed connector reads is unknown."""

    with_catalog: bool | None = None
    once: bool = False
    horizon_seconds: float = 30.0
    most_rows: int = MOST_ROWS


@dataclass
class JdbcStream:
    """`began`: the database's time at the start of the run, for timestamp.initial=-1."""

    database: JdbcDatabase
    flavour: Flavour
    options: JdbcOptions
    relation: Relation
    reading: StreamOptions = field(default_factory=StreamOptions)
    began: int | None = None
    _pace: ChunkPace = field(default_factory=ChunkPace, init=False)
    _cleared: int | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.relation.shown

    @cached_property
    def topic(self) -> str:
        return route(self.options.record.transforms, self._first_topic)

    @property
    def _first_topic(self) -> str:
        """Before any transform."""
        return self.options.topic_prefix + (self.relation.name or "")

    @property
    def is_key_known(self) -> bool:
        return self.reading.with_catalog is not None

    @property
    def has_position(self) -> bool:
        return self.options.mode != BULK

    @property
    def is_read_by_tasks(self) -> bool:
        return self.database.find_conninfo() is not None

    @property
    def partitions(self) -> Sequence[Map]:
        table = self.relation
        if table.name is None:
            return [Map({"query": "query"})]
        bare = Map({"table": table.name})
        if not self.has_position:
            return [bare]
        short = [part for part in (table.schema, table.name) if part]
        forms = [short, [table.catalog, *short]] if table.catalog else [short]
        if table.catalog and (self.reading.with_catalog or table.schema is None):
            forms.reverse()
        return [*(Map({"protocol": "1", "table": ".".join(form)}) for form in forms), bare]

    def find_ahead(self, value: bytes, position: Map) -> str | None:
        options = self.options
        columns = {"incrementing": options.incrementing_column} if options.has_id else {}
        if len(options.timestamp_columns) == 1 and options.record.timestamp_granularity == "connect_logical":
            columns["timestamp"] = options.timestamp_columns[0]
        if options.record.transforms:
            columns = {field: self._shown[column] for field, column in columns.items() if column in self._shown}
        return find_ahead(value, position, columns)

    @cached_property
    def _shown(self) -> Mapping[str, str]:
        view = self.view
        cursor = [column.name for column in (view.cursor.id, *view.cursor.times) if column is not None]
        return columns_shown(self.encoder, view.record.rows, cursor)

    @property
    def position_of(self) -> ToJdbcPosition:
        return ToJdbcPosition(self.options.has_id, self.options.has_time)

    def plan(self, position: Map | None, most: int, rows_per_chunk: int) -> JdbcStep | None:
        if self.options.mode == BULK:
            return self._plan_bulk(most, rows_per_chunk)
        if self.options.mode == INCREMENTING:
            return self._plan_ids(_integer_of(position, "incrementing", _FIRST_ID), most, rows_per_chunk)
        return self._plan_times(self._start(position), most, rows_per_chunk)

    @cached_property
    def view(self) -> SqlView:
        """The current columns. A stream lasts one round, so the next round sees a changed table."""
        shown = self.relation.shown
        columns = self.database.columns(self.relation.source, f"reading the columns of {shown}")
        incrementing = self.options.incrementing_column if self.options.has_id else None
        cursor = find_cursor(columns, incrementing, self.options.timestamp_columns, shown)
        if self.options.validate_non_null and self.relation.name is not None:
            refuse_nulls(cursor, shown)
        record = make_record(
            [column for column, _ in columns], self.options.record, self.relation.name or "", self.database.product
        )
        return SqlView(self.database, self.flavour, self.relation, cursor, record, self.options.query_suffix)

    @property
    def encoder(self) -> RecordEncoder:
        view = self.view
        id_name = None if view.cursor.id is None else view.cursor.id.name
        return RecordEncoder(view.record.rows, self.options.record, self._first_topic, id_name, view.cursor.time_name)

    @cached_property
    def protection(self) -> Protection:
        cursor = self.view.cursor
        in_ids = cursor.id if self.options.mode == INCREMENTING else None
        return find_protection(self.database, self.relation, in_ids.name if in_ids else None)

    # By id

    def _plan_ids(self, low: int, most: int, rows: int) -> JdbcStep | None:
        view = self.view
        for _ in range(2):  # the rows cleared before may be deleted by now: then clear again, for newer rows
            if (self._cleared is None or self._cleared <= low) and (held := self._clear_ids(low)) is not None:
                return held
            if self._cleared is None:
                return None
            if (step := self._cut_ids(view, low, self._cleared, most, rows)) is not None:
                return step
            self._cleared = None
        return None

    def _clear_ids(self, low: int) -> JdbcStep | None:
        """Finds an end below which no new id can appear. Returns a step without chunks if that takes too long."""
        view = self.view
        self._cleared = None
        top = self.database.whole(f"SELECT max({view.id}) FROM {view.cursors} WHERE {view.id} > {low}")  # noqa: S608
        if top is None:
            return None
        tables, seconds = self.protection.tables, self.reading.horizon_seconds
        if tables is not None:
            waiting = await_writers(lambda: list_writers(self.database, tables), lambda writer: True, seconds)
            if waiting:
                words = f"nothing after id {low}: {waiting_words(waiting, seconds)}, which may commit an id up to {top}"
                return self._step((), words, reaches_end=False)
        self._cleared = top
        return None

    def _cut_ids(self, view: SqlView, low: int, high: int, most: int, rows: int) -> JdbcStep | None:
        if view.suffix:
            return self._limited_ids(view, low, high)
        self._pace.learn(view, low)
        ranges = cut_ids(view, low, high, most, rows * self._pace.factor)
        if not ranges:
            return None
        self._pace.keep(ranges[0][2], ranges[-1][1])
        conditions = [ids_between(view, a, b) for a, b, _ in ranges]
        left = Left(high - ranges[0][2] + 1, LeftUnit.IDS)  # the gap before the first id does not count
        return self._step(conditions, self._words(f"up to id {high}"), reaches_end=ranges[-1][1] == high, left=left)

    def _limited_ids(self, view: SqlView, low: int, high: int) -> JdbcStep | None:
        """One chunk, because a limit in the suffix applies to the statement. The next step continues after its last row."""
        condition = ids_between(view, low, high)
        end = self.database.whole(
            f"SELECT max({view.id}) FROM (SELECT {view.id} FROM {view.cursors} "  # noqa: S608
            f"WHERE {view.ending(condition)}) playhead_end"
        )
        if end is None:
            return None
        left = Left(high - low, LeftUnit.IDS)
        return self._step([condition], self._words(f"up to id {high}"), reaches_end=end == high, left=left)

    # By time

    def _start(self, position: Map | None) -> Point:
        if position is None:
            initial = self.options.timestamp_initial_ms
            if initial == -1 and self.reading.once:
                raise Refused(
                    "timestamp.initial=-1 starts at the time of the first round, and a run until caught up ends after that"
                    " round: it would never read anything",
                    "use --continuous, or set a position first: playhead offsets set",
                )
            if initial == -1:
                if self.began is None:
                    self.began = self._now()
                return Point(self.began, _FIRST_ID)
            return self.first_point
        return self.point_of(position)

    @property
    def first_point(self) -> Point:
        """Where a timestamp mode begins without a position, unless that is the time of its first round."""
        return Point((self.options.timestamp_initial_ms or 0) * MICROS_PER_MS, _FIRST_ID)

    def point_of(self, position: Map) -> Point:
        """The last row that was read. In incrementing mode its time means nothing."""
        millis, nanos = _integer_of(position, "timestamp", 0), position.get("timestamp_nanos")
        micros = millis * MICROS_PER_MS
        if isinstance(nanos, int):
            micros = millis // 1000 * MICROS_PER_SECOND + nanos // NANOS_PER_MICRO
        return Point(micros, _integer_of(position, "incrementing", _FIRST_ID))

    def _now(self) -> int:
        now = self.database.whole(self.flavour.now(), "reading the database's time")
        if now is None:  # 0 would mean that every row is in the future
            raise Rejected("the database did not answer with its time")
        return now

    def _plan_times(self, low: Point, most: int, rows: int) -> JdbcStep | None:
        view = self.view
        end = self._now() - self.options.timestamp_delay_ms * MICROS_PER_MS
        if not has_rows(self.database, view, low, end):
            return None
        ceiling = self._clear_times(end)
        if ceiling.end is None:
            return self._step((), f"nothing after the position: {ceiling.words}", reaches_end=False)
        if self.database.product != "PostgreSQL" or view.suffix:
            most = 1
        snapshot = self._snapshot()
        step = None
        try:
            ask = snapshot.holder if snapshot else self.database
            cut = TimeCut(most, rows, self.reading.most_rows)
            conditions, reaches = cut_times(ask, view, low, ceiling.end, cut)
            if view.suffix:
                conditions = [condition for condition in conditions if _gives_rows(ask, view, condition)]
            reaches_end = reaches and ceiling.end == end and not view.suffix
            words = self._words(f"before {now_shown(ceiling.end)}" + (f", {ceiling.words}" if ceiling.words else ""))
            if conditions:
                # Before the first row there is no position whose distance would say anything.
                left = Left(ceiling.end - low.time, LeftUnit.MICROSECONDS) if low.time else None
                step = self._step(conditions, words, reaches_end=reaches_end, snapshot=snapshot, left=left)
                return step
            return None if ceiling.end == end else self._step((), words, reaches_end=False)
        finally:
            if step is None and snapshot:
                snapshot.holder.close()

    def _clear_times(self, end: int) -> Ceiling:
        """Waits for transactions that may still commit a row before `end`. Lowers `end` to the start of the oldest one left."""
        tables, seconds = self.protection.tables, self.reading.horizon_seconds
        if tables is None:
            return Ceiling(end)
        waiting = await_writers(
            lambda: list_transactions(self.database, tables),
            lambda writer: writer.started is None or writer.started < end,
            seconds,
        )
        return lower(end, waiting, seconds)

    # Bulk

    def _plan_bulk(self, most: int, rows: int) -> JdbcStep | None:
        view = self.view
        if not self.database.has_rows(f"SELECT 1 FROM {self.relation.source}"):  # noqa: S608
            return None
        snapshot = self._snapshot()
        try:
            cut = self._cut_bulk(snapshot.holder, view, most, rows) if snapshot and not view.suffix else None
        except BaseException:
            if snapshot:
                snapshot.holder.close()
            raise
        words = "all rows of one snapshot" if snapshot else "all rows, read by one statement"
        if cut is None:
            return self._step(["1 = 1"], words, reaches_end=True, snapshot=snapshot)
        view, conditions = cut
        return JdbcStep(view, self.encoder, conditions, self._with_left_out(words), True, self._fetch_rows, snapshot)

    def _cut_bulk(self, ask: JdbcDatabase, view: SqlView, most: int, rows: int) -> tuple[SqlView, list[str]] | None:
        """Cuts by ranges of the primary key, if that is one integer column and there is more than one chunk."""
        table = self.relation
        key = self.database.primary_key(table.catalog, table.schema, table.name) if table.name is not None else []
        if len(key) != 1:
            return None
        columns = self.database.columns(table.source, f"reading the columns of {table.shown}")
        try:
            cursor = find_cursor(columns, key[0], (), table.shown)
        except Invalid:
            return None
        view = SqlView(view.database, view.flavour, table, Cursor(cursor.id, ()), view.record)
        low, high = (
            ask.whole(f"SELECT {which}({view.id}) FROM {view.cursors}")  # noqa: S608
            for which in ("min", "max")
        )
        if low is None or high is None:
            return None
        parts = min(most, -(-(high - low + 1) // rows))
        return (view, [ids_between(view, a, b) for a, b in even_ranges(low, high, parts)]) if parts > 1 else None

    # Common

    def _snapshot(self) -> SharedSnapshot | None:
        return SharedSnapshot.take(self.database) if self.database.product == "PostgreSQL" else None

    @property
    def _fetch_rows(self) -> int:
        return max(FETCH_ROWS, self.options.batch_max_rows)

    def _words(self, end: str) -> str:
        return f"{end}; {self.protection.words}" if self.protection.words else end

    def _step(
        self,
        conditions: Sequence[str],
        horizon: str,
        *,
        reaches_end: bool,
        snapshot: SharedSnapshot | None = None,
        left: Left | None = None,
    ) -> JdbcStep:
        words = self._with_left_out(horizon)
        return JdbcStep(self.view, self.encoder, conditions, words, reaches_end, self._fetch_rows, snapshot, left)

    def _with_left_out(self, words: str) -> str:
        left_out = ", ".join(self.view.record.left_out)
        return f"{words}; columns left out, as in Connect: {left_out}" if left_out else words


def columns_shown(encoder: RecordEncoder, rows: SqlRows, columns: Sequence[str]) -> dict[str, str]:
    """Column -> the field of the JSON value that holds it as it was read, whatever the transforms did: seen by two rows that
    differ in that column only. A chain that cannot write such rows shows none."""
    return {column: name for column in columns if (name := _field_shown(encoder, rows, column)) is not None}


def _field_shown(encoder: RecordEncoder, rows: SqlRows, column: str) -> str | None:
    seen: list[dict[str, object]] = []
    for number in (7, 11):
        try:
            (value,) = encoder(rows.sample({column: number})).values.to_pylist()
            record = msgspec.json.decode(value or b"null")
        except (PlayheadError, ValueError, msgspec.MsgspecError):
            return None
        row = record.get("payload", record) if isinstance(record, dict) else None
        if not isinstance(row, dict):
            return None
        seen.append(row)
    first, second = seen
    return next((name for name in first if first[name] == 7 and second.get(name) == 11), None)


def _integer_of(position: Map | None, name: str, default: int) -> int:
    value = None if position is None else position.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(
            f"{name} of the stored position is {value!r}, not a whole number", "set it with: playhead offsets set"
        )
    return value


def _gives_rows(ask: JdbcDatabase, view: SqlView, condition: str) -> bool:
    """A suffix may remove all rows of a chunk. A stream with such a step would never end."""
    return ask.has_rows(f"SELECT 1 FROM {view.cursors} WHERE {view.ending(condition)}")  # noqa: S608
