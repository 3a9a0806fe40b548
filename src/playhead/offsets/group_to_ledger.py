"""Resets the consumer group of a sink that runs on Spark to the positions of its ledger: `groups reset NAME --to-ledger`.

The ledger is the source of truth of such a sink, and the group is a copy. If the copy is moved, the next run refuses to start,
because what was delivered meanwhile is unknown. This writes the ledger's positions into the group again, with the mark that a run
would leave, and records in the ledger that they are published. A commit that a ledger published is deleted if this ledger has no
position for it.

Refused while a run is alive or the group has a member. Partitions of a topic that was deleted or recreated are skipped.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from playhead.config.ledger import ledger_url
from playhead.errors import Invalid, NotFound, PlayheadError, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.groups import Commits, list_committed, list_committed_of, list_groups
from playhead.kafka.properties import client_settings
from playhead.kafka.topics import describe_topics
from playhead.ledger.model import Claim, Run
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Change, Deadline, Map, Outcome, Outcomes, Plan, Position, Result, TopicPartition
from playhead.model.ranges import Log
from playhead.offsets.published import LEDGER_ID, Held, Mark, find_fault
from playhead.offsets.reset_options import Scope
from playhead.offsets.spark_sinks import Sinks
from playhead.offsets.workers import ConfiguredConnector, know_connectors
from playhead.stores import Access, Capabilities, Refusal, Snapshot
from playhead.stores.groups import GroupsStore
from playhead.stores.sink_ledger import SinkLedgerStore

_DONE = (Result.CHANGED, Result.UNCHANGED)


@dataclass(frozen=True, slots=True)
class LedgerSink:
    """What the ledger has of one sink. `id` None: no run of it has published anything yet."""

    name: str
    held: Mapping[TopicPartition, Held]
    logs: Mapping[TopicPartition, Log]
    id: str | None
    run: Run | None

    @property
    def mark(self) -> str:
        return str(Mark(self.id, self.run.epoch)) if self.id and self.run else ""


def read_sinks(store: SinkLedgerStore, names: Iterable[str]) -> list[LedgerSink]:
    found = []
    with open_ledger(store.url, store.deadline.remaining()) as ledger:
        sinks = RangeLedger(ledger)
        runs = {run.pipeline: run for run in ledger.list_runs() if run.cluster == store.cluster}
        for name in names:
            positions = sinks.positions(store.cluster, name)
            places = {log.place: log for log in positions}
            held = {tp: Held(positions[log].next_offset, positions[log].published_offset) for tp, log in places.items()}
            kept = sinks.recall(store.cluster, name, LEDGER_ID)
            found.append(LedgerSink(name, held, places, kept, runs.get(name)))
    return found


def find_group(admin: Admin, sink: LedgerSink, connector: ConfiguredConnector | None, deadline: Deadline) -> str:
    """Connect's name for it, if Connect has the connector; else the group with our mark; else the name Connect would use."""
    usual = connector.group if connector else f"connect-{sink.name}"
    if connector or sink.id is None or is_marked(list_committed(admin, usual, deadline), sink.id):
        return usual
    names = [group.name for group in list_groups(admin, deadline)]
    commits = list_committed_of(admin, names, deadline)
    return next((name for name in names if is_marked(commits[name], sink.id)), usual)


def is_marked(commits: Commits, ledger: str) -> bool:
    marks = (Mark.find(one.metadata) for one in commits.values())
    return any(mark is not None and mark.ledger == ledger for mark in marks)


def find_surprises(
    store: SinkLedgerStore, name: str, after: Mapping[TopicPartition, int | None], access: Access
) -> list[str]:
    """Why a run would refuse to start after these positions are set (see `find_fault`)."""
    [sink] = read_sinks(store, [name])
    if sink.id is None:
        return []
    deadline = access.deadline.share()
    with Admin(client_settings(access.context), deadline) as admin:
        commits = list_committed(admin, find_group(admin, sink, None, deadline), deadline)
    held = dict(sink.held)
    for tp, offset in after.items():
        if offset is None:
            held.pop(tp, None)
        else:
            held[tp] = Held(offset, held[tp].published if tp in held else None)
    faults = {tp: find_fault(found, held.get(tp), sink.id) for tp, found in sorted(commits.items()) if tp in after}
    return [f"{tp} {fault}" for tp, fault in faults.items() if fault]


