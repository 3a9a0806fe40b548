"""The S3 sink connector in the driver: which schema its Parquet files have, and when the clock closes a file."""

from collections.abc import Mapping, Sequence
from functools import partial

from playhead.errors import Refused
from playhead.pipeline.records.options import JSON
from playhead.pipeline.sinks import Samples, Step, Writer
from playhead.pipeline.sinks.by_topic import ByTopic
from playhead.pipeline.sinks.files.opening import open_file_writer
from playhead.pipeline.sinks.files.options import PARQUET, parse_options
from playhead.pipeline.sinks.files.schedule import next_rotation_ms
from playhead.pipeline.sinks.values.inference import find_empty, infer_schema
from playhead.pipeline.sinks.values.options import parse_converter
from playhead.pipeline.sinks.values.schema import Schema
from playhead.sql.range_values import Done, RangeClaim, learnt_key

BY_CLOCK = "by the clock: records that are delivered anew from the start come into other files; a claim that is repeated does not"


_ANY = Schema("struct", fields=(("any", Schema("string", optional=True)),))  # of a step that comes into no file


class _NothingToLearn(Exception):
    """A step has tombstones only, or records that no schema would fit."""


class FilesSink:
    def __init__(self, config: Mapping[str, str], worker: Mapping[str, str]) -> None:
        self._config = config
        self._worker = worker
        self._options = parse_options(config, worker)
        self._converter = parse_converter(config, worker)
        self.shape = self._options.shape(self._converter)
        self.notes = [BY_CLOCK] if self._options.is_by_clock else []

    @property
    def fewest_records(self) -> int:
        """Record time may close a file after any record; the clock closes a tail."""
        cut, partitioner = self._options.cut, self._options.partitioner
        by_record = cut.rotate_ms > 0 and partitioner.is_timed and not partitioner.is_by_clock
        return 1 if by_record else cut.flush_size

    @property
    def has_keys(self) -> bool:
        return False

    @property
    def commits_in_tasks(self) -> bool:
        return False

    def writer(self, step: Step) -> Writer:
        told = self._converter.schemas_enable or self._converter.schema_text or self._converter.name != JSON
        if self._options.format.kind != PARQUET or told:
            return open_file_writer(self._config, self._worker)
        return ByTopic({topic: self._with_schema(topic, step) for topic in step.samples})

    def _with_schema(self, topic: str, step: Step) -> Writer:
        try:
            schema = Schema.from_json(step.recall(learnt_key(topic), partial(self._inferred, topic, step.samples)))
        except _NothingToLearn:
            schema = _ANY
        return open_file_writer(self._config, self._worker, schema)

    def _inferred(self, topic: str, samples: Samples) -> str:
        sample = samples[topic]()
        if not sample.num_rows:
            raise _NothingToLearn
        schema = infer_schema(sample, self._converter)
        if schema is None:
            raise Refused(
                f"no columns can be made of {topic}: none of its first records is a JSON object with members",
                "Parquet needs columns; JsonFormat writes such records as they are",
            )
        if (empty := find_empty(schema)) is not None:
            raise Refused(
                f"no column can be made of {empty!r} of {topic}: it is an empty object in all of the first records",
                "say what it is in value.converter.schema.content, with schemas.enable true; or use JsonFormat",
            )
        return schema.to_json()

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:
        due = next_rotation_ms(self._options, last_closed_ms)
        return due is not None and due <= now_ms

    def merging(self, done: Sequence[Done]) -> None:
        """Files are there before the commit, and nothing of them is in a database."""

    def settled(self, done: Sequence[RangeClaim]) -> None:
        pass

    def close(self) -> None:
        pass


def open_files_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> FilesSink:
    return FilesSink(config, worker)
