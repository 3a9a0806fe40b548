"""The transforms of a sink connector: its records read by the converters and put through the chain, batch by batch.

A connector without transforms has no chain, and its sink reads the bytes in its own way, which is faster; so can one whose chain
only routes. Keys and headers are read only where the sink or the chain needs them: no sink here writes headers, and only one
predicate looks at them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pyarrow as pa

from playhead.errors import ConfigInvalid, Fault
from playhead.model import TopicPartition
from playhead.pipeline.records.batch import Bad, Typed, Untyped
from playhead.pipeline.records.decode.batches import Decoded, Decoding, no_keys
from playhead.pipeline.records.decode.columns import Part, Parts
from playhead.pipeline.records.decode.options import BYTES, parse_converter
from playhead.pipeline.records.encode.options import SIMPLE, STRING
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms import (
    DropHeaders,
    Filter,
    HasHeader,
    InsertHeader,
    RegexRouter,
    Stage,
    Stages,
    TimestampRouter,
)
from playhead.pipeline.records.transforms.apply import Transformed, apply_chain, merged
from playhead.pipeline.records.transforms.arrow.routing import targets
from playhead.pipeline.records.transforms.arrow.values import Failed
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS, parse_stages

HEADER_CONVERTER = "header.converter"
_ROUTING = RegexRouter | TimestampRouter | Filter | InsertHeader | DropHeaders
_ANY = Schema("boolean", True)
PREFIXES = tuple(f"{name}." for name in OF_TRANSFORMS)
_HEADER_CONVERTERS = {
    "SimpleHeaderConverter": SIMPLE,
    "Simple": SIMPLE,
    "StringConverter": STRING,
    "String": STRING,
    "ByteArrayConverter": BYTES,
    "ByteArray": BYTES,
}


@dataclass(frozen=True, slots=True)
class SinkChain:
    """Picklable. `text`: of all its options, for the shape of the output."""

    stages: Stages
    decoding: Decoding
    text: str

    @property
    def has_keys(self) -> bool:
        return self.decoding.key is not None

    @property
    def has_headers(self) -> bool:
        return bool(self.decoding.header)

    @property
    def only_routes(self) -> bool:
        """No transform and no predicate looks into a key or a value."""
        return all(isinstance(stage.change, _ROUTING) for stage in self.stages)

    @property
    def digest(self) -> str:
        return sha256(f"{self.text} {self.decoding}".encode()).hexdigest()

    def apply(self, records: pa.RecordBatch, place: TopicPartition) -> Transformed:
        """Every row is in one of the batches, filtered, or bad."""
        return self._applied(self.decoding.decode(records, place.topic, place.partition))

    def route(
        self, records: pa.RecordBatch, place: TopicPartition, is_null: np.ndarray, bad: Sequence[Bad]
    ) -> Transformed:
        """As `apply`, for a chain that only routes: of the values it is known which are null, and which are bad. The batches have
        no values of use."""
        rows = np.delete(np.arange(records.num_rows), [one.row for one in bad])
        values = Typed(_ANY, pa.array(np.ones(len(rows), bool), mask=is_null[rows]))
        parts = Parts([Part(rows, values)] if len(rows) else [], list(bad))
        keys = no_keys(records.num_rows)
        return self._applied(self.decoding.batches(records, place.topic, place.partition, keys, parts))

    def _applied(self, decoded: Decoded) -> Transformed:
        made = [apply_chain(self.stages, batch) for batch in decoded.batches]
        filtered = [one.filtered for one in made]
        return Transformed(
            merged([batch for one in made for batch in one.batches]),
            np.sort(np.concatenate(filtered)) if filtered else np.empty(0, np.int64),
            sorted([*decoded.bad, *(one for each in made for one in each.bad)]),
        )

    def objects(self, sample: pa.RecordBatch, topic: str) -> Iterator[object]:
        """The values without a schema that records of `topic` become. `sample` is SAMPLED."""
        for batch in self.apply(sample, TopicPartition(topic, 0)).batches:
            if isinstance(batch.value, Untyped):
                yield from batch.value.values

    def targets(self, topic: str) -> set[str]:
        """The topics in which records of `topic` may end. A time in their names is left as `${timestamp}`."""
        return possible_targets(self.stages, topic)


def find_chain(config: Mapping[str, str], worker: Mapping[str, str], *, needs_keys: bool = False) -> SinkChain | None:
    """None: there are no transforms. Raises ConfigInvalid."""
    stages = parse_stages(config)
    if not stages:
        return None
    reads_keys = needs_keys or any(stage.on_key for stage in stages)
    decoding = Decoding(
        parse_converter(config, worker),
        parse_converter(config, worker, "key") if reads_keys else None,
        _header_converter(config, worker) if _reads_headers(stages) else "",
    )
    options = {name: text for name, text in config.items() if name in OF_TRANSFORMS or name.startswith(PREFIXES)}
    return SinkChain(stages, decoding, json.dumps(options, sort_keys=True))


def check_chain(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with the transforms and predicates of a sink."""
    try:
        stages = parse_stages(config)
    except ConfigInvalid as error:
        return list(error.faults)
    given = _header_converter(config, worker)
    if _reads_headers(stages) and given not in _HEADER_CONVERTERS.values():
        what = f"the Spark engine has no {HEADER_CONVERTER} {given}, and a predicate needs headers; it knows"
        return [Fault(HEADER_CONVERTER, None, f"{what} {', '.join((SIMPLE, STRING, BYTES))}")]
    return []


