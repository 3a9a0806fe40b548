"""A side of a comparison: rows of one tier as Spark reads them, each with its hash.

The first level needs only digests by bucket; the second the rows of some buckets, each with its place (`at`), its content
(`row`, text), and the hash of its key (`k`) where rows have one. Rows are hashed in the tasks that read them, in Python over
Arrow batches or in the JVM.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from playhead.errors import PlayheadError
from playhead.pipeline.audit.buckets import BITS, DDL, Buckets, flags_of, rows_in
from playhead.pipeline.spark_faults import marked, spark_translated

ROWS = pa.schema([("h", pa.int64()), ("at", pa.string()), ("row", pa.binary()), ("k", pa.int64())])
ROWS_DDL = "h bigint, at string, row binary, k bigint"
_LISTED = 1000  # buckets that are written into a condition
_MANY, _FEW = 64, 8  # the digests of more tasks than this are added up by so many tasks, before the driver gets them


class Hashed(NamedTuple):
    """Rows of one batch. `shown`: place and content of the rows with these numbers. `keys`: the hashes of their keys."""

    hashes: np.ndarray
    shown: Callable[[np.ndarray], tuple[Sequence[str], Sequence[bytes]]]
    keys: Callable[[], np.ndarray] | None = None


class RowTask(Protocol):
    """Picklable. Reads and hashes a part of a side in an executor."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Hashed]: ...


class Side(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def parts(self) -> int:
        """About how many rows `digests` has."""
        ...

    def digests(self, spark: SparkSession) -> DataFrame:
        """Packed `Buckets`, a row per task."""
        ...

    def rows(self, spark: SparkSession, suspects: np.ndarray | None) -> DataFrame:
        """`ROWS` of these buckets; None: of all."""
        ...


@dataclass(frozen=True, slots=True)
class TaskSide:
    """A side whose rows are hashed in Python. `parts`: the partitions of the frame."""

    name: str
    frame: Callable[[SparkSession], DataFrame]
    task: RowTask
    parts: int = 1

    def digests(self, spark: SparkSession) -> DataFrame:
        return self.frame(spark).mapInArrow(cast(Any, _Digests(self.task)), DDL)

    def rows(self, spark: SparkSession, suspects: np.ndarray | None) -> DataFrame:
        return self.frame(spark).mapInArrow(cast(Any, _Rows(self.task, suspects)), ROWS_DDL)


@dataclass(frozen=True, slots=True)
class FrameSide:
    """A side whose rows are hashed in the JVM: `frame` has the columns of `ROWS`."""

    name: str
    frame: Callable[[SparkSession], DataFrame]
    parts: int = 1

    def digests(self, spark: SparkSession) -> DataFrame:
        return digests_of(self.frame(spark).select("h"))

    def rows(self, spark: SparkSession, suspects: np.ndarray | None) -> DataFrame:
        return only(self.frame(spark), suspects)


def digests_of(hashes: DataFrame) -> DataFrame:
    """Of a column `h`."""
    return hashes.mapInArrow(cast(Any, _hash_digests), DDL)


def read_digests(spark: SparkSession, sides: Sequence[Side]) -> list[Buckets]:
    """In one job: the tasks of all sides share the slots, and none waits for the last task of another. What comes to the driver
    does not grow with the number of tasks."""
    frames = [side.digests(spark).withColumn("side", f.lit(number)) for number, side in enumerate(sides)]
    digests = reduce(DataFrame.unionAll, frames)
    if sum(side.parts for side in sides) > _MANY:
        digests = digests.repartition(_FEW).mapInArrow(cast(Any, _together), f"{DDL}, side int")
    made = [Buckets() for _ in sides]
    with spark_translated(f"reading {' and '.join(side.name for side in sides)}"):
        found = digests.toArrow()
    for number, buckets in enumerate(made):
        buckets.add_packed(found.filter(pc.equal(found["side"], number)))
    return made


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sides: dict[int, Buckets] = defaultdict(Buckets)
    for batch in batches:
        for number in pc.unique(batch["side"]).to_pylist():
            sides[number].add_packed(batch.filter(pc.equal(batch["side"], number)))
    for number, buckets in sides.items():
        packed = buckets.packed()
        yield packed.append_column("side", pa.array([number] * packed.num_rows, pa.int32()))


def _hash_digests(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    buckets = Buckets()
    for batch in batches:
        buckets.add(batch.column(0).to_numpy())
    yield buckets.packed()


def only(rows: DataFrame, suspects: np.ndarray | None) -> DataFrame:
    """Rows of these buckets."""
    if suspects is None:
        return rows
    bucket = f"cast(shiftrightunsigned(h, {64 - BITS}) AS int)"
    if len(suspects) <= _LISTED:
        return rows.where(f"{bucket} IN ({', '.join(map(str, suspects.tolist()))})")
    wanted = rows.sparkSession.createDataFrame(pa.table({"bucket": pa.array(suspects, pa.int32())}))
    return rows.join(f.broadcast(wanted), f.expr(bucket) == wanted.bucket, "left_semi")


@dataclass(frozen=True, slots=True)
class _Digests:
    task: RowTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        buckets = Buckets()
        try:
            for part in self.task(batches):
                buckets.add(part.hashes)
        except PlayheadError as error:
            raise marked(error) from None
        yield buckets.packed()


@dataclass(frozen=True, slots=True)
class _Rows:
    task: RowTask
    suspects: np.ndarray | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = None if self.suspects is None else flags_of(self.suspects)
        try:
            for part in self.task(batches):
                places = np.arange(len(part.hashes))
                if wanted is not None:
                    places = rows_in(part.hashes, wanted)
                if len(places):
                    at, rows = part.shown(places)
                    keys = pa.nulls(len(places), pa.int64()) if part.keys is None else pa.array(part.keys()[places])
                    columns = [pa.array(part.hashes[places]), pa.array(at, pa.string()), pa.array(rows, pa.binary())]
                    yield pa.RecordBatch.from_arrays([*columns, keys], schema=ROWS)
        except PlayheadError as error:
            raise marked(error) from None
