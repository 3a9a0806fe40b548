"""The positions of sinks that run on Spark: `ledger+sqlite:///path#CLUSTER`, `ledger+postgresql://user@host/db#CLUSTER`.

An owner is a pipeline. CLUSTER is the id of the Kafka cluster that it reads; by default, that of the context's brokers. The
ledger, not the consumer group, is the source of truth of such a sink: the next run publishes to its group what was set here. A
live run is refused, and no flag overrides that: the run would continue with a claim that no longer exists. All changes of an
owner are one SQL transaction, and are compared with `before` while the run's row is locked. See `ledger.moves` for the effect on
the ranges.

To set a position, the topic must exist: the ledger stores the topic id with the position. For a recreated topic the new id is
stored. Without brokers in the context, only stored positions can be set, with their stored topic id.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from playhead.config import Context
from playhead.config.ledger import SINKS_SCHEME, ledger_url, may_hold_something
from playhead.errors import Invalid, Refused
from playhead.kafka.client import Admin, describe_cluster
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import describe_topics
from playhead.ledger.model import Host, RangeClaim, RangeState, RecordedRange, Run, SinkMove, SinkMoved, SinkPosition
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_context_ledger, open_ledger
from playhead.model import Change, Deadline, Outcomes, Position, Result, TopicPartition
from playhead.model.position import Scalar
from playhead.model.ranges import Log, OffsetRange
from playhead.model.times import to_iso
from playhead.sql.address import parse_address
from playhead.stores import Access, Capabilities, Refusal, Snapshot, Stored
from playhead.stores.kafka_changes import KafkaChange, by_owner, write_owners
from playhead.stores.open import find_brokers

_SECONDS = 10.0
FindIds = Callable[[Collection[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class SinkLedgerStore:
    """`find_ids`: topic -> its current id, for topics that exist; None if no broker is named."""

    url: str
    cluster: str
    deadline: Deadline
    find_ids: FindIds | None = None

    @property
    def uri(self) -> str:
        shown = parse_address(self.url).shown.removeprefix("sql+")
        return f"{SINKS_SCHEME}{shown}#{self.cluster}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(history=True)

    @contextmanager
    def open(self) -> Iterator[RangeLedger]:
        with open_ledger(self.url, self.deadline.remaining()) as ledger:
            yield RangeLedger(ledger)

    def runs_of(self, sinks: RangeLedger) -> dict[str, Run]:
        """The newest run of each pipeline of this cluster, sources too."""
        return {run.pipeline: run for run in sinks.ledger.list_runs() if run.cluster == self.cluster}

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        entries: list[Stored] = []
        with self.open() as sinks:
            for owner in _named(sinks, self.cluster, owners):
                claims = {one.range.log: one for one in sinks.list_claims(self.cluster, owner)}
                found = sinks.positions(self.cluster, owner)
                entries += [_stored(owner, log, position, claims.get(log)) for log, position in found.items()]
        return Snapshot(tuple(entries))

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        """The end of each range that moved a position, and the current positions."""
        entries: list[Stored] = []
        with self.open() as sinks:
            for owner in _named(sinks, self.cluster, owners):
                ranges = reversed(sinks.list_ranges(self.cluster, owner))
                entries += [_ended(owner, one) for one in ranges if not one.is_replay]
                found = sinks.positions(self.cluster, owner)
                entries += [_stored(owner, log, position, None) for log, position in found.items()]
        return Snapshot(tuple(entries))

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        with self.open() as sinks:
            runs = self.runs_of(sinks)
        return [
            Refusal(name, f"{name} is {run.words}, by {run.host}", f"playhead runs stop {name} --execute")
            for name, run in runs.items()
            if name in owners and run.is_alive
        ]

    def write(self, changes: Sequence[Change]) -> Outcomes:
        steps = by_owner(changes)
        topics = {step.place.topic for wanted in steps.values() for step in wanted if step.after is not None}
        ids = self.find_ids(topics) if self.find_ids and topics else {}
        with self.open() as sinks:
            return write_owners(changes, steps, lambda owner, wanted: self._written(sinks, owner, wanted, ids))

    def find_cuts(self, owner: str, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
        """The delivered ranges that contain these offsets: a position cannot be set inside a range."""
        cuts: dict[TopicPartition, OffsetRange] = {}
        ids = self.find_ids({place.topic for place in wanted}) if self.find_ids and wanted else {}
        with self.open() as sinks:
            for log in sinks.positions(self.cluster, owner):
                place = log.place
                if place in wanted and ids.get(log.topic, log.topic_id) == log.topic_id:
                    found = sinks.find_range_around(self.cluster, owner, log, wanted[place])
                    cuts |= {} if found is None else {place: found}
        return cuts

    def _written(
        self, sinks: RangeLedger, owner: str, steps: Sequence[KafkaChange], ids: Mapping[str, str]
    ) -> list[tuple[Result, str]]:
        known = {log.place: log for log in sinks.positions(self.cluster, owner)}
        try:
            moves = [SinkMove(self._log(step, known, ids), step.before, step.after) for step in steps]
            moved = sinks.move(self.cluster, owner, moves, Host.here())
        except Refused as error:
            refusal = f"{error.what}; {error.hint}" if error.hint else error.what
            return [(Result.REFUSED, refusal)] * len(steps)
        return [(Result.CHANGED if one.changed else Result.UNCHANGED, _effects(one)) for one in moved]

    def _log(self, step: KafkaChange, known: Mapping[TopicPartition, Log], ids: Mapping[str, str]) -> Log:
        stored = known.get(step.place, Log(step.place.topic, "", step.place.partition))
        if step.after is None:
            return stored
        if self.find_ids is None:
            if not stored.topic_id:
                raise Refused(f"the id of the topic {stored.topic} is unknown", "name the brokers: -b host:9092")
            return stored
        if stored.topic not in ids:
            raise Refused(f"topic {stored.topic} does not exist")
        return stored._replace(topic_id=ids[stored.topic])


def open_uri(uri: str, access: Access) -> SinkLedgerStore:
    url, cluster = _parted(uri)
    own = ledger_url(access.context)
    return open_sinks(own if _is_same(url, own) else url, cluster, access)


def is_ledger_of(uri: str, context: Context) -> bool:
    """True for sinks of the context's ledger, or of a database that a run in that ledger writes to."""
    url = _parted(uri)[0]
    if _is_same(url, ledger_url(context)):
        return True
    if not may_hold_something(context):
        return False
    with open_context_ledger(context, _SECONDS) as ledger:
        return any(_is_same(url, run.ranges_at or "") for run in ledger.list_runs())


