"""The position of a source between two owners: its fence, what is stored, and whether the topic is ahead of it.

Both engines keep it in the workers' offsets topic, under the same key. Workers with exactly-once support commit it together with
the records, under transactional ids that a fence takes over. Workers without it have no ids, save the position later than the
records, and read positions of transactions that were aborted.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from playhead.connect.answers import OffsetEntry
from playhead.connect.keys import encode_value
from playhead.connect.rest import Rest
from playhead.errors import PlayheadError, Refused
from playhead.kafka.transactions import PlainProducer
from playhead.ledger.runs import Ledger
from playhead.model import Deadline, Map
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.connect_home import ConnectHome
from playhead.pipeline.ingest.jdbc.stream import find_ahead
from playhead.pipeline.ingest.position_log import PositionLog
from playhead.pipeline.ingest.steps import NOWHERE, SourceConnection
from playhead.pipeline.spec import TASKS, Ready
from playhead.stores import Stored
from playhead.stores.offsets_topic import OffsetsTopic

OWN_TOPIC = "offsets.storage.topic"


@dataclass(frozen=True, slots=True)
class SourcePositions:
    """What the offsets topic holds of one connector, committed records only."""

    home: ConnectHome
    name: str
    config: Mapping[str, str]

    def entries(self, deadline: Deadline) -> list[Stored]:
        return list(self._store(deadline).snapshot([self.name]).current().values())

    def read(self, deadline: Deadline) -> dict[Map, Map]:
        found = ((entry.position.partition, entry.position.offset) for entry in self.entries(deadline))
        return {partition: offset for partition, offset in found if offset is not None}

    def write_again(self, deadline: Deadline) -> int:
        """Makes the committed positions the newest records of their keys: workers that read uncommitted records would start
        from one of an aborted transaction. Returns how many there are."""
        entries = [entry for entry in self.entries(deadline) if entry.raw is not None and entry.position.offset]
        with PlainProducer(self.home.settings, deadline) as producer:
            for entry in entries:
                assert entry.raw is not None and entry.position.offset is not None  # noqa: S101  chosen above
                topic = str(entry.where.get("topic", self.home.topic))
                place = int(str(entry.where["kafka_partition"]))
                producer.produce(topic, entry.raw.key, encode_value(entry.position.offset), partition=place)
        return len(entries)

    def _store(self, deadline: Deadline) -> OffsetsTopic:
        own = self.config.get(OWN_TOPIC)
        own_topics = {self.name: own} if own and own != self.home.topic else {}
        home = self.home
        return OffsetsTopic(home.settings, home.topic, True, deadline, group_id=home.group_id, own_topics=own_topics)


@contextmanager
def open_connection(home: ConnectHome, ready: Ready, ledger: Ledger) -> Iterator[SourceConnection]:
    """The Kafka side of the source, with all ids that either engine may have used."""
    config, name = ready.config, ready.name
    ids = max(int(config.get(TASKS, "1")), home.fencing.get(name, 1), ledger.ids_used(home.cluster_id, name))
    with ExitStack() as parts:
        logs = [
            PositionLog(home.settings, topic)
            for topic in dict.fromkeys((config.get(OWN_TOPIC) or home.topic, home.topic))
        ]
        for log in logs:
            parts.callback(log.close)
        connection = SourceConnection(name, home, home.producer_settings(config), logs[0], logs[-1], ids)
        parts.callback(connection.close)
        yield connection


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a JDBC source's topic, seen as the steps of a run see it."""

    topic: str
    columns: Mapping[str, str]

    def find_ahead(self, value: bytes, position: Map) -> str | None:
        return find_ahead(value, position, self.columns)


def refuse_repeats(connection: SourceConnection, ready: Ready, stored: Mapping[Map, Map], deadline: Deadline) -> None:
    """For workers without exactly-once support: refuses a topic that is ahead of the saved position. Known only for a JDBC
    source with an incrementing column and without transforms."""
    if ready.kind is not ConnectorKind.JDBC_SOURCE or ready.config.get("transforms", "").strip():
        return
    column = ready.config.get("incrementing.column.name", "").strip()
    if not column or "incrementing" not in ready.config.get("mode", ""):
        return
    prefix = ready.config.get("topic.prefix", "")
    for partition, offset in stored.items():
        table = str(partition.get("table") or "").rpartition(".")[2]
        tail = _Tail(f"{prefix}{table}", {"incrementing": column})
        connection.refuse_repeats(tail, offset or NOWHERE, deadline)  # type: ignore[arg-type]  # what it uses of a stream


def shown_by_worker(rest: Rest, name: str) -> dict[Map, Map]:
    return {Map(one.partition): Map(one.offset) for one in rest.get_offsets(name) if one.offset is not None}


def verify(rest: Rest, name: str, wanted: Mapping[Map, Map], deadline: Deadline) -> None:
    """The worker must show these positions before the connector is resumed. It reads its topic to the end to answer."""
    seen: dict[Map, Map] = {}

    def is_shown() -> bool:
        nonlocal seen
        seen = shown_by_worker(rest, name)
        return all(seen.get(partition) == offset for partition, offset in wanted.items())

    try:
        deadline.wait_for(is_shown, f"the worker showing the position of {name}", every=0.3)
    except PlayheadError as error:
        wrong = next((p for p, offset in wanted.items() if seen.get(p) != offset), None)
        if wrong is None:
            raise
        what = f"the worker would start {name} at {seen.get(wrong)} of {wrong}, and Spark committed {wanted[wrong]}"
        raise Refused(what, error.hint) from None


def as_entries(positions: Mapping[Map, Map]) -> Sequence[OffsetEntry]:
    return [OffsetEntry(partition.to_dict(), offset.to_dict()) for partition, offset in positions.items()]
