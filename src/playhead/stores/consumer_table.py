"""The table in which `playhead.consume` stores its offsets: `sql+sqlite:///path`, `sql+postgresql://user@host/db`.

An owner is a consumer group. All changes of an owner are one SQL transaction, and are compared with `before` while the rows are
locked. An edit ends the lease of the consumer that holds the row: its next commit fails and changes nothing, and the consumer
continues from the edited position. A live consumer is still refused, unless forced. The first write creates the table, never a
reader. Without the table there are no positions.
"""

import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from playhead.ledger.consumer_offsets import LEASE_SECONDS, OffsetRow, OffsetsTable
from playhead.model import Change, Deadline, Outcomes, Position, Result, TopicPartition
from playhead.model.host import user_name
from playhead.model.position import Scalar
from playhead.model.times import to_iso
from playhead.sql.address import Address, parse_address
from playhead.sql.database import Database
from playhead.sql.faults import translated
from playhead.stores import Access, Capabilities, Refusal, Snapshot, Stored
from playhead.stores.kafka_changes import KafkaChange, by_owner, write_owners


@dataclass(frozen=True, slots=True)
class SqlStore:
    address: Address
    deadline: Deadline

    @property
    def uri(self) -> str:
        return self.address.shown

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(history=False)

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        rows = self._rows(owners)
        if rows is None:
            return Snapshot((), (f"{self._place()} does not exist: no consumer has stored an offset there yet",))
        return Snapshot(tuple(_stored(row) for row in rows))

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        found = self.snapshot(owners)
        return Snapshot(found.entries, (*found.notes, "the table holds current positions only: it has no history"))

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        """A consumer counts as alive until its lease expires. One that was killed blocks edits until then."""
        live: dict[str, list[OffsetRow]] = {}
        for row in self._rows(owners) or ():
            if row.is_live:
                live.setdefault(row.owner, []).append(row)
        return [
            Refusal(
                owner,
                f"{owner} is being read by {', '.join(sorted({row.holder or '' for row in rows}))}",
                f"stop it first; the lease of one that was killed expires {LEASE_SECONDS:g} s after its last heartbeat",
                lifted_by="--force",
            )
            for owner, rows in live.items()
        ]

    def write(self, changes: Sequence[Change]) -> Outcomes:
        steps = by_owner(changes)
        with self._database() as database:
            return write_owners(changes, steps, partial(self._write_owner, database))

    def _write_owner(self, database: Database, owner: str, steps: "Sequence[KafkaChange]") -> list[tuple[Result, str]]:
        table = OffsetsTable(self.address.table)
        by = f"{user_name()}@{socket.gethostname()}"
        doing = f"writing {self._place()}"
        try:
            with (
                database.transaction(doing, lock_seconds=self.deadline.remaining()) as connection,
                translated(doing),
            ):
                table.ensure(connection)
                found = table.locked(connection, owner, [step.place for step in steps])
                for step in steps:
                    _compare(step, found.get(step.place))
                for step in steps:
                    if step.after is None:
                        table.remove(connection, owner, step.place)
                    elif step.before != step.after and not table.put(connection, owner, step.place, step.after, by):
                        raise _Moved(step.place, "it has a position now")
        except _Moved as moved:
            return [(Result.REFUSED, f"{owner} moved since the plan was created: {moved}")] * len(steps)
        return [(Result.UNCHANGED if step.before == step.after else Result.CHANGED, "") for step in steps]

    def _rows(self, owners: Collection[str] | None) -> list[OffsetRow] | None:
        """None: the table, or the file of SQLite, does not exist."""
        with self._database() as database:
            if not database.exists():
                return None
            table = OffsetsTable(self.address.table)
            with database.reading(f"reading {self._place()}") as connection:
                return table.rows(connection, owners) if table.exists(connection) else None

    def _database(self) -> Database:
        return Database(self.address, self.deadline.remaining())

    def _place(self) -> str:
        return f"the table {self.address.table} of {self.uri.removeprefix('sql+')}"


def open_uri(uri: str, access: Access) -> SqlStore:
    return SqlStore(parse_address(uri), access.deadline)


class _Moved(Exception):
    """Rolls the transaction back."""

    def __init__(self, place: TopicPartition, how: str) -> None:
        super().__init__(f"{place}: {how}")


def _compare(step: KafkaChange, row: OffsetRow | None) -> None:
    now = None if row is None else row.next_offset
    if now != step.before:
        raise _Moved(step.place, f"expected {_shown(step.before)}, found {_shown(now)}")


def _shown(offset: int | None) -> str:
    return "no position" if offset is None else str(offset)


def _stored(row: OffsetRow) -> Stored:
    position = Position.of_kafka(row.owner, row.topic, row.partition, row.next_offset)
    where: dict[str, Scalar] = {
        "written": to_iso(row.written),
        "written_by": row.written_by,
        "epoch": row.epoch,
        "topic_id": row.topic_id,
    }
    notes = (f"{row.holder} reads it now",) if row.is_live else ()
    return Stored(position, where, notes)
