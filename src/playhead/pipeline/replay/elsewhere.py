"""Records that a sink has delivered go to another table or to another topic: exactly the asked offsets, as far as they are there.

The sink's own output, its ledger of ranges and its position are not touched. Each piece is one transaction together with a mark
of what is done: in the target database for a table, in a consumer group for a topic. The same command, after a kill or later,
does only what is not done yet.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pyarrow as pa

from playhead.errors import Busy, PlayheadError, Refused, RowsRefused
from playhead.kafka.bulk import TRANSACTION_SECONDS, BulkProducer
from playhead.kafka.client import Admin, revealed
from playhead.kafka.markers import Marker
from playhead.kafka.properties import ClientSettings
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import ensure_topic
from playhead.ledger.copies import copied_spans, forget_copies, mark_copied
from playhead.ledger.model import ClosedRange, RangeClaim
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.redo import lock_replays
from playhead.model import Deadline, Result
from playhead.model.outcome import result_of
from playhead.model.ranges import Log, OffsetRange, RangeSet
from playhead.pipeline.deliver.jdbc.options import INSERT, TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Sorting, make_rows
from playhead.pipeline.deliver.jdbc.sink import JdbcSink
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED, ReadOptions
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import HEADERS, KEY, TIMESTAMP, VALUE, Reject, Writer
from playhead.pipeline.deliver.task import deliver
from playhead.pipeline.digest import Tally
from playhead.pipeline.replay.plan import SinkState
from playhead.pipeline.replay.redo import RedoContext, RedoOutcome, in_words
from playhead.pipeline.replay.table_rows import table_rows
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.target_tables import TargetTableName, has_rows
from playhead.sql.transaction import Connection


def pieces_of(spans: Sequence[OffsetRange], done: RangeSet, offsets: int) -> list[list[OffsetRange]]:
    """What is left, in rounds with at most one piece per topic partition, in the order of the offsets."""
    rounds: list[list[OffsetRange]] = []
    at: dict[Log, int] = {}
    for span in sorted(RangeSet(spans) - done):
        for start in range(span.start, span.end, offsets):
            number = at[span.log] = at.get(span.log, -1) + 1
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(OffsetRange(*span.log, start, min(span.end, start + offsets)))
    return rounds


# Another table


@dataclass(frozen=True, slots=True)
class OtherTableWriter:
    """`Writer`."""

    sorting: Sorting
    target: TargetDatabase
    cluster: str
    pipeline: str
    table: TargetTableName
    is_careful: bool = False

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        with table_rows(self.target, self.sorting.options, is_careful=self.is_careful) as rows:
            closed = make_rows(claim, batches, self.sorting, self.target, rows, reject)
            connection = rows.finish()
            before = mark_copied(connection, self.cluster, self.pipeline, self.table, claim.range)
            if RangeSet([claim.range]) & before:
                raise Busy(f"another replay writes {claim.range} to {self.table}", hint="run the same command again")
            if self.sorting.options.insert_mode != INSERT:
                check_order(str(self.table), before, [claim.range])  # another replay may have written since the plan
        yield closed


def replay_to_table(
    of: RedoContext, sink: JdbcSink, table: TargetTableName, spans: Sequence[OffsetRange]
) -> Iterator[RedoOutcome]:
    """`sink`: with the options of the connector, and this table in place of its own."""
    state, ranges = of.state, of.state.ranges
    ranges.ledger.write(lambda connection: _forget_if_empty(connection, state.cluster, state.pipeline, table))
    check_other_table(state, sink, table, spans)
    done = _copied(ranges, state.cluster, state.pipeline, table)
    writer = OtherTableWriter(sink.sorting, sink.target, state.cluster, state.pipeline, table)
    rounds = pieces_of(spans, done, of.offsets_per_claim)
    reading = ReadOptions(of.properties, sink.has_keys, sink.has_headers)

    def write(claims: Sequence[RangeClaim]) -> list[tuple[RangeClaim, Sequence[ClosedRange]]]:
        policy = RejectPolicy(of.name, tolerates=True)
        try:
            return deliver(of.spark, reading, claims, writer, policy)
        except RowsRefused:
            left = _copied(ranges, state.cluster, state.pipeline, table)
            again = [claim for claim in claims if not RangeSet([claim.range]) & left]
            known = [(claim, [ClosedRange(claim.range, 0, 0, 0)]) for claim in claims if claim not in again]
            return known + deliver(of.spark, reading, again, replace(writer, is_careful=True), policy)

    yield from _before(spans, done)
    for some in rounds:
        claims = [RangeClaim(span, True, sink.shape, 0) for span in some]
        try:
            found = write(claims)
        except PlayheadError as error:
            yield from (RedoOutcome(span, result_of(error), detail=in_words(error)) for span in some)
            return  # later pieces must not be written before earlier ones
        yield from (_outcome(claim, closed, str(table)) for claim, closed in found)


def check_other_table(state: SinkState, sink: JdbcSink, table: TargetTableName, spans: Sequence[OffsetRange]) -> None:
    """Changes nothing. Refused if rows would be there twice, or if older ones would cover newer ones."""
    if not _is_filled(sink.target, table):  # it is new, or was dropped since
        return
    done = _copied(state.ranges, state.cluster, state.pipeline, table)
    if sink.sorting.options.insert_mode != INSERT:
        check_order(str(table), done, list(RangeSet(spans) - done))
    elif not done:
        raise Refused(f"table {table} has rows already, and rows are only inserted", "name a new or an empty table")


def _is_filled(target: TargetDatabase, table: TargetTableName) -> bool:
    with Database(parse_address(target.url), 30.0) as database:
        if not database.exists():
            return False
        with database.reading(f"reading table {table}") as connection:
            return has_rows(connection, table)


def _forget_if_empty(connection: Connection, cluster: str, pipeline: str, table: TargetTableName) -> None:
    """It is new, or was dropped since. Rows and marks of another replay come together, and not while this looks."""
    lock_replays(connection, cluster, pipeline)
    if not has_rows(connection, table):
        forget_copies(connection, cluster, pipeline, table)


def _copied(ranges: RangeLedger, cluster: str, pipeline: str, table: TargetTableName) -> RangeSet:
    return ranges.ledger.read(lambda connection: copied_spans(connection, cluster, pipeline, table), RangeSet())


def check_order(table: str, done: RangeSet, spans: Sequence[OffsetRange]) -> None:
    for one in spans:
        if later := next((span for span in done if span.log == one.log and span.start >= one.end), None):
            raise Refused(
                f"{table} has {later} already: the older records of {one} would cover its values",
                "name another table",
            )


# Another topic


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """`Writer` of records as they are. `done`: by topic partition, what the marker had when this was planned."""

    common: Mapping[str, str] = field(repr=False)
    producer: Mapping[str, str] = field(repr=False)
    topic: str
    group: str
    done: Mapping[Log, RangeSet]

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:  # noqa: ARG002  nothing is read here
        span, tally = claim.range, Tally()
        settings = ClientSettings(dict(self.common), producer=dict(self.producer))
        marker, done = Marker(self.group, span.place), self.done.get(span.log, RangeSet())
        deadline = Deadline(TRANSACTION_SECONDS - 20.0)
        with BulkProducer(settings, f"{self.group}-{span.topic}-{span.partition}", deadline) as producer:
            with Admin(settings, deadline) as admin:  # after the fence: an earlier writer cannot commit any more
                if done_of(marker.read(admin, deadline), span.log) != done:
                    raise Busy(f"another replay writes {span} to {self.topic}", hint="run the same command again")
            producer.begin(deadline)
            for batch in batches:
                for key, value, millis, headers in _plain(batch):
                    producer.produce(self.topic, key, value, timestamp_ms=millis, headers=headers)
                tally.add_rows(batch, pa.array([True] * batch.num_rows).to_numpy(zero_copy_only=False))
            marker.write(producer, _marked(done | RangeSet([span])))
            producer.commit()
        yield tally.closed(span)


def _plain(
    batch: pa.RecordBatch,
) -> Iterator[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes]] | None]]:
    millis = [-1 if one is None else one // 1000 for one in batch.column(TIMESTAMP).cast(pa.int64()).to_pylist()]
    headers = batch.column(HEADERS).to_pylist() if HEADERS in batch.schema.names else [None] * batch.num_rows
    for key, value, at, of_record in zip(
        batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), millis, headers, strict=True
    ):
        pairs = [(one["key"], one["value"]) for one in of_record] if of_record else None
        yield key, value, max(0, at), pairs


def done_of(text: str | None, log: Log) -> RangeSet:
    """Empty if the marker is of a topic that was deleted since."""
    if not text:
        return RangeSet()
    found = json.loads(text)
    if found["id"] != log.topic_id:
        return RangeSet()
    return RangeSet(OffsetRange(*log, start, end) for start, end in found["done"])


def _marked(done: RangeSet) -> str:
    spans = list(done)
    text = json.dumps(
        {"id": spans[0].topic_id, "done": [[span.start, span.end] for span in spans]}, separators=(",", ":")
    )
    if len(text) > 4000:  # the broker's limit is 4096 by default
        raise Refused(
            f"{len(spans)} separate ranges of {spans[0].place} would be in that topic, more than its marker can name",
            "use another topic for more of them",
        )
    return text


@dataclass(frozen=True, slots=True)
class OtherTopic:
    """`settings`: of the producers."""

    name: str
    settings: ClientSettings
    admin: ReconnectingAdmin


def replay_to_topic(of: RedoContext, to: OtherTopic, spans: Sequence[OffsetRange]) -> Iterator[RedoOutcome]:
    """Key, value, headers and timestamps as they are; the partition by the key, in the order of the source partition."""
    if not spans:
        return
    topic = to.admin.ask(lambda admin, patience: ensure_topic(admin, to.name, spans[0].topic, patience), of.deadline())
    number = sha256(f"{of.state.cluster}\n{topic.id}".encode()).hexdigest()[:12]
    group = f"playhead-replay-{of.name}-{number}"
    logs = sorted({span.log for span in spans})
    reading = ReadOptions({**of.properties, ISOLATION: READ_COMMITTED}, has_keys=True, has_headers=True)
    common, producer = revealed(to.settings.common), revealed(to.settings.producer)

    def read_done(log: Log) -> RangeSet:
        return done_of(to.admin.ask(Marker(group, log.place).read, of.deadline()), log)

    done = {log: read_done(log) for log in logs}
    all_done = RangeSet(span for some in done.values() for span in some)
    yield from _before(spans, all_done)
    for some in pieces_of(spans, all_done, of.offsets_per_claim):
        writer: Writer = TopicWriter(common, producer, to.name, group, done)
        claims = [RangeClaim(span, True, "", 0) for span in some]
        try:
            found = deliver(of.spark, reading, claims, writer, RejectPolicy(of.name, tolerates=True))
        except PlayheadError as error:
            now = {span: RangeSet([span]) & read_done(span.log) for span in some}
            for span in some:
                committed = RangeSet([span]) == now[span]
                result = Result.CHANGED if committed else result_of(error)
                yield RedoOutcome(span, result, detail="" if committed else in_words(error))
            return
        yield from (_outcome(claim, closed, to.name) for claim, closed in found)
        done |= {span.log: read_done(span.log) for span in some}


# Both


def _before(spans: Sequence[OffsetRange], done: RangeSet) -> Iterator[RedoOutcome]:
    for span in RangeSet(spans) & done:
        yield RedoOutcome(span, Result.UNCHANGED, detail="an earlier replay has written these offsets there")


def _outcome(claim: RangeClaim, closed: Sequence[ClosedRange], target: str) -> RedoOutcome:
    rejected = sum(one.rejected for one in closed)
    count = sum(one.count for one in closed)
    what = f"{rejected} record(s) did not fit and were left out" if rejected else ""
    return RedoOutcome(claim.range, Result.CHANGED, count, [target], detail=what, left_out=rejected)
