"""A comparison of two sides as the pair that is reported. What is not known is never clean."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from playhead.pipeline.audit.arithmetic import Arithmetic
from playhead.pipeline.audit.buckets import COUNT
from playhead.pipeline.audit.compare import Compared
from playhead.pipeline.audit.model import Faulty, Item, Pair, Verdict, counted

SAME_DATA = "other texts of the same data"  # why digests of JSON may differ


def with_sums(pair: Pair, sums: Arithmetic) -> Pair:
    """What the ledger says."""
    counts = {Verdict.GAP.value: sums.gaps} if sums.gaps else {}
    return replace(pair, source_rows=sums.rows, target_rows=sums.rows, counts=counts, faults=sums.faults)


def with_digests(pair: Pair, found: Compared) -> Pair:
    return replace(
        pair,
        level=2 if found.differing else 1,
        source_rows=found.left.rows,
        target_rows=found.right.rows,
        suspects=len(found.suspects),
        buckets=found.left.picture(found.right),
    )


def of_digests(pair: Pair, doubts: Sequence[str]) -> Pair:
    """A pair of which only digests were compared, and which differ. `doubts`: what else than a lost row makes them differ."""
    differ = f"{pair.suspects} of {COUNT} buckets of rows differ"
    if doubts:
        what = f"{differ}, and digests alone do not tell lost rows from {' and '.join(doubts)}"
        return replace(pair, error=f"{what}: compare with --level 2")
    return replace(pair, faults=[*pair.faults, Faulty(pair.target, f"{differ}; --level 2 names the rows")])


def of_items(
    pair: Pair, items: Sequence[Item], more: int = 0, counts: Mapping[str, int] | None = None, notes: Sequence[str] = ()
) -> Pair:
    """`more`: rows that differ beyond the items. `counts`: rows that are counted and not listed."""
    total = counted(items) + Counter(pair.counts) + Counter(counts or {})
    listed = [item for item in items if item.verdict is not Verdict.GAP]
    said = [*notes, *([f"{more} more rows differ than are listed"] if more else [])]
    made = replace(pair, counts=dict(total), items=listed, more=more, notes=[*pair.notes, *said])
    if more and not made.findings:
        what = f"{len(items)} rows differ without being findings, and {more} more were not looked at"
        return replace(made, error=f"{what}: compare a part with --since and --until, or raise --limit")
    return made
