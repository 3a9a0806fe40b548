"""`playhead run`: checks connector files, opens a Spark session and a ledger, hands every connector to the supervisor."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.config.scrub import scrub_of
from playhead.config.secrets import SecretKeys, masked_config
from playhead.connectors.python_classes import types_of
from playhead.errors import Invalid, PlayheadError, Refused
from playhead.kafka.properties import client_properties
from playhead.ledger.model import RANGES_AT, HandedOver, RunState, config_setting
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.offsets.plugins import use_plugins
from playhead.pipeline.classes import ConnectorKind, needs_local_files, notes_of, open_sink, target_ledger_url
from playhead.pipeline.connect_home import ConnectHome, check_not_in_connect, find_home, find_worker, finds_with_catalog
from playhead.pipeline.deliver.group import group_settings
from playhead.pipeline.deliver.rejects import parse_rejects
from playhead.pipeline.deliver.steps import Deliver, Delivery
from playhead.pipeline.deliver.topics import subscription_of
from playhead.pipeline.ingest.position_log import PositionLog
from playhead.pipeline.ingest.source import Source
from playhead.pipeline.ingest.steps import Ingest, IngestOptions, SourceConnection
from playhead.pipeline.ingest.topic_creation import parse_topic_creation
from playhead.pipeline.jvm import SparkJvm, SparkOptions
from playhead.pipeline.records.transforms import makes_keys
from playhead.pipeline.records.transforms.options import parse_stages
from playhead.pipeline.shipping import Shipping
from playhead.pipeline.slots import Slots
from playhead.pipeline.spark import SessionStart, cancel_jobs, check_ledger_reach, count_slots, find_loss
from playhead.pipeline.spec import TASKS, Ready, sort_specs
from playhead.pipeline.step import Underway, Work
from playhead.pipeline.supervisor import Grant, Pace, Pipeline, Progress, Report, Retries, RunEnd, Supervisor
from playhead.sdk.loading import find_class
from playhead.sql.address import parse_address

T = TypeVar("T")
MASKED_QUERY = "query.masked"
STARTING = "starting"  # the name in progress reports before any connector has started


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`interval_seconds` None: run until caught up. `give_up_seconds`: how long such a run retries during an outage. `seconds`:
    the deadline of one request to brokers, workers or the ledger. `unordered`: the tasks of a source produce side by side.
    `all_or_nothing`: nothing runs if one connector is refused."""

    spark: SparkOptions = field(default_factory=SparkOptions)
    interval_seconds: float | None = None
    rows_per_chunk: int = 500_000
    horizon_seconds: float = 60.0
    force: bool = False
    accept_repeats: bool = False
    keep_tail: bool = False
    seconds: float = 30.0
    give_up_seconds: float = 120.0
    unordered: bool = False
    all_or_nothing: bool = False

    @property
    def pace(self) -> Pace:
        return Pace(self.interval_seconds, self.give_up_seconds)


def run_connectors(
    context: Context,
    specs: Sequence[ConnectorSpec],
    options: RunOptions,
    report: Report = lambda progress: None,
    jvm: SparkJvm | None = None,
) -> RunEnd:
    """Returns how every connector ended; one that is refused does not keep the others from running. Raises only errors that
    prevent all of them from starting. `jvm`: that of `options.spark`, if it was started before; it has ended afterwards."""
    with jvm or SparkJvm(options.spark) as own, SessionStart(own) as start:
        return _run_in(start, context, specs, options, report)


def _run_in(
    start: SessionStart, context: Context, specs: Sequence[ConnectorSpec], options: RunOptions, report: Report
) -> RunEnd:
    starting = _Starting(report)
    starting.says(f"checking {len(specs)} connector(s)")
    worker = find_worker(context)
    use_plugins(context)
    if not specs:
        raise Invalid("there is no connector to run", "mark some with engine: spark, or name them with --engine spark")
    found = sort_specs(specs, worker)
    if options.all_or_nothing or not found.ready:
        found.check()
    start.begin_early()
    starting.says("asking brokers and workers")
    home, refusals = _with_retries(lambda: _checked_home(context, found.ready, options), options.pace, report)
    ready = [one for one in found.ready if one.name not in refusals]
    if refusals and (options.all_or_nothing or not ready):
        raise next(iter(refusals.values()))
    refused = {name: _refused(name, error) for name, error in {**found.refused, **refusals}.items()}
    for one in refused.values():
        report(one)
    with open_context_ledger(context, options.seconds) as ledger:
        check_ledger_reach(options.spark, ledger)
        starting.says(f"starting Spark, {options.spark.master}")
        if options.force:
            ledger.take_back(home.cluster_id, [one.name for one in ready])
        with start.session() as spark:
            starting.says("Spark has started")
            end = SparkRun(context, home, ledger, spark, options).run(ready, report)
    ended = refused | {one.name: one for one in end.connectors}
    end = replace(end, connectors=[ended[spec.name] for spec in specs])
    if not any(one.error for one in end.connectors if not one.is_refused):
        start.jvm.log.unlink(missing_ok=True)
        return end
    return replace(end, log=start.jvm.log)


