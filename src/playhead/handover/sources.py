"""The position of a source between two owners: its fence, what is stored, and whether the topic is ahead of it.

Both engines keep it in the workers' offsets topic, under the same key. Workers with exactly-once support commit it together with
the records, under transactional ids that a fence takes over. Workers without it have no ids, save the position later than the
records, and read positions of transactions that were aborted.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from playhead.connect.keys import OWN_TOPIC
from playhead.connect.rest import Rest
from playhead.connectors.files.read import topics_of
from playhead.errors import PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.log import capture
from playhead.kafka.transactions import PlainProducer
from playhead.ledger.runs import Ledger
from playhead.model import Deadline, Map
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.connect_home import ConnectHome
from playhead.pipeline.ingest.jdbc.stream import find_ahead
from playhead.pipeline.ingest.position_log import HIDDEN_SECONDS, open_position_logs
from playhead.pipeline.ingest.steps import NOWHERE, SourceConnection
from playhead.pipeline.spec import TASKS, Ready
from playhead.stores import Stored
from playhead.stores.entries import LEGACY
from playhead.stores.offsets_topic import OffsetsTopic


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

    def settle(self, deadline: Deadline) -> None:
        """After the fence: waits until no open transaction of another connector hides what was committed for this one. Those that
        begin later hide nothing of it."""
        with Admin(self.home.settings, deadline) as admin:
            for topic in dict.fromkeys((self.home.topic, self.config.get(OWN_TOPIC) or self.home.topic)):
                _await_decided(admin, topic, deadline.within(HIDDEN_SECONDS))

    def write_again(self, deadline: Deadline) -> None:
        """Makes the committed position the newest record of every key: workers that read uncommitted records would start from
        one of an aborted transaction. A key that has no committed position gets a tombstone."""
        committed = {entry.position.partition: entry for entry in self.entries(deadline)}
        newest: dict[tuple[str, int, bytes], Stored] = {}
        for entry in self._store(deadline, committed=False).history([self.name]).entries:
            if entry.raw is not None and LEGACY not in entry.notes:
                topic, place = entry.where.get("topic", self.home.topic), entry.where["kafka_partition"]
                newest[str(topic), int(str(place)), entry.raw.key] = entry
        with PlainProducer(self.home.settings, deadline) as producer:
            for (topic, place, key), entry in newest.items():
                found = committed.get(entry.position.partition)
                value = found.raw.value if found is not None and found.raw is not None else None
                if value is not None or entry.position.offset is not None:
                    producer.produce(topic, key, value, partition=place)

    def _store(self, deadline: Deadline, *, committed: bool = True) -> OffsetsTopic:
        own = self.config.get(OWN_TOPIC)
        own_topics = {self.name: own} if own and own != self.home.topic else {}
        home = self.home
        return OffsetsTopic(
            home.settings, home.topic, committed, deadline, group_id=home.group_id, own_topics=own_topics
        )


class PositionsOnce:
    """The positions of several sources for a plan: the workers' offsets topic is read once for all of them."""

    def __init__(self, home: ConnectHome, names: Sequence[str]) -> None:
        self._home, self._names = home, names
        self._found: dict[str, dict[Map, Map]] | None = None

    def of(self, name: str, config: Mapping[str, str], deadline: Deadline) -> dict[Map, Map]:
        if config.get(OWN_TOPIC, self._home.topic) != self._home.topic:
            return SourcePositions(self._home, name, config).read(deadline)
        if self._found is None:
            home = self._home
            store = OffsetsTopic(home.settings, home.topic, True, deadline, group_id=home.group_id)
            found: dict[str, dict[Map, Map]] = {}
            for entry in store.snapshot(self._names).current().values():
                position = entry.position
                if position.offset is not None:
                    found.setdefault(position.owner, {})[position.partition] = position.offset
            self._found = found
        return self._found.get(name, {})


def _await_decided(admin: Admin, topic: str, deadline: Deadline) -> None:
    ends = {partition: at.high for partition, at in capture(admin, topic, deadline, committed=False).ends.items()}

    def is_decided() -> bool:
        now = capture(admin, topic, deadline, committed=False).ends
        return all(now[partition].stable >= end for partition, end in ends.items())

    deadline.wait_for(is_decided, f"the open transactions in {topic}, which hide positions", every=0.1)


@contextmanager
def open_connection(home: ConnectHome, ready: Ready, ledger: Ledger) -> Iterator[SourceConnection]:
    """The Kafka side of the source, with all ids that either engine may have used."""
    config, name = ready.config, ready.name
    ids = max(int(config.get(TASKS, "1")), home.fencing.get(name, 1), ledger.ids_used(home.cluster_id, name))
    with ExitStack() as parts:
        logs = parts.enter_context(open_position_logs(home.settings, config, home.topic))
        connection = SourceConnection(name, home, home.producer_settings(config), *logs, ids)
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
    """For workers without exactly-once support: refuses a topic that is ahead of the saved position, or that has records where
    none is saved. Known only for a JDBC source with an incrementing column and without transforms."""
    if ready.kind is not ConnectorKind.JDBC_SOURCE or ready.config.get("transforms", "").strip():
        return
    column = ready.config.get("incrementing.column.name", "").strip()
    if not column or "incrementing" not in ready.config.get("mode", ""):
        return
    for topic, offset in tails_of(ready.config, stored).items():
        tail = _Tail(topic, {"incrementing": column})
        connection.refuse_repeats(tail, offset, deadline)  # type: ignore[arg-type]  # what it uses of a stream


def tails_of(config: Mapping[str, str], stored: Mapping[Map, Map]) -> dict[str, Map]:
    """By topic the position with which its end is compared: that of its table, else the beginning. Tables that the config does
    not list are known by their positions only."""
    prefix = config.get("topic.prefix", "")
    tails = dict.fromkeys(topics_of(config)[1], NOWHERE)
    for partition, offset in stored.items():
        table = str(partition.get("table") or "").rpartition(".")[2]
        tails[f"{prefix}{table}"] = offset or NOWHERE
    return tails


def shown_by_worker(rest: Rest, name: str) -> dict[Map, Map]:
    return {Map(one.partition): Map(one.offset) for one in rest.get_offsets(name) if one.offset is not None}


def verify(rest: Rest, name: str, wanted: Mapping[Map, Map], deadline: Deadline, *, may_show_more: bool) -> None:
    """The worker must show these positions before the connector is resumed, and no others unless it `may_show_more`: a group may
    have partitions that the ledger does not know. It reads its topic to the end to answer."""
    seen: dict[Map, Map] = {}

    def is_shown() -> bool:
        nonlocal seen
        seen = shown_by_worker(rest, name)
        return not wrong()

    def wrong() -> list[Map]:
        places = wanted if may_show_more else {**seen, **wanted}
        return [place for place in places if seen.get(place) != wanted.get(place)]

    try:
        deadline.wait_for(is_shown, f"the worker showing the position of {name}", every=0.3)
    except PlayheadError as error:
        if not (places := wrong()):
            raise
        place = places[0]
        right = f"Spark committed {wanted[place]}" if place in wanted else "Spark committed no position there"
        raise Refused(
            f"the worker would start {name} at {seen.get(place)} of {place}, and {right}", error.hint
        ) from None
