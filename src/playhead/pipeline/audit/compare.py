"""Two sides compared on Spark: digests by bucket first, then the rows of the buckets that differ, with one shuffle.

What comes back are the rows whose numbers differ: so many on the left, so many on the right. Rows that both sides hold equally
often never leave Spark. A third side, the tail, has the rows above the line: a live sink may have written them already. Where
records have expired, the rows that only the right side has may be millions: they are counted, and only those are listed whose key
a lost row has as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from playhead.pipeline.audit.buckets import COUNT, Buckets
from playhead.pipeline.audit.sides import Side
from playhead.pipeline.spark_faults import spark_translated

MOST = 200_000  # rows that differ and are listed
_PER_TASK = 500_000  # rows of suspect buckets
_ALL = COUNT // 2  # with more suspect buckets than this, all rows are read


@dataclass(frozen=True, slots=True)
class Unbalanced:
    """A row that the two sides do not hold equally often. `row`: its content. `key`: the hash of its key, where rows have one."""

    left: int
    right: int
    tail: int
    left_at: Sequence[str]
    right_at: Sequence[str]
    row: bytes | None
    key: int | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """`suspects`: buckets that differ. `differing`: None if only digests were compared. `more`: rows that differ beyond those.
    `unlisted`: rows that only the right side has and that were only counted."""

    left: Buckets
    right: Buckets
    suspects: np.ndarray
    differing: Sequence[Unbalanced] | None = None
    more: int = 0
    unlisted: int = 0


Say = Callable[[str], None]


def compare(
    spark: SparkSession,
    left: Side,
    right: Side,
    *,
    tail: Side | None = None,
    deep: bool = True,
    lists_right: bool = True,
    say: Say = lambda _: None,
) -> Compared:
    """`lists_right` False: rows that only the right side has are counted."""
    say(f"reading {left.name}")
    ours = left.digests(spark)
    say(f"reading {right.name}: {ours.rows} rows on the other side")
    theirs = right.digests(spark)
    suspects = ours.suspects(theirs)
    if not len(suspects) or not deep:
        return Compared(ours, theirs, suspects, None if len(suspects) else [])
    say(f"{len(suspects)} of {COUNT} buckets differ: reading their rows")
    wanted = None if len(suspects) > _ALL else suspects
    rows = sum(int(side.counts[suspects].sum()) for side in (ours, theirs))
    grouped = _grouped(spark, left, right, tail, wanted, rows // _PER_TASK + 1)
    with spark_translated(f"comparing {left.name} with {right.name}"):
        if lists_right:
            differing, more = _listed(grouped)
            return Compared(ours, theirs, suspects, differing, more)
        grouped = grouped.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return _with_partners(Compared(ours, theirs, suspects), grouped, spark)
        finally:
            grouped.unpersist()


def _grouped(
    spark: SparkSession, left: Side, right: Side, tail: Side | None, suspects: np.ndarray | None, tasks: int
) -> DataFrame:
    """`tasks`: after the shuffle, as many as the number of rows needs."""
    rows = left.rows(spark, suspects).withColumn("side", f.lit(0))
    for number, other in ((1, right), (2, tail)):
        if other is not None:
            rows = rows.unionByName(other.rows(spark, suspects).withColumn("side", f.lit(number)))
    side = f.col("side")
    places = f.collect_list(f.when(side < 2, f.struct(side.alias("side"), f.col("at").alias("at"))))
    return (
        rows.repartition(tasks, "h")
        .groupBy("h")
        .agg(
            f.count_if(side == 0).alias("n0"),
            f.count_if(side == 1).alias("n1"),
            f.count_if(side == 2).alias("n2"),
            places.alias("places"),
            f.first("row", ignorenulls=True).alias("row"),
            f.first("k", ignorenulls=True).alias("k"),
        )
        .where(f.col("n0") != f.col("n1"))
    )


def _listed(grouped: DataFrame) -> tuple[list[Unbalanced], int]:
    found = grouped.limit(MOST + 1).toArrow().to_pylist()
    more = grouped.count() - MOST if len(found) > MOST else 0
    return [_unbalanced(row) for row in found[:MOST]], more


def _with_partners(made: Compared, grouped: DataFrame, spark: SparkSession) -> Compared:
    is_right = (f.col("n0") == 0) & (f.col("n2") == 0)
    differing, more = _listed(grouped.where(~is_right))
    keys = [one.key for one in differing if one.key is not None and one.left > one.right]
    partners: list[Unbalanced] = []
    if keys:
        wanted = spark.createDataFrame(pa.table({"k": pa.array(keys, pa.int64())})).distinct()
        partners, beyond = _listed(grouped.where(is_right).join(f.broadcast(wanted), "k", "left_semi"))
        more += beyond
    copies = grouped.where(is_right).agg(f.sum("n1")).first()
    unlisted = int((copies and copies[0]) or 0) - sum(one.right for one in partners)
    return Compared(made.left, made.right, made.suspects, [*differing, *partners], more, unlisted)


def _unbalanced(row: dict[str, object]) -> Unbalanced:
    places: list[dict[str, object]] = row["places"]  # type: ignore[assignment]
    left, right = (sorted(str(one["at"]) for one in places if one["side"] == side) for side in (0, 1))
    content, key = row["row"], row["k"]
    assert content is None or isinstance(content, bytes)  # noqa: S101  the schema of ROWS
    assert key is None or isinstance(key, int)  # noqa: S101
    return Unbalanced(int(str(row["n0"])), int(str(row["n1"])), int(str(row["n2"])), left, right, content, key)
