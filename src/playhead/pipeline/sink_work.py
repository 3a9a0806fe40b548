"""The work of a sink connector: steps over its topic partitions, each claimed in the ledger before and committed there after.

The ledger is the truth and the consumer group its copy. While this work is open, the driver sits in the group that Connect's
tasks would use, so that none of them gets a partition meanwhile; between steps it looks whether it still sits there alone.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from playhead.errors import Invalid, PlayheadError, Refused, RowsRefused
from playhead.kafka.client import Admin
from playhead.kafka.topics import Ends
from playhead.model import Deadline, Map
from playhead.model.ranges import Log, OffsetRange
from playhead.offsets.published import LEDGER_ID, MOST_NAMED, Held, Mark, judge_start
from playhead.pipeline.asking import Asking
from playhead.pipeline.claiming import Claiming
from playhead.pipeline.connector_run import ConnectorRun, Moved
from playhead.pipeline.consent import Consents
from playhead.pipeline.deliver import ISOLATION, READ_COMMITTED, Reading, deliver
from playhead.pipeline.group import GroupSettings, SeatLost, SinkGroup
from playhead.pipeline.rejects import RejectPolicy
from playhead.pipeline.session import bind_address, driver_host
from playhead.pipeline.sinks import Committing, Sink, Step
from playhead.pipeline.topic_logs import TopicLogs
from playhead.sql.ledger_values import Claim
from playhead.sql.range_ledger import RangeLedger
from playhead.sql.range_records import SinkPosition
from playhead.sql.range_values import Done, RangeClaim

JOIN_SECONDS = 60.0
STEP_CHUNKS = 2  # so many times what one step of a partition takes, for every slot: far below what the group allows


@dataclass(frozen=True, slots=True)
class Delivery:
    """A sink connector as it runs here. `claim` is ours in the ledger of `ranges`, which may be the target's own database.

    `properties`: of the consumers, in Java's names, with their secrets. `closes_tail`: a run that ends writes what is below a
    full cut, too. `is_one_transaction`: rows and ranges are committed together, so that of an open claim nothing is written.
    """

    name: str
    ranges: RangeLedger
    claim: Claim
    group: GroupSettings
    properties: Mapping[str, str]
    find_topics: Callable[[Admin, Deadline], Sequence[str]]
    policy: RejectPolicy
    offsets_per_claim: int
    closes_tail: bool
    is_one_transaction: bool
    close: Callable[[], None]

    @property
    def committed_only(self) -> bool:
        """Unless the connector's consumers are told otherwise; their own default is to read all."""
        return self.group.properties.get(ISOLATION, READ_COMMITTED) == READ_COMMITTED


