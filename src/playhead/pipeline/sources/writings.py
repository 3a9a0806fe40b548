"""The columns of a step's frame from the key and the value of its records, each by its own converter."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from playhead.pipeline.records.options import RecordOptions
from playhead.pipeline.records.record import record_hash
from playhead.pipeline.records.transforms.chain import Parts
from playhead.pipeline.records.writing import Writing, write_all, write_node
from playhead.pipeline.sources import HASH, KEY, VALUE


@dataclass(frozen=True, slots=True)
class Writings:
    value: Writing
    key: Writing | None

    def of(self, frame: DataFrame, *others: Column) -> DataFrame:
        """Value, its hash and the key, then `others`."""
        written = write_all(frame, [self.value, self.key] if self.key else [self.value], *others)
        rest = [name for name in written.columns if name not in (VALUE, KEY)]
        key = F.col(KEY) if self.key else F.lit(None).cast("string").alias(KEY)
        return written.select(VALUE, record_hash(F.col(VALUE)).alias(HASH), key, *rest)


def write_parts(parts: Parts, options: RecordOptions) -> Writings:
    value = write_node(parts.value, options.value, VALUE)
    if parts.key is None or options.key is None:
        return Writings(value, None)
    return Writings(value, write_node(parts.key, options.key, KEY))
