"""Ranges that are delivered again in place: a new generation takes the place of the old rows, in one transaction.

Only rows change. The position, the consumer group, an open claim and the epoch of a live run stay as they are: what is delivered
again lies below the position, and the offsets of the open claim lie above it. The lock of the run's row serializes it with the
commits of a run and with moves. Before a redo a mark with the shape of its output is stored, and removed by its commit. A redo of
another shape is refused meanwhile: it would remove the names that a live one is about to write, and only an attempt of the same
shape knows the names that a killed one has written. The new rows cover exactly the offsets of the old ones, so a later move
forward never restores an old row: a delivered range of the generation that superseded it covers it.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select, text, update

from playhead.errors import Invalid, Refused
from playhead.ledger import range_rows as rows
from playhead.ledger.model import BY_CONNECT, ClosedRange, Host, RangeState, RecordedRange
from playhead.ledger.runs import run_at
from playhead.ledger.tables import KEPT, POSITIONS, RANGES, RUNS, insert_into
from playhead.model.ranges import Log, OffsetRange, RangeSet
from playhead.sql.times import moment

_COMMITTED, _SKIPPED, _SUPERSEDED = (
    one.value for one in (RangeState.COMMITTED, RangeState.SKIPPED, RangeState.SUPERSEDED)
)
_MARK = "replay/"  # the beginning of a key of what a pipeline keeps
_AT_ONCE = 200  # ranges per statement: SQLite limits the depth of an expression


@dataclass(frozen=True, slots=True)
class Redone:
    """`old`: the recorded ranges of one log, in order and without gaps. `new`: what takes their place, over the same offsets."""

    old: Sequence[RecordedRange]
    new: Sequence[ClosedRange]
    shape: str
    made_ms: int
    generation: int

    @property
    def log(self) -> Log:
        return self.old[0].closed.range.log


def begin_redo(
    connection: Connection, cluster: str, pipeline: str, marks: Mapping[OffsetRange, str], *, is_forced: bool
) -> None:
    """Stores with which shape these ranges are about to be written. Refused if a redo of another shape overlaps that is not
    committed."""
    marked = load_marks(connection, cluster, pipeline)
    for span, shape in marks.items():
        for other, known in marked.items():
            if not is_forced and known != shape and RangeSet([span]) & RangeSet([other]):
                raise Refused(*unfinished(other))
        _mark(connection, cluster, pipeline, span, shape)


def load_marks(connection: Connection, cluster: str, pipeline: str) -> dict[OffsetRange, str]:
    """With which shape ranges were about to be written by redos that are not committed."""
    c = KEPT.c
    mine = and_(c.cluster == cluster, c.pipeline == pipeline)
    found = connection.execute(select(c.key, c.value).where(mine, c.key.startswith(_MARK, autoescape=True)))
    return {OffsetRange(**msgspec.json.decode(row.key.removeprefix(_MARK))): row.value for row in found}


def unfinished(span: OffsetRange) -> tuple[str, str]:
    """Why a redo of another shape is refused there, and the way out."""
    return (
        f"a replay of {span} with other options is running or was interrupted: some of its objects may be written",
        "run it once more with those options, then with these; --accept-changes leaves such objects where they are",
    )


def _mark(connection: Connection, cluster: str, pipeline: str, span: OffsetRange, shape: str) -> None:
    c = KEPT.c
    at = {"cluster": cluster, "pipeline": pipeline, "key": _mark_of(span)}
    values = {"value": shape, "epoch": 0, "kept_at": moment(connection)}
    wanted = insert_into(connection, KEPT).values(**at, **values)
    connection.execute(wanted.on_conflict_do_update(index_elements=[c.cluster, c.pipeline, c.key], set_=values))


def _mark_of(span: OffsetRange) -> str:
    return _MARK + msgspec.json.encode(span, order="sorted").decode()


def _settle(connection: Connection, cluster: str, pipeline: str, done: RangeSet) -> None:
    """Nothing of a redo is open in these offsets any more. Marks of interrupted ones are shortened, whatever their steps were."""
    c = KEPT.c
    for span, shape in load_marks(connection, cluster, pipeline).items():
        if not RangeSet([span]) & done:
            continue
        mine = (c.cluster == cluster, c.pipeline == pipeline, c.key == _mark_of(span))
        connection.execute(delete(KEPT).where(*mine))
        for left in RangeSet([span]) - done:
            _mark(connection, cluster, pipeline, left, shape)


def commit_redone(
    connection: Connection,
    cluster: str,
    pipeline: str,
    redone: Sequence[Redone],
    who: Host,
    marked: Sequence[OffsetRange] = (),
) -> list[Redone]:
    """Supersedes the old ranges and records the new ones, all or nothing. Returns those that another process has committed before
    with the same content; they are left as they are. Refused if an old range does not count any more and its successor differs.
    """
    for one in redone:
        _check(one)
    connection.execute(select(RUNS.c.epoch).where(run_at(cluster, pipeline)).with_for_update())
    before = [one for one in redone if not _is_live(connection, cluster, pipeline, one)]
    for one in before:
        _check_same(connection, cluster, pipeline, one)
    new: list[dict[str, Any]] = []
    for one in redone:
        if one in before:
            continue
        for some in _parts([each.closed.range for each in one.old]):
            wanted = update(RANGES).where(_of(cluster, pipeline, one.log), RANGES.c.state == _COMMITTED, _starts(some))
            connection.execute(wanted.values(state=_SUPERSEDED, superseded_by=one.generation))
        for each in one.new:
            values = rows.range_values(cluster, pipeline, 0, one.generation, each, RangeState.COMMITTED)
            values |= {"shape": one.shape, "made_ms": one.made_ms, "note": f"replayed by {who.user}@{who.name}"}
            new.append(values)
    rows.add_ranges(connection, cluster, pipeline, new)
    _settle(connection, cluster, pipeline, RangeSet([*marked, *(each.range for one in redone for each in one.new)]))
    return before


def lock_replays(connection: Connection, cluster: str, pipeline: str) -> None:
    """Until the transaction ends, no other replay of this pipeline passes here. SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        key = zlib.crc32(msgspec.json.encode(["playhead replays", cluster, pipeline]))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def next_generation(connection: Connection, cluster: str, pipeline: str, log: Log) -> int:
    """Higher than any that this log has used."""
    c = RANGES.c
    used = list(
        connection.execute(
            select(func.max(c.generation), func.max(c.superseded_by)).where(_of(cluster, pipeline, log))
        ).one()
    )
    of_position = select(POSITIONS.c.generation).where(rows.of_log(POSITIONS, cluster, pipeline, log))
    return 1 + max(number or 0 for number in [*used, connection.execute(of_position).scalar()])