@dataclass(frozen=True)
class LedgerGroups:
    """The groups of sinks, as a store that commits with their mark and records in the ledger what it published."""

    inner: GroupsStore
    ledger: SinkLedgerStore
    sinks: Mapping[str, LedgerSink]  # by the group

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        return self.inner.snapshot(owners)

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        return self.inner.history(owners)

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        """A run that is alive has a member in the group; one that is about to join has none yet."""
        groups = {sink.name: group for group, sink in self.sinks.items() if group in owners}
        alive = [replace(refusal, owner=groups[refusal.owner]) for refusal in self.ledger.guard(groups)]
        return alive + self.inner.guard(owners)

    def write(self, changes: Sequence[Change]) -> Outcomes:
        marks = {group: sink.mark for group, sink in self.sinks.items()}
        return Outcomes(self._noted(list(self.inner.write_marked(changes, marks))))

    def _noted(self, outcomes: list[Outcome]) -> list[Outcome]:
        for group, sink in self.sinks.items():
            done = [o.change for o in outcomes if o.change.owner == group and o.result in _DONE]
            offsets = {_place(c.partition): _offset(c.after) for c in done if c.after is not None}
            published = {sink.logs[tp]: at for tp, at in offsets.items() if tp in sink.logs and at is not None}
            if fault := self._note(sink, published):
                outcomes = [
                    replace(o, detail="; ".join(filter(None, [o.detail, fault]))) if o.change in done else o
                    for o in outcomes
                ]
        return outcomes

    def _note(self, sink: LedgerSink, published: Mapping[Log, int]) -> str:
        if sink.run is None or not published:
            return ""
        claim = Claim(self.ledger.cluster, sink.name, sink.run.epoch)
        try:
            with open_ledger(self.ledger.url, self.ledger.deadline.remaining()) as ledger:
                RangeLedger(ledger).published(claim, published)
        except PlayheadError as error:  # the group equals the ledger, and a run checks that first
            return f"not recorded in the ledger: {error.what}"
        return ""


@dataclass(frozen=True, slots=True)
class SinkConnectors:
    """The sink connectors that Connect has, for the names of their groups. `why`: the reason why they are unknown. Without a
    worker in the context there are none."""

    connectors: Mapping[str, ConfiguredConnector] = field(default_factory=dict)
    why: str = ""


def find_connectors(access: Access) -> SinkConnectors:
    try:
        found = know_connectors(access, deadline=access.deadline.share())
    except PlayheadError as error:
        return SinkConnectors(why=error.what)
    if found.connectors is None:
        return SinkConnectors(why=found.why)
    return SinkConnectors({name: connector for name, connector in found.connectors.items() if connector.is_sink})


def plan_to_ledger(
    groups: GroupsStore,
    words: Sequence[str],
    scope: Scope,
    access: Access,
    connectors: SinkConnectors,
) -> tuple[LedgerGroups, Plan]:
    """`words`: names of sinks, or of their groups. `connectors`: from `find_connectors`."""
    found = Sinks(access)
    store, names = _open(found, words, access)
    with groups.session() as admin:
        sinks = _sinks_of(admin, words, store, names, connectors)
        changes: list[Change] = []
        warnings: list[str] = []
        for group, sink in sinks.items():
            commits = list_committed(admin, group, access.deadline)
            gone, notes = _without_topic(admin, sink, access.deadline)
            warnings += [f"{group} {tp} is skipped: {why}" for tp, why in gone.items() if scope.covers(tp)]
            kept = {tp: held for tp, held in sink.held.items() if tp not in gone and scope.covers(tp)}
            changes += _moves(group, sink, kept, commits)
            others = {tp: one for tp, one in commits.items() if tp not in sink.held and scope.covers(tp)}
            changes += _forgotten(group, sink, others)
            warnings += notes
    return LedgerGroups(groups, store, sinks), Plan.of(groups.uri, changes, warnings)


