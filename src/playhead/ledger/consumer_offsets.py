"""The table of offsets: one row per group, topic and partition, with the *next* offset to read.

    owner        the consumer group
    topic, partition
    topic_id     the id of the topic that was read; empty after an operator's edit: any topic id is accepted
    next_offset
    epoch        increased by every claim and every edit: a consumer with an older epoch cannot move the row
    holder       the consumer that reads this partition now; null after a release or an edit
    held_until   the holder's last heartbeat plus LEASE_SECONDS
    written, written_by

A move is a compare-and-set on holder, epoch and next_offset, in the same transaction as the application's rows. The lease only
warns operators before an edit (`is_live`); it protects nothing. On PostgreSQL times are from the server's clock. The first writer
creates the table, a reader never does. A table with other columns or another key is refused.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    and_,
    delete,
    func,
    inspect,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import quoted_name

from playhead.errors import Invalid
from playhead.model import TopicPartition
from playhead.sql.address import TableName
from playhead.sql.times import Utc

LEASE_SECONDS = 30.0
_CREATION_LOCK = 0x706C6179  # any number, the same for every process that creates such a table


class OffsetRow(NamedTuple):
    owner: str
    topic: str
    partition: int
    topic_id: str
    next_offset: int
    epoch: int
    holder: str | None
    held_until: datetime | None
    written: datetime
    written_by: str
    is_live: bool

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Begin:
    """What to write for a partition that has no row yet. `next_offset` None: no row is written."""

    topic_id: str
    next_offset: int | None


class OffsetMove(NamedTuple):
    """A move by the holder from `before` to `after`, valid only with this `epoch`."""

    place: TopicPartition
    epoch: int
    before: int
    after: int


class OffsetsTable:
    def __init__(self, name: TableName) -> None:
        self.name = name
        self._table = Table(
            quoted_name(name.name, quote=True),
            MetaData(schema=quoted_name(name.schema, quote=True) if name.schema else None),
            Column("owner", Text, primary_key=True),
            Column("topic", Text, primary_key=True),
            Column("partition", Integer, primary_key=True, autoincrement=False),
            Column("topic_id", Text, nullable=False),
            Column("next_offset", BigInteger, nullable=False),
            Column("epoch", BigInteger, nullable=False),
            Column("holder", Text),
            Column("held_until", Utc),
            Column("written", Utc, nullable=False),
            Column("written_by", Text, nullable=False),
        )

    # The table itself

    def exists(self, connection: Connection) -> bool:
        """Whether the table exists. A table with that name that is not Playhead's is an error."""
        found = inspect(connection)
        if not found.has_table(self.name.name, schema=self.name.schema):
            return False
        columns = {column["name"] for column in found.get_columns(self.name.name, schema=self.name.schema)}
        missing = [column.name for column in self._table.columns if column.name not in columns]
        key = found.get_pk_constraint(self.name.name, schema=self.name.schema)["constrained_columns"]
        if missing or set(key) != {column.name for column in self._table.primary_key}:
            what = f"has no column {missing[0]!r}" if missing else "has another primary key"
            raise Invalid(
                f"the table {self.name} {what}: it is not one of Playhead's", "use another one with ?table=NAME"
            )
        return True

    def ensure(self, connection: Connection) -> None:
        """Creates the table unless it exists. Of two concurrent callers, one creates it and the other waits."""
        if self.exists(connection):
            return
        if connection.dialect.name == "postgresql":
            # IF NOT EXISTS alone is not enough: two creators can still collide in the catalog.
            connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
        self._table.create(connection, checkfirst=True)

    # Reading

    def rows(self, connection: Connection, owners: Collection[str] | None = None) -> list[OffsetRow]:
        wanted = self._select(connection).order_by(self._table.c.owner, self._table.c.topic, self._table.c.partition)
        if owners is not None:
            wanted = wanted.where(self._table.c.owner.in_(list(owners)))
        return _rows(connection, wanted)

    def locked(
        self, connection: Connection, owner: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetRow]:
        """The rows of these partitions, locked against other writers until the transaction ends."""
        c = self._table.c
        wanted = (
            self._select(connection)
            .where(c.owner == owner, tuple_(c.topic, c.partition).in_([tuple(place) for place in places]))
            .order_by(c.topic, c.partition)  # the same order for every writer: no deadlocks
            .with_for_update()
        )
        return {row.place: row for row in _rows(connection, wanted)}

    # Called by a consumer

    def claim(
        self,
        connection: Connection,
        owner: str,
        holder: str,
        wanted: Mapping[TopicPartition, Begin],
        *,
        polite: bool = False,
    ) -> dict[TopicPartition, OffsetRow]:
        """Makes `holder` the owner of these rows; the previous owner can no longer move them.

        `polite`: a row that another live consumer holds is skipped and is missing in the result. A partition without a row and
        without a start (`Begin.next_offset` None) is missing too. `topic_id` in the result is the value stored before.
        """
        self._insert_missing(connection, owner, wanted)
        found = self.locked(connection, owner, wanted)
        claimed: dict[TopicPartition, OffsetRow] = {}
        for place, row in found.items():
            if polite and row.holder == holder:
                claimed[place] = row
            elif not (polite and row.is_live):
                values = {
                    "epoch": row.epoch + 1,
                    "holder": holder,
                    "held_until": _moment(connection, LEASE_SECONDS),
                    "topic_id": row.topic_id or wanted[place].topic_id,
                }
                connection.execute(update(self._table).where(self._at(owner, place)).values(values))
                claimed[place] = row._replace(epoch=row.epoch + 1, holder=holder)
        return claimed

    def advance(
        self, connection: Connection, owner: str, holder: str, moves: Sequence[OffsetMove]
    ) -> TopicPartition | None:
        """Makes all moves. Returns the first partition that is no longer ours; the caller must then roll back."""
        for move in sorted(moves):
            values = {
                "next_offset": move.after,
                "held_until": _moment(connection, LEASE_SECONDS),
                "written": _moment(connection),
                "written_by": holder,
            }
            c = self._table.c
            ours = and_(
                self._at(owner, move.place),
                c.holder == holder,
                c.epoch == move.epoch,
                c.next_offset == move.before,
            )
            if connection.execute(update(self._table).where(ours).values(values)).rowcount != 1:
                return move.place
        return None

    def beat(self, connection: Connection, owner: str, holder: str) -> dict[TopicPartition, OffsetRow]:
        """Writes a heartbeat. Returns the rows that the holder still holds."""
        c = self._table.c
        mine = and_(c.owner == owner, c.holder == holder)
        connection.execute(update(self._table).where(mine).values(held_until=_moment(connection, LEASE_SECONDS)))
        return {row.place: row for row in _rows(connection, self._select(connection).where(mine))}

    def release(self, connection: Connection, owner: str, holder: str, places: Collection[TopicPartition]) -> None:
        """Releases the rows that are still held, so that an edit need not wait until the lease expires."""
        for place in sorted(places):
            mine = and_(self._at(owner, place), self._table.c.holder == holder)
            connection.execute(update(self._table).where(mine).values(holder=None, held_until=None))

    # Called by an operator

    def put(self, connection: Connection, owner: str, place: TopicPartition, next_offset: int, written_by: str) -> bool:
        """Sets a position and removes its holder. False: another process created the row meanwhile; roll back."""
        values = {
            "topic_id": "",
            "next_offset": next_offset,
            "holder": None,
            "held_until": None,
            "written": _moment(connection),
            "written_by": written_by,
        }
        c = self._table.c
        changed = connection.execute(
            update(self._table).where(self._at(owner, place)).values(**values, epoch=c.epoch + 1)
        )
        return changed.rowcount == 1 or self._insert(connection, {**_key(owner, place), **values, "epoch": 1})

    def remove(self, connection: Connection, owner: str, place: TopicPartition) -> None:
        connection.execute(delete(self._table).where(self._at(owner, place)))

    # Inside

    def _insert_missing(self, connection: Connection, owner: str, wanted: Mapping[TopicPartition, Begin]) -> None:
        for place, begin in sorted(wanted.items(), key=lambda item: item[0]):
            if begin.next_offset is not None:
                values = {
                    "topic_id": begin.topic_id,
                    "next_offset": begin.next_offset,
                    "epoch": 0,
                    "written": _moment(connection),
                    "written_by": "initial position of the group",
                }
                self._insert(connection, {**_key(owner, place), **values})

    def _insert(self, connection: Connection, values: Mapping[str, Any]) -> bool:
        """False if a row exists already."""
        make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        wanted = make(self._table).values(**values).on_conflict_do_nothing()
        # SQLAlchemy does not count inserted rows by default.
        return connection.execute(wanted, execution_options={"preserve_rowcount": True}).rowcount == 1

    def _select(self, connection: Connection) -> Select[Any]:
        c = self._table.c
        live = and_(c.holder.is_not(None), c.held_until > _moment(connection))
        return select(self._table, func.coalesce(live, False).label("is_live"))

    def _at(self, owner: str, place: TopicPartition) -> ColumnElement[bool]:
        c = self._table.c
        return and_(c.owner == owner, c.topic == place.topic, c.partition == place.partition)


def _key(owner: str, place: TopicPartition) -> dict[str, str | int]:
    return {"owner": owner, "topic": place.topic, "partition": place.partition}


def _moment(connection: Connection, later_seconds: float = 0) -> Any:
    """The current time by the clock of the database (SQLite: of this machine)."""
    later = timedelta(seconds=later_seconds)
    if connection.dialect.name == "postgresql":
        return func.clock_timestamp() + later
    return datetime.now(UTC) + later


def _rows(connection: Connection, wanted: Select[Any]) -> list[OffsetRow]:
    """By position: columns that were added to the table are not selected."""
    return [OffsetRow._make([*found[:-1], bool(found[-1])]) for found in connection.execute(wanted)]
