"""Updates the ranges when a position is set by an operator, and when a log gets its first position.

Every move back gets a higher generation. A delivered range is superseded completely or not at all: its digests cannot be split,
and neither can a file. A superseded range stays intact until a claim of a later generation reaches it. Until then a move forward
over it, such as an undo, restores it.

Some offsets are in no range, such as those before the first position of a log. A move back over them adds a superseded range of
generation 0, so that a move forward can tell them from offsets that an operator skips: it removes that range again.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, or_, select, update

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
    TakenMeanwhile,
    learnt_key,
)
from playhead.ledger.redo import next_generation
from playhead.ledger.runs import run_at, run_of
from playhead.ledger.tables import CLAIMS, KEPT, POSITIONS, RANGES, RUNS
from playhead.model.ranges import Log, OffsetRange, RangeSet
from playhead.sql.times import moment, now

_SUPERSEDED = RangeState.SUPERSEDED.value
_NOTHING = 0  # the generation of offsets that were in no range
_OVERWRITTEN = "superseded, and a claim that was given up may have overwritten it"


def move_positions(
    connection: Connection,
    cluster: str,
    pipeline: str,
    moves: Sequence[SinkMove],
    who: Host,
    why: str = "",
    last: int | None = None,
) -> list[SinkMoved]:
    """Locks the run's row first, like every writer of positions. `last`: the epoch that must still be the last one."""
    if last is not None and _is_done(connection, cluster, pipeline, moves, who, last):
        return [SinkMoved(move, changed=False) for move in moves]
    epoch = _take_epoch(connection, cluster, pipeline, who, last)
    logs = [move.log for move in moves]
    positions = rows.load_positions(connection, cluster, pipeline, logs, lock=True)
    claims = rows.load_claims(connection, cluster, pipeline, logs)
    hand = Hand(connection, cluster, pipeline, epoch, f"{who.user}@{who.name}", why)
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
        hand.abandon(opened)
    result = SinkMoved(move, changed=True, abandoned=opened)
    if move.after is None:
        hand.remove(POSITIONS, move.log)
        return result if position is None else replace(result, restored=hand.end(move.log, position))
    if position is None or not same:
        hand.remove(POSITIONS, move.log)
        return replace(result, superseded=hand.begin(move.log, move.after))
    log = move.log._replace(topic_id=position.topic_id)
    if move.after > position.next_offset:
        restored, skipped = hand.forward(log, position, move.after, opened)
        return replace(result, restored=restored, skipped=skipped)
    return replace(result, superseded=hand.back(log, position, move.after))


def _is_done(
    connection: Connection, cluster: str, pipeline: str, moves: Sequence[SinkMove], who: Host, last: int
) -> bool:
    """Whether the answer to the first try was lost: it raised the epoch last, and all positions are where it set them."""
    epoch = connection.execute(select(RUNS.c.epoch).where(run_at(cluster, pipeline))).scalar()
    if epoch != last + 1:
        return False
    found = rows.load_positions(connection, cluster, pipeline, [move.log for move in moves])
    by = f"{who.user}@{who.name}"
    at = [found.get(move.log.place) for move in moves]
    return all(
        one and (one.next_offset, one.written_by) == (move.after, by) for one, move in zip(at, moves, strict=True)
    )


