"""How a task reads its claim: by librdkafka, in the columns that sinks take."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from playhead.config.contexts import Setting
from playhead.kafka.client import make_native_consumer
from playhead.kafka.native_consumer import Fetched
from playhead.kafka.properties import ClientSettings, translate
from playhead.model.ranges import OffsetRange
from playhead.pipeline.deliver.sink import HEADERS_TYPE, RECORDS, SAMPLED
from playhead.pipeline.digest import hashes_of

ISOLATION, READ_COMMITTED = "isolation.level", "read_committed"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`properties`: of the consumers, under Java's names, with their secrets. `has_keys`, `has_headers`: the records'
    keys and headers are needed."""

    properties: Mapping[str, str] = field(repr=False)
    has_keys: bool = True
    has_headers: bool = False


@dataclass(frozen=True, slots=True)
class ClaimReader:
    """Sent to the executors, with the secrets of the settings."""

    settings: ClientSettings
    has_keys: bool
    has_headers: bool

    def read(self, span: OffsetRange) -> Generator[pa.RecordBatch, None, None]:
        with make_native_consumer(self.settings, has_keys=self.has_keys, has_headers=self.has_headers) as consumer:
            for found in consumer.read(span.topic, span.partition, span.start, span.end):
                yield self._records(found)

    def _records(self, found: Fetched) -> pa.RecordBatch:
        count = len(found)
        columns = [
            pa.array(found.offsets),
            pa.array(found.timestamps_ms * 1000).view(RECORDS.field("timestamp").type),
            pa.nulls(count, pa.binary()) if found.keys is None else found.keys,
            found.values,
            pa.array(hashes_of(found.values.to_pylist())),
        ]
        if found.headers is None:
            return pa.RecordBatch.from_arrays(columns, schema=RECORDS)
        return pa.RecordBatch.from_arrays([*columns, pa.array(found.headers, HEADERS_TYPE)], schema=SAMPLED)


def claim_reader(reading: ReadOptions) -> ClaimReader:
    settings = translate({name: Setting(text, name) for name, text in reading.properties.items()})
    return ClaimReader(settings, reading.has_keys, reading.has_headers)
