"""Connectors on Spark, read from the ledger and merged with those of the workers."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from playhead.config import Context
from playhead.config.ledger import may_hold_something
from playhead.connect.rest import open_rest
from playhead.connectors.status import ConnectorRow
from playhead.errors import Invalid, MissingExtra, PlayheadError, Refused
from playhead.kafka.client import describe_cluster
from playhead.kafka.properties import client_settings
from playhead.model import Deadline, Engine, TopicPartition
from playhead.offsets.spark_sinks import find_ends
from playhead.stores import Access

if TYPE_CHECKING:
    from playhead.ledger.model import Run
    from playhead.ledger.runs import Ledger


@dataclass(frozen=True, slots=True)
class SparkConnector:
    """A connector as its newest run recorded it. `config` is without secrets, and empty if an older Playhead ran it."""

    row: ConnectorRow
    config: dict[str, str]
    topics: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_cluster(context: Context, deadline: Deadline) -> str | None:
    """The id of the Kafka cluster of a context, by its brokers or else its workers. None: the context names neither."""
    fault: PlayheadError | None = None
    settings = None
    with suppress(Invalid):
        settings = client_settings(context)
    if settings is not None:
        try:
            return describe_cluster(settings, deadline.share()).id
        except PlayheadError as error:
            fault = error
    if context.connect_urls:
        with open_rest(context, deadline) as rest:
            return rest.worker().kafka_cluster_id
    if fault is not None:
        raise fault
    return None


def show_spark_run(context: Context, cluster: str | None, name: str, deadline: Deadline) -> SparkConnector | None:
    """None if the ledger has no run of that name on this Kafka cluster. A ledger that cannot be read is an error."""
    if not may_hold_something(context):
        return None
    try:
        from playhead.ledger.ranges import RangeLedger
        from playhead.ledger.runs import open_context_ledger
    except MissingExtra:
        return None  # without SQLAlchemy nothing was ever run on Spark from here
    with open_context_ledger(context, deadline.share().remaining()) as ledger:
        runs = [run for run in ledger.list_runs() if run.pipeline == name and cluster in (None, run.cluster)]
        runs = [run for run in runs if run.forgotten_by is None and not run.is_with_connect]
        if not runs:
            return None
        run = max(runs, key=lambda one: one.heartbeat)
        row = _row(run, is_sink=(run.cluster, run.pipeline) in RangeLedger(ledger).list_sinks())
        topics: set[str] = set()
        notes: list[str] = []
        try:
            if row.type == "sink":
                topics = {place.topic for place in _held(ledger, run, deadline)}
            else:
                topics = set(ledger.list_topics(run.cluster, run.pipeline))
        except PlayheadError as error:
            notes.append(f"the topics it used are not known: {error.what}")
    return SparkConnector(row, dict(run.config), tuple(sorted(topics)), tuple(notes))


def list_spark_runs(
    context: Context,
    cluster: str | None,
    deadline: Deadline,
    *,
    positions: bool = False,
    named: Collection[str] | None = None,
) -> tuple[list[ConnectorRow], list[str]]:
    """The newest run of each connector on this Kafka cluster, and a note when the ledger is unavailable.

    `positions` adds the lag of sinks. It comes from the ledger, which is authoritative for a sink on Spark. `named`: leaves out
    forgotten runs, and those that finished more than a day ago unless their name is among these. None: all of them.
    """
    if not may_hold_something(context):
        return [], []
    try:
        from playhead.ledger.ranges import RangeLedger
        from playhead.ledger.runs import open_context_ledger

        with open_context_ledger(context, deadline.share().remaining()) as ledger:
            runs = [run for run in ledger.list_runs() if cluster in (None, run.cluster) and not run.is_with_connect]
            runs = [run for run in runs if not run.is_copy]
            notes: list[str] = []
            if named is not None:
                runs = [run for run in runs if run.forgotten_by is None]
                past = {run.pipeline for run in runs if run.is_past} - set(named)
                runs = [run for run in runs if run.pipeline not in past]
                notes = [f"finished on Spark more than a day ago: {len(past)}; --all lists them"] if past else []
            sinks = set(RangeLedger(ledger).list_sinks())
            rows = [_row(run, is_sink=(run.cluster, run.pipeline) in sinks) for run in runs]
            if not positions or not any(row.type == "sink" for row in rows):
                return rows, notes
            with Access(context, deadline) as access:
                rows, more = _with_lags(ledger, runs, rows, access)
                return rows, [*notes, *more]
    except MissingExtra as error:
        if context.get("ledger") is None:
            return [], []  # without SQLAlchemy nothing was ever run on Spark from here
        return [], [f"the connectors on Spark are unknown: {error.what}; {error.hint}"]
    except PlayheadError as error:
        return [], [f"the connectors on Spark are unknown: {error.what}"]


def find_owners(context: Context, cluster: str | None, deadline: Deadline) -> tuple[dict[str, Engine], str]:
    """The engine that a connector belongs to, by name: a hand-over gave it to that engine, or a run of it is alive on Spark.
    Until its position is in place, Connect does not have it. And why that is unknown, if the ledger cannot be read."""
    if not may_hold_something(context):
        return {}, ""
    try:
        from playhead.ledger.runs import open_context_ledger

        with open_context_ledger(context, deadline.share().remaining()) as ledger:
            runs = [run for run in ledger.list_runs() if cluster in (None, run.cluster)]
    except MissingExtra:
        return {}, ""  # without SQLAlchemy nothing was ever handed over from here
    except PlayheadError as error:
        return {}, f"the ledger cannot be read: {error.what}"
    alive = {run.pipeline: Engine.SPARK for run in runs if (run.is_alive or run.is_half_given) and not run.is_copy}
    return {run.pipeline: run.owner for run in runs if run.owner is not None} | alive, ""


def refuse_owned_by_spark(
    context: Context, cluster: str | None, stopped: Mapping[str, bool], what: str, deadline: Deadline
) -> None:
    """Refuses to do `what` to connectors that belong to Spark. `stopped`: whether each is stopped in Connect, as a hand-over
    leaves it: one that is not cannot belong to Spark if the ledger cannot be read."""
    owners, unread = find_owners(context, cluster, deadline)
    for name, is_stopped in stopped.items():
        if owners.get(name) is Engine.SPARK:
            raise Refused(
                f"{name} belongs to Spark: {what}", f"playhead handover {shlex.quote(name)} --to connect --execute"
            )
        if unread and is_stopped:
            raise Refused(
                f"{name} may belong to Spark: {unread}; {what}", "repair the ledger, or name it with --ledger"
            )


def _with_lags(
    ledger: "Ledger", runs: Sequence["Run"], rows: Sequence[ConnectorRow], access: Access
) -> tuple[list[ConnectorRow], list[str]]:
    held: dict[tuple[str, str], dict[TopicPartition, int]] = {}
    notes: list[str] = []
    for run, row in zip(runs, rows, strict=True):
        try:
            held[run.cluster, run.pipeline] = _held(ledger, run, access.deadline) if row.type == "sink" else {}
        except PlayheadError as error:
            notes.append(f"the lag of {run.pipeline} is not known: {error.what}")
    lags: dict[tuple[str, str], int] = {}
    for cluster in sorted({cluster for cluster, _ in held}):
        of_cluster = {key: positions for key, positions in held.items() if key[0] == cluster and positions}
        seen = find_ends(access, cluster, {place for positions in of_cluster.values() for place in positions})
        notes += [f"the lag of the connectors on Spark is not known: {seen.why}"] if seen.why and of_cluster else []
        lags |= {
            key: sum(max(0, seen.spans[place].end - at) for place, at in positions.items() if place in seen.spans)
            for key, positions in of_cluster.items()
            if seen.spans.keys() & positions.keys()
        }
    lags |= {
        (run.cluster, run.pipeline): run.behind.records
        for run in runs
        if run.is_alive and run.behind is not None and run.behind.records is not None
    }
    return [replace(row, lag=lags.get((run.cluster, run.pipeline))) for run, row in zip(runs, rows, strict=True)], notes


def _held(ledger: "Ledger", run: "Run", deadline: Deadline) -> dict[TopicPartition, int]:
    from playhead.ledger.ranges import open_ranges

    with open_ranges(ledger, run, deadline.share().remaining()) as sinks:
        found = sinks.positions(run.cluster, run.pipeline)
    return {log.place: at.next_offset for log, at in found.items()}


def _row(run: "Run", *, is_sink: bool) -> ConnectorRow:
    return ConnectorRow(
        run.pipeline,
        "sink" if is_sink else run.settings.get("type", "source"),
        run.words,
        1 if run.is_running else 0,
        run.config.get("connector.class", ""),
        str(run.host),
        run.detail or None,
        Engine.SPARK.value,
        position=None if run.last_position is None else run.last_position.to_json(),
    )


def merged(connect: Sequence[ConnectorRow], spark: Sequence[ConnectorRow]) -> list[ConnectorRow]:
    """Merged by name. A connector stopped in Connect and run on Spark is one row. If Connect runs it, its row counts."""
    known = {row.name: row for row in connect}
    for row in spark:
        own = known.get(row.name)
        if own is None:
            known[row.name] = row
        elif own.state == "stopped":
            lag = own.lag if row.lag is None else row.lag
            known[row.name] = replace(row, type=own.type, connector_class=own.connector_class, lag=lag)
    return sorted(known.values(), key=lambda row: row.name)