def load_counting(
    connection: Connection, cluster: str, pipeline: str, spans: Iterable[OffsetRange]
) -> list[RecordedRange]:
    """What counts in these offsets, delivered or skipped, in the order of the offsets."""
    c = RANGES.c
    found: dict[OffsetRange, RecordedRange] = {}
    for span in spans:
        inside = (c.start_offset < span.end, c.end_offset > span.start, c.state != _SUPERSEDED)
        wanted = _of(cluster, pipeline, span.log)
        found |= {one.closed.range: one for one in rows.select_ranges(connection, and_(wanted, *inside))}
    return [found[span] for span in sorted(found)]


class DeliveredSpan(NamedTuple):
    """Offsets of a log that a run delivered, or Connect between two hand-overs. `seq`: the order in which ranges were committed;
    what was committed later was written over what was committed before. `rejected`: how many records did not fit then; of
    Connect that is not known, and may be all."""

    start: int
    end: int
    seq: int
    rejected: int = 0


def load_deliveries(
    connection: Connection, cluster: str, pipeline: str, log: Log, start: int = 0
) -> list[DeliveredSpan]:
    """What counts of a log from `start` on, with the order in which runs delivered it: a replay has not changed that order."""
    c = RANGES.c
    own = (_of(cluster, pipeline, log), c.end_offset > start)
    by_connect = and_(c.state == _SKIPPED, c.note == BY_CONNECT)
    columns = (c.start_offset, c.end_offset, c.seq, c.state, c.epoch, c.rejected)
    wanted = select(*columns).where(*own, or_(c.shape.is_not(None), by_connect))
    found = [tuple(row) for row in connection.execute(wanted.order_by(c.start_offset))]
    by_runs = [DeliveredSpan(*row[:3]) for row in found if row[4] and row[3] != _SKIPPED]
    spans: list[DeliveredSpan] = []
    at = 0
    for first, end, seq, state, epoch, rejected in found:
        if state == _SKIPPED:
            spans.append(DeliveredSpan(first, end, seq, end - first))
        if state != _COMMITTED:
            continue
        while at < len(by_runs) and by_runs[at].end <= first:
            at += 1
        before = takewhile(lambda one: one.start < end, islice(by_runs, at, None))  # noqa: B023  used at once
        replayed = max((one.seq for one in before if one.end > first), default=seq)
        spans.append(DeliveredSpan(first, end, seq if epoch else replayed, rejected))
    return spans


