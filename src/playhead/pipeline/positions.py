"""The positions of connectors in an offsets topic, followed: read whole once, from then on only what is new.

Committed records only. While somebody's transaction is open, what was committed behind it is not to be seen yet; a position
that may be hidden so is waited for, never taken for the newest.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from playhead.connect.keys import OffsetKey, decode_value, encode_new_key
from playhead.errors import Busy
from playhead.kafka.client import Admin
from playhead.kafka.log import Captured, Record, capture, read_latest, read_messages, read_records
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline, Map
from playhead.pipeline.chunk_notes import NOTE, PastPosition

HIDDEN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream's position is, or will be: its key, the Kafka partition it lies in, and what it says now."""

    key: bytes
    kafka_partition: int
    offset: Map | None
    keys: Sequence[bytes]
    """All that the position could lie under: an older form of the key is left behind when a newer one is written."""
    rivals: Sequence[Map]
    """Other positions under other forms of the same key; only the connector's own release knows which one it reads."""
    since: Mapping[int, int]
    """Where the reading ended that found this: anything of the key behind it means that somebody else has committed."""


class PositionLog:
    """May be shared by threads. Close it: it keeps a client."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self.topic = topic
        self._settings = settings
        self._admin: Admin | None = None
        self._ends: dict[int, int] = {}
        self._newest: dict[bytes, Record] = {}
        self._lock = threading.Lock()

    def place(self, connector: str, partitions: Sequence[Map], deadline: Deadline) -> Place:
        """As committed now: the first of these partitions that has a position, else where the first of them would be put."""
        with self._lock:
            self._refresh(deadline)
            return self._place(connector, partitions)

    def has_moved(self, place: Place, deadline: Deadline) -> bool:
        """True when something was committed under a key of `place` since it was found."""
        with self._lock:
            admin = self._client(deadline)
        captured = capture_settled(admin, self.topic, deadline)
        fresh = captured.narrowed(_since(captured, place.since))
        return any(record.key in place.keys for record in read_records(admin, fresh, deadline))

    def history(self, place: Place, deadline: Deadline) -> list[PastPosition]:
        """What the log still holds of the key that `place` was found under, oldest first, up to `place` itself."""
        with self._lock:
            admin = self._client(deadline)
        end = place.since[place.kafka_partition]
        captured = capture(admin, self.topic, deadline, partitions=[place.kafka_partition])
        past = captured.narrowed({place.kafka_partition: (0, end)})
        return [
            PastPosition(
                decode_value(value) if (value := message.value()) else None, dict(message.headers() or ()).get(NOTE)
            )
            for batch in read_messages(admin, past, deadline)
            for message in batch
            if message.key() == place.key
        ]

    def close(self) -> None:
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None

    def _client(self, deadline: Deadline) -> Admin:
        if self._admin is None:
            self._admin = Admin(self._settings, deadline)
        return self._admin

    def _refresh(self, deadline: Deadline) -> None:
        admin = self._client(deadline)
        captured = capture_settled(admin, self.topic, deadline)
        if not self._ends:
            records: Sequence[Record] = read_latest(admin, captured, deadline).records
        else:
            records = list(read_records(admin, captured.narrowed(_since(captured, self._ends)), deadline))
        for record in records:
            if record.key is not None and _is_newer(record, self._newest.get(record.key)):
                self._newest[record.key] = record
        self._ends = {partition: captured.end_of(partition) for partition in captured.ends}

    def _place(self, connector: str, partitions: Sequence[Map]) -> Place:
        keys = [encode_new_key(OffsetKey(connector, partition)) for partition in partitions]
        stored = [
            (key, record, offset)
            for key in keys
            if (record := self._newest.get(key)) is not None
            and record.value is not None
            and (offset := decode_value(record.value))
        ]
        if stored:
            key, record, offset = stored[0]
            forms = [found for at, _, found in stored[1:] if b'"protocol"' in at and b'"protocol"' in key]
            rivals = [found for found in forms if found != offset]
            return Place(key, record.partition, offset, keys, rivals, dict(self._ends))
        removed = self._newest.get(keys[0])
        home = removed.partition if removed else partition_of(keys[0], len(self._ends))
        return Place(keys[0], home, None, keys, (), dict(self._ends))


def _is_newer(record: Record, known: Record | None) -> bool:
    """Within a partition the log's order counts and no clock: tasks of one step write on different machines."""
    return known is None or known.partition == record.partition or record.timestamp_ms >= known.timestamp_ms


def capture_settled(admin: Admin, topic: str, deadline: Deadline) -> Captured:
    """The ends of the topic once no transaction hides anything before them."""
    patience = deadline.within(HIDDEN_SECONDS)
    while True:
        captured = capture(admin, topic, deadline)
        if not captured.open_transactions:
            return captured
        if patience.passed:
            places = ", ".join(map(str, captured.open_transactions))
            raise Busy(
                f"{places} has an open transaction, which hides the newest positions",
                hint=f"see who holds it: playhead offsets doctor --store kafka://{admin.settings.bootstrap}/{topic}",
            )
        time.sleep(0.05)


def _since(captured: Captured, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    return {partition: (ends.get(partition, 0), captured.end_of(partition)) for partition in captured.ends}
