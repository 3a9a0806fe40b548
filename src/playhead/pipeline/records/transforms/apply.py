"""A chain of transforms applied to a batch of records.

A batch has one topic and one schema of keys and of values. Where a stage makes two of one (its predicate holds for some records,
a null keeps the schema that it had, a topic has the time in its name), several batches go on; `rows` says where each record came
from. A record that a stage fails at is bad, and its neighbours are not affected.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.batch import TRANSFORMATION, Bad, Batch, Headers, Typed, Untyped, Values
from playhead.pipeline.records.transforms import (
    Cast,
    DropHeaders,
    ExtractField,
    Filter,
    Flatten,
    HeaderFrom,
    HoistField,
    InsertField,
    InsertHeader,
    MaskField,
    RegexRouter,
    ReplaceField,
    SetSchemaMetadata,
    Stage,
    Stages,
    TimestampConverter,
    TimestampRouter,
    ValueToKey,
)
from playhead.pipeline.records.transforms.arrow import cast, headers, mask, routing, shape, times, untyped
from playhead.pipeline.records.transforms.arrow.values import Failed, Made
from playhead.pipeline.records.uniform import Uniform, joined, schema_of

# A null that has a schema goes through these as it is, and keeps its schema.
_PASS_NULLS = InsertField | ReplaceField | Flatten | Cast
_OfValues = _PASS_NULLS | ExtractField | HoistField | MaskField | SetSchemaMetadata | TimestampConverter


@dataclass(frozen=True, slots=True)
class Transformed:
    """`filtered` and the rows of `bad` are numbers of `Batch.rows`, ascending."""

    batches: list[Batch]
    filtered: np.ndarray
    bad: list[Bad]


def apply_chain(chain: Stages, batch: Batch) -> Transformed:
    live = [batch] if len(batch) else []
    filtered: list[np.ndarray] = []
    bad: list[Bad] = []
    for stage in chain:
        after: list[Batch] = []
        for one in live:
            is_chosen = routing.chosen(stage.only_if, one)
            chosen, others = one.take(np.flatnonzero(is_chosen)), one.take(np.flatnonzero(~is_chosen))
            if isinstance(stage.change, Filter):
                filtered.append(chosen.rows)
                made: list[Batch] = []
            else:
                made = _applied(stage, chosen, bad) if len(chosen) else []
            after += merged([*made, *([others] if len(others) else [])])
        live = after
    rows = np.sort(np.concatenate(filtered)) if filtered else np.empty(0, np.int64)
    return Transformed(live, rows, sorted(bad))


def _applied(stage: Stage, batch: Batch, bad: list[Bad]) -> list[Batch]:
    """What is bad is added to `bad`."""

    def fail(faults: Iterable[tuple[int, str]], batch: Batch) -> None:
        bad.extend(
            Bad(int(batch.rows[row]), f"transform {stage.alias!r}: {why}", TRANSFORMATION, stage.alias)
            for row, why in faults
        )

    try:
        return _changed(stage, batch, fail)
    except Failed as error:
        fail(((row, str(error)) for row in range(len(batch))), batch)
        return []


_Fail = Callable[[Iterable[tuple[int, str]], Batch], None]


def _changed(stage: Stage, batch: Batch, fail: _Fail) -> list[Batch]:
    change, on_key = stage.change, stage.on_key
    match change:
        case RegexRouter():
            return [replace(batch, topic=routing.route(change, batch.topic))]
        case TimestampRouter():
            is_timed = batch.timestamps.is_valid().to_numpy(zero_copy_only=False)
            fail(((int(row), "it has no timestamp") for row in np.flatnonzero(~is_timed)), batch)
            return routing.route_by_time(change, batch.take(np.flatnonzero(is_timed)))
        case InsertHeader() | DropHeaders():
            return [replace(batch, headers=headers.changed(change, batch))]
        case HeaderFrom():
            return _header_from(change, batch, fail, on_key=on_key)
        case ValueToKey():
            return _value_to_key(change, batch, fail)
        case Filter():
            return []
        case _:
            return _of_values(change, batch, fail, on_key=on_key)


def _of_values(change: _OfValues, batch: Batch, fail: _Fail, *, on_key: bool) -> list[Batch]:
    values = batch.key if on_key else batch.value
    if isinstance(values, Untyped):
        made, bad = _each(values, lambda value, row: _untyped(change, value, batch, row))
        return _without(_with_values(batch, made, on_key=on_key), bad, fail)
    if not isinstance(change, _PASS_NULLS) or not values.column.null_count:
        return _made(batch, _typed(change, values, batch), fail, on_key=on_key)
    is_null = values.column.is_null().to_numpy(zero_copy_only=False)
    given = np.flatnonzero(~is_null)
    nulls, others = batch.take(np.flatnonzero(is_null)), batch.take(given)
    if not len(others):
        return [nulls]
    try:
        changed = _made(others, _typed(change, values.take(given), others), fail, on_key=on_key)
    except Failed as error:
        fail(((row, str(error)) for row in range(len(others))), others)
        changed = []
    return [nulls, *changed]


def _typed(change: _OfValues, values: Typed, batch: Batch) -> Made:
    match change:
        case ExtractField():
            return shape.extract_field(change, values)
        case HoistField():
            return shape.hoist_field(change, values)
        case ReplaceField():
            return shape.replace_field(change, values)
        case InsertField():
            return shape.insert_field(change, values, batch)
        case Flatten():
            return shape.flatten(change, values)
        case SetSchemaMetadata():
            return shape.set_schema_metadata(change, values)
        case _:
            return _retyped(change, values)


def _retyped(change: Cast | MaskField | TimestampConverter, values: Typed) -> Made:
    match change:
        case Cast():
            return cast.cast(change, values)
        case MaskField():
            return mask.mask(change, values)
        case TimestampConverter():
            return times.convert(change, values)
        case _:
            assert_never(change)


def _untyped(change: _OfValues, value: object, batch: Batch, row: int | None) -> object:
    match change:
        case Cast():
            return cast.cast_untyped(change, value)
        case MaskField():
            return mask.mask_untyped(change, value)
        case TimestampConverter():
            return times.convert_untyped(change, value)
        case _:
            return untyped.reshape(change, value, batch, row)


def _each(values: Untyped, change: Callable[[object, int | None], object]) -> tuple[Untyped, dict[int, str]]:
    """All at once if they have one shape, and keep one; else record by record."""
    if isinstance(values, Uniform):
        with suppress(Failed):
            tree = change(values.tree, None)
            return Untyped([None] * len(values)) if tree is None else Uniform(tree, len(values)), {}
    made: list[object] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values.values):
        try:
            made.append(change(value, row))
        except Failed as error:
            made.append(None)
            bad[row] = str(error)
    return Untyped(made), bad


def _made(batch: Batch, made: Made, fail: _Fail, *, on_key: bool) -> list[Batch]:
    return _without(_with_values(batch, made.values, on_key=on_key), dict(made.bad), fail)


def _with_values(batch: Batch, values: Values, *, on_key: bool) -> Batch:
    return replace(batch, key=values) if on_key else replace(batch, value=values)


def _without(batch: Batch, bad: dict[int, str], fail: _Fail) -> list[Batch]:
    if not bad:
        return [batch]
    fail(bad.items(), batch)
    rest = batch.take(np.setdiff1d(np.arange(len(batch)), list(bad)))
    return [rest] if len(rest) else []


def _value_to_key(change: ValueToKey, batch: Batch, fail: _Fail) -> list[Batch]:
    if isinstance(batch.value, Typed):
        return _made(batch, shape.value_to_key(change, batch.value), fail, on_key=True)
    keys, bad = _each(batch.value, lambda value, row: untyped.key_of(change, value))
    return _without(replace(batch, key=keys), bad, fail)


def _header_from(change: HeaderFrom, batch: Batch, fail: _Fail, *, on_key: bool) -> list[Batch]:
    values = batch.key if on_key else batch.value
    made = headers.taken(change, values, batch)
    changed = replace(_with_values(batch, made.values, on_key=on_key), headers=made.headers)
    return _without(changed, dict(made.bad), fail)


# Parts that have become alike are one batch again, so that a predicate does not leave many small ones


def merged(parts: list[Batch]) -> list[Batch]:
    alike: dict[object, list[Batch]] = {}
    for part in parts:
        alike.setdefault((part.topic, part.partition, _schema(part.key), _schema(part.value)), []).append(part)
    return [_joined(group) for group in alike.values()]


def _schema(values: Values) -> object:
    if isinstance(values, Uniform):
        return Uniform, schema_of(values.tree)
    return values.schema if isinstance(values, Typed) else None


def _joined(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    offsets = [part.offsets for part in parts if part.offsets is not None]
    listed: list[Headers] = [one for part in parts for one in part.headers or [()] * len(part)]
    return Batch(
        rows[order],
        parts[0].topic,
        _joined_values([part.key for part in parts], order),
        _joined_values([part.value for part in parts], order),
        pa.concat_arrays([part.timestamps for part in parts]).take(pa.array(order)),
        parts[0].partition,
        np.concatenate(offsets)[order] if offsets else None,
        [listed[row] for row in order] if any(part.headers is not None for part in parts) else None,
    )


def _joined_values(parts: list[Values], order: np.ndarray) -> Values:
    first = parts[0]
    if isinstance(first, Typed):
        columns = [part.column for part in parts if isinstance(part, Typed)]
        return Typed(first.schema, pa.concat_arrays(columns).take(pa.array(order)))
    if isinstance(first, Uniform):
        return joined([part for part in parts if isinstance(part, Uniform)], order)
    values = [value for part in parts if isinstance(part, Untyped) for value in part.values]
    return Untyped([values[row] for row in order])
