"""From a checked connector to its work: a source or a sink, with everything of the run that it needs."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.errors import PlayheadError
from playhead.kafka.properties import client_properties
from playhead.model import Deadline
from playhead.pipeline.connector_run import ConnectorRun, Work
from playhead.pipeline.group import group_settings
from playhead.pipeline.home import Home, finds_with_catalog
from playhead.pipeline.ingest import Connector
from playhead.pipeline.kinds import Kind
from playhead.pipeline.positions import PositionLog
from playhead.pipeline.rejects import parse_rejects
from playhead.pipeline.run_options import RunOptions
from playhead.pipeline.sink_work import Delivery, SinkWork
from playhead.pipeline.sinks.opening import open_sink, target_ledger_url
from playhead.pipeline.sinks.subscription import subscription_of
from playhead.pipeline.source_work import SourceWork
from playhead.pipeline.sources import Source
from playhead.pipeline.spec import TASKS, Ready
from playhead.sql.address import parse_address
from playhead.sql.ledger import Ledger, open_ledger
from playhead.sql.ledger_values import RANGES_AT, Claim, Host, Run, RunState
from playhead.sql.range_ledger import RangeLedger


@dataclass(slots=True)
class Works:
    context: Context
    home: Home
    ledger: Ledger
    spark: SparkSession
    options: RunOptions
    _logs: dict[str, PositionLog] = field(default_factory=dict)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def opener(self, one: Ready, claim: Claim, slots: int) -> Callable[[ConnectorRun], Work]:
        if one.kind.is_sink:
            return lambda run: self._sink_work(one, run)
        connector = self._connector(one, claim, slots)
        return lambda run: SourceWork(
            run,
            connector,
            self._source(one),
            self.options.rows_per_chunk,
            accept_repeats=self.options.accept_repeats,
        )

    # Sources

    def _connector(self, one: Ready, claim: Claim, slots: int) -> Connector:
        home = self.home
        own_topic = one.config.get("offsets.storage.topic")
        own_topic = None if own_topic == home.topic else own_topic
        tasks = max(int(one.config.get(TASKS, "1")), home.fencing.get(one.name, 1))
        ids = max(slots, self.ledger.ids_used(home.cluster_id, one.name), tasks)
        self.ledger.set_ids(claim, ids)
        log, workers_log = self._log(own_topic or home.topic), self._log(home.topic)
        return Connector(one.name, home, home.producer_settings(one.config), log, workers_log, ids)

    def _log(self, topic: str) -> PositionLog:
        return self._logs.setdefault(topic, PositionLog(self.home.settings, topic))

    def _source(self, one: Ready) -> Source:
        if one.kind is Kind.JDBC_SOURCE:
            from playhead.pipeline.sources.jdbc import open_jdbc_source

            deadline = Deadline(self.options.seconds)
            return open_jdbc_source(
                self.spark,
                one.config,
                self.home.worker,
                with_catalog=finds_with_catalog(self.context, one.spec.connector_class, deadline),
                once=self.options.interval_seconds is None,
                horizon_seconds=self.options.horizon_seconds,
            )
        from playhead.pipeline.sources.file import open_file_source

        return open_file_source(one.config, self.home.worker)

    # Sinks

    def _sink_work(self, one: Ready, run: ConnectorRun) -> SinkWork:
        home = self.home
        ledger, claim, close = self._ledger_of(one, run)
        group = group_settings(one.name, one.config, home.worker, home.settings)
        reaching = {name: setting.text for name, setting in client_properties(self.context).items()}
        delivery = Delivery(
            one.name,
            RangeLedger(ledger),
            claim,
            group,
            {**reaching, **group.properties},
            subscription_of(one.config).find,
            parse_rejects(one.config, home.worker, one.name, group.client, home.producer_settings(one.config)),
            self.options.rows_per_chunk,
            not self.options.keep_tail,
            target_ledger_url(one.kind, one.config) is not None,
            close,
        )
        return SinkWork(run, delivery, open_sink(one.kind, one.config, home.worker))

    def _ledger_of(self, one: Ready, run: ConnectorRun) -> tuple[Ledger, Claim, Callable[[], None]]:
        """The run's own, or that of the target database, where the run is claimed a second time; and what closes it."""
        url = target_ledger_url(one.kind, one.config)
        if url is None:
            return self.ledger, run.claim, _nothing
        ledger = open_ledger(url, self.options.seconds)
        if any(_is_claimed_by(known, run.claim) for known in ledger.list_runs()):
            ledger.close()
            return self.ledger, run.claim, _nothing  # both names lead to one ledger
        claim = ledger.claim(run.claim.cluster, one.name, Host.here(), {"master": self.options.spark.master})

        def close() -> None:
            with ledger, suppress(PlayheadError):  # taken over: the row tells of the other run now
                ledger.finish(claim, run.progress.state or RunState.FINISHED)

        return ledger, claim, close


def described(one: Ready) -> dict[str, str]:
    """For the ledger: what kind of connector this is, and where its ranges are if they are elsewhere."""
    if not one.kind.is_sink:
        return {"type": "source"}
    url = target_ledger_url(one.kind, one.config)
    return {"type": "sink"} | ({} if url is None else {RANGES_AT: parse_address(url).shown.removeprefix("sql+")})


def _is_claimed_by(run: Run, claim: Claim) -> bool:
    """Only the run's own ledger is told where the ranges are. A second claim may have the same epoch by chance, and a try that
    lost its database could not say that it had ended."""
    here = (run.cluster, run.pipeline, run.epoch) == (claim.cluster, claim.pipeline, claim.epoch)
    return here and run.ranges_at is not None and run.host == Host.here() and run.is_running


def _nothing() -> None:
    pass
