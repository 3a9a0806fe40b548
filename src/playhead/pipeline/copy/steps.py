"""The steps of a copy: ranges of the source, read by Spark, each produced in a transaction that also commits its position.

Source partitions are copied side by side, one task and one transaction each: every key is in one of them, and a task keeps the
order. If keys span several source partitions, because partitions were added earlier, a step is all partitions up to one point
in time, merged by one task in one transaction.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from playhead.errors import PlayheadError, Refused
from playhead.kafka.client import Admin, revealed
from playhead.kafka.copying import advance
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import Ends, get_topic, topic_ends
from playhead.kafka.transactions import fence
from playhead.ledger.model import Claim
from playhead.ledger.runs import Ledger
from playhead.model import Deadline, Map
from playhead.pipeline.copy.gate import StepGate
from playhead.pipeline.copy.job import Job, Side, find_ends
from playhead.pipeline.copy.merge_cut import KafkaLog, ends_in_time
from playhead.pipeline.copy.offset_map import OffsetMap, new_token
from playhead.pipeline.copy.positions import Mark, Position
from playhead.pipeline.copy.read import check_ranges, merged_by_time, read_ranges
from playhead.pipeline.copy.restore import Restoring, write_owner
from playhead.pipeline.copy.task import MOVED, RECEIPT_DDL, CopyRange, CopyTarget, CopyTask
from playhead.pipeline.slots import SlotUser
from playhead.pipeline.spark import bind_address, driver_host
from playhead.pipeline.spark_faults import spark_translated
from playhead.pipeline.step import IDLE, Left, LeftUnit, StepReport, Underway

ASK_SECONDS = 30.0
STEP_SECONDS = 240.0
SETTLE_SECONDS = 10.0
REFRESH_SECONDS = 3600.0  # positions of a group without members expire after 7 days, by default


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """`offsets_per_step`: of one source partition; for a merged step, of all together."""

    offsets_per_step: int = 500_000
    map: Path = field(default_factory=Path)


@dataclass(slots=True)
class Counted:
    """The records of a run, however often the copy was opened. `is_merged`: keys spanned partitions."""

    rows: int = 0
    is_merged: bool = False


@dataclass(frozen=True, slots=True)
class CopyRun:
    ledger: Ledger
    claim: Claim
    counted: Counted


class Copy:
    """The `Work` of a copy. Opening it fences every earlier copy of the same topics."""

    def __init__(
        self,
        spark: SparkSession,
        slots: SlotUser,
        job: Job,
        sides: tuple[Side, Side],
        run: "CopyRun",
        options: CopyOptions,
        note: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._slots = slots
        self._job = job
        self._source, self._target = sides
        self._ledger, self._claim, self._counted = run.ledger, run.claim, run.counted
        self._options = options
        self._note = note
        self._now = IDLE
        self._is_merged = False
        self._gate: StepGate | None = None
        self._here = ReconnectingAdmin(self._source.settings)
        self._there = ReconnectingAdmin(self._target.settings)
        try:
            self._now = Underway("fencing earlier copies")
            target = self._there.ask(lambda admin, d: get_topic(admin, job.request.target, d), _deadline())
            if job.target_id not in (None, target.id) or len(target.partitions) != job.target_partitions:
                raise _made_again(target.name)
            plain = {
                "common": revealed(self._target.settings.common),
                "producer": revealed(self._target.settings.producer),
            }
            self._place = CopyTarget(
                plain,
                job.request.target,
                job.target_partitions,
                job.places,
                job.mark(target.id, ""),
                options.map,
                job.limit.room,
            )
            self._restoring = Restoring(job.source.id, target.id, target.name, options.map)
            self._positions: dict[int, Position] = {}
            self._committed_at: dict[int, float] = {}  # by this run
            self._adopt(self._ask_source())
            if dropped := self._map(self._positions).drop_others():
                note(f"{dropped} file(s) of the offset map belonged to attempts that were not committed: deleted")
        except BaseException:
            self.close()
            raise
        finally:
            self._now = IDLE

    @property
    def underway(self) -> Underway:
        gate = self._gate
        return self._now if gate is None else replace(self._now, rows=gate.rows)

    def keep_alive(self) -> None:
        self._ledger.beat(self._claim)

    def close(self) -> None:
        self._here.close()
        self._there.close()

    def steps(self) -> Generator[StepReport, None, None]:
        """One round: up to the end as seen now."""
        now = self._ask_source()
        self._adopt(now)
        self._check_target()
        self._pass_to_part(now)
        self._check(now)
        held = f"open transactions in {len(now.held)} partition(s)" if now.held else ""
        is_new = False
        while ranges := self._plan(now):
            self._now = Underway(f"copying {len(ranges)} partition(s)", 0, self._left(now))
            rows = self._step(ranges)
            self._counted.rows += rows
            self._ledger.set_progress(self._claim, self._counted.rows, self._job.request.target, self._position())
            yield StepReport(self._job.request.target, self._position(), rows, held=held)
            is_new = True
        if left := self._behind(now):
            raise PlayheadError(f"{self._job.request.source}: no step could be planned for partition(s) {sorted(left)}")
        self._refresh()
        if is_new:
            self._now = Underway("waiting until the last commits are visible")
            self._settle()
        self._now = IDLE
        yield StepReport(self._job.request.target, self._position(), None, held=held)

    # The source and the positions

    def _ask_source(self) -> "_Now":
        def ask(admin: Admin, deadline: Deadline) -> _Now:
            topic, starts, ends, held = find_ends(admin, self._job, deadline)
            return _Now(len(topic.partitions), starts, ends, held)

        return self._here.ask(ask, _deadline())

    def _adopt(self, now: "_Now") -> None:
        """Gives every partition of the source a committed position. Fences first those that this run does not know yet."""
        unknown = [number for number in now.ends if number not in self._positions]
        if not unknown:
            return
        for number in unknown:
            fence(self._target.settings, self._job.request.transactional_id(number), _deadline())
        stored = self._stored(unknown)
        missing = [number for number in unknown if number not in stored]
        restored = self._there.ask(lambda admin, d: self._restoring.find(admin, missing, d), _deadline())
        fresh = {number: Position(now.starts[number]) for number in missing if number not in restored}
        self._map(self._positions | stored | restored)  # before anything is committed: it may be the wrong folder
        if fresh and (stored or self._positions) and not self._restoring.is_owner:
            raise Refused(
                f"{self._options.map} is not the offset map of this copy, and without it {len(fresh)} partition(s) of"
                f" {self._job.request.source} may be copied twice",
                "name the folder of the run that copied with --map",
            )
        if not self._restoring.is_owner:
            if len(fresh) == len(now.ends):
                OffsetMap(self._options.map, {}).drop_others()  # of an earlier copy between topics of the same names
            write_owner(self._options.map, self._place.mark)
        if new := restored | fresh:
            self._commit_first(new)
        if restored:
            numbers = ", ".join(map(str, sorted(restored)))
            self._note(f"the position of partition {numbers} had expired: found again by the offset map")
        self._committed_at |= dict.fromkeys(new, time.monotonic())
        self._positions |= stored | new

    def _map(self, positions: Mapping[int, Position]) -> OffsetMap:
        return OffsetMap.load(self._options.map, {number: one.token for number, one in positions.items()})

    def _stored(self, partitions: Sequence[int]) -> dict[int, Position]:
        places = self._job.places
        found = self._there.ask(lambda admin, deadline: places.find_decided(admin, partitions, deadline), _deadline())
        positions = {}
        for number, one in found.items():
            mark = Mark.find(one.metadata)
            if mark is None or self._place.metadata(mark.token) != one.metadata:
                raise Refused(MOVED)
            positions[number] = Position(one.offset, mark.token)
        return positions

    def _commit_first(self, fresh: Mapping[int, Position]) -> None:
        """Before the first record: a copy that is killed in its first step finds its own target again. By the producer of the
        partition: a plain commit of a copier that was fenced meanwhile would move the position of the other one back."""
        for number, one in fresh.items():
            deadline = _deadline()
            positions = self._job.places.by_group({number: self._place.committed(one.offset, one.token)})
            check = partial(self._place.check_absent, number, deadline)
            advance(self._target.settings, self._job.request.transactional_id(number), positions, check, deadline)

    def _check_target(self) -> None:
        name = self._job.request.target
        target = self._there.ask(lambda admin, deadline: get_topic(admin, name, deadline), _deadline())
        if target.id != self._place.mark.target:
            raise _made_again(name)

    def _settle(self) -> None:
        """A commit is answered before readers see it. Waits until they see all of it, and the positions."""
        name, numbers = self._job.request.target, range(self._job.target_partitions)

        def ends(admin: Admin, deadline: Deadline) -> dict[int, Ends]:
            return topic_ends(admin, name, numbers, deadline)

        self._there.ask(
            lambda admin, deadline: self._job.places.find_decided(admin, self._positions, deadline), _deadline()
        )
        wanted = self._there.ask(ends, _deadline())
        patience = Deadline(SETTLE_SECONDS)
        while any(one.stable < wanted[number].high for number, one in self._there.ask(ends, _deadline()).items()):
            if patience.passed:
                self._note(
                    f"a transaction of another producer is open in {name}: readers of committed records wait for it"
                )
                return
            time.sleep(0.05)

    def _check(self, now: "_Now") -> None:
        """Before anything of the round is written: sizes, times, and whether keys span partitions."""
        ranges = self._behind(now)
        if not ranges:
            return
        self._now = Underway("checking sizes, times and keys", 0, self._left(now))
        source = self._job.request.source
        with self._slots.request(len(ranges)) as ticket:
            ticket.wait()
            found = check_ranges(self._spark, self._source.properties, source, ranges, now.partitions, self._job.limit)
        size, partition, offset = found.largest
        limit = self._job.limit
        if size > limit.room:
            raise Refused(
                f"{source}-{partition} offset {offset} has {size} bytes when it is sent ({' or '.join(limit.codecs)}), and"
                f" {self._place.topic} accepts {limit.largest}",
                f"playhead topics alter {self._job.request.target} --config max.message.bytes={size + 1024} --execute",
            )
        if found.timeless:
            partition, offset = found.timeless_at
            raise Refused(
                f"{found.timeless} record(s) of {source} have no timestamp, the first at {source}-{partition} offset {offset}:"
                " a copy would give them the time of the copy",
                "copy a part without them by --where",
            )
        self._is_merged = bool(found.spanning)
        if found.spanning:
            self._counted.is_merged = True
            self._note(
                f"{found.spanning} key(s) are in several partitions of {source}: all partitions are merged by timestamp"
            )

    def _behind(self, now: "_Now") -> dict[int, tuple[int, int]]:
        return {
            number: (self._positions[number].offset, end)
            for number, end in sorted(now.ends.items())
            if end > self._positions[number].offset
        }

    def _left(self, now: "_Now") -> Left:
        return Left(sum(end - start for start, end in self._behind(now).values()), LeftUnit.OFFSETS)

    def _position(self) -> Map:
        return Map({str(number): one.offset for number, one in sorted(self._positions.items())})

    # One step

    def _plan(self, now: "_Now") -> list[CopyRange]:
        behind, most = self._behind(now), self._options.offsets_per_step
        if not behind:
            return []
        if self._is_merged:
            source, share = self._job.request.source, max(1, most // len(behind))
            ends = self._here.ask(
                lambda a, _: ends_in_time(KafkaLog(a, source, _deadline()), behind, share), _deadline()
            )
        else:
            ends = {number: min(end, start + most) for number, (start, end) in behind.items()}
        token = new_token()
        return [
            CopyRange(number, self._positions[number], ends[number], token)
            for number, (start, _) in behind.items()
            if ends[number] > start
        ]

    def _step(self, ranges: Sequence[CopyRange]) -> int:
        self._ledger.beat(self._claim)  # raises if another copy took over
        source = self._job.request.source
        with (
            self._slots.request(len(ranges)) as ticket,
            StepGate(driver_host(self._spark), bind_address(self._spark)) as self._gate,
        ):
            ticket.wait()
            task = self._task(ranges, self._gate)
            with spark_translated(f"copying {source}"):
                wanted = {one.partition: (one.position.offset, one.end) for one in ranges}
                records = read_ranges(self._spark, self._source.properties, source, wanted)
                if self._is_merged:
                    records = merged_by_time(records)
                rows = records.mapInArrow(cast(Any, task), RECEIPT_DDL).collect()
        self._gate = None
        counts = {row["partition"]: row["count"] for row in rows}
        self._pass_holes([one for one in ranges if one.partition not in counts])
        for one in ranges:
            token = one.token if counts.get(one.partition) else one.position.token
            self._positions[one.partition] = Position(one.end, token)
            self._committed_at[one.partition] = time.monotonic()
        return sum(counts.values())

    def _task(self, ranges: Sequence[CopyRange], gate: StepGate) -> CopyTask:
        return CopyTask(
            self._place,
            {one.partition: one for one in ranges},
            {one.partition: self._identity(one.partition) for one in ranges},
            STEP_SECONDS,
            gate.address,
            self._is_merged,
        )

    def _identity(self, partition: int) -> str:
        return self._job.request.transactional_id(0 if self._is_merged else partition)

    def _pass_holes(self, ranges: Sequence[CopyRange]) -> None:
        """Ranges of markers, aborted and compacted records only: the position goes on without a record."""
        for one in ranges:
            deadline = Deadline(ASK_SECONDS)
            positions = self._job.places.by_group({one.partition: self._place.committed(one.end, one.position.token)})
            check = partial(self._place.check, [one], deadline)
            advance(self._target.settings, self._identity(one.partition), positions, check, deadline)
            self._committed_at[one.partition] = time.monotonic()

    def _pass_to_part(self, now: "_Now") -> None:
        """Up to `offset>=`, in a partition that ended before it when the copy began."""
        first = self._job.request.part.from_offset or 0
        ends = {n: min(first, end) for n, end in now.ends.items()}
        self._pass_holes(
            [CopyRange(n, self._positions[n], end, "") for n, end in ends.items() if end > self._positions[n].offset]
        )
        for n, end in ends.items():
            self._positions[n] = replace(self._positions[n], offset=max(self._positions[n].offset, end))

    def _refresh(self) -> None:
        """Commits positions again that did not move for long: each expires by itself, some days after its last commit."""
        now = time.monotonic()
        old = [n for n in self._positions if now - self._committed_at.get(n, -inf) > REFRESH_SECONDS]
        if old:
            self._now = Underway("committing positions that did not move")
            self._pass_holes([CopyRange(n, self._positions[n], self._positions[n].offset, "") for n in old])


@dataclass(frozen=True, slots=True)
class _Now:
    """The source as last seen. `held`: partitions with an open transaction."""

    partitions: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    held: Sequence[int]


def _deadline() -> Deadline:
    return Deadline(ASK_SECONDS)


def _made_again(topic: str) -> Refused:
    return Refused(f"{topic} was deleted and made again while it was copied to")
