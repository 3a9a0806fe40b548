"""Reads and writes the rows of positions, claims and ranges. Outputs are JSON text, so that any database client can read them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Table, and_, bindparam, delete, func, select, union, update

from playhead.errors import Refused
from playhead.ledger.model import (
    Claim,
    ClosedRange,
    CondensedRanges,
    Done,
    Output,
    RangeClaim,
    RangeState,
    RangeSums,
    RecordedRange,
    SinkPosition,
)
from playhead.ledger.tables import CLAIMS, KEPT, POSITIONS, RANGES
from playhead.model import TopicPartition
from playhead.model.ranges import Log, OffsetRange
from playhead.sql.times import moment

_OUTPUTS = msgspec.json.Decoder(list[dict[str, str | int]])


def of_pipeline(table: Table, cluster: str, pipeline: str, logs: Iterable[Log] | None = None) -> ColumnElement[bool]:
    """`logs` limit the rows to their topics and partitions; other combinations of those may match, too."""
    c = table.c
    wanted = and_(c.cluster == cluster, c.pipeline == pipeline)
    if logs is None:
        return wanted
    topics, partitions = {log.topic for log in logs}, {log.partition for log in logs}
    return and_(wanted, c.topic.in_(topics), c.partition.in_(partitions))


def of_log(table: Table, cluster: str, pipeline: str, log: Log) -> ColumnElement[bool]:
    c = table.c
    wanted = and_(c.cluster == cluster, c.pipeline == pipeline, c.topic == log.topic, c.partition == log.partition)
    return and_(wanted, c.topic_id == log.topic_id) if table is RANGES else wanted


# Reading


def load_positions(
    connection: Connection, cluster: str, pipeline: str, logs: Iterable[Log] | None = None, *, lock: bool = False
) -> dict[TopicPartition, SinkPosition]:
    wanted = select(POSITIONS).where(of_pipeline(POSITIONS, cluster, pipeline, logs))
    wanted = wanted.order_by(POSITIONS.c.topic, POSITIONS.c.partition)
    found = connection.execute(wanted.with_for_update() if lock else wanted)
    return {
        TopicPartition(row.topic, row.partition): SinkPosition(
            next_offset=row.next_offset,
            published_offset=row.published_offset,
            topic_id=row.topic_id,
            generation=row.generation,
            written_at=row.written_at,
            written_by=row.written_by,
        )
        for row in found
    }


def load_claims(
    connection: Connection, cluster: str, pipeline: str, logs: Iterable[Log] | None = None
) -> dict[TopicPartition, RangeClaim]:
    found = connection.execute(select(CLAIMS).where(of_pipeline(CLAIMS, cluster, pipeline, logs)))
    return {
        TopicPartition(row.topic, row.partition): RangeClaim(
            range=_range_of(row),
            closes=row.closes,
            shape=row.shape,
            made_ms=row.made_ms,
            generation=row.generation,
        )
        for row in found
    }


def load_recorded(
    connection: Connection, cluster: str, pipeline: str, done: Sequence[RangeClaim]
) -> dict[Log, list[tuple[int, ClosedRange]]]:
    """Generation and content of the ranges recorded within these claims, in the order of the offsets."""
    starts, ends = [one.range.start for one in done], [one.range.end for one in done]
    of_logs = of_pipeline(RANGES, cluster, pipeline, [one.range.log for one in done])
    c = RANGES.c
    wanted = select(RANGES).where(
        of_logs, c.start_offset >= min(starts, default=0), c.start_offset < max(ends, default=0)
    )
    recorded: dict[Log, list[tuple[int, ClosedRange]]] = defaultdict(list)
    for row in connection.execute(wanted.order_by(c.start_offset)):
        recorded[_range_of(row).log].append((row.generation, _closed_of(row)))
    return recorded


def list_ranges(
    connection: Connection, cluster: str, pipeline: str, log: Log | None, newest: int | None
) -> list[RecordedRange]:
    c = RANGES.c
    listed = of_pipeline(RANGES, cluster, pipeline) if log is None else of_log(RANGES, cluster, pipeline, log)
    order = (c.seq.desc(), c.topic.desc(), c.partition.desc(), c.start_offset.desc(), c.generation.desc())
    wanted = select(RANGES).where(listed).order_by(*order).limit(newest)
    return [_recorded_of(row) for row in connection.execute(wanted)]


def list_below(
    connection: Connection, cluster: str, pipeline: str, log: Log, end: int, most: int
) -> list[RecordedRange]:
    c = RANGES.c
    below = select(RANGES).where(of_log(RANGES, cluster, pipeline, log), c.start_offset < end)
    found = connection.execute(below.order_by(c.start_offset.desc(), c.generation.desc()).limit(most))
    return [_recorded_of(row) for row in found]


def load_first_offset(connection: Connection, cluster: str, pipeline: str, log: Log) -> int | None:
    wanted = select(func.min(RANGES.c.start_offset)).where(of_log(RANGES, cluster, pipeline, log))
    return connection.execute(wanted).scalar()


def condense(
    connection: Connection, cluster: str, pipeline: str, log: Log, within: tuple[int, int], parts: int
) -> list[CondensedRanges]:
    c, (low, high) = RANGES.c, within
    width = max((high - low + parts - 1) // parts, 1)
    place = ((c.start_offset - low) // width).label("place")
    sums = (func.min(c.start_offset), func.max(c.end_offset), func.count(), func.sum(c.count), func.sum(c.rejected))
    inside = (of_log(RANGES, cluster, pipeline, log), c.start_offset >= low, c.start_offset < high)
    wanted = select(place, c.state, *sums).where(*inside).group_by(place, c.state).order_by(place, c.state)
    return [
        CondensedRanges(RangeState(state), *(int(one) for one in found))
        for _, state, *found in connection.execute(wanted)
    ]


def select_ranges(connection: Connection, wanted: ColumnElement[bool]) -> list[RecordedRange]:
    """In the order of the offsets."""
    c = RANGES.c
    found = connection.execute(select(RANGES).where(wanted).order_by(c.topic, c.partition, c.start_offset))
    return [_recorded_of(row) for row in found]


def load_pipelines(connection: Connection, cluster: str) -> list[str]:
    wanted = select(POSITIONS.c.pipeline).where(POSITIONS.c.cluster == cluster).distinct()
    return sorted(connection.execute(wanted).scalars())


def load_sinks(connection: Connection) -> list[tuple[str, str]]:
    """Cluster and pipeline of all that have a position, or had one and still have kept values."""
    named = (select(table.c.cluster, table.c.pipeline) for table in (POSITIONS, KEPT))
    return sorted((cluster, pipeline) for cluster, pipeline in connection.execute(union(*named)))


def find_range_around(connection: Connection, cluster: str, pipeline: str, log: Log, offset: int) -> OffsetRange | None:
    c = RANGES.c
    inside = and_(c.start_offset < offset, c.end_offset > offset, c.state == RangeState.COMMITTED.value)
    row = connection.execute(select(RANGES).where(of_log(RANGES, cluster, pipeline, log), inside)).first()
    return None if row is None else _range_of(row)


def load_incarnation(connection: Connection, cluster: str, pipeline: str, topic: str, topic_id: str) -> int:
    c = RANGES.c
    wanted = select(c.topic_id, func.min(c.seq)).where(
        of_pipeline(RANGES, cluster, pipeline), c.topic == topic, c.shape.is_not(None)
    )
    first: dict[str, int] = {str(row[0]): int(row[1]) for row in connection.execute(wanted.group_by(c.topic_id))}
    own = first.pop(topic_id, None)
    return 1 + sum(1 for seq in first.values() if own is None or seq < own)


def load_kept(connection: Connection, cluster: str, pipeline: str, key: str) -> str | None:
    c = KEPT.c
    wanted = select(c.value).where(c.cluster == cluster, c.pipeline == pipeline, c.key == key)
    return connection.execute(wanted).scalar()


# Writing


def add_claims(connection: Connection, claim: Claim, new: Sequence[RangeClaim]) -> None:
    if not new:
        return
    rows = [
        {
            **_place_values(claim.cluster, claim.pipeline, one.range.log),
            "topic_id": one.range.topic_id,
            "start_offset": one.range.start,
            "end_offset": one.range.end,
            "closes": one.closes,
            "shape": one.shape,
            "made_ms": one.made_ms,
            "generation": one.generation,
            "epoch": claim.epoch,
        }
        for one in new
    ]
    connection.execute(CLAIMS.insert(), rows)


def close_claims(connection: Connection, claim: Claim, done: Sequence[Done]) -> None:
    """Removes the claims, adds their ranges and moves the positions. Refused if a position is not where its claim begins."""
    places = [_bound(claim.cluster, claim.pipeline, one.range.log) for one, _ in done]
    gone = connection.execute(delete(CLAIMS).where(_at_bound(CLAIMS)), places).rowcount
    steps = [
        {**bound, "b_before": one.range.start, "b_after": closed[-1].range.end}
        for bound, (one, closed) in zip(places, done, strict=True)
        if closed
    ]
    moved = 0
    if steps:
        c = POSITIONS.c
        values = {"written_at": moment(connection), "written_by": f"run {claim.epoch}"}
        wanted = update(POSITIONS).where(_at_bound(POSITIONS), c.next_offset == bindparam("b_before"))
        moved = connection.execute(wanted.values(next_offset=bindparam("b_after"), **values), steps).rowcount
    if (gone, moved) != (len(places), len(steps)):
        raise Refused(f"{claim.pipeline}: a position moved while its range was committed", "plan again")
    new = [_committed_values(claim, one, each) for one, closed in done for each in closed]
    add_ranges(connection, claim.cluster, claim.pipeline, new)


def drop_claims(connection: Connection, claim: Claim, gone: Sequence[RangeClaim]) -> None:
    if gone:
        places = [_bound(claim.cluster, claim.pipeline, one.range.log) for one in gone]
        connection.execute(delete(CLAIMS).where(_at_bound(CLAIMS)), places)


def add_ranges(connection: Connection, cluster: str, pipeline: str, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    newest = select(func.max(RANGES.c.seq)).where(of_pipeline(RANGES, cluster, pipeline))
    seq = (connection.execute(newest).scalar() or 0) + 1
    connection.execute(RANGES.insert().values(committed_at=moment(connection), seq=seq), rows)


def set_published(connection: Connection, claim: Claim, offsets: Mapping[Log, int]) -> None:
    if not offsets:
        return
    rows = [{**_bound(claim.cluster, claim.pipeline, log), "b_offset": offset} for log, offset in offsets.items()]
    wanted = update(POSITIONS).where(_at_bound(POSITIONS)).values(published_offset=bindparam("b_offset"))
    connection.execute(wanted, rows)


def add_positions(
    connection: Connection, cluster: str, pipeline: str, starts: Mapping[Log, int], by: str, generation: int = 1
) -> None:
    """Generation 1 is only for logs that have no ranges in the ledger."""
    if not starts:
        return
    rows = [
        {**_place_values(cluster, pipeline, log), "topic_id": log.topic_id, "next_offset": start}
        for log, start in starts.items()
    ]
    wanted = POSITIONS.insert().values(generation=generation, written_at=moment(connection), written_by=by)
    connection.execute(wanted, rows)


# Conversion


def range_values(
    cluster: str, pipeline: str, epoch: int, generation: int, closed: ClosedRange, state: RangeState
) -> dict[str, Any]:
    outputs = [output._asdict() for output in closed.outputs]
    return {
        **_place_values(cluster, pipeline, closed.range.log),
        "topic_id": closed.range.topic_id,
        "start_offset": closed.range.start,
        "end_offset": closed.range.end,
        "generation": generation,
        "state": state.value,
        "superseded_by": None,
        "epoch": epoch,
        "shape": None,
        "made_ms": None,
        "count": closed.count,
        "rejected": closed.rejected,
        "hash_xor": closed.hash_xor,
        "hash_sum": closed.hash_sum,
        "first_ms": closed.first_ms,
        "last_ms": closed.last_ms,
        "outputs": msgspec.json.encode(outputs).decode(),
        "note": "",
    }


def _committed_values(claim: Claim, one: RangeClaim, closed: ClosedRange) -> dict[str, Any]:
    state = RangeState.COMMITTED
    values = range_values(claim.cluster, claim.pipeline, claim.epoch, one.generation, closed, state)
    return {**values, "shape": one.shape, "made_ms": one.made_ms}


def _recorded_of(row: Row[Any]) -> RecordedRange:
    return RecordedRange(
        cluster=row.cluster,
        pipeline=row.pipeline,
        seq=row.seq,
        epoch=row.epoch,
        committed_at=row.committed_at,
        state=RangeState(row.state),
        generation=row.generation,
        closed=_closed_of(row),
        shape=row.shape,
        made_ms=row.made_ms,
        superseded_by=row.superseded_by,
        note=row.note,
    )


def _closed_of(row: Row[Any]) -> ClosedRange:
    return ClosedRange(
        range=_range_of(row),
        count=row._mapping["count"],  # a row is a tuple, and `count` is one of its methods
        hash_xor=row.hash_xor,
        hash_sum=row.hash_sum,
        outputs=tuple(Output(**output) for output in _OUTPUTS.decode(row.outputs)),  # type: ignore[arg-type]
        rejected=row.rejected,
        first_ms=row.first_ms,
        last_ms=row.last_ms,
    )


def _range_of(row: Row[Any]) -> OffsetRange:
    return OffsetRange(row.topic, row.topic_id, row.partition, row.start_offset, row.end_offset)


def _place_values(cluster: str, pipeline: str, log: Log) -> dict[str, Any]:
    return {"cluster": cluster, "pipeline": pipeline, "topic": log.topic, "partition": log.partition}


def _bound(cluster: str, pipeline: str, log: Log) -> dict[str, Any]:
    return {f"b_{name}": value for name, value in _place_values(cluster, pipeline, log).items()}


def _at_bound(table: Table) -> ColumnElement[bool]:
    """One topic partition, bound when the statement is executed."""
    names = ("cluster", "pipeline", "topic", "partition")
    return and_(*(table.c[name] == bindparam(f"b_{name}") for name in names))


# Sums over the ranges of a log, for comparison with the topic and the target. Digests are combined here and not in the
# database: SQLite has no xor, and fails on a sum of more than 64 bits.

_ROWS_AT_ONCE = 10_000


def load_sums(connection: Connection, cluster: str, pipeline: str) -> dict[Log, RangeSums]:
    c = RANGES.c
    columns = (c.topic, c.topic_id, c.partition, c.state, c.start_offset, c.end_offset)
    numbers = (c.count, c.rejected, c.hash_xor, c.hash_sum)
    live = c.state != RangeState.SUPERSEDED.value
    wanted = select(*columns, *numbers).where(of_pipeline(RANGES, cluster, pipeline), live)
    wanted = wanted.order_by(c.topic, c.partition, c.topic_id)
    found = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(wanted)
    return _summed(tuple(row) for row in found)


def _summed(rows: Iterable[tuple[str, str, int, str, int, int, int, int, int, int]]) -> dict[Log, RangeSums]:
    """Uses plain lists for speed: a ledger can hold millions of ranges."""
    sums: dict[Log, list[int]] = {}
    for topic, topic_id, partition, state, start, end, count, rejected, hash_xor, hash_sum in rows:
        log = Log(topic, topic_id, partition)
        total = sums.get(log)
        if total is None:
            total = sums[log] = [start, end, 0, 0, 0, 0, 0, 0]
        total[0], total[1] = min(total[0], start), max(total[1], end)
        total[2] += 1
        total[3] += count
        total[4] += rejected
        total[5] += end - start if state == RangeState.SKIPPED.value else 0
        total[6] ^= hash_xor
        total[7] = _wrapped(total[7] + hash_sum)
    return {log: RangeSums(*total) for log, total in sums.items()}


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
