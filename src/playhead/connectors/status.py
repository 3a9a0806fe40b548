"""The state of connectors as a person means it: RUNNING with a failed task is not running."""

from collections import Counter
from dataclasses import dataclass

from playhead.config import Context
from playhead.connect.answers import ConnectorInfo, ConnectorStatus
from playhead.connect.rest import Rest, open_rest
from playhead.errors import NotFound
from playhead.model import Deadline


@dataclass(frozen=True, slots=True)
class ConnectorRow:
    """`state` is one phrase: `running`, `running, 2 of 3 tasks failed`, `running without tasks`, `stopped`, ..."""

    name: str
    type: str
    state: str
    tasks: int
    connector_class: str
    worker: str
    trace: str | None = None


def list_names(context: Context, deadline: Deadline) -> list[str]:
    with open_rest(context, deadline) as rest:
        return sorted(rest.list_connectors())


def list_connectors(context: Context, deadline: Deadline) -> list[ConnectorRow]:
    """Every connector, also one so new that it has no status yet: the worker leaves those out of its expanded list."""
    with open_rest(context, deadline) as rest:
        names = sorted(rest.list_connectors())
        expanded = rest.expand_connectors()
        rows = []
        for name in names:
            entry = expanded.get(name)
            if entry and entry.info:
                rows.append(_row(entry.info, entry.status))
            elif found := _find(rest, name):
                rows.append(found)
        return rows


def show_connector(context: Context, name: str, deadline: Deadline) -> ConnectorRow:
    with open_rest(context, deadline) as rest:
        found = _find(rest, name)
        if found is None:
            raise NotFound("connector", name, rest.list_connectors())
        return found


def _find(rest: Rest, name: str) -> ConnectorRow | None:
    """None when it is not there, or was deleted while we looked."""
    try:
        return _row(rest.get_connector(name), rest.find_status(name))
    except NotFound:
        return None


def _row(info: ConnectorInfo, status: ConnectorStatus | None) -> ConnectorRow:
    failed = [task for task in status.tasks if task.state == "FAILED"] if status else []
    trace = status.connector.trace if status else None
    return ConnectorRow(
        info.name,
        info.type,
        phrase(status),
        len(status.tasks) if status else 0,
        info.config.get("connector.class") or "",
        status.connector.worker_id if status else "",
        trace or (failed[0].trace if failed else None),
    )


def phrase(status: ConnectorStatus | None) -> str:
    if status is None:
        return "starting"
    state = status.connector.state.lower()
    counts = Counter(task.state for task in status.tasks)
    if state == "running" and not status.tasks:
        return "running without tasks"
    odd = [f"{counts[s]} of {len(status.tasks)} tasks {s.lower()}" for s in sorted(counts) if s.lower() != state]
    return ", ".join([state, *odd])
