"""The position of a sink between two owners. On Spark the ledger is the truth, in Connect the consumer group.

To Spark: what the group committed becomes the position in the ledger; the ranges in between are noted as delivered by Connect. A
file to which Connect appended gets a new recorded end. To Connect: what a killed run began is taken back (a table has nothing of
it, a line file is cut to its recorded end), then the ledger's positions are committed to the group.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from playhead.errors import Refused
from playhead.kafka.client import Admin
from playhead.kafka.groups import Commits, Committed, commit, get_group, list_committed
from playhead.kafka.topics import describe_topics
from playhead.ledger.model import BY_CONNECT, Claim, Host, RangeClaim, RunState, SinkMove, SinkPosition
from playhead.ledger.ranges import RangeLedger, swap_kept
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import Deadline, Map, TopicPartition
from playhead.model.ranges import Log
from playhead.offsets.published import LEDGER_ID, Held, Mark, judge_start
from playhead.pipeline.classes import ConnectorKind, target_ledger_url
from playhead.pipeline.connect_home import ConnectHome
from playhead.pipeline.deliver.group import GroupSettings, group_settings
from playhead.pipeline.deliver.growing_file import End, GrowingFile
from playhead.pipeline.spec import Ready


class Adopted(NamedTuple):
    """Where the ledger continues, in words, and by how much the epoch of the run grew."""

    words: str
    epochs: int


@dataclass(frozen=True, slots=True)
class SinkSide:
    """The ledger of a sink's ranges, and its group. `is_own`: the ranges are in the ledger of its run."""

    ready: Ready
    cluster: str
    ranges: RangeLedger
    is_own: bool
    group: GroupSettings

    @property
    def name(self) -> str:
        return self.ready.name

    def positions(self) -> dict[Log, SinkPosition]:
        return self.ranges.positions(self.cluster, self.name)

    def open_claims(self) -> list[RangeClaim]:
        return self.ranges.list_claims(self.cluster, self.name)

    def commits(self, admin: Admin, deadline: Deadline) -> Commits:
        found = list_committed(admin, self.group.group_id, deadline)
        return {place: at for place, at in found.items() if at.offset >= 0}

    def await_empty(self, admin: Admin, deadline: Deadline, is_given_up: Callable[[], bool] = lambda: False) -> None:
        """A member that does not leave would deliver what the other engine delivers."""
        group_id = self.group.group_id
        while members := get_group(admin, group_id, deadline).members:
            if deadline.remaining() < 1 or is_given_up():
                names = ", ".join(sorted({f"{one.client_id} at {one.host.lstrip('/')}" for one in members}))
                raise Refused(
                    f"group {group_id} still has a member: {names}",
                    "end it, or wait until its session ends, then give the same command again",
                )
            time.sleep(0.3)

    # To Spark

    def adopt(self, admin: Admin, deadline: Deadline, epoch: int | None, *, accept_repeats: bool) -> Adopted:
        """The ledger continues where Connect left the group. What a run published there is no move: it may be behind the ledger.
        A log that the ledger does not know yet is adopted by the first run. `epoch`: of the last run, as it was planned; another
        one means that something else changed the pipeline."""
        commits, known = self.commits(admin, deadline), self.positions()
        ids = _topic_ids(admin, known, deadline)
        if not accept_repeats:
            self._refuse_unknown(known, commits, ids)
        moves = [
            SinkMove(log._replace(topic_id=ids.get(log.topic, log.topic_id)), at.next_offset, found.offset)
            for log, at in known.items()
            if (found := commits.get(log.place)) and found.offset != at.next_offset and not self._is_published(found)
        ]
        self.ranges.move(self.cluster, self.name, moves, Host.here(), BY_CONNECT, epoch if self.is_own else None)
        if self.ready.kind is ConnectorKind.FILE_SINK:
            self._record_end()
        words = f"continues at {_shown({place: at.offset for place, at in commits.items()})}"
        return Adopted(words, epochs=1 if moves and self.is_own else 0)

    def _is_published(self, found: Committed) -> bool:
        """By a run of this ledger. Connect commits without a mark."""
        mark = Mark.find(found.metadata)
        return mark is not None and mark.ledger == self.ranges.recall(self.cluster, self.name, LEDGER_ID)

    def check_known(self, admin: Admin, commits: Commits, deadline: Deadline) -> None:
        """For the plan: refused as `adopt` would refuse it."""
        known = self.positions()
        self._refuse_unknown(known, commits, _topic_ids(admin, known, deadline))

    def _refuse_unknown(self, known: Mapping[Log, SinkPosition], commits: Commits, ids: Mapping[str, str]) -> None:
        """Where the group was and is no more, nothing says how far Connect delivered."""
        for log, at in sorted(known.items()):
            was_there = at.published_offset is not None and ids.get(log.topic) == log.topic_id
            if was_there and log.place not in commits:
                raise Refused(
                    f"group {self.group.group_id} has no offset for {log.place} any more, and the ledger is at {at.next_offset}:"
                    " how far Connect delivered is unknown",
                    f"commit where it was: playhead groups reset {self.group.group_id}; or --accept-repeats",
                )

    def _record_end(self) -> None:
        file = self._file
        kept = self.ranges.recall(self.cluster, self.name, _end_key(file.path))
        if kept is not None and (present := file.present_end()) and not _ends_alike(End.from_text(kept), present):
            swap = swap_kept(_end_key(file.path), kept, present.text)
            self.ranges.ledger.write(swap)

    @property
    def _file(self) -> GrowingFile:
        return GrowingFile(Path(self.ready.config["file"]).resolve())

    # To Connect

    def settle(self, claim: Claim, *, accept_repeats: bool) -> str:
        """Takes back what a killed run began and did not commit. Objects cannot be taken back: Connect cuts its own at other
        offsets, and the records would be there twice. A run in a target database that only hangs is fenced there."""
        claims = self.open_claims()
        if claims and self.ready.kind is ConnectorKind.FILES_SINK and not accept_repeats:
            raise refused_claims(self.name, claims)
        if self.ready.kind is ConnectorKind.FILE_SINK:
            self._cut_file()
        if not claims and (self.is_own or not self.positions()):
            return ""
        with self._claimed(claim) as own:
            self.ranges.give_up(own, claims)
        return f"{len(claims)} range(s) that a killed run began are left to Connect" if claims else ""

    def _cut_file(self) -> None:
        file = self._file
        kept = self.ranges.recall(self.cluster, self.name, _end_key(file.path))
        if kept is None or not file.parts.exists():
            return
        file.lock()  # refused while a process still writes to it
        try:
            file.append(End.from_text(kept), ())  # nothing after the recorded end
            file.settle()
        finally:
            file.close()

    def publish(self, claim: Claim, admin: Admin, deadline: Deadline) -> dict[TopicPartition, int]:
        """The group continues where the ledger is. Refused if something else moved the group. Topics that were deleted have no
        position any more."""
        known = self.present(admin, deadline)
        commits = self.commits(admin, deadline)
        held = {log.place: Held(at.next_offset, at.published_offset) for log, at in known.items()}
        ledger_id = self.ranges.recall(self.cluster, self.name, LEDGER_ID)
        if ledger_id is None:
            return {}
        judge_start({place: at for place, at in commits.items() if place in held}, held, ledger_id, self.name)
        behind = {log: at for log, at in known.items() if _offset(commits, log) != at.next_offset}
        if behind:
            mark = str(Mark(ledger_id, claim.epoch))
            wanted = {log.place: Committed(at.next_offset, mark) for log, at in behind.items()}
            faults = [fault for fault in commit(admin, self.group.group_id, wanted, deadline).values() if fault]
            if faults:
                raise faults[0]
            with self._claimed(claim) as own:
                self.ranges.published(own, {log: at.next_offset for log, at in behind.items()})
        return {log.place: at.next_offset for log, at in known.items()}

    def present(self, admin: Admin, deadline: Deadline) -> dict[Log, SinkPosition]:
        """The positions in topics that are there. Refused if one was recreated: its offsets mean other records."""
        known = self.positions()
        ids = _topic_ids(admin, known, deadline)
        for log, at in sorted(known.items()):
            if log.topic_id and ids.get(log.topic, log.topic_id) != log.topic_id:
                raise Refused(
                    f"topic {log.topic} was deleted and recreated, and the ledger's position ({log.place} {at.next_offset}) is"
                    " in the old one",
                    f"set where to begin in the new one: playhead offsets reset {self.name} --topic {log.topic}"
                    " --to-earliest --execute",
                )
        return {log: at for log, at in known.items() if log.topic in ids}

    @contextmanager
    def _claimed(self, claim: Claim) -> Iterator[Claim]:
        """The claim in the ledger of the ranges. In a target database it fences a run that only hangs."""
        if self.is_own:
            yield claim
            return
        ledger = self.ranges.ledger
        own = ledger.claim(self.cluster, self.name, Host.here(), {})
        try:
            yield own
        finally:
            ledger.finish(own, RunState.STOPPED, "handed over to Connect")


