"""The page of one pipeline: its way, positions over time, the ledger's ranges, its file, tasks, runs and changes by hand."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup

from playhead.broker import show_topic
from playhead.config.secrets import MASK, SecretKeys, masked_config
from playhead.connectors import ShownConnector
from playhead.connectors import plan as plan_connectors
from playhead.connectors.files.read import read_files
from playhead.connectors.plan.model import KeyChange, diff_config, normalised
from playhead.connectors.python_classes import types_of
from playhead.errors import PlayheadError
from playhead.model import Deadline
from playhead.model.connector import ConnectorSpec
from playhead.offsets.api import list_
from playhead.render.runs import chunk_row, range_row
from playhead.web import svg
from playhead.web.journals import Noted
from playhead.web.pipelines import Pipeline
from playhead.web.site import Watched
from playhead.web.sources import SeenRun

if TYPE_CHECKING:
    from playhead.ledger.model import RecordedRange
    from playhead.topics.show import ShownTopic
    from playhead.topics.usage import ConnectorUse

NEWEST_RANGES = 1000
NEWEST_CHUNKS = 20
MOST_TOPICS = 3
_SYSTEMS = (
    "connection.url",
    "s3.bucket.name",
    "store.url",
    "path",
    "file",
    "database.hostname",
    "connection.uri",
    "url",
    "output.dir",
)


@dataclass(frozen=True, slots=True)
class Stop:
    """A box of the way."""

    title: str
    text: str
    link: str = ""
    is_topic: bool = False


@dataclass(frozen=True, slots=True)
class Hop:
    """A line of the way: the pipelines that go there. `name` is the first of them."""

    name: str
    engine: str
    text: str
    level: str = "ok"
    more: int = 0


@dataclass(frozen=True, slots=True)
class Way:
    """Source, topic, sink: as far as it is known. `why`: what is not, and the reason."""

    stops: Sequence[Stop]
    hops: Sequence[Hop | None]
    why: str = ""


def way_of(at: Watched, shown: ShownConnector) -> Way:
    """The topics of this pipeline, and the others that use them."""
    row = at.board.shown.find(shown.name)
    topics, users, why = _topics(at, shown)
    before, after = _others(at, users, "source", shown), _others(at, users, "sink", shown)
    system = Stop(system_of(shown.config, shown.row.type), form_of(shown.config, shown.row.type))
    own = Hop(shown.name, shown.row.engine, _progress(shown, row), row.level if row else "ok")
    if shown.row.type == "sink":
        left = [Stop("source", f"{len(before)} pipeline{'s' if len(before) > 1 else ''}")] if before else []
        return Way([*left, topics, system], [*([_hop(before)] if before else []), own], why)
    right = [Stop("sink", f"{len(after)} pipeline{'s' if len(after) > 1 else ''}")] if after else []
    return Way([system, topics, *right], [own, *([_hop(after)] if after else [])], why)


def _topics(at: Watched, shown: ShownConnector) -> tuple[Stop, list["ConnectorUse"], str]:
    """The box of the topics, and the connectors that use them."""
    if not shown.topics:
        return Stop("topic", "none was used yet", is_topic=True), [], ""
    users: list[ConnectorUse] = []
    partitions, end, why = 0, 0, ""
    for name in shown.topics[:MOST_TOPICS]:
        try:
            found = at.lookups.get(("topic", name), _asked_topic(at, name), every=6).value
        except PlayheadError as error:
            why = f"{name}: {error.what}"
            continue
        if found is not None:
            partitions += len(found.partitions)
            end += sum(one.end or 0 for one in found.partitions)
            users += found.connectors or ()
    more = len(shown.topics) - MOST_TOPICS
    title = ", ".join(shown.topics[:MOST_TOPICS]) + (f" and {more} more" if more > 0 else "")
    text = f"{partitions} partition{'' if partitions == 1 else 's'}, end {end:,}" if partitions else "not known"
    return Stop(f"topic {title}", text, f"/topics/{shown.topics[0]}", is_topic=True), users, why


def _asked_topic(at: Watched, name: str) -> Callable[[Deadline], "ShownTopic"]:
    return lambda deadline: show_topic(name, context=at.context).topic


def _others(at: Watched, users: Sequence["ConnectorUse"], kind: str, shown: ShownConnector) -> list[Pipeline]:
    names = {use.connector for use in users} - {shown.name}
    return [one for one in at.board.shown.pipelines if one.name in names and one.type == kind]


def _hop(pipelines: Sequence[Pipeline]) -> Hop:
    one = pipelines[0]
    said = f"{one.lag:,} behind" if one.lag is not None else one.position or one.state
    return Hop(one.name, one.engine, said, one.level, len(pipelines) - 1)


def _progress(shown: ShownConnector, row: Pipeline | None) -> str:
    if shown.row.type == "sink":
        lag = row.lag if row is not None and row.lag is not None else shown.row.lag
        return "lag not known" if lag is None else f"{lag:,} behind"
    if shown.positions:
        return shown.positions[0].position + (f" and {len(shown.positions) - 1} more" if shown.positions[1:] else "")
    return "no position yet"


def system_of(config: Mapping[str, str], kind: str) -> str:
    """The other side of a connector, from its config without secrets."""
    found = next((value for key in _SYSTEMS if (value := config.get(key))), None)
    if found is None:
        return kind
    if config.get("s3.bucket.name") == found:
        found = f"s3://{found}/{config.get('topics.dir', '')}".rstrip("/")
    table = config.get("table.whitelist") or config.get("table.include.list") or config.get("table.name.format")
    return f"{found} {table}" if table else found


def form_of(config: Mapping[str, str], kind: str) -> str:
    """In which form a connector keeps its data there, as far as its config tells."""
    if of_files := config.get("format.class"):
        form = of_files.rpartition(".")[2].removesuffix("Format")
        return f"{'JSON' if form == 'Json' else form} files"
    mode = config.get("insert.mode" if kind == "sink" else "mode")
    return f"tables, {mode}" if mode and "connection.url" in config else kind


@dataclass(frozen=True, slots=True)
class FileDiff:
    """`changes`: key, before, after; what applying the file, or on Spark the next run, would change. `why`: why that is not
    known."""

    origin: str = ""
    action: str = ""
    changes: Sequence[Mapping[str, Any] | KeyChange] = ()
    why: str = ""


def file_diff(at: Watched, files: Sequence[Path], shown: ShownConnector) -> FileDiff | None:
    """None: no file was named, or none of them has this connector."""
    if not files:
        return None
    try:
        return at.lookups.get(("file", shown.name), lambda deadline: _diff(at, files, shown), every=6).value
    except PlayheadError as error:
        return FileDiff(why=error.what)


def _diff(at: Watched, files: Sequence[Path], shown: ShownConnector) -> FileDiff | None:
    spec = next((one for one in read_files(files).specs if one.name.strip() == shown.name), None)
    if spec is None:
        return None
    origin = str(spec.origin)
    if shown.row.engine == "spark":
        return FileDiff(origin, "run", _changes_of_run(shown.config, spec)) if shown.config else FileDiff(origin)
    rows = [row.to_row() for row in plan_connectors(spec, context=at.context).rows]
    found = next((row for row in rows if row["name"] == shown.name), None)
    return FileDiff(origin) if found is None else FileDiff(origin, found["action"], found["changes"])


def _changes_of_run(recorded: Mapping[str, str], spec: ConnectorSpec) -> list[KeyChange]:
    """What the file has otherwise than the newest run. Secrets are recorded masked, so they are not compared."""
    own = SecretKeys.of_types(types_of(spec.connector_class)).passwords
    hidden = {key for key, value in recorded.items() if value == MASK}
    file = masked_config(spec.config, {*own, *hidden})
    return diff_config(normalised(recorded), normalised(file), SecretKeys())


def chart_of(at: Watched, name: str, entries: Sequence[Noted]) -> Markup:
    """Positions by the times at which they were written, as far as the store has them; else what the poller saw lately."""
    try:
        rows = at.lookups.get(
            ("history", name), lambda deadline: list(list_(name, history=True, context=at.context)), every=6
        )
    except PlayheadError as error:
        return Markup('<p class="notice">The history is not known: {}</p>').format(error.what)
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows.value or ():
        written, numbers = row.where.get("written"), [v for v in (row.offset or {}).values() if type(v) is int]
        if isinstance(written, str) and numbers:
            point = (datetime.fromisoformat(written).timestamp(), float(numbers[-1]))
            lines.setdefault(str(sorted(row.partition.items(), key=str)), []).append(point)
    if sum(len(line) for line in lines.values()) < 2:
        shift = time.time() - time.monotonic()
        points = [
            (point.at + shift, float(point.moved)) for point in at.poller.history.of(name) if point.moved is not None
        ]
        lines = {"all partitions": points}
    marks = [(entry.at.timestamp(), f"moved by {entry.who}") for entry in entries if entry.kind == "positions"]
    return svg.position_chart([_in_order(line) for line in lines.values()], marks)


def _in_order(line: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Oldest first, as they were listed: what was written at once has times that differ by chance."""
    listed = line[::-1] if line and line[0][0] > line[-1][0] + 1 else line  # some stores list the newest first
    times = accumulate((at for at, _ in listed), max)
    return [(at, value) for at, (_, value) in zip(times, listed, strict=True)]


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
    """One partition. `rows`: the ranges of the part that is zoomed into."""

    place: str
    picture: Markup
    behind: int | None
    zoomed: bool = False
    rows: Sequence[Mapping[str, Any]] = ()
    links: Sequence[tuple[str, str]] = ()
    span: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """What the ledger has of a pipeline: ranges and claims of a sink, chunks of a source."""

    ranges: Sequence["RecordedRange"] = ()
    claims: Mapping[tuple[str, int], tuple[int, int]] | None = None
    chunks: Sequence[Mapping[str, Any]] = ()


