"""All pipelines in one list: what the overview shows, and the API and the metrics give. What is wrong comes first."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from playhead.connectors import ConnectorRow
from playhead.ledger.model import Run
from playhead.web.history import History
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
    stale: datetime | None = None


def list_pipelines(seen: Seen, history: History) -> list[Pipeline]:
    """Connectors as the workers and the ledger have them; runs that only the ledger has, too."""
    runs = {one.run.pipeline: one for one in seen.runs.value or ()}
    times = {group.group: [row.lag_seconds for row in group.rows] for group in seen.groups.value or ()}
    rows = list(seen.connectors.value or ())
    known = {row.name for row in rows}
    rows += [_run_row(one) for name, one in runs.items() if name not in known and not one.run.is_past]
    found = [_pipeline(row, runs.get(row.name), times, seen, history, known) for row in rows]
    return sorted(found, key=_worst_first)


def _pipeline(
    row: ConnectorRow,
    run: SeenRun | None,
    times: dict[str, list[float | None]],
    seen: Seen,
    history: History,
    known: Collection[str],
) -> Pipeline:
    behind = [seconds for seconds in times.get(f"connect-{row.name}", ()) if seconds is not None]
    lag, stale = row.lag, _stale(row, seen, known)
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
        lag if lag is not None or run is None else _records_behind(run.run),
        max(behind, default=None) if row.type == "sink" else _seconds_behind(run, seen),
        history.rate(row.name),
        said_of(row.trace) or (run.why if run else ""),
        row.position,
        stale,
    )


def _records_behind(run: Run) -> int | None:
    return run.behind.records if run.is_alive and run.behind is not None else None


def _seconds_behind(run: SeenRun | None, seen: Seen) -> float | None:
    """Of a source that runs on Spark, when it was seen: nobody knows it of one on Connect."""
    if run is None or not run.run.is_alive or run.run.behind is None:
        return None
    return run.run.behind.seconds(seen.runs.at or run.run.heartbeat)


def _stale(row: ConnectorRow, seen: Seen, known: Collection[str]) -> datetime | None:
    """When this row was last seen, if that is not now. Connectors come from the workers, other rows from the ledger."""
    part: Part[Any] = seen.connectors if row.name in known else seen.runs
    return part.at if part.is_stale else None


def _run_row(one: SeenRun) -> ConnectorRow:
    run = one.run
    kind = "sink" if one.sinks else run.settings.get("type", "source")
    position = None if run.last_position is None else run.last_position.to_json()
    return ConnectorRow(
        run.pipeline,
        kind,
        run.words,
        int(run.is_running),
        "",
        str(run.host),
        run.detail or None,
        "spark",
        None,
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
    """`words`: parts of names, types, states, positions and causes; `state:failed`, `engine:spark` and
    `level:wrong` for one of these only."""
    found = [one for one in pipelines if not engine or one.engine == engine]
    for word in words.lower().split():
        key, colon, value = word.partition(":")
        if colon and key in ("state", "engine", "type", "name", "level"):
            found = [one for one in found if value in str(getattr(one, key)).lower()]
        else:
            found = [
                one for one in found if word in f"{one.name} {one.type} {one.state} {one.position} {one.said}".lower()
            ]
    if sort == "name":
        return sorted(found, key=lambda one: one.name)
    numbers = {"lag": "lag", "behind": "behind_seconds", "rate": "rate"}
    if sort in numbers:
        return sorted(found, key=lambda one: -(getattr(one, numbers[sort]) or 0))
    return found
