"""`playhead repair`: mends what an audit found, by the means of replay, and audits again.

First the same tiers are compared once more. What the audit found and is mended meanwhile is left alone, so it is safe to run a
repair twice, and after a kill. A finding that the audit did not have means that the facts have changed: nothing is done then. The
journal has an entry before the first change.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.errors import NotFound, Refused
from playhead.ledger.model import RecordedRange
from playhead.ledger.ranges import open_ranges
from playhead.ledger.runs import open_context_ledger
from playhead.model import Deadline, Result
from playhead.model.times import to_iso
from playhead.offsets.journal import Journal, save_entry, who_am_i
from playhead.pipeline.audit.model import FINDINGS, Audit, Item, Pair, Verdict
from playhead.pipeline.audit.repair_actions import Mended, RepairOptions, file_of, mend, ready_of, rows_in_file
from playhead.pipeline.audit.repair_plan import FILES, Action, Does, Files, plan_pair
from playhead.pipeline.audit.run import AuditOptions, asked_of, open_session, run_audit
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.deliver.files.sink import FilesSink
from playhead.pipeline.stop import find_run

FOLDER = "repairs"


@dataclass(frozen=True, slots=True)
class Repaired:
    """`after`: the audit that followed; None if there was nothing to mend."""

    mended: Sequence[Mended]
    after: Audit | None

    @property
    def exit_code(self) -> int:
        results = {one.result for one in self.mended}
        if Result.UNKNOWN in results:
            return 5
        if self.after is not None and self.after.exit_code:
            return self.after.exit_code
        return 1 if results & {Result.FAILED, Result.REFUSED} else 0


def action_row(action: Action) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(action)
    return {**made, "what": action.what}


def plan_repair(context: Context, audit: Audit, options: RepairOptions) -> list[Action]:
    """Reads the ledger and the files of sinks; changes nothing. A pair that could not be compared is refused."""
    _check_whole(audit)
    actions: list[Action] = []
    for pair in audit.pairs:
        if pair.findings:
            actions += _planned(context, pair, options)
    return actions


def _check_whole(audit: Audit) -> None:
    """What was not compared, only in part, or with another target than the pipeline's own, is not mended."""
    for pair in audit.pairs:
        if pair.error is not None:
            raise Refused(f"{pair.pipeline} could not be compared: {pair.error}", "audit it again first")
        if pair.more:
            raise Refused(
                f"{pair.more} rows of {pair.pipeline} differ that the audit does not list: it cannot be mended as a whole",
                "audit it with a higher --limit, or a part of it with --since and --until",
            )
        if asked_of(pair).against is not None and pair.kind == FILES:
            raise Refused(
                f"{pair.pipeline} was compared with {pair.target}, which is not what it writes",
                "audit it without --against, and repair that",
            )


def _planned(context: Context, pair: Pair, options: RepairOptions) -> list[Action]:
    if pair.kind != "files sink":
        return plan_pair(pair, deletes_extra=options.deletes_extra)
    ready = ready_of(context, pair, options)
    home = find_home(context, Deadline(options.seconds))
    sink = FilesSink(ready.config, home.worker)
    with ExitStack() as parts:
        ledger = parts.enter_context(open_context_ledger(context, options.seconds))
        try:
            run = find_run(ledger, pair.pipeline, home.cluster_id)
        except NotFound:
            raise Refused(
                f"{pair.pipeline} was not run by Playhead: no ledger knows its ranges",
                "move its position back with playhead offsets set, and let its own engine deliver again",
            ) from None
        ranges = parts.enter_context(open_ranges(ledger, run, options.seconds))

        def is_own(name: str) -> bool:
            found: list[RecordedRange] = ranges.list_with_output(run.cluster, pair.pipeline, name)
            return any(output.name == name for one in found for output in one.closed.outputs)

        rows = partial(rows_in_file, sink)
        return plan_pair(pair, deletes_extra=options.deletes_extra, files=Files(is_own, rows))