def check_routes(config: Mapping[str, str]) -> list[Fault]:
    """For sinks whose names are made of the topic and an offset: no two topics may end in one."""
    try:
        stages = parse_stages(config)
    except ConfigInvalid:
        return []  # reported by check_chain
    routers = [stage for stage in stages if isinstance(stage.change, RegexRouter | TimestampRouter)]
    for before, after in pairwise(routers):
        if isinstance(before.change, TimestampRouter) and isinstance(after.change, RegexRouter):
            what = "a RegexRouter after a TimestampRouter is not honoured on Spark: two topics could end in files of one name"
            return [Fault(f"transforms.{after.alias}.type", None, what)]
    owners: dict[str, str] = {}
    for topic in filter(None, (part.strip() for part in config.get("topics", "").split(","))):
        for target in sorted(possible_targets(stages, topic)):
            if owners.setdefault(target, topic) != topic:
                return [Fault("transforms", None, same_names(owners[target], topic, target))]
    return []


def same_names(one: str, other: str, target: str) -> str:
    what = f"records of {one} and of {other} would both become records of {target}, in files of the same names"
    return f"{what}; use a connector for each, with its own topics.dir"


def classes_of(config: Mapping[str, str]) -> dict[str, str]:
    """The class of each transform by its alias, as the headers of dead letters have it."""
    aliases = (part.strip() for part in config.get("transforms", "").split(","))
    return {alias: config.get(f"transforms.{alias}.type", "").strip() for alias in aliases if alias}


def _reads_headers(stages: Stages) -> bool:
    return any(isinstance(stage.only_if, HasHeader) for stage in stages)


def _header_converter(config: Mapping[str, str], worker: Mapping[str, str]) -> str:
    given = (config.get(HEADER_CONVERTER) or worker.get(HEADER_CONVERTER) or SIMPLE).strip()
    return _HEADER_CONVERTERS.get(given, given)


def possible_targets(stages: Stages, topic: str) -> set[str]:
    found = {topic}
    for stage in stages:
        found = {after for before in found for after in _targets(stage, before)}
    return found


def _targets(stage: Stage, topic: str) -> set[str]:
    try:
        return targets(stage, topic)
    except Failed:  # such records are bad
        return {topic}