def refused_claims(name: str, claims: Sequence[RangeClaim]) -> Refused:
    more = f" and {len(claims) - 1} more" if len(claims) > 1 else ""
    return Refused(
        f"a run began {claims[0].range}{more} and did not finish it; objects of it may be there, which Connect cuts differently",
        f"finish it first: playhead run FILE {name}; or --accept-repeats",
    )


@contextmanager
def open_side(home: ConnectHome, ready: Ready, ledger: Ledger, seconds: float) -> Iterator[SinkSide]:
    group = group_settings(ready.name, ready.config, home.worker, home.settings)
    url = target_ledger_url(ready.kind, ready.config)
    if url is None:
        yield SinkSide(ready, home.cluster_id, RangeLedger(ledger), True, group)
        return
    with open_ledger(url, seconds) as target:
        yield SinkSide(
            ready, home.cluster_id, RangeLedger(target), _is_same(ledger, target, home.cluster_id, ready.name), group
        )


def as_positions(offsets: Mapping[TopicPartition, int]) -> dict[Map, Map]:
    """In the maps that a worker shows for a sink."""
    return {
        Map({"kafka_partition": place.partition, "kafka_topic": place.topic}): Map({"kafka_offset": offset})
        for place, offset in offsets.items()
    }


def _topic_ids(admin: Admin, known: Iterable[Log], deadline: Deadline) -> dict[str, str]:
    topics = describe_topics(admin, {log.topic for log in known}, deadline)
    return {name: topic.id for name, topic in topics.items() if topic is not None}


def _offset(commits: Commits, log: Log) -> int | None:
    found = commits.get(log.place)
    return None if found is None else found.offset


def _end_key(path: Path) -> str:
    return f"end of {path}"


def _ends_alike(one: End, other: End) -> bool:
    return (one.length, one.tail) == (other.length, other.tail)


def _is_same(own: Ledger, target: Ledger, cluster: str, name: str) -> bool:
    """Whether both URLs name one ledger. Only the run's own ledger records where the ranges are; a run in the target can have
    the same epoch by chance."""
    if own.address == target.address:
        return True
    found = [
        [run for run in ledger.list_runs() if (run.cluster, run.pipeline) == (cluster, name)]
        for ledger in (own, target)
    ]
    if not all(found):
        return False
    (one,), (other,) = found
    return other.ranges_at is not None and (one.epoch, one.host, one.started) == (
        other.epoch,
        other.host,
        other.started,
    )


def _shown(offsets: Mapping[TopicPartition, int]) -> str:
    words: Sequence[str] = [f"{place} {offset}" for place, offset in sorted(offsets.items())]
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "") or "its beginning"
