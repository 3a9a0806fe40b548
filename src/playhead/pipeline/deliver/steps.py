"""The steps of a sink: each claims offset ranges in the ledger, writes them, and commits them there.

Positions are in the ledger, and the consumer group has a copy. While a sink is open, the driver is a member of the group that
Connect's tasks would use, so that none of them gets a partition. Between steps it checks that it is still the only member.
"""

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from playhead.errors import Invalid, PlayheadError, Refused, RowsRefused
from playhead.kafka.client import Admin
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import Ends
from playhead.ledger.model import Claim, Done, RangeClaim, SinkPosition
from playhead.ledger.ranges import RangeLedger
from playhead.model import Deadline, Map
from playhead.model.ranges import Log, OffsetRange
from playhead.offsets.published import LEDGER_ID, MOST_NAMED, Held, Mark, judge_start
from playhead.pipeline.deliver.claims import Claiming
from playhead.pipeline.deliver.group import GroupSettings, SeatLost, SinkGroup
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED, ReadOptions
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import Sink, SinkStep, TaskCommit
from playhead.pipeline.deliver.task import deliver
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.slots import SlotUser
from playhead.pipeline.spark import bind_address, driver_host
from playhead.pipeline.step import IDLE, Left, LeftUnit, PlanAgain, StepReport, Underway
from playhead.pipeline.task_link import CommitGate

JOIN_SECONDS = 60.0
STEP_CHUNKS = 2  # claims of a step per slot: takes far less time than the group allows
WAIT_SECONDS = 3.0  # how long to wait for slots before the group is checked again


@dataclass(frozen=True, slots=True)
class Delivery:
    """A sink connector as it runs here. `claim`: this run in the ledger of `ranges`, which may be in the target database.

    `properties`: of the consumers, under Java's names, with their secrets. `is_once`: the run ends when it is caught up; with
    `closes_tail` it then also writes records below a full cut. `is_one_transaction`: rows and ranges are committed together,
    so nothing of an open claim is written.
    """

    name: str
    ranges: RangeLedger
    claim: Claim
    group: GroupSettings
    properties: Mapping[str, str]
    find_topics: Callable[[Admin, Deadline], Sequence[str]]
    policy: RejectPolicy
    offsets_per_claim: int
    is_once: bool
    closes_tail: bool
    is_one_transaction: bool

    @property
    def committed_only(self) -> bool:
        """True unless the connector's consumer settings say otherwise, although Kafka's default is read_uncommitted."""
        return self.group.properties.get(ISOLATION, READ_COMMITTED) == READ_COMMITTED


