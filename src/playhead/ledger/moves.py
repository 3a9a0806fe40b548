"""Updates the ranges when a position is set by an operator, and when a log gets its first position.

Offsets that will be delivered again get a higher generation, unless nothing of the current one was delivered or begun there.
A delivered range is superseded completely or not at all: its digests cannot be split, and neither can a file. Ranges that a move
back superseded stay intact until a claim of the new generation begins. A move forward over them, such as an undo, restores them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from playhead.errors import Refused
from playhead.ledger import range_rows as rows
from playhead.ledger.model import (
    ClosedRange,
    Host,
    RangeClaim,
    RangeState,
    RunState,
    SinkMove,
    SinkMoved,
    SinkPosition,
    learnt_key,
)
from playhead.ledger.runs import run_at, run_of
from playhead.ledger.tables import CLAIMS, KEPT, POSITIONS, RANGES, RUNS
from playhead.model.ranges import Log, OffsetRange
from playhead.sql.times import moment, now

_SUPERSEDED = RangeState.SUPERSEDED.value


def move_positions(
    connection: Connection, cluster: str, pipeline: str, moves: Sequence[SinkMove], who: Host
) -> list[SinkMoved]:
    """Locks the run's row first, like every writer of positions."""
    epoch = _take_epoch(connection, cluster, pipeline, who)
    logs = [move.log for move in moves]
    positions = rows.load_positions(connection, cluster, pipeline, logs, lock=True)
    claims = rows.load_claims(connection, cluster, pipeline, logs)
    hand = Hand(connection, cluster, pipeline, epoch, f"{who.user}@{who.name}")
    done = []
    for move in moves:
        position, opened = positions.get(move.log.place), claims.get(move.log.place)
        found = None if position is None else position.next_offset
        if found not in (move.before, move.after):
            what = f"{move.log.place} was at {_shown(move.before)} and is at {_shown(found)} now"
            raise Refused(what, "it moved after the plan was created; plan again")
        done.append(_moved(hand, move, position, opened))
    hand.forget_learnt({move.log.topic for move in moves if move.after is None})
    return done


def _moved(hand: "Hand", move: SinkMove, position: SinkPosition | None, opened: RangeClaim | None) -> SinkMoved:
    found = None if position is None else position.next_offset
    same = position is None or move.log.topic_id in ("", position.topic_id)
    if same and found == move.after and (found != move.before or opened is None):
        return SinkMoved(move, changed=False)
    if opened is not None:
        hand.remove(CLAIMS, move.log)
    result = SinkMoved(move, changed=True, abandoned=opened)
    if move.after is None:
        hand.remove(POSITIONS, move.log)
        return result
    if position is None or not same:
        hand.remove(POSITIONS, move.log)
        return replace(result, superseded=hand.begin(move.log, move.after))
    log = move.log._replace(topic_id=position.topic_id)
    if move.after > position.next_offset:
        restored, skipped = hand.forward(log, position, move.after, opened)
        return replace(result, restored=restored, skipped=skipped)
    return replace(result, superseded=hand.back(log, position, move.after, opened))


def _take_epoch(connection: Connection, cluster: str, pipeline: str, who: Host) -> int:
    """0 for a pipeline that never ran: there is no run to fence."""
    wanted = run_at(cluster, pipeline)
    row = connection.execute(select(RUNS).where(wanted).with_for_update()).first()
    if row is None:
        return 0
    run = run_of(row, now(connection))
    if run.is_alive:
        raise Refused(f"{pipeline} is {run.words}, by {run.host}", f"playhead runs stop {pipeline} --execute")
    values: dict[str, Any] = {"epoch": run.epoch + 1}
    if run.is_running:
        detail = f"{who.user}@{who.name} moved its position while it was silent"
        values |= {"host": who.name, "pid": who.pid, "username": who.user}
        values |= {"state": RunState.STOPPED.value, "detail": detail, "heartbeat": moment(connection)}
    connection.execute(update(RUNS).where(wanted).values(**values))
    return run.epoch + 1


