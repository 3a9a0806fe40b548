"""What a file sink should have written of a topic: the records put through its converters and transforms, and hashed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from playhead.model import TopicPartition
from playhead.pipeline.audit.folder import contents_shown
from playhead.pipeline.audit.row_hash import octet_hashes, row_hashes
from playhead.pipeline.audit.sides import Hashed, TaskSide
from playhead.pipeline.audit.topic import Spans
from playhead.pipeline.deliver.files.format import Converting
from playhead.pipeline.deliver.reading import ReadOptions
from playhead.pipeline.deliver.sink import OFFSET
from playhead.pipeline.deliver.task import CLAIM, sink_records


@dataclass(frozen=True, slots=True)
class ExpectedContents:
    """Picklable. Tombstones and records that do not fit are not expected: the sink drops or rejects them."""

    topic: str
    converting: Converting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Hashed]:
        for batch in batches:
            if not batch.num_rows:
                continue
            place = TopicPartition(self.topic, batch.column(CLAIM)[0].as_py())
            records = sink_records(batch)
            found = self.converting.convert(records, place)
            offsets = records.column(OFFSET).to_numpy()
            for piece in found.pieces:
                content = piece.content
                is_rows = isinstance(content, pa.RecordBatch)
                hashes = row_hashes(content) if is_rows else octet_hashes(content)
                yield Hashed(hashes, partial(_shown, place, offsets[piece.rows], content))


def _shown(
    place: TopicPartition, offsets: np.ndarray, content: pa.RecordBatch | pa.Array, places: np.ndarray
) -> tuple[list[str], list[bytes]]:
    at = [f"{place.topic}-{place.partition}@{offset}" for offset in offsets[places].tolist()]
    return at, contents_shown(content, places)


def expected_side(spans: Spans, reading: ReadOptions, converting: Converting) -> TaskSide:
    def frame(spark: SparkSession) -> DataFrame:
        return spans.read(spark, reading)

    (topic,) = spans.topics
    return TaskSide(spans.name, frame, ExpectedContents(topic, converting), len(spans.spans))
