"""Which offsets of a sink a replay has written to another table of its target database: one mark for each, stored together with
the rows. A table has several names: with its schema, and without it. A mark has one of them, and is found by each."""

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select

from playhead.ledger.redo import lock_replays
from playhead.ledger.tables import KEPT, insert_into
from playhead.model.ranges import OffsetRange, RangeSet
from playhead.sql.target_tables import TargetTableName, spellings
from playhead.sql.times import moment


def copied_spans(connection: Connection, cluster: str, pipeline: str, table: TargetTableName) -> RangeSet:
    c = KEPT.c
    mine = and_(c.cluster == cluster, c.pipeline == pipeline, _of(connection, table))
    texts = connection.execute(select(c.value).where(mine)).scalars()
    return RangeSet(OffsetRange(**msgspec.json.decode(text)) for text in texts)


def mark_copied(
    connection: Connection, cluster: str, pipeline: str, table: TargetTableName, span: OffsetRange
) -> RangeSet:
    """Until the transaction ends, no other replay of this pipeline marks anything. Returns what was there before. If that has
    some of these offsets, nothing is marked."""
    lock_replays(connection, cluster, pipeline)
    before = copied_spans(connection, cluster, pipeline, table)
    if RangeSet([span]) & before:
        return before
    text = msgspec.json.encode(span, order="sorted").decode()
    values = {
        "key": _mark(max(sorted(_names(connection, table)), key=len)) + text,
        "value": text,
        "epoch": 0,
        "kept_at": moment(connection),
    }
    connection.execute(insert_into(connection, KEPT).values(cluster=cluster, pipeline=pipeline, **values))
    return before


def forget_copies(connection: Connection, cluster: str, pipeline: str, table: TargetTableName) -> None:
    """Call it after `lock_replays`: another replay may write the first rows at the same time."""
    c = KEPT.c
    mine = and_(c.cluster == cluster, c.pipeline == pipeline, _of(connection, table))
    connection.execute(delete(KEPT).where(mine))


def _names(connection: Connection, table: TargetTableName) -> set[str]:
    return {str(table), *spellings(connection, table)}


def _of(connection: Connection, table: TargetTableName) -> ColumnElement[bool]:
    names = sorted(_names(connection, table))
    return or_(*(KEPT.c.key.startswith(_mark(one), autoescape=True) for one in names))


def _mark(name: str) -> str:
    return f"copied/{name}/"
