"""The positions of connectors in an offsets topic. The topic is read completely once, then only its new records are read.

Only committed records count. An open transaction hides everything that was committed after its first record. A find waits until
no position can be hidden, so that an old position is never mistaken for the newest. Short requests have a short timeout and are
retried with a new client; reading may take until the deadline.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from playhead.connect.javajson import encode_string
from playhead.connect.keys import OWN_TOPIC, OffsetKey, decode_key, decode_value, encode_new_key
from playhead.errors import Busy
from playhead.kafka.client import Admin
from playhead.kafka.log import Captured, LogRecord, capture, read_latest, read_messages, read_records
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.properties import ClientSettings
from playhead.kafka.reconnecting import ANSWER_SECONDS, ReconnectingAdmin
from playhead.ledger.model import CHUNK_HEADER
from playhead.model import Deadline, Map
from playhead.pipeline.ingest.chunk_note import PastPosition

HIDDEN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A stream's position: its key, the Kafka partition where it is or will be stored, and the offset (None: no position)."""

    key: bytes
    kafka_partition: int
    offset: Map | None
    keys: Sequence[bytes]
    """All keys under which the position may be stored: an older form of the key remains when a newer one is written."""
    rivals: Sequence[Map]
    """Other positions under other forms of the same key; only the connector's own release knows which one it reads."""
    since: Mapping[int, int]
    """The end of the log when this was read. A later record of the key means that another process has committed."""


@dataclass(frozen=True, slots=True)
class StoredPositions:
    """All positions of a connector. `since`: the end of the log when they were read."""

    connector: str
    by_partition: Mapping[Map, StoredPosition]
    since: Mapping[int, int]


def _key_start(connector: str) -> bytes:
    return f"[{encode_string(connector)},".encode()


