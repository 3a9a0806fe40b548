"""Topics and predicates: RegexRouter, TimestampRouter, and which records a stage is for."""

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from playhead.connect.javaregex import matches, replace_first
from playhead.errors import Invalid
from playhead.pipeline.records.batch import Batch
from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.transforms import (
    HasHeader,
    IsTombstone,
    Predicate,
    RegexRouter,
    Stage,
    TimestampRouter,
    TopicMatches,
)
from playhead.pipeline.records.transforms.arrow.values import Failed


def route(change: RegexRouter, topic: str) -> str:
    try:
        return replace_first(change.regex, topic, change.replacement)
    except Invalid as error:
        raise Failed(error.what) from error


def targets(stage: Stage, topic: str) -> set[str]:
    """The topics that a stage may give to records of `topic`: both where its predicate depends on more than the topic. A time in
    a name is left as `${timestamp}`. Raises Failed if the stage fails at every record."""
    change, condition = stage.change, stage.only_if
    if not isinstance(change, RegexRouter | TimestampRouter):
        return {topic}
    if isinstance(condition, TopicMatches) and matches(condition.pattern, topic) == condition.negate:
        return {topic}
    made = route(change, topic) if isinstance(change, RegexRouter) else change.topic_format.replace("${topic}", topic)
    return {made} if isinstance(condition, TopicMatches | None) else {made, topic}


def route_by_time(change: TimestampRouter, batch: Batch) -> list[Batch]:
    """Every record has a timestamp. One batch a topic, in the order of their first records."""
    texts = DateFormat.of(change.timestamp_format).format(
        batch.timestamps.to_numpy(zero_copy_only=False).astype(np.int64)
    )
    found = pc.dictionary_encode(texts)
    which = found.indices.to_numpy(zero_copy_only=False)
    begun = change.topic_format.replace("${topic}", batch.topic)
    return [
        replace(batch.take(np.flatnonzero(which == at)), topic=begun.replace("${timestamp}", text))
        for at, text in enumerate(found.dictionary.to_pylist())
    ]


def chosen(predicate: Predicate | None, batch: Batch) -> np.ndarray:
    """Of each record: whether the stage is for it."""
    match predicate:
        case None:
            return np.ones(len(batch), bool)
        case TopicMatches():
            found = np.full(len(batch), matches(predicate.pattern, batch.topic))
        case HasHeader():
            listed = batch.headers or [()] * len(batch)
            found = np.array([any(one.name == predicate.name for one in headers) for headers in listed], bool)
        case IsTombstone():
            found = batch.value.nulls()
    return ~found if predicate.negate else found
