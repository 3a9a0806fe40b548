"""A sink in Python: each claim is given whole to a task of the connector, as records that its converters and transforms make.

The claim counts when the ledger has committed it, after `flush` has returned. A claim that was not committed is given again, with
the same offsets: delivery is at least once, and exactly once if the task stores `Claim.identity` with its output or writes the
same again. A record that converters or transforms fail at is rejected as for every sink; what the task raises ends the step.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from playhead.connectors.python_classes import check_options as check_declared
from playhead.errors import ConfigInvalid, Fault, Invalid, PlayheadError, Rejected
from playhead.ledger.model import ClosedRange, Done, RangeClaim
from playhead.pipeline.deliver.chain import SinkChain, check_chain
from playhead.pipeline.deliver.sink import OFFSET, Reject, RejectedRecord, Sink, SinkStep
from playhead.pipeline.digest import Tally
from playhead.pipeline.ingest.python.calls import CallThread, Hung
from playhead.pipeline.options import OptionReading
from playhead.pipeline.records.batch import Batch, Typed, Values
from playhead.pipeline.records.decode.batches import Decoding
from playhead.pipeline.records.decode.options import check_converters, parse_converter
from playhead.pipeline.records.encode.options import SIMPLE
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms.options import parse_stages
from playhead.sdk import Claim, SinkConnector, SinkRecord, SinkTask
from playhead.sdk.life import stopping, typed_config
from playhead.sdk.loading import add_roots, class_name, find_class, root_of
from playhead.sdk.options import read_config

if TYPE_CHECKING:
    from playhead.ledger.ranges import Also

TIMEOUT_MS = "playhead.poll.timeout.ms"


@dataclass(frozen=True, slots=True)
class PythonSinkOptions:
    """Sent to the executors. `config` has secrets in clear text. `shaping`: the values of the declared options that are no
    secrets."""

    class_name: str
    root: str
    config: Mapping[str, str] = field(repr=False)
    chain: SinkChain
    seconds: float
    shaping: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """A digest of all that shapes the output: an open claim must not be finished with others. A new password, or another
        way to treat rejected records, changes nothing of it."""
        decoding = self.chain.decoding
        converters = [asdict(one) for one in (decoding.value, decoding.key) if one]
        shaped = [self.class_name, dict(self.shaping), converters, self.chain.digest]
        return sha256(json.dumps(shaped, sort_keys=True, default=str).encode()).hexdigest()


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    return _Reading(config, worker).read()[1]


def open_python_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> Sink:
    return PythonSink(_Reading(config, worker).parsed())


class _Reading(OptionReading[PythonSinkOptions]):
    def read(self) -> tuple[PythonSinkOptions | None, list[Fault]]:
        try:
            found = find_class(self.config["connector.class"])
        except Invalid as error:
            self.fault("connector.class", error.what)
            return None, self.faults
        if found is None:
            raise Invalid(f"{self.config['connector.class']} is no class of Python")
        self.faults += check_declared(found, self.config)
        seconds = self.number(TIMEOUT_MS, 60_000, 10) / 1000
        if wrong := [*check_converters(self.config, self.worker), *check_chain(self.config, self.worker)]:
            return None, [*self.faults, *wrong]
        try:
            chain = self._chain()
        except Invalid as error:
            return None, [
                *self.faults,
                *(error.faults if isinstance(error, ConfigInvalid) else [Fault("", None, error.what)]),
            ]
        values, _ = read_config(found.config, self.config)
        shaping = {one.name: values[one.name] for one in found.config if one.name in values and not one.is_secret}
        options = PythonSinkOptions(class_name(found), str(root_of(found)), self.config, chain, seconds, shaping)
        return options, self.faults

    def _chain(self) -> SinkChain:
        """Also without transforms: a record is decoded the same way."""
        decoding = Decoding(
            parse_converter(self.config, self.worker), parse_converter(self.config, self.worker, "key"), SIMPLE
        )
        options = {name: text for name, text in self.config.items() if name.startswith(("transforms", "predicates"))}
        return SinkChain(parse_stages(self.config), decoding, json.dumps(options, sort_keys=True))


class PythonSink:
    """`Sink` in the driver."""

    def __init__(self, options: PythonSinkOptions) -> None:
        self._options = options

    @property
    def shape(self) -> str:
        return self._options.shape

    @property
    def notes(self) -> Sequence[str]:
        return (
            "a claim that was interrupted is given to the task again: at least once, unless the task knows its claims",
        )

    @property
    def fewest_records(self) -> int:
        return 0

    @property
    def has_keys(self) -> bool:
        return True

    @property
    def has_headers(self) -> bool:
        return True

    @property
    def commits_in_tasks(self) -> bool:
        return False

    def writer(self, step: SinkStep) -> "PythonWriter":  # noqa: ARG002  the records carry all that a task needs
        return PythonWriter(self._options)

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:  # noqa: ARG002  every claim is written completely
        return False

    def merging(self, done: Sequence[Done]) -> "Also | None":  # noqa: ARG002  the task has written
        return None

    def settled(self, done: Sequence[RangeClaim]) -> None:
        """Nothing is left over."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class PythonWriter:
    options: PythonSinkOptions

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        span = claim.range
        name = f"{self.options.config.get('name', '')}, {span.topic}-{span.partition}"
        thread, tally, is_hung = CallThread(name), Tally(), False

        def call(function: Callable[[], object], what: str) -> None:
            nonlocal is_hung
            try:
                thread.call(function, self.options.seconds, what)
            except PlayheadError as error:
                is_hung = isinstance(error, Hung)
                error.what = f"{name}, offsets {span.start} to {span.end}: {error.what}"
                raise

        def stop() -> None:
            if not is_hung:  # the thread of the task is still in a call
                call(task.stop, "stop")

        add_roots([Path(self.options.root)])
        connector = find_class(self.options.class_name)
        if connector is None or not issubclass(connector, SinkConnector):
            raise Rejected(f"the class {self.options.class_name} is not on this executor")
        task: SinkTask = thread.call(connector.task, self.options.seconds, "the task")
        given = Claim(span.topic, span.partition, span.start, span.end, claim.made_ms)
        with closing(thread), stopping(stop):
            call(lambda: task.start(typed_config(connector, self.options.config)), "start")
            call(lambda: task.open([given]), "open")
            for batch in batches:
                records = self._records(claim, batch, tally, reject)
                if records:
                    call(lambda records=records: task.put(records), "put")  # type: ignore[misc]
            call(lambda: task.flush({(span.topic, span.partition): span.end}), "flush")
            call(task.close, "close")
        yield tally.closed(span)

    def _records(self, claim: RangeClaim, batch: pa.RecordBatch, tally: Tally, reject: Reject) -> list[SinkRecord]:
        made = self.options.chain.apply(batch, claim.range.place)
        is_done = np.ones(batch.num_rows, bool)
        for one in made.bad:
            reject(RejectedRecord.of(claim.range, batch.column(OFFSET)[one.row].as_py(), one))
            tally.rejected += 1
            is_done[one.row] = False
        tally.add_rows(batch, is_done)
        found = [pair for part in made.batches for pair in _of_batch(part)]
        return [record for _, record in sorted(found, key=lambda pair: pair[0])]


