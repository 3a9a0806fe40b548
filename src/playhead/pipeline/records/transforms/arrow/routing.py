"""Topics and predicates: RegexRouter, TimestampRouter, and which records a stage is for."""

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from playhead.errors import Invalid
from playhead.pipeline.records.batch import Batch, Typed
from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.javaregex import matches, replace_first
from playhead.pipeline.records.transforms import (
    HasHeader,
    IsTombstone,
    Predicate,
    RegexRouter,
    TimestampRouter,
    TopicMatches,
)
from playhead.pipeline.records.transforms.arrow.values import Failed


def route(change: RegexRouter, topic: str) -> str:
    try:
        return replace_first(change.regex, topic, change.replacement)
    except Invalid as error:
        raise Failed(error.what) from error


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
            found = _nulls(batch)
    return ~found if predicate.negate else found


def _nulls(batch: Batch) -> np.ndarray:
    if isinstance(batch.value, Typed):
        return np.asarray(batch.value.column.is_null())
    return np.array([value is None for value in batch.value.values], bool)