def _take_epoch(connection: Connection, cluster: str, pipeline: str, who: Host, last: int | None) -> int:
    """0 for a pipeline that never ran: there is no run to fence."""
    wanted = run_at(cluster, pipeline)
    row = connection.execute(select(RUNS).where(wanted).with_for_update()).first()
    if row is None:
        return 0
    run = run_of(row, now(connection))
    if last is not None and run.epoch != last:
        raise TakenMeanwhile(pipeline, run)
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
    """Sets positions of one pipeline and updates its ranges. `by`: the name of the writer. `why`: the note of ranges that are
    not delivered from here; empty: they are skipped."""

    connection: Connection
    cluster: str
    pipeline: str
    epoch: int
    by: str
    why: str = ""

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
        generation = self._next_generation(log)
        superseded = self._supersede(log, start, start, generation)
        rows.add_positions(self.connection, self.cluster, self.pipeline, {log: start}, self.by, generation)
        return superseded

    def end(self, log: Log, position: SinkPosition) -> int:
        """The position is gone, and nothing will be delivered in place of what its last move superseded. Returns how many ranges
        are restored."""
        log = log._replace(topic_id=position.topic_id)
        found = self._restorable(log, position.next_offset)
        return self._restore(log, [old for old in found if old.superseded_by == position.generation])

    def back(self, log: Log, position: SinkPosition, start: int) -> int:
        """Returns how many ranges will be delivered again."""
        generation = self._next_generation(log)
        superseded = self._supersede(log, start, position.next_offset, generation)
        self._set(log, generation=generation, next_offset=start)
        return superseded

    def forward(
        self, log: Log, position: SinkPosition, end: int, opened: RangeClaim | None
    ) -> tuple[int, Sequence[OffsetRange]]:
        """Returns how many ranges are restored, and which offsets will not be delivered."""
        whole = OffsetRange(*log, position.next_offset, end)
        # Of what the open claim was to deliver, an unknown part is delivered.
        found = [] if opened is not None else self._restorable(log, whole.start, end)
        chosen = _of_one_move(found, whole.start, end) or _disjoint(found)
        restored = self._restore(log, chosen, end)
        skipped = tuple(RangeSet([whole]) - RangeSet(OffsetRange(*log, old.start, old.end) for old in chosen))
        for one in skipped:
            self._skip(one, position.generation, self.why or f"skipped by {self.by}")
        generation = position.generation if opened is None else self._next_generation(log)
        self._set(log, generation=generation, next_offset=end)
        return restored, skipped

    def abandon(self, opened: RangeClaim) -> None:
        """Removes an open claim. It may have overwritten part of what was superseded there."""
        log, c = opened.range.log, RANGES.c
        inside = (c.start_offset < opened.range.end, c.end_offset > opened.range.start)
        kinds = or_(c.shape.is_not(None), c.generation == _NOTHING)
        wanted = update(RANGES).where(self._of(log), c.state == _SUPERSEDED, *inside, kinds)
        self.connection.execute(wanted.values(note=_OVERWRITTEN))
        self.remove(CLAIMS, log)

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

    def _next_generation(self, log: Log) -> int:
        """Not the one after the position's: what was replayed in place has used that."""
        return next_generation(self.connection, self.cluster, self.pipeline, log)

    def _of(self, log: Log) -> Any:
        return rows.of_log(RANGES, self.cluster, self.pipeline, log)

    def _supersede(self, log: Log, start: int, end: int, generation: int) -> int:
        """Everything from `start` on. `end`: of what the position has passed; offsets up to there may be in no range."""
        c = RANGES.c
        live = (self._of(log), c.end_offset > start, c.state != _SUPERSEDED)
        found = self.connection.execute(select(RANGES).where(*live).order_by(c.start_offset)).all()
        cut = found[0] if found and found[0].start_offset < start else None
        if cut is not None and cut.state == RangeState.COMMITTED.value:
            raise Refused(
                f"{log.place}: {start} is inside [{cut.start_offset},{cut.end_offset}), which was delivered in one piece",
                f"move to {cut.start_offset}, or to {cut.end_offset}",
            )
        self._add_nothing(log, start, max([end, *(row.end_offset for row in found)]), found, generation)
        values = {"state": _SUPERSEDED, "superseded_by": generation}
        self.connection.execute(update(RANGES).where(*live).values(**values))
        if cut is not None:
            self._skip(OffsetRange(*log, cut.start_offset, start), generation, cut.note)
        return len(found) - (cut is not None)

    def _add_nothing(self, log: Log, start: int, end: int, found: Sequence[Row[Any]], generation: int) -> None:
        """Adds a superseded range for offsets that are in none."""
        if start == end:
            return
        spans = (OffsetRange(*log, row.start_offset, row.end_offset) for row in found)
        empty = RangeSet([OffsetRange(*log, start, end)]) - RangeSet(spans)
        values = [
            {
                **rows.range_values(
                    self.cluster, self.pipeline, self.epoch, _NOTHING, ClosedRange(one, 0, 0, 0), RangeState.SUPERSEDED
                ),
                "superseded_by": generation,
                "note": "was in no range",
            }
            for one in empty
        ]
        starts = [one.start for one in empty]
        self.connection.execute(
            delete(RANGES).where(self._of(log), RANGES.c.generation == _NOTHING, RANGES.c.start_offset.in_(starts))
        )
        rows.add_ranges(self.connection, self.cluster, self.pipeline, values)

    def _restorable(self, log: Log, start: int, end: int | None = None) -> list["_Old"]:
        """The superseded ranges in these offsets that nothing was delivered over since, in the order of the offsets."""
        c = RANGES.c
        within = [] if end is None else [c.start_offset < end, or_(c.end_offset <= end, c.generation == _NOTHING)]
        columns = (c.start_offset, c.end_offset, c.generation, c.superseded_by, c.shape.is_not(None))
        wanted = select(*columns).where(
            self._of(log), c.start_offset >= start, *within, c.state == _SUPERSEDED, c.note != _OVERWRITTEN
        )
        found = [_Old(*row) for row in self.connection.execute(wanted.order_by(c.start_offset))]
        lowest = min((old.superseded_by for old in found), default=0)
        newer = select(c.generation, c.start_offset, c.end_offset).where(
            self._of(log), c.end_offset > start, c.generation >= lowest, c.shape.is_not(None)
        )
        delivered: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for generation, first, stop in self.connection.execute(newer.order_by(c.start_offset)):
            delivered[generation].append((first, stop))
        return [old for old in found if not _is_overwritten(old, delivered)]

    def _restore(self, log: Log, chosen: Sequence["_Old"], end: int | None = None) -> int:
        """Returns how many ranges count again. Offsets that were in no range are in none again, up to `end`."""
        c = RANGES.c
        for old in chosen:
            one = (self._of(log), c.start_offset == old.start, c.generation == old.generation)
            if old.generation != _NOTHING:
                state = RangeState.COMMITTED if old.is_delivered else RangeState.SKIPPED
                self.connection.execute(update(RANGES).where(*one).values(state=state.value, superseded_by=None))
            elif end is not None and old.end > end:
                at_end = (self._of(log), c.start_offset == end, c.generation == _NOTHING)
                self.connection.execute(delete(RANGES).where(*at_end))
                self.connection.execute(update(RANGES).where(*one).values(start_offset=end))
            else:
                self.connection.execute(delete(RANGES).where(*one))
        return sum(old.generation != _NOTHING for old in chosen)

    def _skip(self, skipped: OffsetRange, generation: int, note: str) -> None:
        closed = ClosedRange(skipped, 0, 0, 0)
        values = rows.range_values(self.cluster, self.pipeline, self.epoch, generation, closed, RangeState.SKIPPED)
        rows.add_ranges(self.connection, self.cluster, self.pipeline, [{**values, "note": note}])

    def _set(self, log: Log, **values: Any) -> None:
        values |= {"written_at": moment(self.connection), "written_by": self.by}
        wanted = update(POSITIONS).where(rows.of_log(POSITIONS, self.cluster, self.pipeline, log))
        self.connection.execute(wanted.values(**values))


