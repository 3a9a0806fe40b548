"""What the ledger has of a pipeline: a bar of ranges per partition, which can be opened by links, and chunks of a source."""

from collections.abc import Mapping, Sequence
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
    from playhead.ledger.model import RecordedRange

MOST_RANGES, FEWEST_RANGES = 2000, 20  # of all partitions; of each, so that an idle one is not left out
NEWEST_CHUNKS = 20


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
    """One partition. `rows`: the ranges of the part that is zoomed into. `note`: what of it is not shown."""

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


def bars_of(at: Watched, run: SeenRun, committed: Committed, zoom: Zoom, address: str) -> list[Bar]:
    ends = at.board.shown.ends
    bars = []
    for row in run.sinks:
        place = (row.topic, row.partition)
        own = [r for r in committed.ranges if (r.closed.range.topic, r.closed.range.partition) == place]
        claim = (committed.claims or {}).get(place)
        start = min((r.closed.range.start for r in own), default=0)
        end = max([row.position, ends.get(place) or 0, start + 1, *(r.closed.range.end for r in own)])
        zoomed = place == (zoom.topic, zoom.partition)
        low, high = (max(zoom.low, start), min(zoom.high, end)) if zoomed else (start, end)
        low, high = (low, high) if low < high else (start, end)

        def link(low: int, high: int, place: tuple[str, int] = place) -> str:
            words = {"topic": place[0], "partition": place[1], "from": max(low, 0), "to": high}
            return f"{address}{'&' if '?' in address else '?'}{urlencode(words)}#ranges"

        older = row.ranges - sum(one.state.value != "superseded" for one in own)
        note = f"only the newest are shown; ranges before {start:,}: {older:,}" if older > 0 else ""
        picture = svg.ledger_bar(own, claim, (low, high), link)
        behind = max(0, ends[place] - row.position) if place in ends else None
        if not zoomed:
            bars.append(Bar(f"{row.topic}-{row.partition}", picture, behind, note=note))
            continue
        wide = high - low
        links = [
            ("whole partition", f"{address}#ranges"),
            ("wider", link(low - wide // 2, high + wide // 2)),
            ("earlier", link(low - wide, low) if low > start else ""),
            ("later", link(high, high + wide) if high < end else ""),
        ]
        inside = [range_row(r) for r in own if r.closed.range.start < high and r.closed.range.end > low]
        span = f"{low:,} to {high:,} of {start:,} to {end:,}"
        bars.append(
            Bar(
                f"{row.topic}-{row.partition}",
                picture,
                behind,
                True,
                inside[:100],
                [one for one in links if one[1]],
                span,
                note,
            )
        )
    return bars
