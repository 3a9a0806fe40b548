"""`playhead replay`: finds the connector's config, plans, and with a Spark session delivers the part again.

To the sink's own place: `redo.py` for files, `tables.py` for tables. To another folder, with the same connector options:
`folders.py`. To another table or topic: `elsewhere.py`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.errors import Invalid, Refused
from playhead.kafka.client import revealed
from playhead.kafka.properties import client_properties
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.ledger.model import Run
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import Ledger, open_context_ledger, open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine, Result
from playhead.model.ranges import OffsetRange, RangeSet
from playhead.offsets.plugins import use_plugins
from playhead.pipeline.classes import ConnectorKind, target_ledger_url
from playhead.pipeline.connect_home import ConnectHome, find_home, find_worker
from playhead.pipeline.deliver.files.options import parse_options
from playhead.pipeline.deliver.files.sink import FilesSink
from playhead.pipeline.deliver.group import group_settings
from playhead.pipeline.deliver.jdbc.sink import open_jdbc_sink
from playhead.pipeline.deliver.jdbc.tables import name_of
from playhead.pipeline.deliver.reading import ISOLATION, READ_COMMITTED
from playhead.pipeline.deliver.topics import TopicLogs, subscription_of
from playhead.pipeline.replay.asked import Asked
from playhead.pipeline.replay.configs import find_spec
from playhead.pipeline.replay.elsewhere import OtherTopic, check_other_table, replay_to_table, replay_to_topic
from playhead.pipeline.replay.folders import check_folder, limit_to_known_times, replay_to_folder
from playhead.pipeline.replay.journal import begin_entry, finish_entry
from playhead.pipeline.replay.plan import (
    ReplayPlan,
    SinkState,
    find_compacted,
    limit_to_unmarked,
    plan_replay,
    read_state,
)
from playhead.pipeline.replay.redo import FilesRedo, Redo, RedoContext, RedoOutcome
from playhead.pipeline.replay.table_plan import (
    BY_KEY,
    check_tables,
    describe,
    fed_topics,
    find_writer,
    limit_by_coordinates,
    limit_by_keys,
)
from playhead.pipeline.replay.tables import open_tables_redo
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
    to_topic: str | None = None
    to_table: str | None = None
    again: bool = False

    @classmethod
    def of_context(cls, context: Context, file: str | None = None, master: str | None = None) -> "ReplayOptions":
        """With Spark's settings of the context; `master` comes before its own."""
        return cls(file, spark=SparkOptions.of_context(context, master), seconds=context.timeout_seconds)

    @property
    def is_elsewhere(self) -> bool:
        return any(one is not None for one in (self.to_dir, self.to_topic, self.to_table))


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
    compacted: frozenset[str] = frozenset()
    does: str = "rewrite"
    check_owner: Callable[[], None] = lambda: None

    @property
    def is_elsewhere(self) -> bool:
        return self.options.is_elsewhere

    @property
    def spans(self) -> list[OffsetRange]:
        return [*self.plan.spans] if self.is_elsewhere else [group.range for group in self.plan.groups]

    @property
    def impossible(self) -> list[dict[str, object]]:
        found = self.plan.expired if self.is_elsewhere else self.plan.impossible
        return [{**_place(one.range), "why": one.why} for one in found]

    @property
    def rows(self) -> list[dict[str, object]]:
        """What would be done, for people and for the journal."""
        if self.is_elsewhere:
            return [{**_place(span), "does": f"write to {self.target}"} for span in self.plan.spans]
        does = self.does
        return [
            {
                **_place(group.range),
                "asked": [[span.start, span.end] for span in group.asked],
                "ranges": len(group.recorded),
                "count": group.count,
                "objects": group.objects,
                "generation": max(one.generation for one in group.recorded),
                "does": f"widened, {does}" if group.is_widened else does,
            }
            for group in self.plan.groups
        ]


