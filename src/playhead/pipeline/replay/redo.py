"""Delivers recorded ranges again, to the sink's own place, in steps that are committed one by one. The steps of JDBC sinks are in
`tables.py`.

A step reads neighbouring ranges as one claim per topic partition. Then, in this order: the files of each range that holds what it
held are in place under their names, files that the new cut does not have are removed, the manifest is written, and the ledger
commits the new generation by compare and set. Killed anywhere, the ledger still has the old ranges of an open step, and the same
command writes the same files again. Positions, the consumer group and a live run are not touched: its claims lie above.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa
from pyspark.sql import SparkSession

from playhead.errors import PlayheadError
from playhead.ledger.model import ClosedRange, Host, OutputKind, RangeClaim, RecordedRange
from playhead.ledger.redo import Redone
from playhead.model import Deadline, Result
from playhead.model.outcome import result_of
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.deliver.files.sink import FilesSink, storage_of
from playhead.pipeline.deliver.files.writer import manifest_name, write_manifest
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.sink import SinkStep, TaskCommit, Writer
from playhead.pipeline.deliver.task import deliver
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.replay.files import RedoWriter
from playhead.pipeline.replay.pieces import why_different
from playhead.pipeline.replay.plan import Group, SinkState

STEP_CLAIMS = 2  # per slot


@dataclass(frozen=True, slots=True)
class RedoOutcome:
    """Of neighbouring ranges. `removed`: objects of the old cut that the new one does not have. `left_out`: records that did not
    fit, of a replay to another place."""

    range: OffsetRange
    result: Result
    count: int = 0
    objects: Sequence[str] = ()
    removed: Sequence[str] = ()
    generation: int | None = None
    detail: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RedoContext:
    """`offsets_per_claim`: a larger group is done in several steps. `accepts`: what was delivered is replaced although the topic
    no longer holds all of it. `compacted`: topics whose records disappear one by one. `check_owner` raises if the sink belongs to
    Connect by now."""

    spark: SparkSession
    state: SinkState
    logs: TopicLogs
    name: str
    properties: Mapping[str, str] = field(repr=False)
    slots: int
    offsets_per_claim: int
    deadline: Callable[[], Deadline]
    accepts: bool = False
    compacted: frozenset[str] = frozenset()
    check_owner: Callable[[], None] = lambda: None


class Redo:
    """The steps of a redo. `is_by_clock`: the output depends on the time at which a claim was made."""

    def __init__(self, of: RedoContext, shape: str, *, is_by_clock: bool = False) -> None:
        self.of = of
        self._shape = shape
        self._is_by_clock = is_by_clock

    def run(self, groups: Sequence[Group]) -> Iterator[RedoOutcome]:
        """Yields what each step has done. A step that fails does not keep the others from being done."""
        waiting = {log: list(self._claims(log, some)) for log, some in _by_log(groups).items()}
        while waiting:
            step = {log: waiting[log].pop(0) for log in list(waiting)[: STEP_CLAIMS * self.of.slots]}
            waiting = {log: left for log, left in waiting.items() if left}
            try:
                yield from list(self.step(list(step.values())))
            except PlayheadError as error:
                for claim, recorded in step.values():
                    yield from self.failed(claim, recorded, error)

    def step(self, step: Sequence["RedoClaim"]) -> Iterator[RedoOutcome]:
        raise NotImplementedError

    def failed(
        self,
        claim: RangeClaim,
        recorded: Sequence[RecordedRange],  # noqa: ARG002
        error: PlayheadError,
    ) -> Iterator[RedoOutcome]:
        yield RedoOutcome(claim.range, result_of(error), detail=in_words(error))

    def counting(self, span: OffsetRange) -> list[RecordedRange]:
        return self.of.state.ranges.list_counting(self.of.state.cluster, self.of.state.pipeline, [span])

    def _claims(self, log: Log, groups: Sequence[Group]) -> Iterator["RedoClaim"]:
        generation = self.of.state.ranges.next_generation(self.of.state.cluster, self.of.state.pipeline, log)
        for group in groups:
            for made_ms, same in groupby(group.recorded, key=lambda one: one.made_ms if self._is_by_clock else 0):
                for some in _parts(list(same), self.of.offsets_per_claim):
                    first, last = some[0].closed.range, some[-1].closed.range
                    span = OffsetRange(*log, first.start, last.end)
                    at = made_ms or some[0].made_ms or 0
                    yield RangeClaim(span, True, self._shape, at, generation), some


class FilesRedo(Redo):
    """Of a file sink."""

    def __init__(self, of: RedoContext, sink: FilesSink) -> None:
        super().__init__(of, sink.shape, is_by_clock=bool(sink.notes))
        self.sink = sink
        self.state = of.state

    def step(self, step: Sequence["RedoClaim"]) -> Iterator[RedoOutcome]:
        claims = [claim for claim, _ in step]
        writer = open_writer(self.sink, self.state, self.of.logs, claims, self.of.deadline)
        recorded = {claim.range.place: [one.closed for one in some] for claim, some in step}
        reading = ReadOptions(self.of.properties, self.sink.has_keys, self.sink.has_headers)
        policy = RejectPolicy(self.of.name, tolerates=True)  # counted again; the dead letter queue has them already
        redo = RedoWriter(writer, recorded, self.of.accepts)
        marks = {claim.range: claim.shape for claim in claims}
        self.state.ranges.begin_redo(self.state.cluster, self.state.pipeline, marks, is_forced=self.of.accepts)
        done = dict(deliver(self.of.spark, reading, claims, redo, policy))
        judged = [_judged(claim, some, done[claim], accepts=self.of.accepts) for claim, some in step]
        self.of.logs.check_same([claim.range.log for claim in claims], self.of.deadline())
        good = [one for each in judged for one in each.good]
        removed = self._remove_surplus(good)
        self._write_manifests(judged)
        late = self.state.ranges.redo(self.state.cluster, self.state.pipeline, good, Host.here(), list(marks))
        for each in judged:
            for one in each.good:
                yield self._outcome(one, removed, is_late=one in late)
            yield from each.refused

    def _remove_surplus(self, good: Sequence[Redone]) -> Mapping[Log, Sequence[str]]:
        """The objects of the old ranges that neither the new ones nor any other range has."""
        removed: dict[Log, list[str]] = {}
        store = None
        for one in good:
            kept = {output.name for each in one.new for output in each.outputs}
            old = {span.closed.range for span in one.old}
            outputs = (output for each in one.old for output in each.closed.outputs)
            surplus = {output.name for output in outputs if output.kind == OutputKind.OBJECT} - kept
            if not surplus:
                continue
            having = self.state.ranges.list_with_outputs(self.state.cluster, self.state.pipeline, one.log, surplus)
            others = (each.closed for each in having if each.closed.range not in old)
            for name in sorted(surplus - {output.name for each in others for output in each.outputs}):
                store = store or storage_of(self.sink.options).connect()
                store.remove(name)
                removed.setdefault(one.log, []).append(name)
        return removed

    def _write_manifests(self, judged: Sequence["_Judged"]) -> None:
        store = storage_of(self.sink.options).connect()
        for each in judged:
            for one in each.good:
                first, last = one.new[0].range, one.new[-1].range
                span = OffsetRange(*one.log, first.start, last.end)
                claim = replace(each.claim, range=span)
                incarnation = self.state.ranges.incarnation(
                    self.state.cluster, self.state.pipeline, span.topic, span.topic_id
                )
                write_manifest(store, manifest_name(self.sink.options.names, claim, incarnation), claim, one.new)

    def _outcome(self, one: Redone, removed: Mapping[Log, Sequence[str]], *, is_late: bool) -> RedoOutcome:
        """Reads the ledger back: what counts must be what was committed."""
        span = OffsetRange(*one.log, one.new[0].range.start, one.new[-1].range.end)
        counting = self.counting(span)
        names = [output.name for each in one.new for output in each.outputs]
        same = [each.closed.range for each in counting] == [each.range for each in one.new]
        result, detail = (Result.CHANGED, "") if same else (Result.UNKNOWN, "the ledger has other ranges now")
        if same and is_late:
            result, detail = Result.UNCHANGED, "another replay committed the same ranges before"
        generation = counting[0].generation if counting else None
        count = sum(each.count for each in one.new)
        gone = [name for name in removed.get(one.log, ()) if name in _names(one.old)]
        return RedoOutcome(span, result, count, names, gone, generation, detail)


RedoClaim = tuple[RangeClaim, Sequence[RecordedRange]]


@dataclass(frozen=True, slots=True)
class _Judged:
    claim: RangeClaim
    good: Sequence[Redone]
    refused: Sequence[RedoOutcome]


def _judged(
    claim: RangeClaim, recorded: Sequence[RecordedRange], closed: Sequence[ClosedRange], *, accepts: bool
) -> _Judged:
    """`closed`: what was read of the claim. The files of ranges that hold something else were not touched."""
    good: list[Redone] = []
    refused: list[RedoOutcome] = []
    for old in recorded:
        span = old.closed.range
        found = [one for one in closed if one.range.start in span]
        if sum(len(one.range) for one in found) != len(span):  # the claim had no record at all
            found = [ClosedRange(span, 0, 0, 0)]
        why = why_different(old.closed, found)
        if why and not accepts:
            refused.append(
                RedoOutcome(span, Result.REFUSED, detail=f"{why}; --accept-changes replaces its files anyway")
            )
        elif good and good[-1].old[-1].closed.range.end == span.start:
            good[-1] = replace(good[-1], old=[*good[-1].old, old], new=[*good[-1].new, *found])
        else:
            good.append(Redone([old], found, claim.shape, claim.made_ms, claim.generation))
    return _Judged(claim, good, refused)


def open_writer(
    sink: FilesSink,
    state: SinkState,
    logs: TopicLogs,
    claims: Sequence[RangeClaim],
    deadline: Callable[[], Deadline],
) -> Writer:
    """With the schema that the pipeline has learnt, and names as of the incarnation of each topic."""
    topics = {(claim.range.topic, claim.range.topic_id) for claim in claims}
    incarnations = {name: state.ranges.incarnation(state.cluster, state.pipeline, name, id_) for name, id_ in topics}

    def recall(key: str, make: Callable[[], str]) -> str:
        found = state.ranges.recall(state.cluster, state.pipeline, key)
        return make() if found is None else found

    def sample(topic: str) -> Callable[[], pa.RecordBatch]:
        spans = [claim.range for claim in claims if claim.range.topic == topic]
        return lambda: logs.sample(spans, deadline())

    samples = {name: sample(name) for name, _ in topics}
    return sink.writer(SinkStep(recall, samples, _no_commit, incarnations=incarnations))


def in_words(error: PlayheadError) -> str:
    return f"{error.what}; {error.hint}" if error.hint else error.what


def _by_log(groups: Sequence[Group]) -> dict[Log, list[Group]]:
    found: dict[Log, list[Group]] = {}
    for group in groups:
        found.setdefault(group.range.log, []).append(group)
    return found


def _parts(recorded: Sequence[RecordedRange], offsets: int) -> Iterator[list[RecordedRange]]:
    part: list[RecordedRange] = []
    for one in recorded:
        if part and one.closed.range.end - part[0].closed.range.start > offsets:
            yield part
            part = []
        part.append(one)
    yield part


def _names(old: Sequence[RecordedRange]) -> set[str]:
    return {output.name for one in old for output in one.closed.outputs}


def _no_commit() -> TaskCommit:
    raise AssertionError("the tasks of a file sink do not commit")
