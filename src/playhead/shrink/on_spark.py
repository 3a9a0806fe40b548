"""Pipelines of Playhead itself that use a topic, as far as the ledger of the context knows: sinks with a position in it, sources
that have written it, copies."""

from playhead.ledger.model import Run
from playhead.ledger.runs import open_context_ledger
from playhead.offsets.published import LEDGER_ID
from playhead.offsets.spark_sinks import Sinks


def sinks_on_spark(sinks: Sinks, topic: str, objections: list[str]) -> dict[str, str | None]:
    """The sinks of this cluster with a position in the topic, and the id of the ledger in the commits of each."""
    found = {}
    for name in sinks.names:
        store = sinks.find(name)
        if store is None:
            continue
        places = [one.position.partition for one in store.snapshot([name]).entries]
        if any(place.get("kafka_topic") == topic for place in places):
            with store.open() as ranges:
                found[name] = ranges.recall(store.cluster, name, LEDGER_ID)
                claimed = [one.range for one in ranges.list_claims(store.cluster, name) if one.range.topic == topic]
            # What a killed run may have written of them is finished under the same names only from the old topic.
            objections += [f"{name} has begun {one} and not finished it: run it once more" for one in claimed]
            objections += [f"{one.what}: {one.hint}" for one in store.guard([name])]
    if sinks.why is not None:
        objections.append(f"which sinks on Spark read it is unknown: {sinks.why.what}")
    return found


def look_at_runs(sinks: Sinks, topic: str, copier: str, objections: list[str], notes: list[str]) -> None:
    """Those of the last runs, beside the `copier`, that read or write the topic and are no sinks."""
    runs = [run for run in sinks.listed if run.pipeline != copier]
    for run in runs:
        if run.is_copy and topic in (run.settings.get("source"), run.settings.get("target")):
            if run.is_alive:
                objections.append(
                    f"{run.pipeline} runs, a copy with this topic: playhead runs stop {run.pipeline} --execute"
                )
        elif run.settings.get("type") == "source" and topic in _written(sinks, run):
            if run.is_alive:
                objections.append(f"{run.pipeline} writes it on Spark: playhead runs stop {run.pipeline} --execute")
            notes.append(f"{run.pipeline} has written it on Spark: change its topic in its file before it runs again")


def _written(sinks: Sinks, run: Run) -> list[str]:
    with open_context_ledger(sinks.access.context, sinks.access.deadline.share().remaining()) as ledger:
        return ledger.list_topics(run.cluster, run.pipeline)