def load_logs(connection: Connection, cluster: str, pipeline: str) -> set[Log]:
    """Of which runs or replays have delivered anything, also of topics that were deleted."""
    c = RANGES.c
    mine = (rows.of_pipeline(RANGES, cluster, pipeline), c.shape.is_not(None))
    found = connection.execute(select(c.topic, c.topic_id, c.partition).where(*mine).distinct())
    return {Log(*row) for row in found}


def load_reached(connection: Connection, cluster: str, pipeline: str) -> dict[Log, int]:
    """Up to which offset each log was delivered at some time, by runs, replays or Connect: also what does not count any more."""
    c = RANGES.c
    delivered = or_(c.shape.is_not(None), c.note == BY_CONNECT)
    log = (c.topic, c.topic_id, c.partition)
    wanted = select(*log, func.max(c.end_offset)).where(rows.of_pipeline(RANGES, cluster, pipeline), delivered)
    return {Log(*row[:3]): row[3] for row in connection.execute(wanted.group_by(*log))}


class TableWriter(NamedTuple):
    """A pipeline that has written records of a topic to a table, and when it did so last."""

    cluster: str
    pipeline: str
    topic: str
    last: datetime


def load_writers(
    connection: Connection, tables: Collection[str], without: tuple[str, str] | None = None
) -> list[TableWriter]:
    """`tables`: every spelling of the names of the tables. `without`: a pipeline whose ranges are not searched, with its cluster:
    they may be most of the ledger."""
    c, names = RANGES.c, sorted(tables)
    place = (c.cluster, c.pipeline, c.topic)
    others = [] if without is None else [or_(c.cluster != without[0], c.pipeline != without[1])]
    found: dict[tuple[str, str, str], TableWriter] = {}
    for at in range(0, len(names), _AT_ONCE):
        named = [c.outputs.contains(_named(one), autoescape=True) for one in names[at : at + _AT_ONCE]]
        wanted = select(*place, func.max(c.committed_at)).where(c.shape.is_not(None), *others, or_(*named))
        for one in (TableWriter(*row) for row in connection.execute(wanted.group_by(*place))):
            before = found.setdefault(one[:3], one)
            found[one[:3]] = max(one, before, key=lambda each: each.last)
    return [found[each] for each in sorted(found)]


def load_first_commit(connection: Connection, cluster: str, pipeline: str, span: OffsetRange) -> datetime | None:
    """When any of these offsets were delivered first."""
    c = RANGES.c
    inside = (c.start_offset < span.end, c.end_offset > span.start, c.shape.is_not(None))
    wanted = select(func.min(c.committed_at)).where(_of(cluster, pipeline, span.log), *inside)
    return connection.execute(wanted).scalar()


def load_with_output(connection: Connection, cluster: str, pipeline: str, name: str) -> list[RecordedRange]:
    """The delivered ranges with an output of that name, or whose name ends with `/` and that name."""
    c = RANGES.c
    some = (
        rows.of_pipeline(RANGES, cluster, pipeline),
        c.state == _COMMITTED,
        c.outputs.contains(name, autoescape=True),
    )
    found = rows.select_ranges(connection, and_(*some))
    return [one for one in found if any(f"/{out.name}".endswith(f"/{name}") for out in one.closed.outputs)]