@dataclass(frozen=True, slots=True)
class _Starting:
    """What is done before the first connector starts, as progress."""

    report: Report

    def says(self, doing: str) -> None:
        self.report(Progress(STARTING, underway=Underway(doing)))


def _refused(name: str, error: PlayheadError) -> Progress:
    return Progress(name, state=RunState.FAILED, error=error, is_refused=True)


def _checked_home(
    context: Context, ready: Sequence[Ready], options: RunOptions
) -> tuple[ConnectHome, dict[str, PlayheadError]]:
    """The home, and by name why a connector must not run. During an outage nothing is known: it is raised."""
    home = find_home(context, Deadline(options.seconds))
    refused: dict[str, PlayheadError] = {} if options.force else _handed_over(context, home, ready, options)
    for one in ready:
        if one.name in refused:
            continue
        try:
            _check_order(one, options)
            check_place(one, home, is_local=options.spark.is_local, master=options.spark.master)
            if not options.force:
                check_not_in_connect(context, one.spec, home, Deadline(options.seconds))
        except (Invalid, Refused) as error:
            refused[one.name] = error
    return home, refused


def _handed_over(
    context: Context, home: ConnectHome, ready: Sequence[Ready], options: RunOptions
) -> dict[str, PlayheadError]:
    """The connectors that a hand-over gave to Connect. The claim refuses them too; here it is known before Spark starts."""
    with open_context_ledger(context, options.seconds) as ledger:
        runs = {run.pipeline: run for run in ledger.list_runs() if run.cluster == home.cluster_id}
    named = [runs[one.name] for one in ready if one.name in runs]
    return {run.pipeline: HandedOver(run) for run in named if run.owner is Engine.CONNECT}


def _with_retries(request: Callable[[], T], pace: Pace, report: Report) -> T:
    """Retries during an outage, as the supervisor does for a connector that has started."""
    retries = Retries(pace)
    while True:
        try:
            return request()
        except PlayheadError as error:
            seconds = retries.pause_after(error)
            report(Progress(STARTING, waiting=f"{error.what}; next try in {seconds:g} s"))
        time.sleep(seconds)


def _check_order(one: Ready, options: RunOptions) -> None:
    if options.unordered and not one.kind.is_sink and makes_keys(parse_stages(one.config)):
        raise Refused(
            f"{one.name} creates keys, and --unordered loses the order of the records of a key",
            "leave --unordered out, or run this connector by itself",
        )


def check_place(one: Ready, home: ConnectHome, *, is_local: bool = True, master: str = "") -> None:
    """Refuses brokers other than the worker's, and local files without a local master."""
    if one.kind.is_sink:
        brokers = group_settings(one.name, one.config, home.worker, home.settings).client.bootstrap
        reason = "a run and its consumer group must be on one cluster: name a worker file of that cluster"
    else:
        brokers = home.producer_settings(one.config).bootstrap
        reason = "positions and records of a run are one transaction, so they must be on one cluster"
    if brokers != home.settings.bootstrap:
        raise Refused(f"{one.name} uses other brokers ({brokers}) than its worker's", reason)
    if needs_local_files(one.kind, one.config) and not is_local:
        verb = "writes" if one.kind.is_sink else "reads"
        raise Refused(
            f"{one.name} {verb} files of this machine",
            f"{master} does not have them: use a local master",
        )


