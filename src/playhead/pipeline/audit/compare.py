"""Two sides compared on Spark: digests by bucket first, then the rows of the buckets that differ, with one shuffle.

What comes back are the rows whose numbers differ: so many on the left, so many on the right. Rows that both sides hold equally
often never leave Spark. A third side, the tail, has the rows above the line: a live sink may have written them already. Where
records have expired, the rows that only the right side has may be millions: they are counted, and only those are listed whose key
a lost row has as well.

If more rows differ than are listed, they are cut by their key: all versions of a key are listed, or none. One version alone would
be called missing or extra, and is changed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import numpy as np
import pyarrow as pa
import xxhash
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from playhead.pipeline.audit.buckets import COUNT, Buckets
from playhead.pipeline.audit.contents import payload_of
from playhead.pipeline.audit.row_hash import canonical_json
from playhead.pipeline.audit.sides import Side, read_digests
from playhead.pipeline.spark_faults import spark_translated

MOST = 200_000  # rows that differ and are listed
_FEW = 20_000  # rows of suspect buckets that the driver compares: the stages of a shuffle would take longer
_PER_TASK = 500_000  # rows of suspect buckets
_ALL = COUNT // 2  # with more suspect buckets than this, all rows are read
_SLICES = 12  # bits of the hash of a key by which rows are cut
_GROUPED_DDL = (
    "h bigint, n0 bigint, n1 bigint, n2 bigint, places array<struct<side int, at string>>, row binary, k bigint"
)


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
    `unlisted`: rows that only the right side has and that were only counted. `updated`: rows with another content, where only
    keys are compared."""

    left: Buckets
    right: Buckets
    suspects: np.ndarray
    differing: Sequence[Unbalanced] | None = None
    more: int = 0
    unlisted: int = 0
    updated: int = 0


def _no_key(_row: bytes | None) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Cut:
    """How many rows that differ are listed, and by which key they are cut. `keys_only`: a key that both sides hold equally often
    does not differ, whatever its rows hold. `lists_right` False: rows that only the right side has are counted."""

    most: int = MOST
    key_of: Callable[[bytes | None], str | None] = _no_key
    keys_only: bool = False
    lists_right: bool = True


Say = Callable[[str], None]


