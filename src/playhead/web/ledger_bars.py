"""What the ledger has of a pipeline: a bar of ranges per partition, which can be opened by links, and chunks of a source.

Without a part in the address the newest ranges of each partition are drawn. A part is asked for by its offsets, however old it
is: a bounded number of ranges, or their sums.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup

from playhead.model import Deadline
from playhead.render.runs import chunk_row, range_row
from playhead.web import svg
from playhead.web.poller import Part
from playhead.web.site import Watched
from playhead.web.sources import SeenRun

if TYPE_CHECKING:
    from playhead.ledger.model import CondensedRanges, RecordedRange
    from playhead.offsets.spark_sinks import SinkRow

MOST_RANGES, FEWEST_RANGES = 2000, 20  # of all partitions; of each, so that an idle one is not left out
NEWEST_CHUNKS = 20
MOST_ZOOMED, MOST_ROWS = 500, 100  # ranges of the part that is zoomed into: drawn, and listed below
CONDENSED_PARTS = 250
Link = Callable[[int, int], str]


@dataclass(frozen=True, slots=True)
class Zoom:
    """A part of one partition, from the address of the page."""

    topic: str = ""
    partition: int = -1
    low: int = 0
    high: int = 0

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Zoom":
        numbers = [given.get(name, "") for name in ("partition", "from", "to")]
        if not all(text.isascii() and text.isdigit() and len(text) < 19 for text in numbers):
            return cls()
        partition, low, high = map(int, numbers)
        return cls(given.get("topic", ""), partition, low, high) if low < high else cls()


@dataclass(frozen=True, slots=True)
class Bar:
    """One partition. `rows`: the ranges of the part that is zoomed into. `note`: what of it is not shown. `links`: to other
    parts."""

    place: str
    picture: Markup
    behind: int | None
    zoomed: bool = False
    rows: Sequence[Mapping[str, Any]] = ()
    links: Sequence[tuple[str, str]] = ()
    span: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """What the ledger has of a pipeline: ranges and claims of a sink, chunks of a source."""

    ranges: Sequence["RecordedRange"] = ()
    claims: Mapping[tuple[str, int], tuple[int, int]] | None = None
    chunks: Sequence[Mapping[str, Any]] = ()


def find_committed(at: Watched, run: SeenRun) -> Part[Committed]:
    return at.lookups.get(("committed", run.run.pipeline), lambda deadline: committed_of(at, run, deadline))


def committed_of(at: Watched, run: SeenRun, deadline: Deadline) -> Committed:
    from playhead.ledger.ranges import open_ranges
    from playhead.ledger.runs import open_context_ledger

    cluster, name = run.run.cluster, run.run.pipeline
    with open_context_ledger(at.context, deadline.remaining()) as ledger:
        chunks = [chunk_row(one) for one in ledger.list_chunks(cluster, name, limit=NEWEST_CHUNKS)]
        if not run.sinks:
            return Committed(chunks=chunks)
        with open_ranges(ledger, run.run, deadline.remaining()) as kept:
            logs = list(kept.positions(cluster, name))
            newest = max(FEWEST_RANGES, MOST_RANGES // max(len(logs), 1))
            ranges = [one for log in logs for one in kept.list_ranges(cluster, name, log, newest)]
            claims = {
                (one.range.topic, one.range.partition): (one.range.start, one.range.end)
                for one in kept.list_claims(cluster, name)
            }
    return Committed(ranges, claims, chunks)


@dataclass(frozen=True, slots=True)
class ZoomedPart:
    """What the ledger has of the part that is zoomed into: at most `MOST_ZOOMED` ranges, the highest first. If there are more,
    `sums` has all of them, added up. `low` and `high` are within `begin` and `end` of the partition."""

    begin: int
    end: int
    low: int
    high: int
    ranges: Sequence["RecordedRange"] = ()
    sums: Sequence["CondensedRanges"] = ()


def find_zoomed(at: Watched, run: SeenRun, zoom: Zoom) -> Part[ZoomedPart] | None:
    """None: the address names no partition of this sink."""
    row = next((one for one in run.sinks if (one.topic, one.partition) == (zoom.topic, zoom.partition)), None)
    if row is None:
        return None
    key = ("zoomed", run.run.pipeline, zoom)
    return at.lookups.get(key, lambda deadline: zoomed_of(at, run, row, zoom, deadline))


def zoomed_of(at: Watched, run: SeenRun, row: "SinkRow", zoom: Zoom, deadline: Deadline) -> ZoomedPart:
    from playhead.ledger.ranges import open_ranges
    from playhead.ledger.runs import open_context_ledger

    cluster, name, place = run.run.cluster, run.run.pipeline, (row.topic, row.partition)
    with (
        open_context_ledger(at.context, deadline.remaining()) as ledger,
        open_ranges(ledger, run.run, deadline.remaining()) as kept,
    ):
        log = next((log for log in kept.positions(cluster, name) if (log.topic, log.partition) == place), None)
        begin = (None if log is None else kept.first_offset(cluster, name, log)) or 0
        end = max(row.position, at.board.shown.ends.get(place) or 0, begin + 1)
        low, high = max(zoom.low, begin), min(zoom.high, end)
        low, high = (low, high) if low < high else (begin, end)
        if log is None:
            return ZoomedPart(begin, end, low, high)
        found = kept.list_below(cluster, name, log, high, MOST_ZOOMED + 1)
        ranges = [one for one in found if one.closed.range.end > low]
        if len(ranges) <= MOST_ZOOMED:
            return ZoomedPart(begin, end, low, high, ranges)
        sums = kept.condense(cluster, name, log, (low, high), CONDENSED_PARTS)
    return ZoomedPart(begin, end, low, high, ranges[:MOST_ZOOMED], sums)


def bars_of(
    at: Watched, run: SeenRun, committed: Committed, address: str, zoom: Zoom = Zoom(), part: ZoomedPart | None = None
) -> list[Bar]:
    """`part`: what `zoom` leads to."""
    bars = []
    for row in run.sinks:
        place = (row.topic, row.partition)
        ends = at.board.shown.ends
        behind = max(0, ends[place] - row.position) if place in ends else None
        claim = (committed.claims or {}).get(place)
        link = _link_of(address, *place)
        if part is not None and place == (zoom.topic, zoom.partition):
            bars.append(_zoomed_bar(f"{row.topic}-{row.partition}", part, claim, behind, link, address))
            continue
        own = [r for r in committed.ranges if (r.closed.range.topic, r.closed.range.partition) == place]
        start = min((r.closed.range.start for r in own), default=0)
        end = max([row.position, ends.get(place) or 0, start + 1, *(r.closed.range.end for r in own)])
        older = row.ranges - sum(one.state.value != "superseded" for one in own)
        note = f"only the newest are shown; ranges before {start:,}: {older:,}" if older > 0 else ""
        links = [("older", link(2 * start - end, start)), ("all", link(0, end))] if older > 0 else []
        picture = svg.ledger_bar(_boxes(own), claim, (start, end), link)
        bars.append(Bar(f"{row.topic}-{row.partition}", picture, behind, note=note, links=links))
    return bars


def _zoomed_bar(
    name: str, part: ZoomedPart, claim: tuple[int, int] | None, behind: int | None, link: Link, address: str
) -> Bar:
    low, high, wide = part.low, part.high, part.high - part.low
    is_all = (low, high) == (part.begin, part.end)
    links = [
        ("newest of all partitions", f"{address}#ranges"),
        ("all", "" if is_all else link(part.begin, part.end)),
        ("wider", "" if is_all else link(low - wide // 2, high + wide // 2)),
        ("older", link(low - wide, low) if low > part.begin else ""),
        ("newer", link(high, high + wide) if high < part.end else ""),
    ]
    many = sum(one.ranges for one in part.sums)
    note = f"{many:,} ranges, added up; open a part to see each" if part.sums else ""
    picture = svg.ledger_bar(_condensed(part.sums) if part.sums else _boxes(part.ranges), claim, (low, high), link)
    rows = [] if part.sums else [range_row(one) for one in part.ranges[:MOST_ROWS]]
    span = f"{low:,} to {high:,} of {part.begin:,} to {part.end:,}"
    return Bar(name, picture, behind, True, rows, [one for one in links if one[1]], span, note)


def _link_of(address: str, topic: str, partition: int) -> Link:
    def link(low: int, high: int) -> str:
        words = {"topic": topic, "partition": partition, "from": max(low, 0), "to": high}
        return f"{address}{'&' if '?' in address else '?'}{urlencode(words)}#ranges"

    return link


def _boxes(ranges: Sequence["RecordedRange"]) -> list[svg.RangeBox]:
    """Those that count are drawn last, over what they supersede."""
    found = []
    for one in sorted(ranges, key=lambda found: (found.state.value == "committed", found.seq)):
        low, high, lost = one.closed.range.start, one.closed.range.end, one.closed.rejected
        what = f"{one.closed.count:,} records{f', {lost:,} rejected' if lost else ''}, run {one.epoch}"
        found.append(svg.RangeBox(one.state.value, low, high, f"{one.state.value} {low:,} to {high:,}: {what}", lost))
    return found


def _condensed(sums: Sequence["CondensedRanges"]) -> list[svg.RangeBox]:
    found = []
    for one in sorted(sums, key=lambda found: (found.state.value == "committed", found.start)):
        what = f"{one.count:,} records{f', {one.rejected:,} rejected' if one.rejected else ''}"
        title = f"{one.ranges:,} {one.state.value} ranges from {one.start:,} to {one.end:,}: {what}"
        found.append(svg.RangeBox(one.state.value, one.start, one.end, title, one.rejected))
    return found