def committed_of(at: Watched, run: SeenRun, deadline: Deadline) -> Committed:
    from playhead.ledger.ranges import open_ranges
    from playhead.ledger.runs import open_context_ledger

    cluster, name = run.run.cluster, run.run.pipeline
    with open_context_ledger(at.context, deadline.remaining()) as ledger:
        chunks = [chunk_row(one) for one in ledger.list_chunks(cluster, name, limit=NEWEST_CHUNKS)]
        if not run.sinks:
            return Committed(chunks=chunks)
        with open_ranges(ledger, run.run, deadline.remaining()) as kept:
            ranges = kept.list_ranges(cluster, name, newest=NEWEST_RANGES)
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

        picture = svg.ledger_bar(own, claim, (low, high), link)
        behind = max(0, ends[place] - row.position) if place in ends else None
        if not zoomed:
            bars.append(Bar(f"{row.topic}-{row.partition}", picture, behind))
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
            )
        )
    return bars


def verbs_of(row: Pipeline | None, run: SeenRun | None) -> list[tuple[str, str, tuple[str, str] | None]]:
    """The buttons that make sense now: kind of the plan, text, and one more field of the form."""
    if row is None or row.engine == "spark":
        return [("stop_run", "Stop the run", None)] if run is not None and run.run.is_running else []
    state = row.state.split(",", 1)[0]
    rests = state in ("paused", "stopped")
    found: list[tuple[str, str, tuple[str, str] | None]] = [
        ("resume", "Resume", None) if rests else ("pause", "Pause", None)
    ]
    if state != "stopped":
        found += [("restart", "Restart", None), ("stop", "Stop", None)]
    if "failed" in row.state:
        found.append(("restart", "Restart what failed", ("only_failed", "1")))
    return found
