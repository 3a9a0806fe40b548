"""`playhead replay`: finds the connector's config, plans, and with a Spark session delivers the part again.

To the sink's own place: `redo.py`. To another folder: the same connector options with that folder, exactly the asked offsets, and
nothing in the ledger; files are named by their offsets, so the same command writes the same files again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.config.secrets import SecretKeys
from playhead.connect.rest import open_rest
from playhead.connectors.files import read_files
from playhead.errors import NotFound, PlayheadError, Refused, Unreachable
from playhead.kafka.properties import client_properties
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.ledger.model import RangeClaim, Run
from playhead.ledger.ranges import RangeLedger, open_ranges
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import ConnectorSpec, Deadline, Result
from playhead.model.outcome import result_of
from playhead.model.ranges import OffsetRange
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.connect_home import ConnectHome, find_home, find_worker
from playhead.pipeline.deliver.files.options import parse_options
from playhead.pipeline.deliver.files.sink import FilesSink
from playhead.pipeline.deliver.group import group_settings
from playhead.pipeline.deliver.rejects import RejectPolicy
from playhead.pipeline.deliver.task import ISOLATION, READ_COMMITTED, ReadOptions, deliver
from playhead.pipeline.deliver.topics import TopicLogs
from playhead.pipeline.replay.asked import Asked
from playhead.pipeline.replay.journal import begin_entry, finish_entry
from playhead.pipeline.replay.plan import ReplayPlan, SinkState, find_compacted, plan_replay, read_state
from playhead.pipeline.replay.redo import Redo, RedoOutcome, open_writer
from playhead.pipeline.spark import SparkOptions, count_slots, new_log, spark_session
from playhead.pipeline.spec import Ready, check_specs
from playhead.pipeline.stop import find_run

OWN_PLACE = "its own place"
_OF_BUCKET = ("s3.bucket.name", "s3.region", "store.url")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`to_dir` None: to the sink's own place. `accepts`: see `Redo`."""

    file: str | None = None
    to_dir: Path | None = None
    accepts: bool = False
    spark: SparkOptions = field(default_factory=SparkOptions)
    offsets_per_claim: int = 500_000
    seconds: float = 30.0
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedReplay:
    """`found_in`: where the config of the connector is from."""

    ready: Ready
    run: Run
    home: ConnectHome
    state: SinkState
    logs: TopicLogs
    plan: ReplayPlan
    found_in: str
    target: str
    notes: Sequence[str]
    options: ReplayOptions

    @property
    def is_elsewhere(self) -> bool:
        return self.options.to_dir is not None

    @property
    def impossible(self) -> list[dict[str, object]]:
        found = self.plan.expired if self.is_elsewhere else self.plan.impossible
        return [{**_place(one.range), "why": one.why} for one in found]

    @property
    def rows(self) -> list[dict[str, object]]:
        """What would be done, for people and for the journal."""
        if self.is_elsewhere:
            return [{**_place(span), "does": f"write to {self.target}"} for span in self.plan.spans]
        return [
            {
                **_place(group.range),
                "asked": [[span.start, span.end] for span in group.asked],
                "ranges": len(group.recorded),
                "count": group.count,
                "objects": group.objects,
                "generation": max(one.generation for one in group.recorded),
                "does": "widened, rewrite" if group.is_widened else "rewrite",
            }
            for group in self.plan.groups
        ]


