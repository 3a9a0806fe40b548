"""Compares Kafka offsets with their logs: of sinks, groups, checkpoints, SQL consumers and the ledger.

A commit is read before the log end, so an active group is never mistaken for one past the log end. That a topic was recreated
under its old name is not visible directly. Two signs are reported as a suspicion: a commit past the log end, and a commit with a
later leader epoch than any record has now.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from playhead.kafka.client import Admin
from playhead.kafka.groups import list_committed, list_committed_of
from playhead.kafka.log import find_newest_epochs
from playhead.kafka.partitions import Leaders, Span, find_leaders, find_spans
from playhead.model import Deadline, Map, TopicPartition
from playhead.offsets.doctor.case import Case
from playhead.offsets.doctor.commands import Commands, partition_words
from playhead.offsets.doctor.findings import Finding, Said
from playhead.offsets.published import find_fault
from playhead.offsets.workers import ConfiguredConnector
from playhead.stores import Stored
from playhead.stores.sink_ledger import SinkLedgerStore

Repair = Callable[[TopicPartition], str]


@dataclass(frozen=True, slots=True)
class Spot:
    """The position of one owner in one partition, and the commands that move or delete it."""

    owner: str
    place: TopicPartition
    offset: int
    epoch: int | None
    move: Repair
    forget: Repair


def check_sinks(admin: Admin, case: Case, deadline: Deadline) -> Iterator[Said]:
    """Checks the commits of the sink connectors of this cluster."""
    sinks = [connector for connector in (case.connectors or {}).values() if connector.is_sink]
    yield from shared_groups(case.commands, sinks)
    elsewhere = [connector.name for connector in sinks if connector.cluster is not None]
    if elsewhere:
        yield f"sink connectors that read from another cluster are not checked: {', '.join(sorted(elsewhere)[:5])}"
    here = {connector.name: connector.group for connector in sinks if connector.cluster is None}
    committed = list_committed_of(admin, here.values(), deadline) if here else {}
    spots = []
    for name, group in here.items():
        move, forget = _repairs(case.commands, name)
        spots += [Spot(name, tp, c.offset, c.leader_epoch, move, forget) for tp, c in committed[group].items()]
    yield from check_spots(admin, spots, deadline)


def shared_groups(commands: Commands, sinks: Iterable[ConfiguredConnector]) -> Iterator[Said]:
    groups: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for connector in sinks:
        groups[connector.group, connector.cluster].append(connector.name)
    for (group, _), names in groups.items():
        if len(names) > 1:
            what = f"{' and '.join(sorted(names))} read as one group, {group}: each gets only a part of the records"
            last = sorted(names)[-1]
            repair = commands.patch_config(last, {"consumer.override.group.id": f"connect-{last}"})
            yield Finding("shared-group", ", ".join(sorted(names)), what, repair)


def spots_of(entries: Sequence[Stored], commands: Commands, *, groups: bool) -> list[Spot]:
    """The entries of any store that are Kafka offsets."""
    found = []
    for entry in entries:
        partition, offset = entry.position.partition, entry.position.offset
        topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
        at = offset.get("kafka_offset") if offset is not None else None
        if isinstance(topic, str) and isinstance(number, int) and isinstance(at, int):
            owner = entry.position.owner
            move, forget = _group_repairs(commands, owner) if groups else _repairs(commands, owner)
            epoch = entry.where.get("leader_epoch")
            label = f"group:{owner}" if groups else owner
            place = TopicPartition(topic, number)
            found.append(Spot(label, place, at, epoch if isinstance(epoch, int) else None, move, forget))
    return found


def _repairs(commands: Commands, owner: str) -> tuple[Repair, Repair]:
    def move(tp: TopicPartition) -> str:
        return commands.ours("reset", owner, "--topic", f"{tp.topic}:{tp.partition}", "--to-earliest", stop=owner)

    def forget(tp: TopicPartition) -> str:
        partition = Map({"kafka_topic": tp.topic, "kafka_partition": tp.partition})
        return commands.ours("delete", owner, *partition_words(partition), stop=owner)

    return move, forget


def _group_repairs(commands: Commands, group: str) -> tuple[Repair, Repair]:
    def move(tp: TopicPartition) -> str:
        return commands.groups("reset", group, "--topic", f"{tp.topic}:{tp.partition}", "--to-earliest")

    def forget(tp: TopicPartition) -> str:
        return commands.groups("delete", group, "--topic", f"{tp.topic}:{tp.partition}")

    return move, forget


def check_spots(admin: Admin, spots: Sequence[Spot], deadline: Deadline) -> Iterator[Said]:
    leaders = find_leaders(admin, sorted({spot.place.topic for spot in spots if spot.place.topic}), deadline)
    there = {spot.place for spot in spots if _leader(leaders, spot.place) is not None}
    spans = find_spans(admin, there, deadline)
    epochs = find_newest_epochs(admin, {spot.place for spot in spots if spot.epoch is not None} & there, deadline)
    for spot in spots:
        of_topic = leaders.get(spot.place.topic)
        if of_topic is None or spot.place.partition not in of_topic:
            yield _gone(spot, of_topic)
        elif spot.place in spans:
            yield from judge_spot(spot, spans[spot.place], epochs.get(spot.place))
        else:
            yield f"{spot.owner}: {spot.place} has no leader and cannot be compared"


def _leader(leaders: Mapping[str, Leaders | None], place: TopicPartition) -> int | None:
    of_topic = leaders.get(place.topic)
    return None if of_topic is None else of_topic.get(place.partition)


def _gone(spot: Spot, of_topic: Leaders | None) -> Finding:
    why = (
        f"topic {spot.place.topic} does not exist"
        if of_topic is None
        else f"the topic has {len(of_topic)} partition(s)"
    )
    what = f"a position in {spot.place} ({spot.offset}), but {why}"
    return Finding("topic-gone", spot.owner, what, spot.forget(spot.place))


def judge_spot(spot: Spot, span: Span, epoch: int | None) -> Iterator[Finding]:
    """Compares one position with its log. `epoch`: of the newest record, if known."""
    if spot.offset > span.end:
        what = (
            f"{spot.place} ends at {span.end}, before the position {spot.offset}: the topic was probably deleted and recreated. "
            "A reader falls back to auto.offset.reset; records from the new start on may be skipped"
        )
        yield Finding("sink-out-of-range", spot.owner, what, spot.move(spot.place))
    elif spot.offset < span.start:
        what = (
            f"{spot.place} begins at {span.start}, after the position {spot.offset}: "
            f"{span.start - spot.offset} offset(s) were deleted before they were read"
        )
        yield Finding("sink-out-of-range", spot.owner, what, spot.move(spot.place))
    elif spot.epoch is not None and epoch is not None and spot.epoch > epoch:
        what = (
            f"the position {spot.offset} in {spot.place} was committed in leader epoch {spot.epoch}, but the newest record there "
            f"is of epoch {epoch}: the topic was probably deleted and recreated, so the position may mean other records"
        )
        yield Finding("topic-recreated", spot.owner, what, spot.move(spot.place))


def check_ledger(
    admin: Admin,
    store: SinkLedgerStore,
    connectors: dict[str, ConfiguredConnector],
    commands: Commands,
    deadline: Deadline,
    why: str = "",
) -> Iterator[Said]:
    """A run refuses to start if its group does not match the ledger, because it is then unknown what was delivered. What belongs
    to Connect since a hand-over is left out: its positions are in its group.

    `why`: the reason why the connectors of Connect, which may give a sink another group, are unknown.
    """
    from playhead.offsets.group_to_ledger import find_group, is_marked, read_sinks

    found = store.snapshot()
    sinks = [sink for sink in read_sinks(store, found.by_owner()) if not (sink.run and sink.run.is_with_connect)]
    held = {sink.name for sink in sinks}
    entries = [entry for entry in found.entries if entry.position.owner in held]
    yield from check_spots(admin, spots_of(entries, commands, groups=False), deadline)
    for sink in sinks:
        if sink.id is None or (sink.run and sink.run.is_running and not sink.run.is_silent):
            continue  # nothing was published yet, or the run is still publishing
        commits = list_committed(admin, find_group(admin, sink, connectors.get(sink.name), deadline), deadline)
        if why and not is_marked(commits, sink.id):
            yield f"the group of {sink.name} is not compared with the ledger, because it is unknown which one it is: {why}"
            continue
        for tp, commit in sorted(commits.items()):
            if tp in sink.held and (fault := find_fault(commit, sink.held[tp], sink.id)):
                what = f"the group: {tp} {fault}. Its next run on Spark will not start"
                yield Finding(
                    "group-not-at-ledger", sink.name, what, commands.groups("reset", sink.name, "--to-ledger")
                )
