"""What every comparison of an audit needs: the session, the brokers, the ledger, and where to say how far it is."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.errors import Refused
from playhead.kafka.groups import list_committed
from playhead.kafka.properties import client_properties
from playhead.kafka.topics import Ends
from playhead.ledger.model import RangeState, RecordedRange, Run, SinkPosition
from playhead.ledger.ranges import RangeLedger, open_ranges
from playhead.ledger.redo import DeliveredSpan
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import Deadline, TopicPartition
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.audit.compare import MOST
from playhead.pipeline.connect_home import ConnectHome
from playhead.pipeline.deliver.group import GroupSettings
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.replay.plan import find_compacted
from playhead.pipeline.spec import Ready

Spark = Callable[[], SparkSession]


@dataclass(frozen=True, slots=True)
class Scene:
    """`spark`: opens the session when it is first needed. `level`: how far to go. `values`: contents count also where a source
    reads new keys only. `most`: how many rows that differ are listed."""

    context: Context
    home: ConnectHome
    ledger: Ledger
    spark: Spark
    level: int = 2
    values: bool = False
    since: datetime | None = None
    until: datetime | None = None
    seconds: float = 30.0
    most: int = MOST
    say: Callable[[str], None] = lambda _text: None

    def deadline(self) -> Deadline:
        return Deadline(self.seconds)

    def find_run(self, name: str) -> Run | None:
        """The newest run of the pipeline; None if Playhead did not run it."""
        found = [run for run in self.ledger.list_runs() if (run.cluster, run.pipeline) == (self.home.cluster_id, name)]
        return found[0] if found else None

    def properties(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**reading_properties(self.context), **(more or {})}


def reading_properties(context: Context) -> dict[str, str]:
    own = {name: setting.text for name, setting in client_properties(context).items()}
    return {ISOLATION: READ_COMMITTED, **own}


def settled_ends(logs: TopicLogs, topic: str, deadline: Deadline) -> dict[Log, Ends]:
    """The ends of a topic, once every transaction is decided that was open at first: it hides what others have committed after
    it began."""
    present = logs.find([topic], deadline)
    first = ends = logs.ends(present, deadline)
    while any(ends[log].stable < at.high for log, at in first.items()):
        if deadline.remaining() < 1:
            held = "; ".join(logs.what_holds_back(ends, Deadline(5)))
            raise Refused(f"an open transaction hides records of {topic}", f"{held}; compare when it has ended")
        time.sleep(0.2)
        ends = logs.ends(present, deadline)
    return ends


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """A sink as the ledger and the brokers show it. `line`: per topic partition the first offset that is not compared: the
    position. `ranges`: those of these topics, in every state; None if Playhead did not run it. `deliveries`: those that count, in
    the order in which they were delivered."""

    run: Run | None
    ranges: Sequence[RecordedRange] | None
    positions: Mapping[Log, SinkPosition]
    line: Mapping[Log, int]
    ends: Mapping[Log, Ends]
    compacted: Sequence[str]
    deliveries: Mapping[Log, Sequence[DeliveredSpan]] = field(default_factory=dict)

    @property
    def spans(self) -> list[OffsetRange]:
        """From the start of the log to the line."""
        return [
            OffsetRange(*log, at.start, self.line[log])
            for log, at in sorted(self.ends.items())
            if at.start < self.line.get(log, 0)
        ]

    def tails(self, ends: Mapping[Log, Ends]) -> list[OffsetRange]:
        """From the line to `ends`, which were read after the target."""
        found = []
        for log, at in sorted(ends.items()):
            start = max(at.start, self.line.get(log, at.start))
            if start < at.stable:
                found.append(OffsetRange(*log, start, at.stable))
        return found

    @property
    def first_delivered(self) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for one in self.ranges or ():
            span = one.closed.range
            if span.log in self.ends:
                found[span.place] = min(span.start, found.get(span.place, span.start))
        return found

    @property
    def has_expired(self) -> bool:
        """Whether records that may have been delivered are below the start of a log now. The first range of the ledger does not
        tell: another engine may have delivered before it."""
        return any(at.start > 0 for at in self.ends.values())

    @property
    def is_compacted(self) -> bool:
        return bool(self.compacted)

    @property
    def shown(self) -> dict[str, object]:
        """What a repair compares before it begins."""
        spans = self.spans
        return {
            "topic": ", ".join(sorted({log.topic for log in self.ends})),
            "topic_id": ", ".join(dict.fromkeys(log.topic_id for log in sorted(self.ends))),
            "lines": {str(span.place): span.end for span in spans},
            "generation": max((one.generation for one in self.ranges or ()), default=0),
        }

    @property
    def line_shown(self) -> str:
        several = len({log.topic for log in self.ends}) > 1
        at = [f"{span.place if several else span.partition}@{span.end}" for span in self.spans]
        return f"offsets up to {', '.join(at)}"


class Owners:
    """Which recorded range of the ledger an offset is in."""

    def __init__(self, facts: SinkFacts) -> None:
        self._ranges: dict[TopicPartition, list[RecordedRange]] = {}
        for one in sorted(facts.ranges or (), key=lambda one: one.closed.range):
            span = one.closed.range
            if one.state is not RangeState.SUPERSEDED and span.log in facts.ends:
                self._ranges.setdefault(span.place, []).append(one)
        self._starts = {place: [one.closed.range.start for one in some] for place, some in self._ranges.items()}

    def find(self, place: TopicPartition, offset: int) -> RecordedRange | None:
        at = bisect_right(self._starts.get(place, ()), offset) - 1
        if at < 0:
            return None
        one = self._ranges[place][at]
        return one if offset in one.closed.range else None


@contextmanager
def sink_ranges(scene: Scene, run: Run | None, url: str | None = None) -> Iterator[RangeLedger | None]:
    """`url`: of the target database, for a sink that keeps its ranges there."""
    if url is not None:
        with open_ledger(url, scene.seconds) as target:
            yield RangeLedger(target)
        return
    if run is None:
        yield None
        return
    with open_ranges(scene.ledger, run, scene.seconds) as ranges:
        yield ranges


def read_sink(
    scene: Scene, one: Ready, group: GroupSettings, logs: TopicLogs, topics: Sequence[str], url: str | None = None
) -> SinkFacts:
    """The position first, then the ends: what was delivered is never beyond them."""
    run = scene.find_run(one.name)
    cluster = scene.home.cluster_id
    with sink_ranges(scene, run, url) as ledger:
        found = ledger.positions(cluster, one.name) if ledger else {}
        positions = {log: at for log, at in found.items() if log.topic in topics}
        recorded = ledger.list_ranges(cluster, one.name) if ledger and positions else []
        deliveries = {log: ledger.list_deliveries(cluster, one.name, log) for log in positions} if ledger else {}
    ranges = [each for each in recorded if each.closed.range.topic in topics] if positions else None
    committed: Mapping[TopicPartition, int] = {}
    if not positions:
        asked = logs.ask(lambda admin, patience: list_committed(admin, group.group_id, patience), scene.deadline())
        committed = {place: at.offset for place, at in asked.items()}
    present = logs.find(topics, scene.deadline())
    ends = logs.ends(present, scene.deadline())
    by_place = {log.place: (log, at.next_offset) for log, at in positions.items()}
    line: dict[Log, int] = {}
    for log in present:
        known, offset = by_place.get(log.place, (log, committed.get(log.place)))
        if known.topic_id not in ("", log.topic_id):
            raise Refused(
                f"topic {log.topic} was deleted and recreated after it was delivered", "its old records are gone"
            )
        if offset is not None:
            line[log] = min(offset, ends[log].stable)
    compacted = logs.ask(lambda admin, patience: find_compacted(topics, admin, patience), scene.deadline())
    return SinkFacts(run, ranges, positions, line, ends, compacted, deliveries)
