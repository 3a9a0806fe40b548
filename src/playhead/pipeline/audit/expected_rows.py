"""What a JDBC sink should have written of its topics, in the executors: the records put through its converters and transforms, as
rows of its table.

Into a table with upserts, of the records of one key the last one counts, and a tombstone deletes. There is no order across
partitions but that of the deliveries, which the ledger knows. Into a table of inserts every record is a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from playhead.errors import PlayheadError, Rejected
from playhead.ledger.model import RangeClaim
from playhead.ledger.redo import DeliveredSpan
from playhead.model import TopicPartition
from playhead.pipeline.audit.buckets import flags_of, rows_in
from playhead.pipeline.audit.sides import Hashed, digests_of, only
from playhead.pipeline.audit.stored import StoredRows, as_stored
from playhead.pipeline.audit.topic import Spans
from playhead.pipeline.deliver.jdbc.options import TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Coordinates, RefusedRows, RowMaker, Sorting
from playhead.pipeline.deliver.jdbc.tables import Fitted
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.sink import RejectedRecord
from playhead.pipeline.deliver.task import CLAIM, sink_records
from playhead.pipeline.spark_faults import marked, spark_translated
from playhead.sql.merge import MergeLayout

_KEYED = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.int64()),
        ("p", pa.int32()),
        ("o", pa.int64()),
        ("deleted", pa.bool_()),
        ("h", pa.int64()),
        ("at", pa.string()),
        ("row", pa.binary()),
    ]
)
_KEYED_DDL = "k bigint, s bigint, p int, o bigint, deleted boolean, h bigint, at string, row binary"
_USES_DDL = "k bigint, p int, deleted boolean"
_NOT_DELIVERED = -1


@dataclass(frozen=True, slots=True)
class Made:
    """Rows of one batch. `claim`: the number of what they were read from."""

    rows: StoredRows
    places: Coordinates
    claim: int


@dataclass(slots=True)
class _Gathering:
    """`Load` that keeps the rows of a batch."""

    task: "ExpectedRows"
    claim: int = 0
    made: list[Made] = field(default_factory=list)
    size: int = 0

    def begin(self, layout: MergeLayout) -> None:
        """Rows of several layouts are compared by the names of their columns."""

    def add(self, fitted: Fitted, columns: list[pa.Array], places: Coordinates) -> Sequence[RefusedRows]:
        task = self.task
        found = {column.name for column in fitted.columns}
        if unknown := sorted(found - task.names):
            raise Rejected(
                f"records have a column {unknown[0]!r} that the first and the last ones do not have: the table cannot be compared"
            )
        if not task.keys and found != task.names:
            raise Rejected(
                f"some records have no column {min(task.names - found)!r}, and rows have no key by which the others are found"
            )
        self.made.append(Made(as_stored(columns, fitted.columns, task.sorting.options.zones), places, self.claim))
        return ()

    def drained(self) -> list[Made]:
        made, self.made = self.made, []
        return made


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Picklable. `claims`: by the number in their records. `names`: the compared columns. `keys`: those of the table's key."""

    claims: Mapping[int, RangeClaim]
    sorting: Sorting
    target: TargetDatabase = field(repr=False)
    names: frozenset[str]
    keys: tuple[str, ...]
    deliveries: Mapping[TopicPartition, Sequence[DeliveredSpan]] = field(default_factory=dict)

    def made(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Made]:
        gathering = _Gathering(self)
        maker: RowMaker | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if maker is None:
                gathering.claim = batch.column(CLAIM)[0].as_py()
                maker = RowMaker(self.claims[gathering.claim], self.sorting, self.target, gathering, ignore)
            maker.take(sink_records(batch))
            yield from gathering.drained()

    def shown(self, made: Made, places: np.ndarray) -> tuple[list[str], list[bytes]]:
        place = self.claims[made.claim].range.place
        return [f"{place}@{offset}" for offset in made.places.offsets[places].tolist()], made.rows.shown(places)

    def delivered(self, made: Made) -> np.ndarray:
        """The number of the delivery of each row: a later one was written over an earlier one."""
        spans = self.deliveries.get(self.claims[made.claim].range.place, ())
        offsets = made.places.offsets
        if not spans:
            return np.full(len(offsets), _NOT_DELIVERED, np.int64)
        starts, ends, seqs = (np.array([one[part] for one in spans], np.int64) for part in range(3))
        at = np.maximum(np.searchsorted(starts, offsets, side="right") - 1, 0)
        inside = (offsets >= starts[at]) & (offsets < ends[at])
        return np.where(inside, seqs[at], _NOT_DELIVERED)


