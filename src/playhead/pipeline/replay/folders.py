"""Records that a sink has delivered go to another folder: exactly the asked offsets, and nothing in the ledger.

Files are named by their offsets. A partitioner by the clock also needs a time: it is the one at which the records were delivered,
which the ledger has. So the same command, after a kill or later, writes the same files again. A part that begins elsewhere, for
example because the first records have expired since, would have other names, and its records would be there twice: the folder
keeps what was written to it, and such a part is refused.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import NamedTuple

from playhead.errors import Invalid, PlayheadError, Refused
from playhead.files import replace_file
from playhead.ledger.model import RangeClaim
from playhead.model import Result
from playhead.model.outcome import result_of
from playhead.model.ranges import OffsetRange, RangeSet, TopicPartition
from playhead.pipeline.deliver.files.sink import FilesSink
from playhead.pipeline.deliver.files.writer import FOLDER
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.task import deliver
from playhead.pipeline.replay.plan import Impossible, ReplayPlan, SinkState
from playhead.pipeline.replay.redo import RedoContext, RedoOutcome, in_words, open_writer

_NO_TIME = "its folder follows from the time of its delivery, and no run has delivered it"


def limit_to_known_times(plan: ReplayPlan, state: SinkState, sink: FilesSink) -> ReplayPlan:
    """Of a sink with partitions by the clock only what a run has delivered has a time."""
    if not sink.options.partitioner.is_by_clock:
        return plan
    known = [span for span, _ in _timed(state, plan.spans)]
    without = [Impossible(span, _NO_TIME) for span in RangeSet(plan.spans) - RangeSet(known)]
    return replace(plan, spans=known, expired=[*plan.expired, *without])


class _Written(NamedTuple):
    """A part that an earlier replay wrote to a folder, or began to write."""

    topic_id: str
    start: int
    end: int
    shape: str


def check_folder(folder: Path, sink: FilesSink, spans: Sequence[OffsetRange]) -> None:
    """Refused if some of these records may be in the folder in files of other names."""
    for path, some in _by_note(folder, sink, spans).items():
        for span, known in _overlaps(some, _written(path)):
            if (known.start, known.shape) != (span.start, sink.shape) or known.end > span.end:
                there = replace(span, start=known.start, end=known.end)
                raise Refused(
                    f"{folder} has {there} of an earlier replay{'' if known.shape == sink.shape else ' with other options'}, and"
                    f" {span} now: files would have other names, and records would be there twice",
                    "name another folder, or empty this one",
                )


def _overlaps(spans: Sequence[OffsetRange], written: Sequence[_Written]) -> Iterator[tuple[OffsetRange, _Written]]:
    """`spans`: of one topic partition. One sweep over both."""
    for topic_id in {span.topic_id for span in spans}:
        known = sorted(one for one in written if one.topic_id == topic_id)
        at = 0
        for span in sorted(one for one in spans if one.topic_id == topic_id):
            while at < len(known) and known[at].end <= span.start:
                at += 1
            for one in takewhile(lambda one: one.start < span.end, islice(known, at, None)):  # noqa: B023  used at once
                if one.end > span.start:
                    yield span, one


def _note(folder: Path, sink: FilesSink, spans: Sequence[OffsetRange]) -> None:
    """What is about to be written; a longer part takes the place of a shorter one."""
    for path, some in _by_note(folder, sink, spans).items():
        noted = {(one.topic_id, one.start): one for one in _written(path)}
        noted |= {(one.topic_id, one.start): _Written(one.topic_id, one.start, one.end, sink.shape) for one in some}
        replace_file(path, json.dumps([*map(list, noted.values())]).encode(), new_mode=0o644)


def _by_note(folder: Path, sink: FilesSink, spans: Sequence[OffsetRange]) -> dict[Path, list[OffsetRange]]:
    found: dict[Path, list[OffsetRange]] = {}
    for span in spans:
        found.setdefault(_note_of(folder, sink, span), []).append(span)
    return found


def _note_of(folder: Path, sink: FilesSink, span: OffsetRange) -> Path:
    return (
        folder / FOLDER / sink.options.names.topics_dir.strip("/") / span.topic / str(span.partition) / "replayed.json"
    )


def _written(path: Path) -> list[_Written]:
    try:
        return [_Written(*one) for one in json.loads(path.read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise Invalid(f"{path} cannot be read: {error}", "name another folder") from None


def replay_to_folder(
    of: RedoContext, sink: FilesSink, folder: Path, spans: Sequence[OffsetRange]
) -> Iterator[RedoOutcome]:
    """One claim per span; spans of one topic partition follow each other."""
    check_folder(folder, sink, spans)
    _note(folder, sink, spans)
    is_by_clock = sink.options.partitioner.is_by_clock
    claims = [
        RangeClaim(span, True, sink.shape, made_ms)
        for span, made_ms in (_timed(of.state, spans) if is_by_clock else ((span, 0) for span in spans))
    ]
    for some in _rounds(claims):
        try:
            writer = open_writer(sink, of.state, of.logs, some, of.deadline)
            policy = RejectPolicy(of.name, tolerates=True)
            done = deliver(of.spark, ReadOptions(of.properties, sink.has_keys, sink.has_headers), some, writer, policy)
        except PlayheadError as error:
            yield from (RedoOutcome(claim.range, result_of(error), detail=in_words(error)) for claim in some)
            continue
        for claim, closed in done:
            rejected = sum(one.rejected for one in closed)
            yield RedoOutcome(
                claim.range,
                Result.CHANGED,
                sum(one.count for one in closed),
                [output.name for one in closed for output in one.outputs],
                detail=f"{rejected} record(s) did not fit and were left out" if rejected else "",
                left_out=rejected,
            )


def _timed(state: SinkState, spans: Sequence[OffsetRange]) -> list[tuple[OffsetRange, int]]:
    """What runs have delivered of these offsets, cut where the time of the delivery changes."""
    recorded = state.ranges.list_counting(state.cluster, state.pipeline, spans)
    found: list[tuple[OffsetRange, int]] = []
    for (_, made_ms), same in groupby(recorded, key=lambda one: (one.closed.range.log, one.made_ms)):
        if made_ms is not None:
            found += [(span, made_ms) for span in RangeSet(spans) & RangeSet(one.closed.range for one in same)]
    return found


def _rounds(claims: Sequence[RangeClaim]) -> list[list[RangeClaim]]:
    rounds: list[list[RangeClaim]] = []
    before: Counter[TopicPartition] = Counter()
    for claim in claims:
        number = before[claim.range.place]
        before[claim.range.place] += 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(claim)
    return rounds