def execute_repair(
    context: Context,
    audit: Audit,
    options: RepairOptions,
    *,
    spark: SparkSession | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Repaired:
    with open_session(AuditOptions(spark=options.spark), spark) as opened:

        def audited() -> Audit:
            return replace(audit, pairs=list(_audited(context, audit, options, opened, say)))

        if not any(pair.findings for pair in audit.pairs):
            return Repaired([], None)
        _check_whole(audit)
        now = audited()
        _check_facts(audit, now)
        actions = plan_repair(context, now, options)
        entry = _begin(context, audit, actions)
        mended = mend(context, now, [one for one in actions if one.does is not Does.NOTHING], options, opened())
        _finish(entry, mended)
        left = [action for action in actions if action.does is Does.NOTHING]
        mended += [Mended(action, Result.REFUSED, action.note) for action in left]
        return Repaired(mended, audited() if mended else now)


def _audited(
    context: Context,
    audit: Audit,
    options: RepairOptions,
    spark: Callable[[], SparkSession],
    say: Callable[[str], None],
) -> Iterator[Pair]:
    """The pairs with findings once more, each asked as it was."""
    by_pipeline: dict[str, list[Pair]] = defaultdict(list)
    for pair in audit.pairs:
        if pair.findings:
            by_pipeline[pair.pipeline].append(pair)
    for name, some in by_pipeline.items():
        asked = replace(asked_of(some[0]), spark=options.spark, seconds=options.seconds)
        asked = replace(asked, file=file_of(some[0], options))
        found = run_audit(context, [name], asked, spark=spark(), say=say).pairs
        sources = {pair.source for pair in some}
        yield from (one for one in found if one.source in sources or one.error is not None)


def _check_facts(before: Audit, now: Audit) -> None:
    """Findings may have gone; there must be none that the audit did not have, and the topics must be the same ones."""
    known: dict[tuple[str, str, str | None], list[Item]] = defaultdict(list)
    for pair in before.pairs:
        for item in _findings(pair):
            known[pair.pipeline, pair.source, item.key].append(item)
    for pair in now.pairs:
        if pair.error is not None:
            raise Refused(f"{pair.pipeline} cannot be compared now: {pair.error}", "repair it when it can be")
        topic_ids = {old.facts.get("topic_id") for old in before.pairs if old.source == pair.source}
        if "topic_id" in pair.facts and pair.facts["topic_id"] not in topic_ids:
            raise Refused(f"{pair.source} was deleted and recreated since the audit", "audit again")
        for item in _findings(pair):
            if not any(is_part_of(item, old) for old in known[pair.pipeline, pair.source, item.key]):
                raise Refused(
                    f"{pair.pipeline} has findings that the audit did not have, the first: {item.verdict.value}"
                    f" {item.key or ''}",
                    "the facts have changed: audit again, and repair that",
                )


def is_part_of(item: Item, old: Item) -> bool:
    """Whether a finding is what is left of an older one of the same key: a repair that was killed has mended a part of it. Of a
    changed row, either version may be left alone."""
    is_same = item.verdict is old.verdict or old.verdict is Verdict.CHANGED
    is_inside = set(item.source) <= set(old.source) and set(item.target) <= set(old.target)
    return is_same and is_inside and item.count <= old.count


def _findings(pair: Pair) -> list[Item]:
    return [item for item in pair.items if item.verdict in FINDINGS]


# The journal


def _begin(context: Context, audit: Audit, actions: Sequence[Action]) -> tuple[Path, dict[str, Any]]:
    now = datetime.now(UTC)
    name = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{os.urandom(4).hex()}"
    planned = [action_row(action) for action in actions]
    content = {
        "playhead_repair": 1,
        "id": name,
        "who": who_am_i(),
        "started": to_iso(now),
        "audit": audit.id,
        "planned": planned,
    }
    path = Journal.of_context(context).folder / FOLDER / f"{name}.json"
    save_entry(path, _encoded(content), is_new=True)
    return path, content


def _finish(entry: tuple[Path, dict[str, Any]], mended: Sequence[Mended]) -> None:
    path, content = entry
    done = [
        {"does": one.action.does.value, "what": one.action.what, "result": one.result.value, "detail": one.detail}
        for one in mended
    ]
    save_entry(path, _encoded({**content, "finished": to_iso(datetime.now(UTC)), "outcomes": done}), is_new=False)


def _encoded(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