def load_with_outputs(
    connection: Connection, cluster: str, pipeline: str, log: Log, names: Collection[str]
) -> list[RecordedRange]:
    """The delivered ranges of a log with an output of one of these names."""
    c, wanted = RANGES.c, sorted(names)
    found: dict[OffsetRange, RecordedRange] = {}
    for at in range(0, len(wanted), _AT_ONCE):
        some = [c.outputs.contains(_named(name), autoescape=True) for name in wanted[at : at + _AT_ONCE]]
        mine = and_(_of(cluster, pipeline, log), c.state == _COMMITTED, or_(*some))
        found |= {one.closed.range: one for one in rows.select_ranges(connection, mine)}
    return [one for one in found.values() if any(out.name in names for out in one.closed.outputs)]


def _named(output: str) -> str:
    """How an output is found in the column of the outputs."""
    return f'"name":{msgspec.json.encode(output).decode()}'


def load_in_time(
    connection: Connection, cluster: str, pipeline: str, since_ms: int | None, until_ms: int | None
) -> list[RecordedRange]:
    """The delivered ranges with records from `since_ms` on and before `until_ms`, of topics that were deleted, too."""
    c = RANGES.c
    wanted = [rows.of_pipeline(RANGES, cluster, pipeline), c.state == _COMMITTED, c.last_ms.is_not(None)]
    wanted += [] if since_ms is None else [c.last_ms >= since_ms]
    wanted += [] if until_ms is None else [c.first_ms < until_ms]
    return rows.select_ranges(connection, and_(*wanted))


def _of(cluster: str, pipeline: str, log: Log) -> ColumnElement[bool]:
    return rows.of_log(RANGES, cluster, pipeline, log)


def _check(one: Redone) -> None:
    old, new = ([each.range for each in some] for some in ([o.closed for o in one.old], one.new))
    if RangeSet(old) != RangeSet(new) or sum(map(len, old)) != sum(map(len, new)):
        raise Invalid(f"{one.log.place}: the new ranges do not cover the same offsets as the old ones")
    if one.generation <= max(each.generation for each in one.old):
        raise Invalid(f"{one.log.place}: generation {one.generation} is not higher than that of the old ranges")


def _is_live(connection: Connection, cluster: str, pipeline: str, one: Redone) -> bool:
    """Whether every old row counts as it was read, and none of a later generation covers it."""
    wanted = {(each.closed.range.start, each.closed.range.end, each.generation) for each in one.old}
    c = RANGES.c
    live = _rows_in(connection, cluster, pipeline, one, c.state == _COMMITTED)
    newer = _rows_in(
        connection, cluster, pipeline, one, or_(c.generation >= one.generation, c.superseded_by >= one.generation)
    )
    return live == wanted and not newer


def _rows_in(
    connection: Connection, cluster: str, pipeline: str, one: Redone, kind: ColumnElement[bool]
) -> set[tuple[int, int, int]]:
    c = RANGES.c
    first, last = one.old[0].closed.range.start, one.old[-1].closed.range.end
    inside = (c.start_offset < last, c.end_offset > first)
    wanted = select(c.start_offset, c.end_offset, c.generation).where(_of(cluster, pipeline, one.log), *inside, kind)
    return {(row[0], row[1], row[2]) for row in connection.execute(wanted)}


def _check_same(connection: Connection, cluster: str, pipeline: str, one: Redone) -> None:
    first, last = one.old[0].closed.range, one.old[-1].closed.range
    span = OffsetRange(*one.log, first.start, last.end)
    found = [each.closed for each in load_counting(connection, cluster, pipeline, [span])]
    if [_content(each) for each in found] != [_content(each) for each in one.new]:
        raise Refused(
            f"{span} was delivered again or moved by another process meanwhile, with another result",
            "plan again: the same command reads the ledger as it is now",
        )


def _content(closed: ClosedRange) -> tuple[object, ...]:
    return (
        closed.range,
        closed.count,
        closed.hash_xor,
        closed.hash_sum,
        closed.rejected,
        tuple(map(tuple, closed.outputs)),
    )


def _parts(spans: Sequence[OffsetRange]) -> Iterable[Sequence[OffsetRange]]:
    return (spans[at : at + _AT_ONCE] for at in range(0, len(spans), _AT_ONCE))


def _starts(spans: Sequence[OffsetRange]) -> ColumnElement[bool]:
    return RANGES.c.start_offset.in_([span.start for span in spans])
