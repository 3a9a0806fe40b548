"""`playhead run`: many connectors in one Spark session, each in a thread of its own, all of them within its slots.

One that fails does not stop the others. A first Ctrl-C lets the open steps finish, a second one abandons them: what is not
committed is as if it had never been.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.connectors.secrets import SecretKeys, scrub_of
from playhead.errors import Invalid, PlayheadError, Refused
from playhead.model import ConnectorSpec, Deadline
from playhead.pipeline.connector_run import ConnectorRun, Progress, Shared
from playhead.pipeline.home import Home, check_not_in_connect, find_home, finds_with_catalog
from playhead.pipeline.ingest import Connector
from playhead.pipeline.positions import PositionLog
from playhead.pipeline.session import SparkOptions, count_slots, new_log, spark_session
from playhead.pipeline.slots import Slots
from playhead.pipeline.sources import Source
from playhead.pipeline.spec import Ready, check_specs
from playhead.sql.ledger import Ledger, open_context_ledger
from playhead.sql.ledger_values import BEAT_SECONDS, Claim, Host, RunState


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`interval_seconds` None: until caught up. `seconds`: for asking brokers, workers and the ledger."""

    spark: SparkOptions = field(default_factory=SparkOptions)
    interval_seconds: float | None = None
    rows_per_chunk: int = 500_000
    horizon_seconds: float = 60.0
    force: bool = False
    accept_repeats: bool = False
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class RunEnd:
    """`log`: what Spark itself said, kept when a connector failed."""

    connectors: Sequence[Progress]
    interrupted: bool
    log: Path | None = None

    @property
    def exit_code(self) -> int:
        """Of one connector its own; of several, 1 if any of them failed, and 5 if an end is unknown."""
        if self.interrupted:
            return 130
        codes = {one.error.exit_code for one in self.connectors if one.error is not None}
        if len(self.connectors) > 1 and codes:
            return 5 if 5 in codes else 1
        return max(codes, default=0)