class PositionLog:
    """May be shared by threads. Close it: it keeps a client."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self.topic = topic
        self._admin = ReconnectingAdmin(settings)
        self._ends: dict[int, int] = {}
        self._newest: dict[bytes, LogRecord] = {}
        self._lock = threading.Lock()

    def find(self, connector: str, partitions: Sequence[Map], deadline: Deadline) -> StoredPosition:
        """The committed position of the first of these partitions that has one, else where the first would be stored."""
        with self._lock:
            self._admin.ask(lambda admin, _: self._refresh(admin, deadline), deadline)
            return self._find(connector, partitions)

    def find_all(self, connector: str, deadline: Deadline) -> "StoredPositions":
        """All committed positions of a connector, by partition. Of equal partitions in other bytes the newest counts."""
        with self._lock:
            self._admin.ask(lambda admin, _: self._refresh(admin, deadline), deadline)
            newest: dict[Map, tuple[LogRecord, Map]] = {}
            for record in self._records_of(connector):
                key, offset = decode_key(record.key or b""), decode_value(record.value) if record.value else None
                if key is None or key.connector != connector or not offset:
                    continue
                known = newest.get(key.partition)
                if known is None or record.timestamp_ms >= known[0].timestamp_ms:
                    newest[key.partition] = (record, offset)
            found = {
                partition: StoredPosition(record.key or b"", record.partition, offset, (), (), self._ends)
                for partition, (record, offset) in newest.items()
            }
            return StoredPositions(connector, found, dict(self._ends))

    def has_any_moved(self, positions: "StoredPositions", deadline: Deadline) -> bool:
        """True when something was committed for the connector since its positions were found."""
        start = _key_start(positions.connector)

        def ask(admin: Admin, _patience: Deadline) -> bool:
            captured = capture_settled(admin, self.topic, deadline)
            fresh = captured.narrowed(_since(captured, positions.since))
            return any((record.key or b"").startswith(start) for record in read_records(admin, fresh, deadline))

        return self._admin.ask(ask, deadline)

    def _records_of(self, connector: str) -> list[LogRecord]:
        start = _key_start(connector)
        return [record for key, record in self._newest.items() if key.startswith(start)]

    def has_moved(self, position: StoredPosition, deadline: Deadline) -> bool:
        """True when something was committed under a key of `position` since it was found."""

        def ask(admin: Admin, _patience: Deadline) -> bool:
            captured = capture_settled(admin, self.topic, deadline)
            fresh = captured.narrowed(_since(captured, position.since))
            return any(record.key in position.keys for record in read_records(admin, fresh, deadline))

        return self._admin.ask(ask, deadline)

    def history(self, position: StoredPosition, deadline: Deadline) -> list[PastPosition]:
        """The records of the key of `position` that are still in the log, oldest first, up to `position` itself."""

        def ask(admin: Admin, _patience: Deadline) -> list[PastPosition]:
            number, end = position.kafka_partition, position.since[position.kafka_partition]
            captured = capture(admin, self.topic, deadline.within(ANSWER_SECONDS), partitions=[number])
            return [
                PastPosition(
                    decode_value(value) if (value := message.value()) else None,
                    dict(message.headers() or ()).get(CHUNK_HEADER),
                )
                for batch in read_messages(admin, captured.narrowed({number: (0, end)}), deadline)
                for message in batch
                if message.key() == position.key
            ]

        return self._admin.ask(ask, deadline)

    def close(self) -> None:
        self._admin.close()

    def _refresh(self, admin: Admin, deadline: Deadline) -> None:
        captured = capture_settled(admin, self.topic, deadline)
        if not self._ends:
            records: Sequence[LogRecord] = read_latest(admin, captured, deadline).records
        else:
            records = list(read_records(admin, captured.narrowed(_since(captured, self._ends)), deadline))
        for record in records:
            if record.key is not None and _is_newer(record, self._newest.get(record.key)):
                self._newest[record.key] = record
        self._ends = {partition: captured.end_of(partition) for partition in captured.ends}

    def _find(self, connector: str, partitions: Sequence[Map]) -> StoredPosition:
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
            return StoredPosition(key, record.partition, offset, keys, rivals, dict(self._ends))
        removed = self._newest.get(keys[0])
        home = removed.partition if removed else partition_of(keys[0], len(self._ends))
        return StoredPosition(keys[0], home, None, keys, (), dict(self._ends))


@contextmanager
def open_position_logs(
    settings: ClientSettings, config: Mapping[str, str], workers_topic: str
) -> Iterator[tuple[PositionLog, PositionLog]]:
    """The connector's own offsets topic, and that of the workers, which may be one."""
    with ExitStack() as parts:
        workers = parts.enter_context(closing(PositionLog(settings, workers_topic)))
        own = config.get(OWN_TOPIC) or workers_topic
        yield workers if own == workers_topic else parts.enter_context(closing(PositionLog(settings, own))), workers


def find_position(
    own: PositionLog, workers: PositionLog, connector: str, partitions: Sequence[Map], deadline: Deadline
) -> StoredPosition:
    """As `find`. If the connector's own offsets topic has no position, the workers' topic counts, as in Connect."""
    found = own.find(connector, partitions, deadline)
    if found.offset is None and own is not workers:
        return replace(found, offset=workers.find(connector, partitions, deadline).offset)
    return found


def _is_newer(record: LogRecord, known: LogRecord | None) -> bool:
    """Within a partition the order of the log decides, not the timestamp: tasks of one step write on different machines."""
    return known is None or known.partition == record.partition or record.timestamp_ms >= known.timestamp_ms


def capture_settled(admin: Admin, topic: str, deadline: Deadline) -> Captured:
    """The ends of the topic, as soon as no open transaction hides a record before them."""
    patience = deadline.within(HIDDEN_SECONDS)
    while True:
        captured = capture(admin, topic, deadline.within(ANSWER_SECONDS))
        if not captured.open_transactions:
            return captured
        if patience.passed:
            places = ", ".join(map(str, captured.open_transactions))
            raise Busy(
                f"{places} has an open transaction, which hides the newest positions",
                hint=f"to find its owner: playhead offsets doctor --store kafka://{admin.settings.bootstrap}/{topic}",
            )
        time.sleep(0.05)


def _since(captured: Captured, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    return {partition: (ends.get(partition, 0), captured.end_of(partition)) for partition in captured.ends}