class SinkWork:
    """Opened when it is made: it sits in the group, and the ledger has a position for every partition."""

    def __init__(self, run: ConnectorRun, delivery: Delivery, sink: Sink) -> None:
        self._run = run
        self._delivery = delivery
        self._sink = sink
        self._ranges = delivery.ranges
        self._claim = delivery.claim
        self._is_resumed = False
        self._claims: Sequence[RangeClaim] = ()
        self._consents: Consents | None = None
        per_claim = delivery.offsets_per_claim
        self._claiming = Claiming(
            sink.shape,
            sink.fewest_records,
            per_claim,
            STEP_CHUNKS * run.shared.slots.total * per_claim,
            self._closes_tail,
        )
        for note in sink.notes:
            run.progress.note(note)
        deadline = self._deadline()
        with ExitStack() as parts:
            parts.callback(delivery.close)
            parts.callback(sink.close)
            self._asking = parts.enter_context(Asking(delivery.group.client))
            self._logs = TopicLogs(self._asking)
            self._group = parts.enter_context(SinkGroup(delivery.group, self._topics(deadline)))
            self._asking.ask(delivery.policy.prepare, deadline)
            self._group.join(Deadline(JOIN_SECONDS), run.progress.note)
            self._mark = Mark(self._recall(LEDGER_ID, _new_id), self._claim.epoch)
            self._positions = self._started(deadline)
            self._parts = parts.pop_all()

    def close(self) -> None:
        self._parts.close()

    def round(self) -> None:
        try:
            self._round()
        except SeatLost as lost:
            if lost.is_taken:
                raise
            raise Moved(lost.what, lost.hint) from None  # the brokers were away for too long; nobody else has our seat

    def _round(self) -> None:
        """Up to the ends that are seen now: a topic that grows faster than it is read does not keep a run from ending."""
        deadline = self._deadline()
        self._watch_topics(deadline)
        ends = self._logs.ends(self._positions, deadline)
        self._check_ends(ends)
        if self._delivery.committed_only:
            for words in self._logs.what_holds_back(ends, deadline):
                self._run.progress.note(words)
        while not self._run.is_stopping and self._step(ends):
            pass

    # Before the first step

    def _topics(self, deadline: Deadline) -> Sequence[str]:
        topics = self._asking.ask(self._delivery.find_topics, deadline)
        if not topics:
            raise Invalid(f"topics.regex of {self._delivery.name} matches no topic", "are the topics made already?")
        return topics

    def _started(self, deadline: Deadline) -> dict[Log, SinkPosition]:
        """Adopts what the group says where the ledger knows nothing, and shows in the group what the ledger says."""
        logs = self._logs.find(self._group.topics, deadline)
        known = self._known(logs)
        held = {log.place: Held(at.next_offset, at.published_offset) for log, at in known.items()}
        commits = {place: at for place, at in self._group.read(deadline).items() if at.offset >= 0}
        start = judge_start(commits, held, self._mark.ledger, self._delivery.name)
        adopted = {log: start.adopted[log.place] for log in logs if log.place in start.adopted}
        fresh = [log for log in logs if log not in known and log not in adopted]
        read_before = {log.topic for log in (*known, *adopted)}
        grown = [log for log in fresh if log.topic in read_before]  # whatever is in them came after what was read
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
                    f"topic {log.topic} was deleted and made again: the ledger is at {stored[1].next_offset} of the old one",
                    f"begin anew with the new one: playhead offsets delete {self._delivery.name} --all, then --execute",
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
        """New topics of a pattern and new partitions begin at their start: whatever is in them came while we watched."""
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
                    f"go on without them: playhead offsets set {self._delivery.name} ... --execute",
                )
            if next_offset > ends[log].high:
                raise Refused(
                    f"{place}: the ledger is at {next_offset}, but the topic ends at {ends[log].high}",
                    "is this the cluster, and the topic, that was delivered from?",
                )

    def _step(self, ends: Mapping[Log, Ends]) -> bool:
        """False when there is nothing more to claim up to these ends."""
        if not self._run.beat():
            return False
        deadline = self._deadline()
        self._group.check(deadline)
        claims = self._claims = self._open_claims() or self._claimed(ends)
        if not claims:
            return False
        done = self._tried(claims)
        self._committed(done, self._deadline())
        return True

    def _tried(self, claims: Sequence[RangeClaim]) -> list[Done]:
        """Rows that the target refuses are looked for in a second try, which rejects them one by one."""
        try:
            return self._attempt(claims)
        except PlayheadError as error:
            self._keep_in_part(claims, error)
            if not isinstance(error, RowsRefused):
                raise
        self._group.check(self._deadline())
        claims = self._claims = self._ranges.open_claims(self._claim)
        try:
            return self._attempt(claims, is_careful=True)
        except PlayheadError as error:
            self._keep_in_part(claims, error)
            raise

    def _attempt(self, claims: Sequence[RangeClaim], *, is_careful: bool = False) -> list[Done]:
        done = self._delivered(claims, is_careful=is_careful)
        self._confirm()
        left = self._left(done) if self._sink.commits_in_tasks else done
        self._ranges.commit_all(self._claim, left, self._sink.merging(left))
        return done

    def _delivered(self, claims: Sequence[RangeClaim], *, is_careful: bool) -> list[Done]:
        shared = self._run.shared
        writer = self._sink.writer(Step(self._recall, self._samples(claims), self._committing, is_careful))
        reading = Reading(self._delivery.properties, self._sink.has_keys)
        with shared.slots.take(min(len(claims), shared.slots.total)):
            try:
                return deliver(shared.spark, reading, claims, writer, self._delivery.policy)
            except PlayheadError:
                if self._consents is not None and self._consents.error is not None:
                    raise self._consents.error from None  # why the tasks were stopped
                raise

    def _committing(self) -> Committing:
        if self._consents is None:
            spark = self._run.shared.spark
            consents = Consents(self._confirm, driver_host(spark), bind_address(spark))
            self._consents = self._parts.enter_context(consents)
        return Committing(self._claim, self._consents.consent)

    def _confirm(self) -> None:
        """Right before anything of the step is committed. Tasks that do it by themselves ask from another thread."""
        deadline = self._deadline()
        self._logs.check_same([claim.range.log for claim in self._claims], deadline)
        self._group.confirm(deadline)

    def _left(self, done: Sequence[Done]) -> list[Done]:
        """Claims that no task saw a record of, where tasks commit the others."""
        still_open = self._ranges.open_claims(self._claim)
        return [(claim, closed) for claim, closed in done if claim in still_open]

    def _open_claims(self) -> list[RangeClaim]:
        """What a run before this one has left open: finished first, as it was claimed."""
        if self._is_resumed:
            return []
        self._is_resumed = True
        claims = self._ranges.open_claims(self._claim)
        if others := [claim for claim in claims if claim.shape != self._sink.shape]:
            self._give_up(others)
            claims = [claim for claim in claims if claim not in others]
        if claims:
            self._run.progress.note(f"goes on with what an earlier run had begun: {_named(claims)}")
        return claims

    def _give_up(self, claims: Sequence[RangeClaim]) -> None:
        """Open claims that were begun with other options."""
        if not self._delivery.is_one_transaction:
            raise Refused(
                f"{_named(claims)} was begun with other options, and part of it may be written",
                "run it once with the options it had, and change them then; or give it up, so that it is delivered anew and what"
                f" is written of it stays: playhead offsets reset {self._delivery.name} --to-current --execute",
            )
        self._ranges.give_up(self._claim, claims)
        self._run.progress.note(f"begun with other options, not written, and planned anew: {_named(claims)}")

    def _claimed(self, ends: Mapping[Log, Ends]) -> list[RangeClaim]:
        up_to = {log: self._end(at) for log, at in ends.items()}
        claims = self._claiming.next(self._positions, up_to, _now_ms())
        if claims:
            self._ranges.plan(self._claim, claims)
        return claims

    def _end(self, ends: Ends) -> int:
        return ends.stable if self._delivery.committed_only else ends.high

    def _closes_tail(self, last_closed_ms: int, now_ms: int) -> bool:
        if self._run.shared.interval_seconds is None:
            return self._delivery.closes_tail
        return self._sink.tail_is_due(last_closed_ms, now_ms)

    def _committed(self, done: Sequence[Done], deadline: Deadline) -> None:
        self._count(done)
        moved = {claim.range.log for claim, closed in done if closed}
        self._publish({log: self._positions[log].next_offset for log in moved}, deadline)

    def _count(self, done: Sequence[Done]) -> None:
        self._sink.settled([claim for claim, _ in done])
        self._claiming.learn(done, _now_ms())
        stored = self._stored()
        self._positions |= {claim.range.log: stored[claim.range.log] for claim, _ in done}
        rows = sum(each.count for _, closed in done for each in closed)
        rejected = sum(each.rejected for _, closed in done for each in closed)
        last = done[-1][0].range.log
        stream, position = str(last.place), Map({"kafka_offset": stored[last].next_offset})
        if self._ranges.ledger is not self._run.shared.ledger:
            self._run.shared.ledger.count(self._run.claim, rows, stream, position)
        note = f"{rejected} record(s) of a step were rejected" if rejected else ""
        self._run.count_step(rows, stream, position, note)

    def _keep_in_part(self, claims: Sequence[RangeClaim], error: PlayheadError) -> None:
        """Of a step that failed: what its tasks have committed by themselves all the same. Where the group or the topics are no
        longer what they were, it is not shown there."""
        if not self._sink.commits_in_tasks:
            return
        run = self._claim
        with suppress(PlayheadError):  # the database may be what failed; its ledger tells of them all the same
            done: list[Done] = []
            for claim in claims:
                newest = self._ranges.list_ranges(run.cluster, run.pipeline, claim.range.log, 1)
                done += [
                    (claim, [one.closed]) for one in newest if (one.epoch, one.closed.range) == (run.epoch, claim.range)
                ]
            if done and isinstance(error, Refused):
                self._count(done)
            elif done:
                self._committed(done, self._deadline())

    def _publish(self, offsets: Mapping[Log, int], deadline: Deadline) -> None:
        self._group.publish({log.place: offset for log, offset in offsets.items()}, self._mark, deadline)
        if offsets:
            self._ranges.published(self._claim, offsets)

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


def _named(claims: Sequence[RangeClaim]) -> str:
    more = f" and {len(claims) - MOST_NAMED} more" if len(claims) > MOST_NAMED else ""
    return ", ".join(str(claim.range) for claim in claims[:MOST_NAMED]) + more


def _now_ms() -> int:
    return int(time.time() * 1000)


def _new_id() -> str:
    return secrets.token_hex(8)
