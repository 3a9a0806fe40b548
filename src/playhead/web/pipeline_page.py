"""The page of one pipeline: its way, positions over time, its file and its buttons. `ledger_bars.py` has the ledger's ranges."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from playhead.broker import show_topic
from playhead.config.secrets import MASK, SecretKeys, masked_config
from playhead.connectors import ShownConnector, show_connector
from playhead.connectors import plan as plan_connectors
from playhead.connectors.files.read import read_files
from playhead.connectors.plan.model import KeyChange, diff_config, normalised
from playhead.connectors.python_classes import types_of
from playhead.connectors.spark_runs import show_spark_run
from playhead.connectors.status import shown_of_run
from playhead.errors import Busy, NotFound, PlayheadError, Unreachable
from playhead.model import Deadline
from playhead.model.connector import ConnectorSpec
from playhead.offsets.api import list_
from playhead.render.clean import clean
from playhead.web import svg
from playhead.web.handovers import HANDOVER
from playhead.web.journals import Noted
from playhead.web.pipelines import Pipeline
from playhead.web.poller import Part
from playhead.web.site import Watched
from playhead.web.sources import SeenRun
from playhead.web.verbs import DELETE, FORGET_RUN, STOP_RUN

if TYPE_CHECKING:
    from playhead.pipeline.audit.kept import KeptAudit
    from playhead.topics.show import ShownTopic
    from playhead.topics.usage import ConnectorUse

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


def find_shown(at: Watched, name: str, deadline: Deadline) -> ShownConnector:
    """As `connectors show`. A worker that is away, or not named, does not hide what the ledger has of a run."""
    run = find_seen_run(at, name)
    if run is None:
        return show_connector(at.context, name, deadline)
    fault: PlayheadError | None = None
    if at.context.connect_urls:
        try:
            return show_connector(at.context, name, deadline.share())
        except (Unreachable, Busy) as error:
            fault = error
    found = show_spark_run(at.context, run.run.cluster, name, deadline)
    if found is None:
        raise fault or NotFound("connector", name)
    shown = shown_of_run(at.context, found, deadline)
    note = (
        f"whether Connect has it is not known: {fault.what}" if fault else "no Connect worker is named in this context"
    )
    return replace(shown, notes=(*shown.notes, note))


def find_kept_audits(at: Watched, name: str) -> "Part[Sequence[KeptAudit]]":
    """The newest that was made with this journal: on the run's cluster, or on each that has a pipeline of this name."""
    from playhead.pipeline.audit.kept import find_audits

    run = find_seen_run(at, name)
    cluster = None if run is None else run.run.cluster
    return at.lookups.get(("audits", name, cluster), lambda deadline: find_audits(at.context, name, cluster))


def find_seen_run(at: Watched, name: str) -> SeenRun | None:
    return next((one for one in at.poller.seen.runs.value or () if one.run.pipeline == name), None)


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


@dataclass(frozen=True, slots=True)
class PositionLines:
    """Partition -> time and position, oldest first. `why`: the reason why they are not known."""

    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    why: str = ""


def lines_of(at: Watched, name: str) -> PositionLines:
    """Positions by the times at which they were written, as far as the store has them; else what the poller saw lately."""
    try:
        rows = at.lookups.get(
            ("history", name), lambda deadline: list(list_(name, history=True, context=at.context)), every=6
        )
    except PlayheadError as error:
        return PositionLines(why=error.what)
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows.value or ():
        written, numbers = row.where.get("written"), [v for v in (row.offset or {}).values() if type(v) is int]
        if isinstance(written, str) and numbers:
            point = (datetime.fromisoformat(written).timestamp(), float(numbers[-1]))
            lines.setdefault(json.dumps(row.partition, sort_keys=True), []).append(point)
    if sum(len(line) for line in lines.values()) < 2:
        shift = time.time() - time.monotonic()
        points = [
            (point.at + shift, float(point.moved)) for point in at.poller.history.of(name) if point.moved is not None
        ]
        lines = {"all partitions": points}
    return PositionLines({place: _in_order(line) for place, line in lines.items()}, rows.fault)


def chart_of(at: Watched, name: str, entries: Sequence[Noted]) -> Markup:
    found = lines_of(at, name)
    why = (
        Markup('<p class="notice">The history is not known: {}</p>').format(clean(found.why))
        if found.why
        else Markup("")
    )
    if found.why and not found.lines:
        return why
    marks = [(entry.at.timestamp(), f"moved by {entry.who}") for entry in entries if entry.kind == "positions"]
    return why + svg.position_chart(list(found.lines.values()), marks)


def _in_order(line: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Oldest first, as they were listed: what was written at once has times that differ by chance."""
    listed = line[::-1] if line and line[0][0] > line[-1][0] + 1 else line  # some stores list the newest first
    times = accumulate((at for at, _ in listed), max)
    return [(at, value) for at, (_, value) in zip(times, listed, strict=True)]


@dataclass(frozen=True, slots=True)
class Verb:
    """A button: the kind of its plan, its text, and one more field of its form."""

    kind: str
    text: str
    more: tuple[str, str] | None = None


def verbs_of(row: Pipeline | None, run: SeenRun | None) -> list[Verb]:
    """The buttons that make sense now."""
    if row is None or row.engine == "spark":
        if run is None:
            return []
        own = [Verb(STOP_RUN, "Stop the run")] if run.run.is_alive else _of_ended(run)
        return [*own, Verb(HANDOVER, "Hand over to Connect", ("to", "connect"))]
    state = row.state.split(",", 1)[0]
    found = [Verb("resume", "Resume") if state in ("paused", "stopped") else Verb("pause", "Pause")]
    if state != "stopped":
        found += [Verb("restart", "Restart"), Verb("stop", "Stop")]
    if "failed" in row.state:
        found.append(Verb("restart", "Restart what failed", ("only_failed", "1")))
    return [*found, Verb(HANDOVER, "Hand over to Spark", ("to", "spark")), Verb(DELETE, "Delete")]


def _of_ended(run: SeenRun) -> list[Verb]:
    """One that is silent may be asked to stop, in case it resumes."""
    stop = [Verb(STOP_RUN, "Stop the run")] if run.run.is_running else []
    return [*stop, Verb(FORGET_RUN, "Forget the run")]


def replayable(run: SeenRun | None) -> str | None:
    """An example of a range that the sink delivered; None: the ledger has none."""
    if run is None or not run.sinks:
        return None
    one = run.sinks[0]
    return f"{one.topic}:{one.partition}:{max(one.position - 1000, 0)}-{one.position}"


def replay_command(at: Watched, row: Pipeline | None, files: Sequence[Path]) -> str | None:
    """Of a source on Spark. Its rows are looked up through Spark, which takes longer than a page may."""
    if row is None or row.engine != "spark" or row.type == "sink":
        return None
    where = ["--context", at.context.name] if at.context.name else []
    named = ["-f", str(files[0])] if files else []
    return shlex.join(["playhead", "replay", row.name, "--range", "COLUMN:START..END", *named, *where])
