"""A JDBC sink: the rows that its topics should have made, against the rows of their table in PostgreSQL.

Topics that are written to one table are compared together. The table is read from one snapshot, which is taken after the position
and before the ends of the topics: what a live sink has written by then lies below these ends.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from playhead.errors import NotFound, PlayheadError, Refused
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.ledger.model import RangeClaim, RangeState, RecordedRange
from playhead.model.ranges import OffsetRange
from playhead.pipeline.audit.arithmetic import check_ranges
from playhead.pipeline.audit.compare import Cut, Unbalanced, compare
from playhead.pipeline.audit.contents import key_of_fields, key_of_row
from playhead.pipeline.audit.expected_rows import EveryRow, ExpectedRows, LastRows, find_uses, ignore
from playhead.pipeline.audit.judge import Rules, judge
from playhead.pipeline.audit.model import Hop, Item, Pair, Verdict
from playhead.pipeline.audit.of_files import place_of_record
from playhead.pipeline.audit.pairs import of_digests, of_items, with_digests, with_sums
from playhead.pipeline.audit.scene import Owners, Scene, SinkFacts, read_sink
from playhead.pipeline.audit.sides import Hashed, Side, TaskSide
from playhead.pipeline.audit.stored import StoredRows, as_read, select_list
from playhead.pipeline.audit.topic import Spans
from playhead.pipeline.deliver.chain import SinkChain, find_chain
from playhead.pipeline.deliver.group import group_settings
from playhead.pipeline.deliver.jdbc.options import (
    RECORD_KEY,
    SQLITE,
    UPDATE,
    JdbcSinkOptions,
    TargetDatabase,
    find_target,
    parse_options,
)
from playhead.pipeline.deliver.jdbc.rows import Coordinates, RefusedRows, RowMaker, Sorting
from playhead.pipeline.deliver.jdbc.tables import Fitted, name_of
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.topics import TopicLogs, subscription_of
from playhead.pipeline.ingest.jdbc.postgres import PostgresChunks
from playhead.pipeline.records.decode.options import parse_converter
from playhead.pipeline.spec import Ready
from playhead.sql.address import parse_address
from playhead.sql.database import Database, export_snapshot
from playhead.sql.merge import MergeLayout
from playhead.sql.target_tables import TargetColumn, TargetTable, TargetTableName, count_blocks, find_table

KIND = "jdbc sink"
_SAMPLE = 1000
_PLACE = "playhead_place"
_MOST_PARTS, _BLOCKS_PER_TASK = 8, 2000  # of the table, 16 MiB each


def audit_jdbc_sink(scene: Scene, one: Ready) -> Iterator[Pair]:
    """One pair per table."""
    target = find_target(one.config)
    options = replace(parse_options(one.config, scene.home.worker), creates=False)  # an audit creates no table
    if target.product == SQLITE:
        raise Refused(f"{one.name} writes into SQLite, which cannot be compared yet", "PostgreSQL can")
    if options.insert_mode == UPDATE:
        raise Refused(f"{one.name} only updates rows: which ones should be there is not known", "upsert and insert can")
    chain = find_chain(one.config, scene.home.worker, needs_keys=options.pk_mode == RECORD_KEY)
    value, key = (parse_converter(one.config, scene.home.worker, side) for side in ("value", "key"))
    sorting = Sorting(options, value, key, chain)
    group = group_settings(one.name, one.config, scene.home.worker, scene.home.settings)
    with ReconnectingAdmin(group.client) as admin:
        logs = TopicLogs(admin)
        topics = logs.ask(lambda asked, patience: subscription_of(one.config).find(asked, patience), scene.deadline())
        for table, some in _by_table(topics, chain, options, target).items():
            began = time.monotonic()
            source = f"topic{'s' if len(some) > 1 else ''} {', '.join(some)}"
            pair = Pair(one.name, source, "-" if table is None else f"table {table}", kind=KIND)
            try:
                if table is None:
                    raise Refused(f"transforms write {some[0]} to several tables, which cannot be compared yet", None)
                facts = read_sink(scene, one, group, logs, some, target.url)
                pair = _Comparison(scene, one, sorting, target, table, logs, facts, group.properties).pair(pair)
            except PlayheadError as error:
                pair = replace(pair, error=f"{error.what}; {error.hint}" if error.hint else error.what)
            yield replace(pair, seconds=round(time.monotonic() - began, 3))


def _by_table(
    topics: Sequence[str], chain: SinkChain | None, options: JdbcSinkOptions, target: TargetDatabase
) -> dict[TargetTableName | None, list[str]]:
    """None: topics whose records go to several tables."""
    found: dict[TargetTableName | None, list[str]] = {}
    for topic in sorted(topics):
        names = {topic} if chain is None else chain.targets(topic)
        is_one = len(names) == 1 and "${timestamp}" not in next(iter(names))
        table = name_of(next(iter(names)), options, target) if is_one else None
        found.setdefault(table, []).append(topic)
    return found


@dataclass(frozen=True, slots=True)
class _Comparison:
    scene: Scene
    one: Ready
    sorting: Sorting
    target: TargetDatabase
    table: TargetTableName
    logs: TopicLogs
    facts: SinkFacts
    properties: Mapping[str, str]

    @property
    def options(self) -> JdbcSinkOptions:
        return self.sorting.options

    def pair(self, pair: Pair) -> Pair:
        scene, facts = self.scene, self.facts
        if facts.ranges is not None:
            pair = with_sums(pair, check_ranges(facts.ranges, facts.positions))
        elif scene.level == 0:
            return replace(pair, error=f"the ledger has nothing of {self.one.name}: compare its data with --level 2")
        if scene.level == 0:
            return pair
        if scene.since is not None or scene.until is not None:
            raise Refused("a table of a sink is compared as a whole", "leave out --since and --until")
        spans = facts.spans
        if not spans:
            return replace(pair, error=f"nothing of {pair.source} was delivered yet, or all of it has expired")
        known = self._find_table()
        columns, keys = self._columns(spans)
        with self._snapshot() as snapshot:
            right = self._actual(known, columns, keys, snapshot)
            ends = self.logs.ends(list(facts.ends), scene.deadline())
            sides = _Expected(self, tuple(columns), keys)
            tails = facts.tails(ends)
            judging = _TableJudging(self, sides, Spans(tails) if tails else None, keys)
            found = compare(
                scene.spark(),
                sides.side(Spans(spans)),
                right,
                tail=sides.side(Spans(tails)) if tails else None,
                deep=scene.level > 1,
                cut=Cut(scene.most, judging.rules.key_of, lists_right=not facts.has_expired),
                say=scene.say,
            )
        more_facts = {"table": [self.table.schema, self.table.name], "keys": list(keys)}
        pair = replace(with_digests(pair, found), line=facts.line_shown, facts={**facts.shown, **more_facts})
        if found.differing is None:
            doubts = {
                "records that were produced since": bool(tails),
                "records that have expired": facts.has_expired,
                "compacted ones": facts.is_compacted and not self.replaces(keys),
            }
            return of_digests(pair, [what for what, is_so in doubts.items() if is_so])
        judged = judge(found.differing, judging.rules)
        owners = Owners(facts)
        items = [_explained(item, owners) for item in judged.items]
        return of_items(pair, items, found.more, {Verdict.EXPIRED.value: found.unlisted}, judging.notes)

    def replaces(self, keys: Sequence[str]) -> bool:
        """Whether a later record of a key takes the place of the earlier one."""
        return not self.options.is_direct and bool(keys)

    def reading(self) -> ReadOptions:
        has_headers = self.sorting.chain is not None and self.sorting.chain.has_headers
        return ReadOptions(self.scene.properties(self.properties), True, has_headers)

    @contextmanager
    def _snapshot(self) -> Iterator[str]:
        doing = f"taking a snapshot of {self.table}"
        with (
            Database(parse_address(self.target.url), self.scene.seconds) as opened,
            opened.reading(doing) as connection,
        ):
            yield export_snapshot(connection)

    def _find_table(self) -> TargetTable:
        doing = f"reading the columns of table {self.table}"
        with (
            Database(parse_address(self.target.url), self.scene.seconds) as opened,
            opened.reading(doing) as connection,
        ):
            found = find_table(connection, self.table)
        if found is None:
            raise NotFound("table", str(self.table))
        return found

    def _columns(self, spans: Sequence[OffsetRange]) -> tuple[tuple[TargetColumn, ...], tuple[str, ...]]:
        """The columns that records have, by the first and the last ones of each partition; and those of the key."""
        found: dict[str, TargetColumn] = {}
        keys: dict[str, None] = {}
        edges = [OffsetRange(*span.log, span.start, min(span.end, span.start + _SAMPLE)) for span in spans]
        edges += [OffsetRange(*span.log, max(span.start, span.end - _SAMPLE), span.end) for span in spans]
        for edge in edges:
            sample = self.logs.sample([edge], self.scene.deadline())
            if not sample.num_rows:
                continue
            seen = _Seen()
            RowMaker(RangeClaim(edge, True, "", 0), self.sorting, self.target, seen, ignore).take(sample)
            for fitted in seen.fitted:
                for one, column in fitted.pairs:
                    found[column.name] = column
                    keys |= {column.name: None} if one.is_key else {}
        if not found:
            raise Refused(
                f"none of the first and last records of {Spans(spans).name} fits the table",
                "there is nothing to compare",
            )
        return tuple(found.values()), tuple(keys)

    def _actual(
        self, known: TargetTable, columns: Sequence[TargetColumn], keys: tuple[str, ...], snapshot: str
    ) -> TaskSide:
        is_plain = known.type == "TABLE"
        place = "ctid::text" if is_plain else "''::text"
        query = f"SELECT {select_list(columns)}, {place} AS {_PLACE} FROM {self.table.sql}"  # noqa: S608
        parts = block_ranges(self._count_blocks()) if is_plain else [""]
        begin = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        chunks = PostgresChunks(self.target.url, "", begin, tuple(query + part for part in parts))
        rows, count = ActualRows(chunks, tuple(columns), keys), len(parts)
        return TaskSide(f"table {self.table}", lambda spark: spark.range(0, count, 1, count), rows, count)

    def _count_blocks(self) -> int:
        doing = f"reading the size of table {self.table}"
        with (
            Database(parse_address(self.target.url), self.scene.seconds) as opened,
            opened.reading(doing) as connection,
        ):
            return count_blocks(connection, self.table)


def block_ranges(blocks: int) -> list[str]:
    """Conditions that cut a table of so many blocks into parts for several tasks. The last one has no end: the table may grow."""
    parts = min(_MOST_PARTS, max(1, blocks // _BLOCKS_PER_TASK))
    bounds = [f"'({blocks * part // parts},0)'::tid" for part in range(1, parts)]
    above = ["", *(f"ctid >= {bound}" for bound in bounds)]
    below = [*(f"ctid < {bound}" for bound in bounds), ""]
    both = (" AND ".join(filter(None, pair)) for pair in zip(above, below, strict=True))
    return [f" WHERE {condition}" if condition else "" for condition in both]


@dataclass(frozen=True, slots=True)
class _Expected:
    """What records of the topics make of the table."""

    of: _Comparison
    columns: tuple[TargetColumn, ...]
    keys: tuple[str, ...]

    def task(self, spans: Spans) -> ExpectedRows:
        of = self.of
        names = frozenset(column.name for column in self.columns)
        deliveries = {log.place: some for log, some in of.facts.deliveries.items()}
        return ExpectedRows(spans.claims, of.sorting, of.target, names, self.keys, deliveries)

    def side(self, spans: Spans) -> Side:
        reading, task = self.of.reading(), self.task(spans)
        if self.of.replaces(self.keys):
            return LastRows(spans, reading, task)
        return TaskSide(spans.name, lambda spark: spans.read(spark, reading), EveryRow(task), len(spans.spans))


@dataclass(slots=True)
class _TableJudging:
    """`tail`: the records above the line. Of a key that one of them has, a live sink may have written any version by now, or
    deleted the row. `unordered`: rows whose records are in several partitions, in an order that is not known."""

    of: _Comparison
    sides: _Expected
    tail: Spans | None
    keys: tuple[str, ...]
    unordered: int = 0

    @property
    def rules(self) -> Rules:
        key_of = key_of_fields(self.keys) if self.keys else key_of_row
        if not self.of.replaces(self.keys):
            return Rules(key_of, gone=self._gone, only_target=self._only_target)
        return Rules(
            key_of,
            replaces=True,
            only_source=self._only_source,
            only_target=self._only_target,
            changed=self._changed,
        )

    @property
    def notes(self) -> list[str]:
        if not self.unordered:
            return []
        return [
            f"{self.unordered} row(s) differ whose records are in several partitions: which one was delivered last is not known"
        ]

    def _gone(self, one: Unbalanced) -> tuple[Verdict, int]:
        """Of inserts: equal rows may come from records that have expired, or were compacted away."""
        if self.of.facts.has_expired:
            return Verdict.EXPIRED, one.right
        return Verdict.GAP, one.right if self.of.facts.is_compacted else 0

    def _only_source(self, rows: Sequence[Unbalanced]) -> list[Verdict]:
        late = self._late(rows)
        return [Verdict.LATE if one.key in late else Verdict.MISSING for one in rows]

    def _only_target(self, rows: Sequence[Unbalanced]) -> list[Verdict]:
        late = self._late(rows) if self.of.replaces(self.keys) else set()
        other = Verdict.EXPIRED if self.of.facts.has_expired else Verdict.EXTRA
        return [Verdict.LATE if one.key in late else other for one in rows]

    def _changed(self, pairs: Sequence[tuple[Unbalanced, Unbalanced]]) -> list[Verdict]:
        rows = [one for one, _ in pairs]
        late, spread = self._late(rows), self._spread(rows)
        self.unordered += sum(one.key in spread and one.key not in late for one in rows)
        found = []
        for one in rows:
            is_spread = one.key in spread
            found.append(Verdict.LATE if one.key in late else Verdict.GAP if is_spread else Verdict.CHANGED)
        return found

    def _late(self, rows: Sequence[Unbalanced]) -> set[int]:
        """The keys that records above the line have."""
        uses = self._uses(self.tail, rows)
        return set() if uses is None else set(uses.column("k").to_pylist())

    def _spread(self, rows: Sequence[Unbalanced]) -> set[int]:
        """The keys of records in several partitions. The ledger knows in which order these were delivered."""
        spans = Spans(self.of.facts.spans)
        uses = None if self.of.facts.deliveries or len(spans.spans) < 2 else self._uses(spans, rows)
        if uses is None:
            return set()
        pairs = set(zip(uses.column("k").to_pylist(), uses.column("p").to_pylist(), strict=True))
        places: dict[int, int] = {}
        for key, _ in pairs:
            places[key] = places.get(key, 0) + 1
        return {key for key, count in places.items() if count > 1}

    def _uses(self, spans: Spans | None, rows: Sequence[Unbalanced]) -> pa.Table | None:
        keys = sorted({one.key for one in rows if one.key is not None})
        if spans is None or not keys:
            return None
        return find_uses(self.of.scene.spark(), spans, self.of.reading(), self.sides.task(spans), keys)


def _explained(item: Item, owners: Owners) -> Item:
    owner = _owner(item, owners)
    if owner is not None:
        item = replace(item, run=f"run {owner.epoch}" if owner.epoch else "a replay", range=str(owner.closed.range))
    if item.verdict is not Verdict.MISSING:
        return item
    if owner is None or owner.state is RangeState.SKIPPED:
        return replace(item, hop=Hop.NOT_DELIVERED, detail=owner.note if owner else None)
    return replace(item, hop=Hop.GONE)


def _owner(item: Item, owners: Owners) -> RecordedRange | None:
    found = next((at for text in item.source if (at := place_of_record(text)) is not None), None)
    return None if found is None else owners.find(*found)


@dataclass(slots=True)
class _Seen:
    """`Load` that only looks at the layouts."""

    fitted: list[Fitted] = field(default_factory=list)
    size: int = 0

    def begin(self, layout: MergeLayout) -> None:
        """Nothing is loaded."""

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:  # noqa: ARG002
        self.fitted.append(fitted)
        return ()


@dataclass(frozen=True, slots=True)
class ActualRows:
    """Picklable: the rows of the table, each with its place."""

    chunks: PostgresChunks
    columns: tuple[TargetColumn, ...]
    keys: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Hashed]:
        for batch in self.chunks.chunks(batches):
            if batch.num_rows:
                found = dict(zip(batch.schema.names, batch.columns, strict=True))
                rows = as_read(found, self.columns)
                keys = partial(rows.hashes, self.keys) if self.keys else None
                yield Hashed(rows.hashes(), partial(_shown, rows, found[_PLACE]), keys)


def _shown(rows: StoredRows, at: pa.Array, places: np.ndarray) -> tuple[list[str], list[bytes]]:
    return at.take(pa.array(places)).to_pylist(), rows.shown(places)
