"""`playhead replay` of a source: opens the session, plans, and journals what is done."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from playhead.config import Context
from playhead.model import Result
from playhead.pipeline.replay.journal import begin_entry, finish_entry
from playhead.pipeline.replay.keys import KeyRange
from playhead.pipeline.replay.run import ReplayOptions
from playhead.pipeline.replay.sources import SourceOptions, SourceReplay, opened_source, replay_source
from playhead.pipeline.spark import new_log, spark_session

Row = dict[str, object]


@contextmanager
def planned_source(
    context: Context, name: str, asked: Sequence[KeyRange], options: ReplayOptions
) -> Iterator[tuple[SourceReplay, str]]:
    """With a session of its own: the database is asked through it."""
    log = new_log()
    wanted = SourceOptions(options.to_topic, options.offsets_per_claim, options.seconds, options.again)
    with (
        spark_session(replace(options.spark, log=log)) as spark,
        opened_source(context, name, asked, options.file, spark, wanted) as found,
    ):
        yield found
    log.unlink(missing_ok=True)


def source_rows(planned: SourceReplay) -> tuple[list[Row], list[Row]]:
    """What would be done, and what is impossible."""
    rows: list[Row] = []
    impossible: list[Row] = []
    for part in planned.parts:
        base: Row = {
            "table": part.stream.name,
            "topic": part.topic,
            "position": None if part.position is None else dict(part.position),
        }
        if part.ranges:
            own = part.topic == part.stream.topic
            does = "repeat to all consumers of the topic" if own else "write to the topic"
            rows.append({**base, "range": _shown(part.ranges), "rows": part.rows, "does": does})
        impossible += [{**base, "range": str(one), "does": "impossible", "why": why} for one, why in part.left_out]
    return rows, impossible


def execute_source(context: Context, planned: SourceReplay) -> Iterator[Row]:
    """The journal has an entry before anything is written."""
    rows, _ = source_rows(planned)
    target = ", ".join(sorted({part.topic for part in planned.parts}))
    entry = begin_entry(context, planned.name, planned.home.cluster_id, target, rows)
    ranges = {part.stream.name: _shown(part.ranges) for part in planned.parts}
    done: list[Row] = []
    for one in replay_source(planned):
        offsets = {str(partition): list(span) for partition, span in sorted((one.offsets or {}).items())}
        done.append(
            {
                "table": one.table,
                "range": ranges[one.table],
                "topic": one.topic,
                "rows": one.count,
                "offsets": offsets,
                "result": one.result.value,
                "detail": one.detail or None,
            }
        )
        yield done[-1]
    if all(row["result"] != Result.UNKNOWN.value for row in done):
        finish_entry(entry, done)


def _shown(ranges: Sequence[KeyRange]) -> str:
    words = [str(one) for one in ranges]
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
