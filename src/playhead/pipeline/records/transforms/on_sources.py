"""What transforms can do to the records of a source, which have no topic partition, offset or timestamp before they are produced.

The topic of a stream must be known before its records are: it is created, and its partitions are counted, once a step. A chain
whose topic depends on the record is refused.
"""

from collections.abc import Iterator

from playhead.errors import Fault, Invalid
from playhead.pipeline.records.transforms import InsertField, RegexRouter, Stage, Stages, TimestampRouter, TopicMatches
from playhead.pipeline.records.transforms.arrow.routing import targets
from playhead.pipeline.records.transforms.arrow.values import Failed


def faults_on_sources(stages: Stages) -> list[Fault]:
    return [fault for stage in stages for fault in _faults(stage)]


def route(stages: Stages, topic: str) -> str:
    """The topic in which the records end: a predicate and a router see the one before."""
    for stage in stages:
        try:
            (topic,) = targets(stage, topic)
        except Failed as error:
            raise Invalid(f"transform {stage.alias!r}: {error}") from error
    return topic


def _faults(stage: Stage) -> Iterator[Fault]:
    prefix, change = f"transforms.{stage.alias}.", stage.change
    if isinstance(change, TimestampRouter):
        yield Fault(
            f"{prefix}type",
            None,
            "TimestampRouter is not honoured on Spark for sources: records have no timestamp before they are produced",
        )
    if isinstance(change, RegexRouter) and not isinstance(stage.only_if, TopicMatches | None):
        what = "would give each record a topic of its own, and the topic must be known before: use TopicNameMatches"
        yield Fault(f"{prefix}predicate", None, what)
    if isinstance(change, InsertField):
        for option, asked in (("partition.field", change.partition), ("timestamp.field", change.timestamp)):
            if asked and not asked.optional:
                what = "cannot be a required field: a source record has neither before it is produced"
                yield Fault(prefix + option, None, what)
        if change.offset:
            what = "is for sink connectors: a source record has no offset yet"
            yield Fault(f"{prefix}offset.field", None, what)
