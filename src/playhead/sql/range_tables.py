"""The tables of a ledger that only sinks use, beside those in `ledger_tables`.

    playhead_positions    one row per topic partition: the next offset to deliver
    playhead_claims       what is being delivered: at most one open claim per topic partition
    playhead_ranges       what was delivered; never changed but for `state` and `superseded_by`
    playhead_kept         what a pipeline decided once and for all, such as a schema it inferred

They have a version of their own, in the same table as that of the ledger. So a ledger in which only sources ran gets them
when the first sink writes, and a Playhead that knows no sinks still reads the rest. A reader makes none of them.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Connection, Index, Integer, MetaData, Table, Text

from playhead.sql.ledger_tables import has_version, make_once, pipeline_key
from playhead.sql.times import Utc

VERSION = 1
_NAME = "ranges"
_METADATA = MetaData()


def _partition_key() -> list[Column[Any]]:
    return [
        *pipeline_key(),
        Column("topic", Text, primary_key=True),
        Column("partition", Integer, primary_key=True, autoincrement=False),
    ]


POSITIONS = Table(
    "playhead_positions",
    _METADATA,
    *_partition_key(),
    Column("topic_id", Text, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("published_offset", BigInteger),
    Column("generation", Integer, nullable=False),
    Column("written_at", Utc, nullable=False),
    Column("written_by", Text, nullable=False),
)
CLAIMS = Table(
    "playhead_claims",
    _METADATA,
    *_partition_key(),
    Column("topic_id", Text, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("closes", Boolean, nullable=False),
    Column("shape", Text, nullable=False),
    Column("made_ms", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
)
RANGES = Table(
    "playhead_ranges",
    _METADATA,
    *_partition_key(),
    Column("topic_id", Text, primary_key=True),
    Column("start_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("end_offset", BigInteger, nullable=False),
    # The order in which they were written, whatever the clock said. Those of one transaction share it.
    Column("seq", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("superseded_by", Integer),
    Column("epoch", BigInteger, nullable=False),
    Column("shape", Text),
    Column("made_ms", BigInteger),
    Column("count", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("hash_xor", BigInteger, nullable=False),
    Column("hash_sum", BigInteger, nullable=False),
    Column("first_ms", BigInteger),
    Column("last_ms", BigInteger),
    Column("outputs", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("committed_at", Utc, nullable=False),
    Index("playhead_ranges_newest", "cluster", "pipeline", "seq"),
)
KEPT = Table(
    "playhead_kept",
    _METADATA,
    *pipeline_key(),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("kept_at", Utc, nullable=False),
)


def are_there(connection: Connection, place: str) -> bool:
    """Asked of a ledger that is there."""
    return has_version(connection, _NAME, VERSION, place)


def ensure(connection: Connection, place: str) -> None:
    """Makes them in a ledger that is there, unless they are there, too."""
    make_once(connection, place, are_there, _METADATA, (_NAME, VERSION))