@dataclass(frozen=True, slots=True)
class Hand:
    """Sets positions of one pipeline and updates its ranges. `by`: the name of the writer."""

    connection: Connection
    cluster: str
    pipeline: str
    epoch: int
    by: str

    def adopt(self, starts: Mapping[Log, int]) -> None:
        """For logs without a position. Usually the ledger has no ranges of them, and one statement is enough for all."""
        wanted = rows.of_pipeline(RANGES, self.cluster, self.pipeline, starts)
        names = (RANGES.c.topic, RANGES.c.topic_id, RANGES.c.partition)
        known = {Log(*row) for row in self.connection.execute(select(*names).where(wanted).distinct())}
        fresh = {log: start for log, start in starts.items() if log not in known}
        rows.add_positions(self.connection, self.cluster, self.pipeline, fresh, self.by)
        for log in starts.keys() & known:
            self.begin(log, starts[log])

    def begin(self, log: Log, start: int) -> int:
        """Adds a position for a log that has none, but may have had one. Returns how many ranges it supersedes."""
        c = RANGES.c
        highest = select(func.max(c.generation), func.max(c.superseded_by)).where(self._of(log))
        used = [number or 0 for number in self.connection.execute(highest).one()]
        generation = 1 + max(used)
        superseded = self._supersede(log, start, generation)
        rows.add_positions(self.connection, self.cluster, self.pipeline, {log: start}, self.by, generation)
        return superseded

    def back(self, log: Log, position: SinkPosition, start: int, opened: RangeClaim | None) -> int:
        """Returns how many ranges will be delivered again."""
        c = RANGES.c
        used = select(c.start_offset).where(self._of(log), c.end_offset > start, c.generation == position.generation)
        is_used = opened is not None or self.connection.execute(used.limit(1)).first() is not None
        generation = position.generation + is_used
        superseded = self._supersede(log, start, generation)
        self._set(log, generation=generation, next_offset=start)
        return superseded

    def forward(
        self, log: Log, position: SinkPosition, end: int, opened: RangeClaim | None
    ) -> tuple[int, OffsetRange | None]:
        """Returns how many ranges are restored, and which offsets will not be delivered."""
        start = position.next_offset
        restored = 0
        # With an open claim of this generation, the outputs of superseded ranges may be overwritten already.
        for row in [] if opened is not None else self._untouched(log, position, end):
            if row.start_offset != start:
                break
            self._restore(log, row)
            start, restored = row.end_offset, restored + 1
        skipped = OffsetRange(*log, start, end) if start < end else None
        if skipped is not None:
            self._skip(skipped, position.generation, f"skipped by {self.by}")
        self._set(log, generation=position.generation + (opened is not None), next_offset=end)
        return restored, skipped

    def remove(self, table: Any, log: Log) -> None:
        self.connection.execute(delete(table).where(rows.of_log(table, self.cluster, self.pipeline, log)))

    def forget_learnt(self, topics: Collection[str]) -> None:
        """Deletes the schema inferred from a topic together with the topic's last position: a new start infers it again. Other
        kept values stay: the ledger's id is stored in the group, and the end of a file is still the end of that file."""
        if not topics:
            return
        left = {place.topic for place in rows.load_positions(self.connection, self.cluster, self.pipeline)}
        keys = [learnt_key(topic) for topic in topics if topic not in left]
        c = KEPT.c
        mine = (c.cluster == self.cluster, c.pipeline == self.pipeline)
        self.connection.execute(delete(KEPT).where(*mine, c.key.in_(keys)))

    def _of(self, log: Log) -> Any:
        return rows.of_log(RANGES, self.cluster, self.pipeline, log)

    def _supersede(self, log: Log, start: int, generation: int) -> int:
        c = RANGES.c
        live = (self._of(log), c.end_offset > start, c.state != _SUPERSEDED)
        cut = self.connection.execute(select(RANGES).where(*live, c.start_offset < start)).first()
        if cut is not None and cut.state == RangeState.COMMITTED.value:
            raise Refused(
                f"{log.place}: {start} is inside [{cut.start_offset},{cut.end_offset}), which was delivered in one piece",
                f"move to {cut.start_offset}, or to {cut.end_offset}",
            )
        values = {"state": _SUPERSEDED, "superseded_by": generation}
        done = self.connection.execute(update(RANGES).where(*live).values(**values)).rowcount
        if cut is not None:
            self._skip(OffsetRange(*log, cut.start_offset, start), generation, cut.note)
            done -= 1
        return done

    def _untouched(self, log: Log, position: SinkPosition, end: int) -> Sequence[Row[Any]]:
        c = RANGES.c
        wanted = select(RANGES).where(
            self._of(log),
            c.state == _SUPERSEDED,
            c.superseded_by == position.generation,
            c.start_offset >= position.next_offset,
            c.end_offset <= end,
        )
        return self.connection.execute(wanted.order_by(c.start_offset)).all()

    def _restore(self, log: Log, row: Row[Any]) -> None:
        c = RANGES.c
        state = RangeState.SKIPPED if row.shape is None else RangeState.COMMITTED
        one = (self._of(log), c.start_offset == row.start_offset, c.generation == row.generation)
        self.connection.execute(update(RANGES).where(*one).values(state=state.value, superseded_by=None))

    def _skip(self, skipped: OffsetRange, generation: int, note: str) -> None:
        closed = ClosedRange(skipped, 0, 0, 0)
        values = rows.range_values(self.cluster, self.pipeline, self.epoch, generation, closed, RangeState.SKIPPED)
        rows.add_ranges(self.connection, self.cluster, self.pipeline, [{**values, "note": note}])

    def _set(self, log: Log, **values: Any) -> None:
        values |= {"written_at": moment(self.connection), "written_by": self.by}
        wanted = update(POSITIONS).where(rows.of_log(POSITIONS, self.cluster, self.pipeline, log))
        self.connection.execute(wanted.values(**values))


def _shown(offset: int | None) -> str:
    return "no position" if offset is None else str(offset)