def compare(
    spark: SparkSession,
    left: Side,
    right: Side,
    *,
    tail: Side | None = None,
    deep: bool = True,
    cut: Cut = Cut(),
    say: Say = lambda _: None,
) -> Compared:
    say(f"reading {left.name} and {right.name}")
    ours, theirs = read_digests(spark, [left, right])
    suspects = ours.suspects(theirs)
    if not len(suspects) or not deep:
        return Compared(ours, theirs, suspects, None if len(suspects) else [])
    say(f"{len(suspects)} of {COUNT} buckets differ: reading their rows")
    wanted = None if len(suspects) > _ALL else suspects
    rows = sum(int(side.counts[suspects].sum()) for side in (ours, theirs))
    made = Compared(ours, theirs, suspects)
    if rows <= min(_FEW, cut.most) and tail is None and cut.lists_right and not cut.keys_only:
        return replace(made, differing=_differing(spark, left, right, wanted))
    grouped = _grouped(spark, left, right, tail, wanted, rows // _PER_TASK + 1)
    with spark_translated(f"comparing {left.name} with {right.name}"):
        grouped = grouped.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if not cut.lists_right:
                return _with_partners(made, grouped, cut)
            return _by_keys(made, grouped, cut) if cut.keys_only else _with_listed(made, grouped, cut)
        finally:
            grouped.unpersist()


def _sided(spark: SparkSession, sides: Sequence[Side], suspects: np.ndarray | None) -> DataFrame:
    """The rows of all sides, each with the number of its side."""
    frames = [side.rows(spark, suspects).withColumn("side", f.lit(number)) for number, side in enumerate(sides)]
    return reduce(DataFrame.unionByName, frames)


def _differing(spark: SparkSession, left: Side, right: Side, suspects: np.ndarray | None) -> list[Unbalanced]:
    """Compared in the driver."""
    with spark_translated(f"comparing {left.name} with {right.name}"):
        found = _sided(spark, [left, right], suspects).toArrow()
    _, groups = np.unique(found["h"].to_numpy(), return_inverse=True)
    balance = np.zeros(found.num_rows, np.int64)
    np.add.at(balance, groups, 1 - 2 * found["side"].to_numpy())
    rows: dict[int, list[dict[str, object]]] = defaultdict(list)
    for row in found.filter(pa.array(balance[groups] != 0)).to_pylist():
        rows[row["h"]].append(row)
    return [_of_copies(copies) for copies in rows.values()]


def _of_copies(copies: Sequence[dict[str, object]]) -> Unbalanced:
    numbers = Counter(row["side"] for row in copies)
    first = {name: next((row[name] for row in copies if row[name] is not None), None) for name in ("row", "k")}
    return _unbalanced({"n0": numbers[0], "n1": numbers[1], "n2": 0, "places": copies, **first})


def _grouped(
    spark: SparkSession, left: Side, right: Side, tail: Side | None, suspects: np.ndarray | None, tasks: int
) -> DataFrame:
    """`tasks`: after the shuffle, as many as the number of rows needs."""
    rows = _sided(spark, [left, right, *([] if tail is None else [tail])], suspects)
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


def _with_listed(made: Compared, grouped: DataFrame, cut: Cut) -> Compared:
    found = grouped.limit(cut.most + 1).toArrow().to_pylist()
    if len(found) <= cut.most:
        return replace(made, differing=[_unbalanced(row) for row in found])
    keyed = _keyed(grouped, cut)
    part = f.shiftrightunsigned("c", 64 - _SLICES)
    counted = keyed.groupBy(part.alias("part")).count().toArrow().to_pydict()
    sizes: dict[int, int] = dict(zip(counted["part"], counted["count"], strict=True))
    listed = end = 0
    while end < 1 << _SLICES and listed + sizes.get(end, 0) <= cut.most:
        listed, end = listed + sizes.get(end, 0), end + 1
    rows = keyed.where(part < end).drop("c", "d").toArrow().to_pylist()
    return replace(made, differing=[_unbalanced(row) for row in rows], more=sum(sizes.values()) - listed)


def _by_keys(made: Compared, grouped: DataFrame, cut: Cut) -> Compared:
    """Rows of keys that the sides do not hold equally often. The others were updated, if their data differ."""
    keyed = _keyed(grouped, cut)
    data = keyed.groupBy("c", "d").agg(f.sum("n0").alias("n0"), f.sum("n1").alias("n1")).where("n0 != n1")
    keys = data.groupBy("c").agg(f.sum("n0").alias("n0"), f.sum("n1").alias("n1"))
    updated = keys.where("n0 = n1").agg(f.sum("n0")).first()
    found = _with_listed(made, keyed.join(keys.where("n0 != n1"), "c", "left_semi").drop("c", "d"), cut)
    return replace(found, updated=int((updated and updated[0]) or 0))


def _with_partners(made: Compared, grouped: DataFrame, cut: Cut) -> Compared:
    is_right = (f.col("n0") == 0) & (f.col("n2") == 0)
    lost = grouped.where("n0 > n1 AND k IS NOT NULL").select("k").distinct()
    alone = grouped.where(is_right)
    found = _with_listed(made, grouped.where(~is_right).unionByName(alone.join(lost, "k", "left_semi")), cut)
    copies = alone.join(lost, "k", "left_anti").agg(f.sum("n1")).first()
    return replace(found, unlisted=int((copies and copies[0]) or 0))


def _keyed(grouped: DataFrame, cut: Cut) -> DataFrame:
    """With the hashes of the key (`c`) and of the data (`d`). Without a key, texts of the same data stay together."""
    return grouped.mapInArrow(cast(Any, _Keys(cut.key_of)), f"{_GROUPED_DDL}, c bigint, d bigint")


@dataclass(frozen=True, slots=True)
class _Keys:
    key_of: Callable[[bytes | None], str | None]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, data = [], []
            for number, row in zip(batch.column("h").to_pylist(), batch.column("row").to_pylist(), strict=True):
                key, value = self.key_of(row), payload_of(row)
                data.append(number if value is None else _hash(repr(canonical_json(value))))
                keys.append(data[-1] if key is None else _hash(key))
            batch = batch.append_column("c", pa.array(keys, pa.int64()))  # noqa: PLW2901
            yield batch.append_column("d", pa.array(data, pa.int64()))


def _hash(text: str) -> int:
    found = xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass"))
    return found - (1 << 64) if found >= 1 << 63 else found


def _unbalanced(row: dict[str, object]) -> Unbalanced:
    places: list[dict[str, object]] = row["places"]  # type: ignore[assignment]
    left, right = (sorted(str(one["at"]) for one in places if one["side"] == side) for side in (0, 1))
    content, key = row["row"], row["k"]
    assert content is None or isinstance(content, bytes)  # noqa: S101  the schema of ROWS
    assert key is None or isinstance(key, int)  # noqa: S101
    return Unbalanced(int(str(row["n0"])), int(str(row["n1"])), int(str(row["n2"])), left, right, content, key)
