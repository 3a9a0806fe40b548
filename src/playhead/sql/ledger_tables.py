"""The tables of a ledger, in the database's default schema.

    playhead_ledger    the version of the tables below, and of those in `range_tables`; another version is refused
    playhead_runs      one row per pipeline: its newest run
    playhead_chunks    one row per chunk that a run committed; never changed but for `state`

They are made by whoever writes first, all in one transaction, and never by a reader. Tables of these names without a version are
somebody else's: nothing is written to them.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
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

from playhead.errors import Invalid, Refused
from playhead.sql.times import Utc

VERSION = 1
_NAME = "ledger"
_CREATION_LOCK = 0x706C6C67  # any number, the same for everybody who makes these tables
_METADATA = MetaData()


def pipeline_key() -> list[Column[Any]]:
    """The first columns of every table that is kept for pipelines. A column is of one table only: new ones each time."""
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
    # A digest of positions, topic and offsets: what makes two chunks the same. Positions can be longer than an index takes.
    Column("identity", Text, nullable=False),
    UniqueConstraint("cluster", "pipeline", "stream", "identity", name="playhead_chunks_identity"),
    Index("playhead_chunks_newest", "cluster", "pipeline", "committed_at"),
)


def are_there(connection: Connection, place: str) -> bool:
    """False when nobody wrote yet. `place` is named in what is raised for tables that cannot be used."""
    if not inspect(connection).has_table(VERSIONS.name):
        return False
    columns = {column["name"] for column in inspect(connection).get_columns(VERSIONS.name)}
    if not columns >= set(VERSIONS.columns.keys()) or not has_version(connection, _NAME, VERSION, place):
        raise _foreign(VERSIONS.name, place)
    return True


def has_version(connection: Connection, name: str, known: int, place: str) -> bool:
    """False when there is none of that name. Another one than we know is refused."""
    found = connection.execute(select(VERSIONS.c.version).where(VERSIONS.c.name == name)).scalar()
    if not isinstance(found, int):
        return False
    if found != known:
        raise Refused(
            f"{place} is a ledger of version {found}, and this Playhead knows version {known}",
            "use the Playhead that wrote it, or another ledger",
        )
    return True


def ensure(connection: Connection, place: str) -> None:
    make_once(connection, place, are_there, _METADATA, (_NAME, VERSION))


def make_once(
    connection: Connection,
    place: str,
    are_there: Callable[[Connection, str], bool],
    metadata: MetaData,
    version: tuple[str, int],
) -> None:
    """Makes them unless they are there. Two at once: one makes them, the other waits and finds them."""
    if are_there(connection, place):
        return
    if connection.dialect.name == "postgresql":  # on SQLite nobody else writes at all
        connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
    if not are_there(connection, place):
        _make(connection, place, metadata, version)


def _make(connection: Connection, place: str, metadata: MetaData, version: tuple[str, int]) -> None:
    """All of them, and the row that says whose they are. One that is there without such a row is somebody else's."""
    for table in metadata.sorted_tables:
        if table is not VERSIONS and inspect(connection).has_table(table.name):
            raise _foreign(table.name, place)
    metadata.create_all(connection)
    name, number = version
    connection.execute(VERSIONS.insert().values(name=name, version=number))


def _foreign(table: str, place: str) -> Invalid:
    return Invalid(f"the table {table} of {place} is not one of Playhead's", "name another database with --ledger")
