"""Offsets in a table next to the application's own rows: exactly once.

The order is essential. First claim the rows when partitions are assigned: the epoch increases, so the previous owner can no
longer move them. Then read from the stored offset. In one transaction write the results and move the offset from the claimed
one. A refused move rolls everything back. The move is the last statement of the transaction, so that the row is locked only
briefly and a member that hangs inside its transaction does not block the next claim.
"""

import os
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from playhead.consumer.keeping import Beginning, KafkaKeeper, KeptOffset, KeptStep, TakenOver, no_offset
from playhead.errors import Busy, Refused, Unreachable
from playhead.ledger.consumer_offsets import Begin, OffsetMove, OffsetRow, OffsetsTable
from playhead.model import TopicPartition
from playhead.sql.address import Address
from playhead.sql.database import Database
from playhead.sql.faults import translated
from playhead.sql.transaction import Connection, Transaction


class TableKeeper:
    """`publisher` commits the progress to the Kafka group, for tools that show lag. It is never read back."""

    def __init__(
        self, address: Address, group: str, seconds: float, max_poll_seconds: float, publisher: KafkaKeeper | None
    ) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._group = group
        self._table = OffsetsTable(address.table)
        self._database = Database(address, seconds, keep=True)
        self._max_poll_seconds = max_poll_seconds
        self._publisher = publisher
        self._doing = f"keeping offsets in {address.shown.removeprefix('sql+')}"

    def open(self) -> None:
        """Creates the table if needed, so that a wrong address fails before the group is joined."""
        with self._database.transaction(self._doing) as connection, translated(self._doing):
            self._table.ensure(connection)

    def claim(
        self, wanted: Mapping[TopicPartition, Beginning], *, polite: bool = False
    ) -> dict[TopicPartition, KeptOffset]:
        begins = {place: Begin(*beginning) for place, beginning in wanted.items()}
        with self._database.transaction(self._doing) as connection, translated(self._doing):
            rows = self._table.claim(connection, self._group, self.holder, begins, polite=polite)
            for place, beginning in wanted.items():
                row = rows.get(place)
                if row is None and not (polite and self._exists(connection, place)):
                    raise no_offset(place)
                if row is not None:
                    _check_topic_id(row, beginning.topic_id)
        return {place: KeptOffset(row.next_offset, row.epoch) for place, row in rows.items()}

    @contextmanager
    def transaction(self, steps: Sequence[KeptStep]) -> Iterator[Transaction]:
        doing = "committing a batch"
        limit = self._max_poll_seconds
        with self._database.transaction(doing, idle_limit_seconds=limit, lock_seconds=None) as connection:
            yield Transaction(connection)
            with translated(doing):
                self._advance(connection, steps)

    def finish(self, steps: Sequence[KeptStep]) -> None:
        with self.transaction(steps):
            pass

    def publish(self, steps: Sequence[KeptStep]) -> None:
        """Called after steps are committed. They are sent to Kafka in the next iteration."""
        if self._publisher is not None:
            self._publisher.finish(steps)

    def tend(self) -> None:
        if self._publisher is not None:
            self._publisher.tend()

    def beat(self) -> dict[TopicPartition, KeptOffset]:
        with self._database.transaction(self._doing) as connection, translated(self._doing):
            rows = self._table.beat(connection, self._group, self.holder)
        return {place: KeptOffset(row.next_offset, row.epoch) for place, row in rows.items()}

    def revoked(self, places: Collection[TopicPartition]) -> None:
        if self._publisher is not None:
            self._publisher.revoked(places)
        self._release(places)

    def lost(self, places: Collection[TopicPartition]) -> None:
        if self._publisher is not None:
            self._publisher.lost(places)
        self._release(places)

    def close(self) -> None:
        self._database.close()

    def _release(self, places: Collection[TopicPartition]) -> None:
        # Optional: operators can edit at once. Without a release, the lease expires by itself.
        with (
            suppress(Unreachable, Busy),
            self._database.transaction(self._doing) as connection,
            translated(self._doing),
        ):
            self._table.release(connection, self._group, self.holder, places)

    def _advance(self, connection: Connection, steps: Sequence[KeptStep]) -> None:
        moves = [OffsetMove(*step) for step in steps]
        refused = self._table.advance(connection, self._group, self.holder, moves)
        if refused is not None:
            row = self._table.locked(connection, self._group, [refused]).get(refused)
            raise TakenOver(refused, self._why(row))

    def _why(self, row: OffsetRow | None) -> str:
        if row is None:
            return "it was deleted by an operator"
        if row.holder not in (None, self.holder):
            return f"{row.holder} has taken it over"
        return f"{row.written_by} set it to {row.next_offset}"

    def _exists(self, connection: Connection, place: TopicPartition) -> bool:
        return bool(self._table.locked(connection, self._group, [place]))


def _check_topic_id(row: OffsetRow, topic_id: str) -> None:
    if row.topic_id and topic_id and row.topic_id != topic_id:
        raise Refused(
            f"the topic {row.topic} was deleted and recreated: offset {row.next_offset} of {row.place} is not valid in it",
            f"set a new position for group {row.owner} (playhead offsets set or delete), which accepts the new topic",
        )
