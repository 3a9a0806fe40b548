"""How much of each log was delivered, in numbers that can be compared with those of the topic and of the target.

The digests are put together here and not by the database: SQLite knows no xor, and fails on a sum beyond 64 bits.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, select

from playhead.model.ranges import Log
from playhead.sql.range_records import RangeSums
from playhead.sql.range_rows import of_pipeline
from playhead.sql.range_tables import RANGES
from playhead.sql.range_values import RangeState

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
    """Plain lists while it goes on: a ledger can hold millions of ranges."""
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
