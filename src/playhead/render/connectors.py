"""Connectors and their journal as maps of JSON values: for the command line, the API and the pages."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.connectors import ShownConnector
    from playhead.connectors.journal import ApplyRecord


def connector_fields(shown: "ShownConnector") -> dict[str, Any]:
    """All fields of one connector; config and traces are without secrets."""
    row = asdict(shown.row)
    return {
        **{key: row[key] for key in ("name", "type", "engine", "state", "connector_class", "worker", "lag")},
        "topics": list(shown.topics),
        "trace": row["trace"],
        "tasks": [asdict(task) for task in shown.tasks],
        "positions": [asdict(one) for one in shown.positions],
        "config": shown.config,
    }


def record_row(record: "ApplyRecord") -> dict[str, Any]:
    return {
        "id": record.id,
        "started": record.started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "who": record.who,
        "what": record.what,
        "connectors": [entry.name for entry in record.entries],
        "outcome": record.summary,
        "workers": record.urls,
    }