def _open(found: Sinks, words: Sequence[str], access: Access) -> tuple[SinkLedgerStore, list[str]]:
    """The ledger that holds them (the context's, or in the database that they write to), and the names of its sinks."""
    named = [word if found.knows(word) else word.removeprefix("connect-") for word in words]
    if away := [name for name in named if name in found.elsewhere and name not in found.clusters]:
        places = {store.uri: store for store in map(found.find, away) if store is not None}
        if len(places) != 1 or len(away) < len(named):
            raise Invalid("these sinks are not all in one ledger", "name only sinks of one ledger")
        return next(iter(places.values())), away
    if not found.clusters:
        if found.why is not None:
            raise found.why
        raise Invalid(f"{ledger_url(access.context)} has no sink", "name the ledger of the run: --ledger URL")
    if found.cluster is None:
        client_settings(access.context)  # raises with the setting that is missing
        raise Invalid("the id of the Kafka cluster is unknown", "name the brokers: -b host:9092")
    return found.open(found.cluster), [name for name in found.names if name in found.clusters]


def _sinks_of(
    admin: Admin,
    words: Sequence[str],
    store: SinkLedgerStore,
    names: Sequence[str],
    connect: SinkConnectors,
) -> dict[str, LedgerSink]:
    connectors = connect.connectors
    known = {sink.name: sink for sink in read_sinks(store, names)}
    sinks: dict[str, LedgerSink] = {}
    for word in dict.fromkeys(words):
        if word in known:
            group = find_group(admin, known[word], connectors.get(word), store.deadline)
            if connect.why and not is_marked(list_committed(admin, group, store.deadline), known[word].id or ""):
                raise Unreachable(
                    f"the consumer group of {word} is unknown: {connect.why}",
                    f"if Connect gives it no other group, name it: playhead groups reset {group} --to-ledger",
                )
            sinks[group] = known[word]
            continue
        marks = (Mark.find(one.metadata) for one in list_committed(admin, word, store.deadline).values())
        ids = {mark.ledger for mark in marks if mark is not None}
        name = next((name for name, sink in known.items() if sink.id in ids), None)
        name = name or next((c.name for c in connectors.values() if c.group == word), word.removeprefix("connect-"))
        if name not in known:
            raise NotFound("sink in the ledger", word, names)
        sinks[word] = known[name]
    return sinks


def _without_topic(admin: Admin, sink: LedgerSink, deadline: Deadline) -> tuple[dict[TopicPartition, str], list[str]]:
    topics = describe_topics(admin, {tp.topic for tp in sink.held}, deadline)
    gone = {}
    for tp, log in sink.logs.items():
        now = topics[tp.topic]
        if now is None:
            gone[tp] = f"topic {tp.topic} does not exist any more"
        elif now.id != log.topic_id:
            gone[tp] = f"topic {tp.topic} was deleted and recreated, and the ledger's position is in the old one"
    notes = (
        [] if sink.held else [f"the ledger has no position of {sink.name}: the commits that it published are deleted"]
    )
    return gone, notes


def _moves(group: str, sink: LedgerSink, held: Mapping[TopicPartition, Held], commits: Commits) -> list[Change]:
    changes = []
    for tp, at in sorted(held.items()):
        found = commits.get(tp)
        mark = Mark.find(found.metadata) if found else None
        is_ours = sink.id is None or (mark is not None and mark.ledger == sink.id)
        if found is not None and found.offset == at.position and is_ours:
            continue
        wanted = Position.of_kafka(group, *tp, at.position)
        before = Position.of_kafka(group, *tp, found.offset).offset if found else None
        note = "the same offset, with the mark of the ledger" if before == wanted.offset else ""
        changes.append(Change(group, wanted.partition, before, wanted.offset, note))
    return changes


def _forgotten(group: str, sink: LedgerSink, others: Commits) -> list[Change]:
    changes = []
    for tp, found in sorted(others.items()):
        if find_fault(found, None, sink.id or ""):
            there = Position.of_kafka(group, *tp, found.offset)
            note = "published by a ledger, but this ledger has no position for it"
            changes.append(Change(group, there.partition, there.offset, None, note))
    return changes


def _place(partition: Map) -> TopicPartition:
    return TopicPartition(str(partition["kafka_topic"]), int(str(partition["kafka_partition"])))


def _offset(offset: Map | None) -> int | None:
    found = offset.get("kafka_offset") if offset is not None else None
    return found if isinstance(found, int) else None