def run_connectors(
    context: Context,
    specs: Sequence[ConnectorSpec],
    options: RunOptions,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> RunEnd:
    """Every connector's end. Raises only what keeps all of them from starting."""
    home = find_home(context, Deadline(options.seconds))
    ready = check_specs(specs, home.worker)
    if not ready:
        raise Invalid("there is no connector to run", "mark some with engine: spark, or name them with --engine spark")
    for one in ready:
        _check_place(one, home, options)
        if not options.force:
            check_not_in_connect(context, one.spec, home, Deadline(options.seconds))
    with open_context_ledger(context, options.seconds) as ledger:
        if ledger.is_local and not options.spark.is_local:
            raise Refused(
                f"an SQLite ledger is for one machine, and {options.spark.master} is not",
                "give --ledger postgresql://USER@HOST/DB, which every host reaches",
            )
        log = new_log()
        with spark_session(replace(options.spark, log=log)) as spark:
            end = Frame(context, home, ledger, spark, options).run(ready, tell)
    if not any(one.error for one in end.connectors):
        log.unlink(missing_ok=True)
        return end
    return replace(end, log=log)


def _check_place(one: Ready, home: Home, options: RunOptions) -> None:
    """Refuses what would read here and write there."""
    brokers = home.producer_settings(one.config).bootstrap
    if brokers != home.settings.bootstrap:
        raise Refused(
            f"{one.name} writes to other brokers ({brokers}) than its worker's",
            "positions and records of a run are one transaction, so they must be on one cluster",
        )
    if not one.is_jdbc and not options.spark.is_local:
        raise Refused(
            f"{one.name} reads a file of this machine", f"{options.spark.master} has others: use a local master"
        )


class Frame:
    """Everything that a run needs, opened by its caller: a session can serve many runs."""

    def __init__(self, context: Context, home: Home, ledger: Ledger, spark: SparkSession, options: RunOptions) -> None:
        self._context = context
        self._home = home
        self._ledger = ledger
        self._options = options
        self._spark = spark
        self._stop = threading.Event()
        self._logs: dict[str, PositionLog] = {}

    def run(self, ready: Sequence[Ready], tell: Callable[[Progress], None] = lambda progress: None) -> RunEnd:
        slots = Slots(count_slots(self._spark))
        options = self._options
        shared = Shared(
            self._spark, slots, self._ledger, self._stop, options.rows_per_chunk, options.accept_repeats, tell
        )
        runs: list[tuple[ConnectorRun, Claim]] = []
        try:
            runs.extend(self._prepared(one, shared) for one in ready)  # those before a failure are there
        except PlayheadError as error:
            for run, claim in runs:
                run.progress.state, run.progress.error = RunState.FAILED, error
                self._finish(run.progress, claim)
            raise
        threads = [
            threading.Thread(target=run.run, kwargs={"interval_seconds": self._options.interval_seconds}, daemon=True)
            for run, _ in runs
        ]
        for thread in threads:
            thread.start()
        claims = [claim for _, claim in runs]
        try:
            interrupted = self._waited(threads, claims)
        finally:
            self._stop.set()
            self._spark.sparkContext.cancelAllJobs()
            for thread in threads:
                thread.join(30)
            for run, claim in runs:
                self._finish(run.progress, claim)
            for log in self._logs.values():
                log.close()
            self._logs.clear()
        return RunEnd([run.progress for run, _ in runs], interrupted)

    def _waited(self, threads: Sequence[threading.Thread], claims: Sequence[Claim]) -> bool:
        """True when somebody pressed Ctrl-C: once for an end after the open steps, twice for an end at once."""
        with _terminated_as_interrupted():
            try:
                self._wait(threads, claims)
            except KeyboardInterrupt:
                self._stop.set()
                with suppress(KeyboardInterrupt):
                    self._wait(threads, claims)
                return True
        return False

    def _wait(self, threads: Sequence[threading.Thread], claims: Sequence[Claim]) -> None:
        """Until all have ended, with a sign of life now and then."""
        waited = 0.0
        while any(thread.is_alive() for thread in threads):
            next(thread for thread in threads if thread.is_alive()).join(0.2)
            waited += 0.2
            if waited >= BEAT_SECONDS:
                waited = 0.0
                for claim in claims:
                    with suppress(PlayheadError):  # a step that finds it lost says so itself
                        self._ledger.beat(claim)

    def _prepared(self, one: Ready, shared: Shared) -> tuple[ConnectorRun, Claim]:
        home, ledger, slots = self._home, self._ledger, shared.slots.total
        claim = ledger.claim(home.cluster_id, one.name, Host.here(), {"master": self._options.spark.master})
        own_topic = one.config.get("offsets.storage.topic")
        own_topic = None if own_topic == home.topic else own_topic
        settings = home.producer_settings(one.config)
        told = one.config.get("tasks.max", "1")
        tasks = max(int(told) if told.isdigit() else 1, home.fencing.get(one.name, 1))
        ids = max(slots, ledger.ids_used(home.cluster_id, one.name), tasks)
        ledger.set_ids(claim, ids)
        log, workers_log = self._log(own_topic or home.topic), self._log(home.topic)
        connector = Connector(one.name, home, settings, log, workers_log, ids)
        scrub = scrub_of((SecretKeys(), one.config))
        return ConnectorRun(shared, connector, claim, lambda: self._opened(one), scrub), claim

    def _log(self, topic: str) -> PositionLog:
        return self._logs.setdefault(topic, PositionLog(self._home.settings, topic))

    def _opened(self, one: Ready) -> Source:
        if one.is_jdbc:
            from playhead.pipeline.sources.jdbc import open_jdbc_source

            return open_jdbc_source(
                self._spark,
                one.config,
                self._home.worker,
                with_catalog=finds_with_catalog(
                    self._context, one.spec.connector_class, Deadline(self._options.seconds)
                ),
                once=self._options.interval_seconds is None,
                horizon_seconds=self._options.horizon_seconds,
            )
        from playhead.pipeline.sources.file import open_file_source

        return open_file_source(one.config, self._home.worker)

    def _finish(self, progress: Progress, claim: Claim) -> None:
        detail = progress.error.what if progress.error else ""
        with suppress(PlayheadError):  # taken over: the row tells of the other run now
            self._ledger.finish(claim, progress.state or RunState.STOPPED, detail)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """`kill` and a service manager's stop mean the same as Ctrl-C."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
