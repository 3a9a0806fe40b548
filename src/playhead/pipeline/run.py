"""`playhead run`: many connectors in one Spark session, each in a thread of its own, all of them within its slots.

One that fails does not stop the others. A first Ctrl-C lets the open steps finish, a second one abandons them: what is not
committed is as if it had never been.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.connectors.secrets import SecretKeys, scrub_of
from playhead.errors import Invalid, PlayheadError, Refused
from playhead.model import ConnectorSpec, Deadline
from playhead.pipeline.connector_run import ConnectorRun, Progress, Shared
from playhead.pipeline.group import group_settings
from playhead.pipeline.home import Home, check_not_in_connect, find_home
from playhead.pipeline.kinds import Kind
from playhead.pipeline.run_options import RunOptions
from playhead.pipeline.session import count_slots, new_log, spark_session
from playhead.pipeline.sinks.opening import is_for_one_machine
from playhead.pipeline.slots import Slots
from playhead.pipeline.spec import Ready, check_specs
from playhead.pipeline.works import Works, described
from playhead.sql.ledger import Ledger, open_context_ledger
from playhead.sql.ledger_values import BEAT_SECONDS, Claim, Host, RunState


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
    if one.kind.is_sink:
        brokers = group_settings(one.name, one.config, home.worker, home.settings).client.bootstrap
        here = is_for_one_machine(one.kind, one.config)
        reason = "a run and its consumer group are of one cluster: name a worker file of that cluster"
    else:
        brokers, here = home.producer_settings(one.config).bootstrap, one.kind is Kind.FILE_SOURCE
        reason = "positions and records of a run are one transaction, so they must be on one cluster"
    if brokers != home.settings.bootstrap:
        raise Refused(f"{one.name} uses other brokers ({brokers}) than its worker's", reason)
    if here and not options.spark.is_local:
        verb = "writes" if one.kind.is_sink else "reads"
        raise Refused(
            f"{one.name} {verb} files of this machine", f"{options.spark.master} has others: use a local master"
        )


class Frame:
    """Everything that a run needs, opened by its caller: a session can serve many runs."""

    def __init__(self, context: Context, home: Home, ledger: Ledger, spark: SparkSession, options: RunOptions) -> None:
        self._home = home
        self._ledger = ledger
        self._options = options
        self._spark = spark
        self._stop = threading.Event()
        self._works = Works(context, home, ledger, spark, options)

    def run(self, ready: Sequence[Ready], tell: Callable[[Progress], None] = lambda progress: None) -> RunEnd:
        slots = Slots(count_slots(self._spark))
        shared = Shared(self._spark, slots, self._ledger, self._stop, tell, self._options.interval_seconds)
        runs: list[tuple[ConnectorRun, Claim]] = []
        try:
            runs.extend(self._prepared(one, shared) for one in ready)  # those before a failure are there
        except PlayheadError as error:
            for run, claim in runs:
                run.progress.state, run.progress.error = RunState.FAILED, error
                self._finish(run.progress, claim)
            raise
        threads = [threading.Thread(target=run.run, daemon=True) for run, _ in runs]
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
            self._works.close()
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
        settings = {"master": self._options.spark.master, **described(one)}
        claim = self._ledger.claim(self._home.cluster_id, one.name, Host.here(), settings)
        open_work = self._works.opener(one, claim, shared.slots.total)
        return ConnectorRun(shared, one.name, claim, open_work, scrub_of((SecretKeys(), one.config))), claim

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
