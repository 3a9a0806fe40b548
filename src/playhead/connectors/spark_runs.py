"""Connectors that run on Spark, as the ledger tells, beside those that the workers know."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from playhead.config import Context
from playhead.connectors.status import ConnectorRow
from playhead.errors import MissingExtra, PlayheadError
from playhead.model import Deadline, Engine

if TYPE_CHECKING:
    from playhead.sql.ledger_values import Run


def list_spark_runs(context: Context, cluster: str | None, deadline: Deadline) -> tuple[list[ConnectorRow], list[str]]:
    """The newest run of each, of this Kafka cluster; and a note when the ledger cannot be asked."""
    try:
        from playhead.sql.ledger import open_context_ledger

        with open_context_ledger(context, deadline.share().remaining()) as ledger:
            runs = [run for run in ledger.list_runs() if cluster in (None, run.cluster)]
    except MissingExtra:
        return [], []  # without SQLAlchemy nothing was ever run on Spark from here
    except PlayheadError as error:
        return [], [f"what runs on Spark is not told: {error.what}"]
    return [_row(run) for run in runs], []


def _row(run: "Run") -> ConnectorRow:
    return ConnectorRow(
        run.pipeline,
        "source",
        run.words,
        1 if run.is_running else 0,
        "",
        str(run.host),
        run.detail or None,
        Engine.SPARK.value,
        position=None if run.last_position is None else run.last_position.to_json(),
    )


def merged(connect: Sequence[ConnectorRow], spark: Sequence[ConnectorRow]) -> list[ConnectorRow]:
    """By name. Stopped in Connect and run on Spark is one connector, not two; what Connect runs is Connect's."""
    known = {row.name: row for row in connect}
    for row in spark:
        own = known.get(row.name)
        if own is None:
            known[row.name] = row
        elif own.state == "stopped":
            known[row.name] = replace(row, connector_class=own.connector_class)
    return sorted(known.values(), key=lambda row: row.name)