@contextmanager
def planned_replay(context: Context, name: str, asked: Asked, options: ReplayOptions) -> Iterator[PlannedReplay]:
    """Reads the ledger, the brokers and the config. Changes nothing, and needs no Spark session."""
    worker = find_worker(context)
    deadline = Deadline(options.seconds)
    home = find_home(context, deadline)
    with open_context_ledger(context, options.seconds) as ledger:
        run = find_run(ledger, name, options.cluster or home.cluster_id)
        spec, found_in = find_spec(context, name, options.file, run, Deadline(options.seconds))
        target = OWN_PLACE
        (ready,) = check_specs([spec], worker)
        _check_kind(ready, options)
        if options.to_dir is not None:
            target = str(options.to_dir)
            _check_folder(ready, options.to_dir, worker)
            (ready,) = check_specs([_with_folder(spec, options.to_dir)], worker)
        with _opened(ledger, run, ready, home, options) as (ranges, admin):
            logs = TopicLogs(admin)
            state = read_state(ranges, run.cluster, name, logs, deadline)
            plan = admin.ask(lambda asking, patience: plan_replay(state, asked, asking, patience), deadline)
            topics = sorted({span.topic for span in plan.spans})
            notes = admin.ask(lambda asking, patience: _notes(find_compacted(topics, asking, patience)), deadline)
            notes += _of_shape(plan, ready, home) if not options.to_dir else []
            yield PlannedReplay(ready, run, home, state, logs, plan, found_in, target, notes, options)


def execute_replay(context: Context, planned: PlannedReplay) -> Iterator[RedoOutcome]:
    """Yields outcomes as they come. The journal has an entry before anything is written."""
    entry = begin_entry(context, planned.run.pipeline, planned.run.cluster, planned.target, planned.rows)
    done: list[RedoOutcome] = []
    if planned.rows:
        log = new_log()
        with spark_session(replace(planned.options.spark, log=log)) as spark:
            for outcome in replay_on(context, planned, spark):
                done.append(outcome)
                yield outcome
        if all(one.result is not Result.FAILED for one in done):
            log.unlink(missing_ok=True)
    finish_entry(entry, [outcome_row(one) for one in done])


def replay_on(context: Context, planned: PlannedReplay, spark: SparkSession) -> Iterator[RedoOutcome]:
    """In a session that is open already."""
    options, home, ready = planned.options, planned.home, planned.ready
    sink = FilesSink(ready.config, home.worker)
    group = group_settings(ready.name, ready.config, home.worker, home.settings)
    own = {name: setting.text for name, setting in client_properties(context).items()}
    properties = {ISOLATION: READ_COMMITTED, **own, **group.properties}
    if planned.is_elsewhere:
        yield from _elsewhere(planned, spark, sink, properties)
        return
    redo = Redo(
        spark,
        planned.state,
        planned.logs,
        sink,
        ready.name,
        properties,
        count_slots(spark),
        options.offsets_per_claim,
        lambda: Deadline(options.seconds),
        options.accepts,
    )
    yield from redo.run(planned.plan.groups)


def outcome_row(one: RedoOutcome) -> dict[str, object]:
    return {
        **_place(one.range),
        "result": one.result.value,
        "count": one.count,
        "objects": list(one.objects),
        "removed": list(one.removed),
        "generation": one.generation,
        "detail": one.detail or None,
    }


def find_spec(context: Context, name: str, file: str | None, run: Run, deadline: Deadline) -> tuple[ConnectorSpec, str]:
    """The connector's config, and where it was found: the file, else a worker, else the ledger's copy without secrets."""
    if file is not None:
        specs = {spec.name: spec for spec in read_files([file], shared_topics=True).specs}
        if name not in specs:
            raise NotFound("connector", name, sorted(specs), f"in {file}")
        return specs[name], file
    why = ""
    if context.connect_urls:
        try:
            with open_rest(context, deadline) as rest:
                found = rest.get_config(name)
            config = {key: value for key, value in found.items() if value is not None and key != "name"}
            return ConnectorSpec(name, config), "the Connect worker"
        except NotFound:
            why = "no Connect worker has it, and "
        except Unreachable as error:
            why = f"no Connect worker answers ({error.what}), and "
    keys = SecretKeys()
    masked = sorted(key for key, value in run.config.items() if keys.is_masked(key, value))
    if not run.config or masked:
        held = (
            f"the ledger's copy of its config has no {', '.join(masked)}"
            if masked
            else "the ledger has no config of it"
        )
        raise Refused(f"{why}{held}", f"name its file: playhead replay {name} -f FILE")
    return ConnectorSpec(name, run.config), "the ledger"


