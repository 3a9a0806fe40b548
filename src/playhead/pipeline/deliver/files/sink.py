"""The driver's part of the S3 sink connector: its writer, the schema of its Parquet files, and when the clock closes a file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from playhead.errors import Refused
from playhead.ledger.model import ClosedRange, Done, RangeClaim, learnt_key
from playhead.pipeline.deliver.chain import find_chain, same_names
from playhead.pipeline.deliver.files.folder import FolderStorage
from playhead.pipeline.deliver.files.format import AsBytes, AsColumns, AsLines, Converting
from playhead.pipeline.deliver.files.joda import DAY_MS, open_zone
from playhead.pipeline.deliver.files.options import BYTES, PARQUET, CutOptions, FileSinkOptions, parse_options
from playhead.pipeline.deliver.files.routed import Routed
from playhead.pipeline.deliver.files.s3 import S3Storage
from playhead.pipeline.deliver.files.storage import Storage
from playhead.pipeline.deliver.files.transformed import Chained
from playhead.pipeline.deliver.files.writer import FileWriter
from playhead.pipeline.deliver.sink import Reject, Samples, SinkStep, Writer
from playhead.pipeline.records.decode.columns import Columns
from playhead.pipeline.records.decode.inference import find_empty, infer_from, infer_schema
from playhead.pipeline.records.decode.lines import JsonLines
from playhead.pipeline.records.decode.options import Converter, parse_converter
from playhead.pipeline.records.encode.options import JSON
from playhead.pipeline.records.schema import Schema


@dataclass(frozen=True, slots=True)
class ByTopic:
    writers: Mapping[str, Writer]

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        return self.writers[claim.range.topic].write(claim, batches, reject)


def next_rotation_ms(options: FileSinkOptions, last_closed_ms: int) -> int | None:
    """The first rotation after `last_closed_ms`; None if the clock closes nothing."""
    due = []
    if options.cut.schedule_ms:
        due.append(_scheduled(options.cut, last_closed_ms))
    if options.cut.rotate_ms and options.partitioner.is_by_clock:
        due.append(last_closed_ms + options.cut.rotate_ms)
    return min(due, default=None)


def _scheduled(cut: CutOptions, now_ms: int) -> int:
    zone = open_zone(cut.schedule_zone)
    local = now_ms + zone.offset_ms(now_ms)
    midnight = zone.instant(local // DAY_MS * DAY_MS)
    return midnight + ((now_ms - midnight) // cut.schedule_ms + 1) * cut.schedule_ms


def open_file_writer(
    config: Mapping[str, str],
    worker: Mapping[str, str],
    schema: Schema | None = None,
    incarnations: Mapping[str, int] | None = None,
) -> FileWriter:
    """`schema`: for Parquet of values without one: given by the user, or inferred once and kept in the ledger."""
    options, converter = parse_options(config, worker), parse_converter(config, worker)
    converting, kind = _converting(options, converter, schema), options.format.kind
    if chain := find_chain(config, worker):
        is_routed = chain.only_routes and kind != PARQUET
        converting = Routed(chain, converting) if is_routed else Chained(chain, kind, schema)
    return FileWriter(options, storage_of(options), converting, incarnations or {})


def storage_of(options: FileSinkOptions) -> Storage:
    store = options.store
    if store.folder:
        return FolderStorage(store.folder)
    return S3Storage(store.bucket, store.region, store.endpoint, store.scheme, store.retries)


def _converting(options: FileSinkOptions, converter: Converter, schema: Schema | None) -> Converting:
    if options.format.kind == BYTES:
        return AsBytes()
    if options.format.kind == PARQUET:
        return AsColumns(Columns(converter, schema))
    return AsLines(JsonLines(converter))


BY_CLOCK = (
    "file names depend on the clock: records delivered again from the start are written to other files; a claim that is"
    " repeated is written to the same files"
)
_ANY = Schema("struct", fields=(("any", Schema("string", optional=True)),))  # for a step that writes no file


class _NothingToInfer(Exception):
    """A step has only tombstones, or records that no schema would fit."""


class FilesSink:
    def __init__(self, config: Mapping[str, str], worker: Mapping[str, str]) -> None:
        self._config = config
        self._worker = worker
        self.options = parse_options(config, worker)
        self._converter = parse_converter(config, worker)
        self._chain = find_chain(config, worker)
        self.shape = self.options.shape(self._converter, self._chain.digest if self._chain else "")
        self.notes = [BY_CLOCK] if self.options.is_by_clock else []

    @property
    def fewest_records(self) -> int:
        """Rotation by record time may close a file after any record; rotation by the clock closes the tail."""
        cut, partitioner = self.options.cut, self.options.partitioner
        by_record = cut.rotate_ms > 0 and partitioner.is_timed and not partitioner.is_by_clock
        return 1 if by_record else cut.flush_size

    @property
    def has_keys(self) -> bool:
        return self._chain is not None and self._chain.has_keys

    @property
    def has_headers(self) -> bool:
        return self._chain is not None and self._chain.has_headers

    @property
    def commits_in_tasks(self) -> bool:
        return False

    def writer(self, step: SinkStep) -> Writer:
        self._check_routes(step)
        has_schema = self._converter.schemas_enable or self._converter.schema_text or self._converter.name != JSON
        if self.options.format.kind != PARQUET or has_schema:
            return open_file_writer(self._config, self._worker, incarnations=step.incarnations)
        return ByTopic({topic: self._with_schema(topic, step) for topic in step.samples})

    def _check_routes(self, step: SinkStep) -> None:
        """The ledger keeps which topic a target is made of: files of two topics would have the same names."""
        if self._chain is None:
            return
        for topic in step.samples:
            for target in sorted(self._chain.targets(topic)):
                owner = step.recall(f"topic of {target}", partial(str, topic))
                if owner != topic:
                    raise Refused(same_names(owner, topic, target))

    def _with_schema(self, topic: str, step: SinkStep) -> Writer:
        try:
            schema = Schema.from_json(step.recall(learnt_key(topic), partial(self._inferred, topic, step.samples)))
        except _NothingToInfer:
            schema = _ANY
        return open_file_writer(self._config, self._worker, schema, step.incarnations)

    def _inferred(self, topic: str, samples: Samples) -> str:
        sample = samples[topic]()
        if not sample.num_rows:
            raise _NothingToInfer
        chain = self._chain
        schema = infer_schema(sample, self._converter) if chain is None else infer_from(chain.objects(sample, topic))
        if schema is None:
            raise Refused(
                f"no columns can be inferred for {topic}: none of its first records is a JSON object with members",
                "Parquet needs columns; JsonFormat writes such records as they are",
            )
        if (empty := find_empty(schema)) is not None:
            raise Refused(
                f"no column can be inferred for {empty!r} of {topic}: it is an empty object in all of the first records",
                "give its schema in value.converter.schema.content, with schemas.enable true; or use JsonFormat",
            )
        return schema.text

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:
        due = next_rotation_ms(self.options, last_closed_ms)
        return due is not None and due <= now_ms

    def merging(self, done: Sequence[Done]) -> None:
        """Files are published before the commit, and the ledger's transaction needs nothing of them."""

    def settled(self, done: Sequence[RangeClaim]) -> None:
        pass

    def close(self) -> None:
        pass


def open_files_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> FilesSink:
    return FilesSink(config, worker)
