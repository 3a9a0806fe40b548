"""The options of a source that shape its records: converters, transforms, and what follows from keys and headers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from playhead.errors import ConfigInvalid, Fault
from playhead.pipeline.records.encode.options import SIMPLE, RecordOptions, parse_record_options
from playhead.pipeline.records.transforms import (
    MaskField,
    ReplaceField,
    Stage,
    Stages,
    TimestampConverter,
    makes_headers,
    makes_keys,
)
from playhead.pipeline.records.transforms.on_sources import faults_on_sources
from playhead.pipeline.records.transforms.options import parse_stages, refused_partitioners

_HEADER_CONVERTER = "header.converter"


def parse_source_records(
    config: Mapping[str, str], worker: Mapping[str, str], *, is_jdbc: bool = False
) -> RecordOptions:
    """Raises ConfigInvalid with a fault for every option that is wrong or not honoured."""
    faults: list[Fault] = []
    stages: Stages = ()
    try:
        stages = parse_stages(config)
        if is_jdbc:
            stages = tuple(_of_jdbc(stages))
        faults += faults_on_sources(stages)
    except ConfigInvalid as error:
        faults += error.faults
    if makes_keys(stages):
        faults += refused_partitioners(config, worker)
    if makes_headers(stages):
        faults += _header_faults(config, worker)
    try:
        options = parse_record_options(config, worker, stages)
    except ConfigInvalid as error:
        faults += error.faults
    if faults:
        raise ConfigInvalid(faults)
    return options


def _of_jdbc(stages: Stages) -> Iterator[Stage]:
    """What a TimestampConverter makes is no object of the JDBC source any more; but its timestamp for a timestamp is the same."""
    converted: frozenset[str] = frozenset()
    for stage in stages:
        change = stage.change
        if isinstance(change, TimestampConverter) and change.target != "Timestamp" and stage.only_if is None:
            converted |= frozenset() if stage.on_key else {change.field}
        elif isinstance(change, ReplaceField) and not stage.on_key:
            converted = frozenset(change.renames.get(name, name) for name in converted)
        elif isinstance(change, MaskField):
            change = replace(change, of_jdbc=frozenset(change.fields) - converted)
        yield replace(stage, change=change)


def _header_faults(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Only for records with headers: without them the converter never writes."""
    source = config if config.get(_HEADER_CONVERTER) else worker
    name = source.get(_HEADER_CONVERTER, SIMPLE).strip()
    if name in (SIMPLE, SIMPLE.rpartition(".")[2]):
        return []
    what = f"{name} is not honoured on Spark: headers are written as SimpleHeaderConverter writes them"
    return [Fault(_HEADER_CONVERTER, None, what)]
