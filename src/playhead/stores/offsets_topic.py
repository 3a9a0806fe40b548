"""The offsets topic of a Connect cluster, read directly: `kafka://broker/connect-offsets`. No worker has to be up.

Connect finds a position by the bytes of its key, in whatever partition they lie. So equal JSON in other bytes is another entry
(a twin), and a key in a partition where Java would not put it survives beside its newer copy. Both are shown with a note.
Committed records only where the workers themselves read so, that is with exactly-once source support enabled.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from playhead.connect.keys import OffsetKey, is_as_connect_writes
from playhead.kafka.client import Admin
from playhead.kafka.log import Captured, Record, capture, read_latest, read_records
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline
from playhead.model.position import Scalar
from playhead.stores import Snapshot, Stored
from playhead.stores.decoding import RawPair, decode_pairs

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    settings: ClientSettings
    topic: str
    committed: bool
    deadline: Deadline
    progress: Progress = lambda done, total: None

    @property
    def uri(self) -> str:
        return f"kafka://{self.settings.bootstrap}/{self.topic}"

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        with Admin(self.settings, self.deadline) as admin:
            captured = capture(admin, self.topic, self.deadline, committed=self.committed)
            latest = read_latest(admin, captured, self.deadline, self.progress)
        found = self._decoded(captured, latest.records, owners, removed=False)
        return replace(found, entries=_with_twins_noted(found.entries))

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        with Admin(self.settings, self.deadline) as admin:
            captured = capture(admin, self.topic, self.deadline, committed=self.committed)
            return self._decoded(captured, read_records(admin, captured, self.deadline), owners, removed=True)

    def _decoded(
        self, captured: Captured, records: Iterable[Record], owners: Collection[str] | None, *, removed: bool
    ) -> Snapshot:
        partitions = len(captured.topic.partitions)

        def notes_on(raw: bytes, key: OffsetKey, pair: RawPair) -> Iterator[str]:
            home = partition_of(raw, partitions)
            if pair.where["kafka_partition"] != home:
                yield f"Java would put this key into partition {home}: the topic grew, or another client wrote it"
            if not is_as_connect_writes(raw, key):
                yield "these key bytes are not as Connect writes them: no worker will find them"

        decoded = decode_pairs(map(_pair, records), owners, removed=removed, notes_on=notes_on)
        open_ends = [
            f"{tp} has an open transaction: what comes after offset {captured.end_of(tp.partition)} is not decided yet"
            for tp in (captured.open_transactions if self.committed else ())
        ]
        return Snapshot(tuple(decoded.entries), (*decoded.notes, *open_ends))


def _pair(record: Record) -> RawPair:
    written = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    where: dict[str, Scalar] = {
        "kafka_partition": record.partition,
        "kafka_offset": record.offset,
        "written": written.replace("+00:00", "Z"),
    }
    return RawPair(record.key, record.value, where)


def _with_twins_noted(entries: Sequence[Stored]) -> tuple[Stored, ...]:
    counts = Counter((entry.position.owner, entry.position.partition) for entry in entries)
    twin = "this partition is stored more than once, under other key bytes or in another Kafka partition"
    return tuple(
        replace(entry, notes=(*entry.notes, twin))
        if counts[entry.position.owner, entry.position.partition] > 1
        else entry
        for entry in entries
    )
