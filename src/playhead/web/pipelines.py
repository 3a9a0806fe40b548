"""All pipelines in one list: what the overview shows, and the API and the metrics give. What is wrong comes first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from playhead.connectors import ConnectorRow
from playhead.web.history import History, Point
from playhead.web.poller import Seen
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
    points: tuple[Point, ...] = ()
    stale: datetime | None = None


def list_pipelines(seen: Seen, history: History) -> list[Pipeline]:
    """Connectors as the workers and the ledger have them; runs that only the ledger has, too."""
    runs = {one.run.pipeline: one for one in seen.runs.value or ()}
    times = {group.group: [row.lag_seconds for row in group.rows] for group in seen.groups.value or ()}
    rows = list(seen.connectors.value or ())
    known = {row.name for row in rows}
    rows += [_run_row(one) for name, one in runs.items() if name not in known and not one.run.is_past]
    found = [_pipeline(row, runs.get(row.name), times, seen, history) for row in rows]
    return sorted(found, key=_worst_first)


def _pipeline(
    row: ConnectorRow,
    run: SeenRun | None,
    times: dict[str, list[float | None]],
    seen: Seen,
    history: History,
) -> Pipeline:
    behind = [seconds for seconds in times.get(f"connect-{row.name}", ()) if seconds is not None]
    stale = seen.connectors.at if seen.connectors.is_stale and row.engine == "connect" else None
    return Pipeline(
        row.name,
        row.type,
        row.engine,
        row.state,
        level_of(row.state),
        row.tasks,
        row.lag,
        max(behind, default=None) if row.type == "sink" else None,
        history.rate(row.name),
        said_of(row.trace) or (run.why if run else ""),
        row.position,
        tuple(history.of(row.name)),
        stale,
    )


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
    """`words`: parts of names, types, states, positions and causes; `state:failed` and `engine:spark` for one of these only."""
    found = [one for one in pipelines if not engine or one.engine == engine]
    for word in words.lower().split():
        key, colon, value = word.partition(":")
        if colon and key in ("state", "engine", "type", "name"):
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