class _Old(NamedTuple):
    """A superseded range."""

    start: int
    end: int
    generation: int
    superseded_by: int
    is_delivered: bool


def _is_overwritten(old: _Old, delivered: Mapping[int, Sequence[tuple[int, int]]]) -> bool:
    """`delivered`: by generation, in the order of the offsets. Ranges of one generation do not overlap."""
    for generation, spans in delivered.items():
        if generation >= old.superseded_by:
            at = bisect_right(spans, old.start, key=lambda span: span[1])  # the first that ends after it begins
            if at < len(spans) and spans[at][0] < old.end:
                return True
    return False


def _of_one_move(found: Sequence[_Old], start: int, end: int) -> list[_Old]:
    """What the newest move back over exactly these offsets superseded: this is its undo. Empty if there is none."""
    for generation in sorted({old.superseded_by for old in found}, reverse=True):
        chosen = [old for old in found if old.superseded_by == generation]
        ends = [start, *(old.end for old in chosen)]
        if [old.start for old in chosen] == ends[:-1] and ends[-1] >= end:
            return chosen
    return []


def _disjoint(found: Sequence[_Old]) -> list[_Old]:
    """In the order of the offsets: the delivered ranges, and, from the newest on, others that fit between them."""
    chosen: list[_Old] = []
    for old in sorted(found, key=lambda old: (not old.is_delivered, -old.superseded_by, old.start)):
        at = bisect_right(chosen, old.start, key=lambda one: one.end)
        if at == len(chosen) or chosen[at].start >= old.end:
            chosen.insert(at, old)
    return chosen


def _shown(offset: int | None) -> str:
    return "no position" if offset is None else str(offset)
