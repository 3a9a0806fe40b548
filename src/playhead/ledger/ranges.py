"""The part of a ledger that sinks use: how far each topic partition is delivered, what is being delivered, what was.

The ledger is the truth of a sink, not the consumer group. A claim is stored before the work begins and stays open until all
of it is committed; the next run finishes it as it was claimed. So there is at most one open claim per topic partition, it
begins at the stored position, and a commit moves the position in the transaction that records the ranges. What would leave a
hole, deliver twice or mix two incarnations of a topic is refused. Every write of a run checks its epoch like those of
`Ledger`, and repeating a write changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, update

from playhead.errors import Refused
from playhead.ledger import range_rows as rows
from playhead.ledger import range_rules as checks
from playhead.ledger import tables
from playhead.ledger.model import (
    Claim,
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
    """Over an open ledger, which stays its owner's to close. May be shared by threads; they write one after the other."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    # What a run writes

    def adopt(self, claim: Claim, starts: Mapping[Log, int]) -> None:
        """The first positions of logs that have none. One that has a position must have this one, else nothing is written.

        Ranges from there on that were delivered before the position was forgotten are superseded.
        """
        checks.check_offsets(starts)

        def act(connection: Connection) -> None:
            self.ledger.own(connection, claim)
            found = rows.load_positions(connection, claim.cluster, claim.pipeline, starts)
            new = {log: starts[log] for log in checks.unknown(starts, found)}
            Hand(connection, claim.cluster, claim.pipeline, claim.epoch, f"run {claim.epoch}").adopt(new)

        self._write(act)

    def open_claims(self, claim: Claim) -> list[RangeClaim]:
        """What an earlier run, or this one, has claimed and not committed: to be finished first, as it was claimed."""

        def act(connection: Connection) -> list[RangeClaim]:
            self.ledger.own(connection, claim)
            found = rows.load_claims(connection, claim.cluster, claim.pipeline)
            return sorted(found.values(), key=lambda one: one.range)

        return self._write(act)

    def plan(self, claim: Claim, wanted: Sequence[RangeClaim]) -> None:
        """All of them or none. Each begins at the stored position, of the same topic id and generation, and no other one is open
        on its log. The same claim again is left as it is."""
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
        """Removes open claims of which nothing can be in the target, because it is committed with the ledger: their offsets may
        be claimed in another way, of the same generation. One that is not open any more is left as it is."""

        def act(connection: Connection) -> None:
            self.ledger.own(connection, claim)
            found = rows.load_claims(connection, claim.cluster, claim.pipeline)
            rows.drop_claims(connection, claim, [one for one in unwritten if found.get(one.range.place) == one])

        self._write(act)

    def commit_all(self, claim: Claim, done: Sequence[Done], also: Also | None = None) -> bool:
        """Closes the claims, writes down their ranges and moves the positions, all in one transaction with `also`.

        The ranges of a claim follow each other without a hole from its start. They end where it ends if it `closes`; else they
        may end before, and the next claim begins there; without any range the position stays. False: all of it was committed
        before, and `also` was not called. `also` works on the ledger's own database and must not commit. It holds the run's
        row: whoever asks the run to stop has to wait. PostgreSQL ends it after ten idle seconds between two statements.
        """
        return self._write(lambda connection: self.commit_within(connection, claim, done, also)) if done else False

    def commit_within(
        self, connection: Connection, claim: Claim, done: Sequence[Done], also: Also | None = None
    ) -> bool:
        """As `commit_all`, in a transaction of the same database that somebody else ends."""
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
        """What the consumer group was told. Logs without a position are refused."""
        checks.check_offsets(offsets)

        def act(connection: Connection) -> None:
            self.ledger.own(connection, claim)
            found = rows.load_positions(connection, claim.cluster, claim.pipeline, offsets)
            checks.check_known(offsets, found)
            rows.set_published(connection, claim, offsets)

        self._write(act)

    def remember(self, claim: Claim, key: str, text: str) -> str:
        """Keeps `text` for this pipeline, unless something is kept under this key: then that is the answer."""
        at = {"cluster": claim.cluster, "pipeline": claim.pipeline, "key": key}

        def act(connection: Connection) -> str:
            self.ledger.own(connection, claim)
            values = {**at, "value": text, "epoch": claim.epoch, "kept_at": moment(connection)}
            connection.execute(insert_into(connection, KEPT).values(**values).on_conflict_do_nothing())
            return rows.load_kept(connection, claim.cluster, claim.pipeline, key) or ""

        return self._write(act)

    # What an operator writes

    def move(self, cluster: str, pipeline: str, moves: Sequence[SinkMove], who: Host) -> list[SinkMoved]:
        """All of them or none; refused while a run is alive, and where a position is not what `before` says.

        It takes the epoch: a run that was only asleep writes nothing more. An open claim is removed. A move back supersedes what
        was delivered from there on and raises the generation; it must not end inside a delivered range (`find_range_around` tells
        which). A move forward leaves a range that says who skipped it, except for ranges that a move back superseded and that
        nobody touched since: they count again. Ranges of another topic id stay as they are. With the last position of a topic
        goes the schema that was learnt from it.
        """
        checks.check_moves(moves)
        if not moves:
            return []
        return self._write(lambda connection: move_positions(connection, cluster, pipeline, moves, who))

    # Reading

    def positions(self, cluster: str, pipeline: str) -> dict[Log, SinkPosition]:
        found = self._read(lambda connection: rows.load_positions(connection, cluster, pipeline), _NO_POSITION)
        return {Log(at.topic, position.topic_id, at.partition): position for at, position in found.items()}

    def list_pipelines(self, cluster: str) -> list[str]:
        """Those with a position."""
        return self._read(lambda connection: rows.load_pipelines(connection, cluster), [])

    def list_sinks(self) -> list[tuple[str, str]]:
        """Cluster and pipeline of every sink that has a position, or had one and keeps something."""
        return self._read(rows.load_sinks, [])

    def list_claims(self, cluster: str, pipeline: str) -> list[RangeClaim]:
        """The open ones, for those who only look."""
        found = self._read(lambda connection: rows.load_claims(connection, cluster, pipeline), _NO_CLAIM)
        return sorted(found.values(), key=lambda one: one.range)

    def list_ranges(
        self, cluster: str, pipeline: str, log: Log | None = None, newest: int | None = None
    ) -> list[RecordedRange]:
        """Newest first, in every state."""
        return self._read(lambda connection: rows.list_ranges(connection, cluster, pipeline, log, newest), [])

    def sums(self, cluster: str, pipeline: str) -> dict[Log, RangeSums]:
        return self._read(lambda connection: load_sums(connection, cluster, pipeline), {})

    def find_range_around(self, cluster: str, pipeline: str, log: Log, offset: int) -> OffsetRange | None:
        """The delivered range that `offset` would cut in two."""
        nothing: OffsetRange | None = None
        return self._read(lambda c: rows.find_range_around(c, cluster, pipeline, log, offset), nothing)

    def recall(self, cluster: str, pipeline: str, key: str) -> str | None:
        return self._read(lambda connection: rows.load_kept(connection, cluster, pipeline, key), None)

    # Inside

    def _write(self, act: Callable[[Connection], T]) -> T:
        def made(connection: Connection) -> T:
            tables.create_range_tables(connection, self.ledger.place)
            return act(connection)

        return self.ledger.write(made)

    def _read(self, act: Callable[[Connection], T], nothing: T) -> T:
        def seen(connection: Connection) -> T:
            return act(connection) if tables.range_tables_exist(connection, self.ledger.place) else nothing

        return self.ledger.read(seen, nothing)

    def _count(self, connection: Connection, run: Run, done: Sequence[Done]) -> None:
        """For `runs list`: how much this run delivered, and the last place of it."""
        parts = [each for _, closed in done for each in closed]
        at = parts[-1].range if parts else None
        last = (f"{at.topic}-{at.partition}", Map({"kafka_offset": at.end})) if at else None
        self.ledger.tally(connection, run, sum(each.count for each in parts), last)


@contextmanager
def open_ranges(ledger: Ledger, run: Run, seconds: float) -> Iterator[RangeLedger]:
    """Where the ranges of a sink are: in the ledger that knows its run, or in the database that it fills."""
    if (url := run.ranges_at) is None:
        yield RangeLedger(ledger)
        return
    with open_ledger(url, seconds) as target:
        yield RangeLedger(target)


def swap_kept(key: str, before: str, after: str) -> Also:
    """Compare and set. `before` is unique by itself (it carries a random part), so it need not be said whose row it is."""

    def swap(connection: Connection) -> None:
        wanted = update(KEPT).where(KEPT.c.key == key, KEPT.c.value == before)
        changed = connection.execute(wanted.values(value=after, kept_at=moment(connection))).rowcount
        if changed != 1:
            raise Refused(
                f"what the ledger keeps as the {key} was changed by somebody else", "nothing of this step is committed"
            )

    return swap