def ignore(_rejected: RejectedRecord) -> None:
    """The sink rejected it as well: it is not expected in the table."""


@dataclass(frozen=True, slots=True)
class EveryRow:
    """`RowTask`: every record is a row, tombstones are none."""

    task: ExpectedRows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Hashed]:
        for made in self.task.made(batches):
            keys = partial(made.rows.hashes, self.task.keys) if self.task.keys else None
            hashed = Hashed(made.rows.hashes(), partial(self.task.shown, made), keys)
            yield hashed if not made.places.deleted.any() else _without(hashed, np.flatnonzero(~made.places.deleted))


def _without(hashed: Hashed, kept: np.ndarray) -> Hashed:
    shown, keys = hashed.shown, hashed.keys
    return Hashed(
        hashed.hashes[kept], lambda places: shown(kept[places]), None if keys is None else lambda: keys()[kept]
    )


@dataclass(frozen=True, slots=True)
class LastRows:
    """`Side` of upserts: of each key the last record; a deleted one is not there."""

    spans: Spans
    reading: ReadOptions = field(repr=False)
    task: ExpectedRows

    @property
    def name(self) -> str:
        return self.spans.name

    @property
    def parts(self) -> int:
        return 1  # after a shuffle, whose tasks Spark chooses

    def digests(self, spark: SparkSession) -> DataFrame:
        return digests_of(self._last(spark, np.empty(0, np.int64)).select("h"))

    def rows(self, spark: SparkSession, suspects: np.ndarray | None) -> DataFrame:
        return only(self._last(spark, suspects), suspects)

    def _last(self, spark: SparkSession, suspects: np.ndarray | None) -> DataFrame:
        """Contents are shuffled only of rows in suspect buckets."""
        keyed = self.spans.read(spark, self.reading).mapInArrow(cast(Any, _Keyed(self.task, suspects)), _KEYED_DDL)
        last = f.max_by(f.struct("deleted", "h", "at", "row"), f.struct("s", "p", "o")).alias("last")
        found = keyed.groupBy("k").agg(last).where(~f.col("last.deleted"))
        return found.select("last.h", "last.at", "last.row", "k")


@dataclass(frozen=True, slots=True)
class _Keyed:
    task: ExpectedRows
    suspects: np.ndarray | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for made in self.task.made(batches):
                yield self._batch(made)
        except PlayheadError as error:
            raise marked(error) from None

    def _batch(self, made: Made) -> pa.RecordBatch:
        hashes = made.rows.hashes()
        count = len(hashes)
        places = np.arange(count)
        if self.suspects is not None:
            places = rows_in(hashes, flags_of(self.suspects))
        at, rows = self.task.shown(made, places) if len(places) else ([], [])
        columns = [
            pa.array(made.rows.hashes(self.task.keys)),
            pa.array(self.task.delivered(made)),
            pa.repeat(pa.scalar(made.claim, pa.int32()), count),
            pa.array(made.places.offsets, pa.int64()),
            pa.array(made.places.deleted, pa.bool_()),
            pa.array(hashes),
            _spread(pa.array(at, pa.string()), places, count),
            _spread(pa.array(rows, pa.binary()), places, count),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_KEYED)


def _spread(values: pa.Array, places: np.ndarray, count: int) -> pa.Array:
    """Nulls between the places."""
    if len(places) == count:
        return values
    numbers = np.full(count, -1, np.int64)
    numbers[places] = np.arange(len(places))
    return values.take(pa.array(numbers, mask=numbers < 0))


def find_uses(
    spark: SparkSession, spans: Spans, reading: ReadOptions, task: ExpectedRows, keys: Sequence[int]
) -> pa.Table:
    """In which partitions (`p`) records have one of these keys (`k`), and whether tombstones are among them (`deleted`)."""
    frame = spans.read(spark, reading).mapInArrow(cast(Any, _Uses(task, np.array(keys, np.int64))), _USES_DDL)
    with spark_translated(f"looking for keys in {spans.name}"):
        return frame.distinct().toArrow()


@dataclass(frozen=True, slots=True)
class _Uses:
    task: ExpectedRows
    wanted: np.ndarray

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for made in self.task.made(batches):
                keys = made.rows.hashes(self.task.keys)
                found = np.isin(keys, self.wanted)
                columns = [
                    pa.array(keys[found]),
                    pa.repeat(pa.scalar(made.claim, pa.int32()), int(found.sum())),
                    pa.array(made.places.deleted[found], pa.bool_()),
                ]
                yield pa.RecordBatch.from_arrays(columns, names=["k", "p", "deleted"])
        except PlayheadError as error:
            raise marked(error) from None