@contextmanager
def planned_replay(context: Context, name: str, asked: Asked, options: ReplayOptions) -> Iterator[PlannedReplay]:
    """Reads the ledger, the brokers and the config. Changes nothing, and needs no Spark session."""
    use_plugins(context)
    worker = find_worker(context)
    deadline = Deadline(options.seconds)
    home = find_home(context, deadline)
    with open_context_ledger(context, options.seconds) as ledger:
        run = find_run(ledger, name, options.cluster or home.cluster_id)
        spec, found_in = find_spec(context, name, options.file, run, Deadline(options.seconds))
        target = OWN_PLACE
        (ready,) = check_specs([spec], worker)
        own = ready
        _check_kind(ready, options)
        if options.to_dir is not None:
            target = str(options.to_dir)
            _check_folder(ready, options.to_dir, worker)
            (ready,) = check_specs([_with_folder(spec, options.to_dir)], worker)
        elif options.to_topic is not None:
            target = f"topic {options.to_topic}"
        elif options.to_table is not None:
            target = f"table {options.to_table}"
            (ready,) = check_specs([_with_table(spec, options.to_table)], worker)
        with _opened(ledger, ready, home, options) as (ranges, admin):
            logs = TopicLogs(admin)
            if options.to_topic is not None:
                _check_topic(ready, options.to_topic, ranges, run)
            state = read_state(ranges, run.cluster, name, logs, deadline)
            plan = admin.ask(lambda asking, patience: plan_replay(state, asked, asking, patience), deadline)
            if options.to_dir is not None:
                files = FilesSink(ready.config, home.worker)
                plan = limit_to_known_times(plan, state, files)
                check_folder(options.to_dir, files, plan.spans)
            if options.to_table is not None:
                _check_table(own, ready, home, state, plan.spans, options.seconds)
            topics = sorted({span.topic for span in plan.spans})
            compacted = admin.ask(lambda asking, patience: find_compacted(topics, asking, patience), deadline)
            does, notes = "rewrite", list[str]()
            if not options.is_elsewhere:
                place = _OwnPlace(ready, home, state, run, options)

                def find(names: Sequence[str]) -> list[str]:
                    return admin.ask(lambda asking, patience: find_compacted(names, asking, patience), deadline)

                plan, does, notes = place.plan(plan, find)
            notes += _of_compaction(compacted, does, is_elsewhere=options.is_elsewhere)
            yield PlannedReplay(
                ready,
                run,
                home,
                state,
                logs,
                plan,
                found_in,
                target,
                notes,
                options,
                frozenset(compacted),
                does,
                lambda: check_owner(ledger.get_run(run.cluster, run.pipeline)),
            )


def fixed_ranges(asked: Asked, planned: PlannedReplay) -> str:
    """The options to give instead of words that are another part at every moment. Empty if they are not."""
    if not (asked.moves or (asked.last is not None and planned.run.is_alive)):
        return ""
    merged = RangeSet(planned.spans)
    return " ".join(f"--range {one.topic}:{one.partition}:{one.start}-{one.end}" for one in merged)