def open_sinks(url: str, cluster: str, access: Access) -> SinkLedgerStore:
    """The sinks of the ledger at this URL. `cluster` empty: that of the context's brokers."""
    brokers = find_brokers(access.context)
    if not cluster and brokers is None:
        raise Invalid(
            "a ledger can hold sinks of several clusters", "name the brokers, or append #CLUSTER-ID to its URL"
        )
    open_ledger(url, 1.0).close()  # an invalid URL fails now
    if not cluster and brokers is not None:
        cluster = describe_cluster(brokers, access.deadline).id
    finder = None if brokers is None else _ids_of(brokers, cluster, access.deadline)
    return SinkLedgerStore(url, cluster, access.deadline, finder)


def _parted(uri: str) -> tuple[str, str]:
    rest = uri.removeprefix(SINKS_SCHEME)
    url, mark, cluster = rest.rpartition("#")
    return (url, cluster) if mark else (rest, "")


def _is_same(url: str, own: str) -> bool:
    """Whether both are the same ledger. Passwords are not compared: a store URI has none, the context may have one."""
    try:
        return parse_address(url).shown == parse_address(own).shown
    except Invalid:
        return False


def _ids_of(brokers: ClientSettings, cluster: str, deadline: Deadline) -> FindIds:
    def find(topics: Collection[str]) -> dict[str, str]:
        with Admin(brokers, deadline) as admin:
            if admin.cluster.id != cluster:
                raise Refused(
                    f"the sinks read the cluster {cluster}, but the brokers are of {admin.cluster.id}",
                    "name the brokers of that cluster",
                )
            found = describe_topics(admin, topics, deadline)
        return {name: topic.id for name, topic in found.items() if topic is not None}

    return find


def _named(sinks: RangeLedger, cluster: str, owners: Collection[str] | None) -> list[str]:
    return sinks.list_pipelines(cluster) if owners is None else list(owners)


def _stored(owner: str, log: Log, position: SinkPosition, opened: RangeClaim | None) -> Stored:
    where: dict[str, Scalar] = {
        "written": None if position.written_at is None else to_iso(position.written_at),
        "written_by": position.written_by,
        "topic_id": position.topic_id,
        "generation": position.generation,
        "published": position.published_offset,
    }
    begun = "" if opened is None else str(opened.range)
    notes = (f"{begun} is claimed and not finished; an edit gives it up",) if begun else ()
    at = Position.of_kafka(owner, log.topic, log.partition, position.next_offset)
    return Stored(at, where, notes, begun=begun)


def _ended(owner: str, one: RecordedRange) -> Stored:
    at = one.closed.range
    where: dict[str, Scalar] = {
        "written": to_iso(one.committed_at),
        "written_by": f"run {one.epoch}",
        "topic_id": at.topic_id,
        "generation": one.generation,
    }
    result = one.note or f"{one.closed.count} record(s) delivered"
    notes = (f"[{at.start},{at.end}) {result}" + (", superseded" if one.state is RangeState.SUPERSEDED else ""),)
    return Stored(Position.of_kafka(owner, at.topic, at.partition, at.end), where, notes)


def _effects(moved: SinkMoved) -> str:
    effects = []
    if moved.abandoned is not None:
        effects.append(f"{moved.abandoned.range} was claimed and not finished: what is already written stays")
    if moved.superseded:
        effects.append(f"{moved.superseded} range(s) will be delivered again")
    if moved.restored:
        effects.append(f"{moved.restored} range(s) count as delivered again")
    effects += [f"{one} is skipped and will not be delivered" for one in moved.skipped]
    return "; ".join(effects)
