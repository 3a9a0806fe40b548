"""The part of a ledger that sinks use: the position of each topic partition, open claims, and delivered ranges.

For a sink the ledger is authoritative, not the consumer group. A claim is stored before the work begins and stays open until it
is committed; the next run finishes it as it was claimed. There is at most one open claim per topic partition. It begins at the
stored position, and a commit moves the position in the transaction that records the ranges. Writes that would leave a gap,
deliver twice or mix a topic with its recreated successor are refused. Every write of a run checks its epoch like those of
`Ledger`. Writes are idempotent.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, update

from playhead.errors import Refused
from playhead.ledger import range_rows as rows
from playhead.ledger import range_rules as checks
from playhead.ledger import tables
from playhead.ledger.model import (
    Claim,
    CondensedRanges,
    Done,
    Host,
    RangeClaim,
    RangeSums,
    RecordedRange,
    Run,
    SinkMove,
    SinkMoved,
    SinkPosition,
)
from playhead.ledger.moves import Hand, move_positions
from playhead.ledger.range_rows import load_sums
from playhead.ledger.redo import (
    DeliveredSpan,
    Redone,
    TableWriter,
    begin_redo,
    commit_redone,
    load_counting,
    load_deliveries,
    load_first_commit,
    load_in_time,
    load_logs,
    load_marks,
    load_reached,
    load_with_output,
    load_with_outputs,
    load_writers,
    next_generation,
)
from playhead.ledger.runs import Ledger, open_ledger
from playhead.ledger.tables import KEPT, insert_into
from playhead.model import Map, TopicPartition
from playhead.model.ranges import Log, OffsetRange
from playhead.sql.times import moment

T = TypeVar("T")
Also = Callable[[Connection], None]
_NO_POSITION: dict[TopicPartition, SinkPosition] = {}
_NO_CLAIM: dict[TopicPartition, RangeClaim] = {}


class RangeLedger:
    """Uses an open ledger, which the caller closes. May be shared by threads; writes are serialized."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    # What a run writes

    def adopt(self, claim: Claim, starts: Mapping[Log, int]) -> None:
        """Writes the first positions of logs that have none. A log that has another position is refused; then nothing is written.

        Later ranges that were delivered before the position was deleted are superseded.
        """
        checks.check_offsets(starts)

        def act(connection: Connection) -> None:
            self.ledger.own(connection, claim)
            found = rows.load_positions(connection, claim.cluster, claim.pipeline, starts)
            new = {log: starts[log] for log in checks.unknown(starts, found)}
            Hand(connection, claim.cluster, claim.pipeline, claim.epoch, f"run {claim.epoch}").adopt(new)

        self._write(act)

    def open_claims(self, claim: Claim) -> list[RangeClaim]:
        """Claims of an earlier run, or of this one, that are not committed. They must be finished first, as they were claimed."""

        def act(connection: Connection) -> list[RangeClaim]:
            self.ledger.own(connection, claim)
            found = rows.load_claims(connection, claim.cluster, claim.pipeline)
            return sorted(found.values(), key=lambda one: one.range)

        return self._write(act)

    def plan(self, claim: Claim, wanted: Sequence[RangeClaim]) -> None:
        """Stores all claims or none. Each must begin at the stored position, with the same topic id and generation, and its log
        must have no other open claim. A claim that is already open is not changed."""
        logs = checks.check_wanted(wanted)

        def act(connection: Connection) -> None:
            self.ledger.own(connection, claim)
            positions = rows.load_positions(connection, claim.cluster, claim.pipeline, logs)
            claims = rows.load_claims(connection, claim.cluster, claim.pipeline, logs)
            new = [one for one in wanted if checks.is_new(one, positions, claims)]
            rows.add_claims(connection, claim, new)
            self.ledger.update_run(connection, claim, heartbeat=moment(connection))

        self._write(act)

    def give_up(self, claim: Claim, unwritten: Sequence[RangeClaim]) -> None:
        """Removes open claims of which nothing can be in the target, because the target commits together with the ledger. Their
        offsets may be claimed differently, with the same generation. A claim that is no longer open is ignored."""

        def act(connection: Connection) -> None:
            self.ledger.own(connection, claim)
            found = rows.load_claims(connection, claim.cluster, claim.pipeline)
            rows.drop_claims(connection, claim, [one for one in unwritten if found.get(one.range.place) == one])

        self._write(act)

    def commit_all(self, claim: Claim, done: Sequence[Done], also: Also | None = None) -> bool:
        """Closes the claims, records their ranges and moves the positions, all in one transaction with `also`.

        The ranges of a claim are consecutive, without a gap, from its start. They must reach its end if it `closes`. Otherwise
        they may end earlier, and the next claim begins there; without any range the position does not move. False: all of it was
        committed before, and `also` was not called. `also` uses the ledger's database and must not commit. It holds the lock of
        the run's row: a stop request has to wait. PostgreSQL ends it after ten idle seconds between two statements.
        """
        return self._write(lambda connection: self.commit_within(connection, claim, done, also)) if done else False

    def commit_within(
        self, connection: Connection, claim: Claim, done: Sequence[Done], also: Also | None = None
    ) -> bool:
        """Like `commit_all`, in a transaction of the same database that the caller ends."""
        checks.check_done(done)
        run = self.ledger.own(connection, claim)
        logs = [one.range.log for one, _ in done]
        claims = rows.load_claims(connection, claim.cluster, claim.pipeline, logs)
        if not checks.are_open([one for one, _ in done], claims):
            recorded = rows.load_recorded(connection, claim.cluster, claim.pipeline, [one for one, _ in done])
            checks.check_recorded(done, claims, recorded)
            return False
        positions = rows.load_positions(connection, claim.cluster, claim.pipeline, logs)
        for one, _ in done:
            checks.check_position(one, positions)
        if also is not None:
            also(connection)
        rows.close_claims(connection, claim, done)
        self._count(connection, run, done)
        return True

    def published(self, claim: Claim, offsets: Mapping[Log, int]) -> None:
        """Records the offsets that were committed to the consumer group. Logs without a position are refused."""
        checks.check_offsets(offsets)

        def act(connection: Connection) -> None:
            self.ledger.own(connection, claim)
            found = rows.load_positions(connection, claim.cluster, claim.pipeline, offsets)
            checks.check_known(offsets, found)
            rows.set_published(connection, claim, offsets)

        self._write(act)

    def remember(self, claim: Claim, key: str, text: str) -> str:
        """Stores `text` for this pipeline unless the key exists. Returns the stored value."""
        at = {"cluster": claim.cluster, "pipeline": claim.pipeline, "key": key}

        def act(connection: Connection) -> str:
            self.ledger.own(connection, claim)
            values = {**at, "value": text, "epoch": claim.epoch, "kept_at": moment(connection)}
            connection.execute(insert_into(connection, KEPT).values(**values).on_conflict_do_nothing())
            return rows.load_kept(connection, claim.cluster, claim.pipeline, key) or ""

        return self._write(act)

    # What an operator writes

    def move(
        self,
        cluster: str,
        pipeline: str,
        moves: Sequence[SinkMove],
        who: Host,
        why: str = "",
        epoch: int | None = None,
    ) -> list[SinkMoved]:
        """Makes all moves or none. Refused while a run is alive, or if a position differs from `before`.

        It increases the epoch: a run that was only suspended cannot write any more. An open claim is removed. A move back
        supersedes everything delivered from there on and raises the generation. It must not end inside a delivered range
        (`find_range_around` returns it). A move forward records a skipped range with the name of the user. Ranges that a move
        back superseded and that were not delivered again since are restored instead. Ranges of another topic id are not changed.
        The schema inferred from a topic is deleted with the topic's last position. `why`: the note of a skipped range. `epoch`:
        that must still be the last one.
        """
        checks.check_moves(moves)
        if not moves:
            return []
        return self._write(lambda connection: move_positions(connection, cluster, pipeline, moves, who, why, epoch))

    def begin_redo(
        self, cluster: str, pipeline: str, marks: Mapping[OffsetRange, str], *, is_forced: bool = False
    ) -> None:
        """Call it before the first output of these ranges is written again, with the shape of each. Refused if a redo of other
        options was interrupted there."""
        self._write(lambda connection: begin_redo(connection, cluster, pipeline, marks, is_forced=is_forced))

    def redo(
        self, cluster: str, pipeline: str, redone: Sequence[Redone], who: Host, marked: Sequence[OffsetRange] = ()
    ) -> list[Redone]:
        """Records ranges that were delivered again in place, as a new generation, in one transaction. Positions and claims do not
        change, so a run may be alive. Returns those that another process committed before with the same content. `marked`: the
        ranges as they were given to `begin_redo`."""
        return self._write(lambda connection: commit_redone(connection, cluster, pipeline, redone, who, marked))

    # Reading

    def next_generation(self, cluster: str, pipeline: str, log: Log) -> int:
        """Of ranges of this log that are delivered again in place."""
        return self._read(lambda connection: next_generation(connection, cluster, pipeline, log), 1)

    def list_counting(self, cluster: str, pipeline: str, spans: Sequence[OffsetRange]) -> list[RecordedRange]:
        """What was delivered or skipped in these offsets and counts, in the order of the offsets."""
        return self._read(lambda connection: load_counting(connection, cluster, pipeline, spans), [])

    def list_deliveries(self, cluster: str, pipeline: str, log: Log, start: int = 0) -> list[DeliveredSpan]:
        """What counts of a log from `start` on, with the order in which runs delivered it."""
        return self._read(lambda connection: load_deliveries(connection, cluster, pipeline, log, start), [])

    def list_with_output(self, cluster: str, pipeline: str, name: str) -> list[RecordedRange]:
        """The delivered ranges with an output of that name; the folders before it may be left out."""
        return self._read(lambda connection: load_with_output(connection, cluster, pipeline, name), [])

    def list_with_outputs(self, cluster: str, pipeline: str, log: Log, names: Collection[str]) -> list[RecordedRange]:
        """The delivered ranges of a log with an output of one of these names."""
        return self._read(lambda connection: load_with_outputs(connection, cluster, pipeline, log, names), [])

    def list_in_time(
        self, cluster: str, pipeline: str, since_ms: int | None, until_ms: int | None
    ) -> list[RecordedRange]:
        """The delivered ranges with records from `since_ms` on and before `until_ms`."""
        return self._read(lambda connection: load_in_time(connection, cluster, pipeline, since_ms, until_ms), [])

    def list_marks(self, cluster: str, pipeline: str) -> dict[OffsetRange, str]:
        """With which shape ranges were about to be written by redos that are running or were interrupted."""
        return self._read(lambda connection: load_marks(connection, cluster, pipeline), {})

    def list_logs(self, cluster: str, pipeline: str) -> set[Log]:
        """Of which anything was delivered, also of topics that were deleted."""
        return self._read(lambda connection: load_logs(connection, cluster, pipeline), set())

    def list_reached(self, cluster: str, pipeline: str) -> dict[Log, int]:
        """Up to which offset each log was delivered at some time, also of topics that were deleted."""
        nothing: dict[Log, int] = {}
        return self._read(lambda connection: load_reached(connection, cluster, pipeline), nothing)

    def list_writers(self, tables: Collection[str], *, without: tuple[str, str] | None = None) -> list[TableWriter]:
        """The pipelines that have written to these tables, under any of these names. `without`: a cluster and a pipeline."""
        return self._read(lambda connection: load_writers(connection, tables, without), [])

    def first_commit(self, cluster: str, pipeline: str, span: OffsetRange) -> datetime | None:
        """When any of these offsets were delivered first."""
        nothing: datetime | None = None
        return self._read(lambda connection: load_first_commit(connection, cluster, pipeline, span), nothing)

    def positions(self, cluster: str, pipeline: str) -> dict[Log, SinkPosition]:
        found = self._read(lambda connection: rows.load_positions(connection, cluster, pipeline), _NO_POSITION)
        return {Log(at.topic, position.topic_id, at.partition): position for at, position in found.items()}

    def list_pipelines(self, cluster: str) -> list[str]:
        """Pipelines that have a position."""
        return self._read(lambda connection: rows.load_pipelines(connection, cluster), [])

    def list_sinks(self) -> list[tuple[str, str]]:
        """Cluster and pipeline of every sink that has a position, or had one and still has kept values."""
        return self._read(rows.load_sinks, [])

    def list_claims(self, cluster: str, pipeline: str) -> list[RangeClaim]:
        """The open claims. Needs no run, unlike `open_claims`."""
        found = self._read(lambda connection: rows.load_claims(connection, cluster, pipeline), _NO_CLAIM)
        return sorted(found.values(), key=lambda one: one.range)

    def list_ranges(
        self, cluster: str, pipeline: str, log: Log | None = None, newest: int | None = None
    ) -> list[RecordedRange]:
        """Newest first, in every state."""
        return self._read(lambda connection: rows.list_ranges(connection, cluster, pipeline, log, newest), [])

    def list_below(self, cluster: str, pipeline: str, log: Log, end: int, most: int) -> list[RecordedRange]:
        """In every state, those that begin before `end`, the highest first. An old part costs no more than a new one."""
        return self._read(lambda connection: rows.list_below(connection, cluster, pipeline, log, end, most), [])

    def first_offset(self, cluster: str, pipeline: str, log: Log) -> int | None:
        """Where the first recorded range begins."""
        nothing: int | None = None
        return self._read(lambda connection: rows.load_first_offset(connection, cluster, pipeline, log), nothing)

    def condense(
        self, cluster: str, pipeline: str, log: Log, within: tuple[int, int], parts: int
    ) -> list[CondensedRanges]:
        """The ranges that begin within these offsets, added up by the database: at most `parts` for each state."""
        return self._read(lambda connection: rows.condense(connection, cluster, pipeline, log, within, parts), [])

    def sums(self, cluster: str, pipeline: str) -> dict[Log, RangeSums]:
        return self._read(lambda connection: load_sums(connection, cluster, pipeline), {})

    def find_range_around(self, cluster: str, pipeline: str, log: Log, offset: int) -> OffsetRange | None:
        """The delivered range that `offset` would cut in two."""
        nothing: OffsetRange | None = None
        return self._read(lambda c: rows.find_range_around(c, cluster, pipeline, log, offset), nothing)

    def incarnation(self, cluster: str, pipeline: str, topic: str, topic_id: str) -> int:
        """1 for the first topic of this name that was delivered, 2 for the one that was created after it was deleted, ..."""
        return self._read(lambda c: rows.load_incarnation(c, cluster, pipeline, topic, topic_id), 1)

    def recall(self, cluster: str, pipeline: str, key: str) -> str | None:
        return self._read(lambda connection: rows.load_kept(connection, cluster, pipeline, key), None)

    # Inside

    def _write(self, act: Callable[[Connection], T]) -> T:
        def with_tables(connection: Connection) -> T:
            tables.create_range_tables(connection, self.ledger.place)
            return act(connection)

        return self.ledger.write(with_tables)

    def _read(self, act: Callable[[Connection], T], nothing: T) -> T:
        def if_tables(connection: Connection) -> T:
            return act(connection) if tables.range_tables_exist(connection, self.ledger.place) else nothing

        return self.ledger.read(if_tables, nothing)

    def _count(self, connection: Connection, run: Run, done: Sequence[Done]) -> None:
        """For `runs list`: how many records this run delivered, and its last position."""
        parts = [each for _, closed in done for each in closed]
        at = parts[-1].range if parts else None
        last = (f"{at.topic}-{at.partition}", Map({"kafka_offset": at.end})) if at else None
        self.ledger.tally(connection, run, sum(each.count for each in parts), last)


@contextmanager
def open_ranges(ledger: Ledger, run: Run, seconds: float) -> Iterator[RangeLedger]:
    """Opens the ranges of a sink: in the ledger of its run, or in its target database."""
    if (url := run.ranges_at) is None:
        yield RangeLedger(ledger)
        return
    with open_ledger(url, seconds) as target:
        yield RangeLedger(target)


def swap_kept(key: str, before: str, after: str) -> Also:
    """Compare and set. `before` contains a random part and is unique, so cluster and pipeline are not needed."""

    def swap(connection: Connection) -> None:
        wanted = update(KEPT).where(KEPT.c.key == key, KEPT.c.value == before)
        changed = connection.execute(wanted.values(value=after, kept_at=moment(connection))).rowcount
        if changed != 1:
            raise Refused(f"another process changed the value {key} in the ledger", "nothing of this step is committed")

    return swap
