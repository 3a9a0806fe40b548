"""The options of a source in Python: those that it declares, and those of every source on Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playhead.connectors.python_classes import check_options as check_declared
from playhead.errors import ConfigInvalid, Fault, Invalid, PlayheadError
from playhead.pipeline.ingest.producer_options import check_producer
from playhead.pipeline.ingest.topic_creation import check_topic_creation
from playhead.pipeline.options import OptionReading
from playhead.pipeline.records.encode.options import Converter, parse_converter
from playhead.pipeline.records.transforms import Stages
from playhead.pipeline.records.transforms.on_sources import faults_on_sources
from playhead.pipeline.records.transforms.options import parse_stages, refused_partitioners
from playhead.sdk.loading import find_class

POLL, INTERVAL, CONNECTOR = "poll", "interval", "connector"
BOUNDARY = "transaction.boundary"
INTERVAL_MS = "transaction.boundary.interval.ms"
TIMEOUT_MS = "playhead.poll.timeout.ms"
MOST_MS = 200_000  # a transaction must end before the broker aborts it


@dataclass(frozen=True, slots=True)
class PollOptions:
    """Sent to the executors."""

    key: Converter
    value: Converter
    transforms: Stages
    boundary: str = POLL
    interval_seconds: float = 60.0
    poll_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class PythonSourceOptions:
    """`config` has secrets in clear text. `roots`: where executors find the connector, besides what is installed."""

    connector: type[Any]
    config: Mapping[str, str] = field(repr=False)
    polls: PollOptions
    max_tasks: int
    roots: Sequence[str] = ()


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    return _Reading(config, worker).read()[1]


def parse_options(config: Mapping[str, str], worker: Mapping[str, str]) -> PythonSourceOptions:
    return _Reading(config, worker).parsed()


class _Reading(OptionReading[PythonSourceOptions]):
    def read(self) -> tuple[PythonSourceOptions | None, list[Fault]]:
        found = self._class()
        if found is None:
            return None, self.faults
        self.faults += check_declared(found, self.config)
        self.faults += check_topic_creation(self.config)
        self.faults += check_producer(self.config, self.worker)
        self.faults += refused_partitioners(self.config, self.worker)
        polls = self._polls(found)
        if polls is None:
            return None, self.faults
        return PythonSourceOptions(found, self.config, polls, self.number("tasks.max", 1, 1)), self.faults

    def _class(self) -> type[Any] | None:
        try:
            return find_class(self.config["connector.class"])
        except Invalid as error:
            self.fault("connector.class", f"{error.what}; {error.hint}" if error.hint else error.what)
            return None

    def _polls(self, found: type[Any]) -> PollOptions | None:
        boundary = self.one_of(BOUNDARY, POLL, (POLL, INTERVAL, CONNECTOR))
        if boundary == CONNECTOR and not found.defines_transactions:
            self.fault(BOUNDARY, f"cannot be connector: {found.__name__} does not define transactions")
        flush_ms = self.worker.get("offset.flush.interval.ms", "60000").strip()
        interval = self.number(INTERVAL_MS, min(int(flush_ms) if flush_ms.isdigit() else 60_000, MOST_MS), 1, MOST_MS)
        timeout = self.number(TIMEOUT_MS, 60_000, 10, MOST_MS)
        stages: Stages = ()
        try:
            stages = parse_stages(self.config)
            self.faults += faults_on_sources(stages)
        except ConfigInvalid as error:
            self.faults += error.faults
        key, value = self._converter("key.converter"), self._converter("value.converter")
        if key is None or value is None:
            return None
        return PollOptions(key, value, stages, boundary, interval / 1000, timeout / 1000)

    def _converter(self, option: str) -> Converter | None:
        try:
            return parse_converter(option, self.config, self.worker)
        except PlayheadError as error:
            self.fault(option, f"{error.what}; {error.hint}" if error.hint else error.what)
            return None
