"""The positions that move with a topic: those of groups and of sinks that run on Spark, translated by the offset map."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from playhead.errors import PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.groups import list_committed_of
from playhead.model import Position
from playhead.offsets.spark_sinks import Sinks
from playhead.pipeline.copy.translate import CopiedTopic, Translated, commits_of
from playhead.shrink.change import Change, Say
from playhead.shrink.users import Movers, find_movers
from playhead.stores import Access, Store
from playhead.stores.groups import GroupsStore, open_groups


@dataclass(frozen=True, slots=True)
class Move:
    """One owner of a position, and where it goes."""

    store: Store
    owner: str
    rows: tuple[Translated, ...]

    @property
    def repeats(self) -> int:
        return sum(row.repeats for row in self.rows)


@dataclass(frozen=True, slots=True)
class _Owner:
    """`read`: its position in the old topic; `before`: in the new one."""

    store: Store
    name: str
    read: Mapping[int, int]
    before: Mapping[int, int]


def plan_moves(change: Change, access: Access, say: Say) -> list[Move]:
    """Refused if it is not known who reads and writes the topic: who is left out would go on from a wrong position."""
    groups = open_groups(change.context, access.deadline)
    moves = []
    with groups.session() as admin:
        movers = find_movers(admin, access, change.wanted, change.recorded.connectors)
        late = [f"connector {one.name} uses it since the switch began: delete it" for one in movers.connectors]
        if objections := [*movers.objections, *late]:
            raise Refused(
                f"who reads and writes {change.topic} has to be known before positions are moved: {'; '.join(objections)}",
                "then the same command again",
            )
        copied = CopiedTopic.open(admin, admin, change.request, change.context, access.deadline)
        for one in _owners(change, access, admin, groups, movers):
            rows, warnings = copied.translate(one.name, one.read, one.before)
            moves.append(Move(one.store, one.name, rows))
            for warning in warnings:
                say(warning)
    return moves


def expected_repeats(change: Change, movers: Movers) -> dict[str, int | None]:
    """By owner: how many records it would read again if everyone was moved now. None: it has read more than is copied yet."""
    with Access(change.context, change.deadline()) as access:
        groups = open_groups(change.context, access.deadline)
        with groups.session() as admin:
            copied = CopiedTopic.open(admin, admin, change.request, change.context, access.deadline)
            owners = list(_owners(change, access, admin, groups, movers))
    return {one.name: _repeats(copied, one) for one in owners}


def _repeats(copied: CopiedTopic, owner: _Owner) -> int | None:
    if any(offset > copied.copied.get(number, 0) for number, offset in owner.read.items()):
        return None
    rows, _ = copied.translate(owner.name, owner.read, owner.before)
    return sum(row.repeats for row in rows)


def _owners(change: Change, access: Access, admin: Admin, groups: GroupsStore, movers: Movers) -> Iterator[_Owner]:
    for name, commits in list_committed_of(admin, movers.groups, access.deadline).items():
        if read := commits_of(commits, change.topic):
            yield _Owner(groups, name, read, commits_of(commits, change.recorded.target))
    sinks = Sinks(access)
    for name in movers.sinks:
        store = sinks.find(name)
        if store is None:
            raise PlayheadError(f"{name} has no position in the ledger any more")
        stored = [one.position for one in store.snapshot([name]).entries]
        yield _Owner(store, name, _offsets_in(change.topic, stored), _offsets_in(change.recorded.target, stored))


def _offsets_in(topic: str, positions: Sequence[Position]) -> dict[int, int]:
    return {
        int(str(one.partition["kafka_partition"])): int(str(one.offset["kafka_offset"]))
        for one in positions
        if one.offset is not None and one.partition["kafka_topic"] == topic
    }
