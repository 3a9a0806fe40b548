"""The table of offsets: one row per group, topic and partition, with the *next* offset to read.

    owner        the consumer group
    topic, partition
    topic_id     the incarnation of the topic that was read; empty after an edit by hand: whatever is there will do
    next_offset
    epoch        goes up with every taking over and every edit: whoever still holds an older one can move nothing
    holder       the consumer that reads this partition now; null when it let go, or when the row was edited
    held_until   the holder's last sign of life plus LEASE_SECONDS
    written, written_by

A move is a compare-and-set on holder, epoch and next_offset, in the transaction that also holds the application's rows. The
lease only warns people who want to edit (`is_live`); it protects nothing. Times are of the server's clock on PostgreSQL. The
table is made by whoever writes first, never by a reader; one of another shape is refused with words.
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
_CREATION_LOCK = 0x706C6179  # any number, the same for everybody who makes such a table


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
    """What to write for a partition that has no row yet; `next_offset` None: nothing, it stays without one."""

    topic_id: str
    next_offset: int | None


class OffsetMove(NamedTuple):
    """The holder's step from `before` to `after`, valid only under this `epoch`."""

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
        """Whether it is there. A table of that name which is not ours is an error."""
        found = inspect(connection)
        if not found.has_table(self.name.name, schema=self.name.schema):
            return False
        columns = {column["name"] for column in found.get_columns(self.name.name, schema=self.name.schema)}
        missing = [column.name for column in self._table.columns if column.name not in columns]
        key = found.get_pk_constraint(self.name.name, schema=self.name.schema)["constrained_columns"]
        if missing or set(key) != {column.name for column in self._table.primary_key}:
            what = f"has no column {missing[0]!r}" if missing else "has another primary key"
            raise Invalid(
                f"the table {self.name} {what}: it is not one of Playhead's", "name another one with ?table=NAME"
            )
        return True

    def ensure(self, connection: Connection) -> None:
        """Makes it unless it is there. Two at once: one makes it, the other waits and finds it."""
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
        """The rows of these partitions, held against every other writer until the transaction ends."""
        c = self._table.c
        wanted = (
            self._select(connection)
            .where(c.owner == owner, tuple_(c.topic, c.partition).in_([tuple(place) for place in places]))
            .order_by(c.topic, c.partition)  # one order for everybody: two can wait for each other, but not in a circle
            .with_for_update()
        )
        return {row.place: row for row in _rows(connection, wanted)}

    # The consumer's steps

    def claim(
        self,
        connection: Connection,
        owner: str,
        holder: str,
        wanted: Mapping[TopicPartition, Begin],
        *,
        polite: bool = False,
    ) -> dict[TopicPartition, OffsetRow]:
        """Makes `holder` the one who may move these rows; whoever held them before can no longer.

        Polite: a row that another live consumer holds is left to it and is missing in the answer. A row without which there is
        nowhere to begin (`Begin.next_offset` None) is missing too. `topic_id` in the answer is what was stored before.
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
        """Makes all moves, or names the first partition that is no longer ours to move: then roll back."""
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
        """A sign of life. Returns what the holder still holds."""
        c = self._table.c
        mine = and_(c.owner == owner, c.holder == holder)
        connection.execute(update(self._table).where(mine).values(held_until=_moment(connection, LEASE_SECONDS)))
        return {row.place: row for row in _rows(connection, self._select(connection).where(mine))}

    def release(self, connection: Connection, owner: str, holder: str, places: Collection[TopicPartition]) -> None:
        """Lets go of what is still held, so that an edit need not wait for the lease to lapse."""
        for place in sorted(places):
            mine = and_(self._at(owner, place), self._table.c.holder == holder)
            connection.execute(update(self._table).where(mine).values(holder=None, held_until=None))

    # The operator's steps

    def put(self, connection: Connection, owner: str, place: TopicPartition, next_offset: int, written_by: str) -> bool:
        """Sets a position and takes it away from whoever holds it. False: the row appeared meanwhile; roll back."""
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
                    "written_by": "where the group began",
                }
                self._insert(connection, {**_key(owner, place), **values})

    def _insert(self, connection: Connection, values: Mapping[str, Any]) -> bool:
        """False when somebody else's row is there already."""
        make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        wanted = make(self._table).values(**values).on_conflict_do_nothing()
        # SQLAlchemy does not count inserted rows unless it is asked to.
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
    """Now by the clock that all who use this database share."""
    later = timedelta(seconds=later_seconds)
    if connection.dialect.name == "postgresql":
        return func.clock_timestamp() + later
    return datetime.now(UTC) + later


def _rows(connection: Connection, wanted: Select[Any]) -> list[OffsetRow]:
    """By position: extra columns that somebody added to the table are not asked for."""
    return [OffsetRow._make([*found[:-1], bool(found[-1])]) for found in connection.execute(wanted)]
