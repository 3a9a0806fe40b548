"""A file sink: the records of its topics, put through its converters and transforms, against the rows of its files.

The rows are compared as a bag, so it does not matter who wrote the files, how they are cut and what they are called. Names in the
form of the S3 sink connector, and the ledger, tell more about a row that differs.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import fs

from playhead.errors import PlayheadError, Refused
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.ledger.model import OutputKind, RangeClaim, RangeState, RecordedRange
from playhead.model import TopicPartition
from playhead.model.ranges import OffsetRange
from playhead.pipeline.audit.arithmetic import check_ranges
from playhead.pipeline.audit.compare import Cut, Unbalanced, compare
from playhead.pipeline.audit.contents import key_of_fields, key_of_row
from playhead.pipeline.audit.expected import expected_side
from playhead.pipeline.audit.folder import DataFile, Place, find_files, folder_side, list_files, open_place
from playhead.pipeline.audit.judge import Rules, judge
from playhead.pipeline.audit.model import Hop, Item, Pair, Verdict
from playhead.pipeline.audit.pairs import SAME_DATA, of_digests, of_items, with_digests, with_sums
from playhead.pipeline.audit.scene import Owners, Scene, SinkFacts, read_sink, sink_ranges
from playhead.pipeline.audit.sides import TaskSide
from playhead.pipeline.audit.topic import Spans
from playhead.pipeline.deliver.chain import find_chain
from playhead.pipeline.deliver.files.folder import FolderStorage
from playhead.pipeline.deliver.files.options import PARQUET
from playhead.pipeline.deliver.files.s3 import S3Storage
from playhead.pipeline.deliver.files.sink import FilesSink, storage_of
from playhead.pipeline.deliver.files.writer import FileWriter
from playhead.pipeline.deliver.group import GroupSettings, group_settings
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.sink import SinkStep, TaskCommit
from playhead.pipeline.deliver.topics import TopicLogs, subscription_of
from playhead.pipeline.replay.files import file_writer_of
from playhead.pipeline.replay.plan import SinkState
from playhead.pipeline.replay.redo import open_writer
from playhead.pipeline.spark import count_slots
from playhead.pipeline.spec import Ready

KIND = "files sink"
BEFORE_LEDGER = "before the first range of the ledger"
LATEST = "latest"
_TIME = "${timestamp}"
_NAME = re.compile(r"(?P<topic>.+)\+(?P<partition>\d+)\+(?P<offset>\d+)(\.\d+)?\.[^/]+")
_AT = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)@(?P<offset>\d+)")


def audit_files_sink(scene: Scene, one: Ready, against: str | None = None, key: Sequence[str] = ()) -> Iterator[Pair]:
    """One pair per topic."""
    sink = FilesSink(one.config, scene.home.worker)
    group = group_settings(one.name, one.config, scene.home.worker, scene.home.settings)
    with ReconnectingAdmin(group.client) as admin:
        logs = TopicLogs(admin)
        topics = logs.ask(lambda asked, patience: subscription_of(one.config).find(asked, patience), scene.deadline())
        place = place_of(sink) if against is None else open_place(against)
        for topic in topics:
            began = time.monotonic()
            pair = Pair(one.name, f"topic {topic}", place.shown, kind=KIND)
            try:
                facts = read_sink(scene, one, group, logs, [topic])
                whole = _Comparison(scene, one, sink, logs, facts, topic, place, against is not None, key)
                pair = whole.pair(pair, group)
            except PlayheadError as error:
                pair = replace(pair, error=f"{error.what}; {error.hint}" if error.hint else error.what)
            yield replace(pair, seconds=round(time.monotonic() - began, 3))


def place_of(sink: FilesSink) -> Place:
    storage = storage_of(sink.options)
    if isinstance(storage, FolderStorage):
        return Place(fs.LocalFileSystem(), storage.root, f"file://{storage.root}")
    assert isinstance(storage, S3Storage)  # noqa: S101  there is no other
    return Place(storage.connect().system, storage.bucket, f"s3://{storage.bucket}")


@dataclass(frozen=True, slots=True)
class _Comparison:
    scene: Scene
    one: Ready
    sink: FilesSink
    logs: TopicLogs
    facts: SinkFacts
    topic: str
    place: Place
    is_elsewhere: bool
    key: Sequence[str]

    def pair(self, pair: Pair, group: GroupSettings) -> Pair:
        scene, facts = self.scene, self.facts
        if facts.ranges is not None:
            pair = with_sums(pair, check_ranges(facts.ranges, facts.positions))
        elif scene.level == 0:
            return replace(pair, error=f"the ledger has nothing of {self.one.name}: compare its data with --level 2")
        if scene.level == 0:
            return pair
        spans = self._narrowed(facts.spans)
        if not spans:
            return replace(pair, error=f"nothing of {self.topic} was delivered yet, or all of it has expired")
        writer = self._writer(spans)
        reading = ReadOptions(scene.properties(group.properties), self.sink.has_keys, self.sink.has_headers)
        left = expected_side(Spans(spans), reading, writer.converting)
        found_files = _Files.of(self._listed(spans), facts, self.topic, is_elsewhere=self.is_elsewhere)
        separator = self.sink.options.format.separator.encode() or b"\n"
        right = folder_side(self.place, found_files.compared, count_slots(scene.spark()), separator=separator)
        tail = self._tail(reading, writer)
        key_of = key_of_fields(self.key) if self.key else key_of_row
        cut = Cut(scene.most, key_of)
        found = compare(scene.spark(), left, right, tail=tail, deep=scene.level > 1, cut=cut, say=scene.say)
        pair = replace(with_digests(pair, found), line=facts.line_shown, facts=facts.shown)
        is_json = self.sink.options.format.kind != PARQUET
        if found.differing is None:
            doubts = {
                "records that were produced since": tail is not None,
                "records that have expired": found_files.has_expired,
                "compacted ones": facts.is_compacted,
                SAME_DATA: facts.ranges is None and is_json,
            }
            return of_digests(pair, [what for what, is_so in doubts.items() if is_so])
        rules = Rules(key_of, is_json=is_json, gone=found_files.gone)
        first = found_files.first_offsets(self.topic, facts) if group.begins_at == LATEST else {}
        explaining = _Explaining(facts, Owners(facts), self.is_elsewhere, first)
        items = [explaining.item(item) for item in judge(found.differing, rules).items]
        return of_items(pair, items, found.more, {Verdict.EXPIRED.value: found_files.expired_rows})

    # What is compared

    def _narrowed(self, spans: Sequence[OffsetRange]) -> list[OffsetRange]:
        """A window of time is widened to the ranges of the ledger: their files hold nothing else."""
        scene = self.scene
        if scene.since is None and scene.until is None:
            return list(spans)
        if self.facts.ranges is None:
            raise Refused(
                "which files were written in that time is not known: the ledger has nothing of it", "compare all"
            )
        found = []
        for span in spans:
            inside = [
                one.closed.range
                for one in self.facts.ranges
                if one.closed.range.log == span.log
                and one.state is RangeState.COMMITTED
                and (scene.since is None or (one.closed.last_ms or 0) >= scene.since.timestamp() * 1000)
                and (scene.until is None or (one.closed.first_ms or 0) < scene.until.timestamp() * 1000)
            ]
            start = max(span.start, min((one.start for one in inside), default=span.end))
            end = min(span.end, max((one.end for one in inside), default=span.end))
            if start < end:
                found.append(OffsetRange(*span.log, start, end))
        if not found:
            raise Refused(f"nothing of {self.topic} was delivered in that time", "give another --since or --until")
        return found

    def _listed(self, spans: Sequence[OffsetRange]) -> list[DataFile]:
        """Listed after the position was read. Those of other topics, and those that begin above the line, are left out."""
        if self.is_elsewhere:
            return list_files(self.place)
        files = [file for folder in self._prefixes for file in find_files(self.place, folder)]
        bounds = {span.partition: (span.start, span.end) for span in spans}
        has_window = self.scene.since is not None or self.scene.until is not None
        below = self._folders
        kept = []
        for file in files:
            if not below.match(file.name):
                continue
            at = _coordinates(file.name)
            if at is not None:
                start, end = bounds.get(at[0].partition, (0, 0))
                if at[1] >= end or (has_window and at[1] < start):
                    continue
            kept.append(file)
        return kept

    @property
    def _targets(self) -> list[str]:
        """Transforms may name other topics, some with the time of a record."""
        chain = find_chain(self.one.config, self.scene.home.worker)
        return sorted({self.topic} if chain is None else chain.targets(self.topic))

    @property
    def _prefixes(self) -> list[str]:
        """What is listed: a bucket may hold millions of files of other topics."""
        root, targets = self.sink.options.names.topics_dir, self._targets
        if any(_TIME in name for name in targets):
            return [root]
        return [f"{root}/{name}" if root else name for name in targets]

    @property
    def _folders(self) -> "re.Pattern[str]":
        """The folders of the topic's files."""
        parts = "|".join("[^/]+".join(map(re.escape, name.split(_TIME))) for name in self._targets)
        root = self.sink.options.names.topics_dir
        return re.compile(f"{re.escape(root)}/(?:{parts})/" if root else f"(?:{parts})/")

    def _writer(self, spans: Sequence[OffsetRange]) -> FileWriter:
        """With the schema that the pipeline has learnt, if it infers one."""
        claims = [RangeClaim(span, True, self.sink.shape, 0) for span in spans]
        with sink_ranges(self.scene, self.facts.run) as ranges:
            if ranges is not None and self.facts.ranges is not None:
                cluster = self.scene.home.cluster_id
                state = SinkState(ranges, cluster, self.one.name, self.facts.positions, self.facts.ends)
                return file_writer_of(open_writer(self.sink, state, self.logs, claims, self.scene.deadline), self.topic)

        def sample() -> pa.RecordBatch:
            return self.logs.sample(spans, self.scene.deadline())

        step = SinkStep(lambda _key, make: make(), {self.topic: sample}, _no_commit)
        return file_writer_of(self.sink.writer(step), self.topic)

    def _tail(self, reading: ReadOptions, writer: FileWriter) -> TaskSide | None:
        """What was produced above the line: a live sink may have written it meanwhile. Asked for after the files were listed."""
        ends = self.logs.ends(list(self.facts.ends), self.scene.deadline())
        spans = self.facts.tails(ends)
        return expected_side(Spans(spans), reading, writer.converting) if spans else None


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a topic. `compared`: those of which a part may still be in the topic; of the others only the rows are counted.
    `partly`: names of files of which some records may have expired. `compacted`: of a compacted topic, those that may hold
    records which it no longer has. A file that the ledger does not know, and that no other engine has named, is in neither."""

    compared: Sequence[DataFile]
    expired_rows: int = 0
    partly: frozenset[str] = frozenset()
    compacted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, files: Sequence[DataFile], facts: SinkFacts, topic: str, *, is_elsewhere: bool) -> "_Files":
        starts = {log.partition: at.start for log, at in facts.ends.items()}
        owners = {
            output.name: (one.closed.range, output.count)
            for one in (() if is_elsewhere else facts.ranges or ())
            if one.state is RangeState.COMMITTED and one.closed.range.log in facts.ends
            for output in one.closed.outputs
        }
        compared, partly, known, expired = [], set[str](), set[str](), 0
        is_known = is_elsewhere or facts.ranges is None
        first = facts.first_delivered
        for file in files:
            at = _coordinates(file.name)
            span, rows = owners.get(file.name, (None, 0))
            if span is not None and span.end <= starts[span.partition]:
                expired += rows
                continue
            if span is not None:
                may_be = span.start < starts[span.partition]
            elif at is not None and at[0].topic == topic:
                may_be = at[1] < starts.get(at[0].partition, 0)
            else:
                may_be = is_known and facts.has_expired
            compared.append(file)
            partly |= {file.name} if may_be else set()
            is_earlier = at is not None and at[1] < first.get(at[0], 0)
            known |= {file.name} if is_known or span is not None or is_earlier else set()
        return cls(compared, expired, frozenset(partly), frozenset(known if facts.is_compacted else ()))

    def first_offsets(self, topic: str, facts: SinkFacts) -> dict[TopicPartition, int]:
        """Where each partition begins in the files and in the ledger."""
        found = dict(facts.first_delivered)
        for at in (_coordinates(file.name) for file in self.compared):
            if at is not None and at[0].topic == topic:
                found[at[0]] = min(at[1], found.get(at[0], at[1]))
        return found

    @property
    def has_expired(self) -> bool:
        return bool(self.partly)

    def gone(self, one: Unbalanced) -> tuple[Verdict, int]:
        if self.compacted:
            held = sum(at.rpartition("#")[0] in self.compacted for at in one.right_at)
            return Verdict.GAP, max(0, held - one.left)
        return Verdict.EXPIRED, sum(at.rpartition("#")[0] in self.partly for at in one.right_at)


@dataclass(frozen=True, slots=True)
class _Explaining:
    """What the ledger knows of a row that differs. `first`: where a sink began that does not read a topic from its start."""

    facts: SinkFacts
    owners: Owners
    is_elsewhere: bool
    first: Mapping[TopicPartition, int]

    def item(self, item: Item) -> Item:
        owner = self._owner(item)
        if owner is not None:
            item = replace(item, run=f"run {owner.epoch}" if owner.epoch else "a replay", range=str(owner.closed.range))
        if item.verdict is not Verdict.MISSING:
            return item
        at = place_of_record(item.source[0]) if item.source else None
        if owner is None:
            if at is not None and at[1] < self.first.get(at[0], 0):
                return replace(item, verdict=Verdict.GAP, detail="before the sink began")
            is_earlier = at is not None and at[1] < self.facts.first_delivered.get(at[0], 0)
            return replace(item, hop=Hop.NOT_DELIVERED, detail=BEFORE_LEDGER if is_earlier else None)
        if owner.state is RangeState.SKIPPED:
            return replace(item, hop=Hop.NOT_DELIVERED, detail=owner.note or "skipped by an operator")
        names = [output.name for output in owner.closed.outputs if output.kind == OutputKind.OBJECT]
        return replace(item, hop=Hop.GONE, detail=f"was in {_holder(names, at[1] if at else 0)}" if names else None)

    def _owner(self, item: Item) -> RecordedRange | None:
        if self.is_elsewhere:
            return None
        places = (place_of_record(text) for text in item.source)
        files = (_coordinates(text.rpartition("#")[0]) for text in item.target)
        found = next((at for some in (places, files) for at in some if at is not None), None)
        return None if found is None else self.owners.find(*found)


def _holder(names: Sequence[str], offset: int) -> str:
    """The object of a range that begins last before the offset."""
    begins = [(found[1], name) for name in names if (found := _coordinates(name)) is not None and found[1] <= offset]
    return max(begins)[1] if begins else names[0]


def _coordinates(name: str) -> tuple[TopicPartition, int] | None:
    found = _NAME.fullmatch(name.rpartition("/")[2])
    return None if found is None else (TopicPartition(found["topic"], int(found["partition"])), int(found["offset"]))


def place_of_record(text: str) -> tuple[TopicPartition, int] | None:
    found = _AT.fullmatch(text)
    return None if found is None else (TopicPartition(found["topic"], int(found["partition"])), int(found["offset"]))


def _no_commit() -> TaskCommit:
    raise AssertionError("the tasks of a file sink do not commit")