def _check_kind(ready: Ready, options: ReplayOptions) -> None:
    kind = ready.kind
    if kind is ConnectorKind.FILES_SINK:
        return
    reasons = {
        ConnectorKind.JDBC_SINK: "old rows would cover newer ones in its table, which this version cannot prevent",
        ConnectorKind.FILE_SINK: "it appends to one file, and a line that is delivered again would be there twice",
    }
    what = reasons.get(kind, "it is a source: its rows would be repeats for every consumer of its topic")
    where = "another folder" if options.to_dir else "its own place"
    raise Refused(
        f"{ready.name} is a {kind.value} and cannot be replayed to {where}: {what}", "file sinks can be replayed"
    )


@contextmanager
def _opened(
    ledger: Ledger, run: Run, ready: Ready, home: ConnectHome, options: ReplayOptions
) -> Iterator[tuple[RangeLedger, ReconnectingAdmin]]:
    client = group_settings(ready.name, ready.config, home.worker, home.settings).client
    with open_ranges(ledger, run, options.seconds) as ranges, ReconnectingAdmin(client) as admin:
        yield ranges, admin


def _check_folder(ready: Ready, folder: Path, worker: Mapping[str, str]) -> None:
    """A listing of the sink's own folder must not show a record twice."""
    own = parse_options(ready.config, worker).store.folder
    if own and folder.resolve().is_relative_to(Path(own).resolve()):
        raise Refused(
            f"{folder} is in the folder of {ready.name} itself: readers of that folder would see the records twice",
            "name a folder outside; without --to-dir its own files are rewritten",
        )


def _with_folder(spec: ConnectorSpec, folder: Path) -> ConnectorSpec:
    config = {key: value for key, value in spec.config.items() if key not in _OF_BUCKET}
    return replace(spec, config={**config, "store.url": folder.absolute().as_uri()})


def _notes(compacted: Sequence[str]) -> list[str]:
    if not compacted:
        return []
    return [
        f"{', '.join(compacted)} is compacted: a range whose records are not all there any more is refused when it is read"
    ]


def _of_shape(plan: ReplayPlan, ready: Ready, home: ConnectHome) -> list[str]:
    shape = FilesSink(ready.config, home.worker).shape
    others = sum(one.shape != shape for group in plan.groups for one in group.recorded)
    if not others:
        return []
    return [
        f"{others} range(s) were delivered with other options: their files are cut, placed and written by the options as they"
        " are now, and files that are left over are removed"
    ]


def _elsewhere(
    planned: PlannedReplay, spark: SparkSession, sink: FilesSink, properties: Mapping[str, str]
) -> Iterator[RedoOutcome]:
    """One claim per span; spans of one topic partition follow each other."""
    made_ms = int(time.time() * 1000)

    def deadline() -> Deadline:
        return Deadline(planned.options.seconds)

    rounds: list[list[OffsetRange]] = []
    for span in planned.plan.spans:
        free = next((one for one in rounds if all(other.place != span.place for other in one)), None)
        if free is None:
            rounds.append(free := [])
        free.append(span)
    for spans in rounds:
        claims = [RangeClaim(span, True, sink.shape, made_ms) for span in spans]
        try:
            writer = open_writer(sink, planned.state, planned.logs, claims, deadline)
            policy = RejectPolicy(planned.ready.name, tolerates=True)
            done = deliver(spark, ReadOptions(properties, sink.has_keys, sink.has_headers), claims, writer, policy)
        except PlayheadError as error:
            what = f"{error.what}; {error.hint}" if error.hint else error.what
            yield from (RedoOutcome(span, result_of(error), detail=what) for span in spans)
            continue
        for claim, closed in done:
            rejected = sum(one.rejected for one in closed)
            yield RedoOutcome(
                claim.range,
                Result.CHANGED,
                sum(one.count for one in closed),
                [output.name for one in closed for output in one.outputs],
                detail=f"{rejected} record(s) did not fit and were left out" if rejected else "",
            )


def _place(span: OffsetRange) -> dict[str, object]:
    return {"topic": span.topic, "partition": span.partition, "start": span.start, "end": span.end}
