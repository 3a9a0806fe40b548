"""A JDBC source: the rows of its tables against the records of its topics, up to the stored position."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from playhead.errors import PlayheadError, Refused
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import Ends
from playhead.ledger.model import RecordedChunk
from playhead.model import Map
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.audit.arithmetic import check_chunks
from playhead.pipeline.audit.compare import Cut, Unbalanced, compare
from playhead.pipeline.audit.contents import key_of_fields
from playhead.pipeline.audit.expiry import Expiry, Order, order_of_fields
from playhead.pipeline.audit.judge import Rules, judge
from playhead.pipeline.audit.model import Hop, Item, Pair, Verdict
from playhead.pipeline.audit.pairs import of_digests, of_items, with_digests, with_sums
from playhead.pipeline.audit.scene import Scene, settled_ends
from playhead.pipeline.audit.table import SourceTable, open_table, order_fields
from playhead.pipeline.audit.topic import Spans, find_keys, record_side
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.sink import VALUE
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.ingest.jdbc.options import INCREMENTING
from playhead.pipeline.ingest.jdbc.source import open_jdbc_source
from playhead.pipeline.ingest.jdbc.stream import JdbcStream, StreamOptions
from playhead.pipeline.ingest.position_log import StoredPositions, find_position, open_position_logs
from playhead.pipeline.replay.plan import find_compacted
from playhead.pipeline.spec import Ready

KIND = "source"


def audit_source(scene: Scene, one: Ready) -> Iterator[Pair]:
    """One pair per stream, or one for all if only the ledger is looked at."""
    chunks = scene.ledger.list_chunks(scene.home.cluster_id, one.name)
    with ExitStack() as parts:
        logs = parts.enter_context(open_position_logs(scene.home.settings, one.config, scene.home.topic))
        if scene.level == 0:
            yield from_ledger(one, chunks, logs[0].find_all(one.name, scene.deadline()) if chunks else None)
            return
        source = open_jdbc_source(scene.spark(), one.config, scene.home.worker, StreamOptions())
        parts.callback(source.close)
        admin = parts.enter_context(ReconnectingAdmin(scene.home.settings))
        streams = source.streams()
        for stream in streams:
            own = [chunk for chunk in chunks if chunk.chunk.stream == stream.name]
            began = time.monotonic()
            pair = Pair(one.name, f"table {stream.name}", f"topic {stream.topic}", kind=KIND)
            try:
                _check_alone(stream, streams)
                stored = find_position(*logs, one.name, stream.partitions, scene.deadline()).offset
                pair = _audited(scene, pair, stream, stored, own, TopicLogs(admin))
            except PlayheadError as error:
                pair = replace(pair, error=f"{error.what}; {error.hint}" if error.hint else error.what)
            yield replace(pair, seconds=round(time.monotonic() - began, 3))


def _check_alone(stream: JdbcStream, streams: Sequence[JdbcStream]) -> None:
    """Of a topic that gets the rows of several tables, it is not known which record came from which."""
    if others := [one.name for one in streams if one.topic == stream.topic and one is not stream]:
        raise Refused(
            f"topic {stream.topic} has the rows of several tables ({stream.name}, {', '.join(others)}),"
            " which cannot be compared yet",
            "one topic per table can",
        )


def from_ledger(one: Ready, chunks: Sequence[RecordedChunk], found: StoredPositions | None) -> Pair:
    topics = sorted({chunk.chunk.topic for chunk in chunks})
    pair = Pair(one.name, "ledger", ", ".join(f"topic {topic}" for topic in topics) or "nothing", kind=KIND)
    if found is None:
        return replace(pair, error=f"the ledger has nothing of {one.name}: compare its data with --level 2")
    stored = {partition: at.offset for partition, at in found.by_partition.items()}
    return with_sums(pair, check_chunks(chunks, stored_by_stream(chunks, stored)))


def stored_by_stream(chunks: Sequence[RecordedChunk], stored: Mapping[Map, Map | None]) -> dict[str, Map | None]:
    """The stored position of each stream of the ledger. A table may be stored under several forms of its name; of these, the one
    at which the last chunk ended counts."""
    found: dict[str, Map | None] = {}
    for stream, end in {
        one.chunk.stream: one.chunk.end_position for one in sorted(chunks, key=lambda one: one.seq)
    }.items():
        own = [offset for partition, offset in stored.items() if _names(partition, stream)]
        found[stream] = next((offset for offset in own if offset == end), own[0] if own else None)
    return found


def _names(partition: Map, stream: str) -> bool:
    if "query" in partition:
        return stream == "query"
    if "filename" in partition:
        return stream == partition["filename"]
    parts, own = str(partition.get("table", "")).split("."), stream.split(".")
    count = min(len(parts), len(own))
    return parts[-count:] == own[-count:]


def _audited(
    scene: Scene, pair: Pair, stream: JdbcStream, stored: Map | None, chunks: Sequence[RecordedChunk], logs: TopicLogs
) -> Pair:
    """The position first, the topic's end after it, the table's snapshot last: rows up to the position are all in the topic."""
    faults = check_chunks(chunks, {stream.name: stored}).faults if chunks else ()
    ends = settled_ends(logs, stream.topic, scene.deadline())
    is_compacted = bool(logs.ask(lambda admin, wait: find_compacted([stream.topic], admin, wait), scene.deadline()))
    window = _window(scene, stream, stored, chunks)
    expiry = Expiry.of(ends, order_of_fields(order_fields(stream)), lambda span: _first(logs, span, scene))
    if window.offsets is None and stream.options.mode == INCREMENTING:
        low = expiry.low_id(chunks)
        window.low = None if low is None else Map({"incrementing": low})
    table = open_table(stream, window.high, window.low)
    try:
        compared = _Comparison(scene, table, ends, chunks, expiry, window, is_compacted)
        return compared.pair(replace(pair, faults=faults))
    finally:
        table.close()


def _first(logs: TopicLogs, span: OffsetRange, scene: Scene) -> list[bytes | None]:
    found: list[bytes | None] = logs.sample([span], scene.deadline()).column(VALUE).to_pylist()
    return found


class _Window:
    """The part of a source that is compared. `low` None: from the start."""

    def __init__(self, low: Map | None, high: Map | None, offsets: Mapping[int, tuple[int, int]] | None) -> None:
        self.low, self.high, self.offsets = low, high, offsets


def _window(scene: Scene, stream: JdbcStream, stored: Map | None, chunks: Sequence[RecordedChunk]) -> _Window:
    """A window of time is that of the chunks that were committed in it: the ledger knows their rows and their offsets."""
    if scene.since is None and scene.until is None:
        return _Window(None, stored, None)
    if not chunks:
        raise Refused(
            f"which rows of {stream.name} were read in that time is not known: the ledger has nothing of it",
            "leave out --since and --until to compare all",
        )
    inside = sorted(
        (
            chunk
            for chunk in chunks
            if (scene.since is None or chunk.committed_at >= scene.since)
            and (scene.until is None or chunk.committed_at < scene.until)
        ),
        key=lambda chunk: chunk.seq,
    )
    if not inside:
        raise Refused(f"nothing of {stream.name} was read in that time", "give an earlier --since or a later --until")
    offsets: dict[int, tuple[int, int]] = {}
    for chunk in inside:
        for partition, (first, last) in chunk.chunk.offsets.items():
            low, high = offsets.get(partition, (first, last + 1))
            offsets[partition] = (min(low, first), max(high, last + 1))
    return _Window(inside[0].chunk.start_position, inside[-1].chunk.end_position, offsets)


@dataclass(frozen=True, slots=True)
class _Comparison:
    scene: Scene
    table: SourceTable
    ends: Mapping[Log, Ends]
    chunks: Sequence[RecordedChunk]
    expiry: Expiry
    window: _Window
    is_compacted: bool

    def pair(self, pair: Pair) -> Pair:
        scene, table = self.scene, self.table
        spans = self._spans
        if not spans:
            raise Refused(f"{pair.target} is empty", "nothing was produced yet, or all of it has expired")
        right = record_side(Spans(spans), self._reading)
        cut = Cut(scene.most, key_of_fields(table.key_fields), self._compares_keys)
        found = compare(scene.spark(), table.side, right, deep=scene.level > 1, cut=cut, say=scene.say)
        line = ", ".join(f"{span.partition}@{span.end}" for span in spans)
        pair = replace(
            with_digests(pair, found),
            line=f"rows up to {table.position.to_json()}, offsets up to {line}",
            facts=_facts(table, spans),
        )
        is_whole = self.window.offsets is None
        counts = {
            Verdict.LATE.value: table.count_late() if is_whole else 0,
            Verdict.EXPIRED.value: table.count_below() if is_whole else 0,
        }
        counts = {verdict: count for verdict, count in counts.items() if count}
        if found.differing is None:
            doubts = {
                "records that have expired": bool(self.expiry),
                "rows that were updated since": self._compares_keys,
                "older versions of rows": not table.is_incrementing,
                "compacted ones": self.is_compacted,
            }
            return of_digests(replace(pair, counts=counts), [what for what, is_so in doubts.items() if is_so])
        judged = judge(found.differing, self._rules)
        explaining = _Explaining.of(self.chunks, found.differing, table)
        items = [explaining.item(item) for item in judged.items]
        return of_items(pair, items, found.more, counts, self._notes(judged.updated + found.updated))

    @property
    def _compares_keys(self) -> bool:
        return self.table.is_incrementing and not self.scene.values

    @property
    def _rules(self) -> Rules:
        return Rules(
            key_of_fields(self.table.key_fields),
            is_json=True,
            is_late_key=self.table.is_above,
            only_source=self._only_in_table,
            only_target=self._only_in_topic,
            compares_keys=self._compares_keys,
        )

    def _notes(self, updated: int) -> list[str]:
        notes = []
        if updated:
            notes.append(
                f"{updated} row(s) have another content in the table than in the topic: updated since they were read;"
                " --values reports them"
            )
        if not self.table.key_fields and self.table.is_incrementing:
            notes.append("the key of a record is not known: a changed row is reported as missing and as extra")
        elif not self.table.key_fields:
            notes.append(
                "the key of a record is not known: one that the table does not have is taken as an older version"
            )
        return notes

    @property
    def _spans(self) -> list[OffsetRange]:
        return spans_between(self.ends, self.window.offsets)

    @property
    def _reading(self) -> ReadOptions:
        return ReadOptions(self.scene.properties())

    def _only_in_table(self, only: Sequence[Unbalanced]) -> list[Verdict]:
        key_of = key_of_fields(self.table.key_fields)
        newer = self._newer(only) if self.is_compacted else set()
        found = []
        for one in only:
            if one.key in newer:
                found.append(Verdict.GAP)
                continue
            chunk = _chunk_of(key_of(one.row), self.chunks)
            has_expired = self.expiry.may_hold(one.row, None if chunk is None else chunk.chunk)
            found.append(Verdict.EXPIRED if has_expired else Verdict.MISSING)
        return found

    def _newer(self, only: Sequence[Unbalanced]) -> set[int]:
        """The keys of these rows that records have: compaction keeps the newest record of a key."""
        keys = {one.key for one in only if one.key is not None}
        return find_keys(self.scene.spark(), Spans(self._spans), self._reading, list(keys)) if keys else set()

    def _only_in_topic(self, only: Sequence[Unbalanced]) -> list[Verdict]:
        """Gone in the table, or another version of a row that the table has: of a mode that follows updates the older one, which
        the topic keeps; else a record too many, or one of a row that was not compared. Where such a mode has no key, a record may
        be an older version of any row."""
        table = self.table
        key_of = key_of_fields(table.key_fields)
        keys = [key_of(one.row) for one in only]
        present = table.find_present([key for key in keys if key is not None])
        is_whole = self.window.offsets is None

        def verdict(one: Unbalanced, key: str | None) -> Verdict:
            if not table.key_fields and not table.is_incrementing and one.row is not None:
                return Verdict.GAP
            if key is None or key not in present:
                return Verdict.EXTRA
            is_older = not table.is_incrementing or (is_whole and table.is_below(key))
            return Verdict.GAP if is_older else Verdict.DUPLICATE

        return [verdict(one, key) for one, key in zip(only, keys, strict=True)]


def spans_between(ends: Mapping[Log, Ends], offsets: Mapping[int, tuple[int, int]] | None) -> list[OffsetRange]:
    """From the start of each log to its end. `offsets`: only the part between these, by partition."""
    spans = []
    for log, at in sorted(ends.items()):
        start, stop = at.start, at.stable
        if offsets is not None:
            first, last = offsets.get(log.partition, (stop, stop))
            start, stop = max(start, first), min(stop, last)
        if start < stop:
            spans.append(OffsetRange(*log, start, stop))
    return spans


def _facts(table: SourceTable, spans: Sequence[OffsetRange]) -> dict[str, object]:
    return {
        "stream": table.stream.name,
        "topic": table.stream.topic,
        "topic_id": spans[0].topic_id,
        "lines": {str(span.place): span.end for span in spans},
        "position": table.position.to_dict(),
        "key_fields": table.key_fields,
    }


@dataclass(frozen=True, slots=True)
class _Explaining:
    """What the ledger knows of a row that differs. `orders`: the places of rows in the order of a timestamp mode, by key."""

    chunks: Sequence[RecordedChunk]
    orders: Mapping[str, Order]

    @classmethod
    def of(cls, chunks: Sequence[RecordedChunk], rows: Sequence[Unbalanced], table: SourceTable) -> "_Explaining":
        if table.is_incrementing:
            return cls(chunks, {})
        key_of, order_of = key_of_fields(table.key_fields), order_of_fields(order_fields(table.stream))
        found = ((key_of(one.row), order_of(one.row)) for one in rows if one.left)
        return cls(chunks, {key: order for key, order in found if key is not None and order is not None})

    def item(self, item: Item) -> Item:
        """With the chunk that its row was in."""
        order = self.orders.get(item.key or "")
        chunk = _chunk_of(item.key, self.chunks) if order is None else _chunk_at(order, self.chunks)
        if item.verdict is Verdict.MISSING:
            item = replace(item, hop=Hop.NOT_PRODUCED)
        return item if chunk is None else replace(item, run=f"run {chunk.epoch}", range=chunk.chunk.source_range)


def _chunk_at(order: Order, chunks: Sequence[RecordedChunk]) -> RecordedChunk | None:
    """By time and id. Times of records are whole milliseconds: a row of the same one as a finer bound may be on either side."""
    for one in chunks:
        low, high = (_order_of(at) for at in (one.chunk.start_position, one.chunk.end_position))
        if high is None or low == high:
            continue
        if any(bound is not None and not bound[1] and bound[0][0] == order[0] for bound in (low, high)):
            return None
        if (low is None or low[0] < order) and order <= high[0]:
            return one
    return None


def _order_of(position: Map | None) -> tuple[Order, bool] | None:
    """Time and id of a position, and whether its time is a whole millisecond."""
    time, number = (None if position is None else position.get(name) for name in ("timestamp", "incrementing"))
    if position is None or not isinstance(time, int) or not isinstance(number, int):
        return None
    nanos = position.get("timestamp_nanos")
    return (time, number), not isinstance(nanos, int) or nanos % 1_000_000 == 0


def _chunk_of(key: str | None, chunks: Sequence[RecordedChunk]) -> RecordedChunk | None:
    if key is None or not key.lstrip("-").isdigit():
        return None
    number = int(key)
    for one in chunks:
        start, end = one.chunk.start_position, one.chunk.end_position
        low = -1 if start is None else start.get("incrementing")
        high = None if end is None else end.get("incrementing")
        has_time = end is not None and "timestamp" in end
        if isinstance(low, int) and isinstance(high, int) and not has_time and low < number <= high:
            return one
    return None