def check_fixed(asked: Asked, planned: PlannedReplay) -> None:
    """Before anything is written: killed and given again, the command has to mean the same records."""
    if shown := fixed_ranges(asked, planned):
        what = "a time that is given as how long ago" if asked.moves else "--last of a sink that is running"
        raise Refused(f"{what} is another part at every moment", f"give the ranges: {shown}")


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
    group = group_settings(ready.name, ready.config, home.worker, home.settings)
    own = {name: setting.text for name, setting in client_properties(context).items()}
    properties = {ISOLATION: READ_COMMITTED, **own, **group.properties}
    of = RedoContext(
        spark,
        planned.state,
        planned.logs,
        ready.name,
        properties,
        count_slots(spark),
        options.offsets_per_claim,
        lambda: Deadline(options.seconds),
        options.accepts,
        planned.compacted,
        planned.check_owner,
    )
    if options.to_dir is not None:
        yield from replay_to_folder(of, FilesSink(ready.config, home.worker), options.to_dir, planned.plan.spans)
        return
    if options.to_topic is not None:
        settings = home.producer_settings(ready.config)
        with ReconnectingAdmin(settings) as admin:
            yield from replay_to_topic(of, OtherTopic(options.to_topic, settings, admin), planned.plan.spans)
        return
    if options.to_table is not None:
        sink = open_jdbc_sink(ready.config, home.worker)
        table = name_of(options.to_table, sink.sorting.options, sink.target)
        yield from replay_to_table(of, sink, table, planned.plan.spans)
        return
    if ready.kind is ConnectorKind.JDBC_SINK:
        sink = open_jdbc_sink(ready.config, home.worker)
        client = revealed({**group.client.common, **group.client.consumer})
        redo: Redo = open_tables_redo(of, sink, client)
    else:
        redo = FilesRedo(of, FilesSink(ready.config, home.worker))
    yield from redo.run(planned.plan.groups)


def exit_code_of(rows: Sequence[Mapping[str, object]], *, is_part: bool) -> int:
    """Of outcomes. `is_part`: some of what was asked for is impossible."""
    results = {str(row.get("result")) for row in rows}
    is_part = is_part or not rows or bool(results & {"refused", "failed"}) or any(row.get("left_out") for row in rows)
    return 5 if "unknown" in results else 1 if is_part else 0


def outcome_row(one: RedoOutcome) -> dict[str, object]:
    return {
        **_place(one.range),
        "result": one.result.value,
        "count": one.count,
        "objects": list(one.objects),
        "removed": list(one.removed),
        "generation": one.generation,
        "left_out": one.left_out,
        "detail": one.detail or None,
    }


def _check_kind(ready: Ready, options: ReplayOptions) -> None:
    kind = ready.kind
    if kind.is_sink and options.to_topic is not None:
        return
    if kind is ConnectorKind.FILES_SINK and options.to_table is None:
        return
    if kind is ConnectorKind.JDBC_SINK and options.to_dir is None:
        return
    reasons = {
        ConnectorKind.JDBC_SINK: "it writes rows and not files",
        ConnectorKind.FILES_SINK: "it writes files and not rows",
        ConnectorKind.FILE_SINK: "it appends to one file, and a line that is delivered again would be there twice",
        ConnectorKind.PYTHON_SINK: "only its own code knows whether a record that is delivered again would be there twice",
    }
    if not kind.is_sink:
        raise Invalid(
            f"{ready.name} is a source: it is replayed by the keys of its rows, and not by offsets or times of records",
            "give --range incrementing:1000..2000 or --range timestamp:TIME..TIME",
        )
    where = "another folder" if options.to_dir else "another table" if options.to_table else "its own place"
    raise Refused(
        f"{ready.name} is a {kind.value} and cannot be replayed to {where}: {reasons[kind]}",
        "--to-topic writes the records of any sink to another topic",
    )


@contextmanager
def _opened(
    ledger: Ledger, ready: Ready, home: ConnectHome, options: ReplayOptions
) -> Iterator[tuple[RangeLedger, ReconnectingAdmin]]:
    client = group_settings(ready.name, ready.config, home.worker, home.settings).client
    url = target_ledger_url(ready.kind, ready.config)  # the ledger's own copy has no password
    with ExitStack() as parts:
        ranges = RangeLedger(parts.enter_context(open_ledger(url, options.seconds)) if url else ledger)
        yield ranges, parts.enter_context(ReconnectingAdmin(client))


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


