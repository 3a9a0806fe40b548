"""How far a replay into a topic has come: a text that is committed in the transaction of its records.

It is the metadata of an offset of a consumer group without members. A group's offsets expire some days after the last commit
(`offsets.retention.minutes`), so nothing has to be removed.
"""

from dataclasses import dataclass

from playhead.errors import NotFound
from playhead.kafka.client import Admin
from playhead.kafka.groups import Committed, delete_groups, list_decided
from playhead.kafka.transactions import TransactionalProducer
from playhead.model import Deadline, TopicPartition


@dataclass(frozen=True, slots=True)
class Marker:
    """`place` is a partition that exists, of any topic: brokers refuse offsets of others. Its own offsets do not matter."""

    group: str
    place: TopicPartition

    def read(self, admin: Admin, deadline: Deadline) -> str | None:
        """None: nothing is committed yet, or it has expired."""
        try:
            found = list_decided(admin, self.group, [self.place], deadline).get(self.place)
        except NotFound:
            return None
        return None if found is None else found.metadata

    def write(self, producer: TransactionalProducer, text: str) -> None:
        producer.send_offsets(self.group, {self.place: Committed(0, text)})

    def forget(self, admin: Admin, deadline: Deadline) -> None:
        if self.read(admin, deadline) is not None:
            delete_groups(admin, [self.group], deadline)