@dataclass(slots=True)
class SparkRun:
    """Everything that a run needs, opened by its caller: one session can serve many runs."""

    context: Context
    home: ConnectHome
    ledger: Ledger
    spark: SparkSession
    options: RunOptions
    _shipping: Shipping | None = field(default=None, init=False, repr=False)

    def run(self, ready: Sequence[Ready], report: Report = lambda progress: None) -> RunEnd:
        slots = Slots(count_slots(self.spark))
        if not self.options.spark.is_local:
            self._shipping = Shipping(self.spark, use_plugins(self.context))
        supervisor = Supervisor(
            self.ledger,
            self.home.cluster_id,
            slots,
            self.options.pace,
            lambda: cancel_jobs(self.spark),
            report,
            find_loss,
        )
        with ExitStack() as logs:
            positions = _PositionLogs(self.home, logs)
            return supervisor.run([self._pipeline(one, positions) for one in ready])

    def _pipeline(self, one: Ready, positions: "_PositionLogs") -> Pipeline:
        url = target_ledger_url(one.kind, one.config)
        settings = {"master": self.options.spark.master, "type": "sink" if one.kind.is_sink else "source"}
        settings |= config_setting(masked_config(one.spec.config, {MASKED_QUERY, *_secret_options(one)}))
        if url is not None:
            settings[RANGES_AT] = parse_address(url).shown.removeprefix("sql+")

        def opened(grant: Grant) -> Work:
            self._send_code(one, grant)
            return self._open_sink(one, grant) if one.kind.is_sink else self._open_source(one, grant, positions)

        return Pipeline(one.name, settings, url, opened, _scrub(one))

    def _send_code(self, one: Ready, grant: Grant) -> None:
        """To the executors of a cluster. Those of a local master share the folders of this process."""
        if self._shipping is None or one.kind not in (ConnectorKind.PYTHON_SOURCE, ConnectorKind.PYTHON_SINK):
            return
        found = find_class(one.spec.connector_class)
        if found is not None and (note := self._shipping.send(found)) is not None:
            grant.note(note)

    def _open_source(self, one: Ready, grant: Grant, positions: "_PositionLogs") -> Work:
        home, own = self.home, grant.own
        topic = one.config.get("offsets.storage.topic") or home.topic
        tasks = max(int(one.config.get(TASKS, "1")), home.fencing.get(one.name, 1))
        ids = max(grant.slots.total, own.ledger.ids_used(home.cluster_id, one.name), tasks)
        own.ledger.set_ids(own.claim, ids)
        with ExitStack() as parts:
            connection = SourceConnection(
                one.name,
                home,
                home.producer_settings(one.config),
                positions.of(topic),
                positions.of(home.topic),
                ids,
                parse_topic_creation(one.config, home.worker),
            )
            parts.callback(connection.close)
            options = IngestOptions(self.options.rows_per_chunk, self.options.accept_repeats, self.options.unordered)
            work: Work
            if one.kind is ConnectorKind.PYTHON_SOURCE:
                work = self._python_source(one, grant, connection, options)
            else:
                work = Ingest(self.spark, grant.slots, connection, self._source(one), own.ledger, own.claim, options)
            parts.pop_all()
            for note in notes_of(one.kind, one.config):
                grant.note(note)
            return work

    def _python_source(self, one: Ready, grant: Grant, connection: SourceConnection, options: IngestOptions) -> Work:
        from playhead.pipeline.ingest.python.options import parse_options
        from playhead.pipeline.ingest.python.steps import PythonIngest

        roots = tuple(str(root) for root in use_plugins(self.context))
        source = replace(parse_options(one.config, self.home.worker), roots=roots)
        own = grant.own
        return PythonIngest(self.spark, grant.slots, connection, source, own.ledger, own.claim, options)

    def _source(self, one: Ready) -> Source:
        if one.kind is ConnectorKind.JDBC_SOURCE:
            from playhead.pipeline.ingest.jdbc.source import open_jdbc_source
            from playhead.pipeline.ingest.jdbc.stream import StreamOptions

            deadline = Deadline(self.options.seconds)
            reading = StreamOptions(
                with_catalog=finds_with_catalog(self.context, one.spec.connector_class, deadline),
                once=self.options.pace.is_once,
                horizon_seconds=self.options.horizon_seconds,
            )
            return open_jdbc_source(self.spark, one.config, self.home.worker, reading)
        from playhead.pipeline.ingest.file import open_file_source

        return open_file_source(one.config, self.home.worker)

    def _open_sink(self, one: Ready, grant: Grant) -> Deliver:
        home, ranges = self.home, grant.ranges
        group = group_settings(one.name, one.config, home.worker, home.settings)
        delivery = Delivery(
            one.name,
            RangeLedger(ranges.ledger),
            ranges.claim,
            group,
            {**self._client_properties(), **group.properties},
            subscription_of(one.config).find,
            parse_rejects(one.config, home.worker, one.name, group.client, home.producer_settings(one.config)),
            self.options.rows_per_chunk,
            is_once=self.options.pace.is_once,
            closes_tail=not self.options.keep_tail,
            is_one_transaction=target_ledger_url(one.kind, one.config) is not None,
        )
        return Deliver(self.spark, grant.slots, delivery, open_sink(one.kind, one.config, home.worker), grant.note)

    def _client_properties(self) -> Mapping[str, str]:
        return {name: setting.text for name, setting in client_properties(self.context).items()}


def _scrub(one: Ready) -> Callable[[str], str]:
    """Removes what the config hides. The text of a hidden query is in messages without the blanks around it."""
    masked = one.config.get(MASKED_QUERY, "").strip().rstrip(";").strip()
    own = SecretKeys(_secret_options(one))
    return scrub_of((own, one.config), (SecretKeys({MASKED_QUERY}), {MASKED_QUERY: masked}))


def _secret_options(one: Ready) -> Collection[str]:
    """The options that a connector in Python declares as secret, whatever their names."""
    return SecretKeys.of_types(types_of(one.spec.connector_class)).passwords


class _PositionLogs:
    """One reader per offsets topic, shared by the connectors of a run."""

    def __init__(self, home: ConnectHome, parts: ExitStack) -> None:
        self._home = home
        self._parts = parts
        self._logs: dict[str, PositionLog] = {}
        self._lock = threading.Lock()

    def of(self, topic: str) -> PositionLog:
        with self._lock:
            if topic not in self._logs:
                log = self._logs[topic] = PositionLog(self._home.settings, topic)
                self._parts.callback(log.close)
            return self._logs[topic]