@dataclass(frozen=True, slots=True)
class _OwnPlace:
    ready: Ready
    home: ConnectHome
    state: SinkState
    run: Run
    options: ReplayOptions

    def plan(self, plan: ReplayPlan, find: Callable[[Sequence[str]], list[str]]) -> tuple[ReplayPlan, str, list[str]]:
        """What of it is possible, what is done to a range, and what the user should know. Refused if the sink cannot be replayed
        to its own place. `find`: which of some topics are compacted."""
        if self.ready.kind is ConnectorKind.FILES_SINK:
            what = "their files are cut, placed and written by the options as they are now; files that are left over are removed"
            shape = FilesSink(self.ready.config, self.home.worker).shape
            plan = plan if self.options.accepts else limit_to_unmarked(plan, self.state, shape)
            return plan, "rewrite", _of_shape(plan, shape, what)
        sink = open_jdbc_sink(self.ready.config, self.home.worker)
        accepts, seconds = self.options.accepts, self.options.seconds
        columns = check_tables(sink, self.state)
        if columns is not None:
            plan = limit_by_coordinates(plan, self.state, sink, columns, accepts=accepts, seconds=seconds)
        else:
            check_owner(self.run)
            topics = fed_topics(self.state, sink, {group.range.topic for group in plan.groups})
            compacted = find(sorted(topics))
            plan = limit_by_keys(plan, self.state, sink, compacted, accepts=accepts, seconds=seconds)
        notes = _of_shape(plan, sink.shape, "their rows are made by the options as they are now")
        if columns is None:
            notes.append(
                "everything that was delivered after these ranges is read, too: each of their keys gets its last record, so that"
                " no old value covers a newer one"
            )
        return plan, describe(columns), notes


def check_owner(run: Run) -> None:
    """Of a sink whose rows are found by a key."""
    if run.owner is Engine.CONNECT:
        raise Refused(
            f"{run.pipeline} belongs to Connect: which newer values it has written since is not in the ledger",
            f"hand it over first: playhead handover {run.pipeline} --to spark",
        )


def _with_table(spec: ConnectorSpec, table: str) -> ConnectorSpec:
    if "${" in table:
        raise Invalid(f"{table!r} would be another table for each topic", "name one table")
    return replace(spec, config={**spec.config, "table.name.format": table, "auto.create": "true"})


def _check_table(
    own: Ready, ready: Ready, home: ConnectHome, state: SinkState, spans: Sequence[OffsetRange], seconds: float
) -> None:
    mine, other = (open_jdbc_sink(one.config, home.worker) for one in (own, ready))
    name = name_of("", other.sorting.options, other.target)
    writer = find_writer(state, mine, name, seconds)
    if writer == own.name:
        raise Refused(
            f"{name} is the table of {own.name} itself", "leave --to-table out: its own rows are written again"
        )
    if writer is not None:
        raise Refused(f"{name} is a table of {writer}, whose rows would be covered or doubled", "name another table")
    check_other_table(state, other, name, spans)


def _check_topic(ready: Ready, topic: str, ranges: RangeLedger, run: Run) -> None:
    """Its records would be delivered by the sink, once more."""
    known = {log.topic for log in ranges.positions(run.cluster, run.pipeline)}
    wanted = subscription_of(ready.config)
    if topic in known or topic in wanted.names or (wanted.pattern and re.fullmatch(wanted.pattern, topic)):
        raise Refused(
            f"{ready.name} reads {topic} itself: its records would be delivered once more", "name another topic"
        )


def _of_compaction(compacted: Sequence[str], does: str, *, is_elsewhere: bool) -> list[str]:
    if not compacted:
        return []
    what = f"{', '.join(compacted)} is compacted: "
    if is_elsewhere:
        return [f"{what}records that are gone are not written"]
    if does == BY_KEY:
        return [f"{what}a record that is gone has a newer one of its key"]
    return [f"{what}a range whose records are not all there any more is refused when it is read"]


def _of_shape(plan: ReplayPlan, shape: str, what: str) -> list[str]:
    others = sum(one.shape != shape for group in plan.groups for one in group.recorded)
    return [f"{others} range(s) were delivered with other options: {what}"] if others else []


def _place(span: OffsetRange) -> dict[str, object]:
    return {"topic": span.topic, "partition": span.partition, "start": span.start, "end": span.end}
