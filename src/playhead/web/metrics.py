"""What Prometheus scrapes: made from what the poller saw last, so that a scrape costs the cluster nothing.

The series of pipelines and partitions are written here as text, once for each answer of the poller: ten thousand partitions are
thirty thousand series, for which prometheus_client takes a second. What depends on the time of the scrape is left to it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from playhead.web.board import Board, Shown
from playhead.web.history import runs_of

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(boards: Mapping[str, Board]) -> bytes:
    shown = {context: board.shown for context, board in boards.items()}
    families = [
        board.part("metrics", shown[context], lambda found, context=context: _series(context, found))  # type: ignore[misc]
        for context, board in boards.items()
    ]
    text = "".join(
        f"# HELP {name} {about}\n# TYPE {name} gauge\n{''.join(family[name] for family in families)}"
        for name, about in ABOUT.items()
    )
    registry = CollectorRegistry()
    registry.register(_Collector(shown))
    return text.encode("utf-8", "replace") + generate_latest(registry)


ABOUT = {
    "playhead_connector_state": "1 for the state of a connector",
    "playhead_connector_failed": "1 if it or a task has failed",
    "playhead_connector_tasks": "Tasks by state",
    "playhead_connector_lag_records": "Records behind; of a source on Spark at most so many",
    "playhead_connector_lag_seconds": "Time behind: of a sink its worst partition, of a source on Spark since it had caught up",
    "playhead_position": "The next offset to read",
    "playhead_lag_records": "Records between position and log end",
    "playhead_lag_seconds": "Time between position and newest record",
    "playhead_source_position": "A number in the position of a source",
}


def _series(context: str, shown: Shown) -> dict[str, str]:
    """The lines of each family."""
    lines: dict[str, list[str]] = {name: [] for name in ABOUT}
    _add_pipelines(lines, f'context="{_escaped(context)}"', shown)
    _add_places(lines, f'context="{_escaped(context)}"', shown)
    return {name: "".join(found) for name, found in lines.items()}


def _add_pipelines(lines: dict[str, list[str]], context: str, shown: Shown) -> None:
    states, failed, tasks, lags, seconds, sources = (
        lines[f"playhead_{name}"]
        for name in (
            "connector_state",
            "connector_failed",
            "connector_tasks",
            "connector_lag_records",
            "connector_lag_seconds",
            "source_position",
        )
    )
    numbers = shown.seen.connectors.value.numbers if shown.seen.connectors.value is not None else {}
    for one in shown.pipelines:
        name = f'connector="{_escaped(one.name)}",{context}'
        # `silent for 5m` and `running, 1 of 3 tasks failed` would be a new series at every change
        word = _escaped(one.state.split(" for ", 1)[0].split(", ", 1)[0])
        states.append(
            f'playhead_connector_state{{{name},engine="{one.engine}",state="{word}",type="{_escaped(one.type)}"}} 1.0\n'
        )
        failed.append(f"playhead_connector_failed{{{name}}} {float(one.level == 'wrong')}\n")
        known = numbers.get(one.name) if one.engine == "connect" else None
        for state, count in (known.tasks if known else {one.state: one.tasks} if one.tasks else {}).items():
            tasks.append(f'playhead_connector_tasks{{{name},state="{_escaped(state)}"}} {float(count)}\n')
        if one.lag is not None:
            lags.append(f"playhead_connector_lag_records{{{name}}} {float(one.lag)}\n")
        if one.behind_seconds is not None:
            seconds.append(f"playhead_connector_lag_seconds{{{name}}} {one.behind_seconds}\n")
        for partition, offset in (known.offsets if known else {}).items():
            place = f'{name},partition="{_escaped(partition.to_json())}"'
            sources += [
                f'playhead_source_position{{{place},field="{_escaped(field)}"}} {float(value)}\n'
                for field, value in (offset or {}).items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            ]
    for seen in runs_of(shown.seen):
        if seen.sinks or seen.run.last_position is None:
            continue
        place = (
            f'connector="{_escaped(seen.run.pipeline)}",{context},partition="{_escaped(seen.run.last_stream or "")}"'
        )
        sources += [
            f'playhead_source_position{{{place},field="{_escaped(field)}"}} {float(value)}\n'
            for field, value in seen.run.last_position.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]


def _add_places(lines: dict[str, list[str]], context: str, shown: Shown) -> None:
    """Of consumer groups, and of sinks on Spark by the ledger, which counts for these."""
    positions, lags, seconds = (lines[f"playhead_{name}"] for name in ("position", "lag_records", "lag_seconds"))
    for group in shown.seen.groups.value or ():
        owner = f'{context},owner="{_escaped(f"group:{group.group}")}",partition="'
        for row in group.rows:
            place = f'{owner}{row.partition}",topic="{_escaped(row.topic)}"}} '
            if row.committed is not None:
                positions.append(f"playhead_position{{{place}{row.committed}.0\n")
            if row.lag is not None:
                lags.append(f"playhead_lag_records{{{place}{row.lag}.0\n")
            if row.lag_seconds is not None:
                seconds.append(f"playhead_lag_seconds{{{place}{float(row.lag_seconds)}\n")
    ends = shown.ends
    for seen in runs_of(shown.seen):
        owner = f'{context},owner="{_escaped(seen.run.pipeline)}",partition="'
        for sink in seen.sinks:
            place = f'{owner}{sink.partition}",topic="{_escaped(sink.topic)}"}} '
            positions.append(f"playhead_position{{{place}{sink.position}.0\n")
            if (end := ends.get((sink.topic, sink.partition))) is not None:
                lags.append(f"playhead_lag_records{{{place}{max(0, end - sink.position)}.0\n")


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)


class _Collector:
    def __init__(self, shown: Mapping[str, Shown]) -> None:
        self._shown = shown

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        yield from self._of_runs()
        yield from self._of_poller()

    def _of_runs(self) -> Iterable[Metric]:
        names = ("context", "pipeline")
        age = GaugeMetricFamily("playhead_run_heartbeat_age_seconds", "Since the last heartbeat of a run", labels=names)
        rows = GaugeMetricFamily("playhead_run_rows", "Rows written by the newest run", labels=names)
        rejected = GaugeMetricFamily("playhead_rejected_records", "Rejected records in valid ranges", labels=names)
        claims = GaugeMetricFamily("playhead_open_claims", "Ranges that are begun and not finished", labels=names)
        now = datetime.now(UTC)
        for context, shown in self._shown.items():
            part = shown.seen.runs
            asked = 0.0 if part.at is None else (now - part.at).total_seconds()
            for one in part.value or ():
                name = (context, one.run.pipeline)
                if one.run.is_running:  # it grows while the ledger does not answer
                    age.add_metric(name, max(0.0, one.run.silent_seconds) + max(0.0, asked))
                rows.add_metric(name, one.run.records)
                rejected.add_metric(name, sum(row.rejected for row in one.sinks))
                claims.add_metric(name, sum(row.claimed is not None for row in one.sinks))
        yield from (age, rows, rejected, claims)

    def _of_poller(self) -> Iterable[Metric]:
        found = GaugeMetricFamily("playhead_doctor_findings", "Findings of the doctor", labels=("context", "kind"))
        errors = CounterMetricFamily(
            "playhead_ask_errors", "Questions that were not answered", labels=("context", "part")
        )
        age = GaugeMetricFamily("playhead_answer_age_seconds", "Age of the last answer", labels=("context", "part"))
        now = datetime.now(UTC)
        for context, shown in self._shown.items():
            seen = shown.seen
            kinds = [finding.kind for finding in seen.doctor.value.findings] if seen.doctor.value else []
            for kind in sorted(set(kinds)):
                found.add_metric((context, kind), kinds.count(kind))
            for name, part in seen.parts.items():
                errors.add_metric((context, name), seen.faults.get(name, 0))
                if part.at is not None:
                    age.add_metric((context, name), (now - part.at).total_seconds())
        yield from (found, errors, age)
