"""Records of a batch, sorted by what they are: rows of one layout each, tombstones among them, and bad ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from playhead.pipeline.sinks import KEY, KEY_CONVERTER, TASK_PUT
from playhead.pipeline.sinks.jdbc.options import RECORD_KEY, JdbcSinkOptions
from playhead.pipeline.sinks.values import Bad
from playhead.pipeline.sinks.values.columns import Columns, Converted, Part
from playhead.pipeline.sinks.values.options import Converter
from playhead.pipeline.sinks.values.schema import Schema

_NONE = -1


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring records of one schema. `rows`: where they stand in the batch. Columns of tombstones' values are null."""

    rows: np.ndarray
    deleted: np.ndarray
    key: "_Side | None"
    value: "_Side | None"

    def deletions(self) -> "Run":
        """Without the records that have values."""
        key = self.key and _Side(self.key.part, self.key.places[self.deleted])
        return Run(self.rows[self.deleted], self.deleted[self.deleted], key, None)

    @property
    def value_schema(self) -> Schema | None:
        return self.value.part.schema if self.value else None

    @property
    def key_schema(self) -> Schema | None:
        return self.key.part.schema if self.key else None


@dataclass(frozen=True, slots=True)
class _Side:
    """`places`: where each record of the run stands in the part, _NONE for a tombstone."""

    part: Part
    places: np.ndarray

    def column(self, name: str) -> pa.Array:
        column = self.part.columns.column(name)
        if len(self.places) == len(column) and (np.diff(self.places) == 1).all() and self.places[0] == 0:
            return column
        return column.take(pa.array(self.places, mask=self.places == _NONE))


@dataclass(frozen=True, slots=True)
class Sorting:
    """What the converters of a sink make of its records."""

    options: JdbcSinkOptions
    value: Converter
    key: Converter

    def sort(self, batch: pa.RecordBatch) -> tuple[list[Run], list[Bad]]:
        """In order, and without a record in two runs."""
        values = Columns(self.value).convert(batch)
        bad = list(values.bad)
        which, places = _lookup(values, batch.num_rows)
        deleted = values.tombstones & self.options.deletes
        if not self.options.deletes:
            bad += [Bad(int(row), "its value is null", TASK_PUT) for row in np.flatnonzero(values.tombstones)]
        fit = (which != _NONE) | deleted
        keys = self._keys(batch)
        key_which, key_places = _lookup(keys, batch.num_rows) if keys else (np.zeros_like(which), which)
        if keys:
            told = {one.row for one in bad}
            bad += [one for one in _bad_keys(keys) if one.row not in told]
            fit &= key_which != _NONE
        groups = _filled(which, fit)
        runs = []
        for rows in _split(np.flatnonzero(fit), groups, key_which):
            group = int(groups[rows[0]])
            value = None if group == _NONE else _Side(values.parts[group], np.where(deleted[rows], _NONE, places[rows]))
            key = _Side(keys.parts[int(key_which[rows[0]])], key_places[rows]) if keys else None
            runs.append(Run(rows, deleted[rows], key, value))
        return runs, sorted(bad)

    def _keys(self, batch: pa.RecordBatch) -> Converted | None:
        if self.options.pk_mode != RECORD_KEY:
            return None
        single = self.options.pk_fields[0] if len(self.options.pk_fields) == 1 else ""
        return Columns(self.key, column=KEY, single=single).convert(batch)


def _bad_keys(keys: Converted) -> Iterator[Bad]:
    for row in np.flatnonzero(keys.tombstones).tolist():
        yield Bad(row, "its key is null, which pk.mode=record_key does not allow", TASK_PUT)
    for one in keys.bad:
        yield Bad(one.row, f"its key does not fit: {one.reason}", KEY_CONVERTER)


def _lookup(converted: Converted, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each record its part and its place in it."""
    which, places = np.full(count, _NONE), np.full(count, _NONE)
    for number, part in enumerate(converted.parts):
        which[part.rows] = number
        places[part.rows] = np.arange(len(part.rows))
    return which, places


def _filled(which: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """Tombstones go with the records before them, at the start with those after: they have no schema of their own."""
    known = np.flatnonzero(fit & (which != _NONE))
    if not len(known):
        return np.full(len(which), _NONE)
    before = np.searchsorted(known, np.arange(len(which)), side="right") - 1
    filled: np.ndarray = which[known[np.maximum(before, 0)]]
    return filled


def _split(rows: np.ndarray, *codes: np.ndarray) -> Iterator[np.ndarray]:
    changes = np.zeros(max(0, len(rows) - 1), bool)
    for code in codes:
        changes |= np.diff(code[rows]) != 0
    yield from (run for run in np.split(rows, np.flatnonzero(changes) + 1) if len(run))
