"""All pipelines in one list: what the overview shows, and the API and the metrics give. What is wrong comes first."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from playhead.connectors import ConnectorRow
from playhead.connectors.spark_runs import merged
from playhead.offsets.groups import LagRow
from playhead.web.history import History, runs_of
from playhead.web.poller import Part, Seen
from playhead.web.sources import SeenRun

WRONG, ATTENTION, OK = "wrong", "attention", "ok"
_WRONG = re.compile(r"failed|silent|unassigned")
_OK = re.compile(r"running|finished")
_SENTENCE = 200
SORTS = ("worst", "name", "lag", "behind", "rate")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`level`: wrong, attention or ok. `said`: what there is to say. `stale`: when it was last seen, if that is not now."""

    name: str
    type: str
    engine: str
    state: str
    level: str
    tasks: int
    lag: int | None
    behind_seconds: float | None
    rate: float | None
    said: str
    position: str | None
    topics: tuple[str, ...] = ()
    stale: datetime | None = None


class Place(NamedTuple):
    """A partition that a sink reads: its position, and the end of its log."""

    topic: str
    partition: int
    at: int | None
    end: int | None


def list_pipelines(seen: Seen, history: History) -> list[Pipeline]:
    """Connectors as the workers have them, runs as the ledger has them: one that does not answer hides nothing of the other."""
    runs = {one.run.pipeline: one for one in runs_of(seen)}
    groups = {group.group: group.rows for group in seen.groups.value or ()}
    found = [
        _pipeline(row, runs.get(row.name), groups.get(f"connect-{row.name}", ()), seen, history)
        for row in _rows(seen, runs)
    ]
    return sorted(found, key=_worst_first)


def _rows(seen: Seen, runs: Mapping[str, SeenRun]) -> list[ConnectorRow]:
    """A list of connectors has the runs, too, as they were when it was made. The ledger's own answer counts, if there is one."""
    listed = list(seen.connectors.value or ())
    if seen.runs.value is None:
        return listed
    known = {row.name: row for row in listed}
    on_spark = [_run_row(one, known.get(name)) for name, one in runs.items() if not one.run.is_past]
    return merged([row for row in listed if row.engine != "spark"], on_spark)


def _pipeline(
    row: ConnectorRow, run: SeenRun | None, group: Sequence[LagRow], seen: Seen, history: History
) -> Pipeline:
    behind = [one.lag_seconds for one in group if one.lag_seconds is not None]
    places = _places(row, run, group)
    part: Part[Any] = seen.runs if row.engine == "spark" and seen.runs.value is not None else seen.connectors
    lag, stale = row.lag, part.at if part.is_stale else None
    if lag is None and seen.groups.is_stale and row.type == "sink":  # no broker answers: what was seen last, marked
        lag = history.last_lag(row.name)
        stale = stale or (seen.groups.at if lag is not None else None)
    return Pipeline(
        row.name,
        row.type,
        row.engine,
        row.state,
        level_of(row.state),
        row.tasks,
        lag,
        max(behind, default=None) if row.type == "sink" else _seconds_behind(run, seen),
        history.rate(row.name),
        said_of(row.trace) or (run.why if run else ""),
        row.position if row.type != "sink" or not places else _in_words(places),
        tuple(sorted({*(place.topic for place in places), *_configured(row.name, seen)})),
        stale,
    )


def _places(row: ConnectorRow, run: SeenRun | None, group: Sequence[LagRow]) -> list[Place]:
    """Where a sink is: by the ledger on Spark, by its group on Connect."""
    if row.engine == "spark":
        return [Place(one.topic, one.partition, one.position, one.end) for one in (run.sinks if run else ())]
    return [Place(one.topic, one.partition, one.committed, one.log_end) for one in group]


def _in_words(places: Sequence[Place]) -> str | None:
    known = [place for place in places if place.at is not None]
    if not known:
        return None
    at, end = sum(place.at or 0 for place in known), sum(place.end or 0 for place in known)
    whole = f" of {end:,}" if all(place.end is not None for place in known) else ""
    where = f"{known[0].topic}-{known[0].partition}" if len(known) == 1 else f"{len(known)} partitions"
    return f"{where} at {at:,}{whole}"


def _configured(name: str, seen: Seen) -> tuple[str, ...]:
    numbers = seen.connectors.value.numbers.get(name) if seen.connectors.value is not None else None
    return numbers.topics if numbers else ()


def _seconds_behind(run: SeenRun | None, seen: Seen) -> float | None:
    """Of a source that runs on Spark, when it was seen: it is unknown of one on Connect."""
    if run is None or not run.run.is_alive or run.run.behind is None:
        return None
    return run.run.behind.seconds(seen.runs.at or run.run.heartbeat)


def _run_row(one: SeenRun, listed: ConnectorRow | None) -> ConnectorRow:
    """`listed`: the row of the same name in the list of connectors."""
    run = one.run
    position = None if run.last_position is None else run.last_position.to_json()
    return ConnectorRow(
        run.pipeline,
        "sink" if one.sinks else listed.type if listed else run.settings.get("type", "source"),
        run.words,
        int(run.is_running),
        run.config.get("connector.class", ""),
        str(run.host),
        run.detail or None,
        "spark",
        one.lag,
        position,
    )


def level_of(state: str) -> str:
    if _WRONG.search(state):
        return WRONG
    return OK if _OK.fullmatch(state.partition(" (")[0]) else ATTENTION


def said_of(trace: str | None) -> str:
    """The first line of a trace: the cause comes first there."""
    line = next((line.strip() for line in (trace or "").splitlines() if line.strip()), "").removeprefix("Caused by: ")
    return line if len(line) <= _SENTENCE else line[: _SENTENCE - 1] + "…"


def _worst_first(one: Pipeline) -> tuple[int, int, str]:
    return ((WRONG, ATTENTION, OK).index(one.level), -(one.lag or 0), one.name)


def chosen(pipelines: Sequence[Pipeline], words: str = "", engine: str = "", sort: str = "worst") -> list[Pipeline]:
    """`words`: parts of names, types, states, topics, positions and causes; `state:failed`, `engine:spark`, `topic:orders` and
    `level:wrong` for one of these only."""
    found = [one for one in pipelines if not engine or one.engine == engine]
    for word in words.lower().split():
        key, colon, value = word.partition(":")
        if colon and key == "topic":
            found = [one for one in found if any(value in topic.lower() for topic in one.topics)]
        elif colon and key in ("state", "engine", "type", "name", "level"):
            found = [one for one in found if value in str(getattr(one, key)).lower()]
        else:
            found = [
                one
                for one in found
                if word in " ".join((one.name, one.type, one.state, one.position or "", one.said, *one.topics)).lower()
            ]
    if sort == "name":
        return sorted(found, key=lambda one: one.name)
    numbers = {"lag": "lag", "behind": "behind_seconds", "rate": "rate"}
    if sort in numbers:
        return sorted(found, key=lambda one: -(getattr(one, numbers[sort]) or 0))
    return found
