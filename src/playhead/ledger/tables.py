"""The tables of a ledger, in the database's default schema.

    playhead_ledger       the versions of the tables below; another version is refused
    playhead_runs         one row per pipeline: its newest run
    playhead_chunks       one row per chunk that a run of a source committed; only `state` changes later

    playhead_positions    of sinks, one row per topic partition: the next offset to deliver
    playhead_claims       what is being delivered: at most one open claim per topic partition
    playhead_ranges       what was delivered; only `state` and `superseded_by` change later
    playhead_kept         what a pipeline decided once, such as an inferred schema

The first writer creates them in one transaction; a reader never does. Tables of these names without a version belong to another
program and are refused. The tables of sinks have their own version. A ledger that was used only by sources gets them when the
first sink writes, and a Playhead without sinks can still read the rest.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from playhead.errors import Invalid, Refused
from playhead.model import Map
from playhead.sql.times import Utc

VERSION = 1
_NAME = "ledger"
_CREATION_LOCK = 0x706C6C67  # any number, the same for every process that creates these tables
LONGEST_DETAIL = 4000
_METADATA = MetaData()


def pipeline_key() -> list[Column[Any]]:
    """The first columns of every table of pipelines. Creates new columns each time: a column belongs to one table."""
    return [Column("cluster", Text, primary_key=True), Column("pipeline", Text, primary_key=True)]


VERSIONS = Table(
    "playhead_ledger",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
)
RUNS = Table(
    "playhead_runs",
    _METADATA,
    *pipeline_key(),
    Column("epoch", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("username", Text, nullable=False),
    Column("started", Utc, nullable=False),
    Column("heartbeat", Utc, nullable=False),
    Column("state", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("stop_requested_by", Text),
    Column("stop_requested_at", Utc),
    Column("settings", Text, nullable=False),
    Column("transactional_ids", Integer, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("last_stream", Text),
    Column("last_position", Text),
)
CHUNKS = Table(
    "playhead_chunks",
    _METADATA,
    *pipeline_key(),
    Column("stream", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("generation", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("source_range", Text, nullable=False),
    Column("start_position", Text),
    Column("end_position", Text),
    Column("topic", Text, nullable=False),
    Column("offsets", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("hash_xor", BigInteger, nullable=False),
    Column("hash_sum", BigInteger, nullable=False),
    Column("committed_at", Utc, nullable=False),
    Column("state", Text, nullable=False),
    # A digest of positions, topic and offsets: it identifies a chunk. Positions may be too long for an index.
    Column("identity", Text, nullable=False),
    UniqueConstraint("cluster", "pipeline", "stream", "identity", name="playhead_chunks_identity"),
    Index("playhead_chunks_newest", "cluster", "pipeline", "committed_at"),
)


def tables_exist(connection: Connection, place: str) -> bool:
    """False before the first write. `place` is named in the error for tables that cannot be used."""
    if not inspect(connection).has_table(VERSIONS.name):
        return False
    columns = {column["name"] for column in inspect(connection).get_columns(VERSIONS.name)}
    if not columns >= set(VERSIONS.columns.keys()) or not has_version(connection, _NAME, VERSION, place):
        raise _foreign(VERSIONS.name, place)
    return True


def has_version(connection: Connection, name: str, known: int, place: str) -> bool:
    """False if there is no version with that name. A version other than `known` is refused."""
    found = connection.execute(select(VERSIONS.c.version).where(VERSIONS.c.name == name)).scalar()
    if not isinstance(found, int):
        return False
    if found != known:
        raise Refused(
            f"{place} is a ledger of version {found}, but this Playhead supports version {known}",
            "use the Playhead that wrote it, or another ledger",
        )
    return True


def create_tables(connection: Connection, place: str) -> None:
    create_once(connection, place, tables_exist, _METADATA, (_NAME, VERSION))


def create_once(
    connection: Connection,
    place: str,
    tables_exist: Callable[[Connection, str], bool],
    metadata: MetaData,
    version: tuple[str, int],
) -> None:
    """Creates the tables unless they exist. Of two concurrent callers, one creates them and the other waits."""
    if tables_exist(connection, place):
        return
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
    if not tables_exist(connection, place):
        _create(connection, place, metadata, version)


def _create(connection: Connection, place: str, metadata: MetaData, version: tuple[str, int]) -> None:
    """Creates all tables and their version row. An existing table without a version belongs to another program."""
    for table in metadata.sorted_tables:
        if table is not VERSIONS and inspect(connection).has_table(table.name):
            raise _foreign(table.name, place)
    metadata.create_all(connection)
    name, number = version
    connection.execute(VERSIONS.insert().values(name=name, version=number))


def _foreign(table: str, place: str) -> Invalid:
    return Invalid(f"the table {table} of {place} is not one of Playhead's", "name another database with --ledger")


RANGES_VERSION = 1
_RANGES_NAME = "ranges"
_RANGES_METADATA = MetaData()


def _partition_key() -> list[Column[Any]]:
    return [
        *pipeline_key(),
        Column("topic", Text, primary_key=True),
        Column("partition", Integer, primary_key=True, autoincrement=False),
    ]


POSITIONS = Table(
    "playhead_positions",
    _RANGES_METADATA,
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
    _RANGES_METADATA,
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
    _RANGES_METADATA,
    *_partition_key(),
    Column("topic_id", Text, primary_key=True),
    Column("start_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("end_offset", BigInteger, nullable=False),
    # The order in which ranges were written, independent of the clock. The ranges of one transaction share it.
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
    _RANGES_METADATA,
    *pipeline_key(),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("kept_at", Utc, nullable=False),
)


def range_tables_exist(connection: Connection, place: str) -> bool:
    """Only for a ledger that exists."""
    return has_version(connection, _RANGES_NAME, RANGES_VERSION, place)


def create_range_tables(connection: Connection, place: str) -> None:
    """Creates them in an existing ledger, unless they exist."""
    create_once(connection, place, range_tables_exist, _RANGES_METADATA, (_RANGES_NAME, RANGES_VERSION))


# Values in columns


def to_json(value: Map | dict[str, str] | None) -> str | None:
    if isinstance(value, Map):
        return value.to_json()
    return None if value is None else msgspec.json.encode(value).decode()


def storable(text: str) -> str:
    """External text in a form that databases accept: PostgreSQL has no zero character, UTF-8 no half of a surrogate pair."""
    return text[:LONGEST_DETAIL].replace("\0", " ").encode("utf-8", "replace").decode()


def map_of(text: str | None) -> Map | None:
    return None if text is None else Map(msgspec.json.decode(text))


def insert_into(connection: Connection, table: Any) -> Any:
    return (postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert)(table)