def _of_batch(batch: Batch) -> Iterator[tuple[int, SinkRecord]]:
    keys, values, times = _python(batch.key), _python(batch.value), batch.timestamps.to_pylist()
    offsets = (batch.rows if batch.offsets is None else batch.offsets).tolist()
    headers = batch.headers or [()] * len(batch)
    for at, row in enumerate(batch.rows.tolist()):
        given = [(one.name, one.value) for one in headers[at]]
        yield row, SinkRecord(batch.topic, batch.partition or 0, offsets[at], values[at], keys[at], given, times[at])


def _python(values: Values) -> list[Any]:
    if not isinstance(values, Typed):
        return list(values.values)
    listed: list[Any] = values.column.to_pylist()
    return [_with_maps(one, values.schema) for one in listed] if _has_maps(values.schema) else listed


def _has_maps(schema: Schema) -> bool:
    inner = [one for _, one in schema.fields] + [one for one in (schema.keys, schema.items) if one]
    return schema.type == "map" or any(map(_has_maps, inner))


def _with_maps(value: Any, schema: Schema) -> Any:
    """Arrow gives a map as a list of pairs."""
    if value is None:
        return None
    if schema.type == "map":
        return {key: _with_maps(one, schema.items) for key, one in value} if schema.items else dict(value)
    if schema.is_struct:
        return {name: _with_maps(value[name], inner) for name, inner in schema.fields}
    if schema.items is not None:
        return [_with_maps(one, schema.items) for one in value]
    return value