class Deliver:
    """The `Work` of a sink connector. It is a member of the group, and the ledger has a position for every partition."""

    def __init__(
        self, spark: SparkSession, slots: SlotUser, delivery: Delivery, sink: Sink, note: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._slots = slots
        self._delivery = delivery
        self._sink = sink
        self._note = note
        self._ranges = delivery.ranges
        self._claim = delivery.claim
        self._is_resumed = False
        self._claims: Sequence[RangeClaim] = ()
        self._incarnations: dict[tuple[str, str], int] = {}
        self._gate: CommitGate | None = None
        self._now = IDLE
        per_claim = delivery.offsets_per_claim
        self._claiming = Claiming(
            sink.shape, sink.fewest_records, per_claim, STEP_CHUNKS * slots.total * per_claim, self._closes_tail
        )
        for text in sink.notes:
            note(text)
        deadline = self._deadline()
        with ExitStack() as parts, _rejoining():
            parts.callback(sink.close)
            self._admin = parts.enter_context(ReconnectingAdmin(delivery.group.client))
            self._logs = TopicLogs(self._admin)
            self._group = parts.enter_context(SinkGroup(delivery.group, self._topics(deadline)))
            self._admin.ask(delivery.policy.prepare, deadline)
            self._group.join(Deadline(JOIN_SECONDS), note)
            self._mark = Mark(self._recall(LEDGER_ID, _new_id), self._claim.epoch)
            self._positions = self._started(deadline)
            self._parts = parts.pop_all()

    def close(self) -> None:
        self._parts.close()

    @property
    def underway(self) -> Underway:
        return self._now

    def keep_alive(self) -> None:
        """A member that does not poll loses its partitions, so it polls in the pause between two rounds."""
        with _rejoining():
            self._group.check(self._deadline())

    def steps(self) -> Generator[StepReport, None, None]:
        """Up to the ends as read now: a topic that grows faster than it is read does not keep a run from ending."""
        with _rejoining():
            deadline = self._deadline()
            self._now = Underway("planning")
            self._watch_topics(deadline)
            ends = self._logs.ends(self._positions, deadline)
            self._check_ends(ends)
            if self._delivery.committed_only:
                for text in self._logs.what_holds_back(ends, deadline):
                    self._note(text)
            while claims := self._next_claims(ends):
                self._now = Underway(f"delivering {_topics_of(claims)}", left=self._left_of(ends))
                yield from self._step(claims)
            self._now = IDLE

    # Before the first step

    def _topics(self, deadline: Deadline) -> Sequence[str]:
        topics = self._admin.ask(self._delivery.find_topics, deadline)
        if not topics:
            raise Invalid(f"topics.regex of {self._delivery.name} matches no topic", "create the topics first")
        return topics

    def _started(self, deadline: Deadline) -> dict[Log, SinkPosition]:
        """Adopts the group's offsets where the ledger has no position, then publishes the ledger's positions in the group."""
        logs = self._logs.find(self._group.topics, deadline)
        known = self._known(logs)
        held = {log.place: Held(at.next_offset, at.published_offset) for log, at in known.items()}
        commits = {place: at for place, at in self._group.read(deadline).items() if at.offset >= 0}
        start = judge_start(commits, held, self._mark.ledger, self._delivery.name)
        adopted = {log: start.adopted[log.place] for log in logs if log.place in start.adopted}
        fresh = [log for log in logs if log not in known and log not in adopted]
        read_before = {log.topic for log in (*known, *adopted)}
        grown = [log for log in fresh if log.topic in read_before]  # all their records are newer than the last run
        begins = self._beginnings(grown, "earliest", deadline)
        begins |= self._beginnings([log for log in fresh if log not in grown], self._delivery.group.begins_at, deadline)
        self._ranges.adopt(self._claim, {**adopted, **begins})
        if adopted:
            self._ranges.published(self._claim, adopted)
        positions = self._known(logs)
        self._publish({log: at.next_offset for log, at in positions.items()}, deadline)
        return positions

    def _known(self, logs: Sequence[Log]) -> dict[Log, SinkPosition]:
        found = {log.place: (log, at) for log, at in self._stored().items()}
        for log in logs:
            stored = found.get(log.place)
            if stored is not None and stored[0] != log:
                raise Refused(
                    f"topic {log.topic} was deleted and recreated: the ledger is at {stored[1].next_offset} of the old one",
                    f"start again with the new one: playhead offsets delete {self._delivery.name} --all, then --execute; what"
                    " was delivered of the old one stays",
                )
        return {log: found[log.place][1] for log in logs if log.place in found}

    def _stored(self) -> dict[Log, SinkPosition]:
        return self._ranges.positions(self._claim.cluster, self._claim.pipeline)

    def _beginnings(self, logs: Sequence[Log], where: str, deadline: Deadline) -> dict[Log, int]:
        if not logs:
            return {}
        if where not in ("earliest", "latest"):
            raise Refused(
                f"{logs[0].topic}-{logs[0].partition} has no position yet, and auto.offset.reset is {where}",
                "set consumer.override.auto.offset.reset to earliest or latest, or give it a position",
            )
        ends = self._logs.ends(logs, deadline)
        return {log: ends[log].start if where == "earliest" else self._end(ends[log]) for log in logs}

    # Between steps

    def _watch_topics(self, deadline: Deadline) -> None:
        """New topics of a pattern and new partitions begin at their start: all their records are newer than this run."""
        self._group.subscribe(self._topics(deadline), deadline)
        self._group.check(deadline)
        logs = self._logs.find(self._group.topics, deadline)
        known = self._known(logs)
        if fresh := [log for log in logs if log not in known and log.place in self._group.partitions]:
            self._ranges.adopt(self._claim, self._beginnings(fresh, "earliest", deadline))
            known = self._known(logs)
        self._positions = known

    def _check_ends(self, ends: Mapping[Log, Ends]) -> None:
        for log, at in self._positions.items():
            place, next_offset = log.place, at.next_offset
            if next_offset < ends[log].start:
                raise Refused(
                    f"{place}: the ledger is at {next_offset}, but the topic begins at {ends[log].start} now;"
                    f" {ends[log].start - next_offset} offset(s) expired before they were delivered",
                    f"skip them: playhead offsets set {self._delivery.name} ... --execute",
                )
            if next_offset > ends[log].high:
                raise Refused(
                    f"{place}: the ledger is at {next_offset}, but the topic ends at {ends[log].high}",
                    "check that this is the cluster and the topic of the earlier runs",
                )

    def _next_claims(self, ends: Mapping[Log, Ends]) -> list[RangeClaim]:
        """Claims that an earlier run left open come first, unchanged. Then new claims up to these ends, not stored yet."""
        up_to = {log: self._end(at) for log, at in ends.items()}
        return self._open_claims() or self._claiming.next(self._positions, up_to, _now_ms())

    def _left_of(self, ends: Mapping[Log, Ends]) -> Left:
        behind = (self._end(ends[log]) - at.next_offset for log, at in self._positions.items() if log in ends)
        return Left(sum(max(0, count) for count in behind), LeftUnit.OFFSETS)

    def _step(self, claims: Sequence[RangeClaim]) -> Iterator[StepReport]:
        """The group is checked again once the slots are granted: waiting for them may take long."""
        with self._slots.request(len(claims)) as ticket:
            while not ticket.wait(WAIT_SECONDS):
                self._group.check(self._deadline())
            self._group.check(self._deadline())
            self._ranges.plan(self._claim, claims)
            yield from self._tried(claims)

    def _tried(self, claims: Sequence[RangeClaim]) -> Iterator[StepReport]:
        """If the target refuses rows, a second try finds them and rejects them one by one. A task of the first try may commit
        after that try has failed: what it delivered is counted after the second."""
        counted: set[OffsetRange] = set()
        try:
            yield self._attempt(claims)
            return
        except PlayheadError as error:
            kept = self._kept(claims, counted, error)
            if not isinstance(error, RowsRefused):
                if kept is not None:
                    yield replace(kept, problem=_rejoinable(error))
                raise
        if kept is not None:
            yield kept
        self._group.check(self._deadline())
        left = self._ranges.open_claims(self._claim)
        try:
            if left:
                yield self._attempt(left, is_careful=True)
                counted |= {claim.range for claim in left}
        except PlayheadError as error:
            kept = self._kept(claims, counted, error)
            if kept is not None:
                yield replace(kept, problem=_rejoinable(error))
            raise
        if (late := self._kept(claims, counted)) is not None:
            yield late

    def _attempt(self, claims: Sequence[RangeClaim], *, is_careful: bool = False) -> StepReport:
        self._claims = claims
        done = self._delivered(claims, is_careful=is_careful)
        self._confirm()
        left = self._left(done) if self._sink.commits_in_tasks else done
        self._ranges.commit_all(self._claim, left, self._sink.merging(left))
        return self._report(done)

    def _delivered(self, claims: Sequence[RangeClaim], *, is_careful: bool) -> list[Done]:
        incarnations = {claim.range.topic: self._incarnation(claim.range.log) for claim in claims}
        step = SinkStep(self._recall, self._samples(claims), self._task_commit, is_careful, incarnations)
        writer = self._sink.writer(step)
        reading = ReadOptions(self._delivery.properties, self._sink.has_keys, self._sink.has_headers)
        try:
            # Tasks that commit themselves report rejected records only if the table took the others.
            was_tried = is_careful and not self._sink.commits_in_tasks
            policy = replace(self._delivery.policy, was_tried=was_tried)
            return deliver(self._spark, reading, claims, writer, policy)
        except PlayheadError:
            if self._gate is not None and self._gate.error is not None:
                raise self._gate.error from None  # the reason why the tasks were stopped
            raise

    def _task_commit(self) -> TaskCommit:
        if self._gate is None:
            gate = CommitGate(self._confirm, driver_host(self._spark), bind_address(self._spark))
            self._gate = self._parts.enter_context(gate)
        return TaskCommit(self._claim, self._gate.permit)

    def _confirm(self) -> None:
        """Checks topics and group right before a commit. For tasks that commit themselves it runs in another thread."""
        deadline = self._deadline()
        self._logs.check_same([claim.range.log for claim in self._claims], deadline)
        self._group.confirm(deadline)

    def _left(self, done: Sequence[Done]) -> list[Done]:
        """The claims without a record. Tasks have committed the others."""
        still_open = self._ranges.open_claims(self._claim)
        return [(claim, closed) for claim, closed in done if claim in still_open]

    def _open_claims(self) -> list[RangeClaim]:
        """The claims that an earlier run has left open."""
        if self._is_resumed:
            return []
        claims = self._ranges.open_claims(self._claim)
        if others := [claim for claim in claims if claim.shape != self._sink.shape]:
            self._give_up(others)
            claims = [claim for claim in claims if claim not in others]
        if claims:
            self._note(f"continues claims of an earlier run: {_named(claims)}")
        self._is_resumed = True
        return claims

    def _give_up(self, claims: Sequence[RangeClaim]) -> None:
        """Gives up open claims that were started with other options."""
        if not self._delivery.is_one_transaction:
            raise Refused(
                f"{_named(claims)} was started with other options, and part of it may be written",
                "run it once with the old options, then change them; or give it up, so that it is delivered again and what is"
                f" already written stays: playhead offsets reset {self._delivery.name} --to-current --execute",
            )
        self._ranges.give_up(self._claim, claims)
        self._note(f"started with other options, not written, and planned again: {_named(claims)}")

    def _end(self, ends: Ends) -> int:
        return ends.stable if self._delivery.committed_only else ends.high

    def _closes_tail(self, last_closed_ms: int, now_ms: int) -> bool:
        if self._delivery.is_once:
            return self._delivery.closes_tail
        return self._sink.tail_is_due(last_closed_ms, now_ms)

    # After the commit

    def _report(self, done: Sequence[Done], *, is_published: bool = True) -> StepReport:
        """What follows the commit may fail. The rows are delivered anyway, and counted."""
        rows = sum(each.count for _, closed in done for each in closed)
        rejected = sum(each.rejected for _, closed in done for each in closed)
        last, closed = done[-1]
        position = Map({"kafka_offset": closed[-1].range.end if closed else last.range.start})
        note = f"{rejected} record(s) of a step were rejected" if rejected else ""
        report = StepReport(str(last.range.place), position, rows, note)
        try:
            self._settle(done, is_published=is_published)
        except PlayheadError as error:
            return replace(report, problem=_rejoinable(error))
        return report

    def _settle(self, done: Sequence[Done], *, is_published: bool) -> None:
        self._sink.settled([claim for claim, _ in done])
        self._claiming.learn(done, _now_ms())
        stored = self._stored()
        self._positions |= {claim.range.log: stored[claim.range.log] for claim, _ in done}
        if is_published:
            moved = {claim.range.log for claim, closed in done if closed}
            self._publish({log: self._positions[log].next_offset for log in moved}, self._deadline())

    def _kept(
        self, claims: Sequence[RangeClaim], counted: set[OffsetRange], error: PlayheadError | None = None
    ) -> StepReport | None:
        """Of a step that failed: what its tasks have committed themselves and is not `counted` yet. It is not published after a
        refusal, because the group or the topics have changed then."""
        if not self._sink.commits_in_tasks:
            return None
        run = self._claim
        done: list[Done] = []
        with suppress(PlayheadError):  # the database may be what failed; its ledger has the ranges anyway
            for claim in claims:
                if claim.range in counted:
                    continue
                newest = self._ranges.list_ranges(run.cluster, run.pipeline, claim.range.log, 1)
                done += [
                    (claim, [one.closed]) for one in newest if (one.epoch, one.closed.range) == (run.epoch, claim.range)
                ]
        counted |= {claim.range for claim, _ in done}
        return self._report(done, is_published=not isinstance(error, Refused)) if done else None

    def _publish(self, offsets: Mapping[Log, int], deadline: Deadline) -> None:
        self._group.publish({log.place: offset for log, offset in offsets.items()}, self._mark, deadline)
        if offsets:
            self._ranges.published(self._claim, offsets)

    def _incarnation(self, log: Log) -> int:
        """Of its topic. It does not change while the topic exists."""
        key = (log.topic, log.topic_id)
        if key not in self._incarnations:
            self._incarnations[key] = self._ranges.incarnation(self._claim.cluster, self._claim.pipeline, *key)
        return self._incarnations[key]

    def _recall(self, key: str, make: Callable[[], str]) -> str:
        found = self._ranges.recall(self._claim.cluster, self._claim.pipeline, key)
        return self._ranges.remember(self._claim, key, make()) if found is None else found

    def _samples(self, claims: Sequence[RangeClaim]) -> dict[str, Callable[[], pa.RecordBatch]]:
        spans: dict[str, list[OffsetRange]] = {}
        for claim in claims:
            spans.setdefault(claim.range.topic, []).append(claim.range)
        return {
            topic: partial(self._logs.sample, ranges, self._deadline(), committed=self._delivery.committed_only)
            for topic, ranges in spans.items()
        }

    def _deadline(self) -> Deadline:
        return Deadline(self._delivery.group.step_seconds)


def _rejoinable(error: PlayheadError) -> PlayheadError:
    """A membership lost to an outage of the brokers becomes `PlanAgain`: no other member has our partitions, so joining
    again may help."""
    if isinstance(error, SeatLost) and not error.is_taken:
        return PlanAgain(error.what, error.hint)
    return error


@contextmanager
def _rejoining() -> Iterator[None]:
    try:
        yield
    except SeatLost as lost:
        raise _rejoinable(lost) from None


def _named(claims: Sequence[RangeClaim]) -> str:
    more = f" and {len(claims) - MOST_NAMED} more" if len(claims) > MOST_NAMED else ""
    return ", ".join(str(claim.range) for claim in claims[:MOST_NAMED]) + more


def _topics_of(claims: Sequence[RangeClaim]) -> str:
    topics = sorted({claim.range.topic for claim in claims})
    return ", ".join(topics[:MOST_NAMED]) + (", ..." if len(topics) > MOST_NAMED else "")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _new_id() -> str:
    return secrets.token_hex(8)
