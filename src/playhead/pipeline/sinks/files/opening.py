"""The writer of a connector's config: options, place and converters put together."""

from collections.abc import Mapping

from playhead.errors import ConfigInvalid, Fault
from playhead.pipeline.sinks.files.content import AsBytes, AsColumns, AsLines, Converting
from playhead.pipeline.sinks.files.options import BYTES, PARQUET, FileSinkOptions, parse_options
from playhead.pipeline.sinks.files.options import check_options as check_files
from playhead.pipeline.sinks.files.places import Place
from playhead.pipeline.sinks.files.places.folder import FolderPlace
from playhead.pipeline.sinks.files.places.s3 import S3Place
from playhead.pipeline.sinks.files.writer import FileWriter
from playhead.pipeline.sinks.values.columns import Columns
from playhead.pipeline.sinks.values.lines import JsonLines
from playhead.pipeline.sinks.values.options import BYTES as BYTES_CONVERTER
from playhead.pipeline.sinks.values.options import Converter, check_converters, parse_converter
from playhead.pipeline.sinks.values.schema import Schema


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with a connector's config: its own options, its converters, and how they go together."""
    faults = [*check_files(config, worker), *check_converters(config, worker)]
    if not faults:
        faults += _disagreements(parse_options(config, worker), parse_converter(config, worker))
    return faults


def open_file_writer(config: Mapping[str, str], worker: Mapping[str, str], schema: Schema | None = None) -> FileWriter:
    """`schema`: for Parquet of values that carry none: given by the user, or inferred once and kept in the ledger."""
    if faults := check_options(config, worker):
        raise ConfigInvalid(faults)
    options, converter = parse_options(config, worker), parse_converter(config, worker)
    return FileWriter(options, place_of(options), _converting(options, converter, schema))


def place_of(options: FileSinkOptions) -> Place:
    store = options.store
    if store.folder:
        return FolderPlace(store.folder)
    return S3Place(store.bucket, store.region, store.endpoint, store.scheme, store.retries)


def _converting(options: FileSinkOptions, converter: Converter, schema: Schema | None) -> Converting:
    if options.format.kind == BYTES:
        return AsBytes()
    if options.format.kind == PARQUET:
        return AsColumns(Columns(converter, schema))
    return AsLines(JsonLines(converter))


def _disagreements(options: FileSinkOptions, converter: Converter) -> list[Fault]:
    if options.format.kind == BYTES and converter.name != BYTES_CONVERTER:
        return [Fault("format.class", None, f"ByteArrayFormat needs value.converter={BYTES_CONVERTER}")]
    return []
