"""What Prometheus scrapes: made from what the poller saw last, so that a scrape costs the cluster nothing."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from playhead.web.pipelines import Pipeline, list_pipelines
from playhead.web.poller import Poller

PLACE = ("context", "owner", "topic", "partition")


def metrics_text(pollers: Mapping[str, Poller]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collector(pollers))
    return generate_latest(registry)


class _Collector:
    def __init__(self, pollers: Mapping[str, Poller]) -> None:
        self._pollers = pollers

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        yield from self._of_pipelines()
        yield from self._of_places()
        yield from self._of_runs()
        yield from self._of_poller()

    def _of_pipelines(self) -> Iterable[Metric]:
        state = GaugeMetricFamily(
            "playhead_connector_state",
            "1 for the state of a connector",
            labels=("context", "connector", "type", "engine", "state"),
        )
        tasks = GaugeMetricFamily("playhead_connector_tasks", "Tasks", labels=("context", "connector"))
        wrong = GaugeMetricFamily(
            "playhead_connector_failed", "1 if it or a task has failed", labels=("context", "connector")
        )
        lag = GaugeMetricFamily("playhead_connector_lag_records", "Records behind", labels=("context", "connector"))
        for context, poller in self._pollers.items():
            one: Pipeline
            for one in list_pipelines(poller.seen, poller.history):
                word = one.state.split(" for ", 1)[0]  # `silent for 5m` would be a new series every minute
                state.add_metric((context, one.name, one.type, one.engine, word), 1)
                tasks.add_metric((context, one.name), one.tasks)
                wrong.add_metric((context, one.name), one.level == "wrong")
                if one.lag is not None:
                    lag.add_metric((context, one.name), one.lag)
        yield from (state, tasks, wrong, lag)

    def _of_places(self) -> Iterable[Metric]:
        position = GaugeMetricFamily("playhead_position", "The next offset to read", labels=PLACE)
        lag = GaugeMetricFamily("playhead_lag_records", "Records between position and log end", labels=PLACE)
        seconds = GaugeMetricFamily("playhead_lag_seconds", "Time between position and newest record", labels=PLACE)
        for context, poller in self._pollers.items():
            for group in poller.seen.groups.value or ():
                for row in group.rows:
                    place = (context, f"group:{group.group}", row.topic, str(row.partition))
                    for family, value in ((position, row.committed), (lag, row.lag), (seconds, row.lag_seconds)):
                        if value is not None:
                            family.add_metric(place, value)
        yield from (position, lag, seconds)

    def _of_runs(self) -> Iterable[Metric]:
        names = ("context", "pipeline")
        age = GaugeMetricFamily("playhead_run_heartbeat_age_seconds", "Since the last heartbeat of a run", labels=names)
        rows = GaugeMetricFamily("playhead_run_rows", "Rows written by the newest run", labels=names)
        rejected = GaugeMetricFamily("playhead_rejected_records", "Rejected records in valid ranges", labels=names)
        claims = GaugeMetricFamily("playhead_open_claims", "Ranges that are begun and not finished", labels=names)
        for context, poller in self._pollers.items():
            for one in poller.seen.runs.value or ():
                name = (context, one.run.pipeline)
                if one.run.is_running:
                    age.add_metric(name, max(0.0, one.run.silent_seconds))
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
        for context, poller in self._pollers.items():
            kinds = [finding.kind for finding in poller.seen.doctor.value.findings] if poller.seen.doctor.value else []
            for kind in sorted(set(kinds)):
                found.add_metric((context, kind), kinds.count(kind))
            for name, part in poller.seen.parts.items():
                errors.add_metric((context, name), poller.seen.faults.get(name, 0))
                if part.at is not None:
                    age.add_metric((context, name), (now - part.at).total_seconds())
        yield from (found, errors, age)
